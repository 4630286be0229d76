package moqt

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"holocast/internal/moqt/wire"
)

// ErrObjectTooLarge is returned for an object larger than its reader's limit.
var ErrObjectTooLarge = errors.New("moqt: object exceeds the size this receiver accepts")

// FetchOptions are the parameters of a FETCH (§10.12).
type FetchOptions struct {
	Priority    *uint8 // nil = 128
	GroupOrder  GroupOrder
	FillTimeout *time.Duration // a relay's maximum wait for objects it lacks; nil = the relay's default
	Tokens      []wire.Token
}

// FetchReader reads the objects of a FETCH response in the requested order.
type FetchReader struct {
	s    *Session
	r    *requestStream // nil for a fill
	str  receiveStream
	br   *bufio.Reader
	dec  *wire.FetchDecoder
	left uint64
	over sync.Once

	opener ObjectOpener // nil unless the objects are encrypted
	opened openedPayload

	// End is the exclusive end of the response; object 0 means all of End.Group. EndOfTrack means
	// that the track ends there.
	End        Location
	EndOfTrack bool
	Properties Properties
}

// Fetch requests the objects of a track from start up to, but excluding, end. An end.Object of 0
// means all of end.Group.
func (s *Session) Fetch(
	ctx context.Context,
	track TrackName,
	start, end Location,
	o FetchOptions,
) (*FetchReader, error) {
	if err := track.Validate(); err != nil {
		return nil, err
	}
	return s.fetch(ctx, wire.Fetch{FetchType: wire.FetchStandalone, Track: track, Start: start, End: end}, o, 0)
}

// FetchJoining requests the objects before sub: from the given number of groups before the track's
// largest location at sub's start, up to and including that location. Response and subscription
// then meet without gap or overlap (§10.12.2). From draft-20 on it is a FETCH of that range.
func (s *Session) FetchJoining(
	ctx context.Context,
	sub *Subscription,
	groups uint64,
	o FetchOptions,
) (*FetchReader, error) {
	if s.version >= wire.Draft20 {
		l := sub.Largest
		if l == nil {
			return nil, &RequestError{
				Code: wire.RequestInvalidRange, Reason: "nothing was published before the subscription",
			}
		}
		start := Location{Group: l.Group - min(groups, l.Group)}
		return s.Fetch(ctx, sub.track, start, Location{Group: l.Group, Object: l.Object + 1}, o)
	}
	return s.fetch(
		ctx,
		wire.Fetch{
			FetchType: wire.FetchRelativeJoining, Track: sub.track, JoiningRequestID: sub.RequestID(),
			JoiningStart: groups,
		},
		o,
		0,
	)
}

// fetch sends a FETCH of m.Track and waits for its response. It allows extraWait, or o.FillTimeout if set, in
// addition to the usual response timeout.
func (s *Session) fetch(
	ctx context.Context,
	m wire.Fetch,
	o FetchOptions,
	extraWait time.Duration,
) (*FetchReader, error) {
	m.Parameters = Parameters{SubscriberPriority: o.Priority, AuthorizationTokens: o.Tokens}
	order := wire.Ascending
	if o.GroupOrder != 0 {
		order = o.GroupOrder
		m.Parameters.GroupOrder = &order
	}
	if o.FillTimeout != nil {
		m.Parameters.FillTimeout = new(uint64(max(0, o.FillTimeout.Milliseconds())))
	}
	if s.version >= wire.Draft20 {
		m.Parameters.Filter = rangeFilter(m.Start, m.End)
	}
	data := make(chan *FetchReader, 1)
	var id *uint64
	drop := func() {
		if id == nil {
			return
		}
		s.mu.Lock()
		delete(s.fetches, *id)
		s.mu.Unlock()
		select {
		case f := <-data:
			f.str.stop(wire.StreamCancelled)
		default:
		}
	}
	r, err := s.openRequest(ctx, func(i uint64) wire.Message {
		id, m.RequestID = &i, i
		s.mu.Lock()
		s.fetches[i] = func(f *FetchReader) { data <- f } // buffered
		s.mu.Unlock()
		return &m
	})
	if err != nil {
		drop()
		return nil, err
	}
	if o.FillTimeout != nil {
		extraWait = *o.FillTimeout
	}
	f, err := s.awaitFetch(ctx, r, order, data, m, extraWait)
	if err != nil {
		drop()
		s.closeRequest()
		return nil, err
	}
	return f, nil
}

