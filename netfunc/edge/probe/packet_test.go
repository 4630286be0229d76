//go:build linux

package probe

import (
	"bytes"
	"testing"
	"time"
)

func TestPacket(t *testing.T) {
	key, other := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	good := packet{kind: answer, path: 3, session: 0x1122334455667788, sequence: 7, dwell: 1500 * time.Nanosecond}
	change := func(at int, to byte) func([]byte) []byte {
		return func(b []byte) []byte { b[at] = to; return b }
	}
	for name, c := range map[string]struct {
		signer, reader []byte
		change         func([]byte) []byte
		ok             bool
	}{
		"signed":             {signer: key, reader: key, ok: true},
		"without key":        {ok: true},
		"another key":        {signer: key, reader: other},
		"not signed":         {reader: key},
		"signed, no key":     {signer: key},
		"magic":              {change: change(0, 'x')},
		"version":            {change: change(4, 2)},
		"kind":               {change: change(5, 3)},
		"path 0":             {change: change(6, 0)},
		"path 9":             {change: change(6, 9)},
		"reserved":           {change: change(7, 1)},
		"held request":       {change: change(5, request)},
		"changed in transit": {signer: key, reader: key, change: change(19, 8)},
		"short":              {change: func(b []byte) []byte { return b[:size-1] }},
		"long":               {change: func(b []byte) []byte { return append(b, 0) }},
		"empty":              {change: func([]byte) []byte { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			b := good.append(nil, c.signer)
			if c.change != nil {
				b = c.change(b)
			}
			got, err := parse(b, c.reader)
			if c.ok && (err != nil || got != good) {
				t.Errorf("%+v, %v; want %+v", got, err, good)
			}
			if !c.ok && err == nil {
				t.Errorf("%+v was taken", got)
			}
		})
	}
}

// FuzzParse checks that any accepted packet equals the encoding of its fields.
func FuzzParse(f *testing.F) {
	key := []byte("0123456789abcdef")
	f.Add(packet{kind: request, path: 1, session: 1, sequence: 2}.append(nil, key))
	f.Add(packet{kind: answer, path: 8, session: 1<<64 - 1, sequence: 1<<32 - 1, dwell: 1<<32 - 1}.append(nil, nil))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, k := range [][]byte{nil, key} {
			if p, err := parse(b, k); err == nil && !bytes.Equal(p.append(nil, k), b) {
				t.Fatalf("%x was accepted as %+v", b, p)
			}
		}
	})
}
