package service

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// addressForm is what an address to listen on looks like, for messages.
const addressForm = "want HOST:PORT with an address of this machine, or :PORT for all of them"

// CheckAddress reports an address to listen on that is not "host:port"; the host may be
// empty. Its errors name the setting that holds addr.
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

// AddressError is err, of listening on addr, for the user: it names the setting that holds
// addr, and where addr is not this machine's it says so.
func AddressError(setting, addr string, err error) error {
	var unknown *net.DNSError
	if errors.As(err, &unknown) || errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("%s: %q is not an address of this machine; %s", setting, addr, addressForm)
	}
	return fmt.Errorf("%s: %w", setting, err)
}
