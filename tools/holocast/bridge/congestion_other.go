//go:build !linux

package bridge

import (
	"errors"
	"net"
)

// SetCongestion needs Linux.
func SetCongestion(net.Listener, string) error {
	return errors.New("choosing the congestion control of the kernel's TCP needs Linux")
}
