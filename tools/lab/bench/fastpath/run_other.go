//go:build !linux || !(amd64 || arm64)

package fastpath

import (
	"context"
	"errors"
)

// Run needs Linux.
func Run(context.Context, Options) (Result, error) {
	return Result{}, errors.New("the kernel fast path is for Linux on x86-64 and arm64")
}
