package moqt

import (
	"math"
	"reflect"
	"unsafe"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
	"github.com/quic-go/webtransport-go"
)

// What a sender outside this process needs to know of a session, to make datagrams like
// those of SendDatagram.

// Conn is the QUIC connection that carries the session.
func (s *Session) Conn() *quic.Conn { return s.conn.quic() }

// DatagramPrefix is what precedes an object in a DATAGRAM frame of the session: nothing
// over raw QUIC, the quarter stream ID over WebTransport (RFC 9297 section 2.1). It is
// false where that is not known.
func (s *Session) DatagramPrefix() ([]byte, bool) {
	w, ok := s.conn.(wtConn)
	if !ok {
		return nil, true
	}
	id, ok := sessionID(w.s)
	return quicvarint.Append(nil, id/4), ok
}

// sessionID is the ID of a WebTransport session, which webtransport-go v0.13 does not
// hand out; see belowWebTransport.
func sessionID(s *webtransport.Session) (uint64, bool) {
	f, ok := reflect.TypeFor[webtransport.Session]().FieldByName("sessionID")
	if !ok || f.Type.Kind() != reflect.Uint64 {
		return 0, false
	}
	return *(*uint64)(unsafe.Add(unsafe.Pointer(s), f.Offset)), true
}

// Alias is the track alias that objects of the publication are sent with.
func (p *Publication) Alias() uint64 { return p.alias }

// Range is the locations that pass the subscription's filter: from start to the end of
// the group last.
func (p *Publication) Range() (start Location, last uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		return p.start, math.MaxUint64
	}
	return p.start, *p.last
}

// Alias is the track alias that objects of the subscription come with.
func (sub *Subscription) Alias() uint64 { return sub.alias }
