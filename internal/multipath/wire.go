package multipath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
)

// ProtocolPrefix begins the ALPN protocols of a bundle's connections. The name of the application's
// protocol follows.
const ProtocolPrefix = "holocast-mp-"

// Error codes for closing connections: those up to codeHello close only one path, the last two
// the bundle. Any other code closes the bundle and belongs to the application.
const (
	codeLeft        quic.ApplicationErrorCode = 0x686d7000 + iota // the path is not needed any more
	codeToken                                                     // unknown, used or expired token
	codeCertificate                                               // not the client certificate of the bundle
	codePaths                                                     // too many paths
	codeGone                                                      // the bundle has ended
	codeHello                                                     // malformed HELLO
	codeViolation                                                 // closes the bundle: a violation of the protocol
	codeSilent                                                    // closes the bundle: no path is left
)

// ofPath reports whether a code closes only one path.
func ofPath(code quic.ApplicationErrorCode) bool { return code >= codeLeft && code <= codeHello }

// MaxName is the maximum size of a path's name in bytes.
const MaxName = 32

const (
	version    = 1
	tokenSize  = 16
	maxMessage = 256 // bytes of a message on a path stream
)

var errMalformed = errors.New("multipath: malformed message")

// token permits one connection to join a bundle.
type token [tokenSize]byte

// grants are the initial limits that an endpoint grants its peer.
type grants struct {
	data       uint64 // bytes of all streams
	streamData uint64 // bytes of each stream
	streams    uint64 // streams of each kind
}

// hello is the client's first message on the path stream.
type hello struct {
	token  *token // nil for a new bundle
	name   string // of the path
	grants grants
}

// welcome is the server's answer.
type welcome struct {
	path   uint64 // its number
	grants grants
}

func (g grants) append(b []byte) []byte { return appendNumbers(b, g.data, g.streamData, g.streams) }

func (h hello) message() []byte {
	m := quicvarint.Append(nil, version)
	if h.token == nil {
		m = append(m, 0)
	} else {
		m = append(append(m, tokenSize), h.token[:]...)
	}
	m = append(append(m, byte(len(h.name))), h.name...)
	return appendMessage(nil, h.grants.append(m))
}

func (w welcome) message() []byte {
	return appendMessage(nil, w.grants.append(quicvarint.Append(nil, w.path)))
}

func appendMessage(b, m []byte) []byte { return append(quicvarint.Append(b, uint64(len(m))), m...) }

func appendNumbers(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = quicvarint.Append(b, n)
	}
	return b
}

