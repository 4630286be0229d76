package connect

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/sessiontest/fakepath"
)

// TestPace checks when moves are delayed.
func TestPace(t *testing.T) {
	var p pace
	for i, ms := range []int{0, 0, 200, 400, 800, 1600, 3200, 5000, 5000} {
		least := time.Duration(ms) * time.Millisecond
		if d := p.delay(lastRetry); d < least || d > least+least/4 {
			t.Errorf("move %d after %v, want %v", i, d, least)
		}
	}
	if d := p.delay(lastRetry + 1); d != 0 {
		t.Errorf("move of a session that lasted after %v", d)
	}
}

// TestGoawayAlways checks that a relay that sends GOAWAY in each session does not make a client dial
// incessantly, whether it closes the session at once or never.
func TestGoawayAlways(t *testing.T) {
	for _, moving := range []bool{false, true} {
		for _, closing := range []bool{false, true} {
			t.Run(fmt.Sprintf("moving %v closing %v", moving, closing), func(t *testing.T) {
				fakepath.Test(t, func(t *testing.T) { goawayAlways(t, moving, closing) })
			})
		}
	}
}

func goawayAlways(t *testing.T, moving, closing bool) {
	const minute = time.Minute
	var dials atomic.Int32
	k := newKeeper(Target{URL: "moqt://relay.example/x", Relays: []string{"moqt://other.example"}}, moqt.Handler{}, quiet,
		func(ctx context.Context, s *moqt.Session) error {
			Settled(ctx)
			select {
			case <-ctx.Done():
			case <-s.Context().Done():
			}
			return errors.New("over")
		}, moving)
	k.open = func(_ context.Context, _ Target, h moqt.Handler) (*moqt.Session, error) {
		dials.Add(1)
		path := fakepath.New(fakepath.Direction{Delay: time.Millisecond}, fakepath.Direction{Delay: time.Millisecond})
		c, s := path.Connect(t, h, moqt.Handler{})
		timeout := time.Hour
		if closing {
			timeout = 10 * time.Millisecond
		}
		go func() { _ = s.Goaway(t.Context(), "", timeout) }()
		return c, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), minute)
	defer cancel()
	_ = k.keep(ctx)
	// Delays of 200 ms to 5 s; with two relays, each loss is followed by one more dial at once.
	if n := dials.Load(); n < 5 || n > 50 {
		t.Errorf("%d dials in a minute", n)
	}
	t.Logf("%d dials", dials.Load())
}
