package multipath_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"

	"holocast/internal/multipath"
	"holocast/internal/sessiontest/fakepath"
)

// numbers encodes variable-length integers.
func numbers(list ...uint64) (b []byte) {
	for _, n := range list {
		b = quicvarint.Append(b, n)
	}
	return b
}

// TestHostilePeers sends what no honest client sends. The bundle must end with an error that names
// the violation.
func TestHostilePeers(t *testing.T) {
	const control = 1<<62 - 1
	datagram := func(kind byte, list ...uint64) func(*quic.Conn) error {
		return func(qc *quic.Conn) error { return qc.SendDatagram(append([]byte{kind}, numbers(list...)...)) }
	}
	segments := func(all ...[]byte) func(*quic.Conn) error {
		return func(qc *quic.Conn) error {
			for _, b := range all {
				s, err := qc.OpenUniStream()
				if err == nil {
					_, err = s.Write(b)
				}
				if err != nil {
					return err
				}
				_ = s.Close()
			}
			return nil
		}
	}
	// A segment consists of number, distance, stream, offset, flags and bytes.
	for name, c := range map[string]struct {
		attack func(*quic.Conn) error
		want   string
	}{
		"acknowledgement of a segment never sent": {datagram(0xfe, 1000, 0), "segment 1000, which was never sent"},
		"acknowledgement below zero":              {datagram(0xfe, 5, 6), "malformed acknowledgement"},
		"PING without number":                     {datagram(0xff), "malformed PING"},
		"segment cut in its header":               {segments(numbers(0, 0)), "malformed segment"},
		"distance above number":                   {segments(numbers(1, 2, 2, 0, 0)), "malformed segment"},
		"unknown flags":                           {segments(numbers(0, 0, 2, 0, 2)), "malformed segment"},
		"stream of the server, not opened":        {segments(append(numbers(0, 0, 1, 0, 0), 'x')), "stream 1 was not opened"},
		"too many streams":                        {segments(numbers(0, 0, 2+4<<20, 0, 1)), "too many streams"},
		"beyond the limit of a stream":            {segments(append(numbers(0, 0, 2, 1<<30, 0), 'x')), "exceeds its limit"},
		"two sizes": {
			segments(append(numbers(0, 0, 2, 0, 1), 'x'), append(numbers(1, 0, 2, 0, 1), "xy"...)), "size",
		},
		"bytes behind the end": {
			segments(append(numbers(0, 0, 2, 0, 1), 'x'), append(numbers(1, 0, 2, 1, 0), 'y')), "stream 2",
		},
		"end of the control stream": {segments(numbers(0, 0, control, 0, 1)), "control stream ended"},
		"unknown control message":   {segments(append(numbers(0, 0, control, 0, 0), 9)), "type 9"},
		"reset beyond its limit": {
			segments(append(numbers(0, 0, control, 0, 0), numbers(0, 2, 0, 1<<40, 0)...)), "exceeds its limit",
		},
		"reset with a reliable size above its own": {
			segments(append(numbers(0, 0, control, 0, 0), numbers(0, 2, 0, 1, 2)...)), "reset of stream 2",
		},
		"limit of unknown kind": {
			segments(append(numbers(0, 0, control, 0, 0), numbers(4, 2, 100)...)), "kind 2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fakepath.Test(t, func(t *testing.T) {
				l := newLab(t, []string{protocol}, link{})
				qc, err := l.paths[0].Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				str, err := qc.OpenStream()
				if err != nil {
					t.Fatal(err)
				}
				hello := numbers(1, 0, 0, 1<<20, 1<<20, 100) // version, token, name, limits
				if _, err := str.Write(append(numbers(uint64(len(hello))), hello...)); err != nil {
					t.Fatal(err)
				}
				server := <-l.bundles
				if err := c.attack(qc); err != nil {
					t.Fatal(err)
				}
				<-server.Context().Done()
				if err := context.Cause(server.Context()); !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				<-qc.Context().Done()
				var closed *quic.ApplicationError
				if err := context.Cause(qc.Context()); !errors.As(err, &closed) || closed.ErrorCode != 0x686d7006 {
					t.Errorf("closed with %v", err)
				}
			})
		})
	}
}

