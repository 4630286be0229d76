package bpf

import (
	"encoding/binary"
	"net/netip"
)

// addressKey returns an address as a map key, with IPv4 mapped to IPv6.
func addressKey(a netip.Addr) [16]byte { return a.As16() }

// addressOf returns the address of a map key.
func addressOf(key [16]byte) netip.Addr { return netip.AddrFrom16(key).Unmap() }

// Record fields copied from packets are in network byte order.

func recordAddress(a senderAddress) netip.Addr {
	var b [16]byte
	for i, w := range a.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return addressOf(b)
}

func recordIPv4(word uint32) netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	return netip.AddrFrom4(b)
}

func recordPort(p uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], p)
	return binary.BigEndian.Uint16(b[:])
}
