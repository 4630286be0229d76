package moqt

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"holocast/internal/moqt/wire"
)

// FetchOptions are the parameters of a FETCH (§10.13).
type FetchOptions struct {
	Priority    *uint8 // nil = 128
	GroupOrder  GroupOrder
	FillTimeout *time.Duration // what a relay may wait for objects it lacks; nil = its choice
	Tokens      []wire.Token
}

// FetchReader reads the objects of a FETCH response in the requested order.
type FetchReader struct {
	s    *Session
	r    *requestStream
	str  receiveStream
	br   *bufio.Reader
	dec  *wire.FetchDecoder
	left uint64
	over bool

	// End is where the response ends, exclusive in its object; an object of 0
	// means the whole of End.Group. EndOfTrack says that nothing follows it.
	End        Location
	EndOfTrack bool
	Properties Properties
}

// Fetch asks for the objects of a track from start to end, exclusive; an
// end.Object of 0 means the whole of end.Group.
func (s *Session) Fetch(ctx context.Context, track TrackName, start, end Location, o FetchOptions) (*FetchReader, error) {
	if err := track.Validate(); err != nil {
		return nil, err
	}
	return s.fetch(ctx, wire.Fetch{FetchType: wire.FetchStandalone, Track: track, Start: start, End: end}, o)
}

// FetchJoining asks for the groups objects before the largest that sub began
// with, so that response and subscription meet without gap or overlap
// (§10.13.2). groups counts the groups before that object's own.
func (s *Session) FetchJoining(ctx context.Context, sub *Subscription, groups uint64, o FetchOptions) (*FetchReader, error) {
	return s.fetch(ctx, wire.Fetch{FetchType: wire.FetchRelativeJoining, JoiningRequestID: sub.RequestID(), JoiningStart: groups}, o)
}

func (s *Session) fetch(ctx context.Context, m wire.Fetch, o FetchOptions) (*FetchReader, error) {
	m.Parameters = Parameters{SubscriberPriority: o.Priority, AuthorizationTokens: o.Tokens}
	order := wire.Ascending
	if o.GroupOrder != 0 {
		order = o.GroupOrder
		m.Parameters.GroupOrder = &order
	}
	if o.FillTimeout != nil {
		m.Parameters.FillTimeout = new(uint64(max(0, o.FillTimeout.Milliseconds())))
	}
	data := make(chan *FetchReader, 1)
	r, err := s.openRequest(ctx, func(id uint64) wire.Message {
		m.RequestID = id
		s.mu.Lock()
		s.fetches[id] = data
		s.notify()
		s.mu.Unlock()
		return &m
	})
	if err != nil {
		return nil, err
	}
	drop := func() {
		s.mu.Lock()
		delete(s.fetches, r.id)
		s.mu.Unlock()
		select {
		case f := <-data:
			f.str.stop(wire.StreamCancelled)
		default:
		}
		s.closeRequest()
	}
	answer, err := r.awaitResponse(ctx, 0)
	if err != nil {
		drop()
		return nil, err
	}
	ok, isOK := answer.(*wire.FetchOK)
	if !isOK {
		drop()
		return nil, r.unexpectedMessage(answer)
	}
	t := time.NewTimer(requestTimeout)
	defer t.Stop()
	select {
	case f := <-data:
		f.r, f.dec = r, wire.NewFetchDecoder(order)
		f.End, f.EndOfTrack, f.Properties = ok.End, ok.EndOfTrack, ok.Properties
		r.finish()
		return f, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.C:
		err = errors.New("moqt: the peer accepted the fetch but sent no stream")
	case <-s.ctx.Done():
		err = s.Err()
	}
	r.abort(wire.StreamCancelled)
	drop()
	return nil, err
}

func (s *Session) deliverFetch(h wire.FetchHeader, str receiveStream, br *bufio.Reader) {
	var ch chan *FetchReader
	found := s.waitFor(orphanWait, func() bool {
		ch = s.fetches[h.RequestID]
		delete(s.fetches, h.RequestID)
		return ch != nil
	})
	if !found {
		str.stop(wire.StreamCancelled)
		return
	}
	ch <- &FetchReader{s: s, str: str, br: br}
}

// Next reads the header of the next entry, an object or the end of a range, and
// skips what is left of the current one. It returns io.EOF at the end.
func (f *FetchReader) Next() (wire.FetchObject, error) {
	if f.left > 0 {
		if _, err := io.Copy(io.Discard, io.LimitReader(f.br, int64(f.left))); err != nil {
			return wire.FetchObject{}, f.bad(err)
		}
	}
	o, err := f.dec.Decode(f.br)
	if err != nil {
		return o, f.bad(err)
	}
	f.left = o.PayloadLength
	return o, nil
}

// ReadPayload reads the payload of the current object into buf, which grows as
// needed. A payload above limit is an error before anything is read.
func (f *FetchReader) ReadPayload(buf []byte, limit int) ([]byte, error) {
	if f.left > uint64(limit) {
		return buf, errors.New("moqt: object exceeds the size this receiver accepts")
	}
	if uint64(cap(buf)) < f.left {
		buf = make([]byte, f.left)
	}
	buf = buf[:f.left]
	f.left = 0
	if _, err := io.ReadFull(f.br, buf); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return buf[:0], f.bad(err)
	}
	return buf, nil
}

