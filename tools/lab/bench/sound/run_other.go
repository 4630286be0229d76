//go:build !linux

package sound

import (
	"context"
	"errors"
)

// Run fails: the benchmark needs Linux.
func Run(context.Context, Options) (Result, error) {
	return Result{}, errors.New("bench sound needs Linux")
}