// readMessage reads a message from a path stream.
func readMessage(r *bufio.Reader) ([]byte, error) {
	n, err := quicvarint.Read(r)
	if err != nil {
		return nil, err
	}
	if n > maxMessage {
		return nil, fmt.Errorf("%w: %d bytes", errMalformed, n)
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return b, err
}

// parser reads the fields of a message. After a field that is incomplete or too large, it reads
// nothing more.
type parser struct {
	b      []byte
	failed bool
}

func (p *parser) error() error {
	if p.failed {
		return errMalformed
	}
	return nil
}

func (p *parser) number() uint64 {
	if p.failed {
		return 0
	}
	v, n, err := quicvarint.Parse(p.b)
	if err != nil {
		p.failed = true
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) bytes(most uint64) []byte {
	n := p.number()
	if p.failed || n > most || n > uint64(len(p.b)) {
		p.failed = true
		return nil
	}
	b := p.b[:n]
	p.b = p.b[n:]
	return b
}

func (p *parser) grants() grants {
	return grants{data: p.number(), streamData: p.number(), streams: p.number()}
}

// parseHello parses a HELLO. It ignores trailing fields, which later versions may add.
func parseHello(b []byte) (h hello, err error) {
	p := parser{b: b}
	if v := p.number(); !p.failed && v != version {
		return h, fmt.Errorf("multipath: version %d is not supported", v)
	}
	switch t := p.bytes(tokenSize); len(t) {
	case 0:
	case tokenSize:
		h.token = (*token)(t)
	default:
		return h, errMalformed
	}
	h.name = string(p.bytes(MaxName))
	h.grants = p.grants()
	if !p.failed && !utf8.ValidString(h.name) {
		return h, errMalformed
	}
	return h, p.error()
}

func parseWelcome(b []byte) (w welcome, err error) {
	p := parser{b: b}
	w.path = p.number()
	w.grants = p.grants()
	return w, p.error()
}

// header begins a segment.
type header struct {
	number uint64 // of the segment
	floor  uint64 // the least number whose acknowledgement the sender awaits
	stream uint64
	offset uint64
	last   bool // the segment ends its stream
}

// maxHeader is the maximum size of a header in bytes.
const maxHeader = 4*8 + 1

func (h header) append(b []byte) []byte {
	b = appendNumbers(b, h.number, h.number-h.floor, h.stream, h.offset)
	if h.last {
		return append(b, 1)
	}
	return append(b, 0)
}

// parseHeader parses the header at the beginning of b and returns its size, or 0 if b is too short.
func parseHeader(b []byte) (h header, size int, err error) {
	p := parser{b: b}
	h.number = p.number()
	below := p.number()
	h.stream, h.offset = p.number(), p.number()
	flags := p.number()
	if p.failed {
		return h, 0, nil
	}
	if below > h.number || flags > 1 || h.stream > controlStream || h.offset > maxOffset {
		return h, 0, errMalformed
	}
	h.floor, h.last = h.number-below, flags == 1
	return h, len(b) - len(p.b), nil
}

// maxOffset is the largest offset in a stream.
const maxOffset = 1 << 60

// controlStream is the ID of the two streams that carry control messages, one in each direction.
// They never end and have no flow control.
const controlStream = 1<<62 - 1

// Control messages: a type and its fields, all variable-length integers.
const (
	resetStream   = iota // stream, code, final size, reliable size
	stopSending          // stream, code
	maxData              // bytes
	maxStreamData        // stream, bytes
	maxStreams           // 0 bidirectional or 1 unidirectional, streams
)

var controlFields = [...]int{resetStream: 4, stopSending: 2, maxData: 1, maxStreamData: 2, maxStreams: 2}

// control is a control message.
type control struct {
	kind   uint64
	fields [4]uint64
}

// maxControl is the maximum size of a control message in bytes.
const maxControl = 1 + 4*8

// parseControl parses the message at the beginning of b and returns its size, or 0 if b is too
// short.
func parseControl(b []byte) (m control, size int, err error) {
	p := parser{b: b}
	m.kind = p.number()
	if !p.failed && m.kind >= uint64(len(controlFields)) {
		return m, 0, fmt.Errorf("%w: control message of type %d", errMalformed, m.kind)
	}
	for i := range controlFields[m.kind] {
		m.fields[i] = p.number()
	}
	if p.failed {
		return m, 0, nil
	}
	return m, len(b) - len(p.b), nil
}

// First bytes of datagrams. Any other first byte belongs to an application datagram, which then needs
// no extra byte.
const (
	datagramData = 0xfd + iota // a datagram of the application follows that begins with such a byte
	datagramAck
	datagramPing // asks for an acknowledgement; the least number whose acknowledgement is awaited
)

// maxAck is the maximum size of an acknowledgement in bytes; it fits every path.
const maxAck = 1000

// acknowledgement encodes received numbers: the largest, then alternating ranges of received and missing
// numbers in descending order, each as its size minus 1. The lowest ranges are left out if they do not fit.
func acknowledgement(numbers spans) []byte {
	b := []byte{datagramAck}
	for i := len(numbers) - 1; i >= 0 && len(b) < maxAck-16; i-- {
		s := numbers[i]
		if i == len(numbers)-1 {
			b = quicvarint.Append(b, s.to-1)
		} else {
			b = quicvarint.Append(b, numbers[i+1].from-s.to-1)
		}
		b = quicvarint.Append(b, s.to-s.from-1)
	}
	return b
}

// parseAck parses an acknowledgement after its first byte.
func parseAck(b []byte) (numbers spans, err error) {
	p := parser{b: b}
	for next := uint64(0); len(p.b) > 0; {
		largest, more := p.number(), p.number()
		if len(numbers) > 0 {
			gap := largest + 1
			if gap >= next { // next is the least number so far
				return nil, errMalformed
			}
			largest = next - 1 - gap
		}
		if p.failed || more > largest {
			return nil, errMalformed
		}
		next = largest - more
		numbers = append(numbers, span{next, largest + 1})
	}
	for i, j := 0, len(numbers)-1; i < j; i, j = i+1, j-1 {
		numbers[i], numbers[j] = numbers[j], numbers[i]
	}
	return numbers, nil
}
