package bpf

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// packet describes a packet to encode.
type packet struct {
	nextHop, source [6]byte
	tags            []vlan
	src, dst        netip.Addr // determine IPv4 or IPv6
	tos, ttl        uint8
	label           uint32 // IPv6
	id, fragment    uint16 // IPv4
	options         []byte // IPv4, a multiple of four
	proto           uint8
	extensions      []byte // IPv6 extension headers; ext is the type of the first
	ext             uint8
	body            []byte // transport header and payload
	padding         int    // frame padding after the packet
}

type vlan struct{ proto, id uint16 }

func (p packet) frame() []byte {
	b := append(p.nextHop[:], p.source[:]...)
	for _, t := range p.tags {
		b = binary.BigEndian.AppendUint16(b, t.proto)
		b = binary.BigEndian.AppendUint16(b, t.id)
	}
	if p.ttl == 0 {
		p.ttl = 64
	}
	if p.dst.Is6() {
		b = append(b, 0x86, 0xdd)
		b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(p.tos)<<20|p.label)
		b = binary.BigEndian.AppendUint16(b, uint16(len(p.extensions)+len(p.body)))
		next := p.proto
		if len(p.extensions) > 0 {
			next = p.ext
		}
		b = append(b, next, p.ttl)
		b = append(b, p.src.AsSlice()...)
		b = append(b, p.dst.AsSlice()...)
		b = append(b, p.extensions...)
	} else {
		b = append(b, 0x08, 0x00)
		at := len(b)
		b = append(b, 0x45+uint8(len(p.options)/4), p.tos)
		b = binary.BigEndian.AppendUint16(b, uint16(20+len(p.options)+len(p.body)))
		b = binary.BigEndian.AppendUint16(b, p.id)
		b = binary.BigEndian.AppendUint16(b, p.fragment)
		b = append(b, p.ttl, p.proto, 0, 0)
		b = append(b, p.src.AsSlice()...)
		b = append(b, p.dst.AsSlice()...)
		b = append(b, p.options...)
		binary.BigEndian.PutUint16(b[at+10:], ^sum16(b[at:]))
	}
	b = append(b, p.body...)
	return append(b, make([]byte, p.padding)...)
}

// sum16 returns the one's complement sum of b (RFC 1071).
func sum16(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// udp returns a datagram without a checksum.
func udp(from, to uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, from)
	b = binary.BigEndian.AppendUint16(b, to)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	return append(append(b, 0, 0), payload...)
}

// tcp returns a segment without options or checksum.
func tcp(from, to uint16, seq, ack uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, from)
	b = binary.BigEndian.AppendUint16(b, to)
	b = binary.BigEndian.AppendUint32(b, seq)
	b = binary.BigEndian.AppendUint32(b, ack)
	b = append(b, 5<<4, 0x10, 1, 0, 0, 0, 0, 0)
	return append(b, payload...)
}

// tcpOptions returns a segment's header with options, whose length must be a multiple of four.
func tcpOptions(segment, options []byte) []byte {
	b := append([]byte(nil), segment[:20]...)
	b[12] = uint8(5+len(options)/4) << 4
	return append(b, options...)
}

// fragmentHeader returns an IPv6 fragment header (RFC 8200 §4.5) followed by UDP.
func fragmentHeader(offset uint16, id uint32) []byte {
	b := []byte{unix.IPPROTO_UDP, 0}
	b = binary.BigEndian.AppendUint16(b, offset)
	return binary.BigEndian.AppendUint32(b, id)
}

// view holds the fields of a frame that tests inspect.
type view struct {
	ethernet [12]byte // both Ethernet addresses
	ip       []byte   // the IP packet
	v6       bool
}

// see decodes the packet behind up to two VLAN tags.
func see(frame []byte) (v view, ok bool) {
	if len(frame) < 14 {
		return v, false
	}
	copy(v.ethernet[:], frame)
	at := 12
	for range 2 {
		if t := binary.BigEndian.Uint16(frame[at:]); (t == unix.ETH_P_8021Q || t == unix.ETH_P_8021AD) &&
			len(frame) >= at+6 {
			at += 4
		}
	}
	switch binary.BigEndian.Uint16(frame[at:]) {
	case unix.ETH_P_IP:
		v.ip = frame[at+2:]
		return v, len(v.ip) >= 20
	case unix.ETH_P_IPV6:
		v.ip, v.v6 = frame[at+2:], true
		return v, len(v.ip) >= 40
	}
	return v, false
}

func (v view) tos() uint8 {
	if v.v6 {
		return uint8(binary.BigEndian.Uint16(v.ip) >> 4)
	}
	return v.ip[1]
}

func (v view) ttl() uint8 {
	if v.v6 {
		return v.ip[7]
	}
	return v.ip[8]
}

func (v view) id() uint16 { return binary.BigEndian.Uint16(v.ip[4:]) }

func (v view) label() uint32 { return binary.BigEndian.Uint32(v.ip) & 0xfffff }

// checksumGood reports whether the IPv4 header checksum is correct. IPv6 has none.
func (v view) checksumGood() bool {
	return v.v6 || sum16(v.ip[:int(v.ip[0]&15)*4]) == 0xffff
}

// pathOf returns the index of the path with the given DSCP, or false if no path has it.
func pathOf(dscp uint8) (index int, ok bool) {
	if dscp&3 != 3 || dscp > Codepoint(MaxPaths) {
		return 0, false
	}
	return int(dscp>>2) + 1, true
}
