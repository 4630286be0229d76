//go:build !linux

package qmux

import "net"

func limitUnsent(net.Conn) {}

func (*link) path() (PathStats, bool) { return PathStats{}, false }
