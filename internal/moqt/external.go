package moqt

import (
	"math"
	"reflect"
	"unsafe"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
	"github.com/quic-go/webtransport-go"
)

// The methods below serve senders outside this process that build the same datagrams as
// SendDatagram.

// Conn returns the QUIC connection that carries the session or, with several paths, the connection
// of the first live path. It is nil over TCP.
func (s *Session) Conn() *quic.Conn { return s.conn.quic() }

// DatagramPrefix returns the bytes before an object in a DATAGRAM frame of the session: none over
// raw QUIC, the quarter stream ID over WebTransport (RFC 9297 section 2.1). It returns false if the
// stream ID is unknown, or the session has several paths or uses TCP.
func (s *Session) DatagramPrefix() ([]byte, bool) {
	if s.bundle() != nil || s.Transport() == WebSocket || s.Transport() == Memory {
		return nil, false
	}
	w, ok := s.conn.(wtConn)
	if !ok {
		return nil, true
	}
	id, ok := sessionID(w.s)
	return quicvarint.Append(nil, id/4), ok
}

// sessionID returns the ID of a WebTransport session, which webtransport-go v0.13 does not export;
// see belowWebTransport.
func sessionID(s *webtransport.Session) (uint64, bool) {
	f, ok := reflect.TypeFor[webtransport.Session]().FieldByName("sessionID")
	if !ok || f.Type.Kind() != reflect.Uint64 {
		return 0, false
	}
	return *(*uint64)(unsafe.Add(unsafe.Pointer(s), f.Offset)), true
}

// Alias returns the track alias in the publication's objects.
func (p *Publication) Alias() uint64 { return p.alias }

// Range returns the range of locations that pass the subscription's filter, from start to the end of
// group last.
func (p *Publication) Range() (start Location, last uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		return p.start, math.MaxUint64
	}
	return p.start, *p.last
}

// Alias returns the track alias in the subscription's objects.
func (sub *Subscription) Alias() uint64 { return sub.alias }