// TestSlowedPath slows one path down to a byte per second during a session. The other path must carry the
// data.
func TestSlowedPath(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		slow := new(atomic.Bool)
		l := newLab(t, []string{protocol}, link{rate: 4e6, delay: 10 * time.Millisecond},
			link{rate: 4e6, delay: 10 * time.Millisecond, slow: slow})
		client, server := l.connect()
		joined(t, client, 2)
		transfer(t, server, client, 10, 300<<10)
		slow.Store(true)
		began := time.Now() // of the bubble
		transfer(t, server, client, 20, 300<<10)
		transfer(t, client, server, 5, 300<<10)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%v for at most 7.5 MB over a path of 4 MB/s", took)
		}
	})
}

// TestShuffledPaths transfers data over paths that reorder every other packet and duplicate every
// packet.
func TestShuffledPaths(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		k := link{rate: 4e6, delay: 10 * time.Millisecond, reorder: 2, duplicate: 1}
		l := newLab(t, []string{protocol}, k, k)
		client, server := l.connect()
		joined(t, client, 2)
		transfer(t, server, client, 20, 300<<10)
		transfer(t, client, server, 5, 100<<10)
	})
}

// stream opens a unidirectional stream from the server, sends header and returns both sides.
func stream(
	t *testing.T, client, server *multipath.Conn, header string,
) (*multipath.SendStream, *multipath.ReceiveStream) {
	t.Helper()
	s, err := server.OpenUniStreamSync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte(header)); err != nil {
		t.Fatal(err)
	}
	r, err := client.AcceptUniStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

// TestResetDuringCut resets one stream and stops reading another while one of two paths is cut.
func TestResetDuringCut(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		l := newLab(t, []string{protocol},
			link{rate: 1e6, delay: 10 * time.Millisecond}, link{rate: 1e6, delay: 20 * time.Millisecond})
		client, server := l.connect()
		joined(t, client, 2)
		for i := range l.cuts {
			reset, resetReader := stream(t, client, server, "header")
			reset.SetReliableBoundary()
			stopped, stoppedReader := stream(t, client, server, "header")
			written := make(chan error, 2)
			for _, s := range []*multipath.SendStream{reset, stopped} {
				go func() {
					_, err := io.Copy(struct{ io.Writer }{s}, &pattern{size: 20 << 20})
					written <- err
				}()
			}
			time.Sleep(100 * time.Millisecond) // of the bubble
			l.cuts[i].Store(true)
			reset.CancelWrite(7)
			stoppedReader.CancelRead(8)
			b, err := io.ReadAll(resetReader)
			var e *quic.StreamError
			if !errors.As(err, &e) || e.ErrorCode != 7 || !e.Remote || !strings.HasPrefix(string(b), "header") {
				t.Errorf("read %d bytes, %v", len(b), err)
			}
			codes := map[quic.StreamErrorCode]bool{}
			for range 2 {
				if err := <-written; errors.As(err, &e) {
					codes[e.ErrorCode] = e.Remote
				}
			}
			if len(codes) != 2 || codes[7] || !codes[8] {
				t.Errorf("errors of writers: %v", codes)
			}
			l.cuts[i].Store(false)
			joined(t, server, 2)
		}
	})
}

