package parts

import (
	"context"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Limit of a Receiver's concurrent fetches, and their priority. The priority is higher than that of
// frames, because the fetched parts complete older frames.
const (
	maxFetches    = 8
	fetchPriority = uint8(64)
)

// moment is the minimum wait of a Receiver's timer, and its tolerated delay.
const moment = 2 * time.Millisecond

// Receiver reassembles the payloads of one subscription. Pass parts from other sources, such as the
// joining FETCH, to Add.
type Receiver struct {
	sub  *moqt.Subscription
	take func(Payload)

	mu       sync.Mutex
	a        *Assembler
	fetching int
	timer    *time.Timer
	due      time.Time // when the timer fires
	closed   bool

	fetches sync.WaitGroup
	ctx     context.Context
	stop    context.CancelFunc
}

// NewReceiver returns a Receiver for sub. It calls take for each complete payload, one at a time, on
// the goroutine that added the last part. take must not call the Receiver.
func NewReceiver(ctx context.Context, sub *moqt.Subscription, l Limits, take func(Payload)) *Receiver {
	r := &Receiver{sub: sub, take: take, a: NewAssembler(l)}
	r.ctx, r.stop = context.WithCancel(ctx)
	r.timer = time.AfterFunc(time.Hour, r.look)
	r.timer.Stop()
	return r
}

// Joining declares that the earlier part of the subscription's first group is being fetched. Pass
// that part to Add.
func (r *Receiver) Joining() {
	if l := r.sub.Largest; l != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.a.Expect(l.Group, l.Object, time.Now())
	}
}

// Run receives the subscription's datagrams until the subscription ends or ctx is done, and returns
// the reason. Incomplete groups are dropped.
func (r *Receiver) Run() error {
	defer r.fetches.Wait()
	defer r.close()
	for {
		d, err := r.sub.AcceptDatagram(r.ctx)
		if err != nil {
			return err
		}
		r.Add(d, false)
	}
}

func (r *Receiver) close() {
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.timer.Stop()
	r.a.Close()
}

// Add adds a part. fetched marks a part that is not a datagram of the subscription.
func (r *Receiver) Add(d *moqt.Datagram, fetched bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	for _, p := range r.a.Add(d, fetched, time.Now()) {
		r.take(p)
	}
	r.ask()
}

// look is the timer's function. If it fires late, the machine was busy and parts may be queued
// here, so it waits once more.
func (r *Receiver) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); !r.closed && now.Sub(r.due) > moment {
		r.due = now.Add(moment)
		r.timer.Reset(moment)
		return
	}
	r.ask()
}

// Stats returns the counters.
func (r *Receiver) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.a.Stats()
}

// ask sends the due requests and sets the timer for the next. The caller holds r.mu.
func (r *Receiver) ask() {
	if r.closed {
		return
	}
	now, rtt := time.Now(), r.sub.Session().RTT()
	for _, q := range r.a.Due(now, rtt, maxFetches-r.fetching) {
		r.fetching++
		until := r.a.Deadline(q.Group)
		r.fetches.Go(func() { r.fetch(q, until) })
	}
	if at, ok := r.a.Next(rtt); ok {
		wait := max(moment, at.Sub(now))
		r.due = now.Add(wait)
		r.timer.Reset(wait)
	} else {
		r.timer.Stop()
	}
}

// fetch requests missing parts until the time at which their group is dropped. Parts that the peer
// lacks are lost.
func (r *Receiver) fetch(q Request, until time.Time) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fetching--
		r.ask()
	}()
	ctx, cancel := context.WithDeadline(r.ctx, until)
	defer cancel()
	f, err := r.sub.Session().Fetch(ctx, r.sub.Track(), moqt.Location{Group: q.Group, Object: q.First},
		moqt.Location{Group: q.Group, Object: q.Last + 1}, moqt.FetchOptions{Priority: new(fetchPriority)})
	if err != nil {
		return
	}
	defer f.Cancel()
	defer context.AfterFunc(ctx, f.Cancel)()
	for {
		o, err := f.Next()
		if err != nil {
			return // end of the response, or cancelled
		}
		if o.Range != wire.RangeNone {
			continue
		}
		b, err := f.ReadPayload(nil, r.a.limits.MaxPayload)
		if err != nil {
			return
		}
		r.Add(Fetched(o, b), true)
	}
}

// Fetched converts an object of a FETCH response to a part.
func Fetched(o wire.FetchObject, payload []byte) *moqt.Datagram {
	return &moqt.Datagram{
		Group:      o.Group,
		Object:     o.Object,
		Priority:   o.Priority,
		Properties: o.Properties,
		Payload:    payload,
	}
}
