// Package wire encodes and decodes Media over QUIC Transport, draft-ietf-moq-transport-18 to -22
// (see Version): integers, names, parameters, control messages, data streams and datagrams. Its
// only I/O is reading from an io.Reader. It keeps no state between messages and checks every length
// before it allocates.
//
// Section numbers refer to draft-18 unless noted.
package wire

import (
	"errors"
	"fmt"
	"io"
)

// ALPN is the protocol identifier of draft-18 (§3.1), used in TLS for raw QUIC
// and in WT-Available-Protocols for WebTransport.
const ALPN = "moqt-18"

// Limits from the draft, and our own where the draft has none.
const (
	MaxNamespaceFields  = 32        // §2.4.1
	MaxFullTrackName    = 4096      // bytes, §2.4.1
	MaxKeyValueLength   = 1<<16 - 1 // bytes, §1.4.3
	MaxReasonLength     = 1024      // bytes, §1.4.4
	MaxSessionURILength = 8192      // bytes, §10.4
	MaxMessageLength    = 1<<16 - 1 // bytes, §10
	MaxObjectProperties = 1<<16 - 1 // bytes per object; our limit
	MaxTokens           = 16        // authorization tokens per message; our limit
)

// Error is a violation of the wire format, with the code for closing the session (§3.5).
type Error struct {
	Code SessionCode
	Msg  string
}

func (e *Error) Error() string { return fmt.Sprintf("moqt: %s: %s", e.Code, e.Msg) }

func violation(format string, args ...any) error {
	return &Error{ProtocolViolation, fmt.Sprintf(format, args...)}
}

// errShort reports a buffer that ends inside a field. In a message, whose length is known, it
// becomes a protocol violation.
var errShort = errors.New("moqt: message ends inside a field")

// cursor reads fields from a buffer. After the first error every read returns zero and the error is
// kept.
type cursor struct {
	b   []byte
	v   Version
	err error
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
		c.b = nil
	}
}

func (c *cursor) varint() uint64 {
	v, n, err := ParseVarint(c.b)
	if err != nil {
		c.fail(errShort)
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) uint8() uint8 {
	if len(c.b) == 0 {
		c.fail(errShort)
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

// take returns the next n bytes without copying.
func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail(errShort)
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

// bytes reads a length, which must not exceed limit, and that many bytes.
func (c *cursor) bytes(limit uint64, what string) []byte {
	n := c.varint()
	if n > limit {
		c.fail(violation("%s of %d bytes exceeds %d", what, n, limit))
		return nil
	}
	return c.take(n)
}

func (c *cursor) rest() []byte {
	v := c.b
	c.b = nil
	return v
}

func appendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	b = AppendVarint(b, uint64(len(v)))
	return append(b, v...)
}

// ByteReader is the input of stream parsers; *bufio.Reader implements it.
type ByteReader interface {
	io.Reader
	io.ByteReader
}

// unexpected converts an end of stream inside a field to io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