// TestWriteDeadline cuts all paths. Write must end at its deadline, and the reset of the stream must arrive
// once the paths are back.
func TestWriteDeadline(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		l := newLab(t, []string{protocol}, link{rate: 1e6}, link{rate: 1e6, delay: 20 * time.Millisecond})
		client, server := l.connect()
		joined(t, client, 2)
		s, r := stream(t, client, server, "header")
		for _, cut := range l.cuts {
			cut.Store(true)
		}
		_ = s.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := io.Copy(struct{ io.Writer }{s}, &pattern{size: 20 << 20}); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("write:", err)
		}
		s.CancelWrite(7)
		for _, cut := range l.cuts {
			cut.Store(false)
		}
		_, err := io.ReadAll(r)
		var e *quic.StreamError
		if !errors.As(err, &e) || e.ErrorCode != 7 {
			t.Error("read:", err)
		}
	})
}

// TestPriorities writes an urgent stream while a bulk stream fills all paths. The urgent stream must
// overtake it.
func TestPriorities(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		l := newLab(t, []string{protocol},
			link{rate: 5e5, delay: 10 * time.Millisecond}, link{rate: 5e5, delay: 40 * time.Millisecond})
		client, server := l.connect()
		joined(t, client, 2)
		const size = 4 << 20
		bulk, bulkReader := stream(t, client, server, "b")
		bulk.SetPriority(7, 0)
		urgent, urgentReader := stream(t, client, server, "u")
		urgent.SetPriority(0, 0)
		read := new(atomic.Int64) // bytes of bulk
		done := make(chan error, 2)
		go func() {
			_, err := io.Copy(struct{ io.Writer }{bulk}, &pattern{size: size})
			done <- errors.Join(err, bulk.Close())
		}()
		go func() {
			b := make([]byte, 32<<10)
			for {
				n, err := bulkReader.Read(b)
				read.Add(int64(n))
				if err != nil {
					done <- err
					return
				}
			}
		}()
		time.Sleep(time.Second) // of the bubble
		go func() {
			_, _ = io.Copy(struct{ io.Writer }{urgent}, &pattern{size: 100 << 10})
			_ = urgent.Close()
		}()
		before := read.Load()
		if b, err := io.ReadAll(urgentReader); err != nil || len(b) != 1+100<<10 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		if more := read.Load() - before; more > size/4 {
			t.Errorf("%d bytes of bulk arrived before the urgent stream", more)
		}
		for range 2 {
			if err := <-done; err != nil && err != io.EOF {
				t.Error(err)
			}
		}
	})
}

// TestLastBytesWithoutCredit uses up the peer's credit and writes a few more bytes. Close and CancelWrite must not
// wait for credit.
func TestLastBytesWithoutCredit(t *testing.T) {
	const window, more = 2 << 20, 1000
	for name, c := range map[string]struct {
		end  func(*multipath.SendStream)
		size int // that arrives at least
		err  error
	}{
		"close": {func(s *multipath.SendStream) { _ = s.Close() }, window + more, nil},
		"reset": {func(s *multipath.SendStream) { s.CancelWrite(7) }, 0, &quic.StreamError{}},
		"reset after a reliable boundary": {
			func(s *multipath.SendStream) { s.SetReliableBoundary(); s.CancelWrite(7) }, window + more, &quic.StreamError{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fakepath.Test(t, func(t *testing.T) {
				k := link{rate: 4e6, delay: 10 * time.Millisecond}
				l := newLab(t, []string{protocol}, k, k)
				client, server := l.connect()
				content := &pattern{size: window + more}
				all, _ := io.ReadAll(content)
				s, r := stream(t, client, server, string(all[:window]))
				_ = s.SetWriteDeadline(time.Now().Add(time.Second))
				if n, err := s.Write(all[window:]); n != more || err != nil {
					t.Fatalf("wrote %d bytes, %v", n, err)
				}
				if _, err := s.Write(make([]byte, 4*more)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal("a large write without credit:", err)
				}
				c.end(s)
				b, err := io.ReadAll(r)
				if len(b) < c.size || string(b) != string(all[:len(b)]) {
					t.Errorf("%d bytes", len(b))
				}
				if c.err == nil && err != nil || c.err != nil && !errors.As(err, new(*quic.StreamError)) {
					t.Error("read:", err)
				}
			})
		})
	}
}
