package moqt

import (
	"context"
	"errors"
	"time"

	"holocast/internal/moqt/wire"
)

// fill is the response to the FILL_PARAMETERS of a subscription: past objects on a stream of their
// own, like the response to a FETCH (draft-22 §3.4). It ends with its subscription.
type fill struct {
	p        *Publication
	id       uint64 // of the SUBSCRIBE, REQUEST_UPDATE or PUBLISH
	priority *uint8 // instead of the subscription's
	ctx      context.Context
	cancel   context.CancelFunc

	// Guarded by p.mu.
	str  sendStream // nil until opened
	slot uint64
}

// startFill passes the fill that the parameters of a subscription or its update request to the
// handler of FETCH. largest is the largest location when the parameters took effect. An empty fill
// has no stream.
func (p *Publication) startFill(id uint64, params Parameters, largest *Location) {
	own := params.Fill
	if own == nil || largest == nil {
		return
	}
	p.mu.Lock()
	filter := own.Filter
	if filter == nil {
		filter = p.filter
	}
	start, end := filterRange(filter, largest)
	limit := Location{Group: largest.Group, Object: largest.Object + 1}
	if end.Group > limit.Group || end.Group == limit.Group && (end.Object == 0 || end.Object > limit.Object) {
		end = limit
	}
	if p.ended != nil || !p.forward || largest.Less(start) || rangeEndsEarly(start, end) {
		p.mu.Unlock()
		return
	}
	f := &fill{p: p, id: id, priority: own.SubscriberPriority}
	f.ctx, f.cancel = context.WithCancel(p.ctx)
	p.fills[f] = struct{}{}
	r := &FetchRequest{
		Request: &Request{stream: p.r, fill: f, Tokens: p.tokens, Parameters: Parameters{FillTimeout: own.FillTimeout}},
		Track:   p.track, Start: start, End: end, Order: p.order, Joining: largest,
	}
	if own.GroupOrder != nil {
		r.Order = *own.GroupOrder
	}
	p.mu.Unlock()
	go func() {
		serve(r.Request, p.s.handler.Fetch, r)
		f.end()
	}()
}

// end releases the fill.
func (f *fill) end() {
	f.cancel()
	p := f.p
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.fills, f)
	if len(p.fills) == 0 && p.filled != nil {
		close(p.filled)
		p.filled = nil
	}
}

// open opens the stream and sends its header, which arrives even if the stream is reset.
func (f *fill) open() (sendStream, error) {
	p := f.p
	str, err := p.s.conn.openUniSync(f.ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.streams++
	f.str, f.slot = str, p.s.takeSlot()
	f.reprioritize(p.priority)
	p.mu.Unlock()
	_ = str.SetWriteDeadline(time.Now().Add(p.s.wait.send))
	if _, err := str.Write(wire.FetchHeader{RequestID: f.id}.Append(nil)); err != nil {
		str.reset(wire.StreamInternalError)
		return nil, streamError(err)
	}
	if u, ok := str.(uniStream); ok {
		u.setReliable()
	}
	return str, nil
}

// reprioritize applies the subscription's priority. p.mu is held.
func (f *fill) reprioritize(priority uint8) {
	if f.priority != nil {
		priority = *f.priority
	}
	if f.str != nil {
		f.str.setPriority(objectPriority(priority, f.p.defaultPriority, f.slot))
	}
}

// refuse resets the stream after its header.
func (f *fill) refuse(err error) error {
	str, failed := f.open()
	if failed != nil {
		return failed
	}
	code := wire.StreamInternalError
	if e := (*RequestError)(nil); errors.As(err, &e) && e.Code == wire.RequestExcessiveLoad {
		code = wire.StreamExcessiveLoad
	}
	str.reset(code)
	return nil
}

// acceptFill opens the stream of a fill, which has no FETCH_OK.
func (r *FetchRequest) acceptFill() (*FetchWriter, error) {
	if err := r.startResponse(); err != nil {
		return nil, err
	}
	str, err := r.fill.open()
	if err != nil {
		r.running.Done()
		return nil, err
	}
	s := r.stream.s
	w := &FetchWriter{s: s, str: str, writeTimeout: s.wait.fetch, enc: s.version.NewFetchEncoder(r.Order)}
	w.stop = context.AfterFunc(r.fill.ctx, func() { str.reset(wire.StreamCancelled) })
	go func() {
		defer r.running.Done()
		<-str.Context().Done()
	}()
	return w, nil
}
