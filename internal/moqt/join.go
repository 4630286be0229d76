package moqt

import (
	"context"
	"errors"
	"sync"
	"time"

	"holocast/internal/moqt/wire"
)

// joining is a joining FETCH that leaves right behind the SUBSCRIBE it refers to.
type joining struct {
	done chan struct{} // closed when the answer is here
	over chan struct{} // closed by end
	f    *FetchReader
	err  error

	mu    sync.Mutex
	taken bool // by Joined
	ended bool
}

// join sends the joining FETCH of the subscription that request asks for, which may wait for a
// publisher for as long as patience.
func (s *Session) join(request uint64, patience time.Duration) *joining {
	j := &joining{done: make(chan struct{}), over: make(chan struct{})}
	go func() {
		f, err := s.fetch(s.ctx, wire.Fetch{FetchType: wire.FetchRelativeJoining, JoiningRequestID: request}, FetchOptions{}, patience)
		j.mu.Lock()
		j.f, j.err = f, err
		unwanted := j.ended && f != nil
		j.mu.Unlock()
		close(j.done)
		if unwanted {
			f.Cancel()
		}
	}()
	return j
}

// end gives the FETCH up, unless somebody reads it. One that was not answered yet is
// given up when it is: its stream, reset before the peer read the request, would leave
// a gap in the request IDs for good. j may be nil.
func (j *joining) end() {
	if j == nil {
		return
	}
	j.mu.Lock()
	if !j.ended {
		j.ended = true
		close(j.over)
	}
	f := j.f
	if j.taken {
		f = nil
	}
	j.mu.Unlock()
	if f != nil {
		f.Cancel()
	}
}

// take waits for the answer.
func (j *joining) take(ctx context.Context) (*FetchReader, error) {
	select {
	case <-j.done:
	case <-j.over:
		select {
		case <-j.done:
		default:
			return nil, errGivenUp
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended && !j.taken {
		return nil, errGivenUp
	}
	j.taken = true
	return j.f, j.err
}

// errGivenUp: the subscription ended before the FETCH that left with it was read.
var errGivenUp = errors.New("moqt: the joining fetch was given up")

// Joined returns the group that the subscription began in, as far as it is the past:
// its objects up to Largest, which is not nil. It is called once.
func (sub *Subscription) Joined(ctx context.Context) (*FetchReader, error) {
	if sub.join != nil {
		f, err := sub.join.take(ctx)
		// A peer that reads the FETCH before the SUBSCRIBE may refuse it.
		if e := (*RequestError)(nil); !errors.As(err, &e) && !errors.Is(err, errGivenUp) {
			return f, err
		}
	}
	return sub.s.FetchJoining(ctx, sub, 0, FetchOptions{})
}
