package main

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/klauspost/compress/zstd"

	"holocast/internal/moqt/wire"
)

// attack publishes an invalid frame, or resets a stream inside an object.
func (p *publisher) attack(n int, good []byte) error {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	noise := make([]byte, 1+r.IntN(100000))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	bad := bytes.Clone(good)
	le := binary.LittleEndian
	switch n % 14 {
	case 0: // noise
		bad = noise
	case 1: // noise with a header
		bad = append(bad[:44], noise...)
	case 2: // as many points as the format allows, in a few bytes
		le.PutUint16(bad[32:], 4096)
		le.PutUint16(bad[34:], 4096)
		le.PutUint32(bad[36:], 4096*4096)
		le.PutUint32(bad[40:], 40<<20)
	case 3: // planes that decompress to 200 MB
		bad = append(bad[:44], bomb()...)
	case 4: // truncated
		bad = bad[:len(bad)*2/3]
	case 5: // flipped bits
		for range 20 {
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		}
	case 6: // another camera's number
		le.PutUint16(bad[28:], 7)
	case 7: // another grid size
		le.PutUint16(bad[32:], uint16(p.width/2))
	case 8: // one byte
		bad = []byte{'H'}
	case 9: // description index out of range
		return p.write(p.points, p.group, 9, good)
	case 10: // a capture time far ahead
		le.PutUint64(bad[20:], 1<<63)
	case 11: // a sequence number far ahead
		le.PutUint32(bad[8:], 1<<31+uint32(n))
	case 12: // the same frame again, in another subgroup
		if err := p.write(p.points, p.group, 1, good); err != nil {
			return err
		}
	case 13: // an object that announces a terabyte
		return p.announce(1 << 40)
	}
	return p.write(p.points, p.group, 0, bad)
}

// announce starts an object of the given length, sends a few of its bytes and resets the stream.
func (p *publisher) announce(length uint64) error {
	f, err := p.points.OpenSubgroup(wire.SubgroupHeader{Group: p.group, Mode: wire.SubgroupIDExplicit, Priority: 128})
	if err != nil {
		return err
	}
	b := wire.AppendVarint(wire.AppendVarint(nil, 0), length)
	b = append(b, make([]byte, 1000)...)
	n := copy(f.Space(), b)
	if err := f.Commit(n); err != nil {
		return err
	}
	f.Reset(wire.StreamInternalError)
	return nil
}

func bomb() []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err) // no options, no errors
	}
	return w.EncodeAll(make([]byte, 200<<20), nil)
}

// hostileCatalogs returns invalid catalogs, partly derived from a valid one.
func hostileCatalogs(good []byte) [][]byte {
	return [][]byte{
		[]byte("{"),
		[]byte("null"),
		[]byte(`{"version":"draft-01","tracks":[{"name":"x","packaging":"hcpf","hcpf":{"layout":"Z"}}]}`),
		bytes.Replace(good, []byte(`"maxPoints":`), []byte(`"maxPoints":9`), 1),
		bytes.Replace(good, []byte(`"descriptions":1`), []byte(`"descriptions":3`), 1),
		bytes.Repeat([]byte("["), 100000),
	}
}
