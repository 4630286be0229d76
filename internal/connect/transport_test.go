package connect

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"holocast/internal/moqt"
)

// TestRace checks, in fake time, which transport wins and when.
func TestRace(t *testing.T) {
	refused, silent := errors.New("refused"), moqt.UnansweredError("no answer")
	quic, tcp := new(moqt.Session), new(moqt.Session)
	type try struct {
		after time.Duration
		s     *moqt.Session
		err   error
	}
	const ms, hour = time.Millisecond, time.Hour
	for name, c := range map[string]struct {
		quic, tcp try
		delay     time.Duration
		want      try
		overTCP   bool
	}{
		"fast QUIC":          {try{100 * ms, quic, nil}, try{50 * ms, nil, nil}, tcpDelay, try{100 * ms, quic, nil}, false},
		"slow QUIC":          {try{900 * ms, quic, nil}, try{hour, nil, nil}, tcpDelay, try{900 * ms, quic, nil}, false},
		"blocked UDP":        {try{hour, nil, silent}, try{50 * ms, tcp, nil}, tcpDelay, try{1050 * ms, tcp, nil}, true},
		"blocked UDP, known": {try{hour, nil, silent}, try{50 * ms, tcp, nil}, 0, try{50 * ms, tcp, nil}, true},
		"UDP fails at once":  {try{10 * ms, nil, silent}, try{50 * ms, tcp, nil}, tcpDelay, try{60 * ms, tcp, nil}, true},
		"refused over QUIC": {
			try{100 * ms, nil, refused}, try{50 * ms, tcp, nil}, tcpDelay, try{100 * ms, nil, refused}, false,
		},
		"no relay": {
			try{10_000 * ms, nil, silent}, try{50 * ms, nil, silent}, tcpDelay, try{10_000 * ms, nil, silent}, false,
		},
		"UDP lost, TCP refused": {
			try{10_000 * ms, nil, silent}, try{50 * ms, nil, refused}, tcpDelay, try{10_000 * ms, nil, refused}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dialer := func(x try) dial {
					return func(ctx context.Context) (*moqt.Session, error) {
						select {
						case <-time.After(x.after):
							return x.s, x.err
						case <-ctx.Done():
							return nil, ctx.Err()
						}
					}
				}
				began := time.Now()
				s, overTCP, err := race(t.Context(), c.delay, dialer(c.quic), dialer(c.tcp))
				if s != c.want.s || overTCP != c.overTCP || !errors.Is(err, c.want.err) || time.Since(began) != c.want.after {
					t.Errorf("%p over TCP %v after %v: %v", s, overTCP, time.Since(began), err)
				}
			})
		})
	}
}

func TestHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := tcpHosts{until: map[string]time.Time{}}
		h.set("a", true)
		if !h.has("a") || h.has("b") {
			t.Error("a is not remembered, or b is")
		}
		time.Sleep(rememberFor)
		if h.has("a") {
			t.Error("a is still remembered")
		}
		h.set("a", true)
		h.set("a", false)
		if h.has("a") {
			t.Error("a is remembered after QUIC")
		}
	})
}