// awaitFetch waits for the response to a FETCH and for its data stream.
func (s *Session) awaitFetch(
	ctx context.Context,
	r *requestStream,
	order GroupOrder,
	data <-chan *FetchReader,
	m wire.Fetch,
	extraWait time.Duration,
) (*FetchReader, error) {
	answer, err := r.awaitResponse(ctx, extraWait)
	if err != nil {
		return nil, err
	}
	ok, isOK := answer.(*wire.FetchOK)
	if !isOK {
		return nil, r.unexpectedMessage(answer)
	}
	end := s.exclusiveEnd(ok.End)
	if m.FetchType == wire.FetchStandalone && rangeEndsEarly(m.Start, end) {
		err := protocolViolation("FETCH_OK ends before the fetch starts")
		s.fail(err)
		return nil, err
	}
	t := time.NewTimer(s.wait.request)
	defer t.Stop()
	select {
	case f := <-data:
		f.r, f.dec = r, s.version.NewFetchDecoder(order)
		f.End, f.EndOfTrack, f.Properties = end, ok.EndOfTrack, ok.Properties
		f.opener = s.openTrack(m.Track, ok.Properties)
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
	return nil, err
}

// rangeEndsEarly reports whether a range ends before its start. end is exclusive; object 0 means
// the whole group.
func rangeEndsEarly(start, end Location) bool {
	return end.Less(start) && (end.Object != 0 || end.Group < start.Group)
}

// rangeFilter returns the filter of a FETCH from start to end, which is exclusive, or nil for the
// whole track.
func rangeFilter(start, end Location) *Filter {
	open := end == Location{Group: math.MaxUint64}
	switch {
	case open && start == Location{}:
		return nil
	case open:
		return &Filter{Type: wire.FilterAbsoluteStart, Start: start}
	case end.Object == 0:
		return &Filter{Type: wire.FilterAbsoluteRange, Start: start, EndGroup: end.Group}
	}
	return &Filter{Type: wire.FilterObjectRange, Start: start, EndGroup: end.Group, EndObject: end.Object - 1}
}

// filterRange returns the range of a FETCH or fill with filter f, whose end is exclusive. Without
// largest, a range that depends on it starts after every object.
func filterRange(f *Filter, largest *Location) (start, end Location) {
	end = Location{Group: math.MaxUint64}
	if f == nil {
		return start, end
	}
	switch f.Type {
	case wire.FilterAbsoluteStart, wire.FilterAbsoluteRange, wire.FilterObjectRange:
		start = f.Start
	case wire.FilterNextGroup, wire.FilterLargestObject, wire.FilterRecentGroups:
		start = Location{Group: math.MaxUint64, Object: math.MaxUint64}
		if f.Type == wire.FilterRecentGroups && largest != nil && f.Groups > 0 {
			start = Location{Group: largest.Group - min(f.Groups-1, largest.Group)}
		}
	}
	switch f.Type {
	case wire.FilterAbsoluteRange:
		end = Location{Group: f.EndGroup}
	case wire.FilterObjectRange:
		end = Location{Group: f.EndGroup, Object: f.EndObject + 1}
	}
	return start, end
}

// exclusiveEnd converts the End Location of a FETCH_OK, which is inclusive from draft-20 on. Past
// the last object ID it becomes 0, which means the whole group.
func (s *Session) exclusiveEnd(end Location) Location {
	if s.version >= wire.Draft20 {
		end.Object++
	}
	return end
}

// deliverFetch passes a data stream to its fetch, which is registered before the FETCH is sent.
func (s *Session) deliverFetch(h wire.FetchHeader, str receiveStream, br *bufio.Reader) {
	s.mu.Lock()
	deliver := s.fetches[h.RequestID]
	delete(s.fetches, h.RequestID)
	s.mu.Unlock()
	if deliver != nil {
		deliver(&FetchReader{s: s, str: str, br: br})
	} else {
		str.stop(wire.StreamCancelled)
	}
}

// Next reads the header of the next entry, an object or the end of a range, and skips the rest of
// the current one. It returns io.EOF at the end. With Config.Opener it reads the whole object, and
// skips those that are refused.
func (f *FetchReader) Next() (wire.FetchObject, error) {
	for {
		f.opened.set = false
		o, err := f.next()
		if err != nil || f.opener == nil || o.Range != wire.RangeNone {
			return o, err
		}
		ok, err := f.opened.open(
			f.opener, Location{Group: o.Group, Object: o.Object}, o.Priority, &o.Properties, &o.PayloadLength,
			func(buf []byte) ([]byte, error) { return f.readPayload(buf, maxSealed) },
		)
		if err != nil || ok {
			return o, err
		}
	}
}

func (f *FetchReader) next() (wire.FetchObject, error) {
	if err := discard(f.br, &f.left); err != nil {
		return wire.FetchObject{}, f.bad(err)
	}
	o, err := f.dec.Decode(f.br)
	if err != nil {
		return o, f.bad(err)
	}
	f.left = o.PayloadLength
	return o, nil
}

// ReadPayload reads the payload of the current object into buf, which grows as needed. It returns
// ErrObjectTooLarge before reading a payload above limit.
func (f *FetchReader) ReadPayload(buf []byte, limit int) ([]byte, error) {
	if f.opened.set {
		return f.opened.take(buf, limit)
	}
	return f.readPayload(buf, limit)
}

func (f *FetchReader) readPayload(buf []byte, limit int) ([]byte, error) {
	if f.left > uint64(limit) {
		return buf, ErrObjectTooLarge
	}
	buf, err := readPayload(f.br, buf, f.left)
	f.left = 0
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return buf, f.bad(err)
	}
	return buf, nil
}

