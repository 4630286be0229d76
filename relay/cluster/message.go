package cluster

import (
	"cmp"
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
	Revoke                  // all revocations of the relay's configuration, in one or more parts
	Tokens                  // sessions of some tokens at the relay
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
	format  = 2   // version of the encoding
)

// Message is a message between relays.
type Message struct {
	Kind Kind
	From string // ID of the sender
	// Version counts changes of the sender's namespaces: a Change makes this version of the one before.
	Version uint64

	Info   // Hello
	Load   // Hello
	Digest // Hello

	To string // Request: ID of the relay that is asked

	Part, Parts uint64 // State, Revoke
	Added       []Claim
	Removed     []moqt.Namespace
	Revoked     []string // Revoke: token IDs, subjects and client names
	Tokens      []TokenSessions
}

// Claim is a namespace that a relay serves.
type Claim struct {
	moqt.Namespace
	Time uint64 // when its publisher claimed it, in UNIX microseconds
}

// Info describes a relay.
type Info struct {
	Name, Region string
	URL          string   // for sessions of other relays
	Public       string   // for clients; "" means URL
	Hash         [32]byte // SHA-256 of its certificate
	SelfSigned   bool     // clients can verify the certificate by its hash only
	Since        uint64   // when it joined, in UNIX microseconds
}

// public returns the URL for clients.
func (i *Info) public() string { return cmp.Or(i.Public, i.URL) }

// Load describes how many sessions a relay has and can take.
type Load struct {
	Sessions uint64
	Room     uint64 // further sessions that it can take
	Leaving  bool   // it takes no sessions, and its publishers move
}

// Digest summarizes a set of namespaces.
type Digest struct {
	Count uint64
	Sum   uint64 // of the namespaces' hashes
}

// add adds a namespace, or removes it if sign is -1.
func (d *Digest) add(c Claim, sign int) {
	h := fnv.New64a()
	_, _ = h.Write(c.append(nil))
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
		for _, text := range []string{m.Name, m.Region, m.URL, m.Public} {
			b = appendText(b, text)
		}
		b = append(b, m.Hash[:]...)
		for _, n := range []uint64{m.Since, m.Sessions, m.Room} {
			b = wire.AppendVarint(b, n)
		}
		b = append(b, flag(m.SelfSigned)|flag(m.Leaving)<<1)
		b = wire.AppendVarint(b, m.Count)
		b = binary.BigEndian.AppendUint64(b, m.Sum)
	case Request:
		b = appendText(b, m.To)
	case State:
		b = wire.AppendVarint(b, m.Part)
		b = wire.AppendVarint(b, m.Parts)
		b = appendClaims(b, m.Added)
	case Change:
		b = appendClaims(b, m.Added)
		b = wire.AppendVarint(b, uint64(len(m.Removed)))
		for _, ns := range m.Removed {
			b = appendNamespace(b, ns)
		}
	case Revoke:
		b = wire.AppendVarint(b, m.Part)
		b = wire.AppendVarint(b, m.Parts)
		b = wire.AppendVarint(b, uint64(len(m.Revoked)))
		for _, text := range m.Revoked {
			b = appendText(b, text)
		}
	case Tokens:
		b = wire.AppendVarint(b, uint64(len(m.Tokens)))
		for _, one := range m.Tokens {
			b = wire.AppendVarint(append(b, one.Token[:]...), one.Sessions)
		}
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

func (c Claim) append(b []byte) []byte {
	return wire.AppendVarint(appendNamespace(b, c.Namespace), c.Time)
}

func appendClaims(b []byte, list []Claim) []byte {
	b = wire.AppendVarint(b, uint64(len(list)))
	for _, c := range list {
		b = c.append(b)
	}
	return b
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
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
		m.Name, m.Region, m.URL, m.Public = r.text(), r.text(), r.text(), r.text()
		copy(m.Hash[:], r.take(uint64(len(m.Hash))))
		m.Since, m.Sessions, m.Room = r.varint(), r.varint(), r.varint()
		flags := r.byte()
		if m.SelfSigned, m.Leaving = flags&1 != 0, flags&2 != 0; flags > 3 {
			r.fail(errors.New("unknown flags"))
		}
		m.Count = r.varint()
		if sum := r.take(8); sum != nil {
			m.Sum = binary.BigEndian.Uint64(sum)
		}
	case Request:
		m.To = r.text()
	case State:
		m.Part, m.Parts, m.Added = r.varint(), r.varint(), list(&r, r.claim)
		if m.Part >= m.Parts {
			r.fail(errors.New("part beyond the last"))
		}
	case Change:
		m.Added, m.Removed = list(&r, r.claim), list(&r, r.namespace)
	case Bye:
	case Revoke:
		m.Part, m.Parts, m.Revoked = r.varint(), r.varint(), list(&r, r.text)
		if m.Part >= m.Parts {
			r.fail(errors.New("part beyond the last"))
		}
	case Tokens:
		m.Tokens = list(&r, r.tokenSessions)
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

// list reads a list of items.
func list[T any](r *reader, item func() T) (all []T) {
	n := r.varint()
	if n > MaxNamespaces {
		r.fail(fmt.Errorf("list of %d exceeds %d", n, MaxNamespaces))
	}
	for range n {
		one := item()
		if r.err != nil {
			return nil
		}
		all = append(all, one)
	}
	return all
}

func (r *reader) tokenSessions() (one TokenSessions) {
	copy(one.Token[:], r.take(uint64(len(one.Token))))
	one.Sessions = r.varint()
	return one
}

func (r *reader) claim() Claim { return Claim{r.namespace(), r.varint()} }

func (r *reader) namespace() (ns moqt.Namespace) {
	fields := r.varint()
	if fields > wire.MaxNamespaceFields {
		r.fail(fmt.Errorf("namespace of %d fields", fields))
	}
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
	return ns
}

// split divides namespaces into parts of limited size; there is at least one.
func split[T any](list []T, namespace func(T) moqt.Namespace) (parts [][]T) {
	for {
		size, n := 0, 0
		for n < len(list) && (n == 0 || size < maxPart) {
			for _, field := range namespace(list[n]) {
				size += len(field) + 2
			}
			size += claimSize
			n++
		}
		parts = append(parts, list[:n])
		if list = list[n:]; len(list) == 0 {
			return parts
		}
	}
}

// claimSize bounds the bytes of a claim besides its fields.
const claimSize = 10
