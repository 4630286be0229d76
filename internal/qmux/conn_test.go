package qmux

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/qmux/qmuxtest"
)

// connect returns both ends of a connection, which ends with the test.
func connect(t *testing.T, rate float64, delay time.Duration, cfg Config) (client, server *Conn) {
	t.Helper()
	a, b := qmuxtest.New(rate, delay)
	client, server = Client(a, cfg), Server(b, cfg)
	t.Cleanup(func() {
		_ = client.CloseWithError(0, "")
		_ = server.CloseWithError(0, "")
		time.Sleep(2 * closeWait) // for the timers that abort the links
	})
	return client, server
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := connect(t, 0, 10*time.Millisecond, Config{})
		ctx := t.Context()
		data := make([]byte, 3<<20) // more than a stream's window
		for i := range data {
			data[i] = byte(i * i >> 8)
		}
		go func() {
			str := must(c.OpenUniStreamSync(ctx))(t)
			_, _ = str.Write(data)
			_ = str.Close()
		}()
		in := must(s.AcceptUniStream(ctx))(t)
		if got := must(io.ReadAll(in))(t); !bytes.Equal(got, data) {
			t.Fatalf("received %d bytes, want %d", len(got), len(data))
		}
		// A request and its answer.
		go func() {
			str := must(s.AcceptStream(ctx))(t)
			b, _ := io.ReadAll(str)
			_, _ = str.Write(append([]byte("re: "), b...))
			_ = str.Close()
		}()
		str := must(c.OpenStream(ctx))(t)
		_, _ = str.Write([]byte("question"))
		_ = str.Close()
		if got := must(io.ReadAll(str))(t); string(got) != "re: question" {
			t.Errorf("answer %q", got)
		}
		if err := c.SendDatagram([]byte("datagram")); err != nil {
			t.Fatal(err)
		}
		if got := must(s.ReceiveDatagram(ctx))(t); string(got) != "datagram" {
			t.Errorf("datagram %q", got)
		}
		var large *quic.DatagramTooLargeError
		if err := c.SendDatagram(make([]byte, MaxRecord)); !errors.As(err, &large) {
			t.Errorf("large datagram: %v", err)
		}
		time.Sleep(2 * pingEvery)
		if st := c.Stats(); st.RTT < 20*time.Millisecond || st.RTT > 25*time.Millisecond {
			t.Errorf("RTT %v, want 20 ms", st.RTT)
		}
	})
}

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := connect(t, 1e5, time.Millisecond, Config{})
		ctx := t.Context()
		str := must(c.OpenUniStreamSync(ctx))(t)
		_, _ = str.Write([]byte("header"))
		str.SetReliableBoundary()
		_ = str.SetWriteDeadline(time.Now().Add(time.Second))
		// 100 kB fit into the bottleneck in that time, of 1 MB.
		if n, err := str.Write(make([]byte, 1e6)); !errors.Is(err, os.ErrDeadlineExceeded) || n < 90_000 || n > 150_000 {
			t.Fatalf("wrote %d: %v", n, err)
		}
		str.CancelWrite(7)
		in := must(s.AcceptUniStream(ctx))(t)
		got, err := io.ReadAll(in)
		var reset *quic.StreamError
		if !errors.As(err, &reset) || reset.ErrorCode != 7 || !reset.Remote || string(got[:6]) != "header" {
			t.Errorf("received %d bytes, then %v", len(got), err)
		}
		if _, err := str.Write(nil); !errors.As(err, &reset) || reset.Remote {
			t.Errorf("write after reset: %v", err)
		}
		if !str.Delivered() {
			t.Error("the reset was not sent")
		}

		// A header that the socket has not taken survives the reset.
		blocker := must(c.OpenUniStreamSync(ctx))(t)
		blocker.SetPriority(0, 0)
		go func() { _, _ = blocker.Write(make([]byte, 50_000)) }()
		time.Sleep(time.Millisecond)
		str = must(c.OpenUniStreamSync(ctx))(t)
		_, _ = str.Write([]byte("header"))
		str.SetReliableBoundary()
		_, _ = str.Write([]byte("rest"))
		str.CancelWrite(8)
		first := must(s.AcceptUniStream(ctx))(t)
		go func() { _, _ = io.Copy(io.Discard, first) }()
		in = must(s.AcceptUniStream(ctx))(t)
		if got, err := io.ReadAll(in); !errors.As(err, &reset) || reset.ErrorCode != 8 || string(got) != "header" {
			t.Errorf("received %q, then %v", got, err)
		}

		// STOP_SENDING.
		str = must(c.OpenUniStreamSync(ctx))(t)
		_, _ = str.Write([]byte("unwanted"))
		in = must(s.AcceptUniStream(ctx))(t)
		in.CancelRead(9)
		<-str.Context().Done()
		if _, err := str.Write([]byte("more")); !errors.As(err, &reset) || reset.ErrorCode != 9 || !reset.Remote {
			t.Errorf("write after STOP_SENDING: %v", err)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := connect(t, 0, time.Millisecond, Config{})
		str := must(c.OpenStream(t.Context()))(t)
		_, _ = str.Write([]byte("x"))
		in := must(s.AcceptStream(t.Context()))(t)
		_ = s.CloseWithError(42, "enough")
		<-c.Context().Done()
		var app *quic.ApplicationError
		for _, err := range []error{
			context.Cause(c.Context()), func() error { _, err := str.Read(make([]byte, 1)); return err }(),
			func() error { _, err := str.Write([]byte("x")); return err }(),
			func() error { _, err := c.OpenUniStream(); return err }(),
			func() error { _, err := c.AcceptStream(t.Context()); return err }(), c.SendDatagram(nil),
		} {
			if !errors.As(err, &app) || app.ErrorCode != 42 || app.ErrorMessage != "enough" || !app.Remote {
				t.Errorf("closed with %v", err)
			}
		}
		if _, err := in.Write([]byte("x")); !errors.As(err, &app) || app.Remote {
			t.Errorf("local error %v", err)
		}
	})
}

func TestSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := qmuxtest.New(0, 0)
		c := Client(a, Config{Idle: 4 * time.Second})
		began := time.Now()
		<-c.Context().Done()
		var idle *quic.IdleTimeoutError
		if err := context.Cause(c.Context()); !errors.As(err, &idle) || time.Since(began) > 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		time.Sleep(2 * closeWait)
	})
}

// TestLimit opens more streams than the peer allows.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := connect(t, 0, time.Millisecond, Config{Streams: 8})
		first := must(c.OpenUniStreamSync(t.Context()))(t)
		open := []*SendStream{first}
		for range 7 {
			open = append(open, must(c.OpenUniStream())(t))
		}
		var limit *quic.StreamLimitReachedError
		if _, err := c.OpenUniStream(); !errors.As(err, &limit) {
			t.Fatalf("ninth stream: %v", err)
		}
		go func() {
			for _, str := range open {
				_ = str.Close()
			}
		}()
		for range open {
			_, _ = io.ReadAll(must(s.AcceptUniStream(t.Context()))(t))
		}
		for range 100 {
			str := must(c.OpenUniStreamSync(t.Context()))(t)
			_ = str.Close()
			_, _ = io.ReadAll(must(s.AcceptUniStream(t.Context()))(t))
		}
	})
}

// TestRandom sends random streams with small windows, resets some, and compares the data received.
func TestRandom(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { testRandom(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func testRandom(t *testing.T, rng *rand.Rand) {
	c, s := connect(t, 1e6*(1+rng.Float64()*10), 5*time.Millisecond, Config{
		Streams: 1 + rng.Uint64N(20), Window: 2000 + rng.Uint64N(1<<20), StreamWindow: 1000 + rng.Uint64N(1<<18),
	})
	type plan struct {
		size  int
		reset bool
		seed  byte
	}
	content := func(p plan) []byte {
		b := make([]byte, p.size)
		for i := range b {
			b[i] = byte(i>>8) ^ byte(i) ^ p.seed
		}
		b[0] = p.seed
		return b
	}
	plans := make([]plan, 1+rng.IntN(100))
	for i := range plans {
		plans[i] = plan{1 + rng.IntN(1<<(1+rng.IntN(17))), rng.IntN(4) == 0, byte(i)}
	}
	var wg sync.WaitGroup
	for i, p := range plans {
		urgency, order := int8(rng.IntN(3)), rng.Uint64N(5)
		chunk := 1 + rng.IntN(5000)
		wg.Go(func() {
			str := must(c.OpenUniStreamSync(t.Context()))(t)
			str.SetPriority(urgency, order)
			b := content(plans[i])
			if p.reset {
				b = b[:1+len(b)/2]
			}
			for len(b) > 0 {
				n := min(chunk, len(b))
				if _, err := str.Write(b[:n]); err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
				str.SetReliableBoundary()
				b = b[n:]
			}
			if p.reset {
				str.CancelWrite(quic.StreamErrorCode(i))
				return
			}
			_ = str.Close()
		})
	}
	for range plans {
		in := must(s.AcceptUniStream(t.Context()))(t)
		wg.Go(func() {
			got, err := io.ReadAll(in)
			if len(got) == 0 {
				t.Errorf("nothing, then %v", err)
				return
			}
			p := plans[got[0]]
			want := content(p)
			var reset *quic.StreamError
			if p.reset {
				want = want[:1+len(want)/2]
				if !errors.As(err, &reset) || reset.ErrorCode != quic.StreamErrorCode(got[0]) {
					t.Errorf("stream %d ended with %v", got[0], err)
				}
			} else if err != nil {
				t.Errorf("stream %d: %v", got[0], err)
			}
			if sha256.Sum256(got) != sha256.Sum256(want) {
				t.Errorf("stream %d: %d bytes, want %d", got[0], len(got), len(want))
			}
		})
	}
	wg.Wait()
}
