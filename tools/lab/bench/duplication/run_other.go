//go:build !linux

package duplication

import (
	"context"
	"errors"
)

// Run needs Linux: the network lab is made of network namespaces, the pair of BPF programs.
func Run(context.Context, Options) (*Result, error) {
	return nil, errors.New("the network lab and the duplication pair need Linux")
}