// Each passes every object of the response and its payload to use, and closes the fetch at its end,
// on an error, or when ctx is done. It returns ErrObjectTooLarge for a payload above limit. use may
// keep the payload.
func (f *FetchReader) Each(ctx context.Context, limit int, use func(wire.FetchObject, []byte) error) error {
	stop := context.AfterFunc(ctx, f.Cancel)
	defer func() {
		stop()
		f.Cancel()
	}()
	for {
		o, err := f.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if o.Range != wire.RangeNone {
			continue
		}
		payload, err := f.ReadPayload(nil, limit)
		if err != nil {
			return err
		}
		if err := use(o, payload); err != nil {
			return err
		}
	}
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
	f.Cancel()
	return streamError(err)
}

// Cancel withdraws the fetch. It may be called after the end.
func (f *FetchReader) Cancel() {
	f.over.Do(func() {
		f.str.stop(wire.StreamCancelled)
		if f.r != nil {
			f.r.str.stop(wire.StreamCancelled)
			f.s.closeRequest()
		}
	})
}

// FetchRequest is an incoming FETCH, or a subscription's request to be filled (draft-22 §3.4). Joining
// fetches and fills are already resolved to a track and range.
type FetchRequest struct {
	*Request
	Track      TrackName
	Start, End Location // End is exclusive; object 0 = whole group
	Order      GroupOrder
	// Joining is the largest location of the joined or filled subscription. It is nil for a
	// standalone fetch.
	Joining *Location
}

// Resolve sets Start of a FETCH that counts groups from the track's largest location. Until then it
// is after every object.
func (r *FetchRequest) Resolve(largest Location) {
	if f := r.Parameters.Filter; f != nil && f.Type == wire.FilterRecentGroups && r.Joining == nil {
		r.Start, r.End = filterRange(f, &largest)
	}
}

func (s *Session) handleFetch(req *Request, m *wire.Fetch) {
	r := &FetchRequest{Request: req, Track: m.Track, Start: m.Start, End: m.End, Order: wire.Ascending}
	if o := m.Parameters.GroupOrder; o != nil {
		r.Order = *o
	}
	switch {
	case s.version >= wire.Draft20:
		r.Start, r.End = filterRange(m.Parameters.Filter, nil)
	case m.FetchType != wire.FetchStandalone:
		if e := s.resolveJoining(r, m); e != nil {
			_ = req.RejectWith(e)
			return
		}
	}
	if rangeEndsEarly(r.Start, r.End) {
		_ = req.Reject(wire.RequestInvalidRange, "the range ends before it starts")
		return
	}
	if m.FetchType == wire.FetchStandalone && s.sendq.dropped(r.Track, r.Start.Group) {
		_ = req.Reject(wire.RequestExcessiveLoad, "the group was dropped at a bottleneck")
		return
	}
	serve(req, s.handler.Fetch, r)
}

// run answers REQUEST_UPDATEs until the response ends.
func (w *FetchWriter) run() {
	for {
		m, err := w.r.read()
		if err != nil {
			return
		}
		u, ok := m.(*wire.RequestUpdate)
		if !ok {
			_ = w.r.unexpectedMessage(m)
			return
		}
		refused, err := w.r.update(u)
		if err != nil {
			return
		}
		if refused != nil {
			_ = w.r.send(refused)
			w.Reset(wire.StreamCancelled)
			return
		}
		if p := u.Parameters.SubscriberPriority; p != nil {
			w.str.setPriority(objectPriority(*p, wire.DefaultPriority, w.slot))
		}
		if w.r.send(&wire.RequestOK{}) != nil {
			return
		}
	}
}

