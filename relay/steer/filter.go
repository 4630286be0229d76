package steer

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
)

// tagger computes the last byte of connection IDs, which lets the kernel distinguish packets of the
// relay's present and past connections from junk. It is fast rather than secure: many IDs may
// reveal how to forge more, and a single ID suffices to send junk with it.
type tagger struct{ x, times, y, plus uint32 }

// newTagger returns the tagger for a key, or for a random key if key is nil.
func newTagger(key *[32]byte) tagger {
	if key == nil {
		key = new([32]byte)
		_, _ = rand.Read(key[:]) // never fails
	}
	sum := sha256.Sum256(append([]byte("holocast connection IDs"), key[:]...))
	at := func(i int) uint32 { return binary.BigEndian.Uint32(sum[4*i:]) }
	return tagger{at(0), at(1) | 1, at(2), at(3) | 1}
}

// tag returns the last byte of the connection ID that begins with id.
func (t tagger) tag(id [IDLength - 1]byte) byte {
	a := (binary.BigEndian.Uint32(id[:]) ^ t.x) * t.times
	a += (uint32(binary.BigEndian.Uint16(id[4:])) ^ t.y) * t.plus
	a ^= a >> 15
	return byte(a * t.times >> 24)
}

const (
	udpHeader  = 8
	firstBytes = 1200 // minimum size of a connection's first datagrams (RFC 9000 §14.1)
	shortest   = 21   // minimum size of a short-header packet (§10.3)
	version1   = 1
	version2   = 0x6b3343cf // RFC 9369
)

const drop, pass = 0, 1 << 18 // return values of a filter, the number of bytes to keep

// shares are the fractions (0 to 1) of connections whose first packets pass: own for addresses with
// their own share, rest for all others. The connection ID and the salt select the connections, so that
// either all packets of a multi-packet ClientHello pass or none, and a retry after a change of salt may
// pass.
type shares struct {
	own  map[netip.Prefix]float64
	rest float64
	salt uint32
}

// filter returns instructions that apply the shares to long-header packets and always end in a
// verdict.
func (s shares) filter() (list []bpf.Instruction) {
	const network = 0xfff00000 // SKF_NET_OFF: start of the IP header
	const hash = 0             // scratch memory slot
	some := func(share float64) []bpf.Instruction {
		if share >= 1 {
			return []bpf.Instruction{bpf.RetConstant{Val: pass}}
		}
		return []bpf.Instruction{
			bpf.LoadScratch{Dst: bpf.RegA, N: hash},
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: uint32(max(0, share) * math.MaxUint32), SkipTrue: 1},
			bpf.RetConstant{Val: drop},
			bpf.RetConstant{Val: pass},
		}
	}
	// word compares four bytes of the IP header with part of an address, and runs the instructions in
	// then only if they match.
	word := func(off uint32, address []byte, then []bpf.Instruction) []bpf.Instruction {
		return append([]bpf.Instruction{
			bpf.LoadAbsolute{Off: network + off, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(address), SkipFalse: uint8(len(then))},
		}, then...)
	}
	var of [2][]bpf.Instruction // instructions for IPv4 and IPv6 addresses
	for _, p := range slices.SortedFunc(maps.Keys(s.own), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
	}) {
		then := some(s.own[p])
		if p.Addr().Is4() {
			of[0] = append(of[0], word(12, p.Addr().AsSlice(), then)...)
			continue
		}
		half := p.Addr().AsSlice()[:8]
		of[1] = append(of[1], word(8, half[:4], word(12, half[4:], then))...)
	}
	if len(s.own) > 0 || s.rest < 1 {
		const odd = 0x9e3779b1 // multiplier of Fibonacci hashing
		list = append(list,
			bpf.LoadAbsolute{Off: udpHeader + 6, Size: 4}, // destination connection ID
			bpf.ALUOpConstant{Op: bpf.ALUOpXor, Val: s.salt},
			bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: odd},
			bpf.TAX{},
			bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 15},
			bpf.ALUOpX{Op: bpf.ALUOpXor},
			bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: odd},
			bpf.StoreScratch{Src: bpf.RegA, N: hash},
		)
	}
	if len(s.own) > 0 {
		list = append(list,
			bpf.LoadAbsolute{Off: network, Size: 1},
			bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 4, SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(of[0])) + 1},
		)
		list = append(append(list, of[0]...), bpf.Jump{Skip: uint32(len(of[1]))})
		list = append(list, of[1]...)
	}
	return append(list, some(s.rest)...)
}

