//go:build !linux || !(amd64 || arm64)

package fastpath

import (
	"context"
	"errors"
)

// Run returns an error, since the fast path needs Linux.
func Run(context.Context, Options) (Result, error) {
	return Result{}, errors.New("the kernel fast path needs Linux on x86-64 or arm64")
}
