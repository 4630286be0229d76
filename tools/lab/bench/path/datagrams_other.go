//go:build !linux

package path

import (
	"context"
	"errors"
)

var errLinux = errors.New("frames in datagrams are measured in network namespaces: needs Linux")

func canMeasureDatagrams() error { return errLinux }

func datagrams(context.Context, Options) ([]DatagramRun, error) { return nil, errLinux }
