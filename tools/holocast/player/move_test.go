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

// TestFramesOverTwoConnections checks that a player with two connections to the same session
// displays each frame once and counts no losses.
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
		sessiontest.Until(
			t, "the subscriptions", func() bool { return st.cameras[0].Viewers() == n && st.cameras[1].Viewers() == n },
		)
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
		t.Errorf(
			"%d frames per camera: %d displayed, %d partial, %d damaged, %d descriptions late", sequence, r.Frames,
			r.FramesPartial, r.FramesDamaged, r.DescriptionsLate,
		)
	}
}

// TestCopiesAreNotLate checks that a second copy of a displayed description does not count as late,
// even after the connection that delivered the first copy has closed, and that a late first copy
// counts once.
func TestCopiesAreNotLate(t *testing.T) {
	f, st := newIdleFeed(t, 4)
	add := func(sequence uint32, description int) {
		now := time.Now()
		f.add(uint64(sequence), st.object(0, sequence, description), now, now, false, false)
	}
	for d := range 4 {
		add(1, d)
	}
	for d := range 3 {
		add(2, d)
	}
	add(3, 0) // the second frame is displayed without its last description
	for d := range 4 {
		add(1, d)
	}
	add(2, 0)
	if late := f.counters.late; late != 0 {
		t.Errorf("%d copies counted as late", late)
	}
	add(2, 3)
	add(2, 3)
	if late := f.counters.late; late != 1 {
		t.Errorf("%d late descriptions, want 1", late)
	}
}