func (f *FetchReader) bad(err error) error {
	var w *wire.Error
	switch {
	case errors.As(err, &w):
		f.s.fail(err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = protocolViolation("a fetch stream ends inside an object")
		f.s.fail(err)
	}
	f.close()
	return streamError(err)
}

func (f *FetchReader) close() {
	if !f.over {
		f.over = true
		f.r.str.stop(wire.StreamCancelled)
		f.s.closeRequest()
	}
}

// Cancel withdraws the fetch. It may be called after the end.
func (f *FetchReader) Cancel() {
	f.str.stop(wire.StreamCancelled)
	f.close()
}

// FetchRequest is an incoming FETCH, a joining one already resolved to its track
// and range.
type FetchRequest struct {
	*Request
	Track      TrackName
	Start, End Location // End is exclusive in its object; object 0 = whole group
	Order      GroupOrder
	// Joining is the largest location of the subscription joined, nil for a
	// standalone fetch.
	Joining *Location
}

// joinWait is how long a joining FETCH may overtake its SUBSCRIBE.
const joinWait = 5 * time.Second

func (s *Session) handleFetch(req *Request, m *wire.Fetch) {
	r := &FetchRequest{Request: req, Track: m.Track, Start: m.Start, End: m.End, Order: wire.Ascending}
	if o := m.Parameters.GroupOrder; o != nil {
		r.Order = *o
	}
	if m.FetchType != wire.FetchStandalone {
		if e := s.resolveJoining(r, m); e != nil {
			_ = req.RejectWith(e)
			return
		}
	}
	if last := r.End; last.Less(r.Start) && (last.Object != 0 || last.Group < r.Start.Group) {
		_ = req.Reject(wire.RequestInvalidRange, "the range ends before it starts")
		return
	}
	serve(req, s.handler.Fetch, r)
}

// resolveJoining computes the range of a joining fetch (§10.13.2.1).
func (s *Session) resolveJoining(r *FetchRequest, m *wire.Fetch) error {
	var p *Publication
	s.waitFor(joinWait, func() bool {
		var known bool
		p, known = s.joinable[m.JoiningRequestID]
		// One that was answered and is gone will not come back.
		return p != nil || !known && m.JoiningRequestID < s.requests.next
	})
	if p == nil {
		return &RequestError{Code: wire.RequestInvalidJoiningRequestID, Reason: "no such subscription"}
	}
	p.mu.Lock()
	joining, forward := p.joining, p.forward
	p.mu.Unlock()
	switch {
	case !forward:
		return &RequestError{Code: wire.RequestInvalidRange, Reason: "the subscription is paused"}
	case joining == nil:
		return &RequestError{Code: wire.RequestInvalidRange, Reason: "nothing was published before the subscription"}
	}
	r.Track, r.Joining = p.track, joining
	r.End = Location{Group: joining.Group, Object: joining.Object + 1}
	if m.FetchType == wire.FetchAbsoluteJoining {
		r.Start = Location{Group: m.JoiningStart}
	} else if m.JoiningStart < joining.Group {
		r.Start = Location{Group: joining.Group - m.JoiningStart}
	}
	return nil
}

// Accept answers FETCH_OK and opens the response's stream.
func (r *FetchRequest) Accept(end Location, endOfTrack bool, props Properties) (*FetchWriter, error) {
	if err := r.claim(); err != nil {
		return nil, err
	}
	s := r.stream.s
	if err := r.stream.send(&wire.FetchOK{EndOfTrack: endOfTrack, End: end, Properties: props}); err != nil {
		r.stream.abort(wire.StreamCancelled)
		return nil, err
	}
	str, err := s.conn.openUniSync(r.Context())
	if err != nil {
		r.stream.abort(wire.StreamExcessiveLoad)
		return nil, err
	}
	prio := wire.DefaultPriority
	if p := r.Parameters.SubscriberPriority; p != nil {
		prio = *p
	}
	str.setPriority(urgency(prio, wire.DefaultPriority))
	w := &FetchWriter{
		r: r.stream, str: str, enc: wire.NewFetchEncoder(r.Order),
		buf: wire.FetchHeader{RequestID: r.stream.id}.Append(nil),
	}
	w.stop = context.AfterFunc(r.Context(), func() { str.reset(wire.StreamCancelled) })
	return w, nil
}

// FetchWriter writes the response to a FETCH.
type FetchWriter struct {
	r    *requestStream
	str  sendStream
	enc  *wire.FetchEncoder
	buf  []byte
	stop func() bool
}

// WriteObject writes one entry; the end of a range has no payload. It waits as
// long as the peer's flow control makes it.
func (w *FetchWriter) WriteObject(o wire.FetchObject, payload []byte) error {
	o.PayloadLength = uint64(len(payload))
	if err := w.BeginObject(o); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// BeginObject writes an entry's header; Write then takes PayloadLength bytes.
func (w *FetchWriter) BeginObject(o wire.FetchObject) error {
	b, err := w.enc.Append(w.buf, o)
	if err != nil {
		return err
	}
	w.buf = b[:0]
	_, err = w.str.Write(b)
	return streamError(err)
}

// Write writes payload of the current object.
func (w *FetchWriter) Write(payload []byte) (int, error) {
	if len(payload) == 0 {
		return 0, nil
	}
	n, err := w.str.Write(payload)
	return n, streamError(err)
}

// Close ends the response; what was not sent in its range does not exist.
func (w *FetchWriter) Close() error {
	defer w.r.finish()
	if len(w.buf) > 0 {
		if _, err := w.str.Write(w.buf); err != nil {
			w.stop()
			return streamError(err)
		}
	}
	w.stop()
	return streamError(w.str.Close())
}

// Reset abandons the response.
func (w *FetchWriter) Reset(code wire.StreamCode) {
	w.stop()
	w.str.reset(code)
	w.r.abort(code)
}
