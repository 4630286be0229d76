package steer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

	"golang.org/x/net/bpf"
)

// tagger makes the last byte of connection IDs, by which the kernel tells packets for connections
// that the relay has or had from junk. It is quick rather than hard to find out: whoever has many
// IDs may learn to make some, and whoever has one may send junk with it.
type tagger struct{ x, times, y, plus uint32 }

// newTagger makes a tagger of a key, or with nil one of its own.
func newTagger(key *[32]byte) tagger {
	if key == nil {
		key = new([32]byte)
		_, _ = rand.Read(key[:]) // never fails
	}
	sum := sha256.Sum256(append([]byte("holocast connection IDs"), key[:]...))
	at := func(i int) uint32 { return binary.BigEndian.Uint32(sum[4*i:]) }
	return tagger{at(0), at(1) | 1, at(2), at(3) | 1}
}

// tag is the last byte of a connection ID that begins so.
func (t tagger) tag(id [IDLength - 1]byte) byte {
	a := (binary.BigEndian.Uint32(id[:]) ^ t.x) * t.times
	a += (uint32(binary.BigEndian.Uint16(id[4:])) ^ t.y) * t.plus
	a ^= a >> 15
	return byte(a * t.times >> 24)
}

const (
	udpHeader  = 8
	firstBytes = 1200 // of the first datagrams of a connection (RFC 9000 §14.1)
	shortest   = 21   // bytes of a packet with a short header (§10.3)
	version1   = 1
	version2   = 0x6b3343cf // RFC 9369
)

// filter is a classic BPF program for a UDP socket: of the datagrams that come, it lets those pass
// whose first packet may be for a connection that the relay has or had, or the first of a new one.
// Stateless resets by clients look like junk and go with it.
func (t tagger) filter() []bpf.Instruction {
	const drop, pass = 0, 1 << 18
	const kind, size = 0, 1 // scratch memory; A is the accumulator
	require := func(cond bpf.JumpTest, val uint32) []bpf.Instruction {
		return []bpf.Instruction{bpf.JumpIf{Cond: cond, Val: val, SkipTrue: 1}, bpf.RetConstant{Val: drop}}
	}
	program := func(parts ...[]bpf.Instruction) (list []bpf.Instruction) {
		for _, p := range parts {
			list = append(list, p...)
		}
		return list
	}
	either := func(cond bpf.JumpTest, val uint32, then []bpf.Instruction) []bpf.Instruction { // which returns
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
	return program(
		load(0, 1),
		either(bpf.JumpBitsNotSet, 0x80, program( // short header
			require(bpf.JumpBitsSet, 0x40),
			length, require(bpf.JumpGreaterOrEqual, udpHeader+shortest),
			tagged(udpHeader+1))),
		[]bpf.Instruction{bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0x30}, bpf.StoreScratch{Src: bpf.RegA, N: kind}},
		length, []bpf.Instruction{bpf.StoreScratch{Src: bpf.RegA, N: size}},
		load(1, 4), // version
		require(bpf.JumpNotEqual, 0),
		[]bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: version1, SkipTrue: 8},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: version2, SkipTrue: 4},
			// Another one, which is answered with those there are.
			bpf.LoadScratch{Dst: bpf.RegA, N: size},
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: udpHeader + firstBytes, SkipTrue: 1},
			bpf.RetConstant{Val: drop},
			bpf.RetConstant{Val: pass},
			// Version 2, made to look like 1.
			bpf.LoadScratch{Dst: bpf.RegA, N: kind},
			bpf.ALUOpConstant{Op: bpf.ALUOpSub, Val: 0x10},
			bpf.StoreScratch{Src: bpf.RegA, N: kind},
		},
		load(5, 1), // length of the destination's ID
		either(bpf.JumpEqual, IDLength, tagged(udpHeader+6)),
		// A client's choice, in an Initial packet.
		require(bpf.JumpGreaterThan, IDLength),
		require(bpf.JumpLessOrEqual, 20),
		[]bpf.Instruction{bpf.TAX{}, bpf.LoadIndirect{Off: udpHeader + 6, Size: 1}}, // length of the source's
		require(bpf.JumpLessOrEqual, 20),
		[]bpf.Instruction{bpf.LoadScratch{Dst: bpf.RegA, N: kind}},
		require(bpf.JumpEqual, 0),
		[]bpf.Instruction{bpf.LoadScratch{Dst: bpf.RegA, N: size}},
		require(bpf.JumpGreaterOrEqual, udpHeader+firstBytes),
		[]bpf.Instruction{bpf.RetConstant{Val: pass}},
	)
}
