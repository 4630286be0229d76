package player

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/sessiontest"
)

// TestFramesOverTwoConnections: while the session moves from one connection to another, both
// bring the same frames; each is shown once, and the counters show nothing of it.
func TestFramesOverTwoConnections(t *testing.T) {
	st := newStage(t, 2, 4, "B", nil)
	p := New(Config{Namespace: namespace, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(p.Close)
	play := func() (stop func()) {
		c, _ := sessiontest.Connect(t, moqt.Handler{}, st.set.Handler())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Play(ctx, c) }()
		return func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}
	subscribed := func(n int) {
		t.Helper()
		sessiontest.Until(t, "the subscriptions", func() bool { return st.cameras[0].Viewers() == n && st.cameras[1].Viewers() == n })
	}
	sequence := uint32(0)
	show := func(n int) {
		t.Helper()
		for range n {
			st.frame(0, sequence)
			st.frame(1, sequence)
			sequence++
			st.until(p, "the frames", func(r Report) bool { return r.Frames >= 2*uint64(sequence) })
		}
	}
	first := play()
	subscribed(1)
	show(3)
	second := play()
	subscribed(2)
	show(3)
	first()
	subscribed(1)
	show(3)
	second()
	r := p.Snapshot(time.Now())
	if r.Frames != 2*uint64(sequence) || r.FramesPartial != 0 || r.FramesDamaged != 0 || r.DescriptionsLate != 0 {
		t.Errorf("after %d frames of each camera: %+v", sequence, r)
	}
}
