package fakepath_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"holocast/internal/sessiontest/fakepath"
)

// receive returns the arrival times of 958-byte packets, which occupy 1000 bytes.
func receive(t *testing.T, e *fakepath.End, n int, began time.Time) (at []time.Duration) {
	t.Helper()
	for range n {
		if size, _, err := e.ReadFrom(make([]byte, 2000)); err != nil || size != 958 {
			t.Fatalf("%d bytes, %v", size, err)
		}
		at = append(at, time.Since(began))
	}
	return at
}

func TestBottleneck(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		rates := []float64{10_000, 2_000, 20_000}
		p := fakepath.New(fakepath.Direction{
			Rate: func(s int) float64 { return rates[min(s, 2)] }, Delay: 20 * time.Millisecond, Queue: 400 * time.Millisecond,
		}, fakepath.Direction{Delay: time.Millisecond})
		defer p.Close()
		send := func(n int) time.Time {
			for range n {
				if _, err := p.A.WriteTo(make([]byte, 958), p.B.LocalAddr()); err != nil {
					t.Fatal(err)
				}
			}
			return time.Now()
		}
		// The queue holds 4000 bytes, including the packet being sent.
		for i, at := range receive(t, p.B, 4, send(6)) {
			if want := time.Duration(100*(i+1)+20) * time.Millisecond; at != want {
				t.Errorf("packet %d arrives after %v, want %v", i, at, want)
			}
		}
		p.Begin()
		began := time.Now()
		time.Sleep(900 * time.Millisecond)
		// 1000 bytes leave before the rate falls, 2000 in the next second, and the rest at the last
		// rate.
		send(4)
		for i, at := range receive(t, p.B, 4, began) {
			if want := time.Duration([]int{1020, 1520, 2020, 2070}[i]) * time.Millisecond; at != want {
				t.Errorf("packet %d arrives after %v, want %v", i, at, want)
			}
		}
		if _, err := p.B.WriteTo(make([]byte, 958), nil); err != nil {
			t.Fatal(err)
		}
		if at := receive(t, p.A, 1, time.Now())[0]; at != time.Millisecond {
			t.Errorf("without a bottleneck a packet arrives after %v", at)
		}
	})
}

func TestSocket(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		p := fakepath.New(fakepath.Direction{}, fakepath.Direction{})
		began := time.Now()
		if err := p.A.SetReadDeadline(began.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.A.ReadFrom(nil); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.AfterFunc(time.Second, p.Close)
		if err := p.A.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.A.ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading from a closed end: %v", err)
		}
		if _, err := p.B.WriteTo(nil, nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("writing to a closed end: %v", err)
		}
	})
}