// filter returns a classic BPF program for a UDP socket. It passes datagrams whose first packet may
// belong to a present or past connection of the relay, and the shares in first of the datagrams
// that start a connection. Stateless resets from clients look like junk and are dropped.
func (t tagger) filter(first shares) []bpf.Instruction {
	const kind = 0 // scratch memory slot; A is the accumulator
	require := func(cond bpf.JumpTest, val uint32) []bpf.Instruction {
		return []bpf.Instruction{bpf.JumpIf{Cond: cond, Val: val, SkipTrue: 1}, bpf.RetConstant{Val: drop}}
	}
	program := func(parts ...[]bpf.Instruction) (list []bpf.Instruction) {
		for _, p := range parts {
			list = append(list, p...)
		}
		return list
	}
	either := func(cond bpf.JumpTest, val uint32, then []bpf.Instruction) []bpf.Instruction { // then returns
		return program([]bpf.Instruction{bpf.JumpIf{Cond: cond, Val: val, SkipFalse: uint8(len(then))}}, then)
	}
	tagged := func(id uint32) []bpf.Instruction {
		return []bpf.Instruction{
			bpf.LoadAbsolute{Off: id, Size: 4},
			bpf.ALUOpConstant{Op: bpf.ALUOpXor, Val: t.x},
			bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: t.times},
			bpf.StoreScratch{Src: bpf.RegA, N: kind},
			bpf.LoadAbsolute{Off: id + 4, Size: 2},
			bpf.ALUOpConstant{Op: bpf.ALUOpXor, Val: t.y},
			bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: t.plus},
			bpf.LoadScratch{Dst: bpf.RegX, N: kind},
			bpf.ALUOpX{Op: bpf.ALUOpAdd},
			bpf.TAX{},
			bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 15},
			bpf.ALUOpX{Op: bpf.ALUOpXor},
			bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: t.times},
			bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 24},
			bpf.TAX{},
			bpf.LoadAbsolute{Off: id + IDLength - 1, Size: 1},
			bpf.JumpIfX{Cond: bpf.JumpEqual, SkipTrue: 1},
			bpf.RetConstant{Val: drop},
			bpf.RetConstant{Val: pass},
		}
	}
	load := func(off uint32, size int) []bpf.Instruction {
		return []bpf.Instruction{bpf.LoadAbsolute{Off: udpHeader + off, Size: size}}
	}
	length := []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtLen}}
	versions := program(
		[]bpf.Instruction{ // map the packet types of version 2 to those of version 1
			bpf.LoadScratch{Dst: bpf.RegA, N: kind},
			bpf.ALUOpConstant{Op: bpf.ALUOpSub, Val: 0x10},
			bpf.StoreScratch{Src: bpf.RegA, N: kind},
		},
		load(5, 1), // destination connection ID length
		either(bpf.JumpEqual, IDLength, tagged(udpHeader+6)),
		// An ID chosen by the client is valid only in Initial packets.
		require(bpf.JumpGreaterThan, IDLength),
		require(bpf.JumpLessOrEqual, 20),
		[]bpf.Instruction{bpf.TAX{}, bpf.LoadIndirect{Off: udpHeader + 6, Size: 1}}, // source connection ID length
		require(bpf.JumpLessOrEqual, 20),
		[]bpf.Instruction{bpf.LoadScratch{Dst: bpf.RegA, N: kind}},
		require(bpf.JumpEqual, 0))
	return program(
		load(0, 1),
		either(bpf.JumpBitsNotSet, 0x80, program( // short header
			require(bpf.JumpBitsSet, 0x40),
			length, require(bpf.JumpGreaterOrEqual, udpHeader+shortest),
			tagged(udpHeader+1))),
		[]bpf.Instruction{bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0x30}, bpf.StoreScratch{Src: bpf.RegA, N: kind}},
		load(1, 4), // version
		require(bpf.JumpNotEqual, 0),
		[]bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: version1, SkipTrue: 2 + 3},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: version2, SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(versions))}, // unknown version, to be answered by Version Negotiation
		},
		versions,
		length, require(bpf.JumpGreaterOrEqual, udpHeader+firstBytes),
		first.filter())
}
