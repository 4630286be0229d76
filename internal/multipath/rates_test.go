package multipath_test

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/sessiontest/fakepath"
)

// windows sends n bytes from the server at each interval, on a new stream, and returns the sorted in-order delivery
// times after the warm-up.
func windows(t *testing.T, n int, every, warmup, duration time.Duration, links ...link) (took []time.Duration) {
	t.Helper()
	fakepath.Test(t, func(t *testing.T) {
		l := newLab(t, []string{protocol}, links...)
		client, server := l.connect()
		joined(t, client, len(links))
		count := int((warmup + duration) / every)
		sent, arrived := make([]time.Time, count), make([]time.Time, count)
		var group sync.WaitGroup
		for i := range count {
			s, err := server.OpenUniStreamSync(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.SetPriority(3, uint64(i))
			sent[i] = time.Now()
			group.Go(func() {
				if _, err := s.Write(make([]byte, n)); err != nil {
					t.Error(err)
				}
				_ = s.Close()
			})
			group.Go(func() {
				s, err := client.AcceptUniStream(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, s); err != nil {
					t.Error(err)
				}
				arrived[s.StreamID()>>2] = time.Now()
			})
			time.Sleep(every) // of the bubble
		}
		group.Wait()
		var last time.Time
		for i, at := range arrived {
			if at.After(last) {
				last = at
			}
			if time.Duration(i)*every >= warmup {
				took = append(took, last.Sub(sent[i]))
			}
		}
	})
	slices.Sort(took)
	return took
}

// TestWindows checks that windows take at most one segment longer over two paths than over the better one alone. The
// traffic does not fill the better path, so BBR does not know its rate.
func TestWindows(t *testing.T) {
	for name, links := range map[string][]link{
		"RTTs":  {{rate: 7.5e6, delay: 10 * time.Millisecond}, {rate: 7.5e6, delay: 50 * time.Millisecond}},
		"rates": {{rate: 15e6, delay: 10 * time.Millisecond}, {rate: 3e6, delay: 10 * time.Millisecond}},
	} {
		of := func(links ...link) time.Duration {
			took := windows(t, 250_000, 50*time.Millisecond, 2*time.Second, 2*time.Second, links...)
			return took[len(took)*95/100]
		}
		alone, both := of(links[0]), of(links...)
		t.Logf("%s: %v, over the better path alone %v", name, both, alone)
		if both > alone+4*time.Millisecond {
			t.Errorf("%s: the 95th percentile of windows is %v, over the better path alone %v", name, both, alone)
		}
	}
}

// TestBulk checks that two paths of different delay together carry nearly the sum of their rates.
func TestBulk(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		const window, warmup, duration, sum = 256 << 10, 8 * time.Second, 4 * time.Second, 2.5e6
		l := newLab(t, []string{protocol},
			link{rate: 0.65e6, delay: 10 * time.Millisecond}, link{rate: 1.85e6, delay: 255 * time.Millisecond})
		client, server := l.connect()
		joined(t, client, 2)
		var read atomic.Int64
		var group sync.WaitGroup
		for range 16 {
			group.Go(func() {
				for data := make([]byte, window); ; {
					s, err := server.OpenUniStreamSync(t.Context())
					if err != nil {
						return
					}
					s.SetPriority(3, uint64(s.StreamID()))
					if _, err := s.Write(data); err != nil {
						return
					}
					_ = s.Close()
				}
			})
		}
		group.Go(func() {
			for {
				s, err := client.AcceptUniStream(t.Context())
				if err != nil {
					return
				}
				group.Go(func() {
					for b := make([]byte, 64<<10); ; {
						n, err := s.Read(b)
						read.Add(int64(n))
						if err != nil {
							return
						}
					}
				})
			}
		})
		time.Sleep(warmup)
		before := read.Load()
		time.Sleep(duration)
		rate := float64(read.Load()-before) / duration.Seconds()
		t.Logf("%.3f of the sum", rate/sum)
		if rate < 0.85*sum { // headers take 6 %
			t.Errorf("%.2f MB/s arrive, the paths carry %.2f together", rate*1e-6, sum*1e-6)
		}
		_ = client.CloseWithError(0, "")
		_ = server.CloseWithError(0, "")
		group.Wait()
	})
}