// resolveJoining computes the range of a joining fetch (§10.12.2.1).
func (s *Session) resolveJoining(r *FetchRequest, m *wire.Fetch) error {
	// The SUBSCRIBE may still arrive. Waiting is pointless for an ID that was already seen and is
	// not joinable, or for the ID of a PUBLISH that we never sent.
	var p *Publication
	known := false
	find := func() bool {
		p, known = s.joinable[m.JoiningRequestID]
		ours := m.JoiningRequestID&1 != s.requests.parity
		return known || ours || s.requests.seen(m.JoiningRequestID)
	}
	// A pending SUBSCRIBE may wait long for a publisher.
	if s.waitFor(r.Context(), s.wait.join, find) && known {
		s.waitFor(r.Context(), math.MaxInt64, func() bool { return find() && (p != nil || !known) })
	}
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

// Accept sends FETCH_OK and opens the data stream.
func (r *FetchRequest) Accept(end Location, endOfTrack bool, props Properties) (*FetchWriter, error) {
	if r.fill != nil {
		return r.acceptFill()
	}
	if err := r.startResponse(); err != nil {
		return nil, err
	}
	s := r.stream.s
	if s.version >= wire.Draft20 {
		end.Object-- // inclusive; 0, the whole group, becomes the largest object ID
	}
	ok := &wire.FetchOK{EndOfTrack: endOfTrack, End: end, Properties: r.included(props)}
	if err := r.stream.send(ok); err != nil {
		r.running.Done()
		return nil, err
	}
	str, err := s.conn.openUniSync(r.Context())
	if err != nil {
		r.stream.abort(wire.StreamExcessiveLoad)
		r.running.Done()
		return nil, err
	}
	prio := wire.DefaultPriority
	if p := r.Parameters.SubscriberPriority; p != nil {
		prio = *p
	}
	slot := s.takeSlot()
	str.setPriority(objectPriority(prio, wire.DefaultPriority, slot))
	w := &FetchWriter{
		s: s, r: r.stream, str: str, slot: slot, writeTimeout: s.wait.fetch,
		enc: s.version.NewFetchEncoder(r.Order), buf: wire.FetchHeader{RequestID: r.stream.id}.Append(nil),
	}
	w.stop = context.AfterFunc(r.Context(), func() { str.reset(wire.StreamCancelled) })
	go func() {
		defer r.running.Done()
		w.run()
		<-str.Context().Done()
	}()
	return w, nil
}

// FetchWriter writes the response to a FETCH or fill.
type FetchWriter struct {
	s    *Session
	r    *requestStream // nil for a fill
	str  sendStream
	slot uint64 // in the stream's priority
	enc  *wire.FetchEncoder
	buf  []byte
	stop func() bool

	writeTimeout time.Duration // of one write
}

// SetWriteTimeout sets how long a write may wait for flow control; the default is 30 s.
func (w *FetchWriter) SetWriteTimeout(d time.Duration) { w.writeTimeout = d }

// WriteObject writes one entry; an end of range has no payload. It waits for flow control. After
// the write timeout it resets the response and returns ErrDeliveryTimeout.
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
	return w.write(b)
}

// Write writes payload of the current object, waiting as WriteObject does.
func (w *FetchWriter) Write(payload []byte) (int, error) {
	if len(payload) == 0 {
		return 0, nil
	}
	if err := w.write(payload); err != nil {
		return 0, err
	}
	return len(payload), nil
}

func (w *FetchWriter) write(b []byte) error {
	_ = w.str.SetWriteDeadline(time.Now().Add(w.writeTimeout))
	_, err := w.str.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.s.count.deliveryTimeouts.Add(1)
		w.Reset(wire.StreamDeliveryTimeout)
		return ErrDeliveryTimeout
	}
	return streamError(err)
}

// Close ends the response. The peer treats unsent objects of the range as nonexistent.
func (w *FetchWriter) Close() error {
	if w.r != nil {
		defer w.r.end()
	}
	defer w.stop()
	if len(w.buf) > 0 {
		if err := w.write(w.buf); err != nil {
			return err
		}
	}
	return streamError(w.str.Close())
}

// Reset abandons the response.
func (w *FetchWriter) Reset(code wire.StreamCode) {
	w.stop()
	w.str.reset(code)
	if w.r != nil {
		w.r.abort(code)
	}
}
