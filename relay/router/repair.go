package router

import (
	"context"
	"io"
	"slices"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// Limits of repairs. When a viewer fetches datagrams that were lost on the way to this relay, the relay
// fetches them upstream, once for all viewers.
const (
	maxRepairs    = 256 // per track
	repairTimeout = 2 * time.Second
)

// repair is an upstream fetch of the objects first to last of a group.
type repair struct {
	group, first, last uint64
	done               chan struct{} // closed when the fetch has ended, successfully or not
}

// fillGaps fetches the lost objects that req requests, and waits for them until ctx is done. It does
// nothing if req spans several groups.
func (t *track) fillGaps(ctx context.Context, req *moqt.FetchRequest) {
	if req.Start.Group != req.End.Group || ctx.Err() != nil { // a repair covers one group
		return
	}
	group, last := req.Start.Group, req.End.Object-1 // End.Object 0 means the whole group
	missing := t.Missing(group, req.Start.Object, last)
	if len(missing) == 0 {
		return
	}
	if largest, ok := t.Largest(); req.End.Object == 0 && ok && group == largest.Group {
		// Objects after the largest may not have been published yet.
		missing = slices.DeleteFunc(missing, func(s origin.Span) bool { return s.First > largest.Object })
		if len(missing) == 0 {
			return
		}
	}
	t.mu.Lock()
	rest, wait := t.uncovered(group, missing)
	var mine *repair
	if n := len(rest); n > 0 {
		mine = &repair{group: group, first: rest[0].First, last: rest[n-1].Last, done: make(chan struct{})}
		if len(t.repairs) == maxRepairs {
			t.repairs = slices.Delete(t.repairs, 0, 1)
		}
		t.repairs = append(t.repairs, mine)
	}
	t.mu.Unlock()
	if mine != nil {
		wait = append(wait, mine.done)
		go t.fetchLost(mine)
	}
	for _, done := range wait {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// uncovered returns the parts of spans that no repair covers, and the done channels of the repairs
// that cover the other parts. The caller holds t.mu.
func (t *track) uncovered(group uint64, spans []origin.Span) (rest []origin.Span, wait []chan struct{}) {
	rest = slices.Clone(spans)
	for _, r := range t.repairs {
		if r.group != group {
			continue
		}
		var left []origin.Span
		for _, s := range rest {
			if r.last < s.First || s.Last < r.first {
				left = append(left, s)
				continue
			}
			if n := len(wait); n == 0 || wait[n-1] != r.done {
				wait = append(wait, r.done)
			}
			if s.First < r.first {
				left = append(left, origin.Span{First: s.First, Last: r.first - 1})
			}
			if r.last < s.Last {
				left = append(left, origin.Span{First: r.last + 1, Last: s.Last})
			}
		}
		rest = left
	}
	return rest, wait
}

// repairTimeout returns how long fetched objects remain useful to viewers.
func (t *track) repairTimeout() time.Duration {
	ms, ok := t.Properties().Int(wire.PropertyObjectDeliveryTimeout)
	if ok && ms > 0 && ms < uint64(repairTimeout.Milliseconds()) {
		return time.Duration(ms) * time.Millisecond
	}
	return repairTimeout
}

// fetchLost fetches lost objects from an upstream into the cache.
func (t *track) fetchLost(r *repair) {
	defer close(r.done)
	up, s := t.anyUpstream()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.Context(), t.repairTimeout())
	defer cancel()
	slots := t.r.slotsOf(up).lost
	if err := acquireSlot(ctx, slots); err != nil {
		return
	}
	defer func() { <-slots }()
	n, err := 0, error(nil)
	defer func() {
		t.r.log.Debug("fetched lost objects", "track", t.Name().String(),
			"group", r.group, "first", r.first, "last", r.last, "objects", n, "err", err)
	}()
	start, end := moqt.Location{Group: r.group, Object: r.first}, moqt.Location{Group: r.group, Object: r.last + 1}
	f, err := s.Fetch(ctx, t.Name(), start, end, moqt.FetchOptions{})
	if err != nil {
		return
	}
	defer f.Cancel()
	defer context.AfterFunc(ctx, f.Cancel)()
	for {
		var o wire.FetchObject
		if o, err = f.Next(); err != nil {
			if err == io.EOF {
				err = nil
			}
			return
		}
		if o.Range != wire.RangeNone || !o.Datagram {
			continue
		}
		var payload []byte
		if payload, err = f.ReadPayload(nil, maxFetchedDatagram); err != nil {
			return
		}
		t.BackfillDatagram(fetchedDatagram(o, payload))
		n++
	}
}

// fetchedDatagram converts a fetched object to a datagram.
func fetchedDatagram(o wire.FetchObject, payload []byte) moqt.Datagram {
	return moqt.Datagram{
		Group: o.Group, Object: o.Object, Priority: o.Priority, Properties: o.Properties, Payload: payload,
	}
}

// maxFetchedDatagram is more than the size of the largest QUIC DATAGRAM.
const maxFetchedDatagram = 64 << 10
