package bpf

import (
	"encoding/binary"
	"net/netip"
)

// addressKey is an address as the maps hold it: IPv4 mapped into IPv6.
func addressKey(a netip.Addr) [16]byte { return a.As16() }

// addressOf is the address of a key.
func addressOf(key [16]byte) netip.Addr { return netip.AddrFrom16(key).Unmap() }

// The fields of records are in network byte order where they are in the packet.

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
