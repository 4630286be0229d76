//go:build !linux

package duplication

import (
	"context"
	"errors"
)

// Run returns an error, since network namespaces and BPF need Linux.
func Run(context.Context, Options) (*Result, error) {
	return nil, errors.New("the duplication benchmark needs Linux")
}
