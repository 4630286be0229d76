//go:build !linux

package congestion

import (
	"context"
	"errors"
)

// Run needs Linux: the network lab is made of network namespaces.
func Run(context.Context, Options) (Result, error) {
	return Result{}, errors.New("the network lab needs Linux")
}
