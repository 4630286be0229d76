//go:build !linux

package study

import (
	"context"
	"errors"
)

// Run returns an error, since emulated paths need Linux network namespaces.
func Run(context.Context, Options) (Result, error) {
	return Result{}, errors.New("emulated paths need Linux")
}
