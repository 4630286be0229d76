//go:build !linux

package bridge

import (
	"errors"
	"net"
)

// SetCongestion needs Linux.
func SetCongestion(net.Listener, string) error {
	return errors.New("selecting the TCP congestion control needs Linux")
}
