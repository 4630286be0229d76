//go:build !linux

package cluster

import (
	"context"
	"errors"
)

// Run returns an error, since network namespaces need Linux.
func Run(context.Context, Options) (*Result, error) {
	return nil, errors.New("the cluster benchmark needs Linux")
}
