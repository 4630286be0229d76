package service

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// addressForm describes a listen address in errors.
const addressForm = "want HOST:PORT with an address of this machine, or :PORT for all of them"

// CheckAddress rejects a listen address that is not "host:port"; the host may be empty. Its errors
// name the setting.
func CheckAddress(setting, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("%s: %q is not an address to listen on; %s", setting, addr, addressForm)
	}
	return nil
}

// AddressError wraps an error from listening on addr. It names the setting, and says so if addr is
// not an address of this machine.
func AddressError(setting, addr string, err error) error {
	var unknown *net.DNSError
	if errors.As(err, &unknown) || errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("%s: %q is not an address of this machine; %s", setting, addr, addressForm)
	}
	return fmt.Errorf("%s: %w", setting, err)
}
