//go:build !linux

package fbdt

import (
	"context"
	"errors"
)

// Run fails: emulated paths need Linux network namespaces.
func Run(context.Context, Options) (Result, error) {
	return Result{}, errors.New("emulated paths need Linux")
}
