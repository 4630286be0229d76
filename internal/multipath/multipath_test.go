package multipath_test

import (
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/multipath"
	"holocast/internal/sessiontest/fakepath"
)

// transfer sends n streams of up to most bytes from one end to the other and checks their contents.
func transfer(t *testing.T, from, to *multipath.Conn, n, most int) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		s, err := from.OpenUniStreamSync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		size := rand.IntN(most)
		s.SetPriority(int8(rand.IntN(8)), uint64(size))
		wg.Go(func() {
			head := []byte{byte(size), byte(size >> 8), byte(size >> 16), byte(size >> 24)}
			if _, err := s.Write(head); err != nil {
				t.Error("write:", err)
			}
			content := &pattern{seed: size, size: size}
			if _, err := io.CopyBuffer(struct{ io.Writer }{s}, content, make([]byte, 100<<10)); err != nil {
				t.Error("write:", err)
			}
			if err := s.Close(); err != nil {
				t.Error("close:", err)
			}
		})
		r, err := to.AcceptUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			head := make([]byte, 4)
			if _, err := io.ReadFull(r, head); err != nil {
				t.Error("read:", err)
				return
			}
			size := int(head[0]) | int(head[1])<<8 | int(head[2])<<16 | int(head[3])<<24
			if err := (&pattern{seed: size, size: size}).check(r); err != nil {
				t.Error("read:", err)
			}
		})
	}
	wg.Wait()
}

// TestTransfer sends streams in both directions over all kinds of paths.
func TestTransfer(t *testing.T) {
	for name, links := range map[string][]link{
		"one path":         {{rate: 4e6, delay: 10 * time.Millisecond}},
		"two equal paths":  {{rate: 4e6, delay: 10 * time.Millisecond}, {rate: 4e6, delay: 10 * time.Millisecond}},
		"different rates":  {{rate: 8e6, delay: 10 * time.Millisecond}, {rate: 1e6, delay: 10 * time.Millisecond}},
		"different delays": {{rate: 4e6, delay: 5 * time.Millisecond}, {rate: 4e6, delay: 250 * time.Millisecond}},
		"three paths": {
			{rate: 4e6, delay: 5 * time.Millisecond}, {rate: 2e6, delay: 50 * time.Millisecond}, {rate: 1e6},
		},
		"reorder, duplicate": {{rate: 4e6, delay: 10 * time.Millisecond, reorder: 5}, {rate: 4e6, duplicate: 3}},
		"1 byte a second":    {{rate: 4e6, delay: 10 * time.Millisecond}, {rate: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			fakepath.Test(t, func(t *testing.T) {
				l := newLab(t, []string{protocol}, links...)
				client, server := l.connect()
				if name != "1 byte a second" {
					joined(t, client, len(links))
				}
				var wg sync.WaitGroup
				wg.Go(func() { transfer(t, server, client, 20, 300<<10) })
				wg.Go(func() { transfer(t, client, server, 5, 100<<10) })
				wg.Wait()
				for _, p := range server.Paths() {
					t.Logf("%+v", p)
				}
			})
		})
	}
}

// TestCuts cuts the paths in turn while data flows. No data is lost, and both paths recover after each cut.
func TestCuts(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		l := newLab(t, []string{protocol},
			link{rate: 3e5, delay: 10 * time.Millisecond}, link{rate: 3e5, delay: 20 * time.Millisecond})
		client, server := l.connect()
		joined(t, client, 2)
		var over atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for !over.Load() {
				transfer(t, server, client, 10, 50<<10)
			}
		}()
		for i := range 10 {
			cut := l.cuts[i%2]
			cut.Store(true)
			time.Sleep(time.Duration(500+rand.IntN(6500)) * time.Millisecond)
			cut.Store(false)
			time.Sleep(time.Second)
			if n := up(server); n < 2 {
				t.Errorf("cut %d: %d paths are up a second after its end: %+v", i, n, server.Paths())
			}
		}
		over.Store(true)
		<-done
	})
}

// TestPaths cuts a path until its connection is closed. The path stays in the statistics, and its counters continue.
func TestPaths(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		l := newLab(t, []string{protocol},
			link{rate: 3e5, delay: 10 * time.Millisecond}, link{rate: 3e5, delay: 20 * time.Millisecond})
		client, server := l.connect()
		joined(t, client, 2)
		transfer(t, server, client, 10, 100<<10)
		before := server.Paths()
		l.cuts[1].Store(true)
		transfer(t, server, client, 10, 100<<10)
		time.Sleep(2 * time.Second) // the client closes the connection
		for _, c := range []*multipath.Conn{client, server} {
			list := c.Paths()
			if len(list) != 2 || list[0].Name != "p0" || list[0].Down || list[1].Name != "p1" || !list[1].Down {
				t.Fatalf("%+v", list)
			}
			if sum := list[0].Share + list[1].Share; sum < 0.999 || sum > 1.001 {
				t.Errorf("shares %g and %g", list[0].Share, list[1].Share)
			}
		}
		l.cuts[1].Store(false)
		joined(t, server, 2)
		for i, p := range server.Paths() {
			if p.Since.Equal(before[i].Since) != (i == 0) || p.Sent < before[i].Sent || p.Received < before[i].Received {
				t.Errorf("%+v, before the cut %+v", p, before[i])
			}
		}
		for _, p := range client.Paths() {
			if p.Repeated > p.Received {
				t.Errorf("%+v", p)
			}
			t.Logf("%+v", p)
		}
	})
}
