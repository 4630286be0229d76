package bpf

import (
	"encoding/binary"
	"net/netip"
)

// addressKey is an address as the maps have it: IPv4 mapped into IPv6.
func addressKey(a netip.Addr) [16]byte { return a.As16() }

// addressOf is the address of a key.
func addressOf(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b[:16])).Unmap() }

// portOf is a port as it is on the wire.
func portOf(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
