package wire

import (
	"errors"
	"fmt"
	"strings"
)

// Namespace is a track namespace: an ordered tuple of 0 to 32 non-empty byte strings (§2.4.1). Its
// fields are Go strings of arbitrary bytes.
type Namespace []string

// Equal reports whether both tuples have the same fields.
func (n Namespace) Equal(o Namespace) bool { return len(n) == len(o) && n.HasPrefix(o) }

// HasPrefix reports whether the tuple begins with all fields of prefix.
func (n Namespace) HasPrefix(prefix Namespace) bool {
	if len(n) < len(prefix) {
		return false
	}
	for i, f := range prefix {
		if n[i] != f {
			return false
		}
	}
	return true
}

// String renders the tuple in the draft's recommended form (§1.5): fields joined by '-', every byte
// outside [A-Za-z0-9_] as '.' and two lower-case hex digits. The form is unique for each valid
// tuple, so it also serves as a map key.
func (n Namespace) String() string {
	var b strings.Builder
	for i, f := range n {
		if i > 0 {
			b.WriteByte('-')
		}
		writeEscaped(&b, f)
	}
	return b.String()
}

// TrackName is a full track name: its namespace and the name within it.
type TrackName struct {
	Namespace Namespace
	Name      string
}

// String renders the full name as namespace, "--" and track name (§1.5).
func (t TrackName) String() string {
	var b strings.Builder
	b.WriteString(t.Namespace.String())
	b.WriteString("--")
	writeEscaped(&b, t.Name)
	return b.String()
}

// Equal reports whether both names are identical.
func (t TrackName) Equal(o TrackName) bool {
	return t.Name == o.Name && t.Namespace.Equal(o.Namespace)
}

func literal(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

func writeEscaped(b *strings.Builder, s string) {
	for i := range len(s) {
		if literal(s[i]) {
			b.WriteByte(s[i])
		} else {
			b.WriteByte('.')
			b.WriteByte(lowerHex[s[i]>>4])
			b.WriteByte(lowerHex[s[i]&0xf])
		}
	}
}

// ParseNamespace parses the output of Namespace.String and rejects any other form (§1.5.1).
func ParseNamespace(s string) (Namespace, error) {
	if s == "" {
		return nil, nil
	}
	var n Namespace
	for part := range strings.SplitSeq(s, "-") {
		f, err := unescape(part)
		if err != nil {
			return nil, err
		}
		if f == "" {
			return nil, fmt.Errorf("namespace %q has an empty field", s)
		}
		n = append(n, f)
	}
	return n, nil
}

// ParseTrackName parses the output of TrackName.String.
func ParseTrackName(s string) (TrackName, error) {
	ns, name, ok := strings.Cut(s, "--")
	if !ok {
		return TrackName{}, fmt.Errorf("track name %q has no \"--\" between namespace and name", s)
	}
	n, err := ParseNamespace(ns)
	if err != nil {
		return TrackName{}, err
	}
	t, err := unescape(name)
	if err != nil {
		return TrackName{}, err
	}
	return TrackName{n, t}, nil
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case literal(s[i]):
			b.WriteByte(s[i])
		case s[i] == '.' && i+2 < len(s):
			hi, lo := strings.IndexByte(lowerHex, s[i+1]), strings.IndexByte(lowerHex, s[i+2])
			if hi < 0 || lo < 0 {
				return "", fmt.Errorf("name %q: %q is not an escape of two lower-case hex digits", s, s[i:i+3])
			}
			c := byte(hi<<4 | lo)
			if literal(c) {
				return "", fmt.Errorf("name %q: %q must be written as %q", s, s[i:i+3], c)
			}
			b.WriteByte(c)
			i += 2
		default:
			return "", fmt.Errorf("name %q: unexpected %q", s, s[i])
		}
	}
	return b.String(), nil
}

const lowerHex = "0123456789abcdef"

// Validate checks that the name can be sent: at most 32 non-empty fields and 4096 bytes in total.
func (t TrackName) Validate() error {
	if len(t.Namespace) > MaxNamespaceFields {
		return fmt.Errorf("namespace has %d fields; at most %d are allowed", len(t.Namespace), MaxNamespaceFields)
	}
	total := len(t.Name)
	for _, f := range t.Namespace {
		if f == "" {
			return errors.New("namespace has an empty field")
		}
		total += len(f)
	}
	if total > MaxFullTrackName {
		return fmt.Errorf("full track name has %d bytes; at most %d are allowed", total, MaxFullTrackName)
	}
	return nil
}

func (n Namespace) append(b []byte) []byte {
	b = AppendVarint(b, uint64(len(n)))
	for _, f := range n {
		b = appendBytes(b, f)
	}
	return b
}

func (c *cursor) namespace() Namespace {
	count := c.varint()
	if count > MaxNamespaceFields {
		c.fail(violation("namespace of %d fields exceeds %d", count, MaxNamespaceFields))
		return nil
	}
	if count == 0 {
		return nil
	}
	n := make(Namespace, 0, count)
	total := 0
	for range count {
		f := c.bytes(MaxFullTrackName, "namespace field")
		if c.err != nil {
			return nil
		}
		if len(f) == 0 {
			c.fail(violation("empty namespace field"))
			return nil
		}
		if total += len(f); total > MaxFullTrackName {
			c.fail(violation("namespace exceeds %d bytes", MaxFullTrackName))
			return nil
		}
		n = append(n, string(f))
	}
	return n
}

func (t TrackName) append(b []byte) []byte {
	return appendBytes(t.Namespace.append(b), t.Name)
}

func (c *cursor) trackName() TrackName {
	ns := c.namespace()
	name := c.bytes(MaxFullTrackName, "track name")
	total := len(name)
	for _, f := range ns {
		total += len(f)
	}
	if total > MaxFullTrackName {
		c.fail(violation("full track name of %d bytes exceeds %d", total, MaxFullTrackName))
	}
	return TrackName{ns, string(name)}
}
