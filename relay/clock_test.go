//go:build linux

package main

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sys/unix"

	"holocast/internal/clock"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/relay/auth"
	"holocast/tools/kernels/report"
)

// stepClock steps the machine's wall clock by d.
func stepClock(t *testing.T, d time.Duration) {
	t.Helper()
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_REALTIME, &now)
	if err == nil {
		now = unix.NsecToTimespec(now.Nano() + d.Nanoseconds())
		err = unix.ClockSettime(unix.CLOCK_REALTIME, &now)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// followClock estimates the relay's clock from the clock track.
func followClock(t *testing.T, s *moqt.Session) *clock.Estimator {
	t.Helper()
	e := &clock.Estimator{}
	go func() { _ = connect.FollowClock(t.Context(), s, e, nil) }()
	eventually(t, "the relay's clock", func() bool { return e.Estimate(time.Now()).Samples > 0 })
	return e
}

// TestWallClockStep steps the wall clock of relay, publisher and viewers five minutes ahead and
// back. Sessions whose tokens remain valid, including one opened between the steps, lose no frame,
// and frame delays do not change. A session whose token has expired at the new time ends.
func TestWallClockStep(t *testing.T) {
	if os.Getenv(report.ClockVariable) == "" {
		t.Skip("this test sets the machine's clock, and runs in the virtual machines of make test-kernels alone")
	}
	const (
		step      = 300 * time.Second
		tolerance = 10 * time.Second // for slow operations on an emulated processor
	)
	x := newIssuer(t, "EdDSA")
	p := start(t, "--auth-keys", x.file)
	token := func(life time.Duration) string {
		return x.mint(auth.Claims{
			Claims:  jwt.Claims{Expiry: jwt.NewNumericDate(time.Now().Add(life))},
			Publish: auth.Prefixes{points.Namespace}, Subscribe: auth.Prefixes{points.Namespace},
		})
	}
	tr := origin.NewTrack(points, nil, origin.Limits{})
	publisher := publishing(t, p, token(2*step), tr)
	relayTime := followClock(t, publisher)
	stop := writeFramesOf(t, tr, func() []byte {
		return append(clock.Stamp{Time: relayTime.Now()}.Append(nil), make([]byte, 2000)...)
	})

	type viewer struct {
		*frameLog
		clock *clock.Estimator
		worst atomic.Int64 // frame delay by the relay's clock; negative if early
	}
	view := func(raw string) *viewer {
		t.Helper()
		s := p.with(moqt.Handler{}, raw)
		v := &viewer{clock: followClock(t, s)}
		v.frameLog = logFramesAs(t, s, func(f frame) {
			made, err := clock.ParseStamp(f.payload)
			if err != nil {
				t.Error(err)
			}
			v.worst.Store(max(v.worst.Load(), int64(v.clock.Now().Sub(made.Time).Abs())))
		})
		return v
	}
	// goOn makes the relay reread its keys and waits until each viewer has received more frames.
	goOn := func(all ...*viewer) {
		t.Helper()
		n := strings.Count(p.output(), "configuration reloaded")
		p.Signal(syscall.SIGHUP)
		eventually(t, "the keys are read again",
			func() bool { return strings.Count(p.output(), "configuration reloaded") > n })
		for _, v := range all {
			flows(t, v.frameLog)
		}
	}
	refused := func(raw string) string {
		t.Helper()
		s, err := p.attempt(moqt.Handler{}, raw)
		if err == nil {
			_, err = s.Subscribe(within(t), points, moqt.SubscribeOptions{})
		}
		return refusal(err, s)
	}
	// expectAhead checks the difference between the wall clock and the relay's clock.
	expectAhead := func(want time.Duration, v *viewer) {
		t.Helper()
		if got := time.Until(v.clock.Now()); (got + want).Abs() > tolerance {
			t.Errorf("the wall clock is %v ahead of the relay's, want %v", -got, want)
		}
	}

	before, short := view(token(2*step)), token(step*2/3)
	ending := view(short)
	goOn(before, ending)

	stepClock(t, step)
	began := time.Now()
	<-ending.s.Context().Done()
	if took := time.Since(began); took > tolerance {
		t.Errorf("the session of a token that the clock ends lived on for %v", took)
	}
	var closed *moqt.SessionError
	if !errors.As(ending.s.Err(), &closed) || closed.Code != wire.ExpiredAuthToken {
		t.Errorf("the session of a token that the clock ends: %v", ending.s.Err())
	}
	if got := refused(short); got != "session: EXPIRED_AUTH_TOKEN" {
		t.Errorf("a token that is expired by the clock set ahead: %q", got)
	}
	young := token(2 * step)
	ahead := view(young)
	goOn(before, ahead)
	expectAhead(step, before)
	expectAhead(step, ahead)

	stepClock(t, -step)
	goOn(before, ahead)
	if got := refused(young); got != "session: UNAUTHORIZED" {
		t.Errorf("a token that is not valid yet by the clock set back: %q", got)
	}
	after := view(short) // valid again by the clock
	goOn(before, ahead, after)
	expectAhead(0, before)

	last := stop()
	if err := publisher.Err(); err != nil {
		t.Errorf("the publisher: %v", err)
	}
	for name, v := range map[string]*viewer{"before": before, "ahead": ahead, "after": after} {
		if err := v.s.Err(); err != nil {
			t.Errorf("viewer %s: %v", name, err)
		}
		if lost := v.lost(t, last); lost > 0 {
			t.Errorf("viewer %s lost %d frames", name, lost)
		}
		worst := time.Duration(v.worst.Load())
		t.Logf("viewer %s: frames were late by %v at most", name, worst)
		if worst > tolerance {
			t.Errorf("viewer %s: delay of an immediate frame is off by %v", name, worst)
		}
	}
	if lost := ending.lost(t, 0); lost > 2 { // the relay may close the session between frames
		t.Errorf("the viewer whose token ended lost %d frames before", lost)
	}
}
