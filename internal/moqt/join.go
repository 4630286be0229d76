package moqt

import (
	"context"
	"errors"
	"sync"
	"time"

	"holocast/internal/moqt/wire"
)

// joiningFetch is a joining FETCH sent together with the SUBSCRIBE it refers to, or from draft-20 on
// the fill that the SUBSCRIBE requests.
type joiningFetch struct {
	forget    func()        // of a fill: no longer expects its stream
	done      chan struct{} // closed when the response has arrived
	cancelled chan struct{} // closed by end
	f         *FetchReader
	err       error

	mu       sync.Mutex
	returned bool // Joined returned f
	ended    bool
}

// join sends a joining FETCH for the SUBSCRIBE to track with this request ID. It adds the rendezvous timeout
// to its own, because the SUBSCRIBE may wait that long for a publisher.
func (s *Session) join(track TrackName, request uint64, rendezvous time.Duration) *joiningFetch {
	j := &joiningFetch{done: make(chan struct{}), cancelled: make(chan struct{})}
	go func() {
		j.resolve(s.fetch(
			s.ctx,
			wire.Fetch{FetchType: wire.FetchRelativeJoining, Track: track, JoiningRequestID: request},
			FetchOptions{},
			rendezvous,
		))
	}()
	return j
}

// resolve stores the response and cancels it if it is no longer wanted.
func (j *joiningFetch) resolve(f *FetchReader, err error) {
	j.mu.Lock()
	j.f, j.err = f, err
	unwanted := j.ended && f != nil
	j.mu.Unlock()
	close(j.done)
	if unwanted {
		f.Cancel()
	}
}

// expectFill prepares for the stream of the fill that sub requests in the message with this request
// ID, which is not sent yet.
func (s *Session) expectFill(sub *Subscription, request uint64) *joiningFetch {
	j := &joiningFetch{done: make(chan struct{}), cancelled: make(chan struct{})}
	j.forget = func() {
		s.mu.Lock()
		delete(s.fetches, request)
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.fetches[request] = func(f *FetchReader) {
		f.dec = s.version.NewFetchDecoder(wire.Ascending) // of one group
		j.resolve(f, nil)
		sub.countStream() // PUBLISH_DONE counts fills
	}
	s.mu.Unlock()
	return j
}

// end cancels the FETCH unless Joined returned it. A FETCH without a response is cancelled when the
// response arrives: resetting its stream before the peer reads the request would leave a permanent
// gap in the request IDs. j may be nil.
func (j *joiningFetch) end() {
	if j == nil {
		return
	}
	j.mu.Lock()
	if !j.ended {
		j.ended = true
		close(j.cancelled)
	}
	if j.forget != nil {
		defer j.forget()
	}
	f := j.f
	if j.returned {
		f = nil
	}
	j.mu.Unlock()
	if f != nil {
		f.Cancel()
	}
}

// await waits for the response.
func (j *joiningFetch) await(ctx context.Context) (*FetchReader, error) {
	select {
	case <-j.done:
	case <-j.cancelled:
		select {
		case <-j.done:
		default:
			return nil, errJoinCancelled
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended && !j.returned {
		return nil, errJoinCancelled
	}
	j.returned = true
	return j.f, j.err
}

// errJoinCancelled means that the subscription ended before its joining FETCH was read.
var errJoinCancelled = errors.New("moqt: joining fetch cancelled: the subscription ended")

// Joined returns the past objects of the subscription's first group, up to Largest, which must not
// be nil. Without SubscribeOptions.Join, or if the peer refused that FETCH, it sends one now. Call it
// at most once.
func (sub *Subscription) Joined(ctx context.Context) (*FetchReader, error) {
	switch {
	case sub.join == nil:
	case sub.s.version >= wire.Draft20:
		f, err := sub.filled(ctx)
		if f != nil || ctx.Err() != nil || sub.Err() != nil {
			return f, err
		}
	default:
		f, err := sub.join.await(ctx)
		// A peer that reads the FETCH before the SUBSCRIBE may refuse it.
		if e := (*RequestError)(nil); !errors.As(err, &e) && !errors.Is(err, errJoinCancelled) {
			return f, err
		}
	}
	return sub.s.FetchJoining(ctx, sub, 0, FetchOptions{})
}

// filled waits for the stream of the subscription's fill.
func (sub *Subscription) filled(ctx context.Context) (*FetchReader, error) {
	ctx, cancel := context.WithTimeout(ctx, sub.s.wait.request)
	defer cancel()
	f, err := sub.join.await(ctx)
	if f != nil && sub.Largest != nil {
		f.End, f.Properties = Location{Group: sub.Largest.Group, Object: sub.Largest.Object + 1}, sub.Properties
		f.opener = sub.s.openTrack(sub.track, sub.Properties)
	}
	return f, err
}
