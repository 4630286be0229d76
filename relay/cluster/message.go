package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"holocast/internal/clock"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Kind is the kind of a message.
type Kind byte

// Kinds of messages.
const (
	Hello   Kind = iota + 1 // heartbeat
	Change                  // namespaces added and removed
	State                   // all namespaces, in one or more parts
	Request                 // asks a relay for its State
	Bye                     // the relay leaves
)

// Limits of messages.
const (
	// MaxNamespaces limits the namespaces of one relay.
	MaxNamespaces = 1 << 14
	// MaxMembers limits the relays of a cluster.
	MaxMembers = 1 << 10
	// maxPart limits the bytes of namespaces per State or Change.
	maxPart = 256 << 10
	maxText = 512 // bytes of a name, region or URL
	format  = 1   // version of the encoding
)

// Message is a message between relays.
type Message struct {
	Kind Kind
	From string // ID of the sender
	// Version counts changes of the sender's namespaces: a Change makes this version of the one before.
	Version uint64

	Info   // Hello
	Digest // Hello

	To string // Request: ID of the relay that is asked

	Part, Parts    uint64 // State
	Added, Removed []moqt.Namespace
}

// Info describes a relay.
type Info struct {
	Name, Region string
	URL          string   // for sessions of other relays
	Hash         [32]byte // SHA-256 of its certificate
}

// Digest summarizes a set of namespaces.
type Digest struct {
	Count uint64
	Sum   uint64 // of the namespaces' hashes
}

// add adds a namespace, or removes it if sign is -1.
func (d *Digest) add(ns moqt.Namespace, sign int) {
	h := fnv.New64a()
	_, _ = h.Write(appendNamespace(nil, ns))
	d.Count += uint64(sign)
	d.Sum += uint64(sign) * h.Sum64()
}

// Append appends the encoding of a message.
func (m *Message) Append(b []byte) []byte {
	b = append(b, format, byte(m.Kind))
	b = appendText(b, m.From)
	b = wire.AppendVarint(b, m.Version)
	switch m.Kind {
	case Hello:
		for _, text := range []string{m.Name, m.Region, m.URL} {
			b = appendText(b, text)
		}
		b = append(b, m.Hash[:]...)
		b = wire.AppendVarint(b, m.Count)
		b = binary.BigEndian.AppendUint64(b, m.Sum)
	case Request:
		b = appendText(b, m.To)
	case State:
		b = wire.AppendVarint(b, m.Part)
		b = wire.AppendVarint(b, m.Parts)
		b = appendNamespaces(b, m.Added)
	case Change:
		b = appendNamespaces(b, m.Added)
		b = appendNamespaces(b, m.Removed)
	}
	return b
}

func appendText(b []byte, s string) []byte { return append(wire.AppendVarint(b, uint64(len(s))), s...) }

func appendNamespace(b []byte, ns moqt.Namespace) []byte {
	b = wire.AppendVarint(b, uint64(len(ns)))
	for _, field := range ns {
		b = appendText(b, field)
	}
	return b
}

func appendNamespaces(b []byte, list []moqt.Namespace) []byte {
	b = wire.AppendVarint(b, uint64(len(list)))
	for _, ns := range list {
		b = appendNamespace(b, ns)
	}
	return b
}

// Parse parses a message. It refuses messages with anything after them, and namespaces that a relay
// cannot have, such as the relay's own.
func Parse(b []byte) (*Message, error) {
	r := reader{b: b}
	if v := r.byte(); v != format {
		return nil, fmt.Errorf("message format %d, not %d: another version of the relay", v, format)
	}
	m := &Message{Kind: Kind(r.byte()), From: r.text(), Version: r.varint()}
	switch m.Kind {
	case Hello:
		m.Name, m.Region, m.URL = r.text(), r.text(), r.text()
		copy(m.Hash[:], r.take(uint64(len(m.Hash))))
		m.Count = r.varint()
		if sum := r.take(8); sum != nil {
			m.Sum = binary.BigEndian.Uint64(sum)
		}
	case Request:
		m.To = r.text()
	case State:
		m.Part, m.Parts, m.Added = r.varint(), r.varint(), r.namespaces()
		if m.Part >= m.Parts {
			r.fail(errors.New("part beyond the last"))
		}
	case Change:
		m.Added, m.Removed = r.namespaces(), r.namespaces()
	case Bye:
	default:
		r.fail(fmt.Errorf("message of unknown kind %d", m.Kind))
	}
	if len(r.b) > 0 {
		r.fail(errors.New("bytes after the message"))
	}
	if m.From == "" {
		r.fail(errors.New("message without sender"))
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// reader reads fields. After the first error it returns zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err, r.b = err, nil
	}
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail(errors.New("message is too short"))
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) varint() uint64 {
	v, n, err := wire.ParseVarint(r.b)
	if err != nil {
		r.fail(err)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes(limit uint64) string {
	n := r.varint()
	if n > limit {
		r.fail(fmt.Errorf("field of %d bytes exceeds %d", n, limit))
		return ""
	}
	return string(r.take(n))
}

func (r *reader) text() string { return r.bytes(maxText) }

func (r *reader) namespaces() (list []moqt.Namespace) {
	n := r.varint()
	if n > MaxNamespaces {
		r.fail(fmt.Errorf("%d namespaces exceed %d", n, MaxNamespaces))
	}
	for range n {
		fields := r.varint()
		if fields > wire.MaxNamespaceFields {
			r.fail(fmt.Errorf("namespace of %d fields", fields))
		}
		var ns moqt.Namespace
		for range fields {
			if r.err != nil {
				return nil
			}
			ns = append(ns, r.bytes(wire.MaxFullTrackName))
		}
		if r.err != nil {
			return nil
		}
		if err := (moqt.TrackName{Namespace: ns}).Validate(); err != nil {
			r.fail(err)
		} else if len(ns) == 0 || ns[0] == clock.Namespace {
			r.fail(fmt.Errorf("namespace %q is reserved", ns.String()))
		}
		list = append(list, ns)
	}
	return list
}

// split divides namespaces into parts of limited size; there is at least one.
func split(list []moqt.Namespace) (parts [][]moqt.Namespace) {
	for {
		size, n := 0, 0
		for n < len(list) && (n == 0 || size < maxPart) {
			for _, field := range list[n] {
				size += len(field) + 2
			}
			n++
		}
		parts = append(parts, list[:n])
		if list = list[n:]; len(list) == 0 {
			return parts
		}
	}
}
