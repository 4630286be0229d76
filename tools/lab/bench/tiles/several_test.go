package tiles

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/devcert"
	"holocast/internal/gazetrace"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
	"holocast/internal/sessiontest/fakepath"
	"holocast/tools/holocast/player/sphere"
	"holocast/tools/holocast/player/sphere/spheretest"
	"holocast/tools/lab/bench/internal/direct"
)

// joined combines the ends of several paths into one socket. A peer has the same address on all
// paths, so its port is offset by the index of the path to tell them apart.
type joined struct {
	net.PacketConn // the first end
	ends           []net.PacketConn
	packets        chan packet
	closed         chan struct{}
	stop           func()
}

type packet struct {
	data []byte
	from *net.UDPAddr
}

func join(ends []net.PacketConn) *joined {
	c := &joined{PacketConn: ends[0], ends: ends, packets: make(chan packet, 4096), closed: make(chan struct{})}
	c.stop = sync.OnceFunc(func() { close(c.closed) })
	for i, end := range ends {
		go func() {
			for {
				b := make([]byte, 2000)
				n, from, err := end.ReadFrom(b)
				if err != nil {
					return
				}
				addr := *from.(*net.UDPAddr)
				addr.Port += i
				select {
				case c.packets <- packet{b[:n], &addr}:
				case <-c.closed:
					return
				}
			}
		}()
	}
	return c
}

func (c *joined) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case p := <-c.packets:
		return copy(b, p.data), p.from, nil
	case <-c.closed:
		return 0, nil, net.ErrClosed
	}
}

func (c *joined) WriteTo(b []byte, to net.Addr) (int, error) {
	addr := *to.(*net.UDPAddr)
	i := addr.Port - c.LocalAddr().(*net.UDPAddr).Port // both ends have the same port
	addr.Port -= i
	return c.ends[i].WriteTo(b, &addr)
}

// SetReadDeadline ends reading. quic-go only calls it to stop.
func (c *joined) SetReadDeadline(time.Time) error {
	c.stop()
	return nil
}

// TestSeveralPathsInFakeTime checks that two paths of changing rates together give a better image
// than the mean of each alone.
func TestSeveralPathsInFakeTime(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("needs quic-go as patched by tools/quicpatch (make build)")
	}
	c := synthetic()
	streams(c)
	h := head()
	tr := newTrace("test", h, gazetrace.Crowd([]gazetrace.Trace{h, h}, 10), c.grid, 1)
	r := rand.New(rand.NewPCG(1, 2))
	rates := make([][]float64, 2) // of each second, bytes/s
	for i := range rates {
		for range 60 {
			rates[i] = append(rates[i], 20e3+260e3*r.Float64()*r.Float64())
		}
	}
	psnr := func(over ...int) float64 {
		report := overPaths(t, c.film(), tr, 90, func() (list []*fakepath.Path) {
			for _, i := range over {
				d := fakepath.Direction{
					Rate:  func(second int) float64 { return rates[i][second%len(rates[i])] },
					Delay: time.Duration(10+5*i) * time.Millisecond, Queue: sessionQueue,
				}
				list = append(list, fakepath.New(d, fakepath.Direction{Delay: d.Delay}))
			}
			return list
		})
		t.Logf("over %v: %v", over, report)
		return report.PSNRMean
	}
	alone, both := (psnr(0)+psnr(1))/2, psnr(0, 1)
	if both <= alone { // the gain varies with the order of goroutines: 0.2 to 2 dB
		t.Errorf("%.1f dB over both paths, want more than the mean of each alone, %.1f dB", both, alone)
	}
}

// overPaths watches a film over several paths.
func overPaths(t *testing.T, film spheretest.Film, tr trace, gops int, open func() []*fakepath.Path) (
	report sphere.Report,
) {
	t.Helper()
	fakepath.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		ns := moqt.Namespace{"holocast", "bench"}
		publisher, err := spheretest.New(ns, film)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = publisher.Run(ctx) })
		time.Sleep(2200 * time.Millisecond) // GoP rates are known after the GoPs end
		cert, err := devcert.Generate(time.Now(), "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		paths := open()
		var ends []net.PacketConn
		cfg := moqt.Config{Log: direct.Quiet.Log}
		for i, p := range paths {
			t.Cleanup(p.Close)
			ends = append(ends, p.A)
			cfg.Paths = append(cfg.Paths, moqt.Path{Name: strconv.Itoa(i), Packets: p.B})
		}
		ln, err := moqt.Listen("", moqt.ListenConfig{
			Config: moqt.Config{Log: direct.Quiet.Log, Packets: join(ends)},
			TLS:    &tls.Config{Certificates: []tls.Certificate{cert}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		running.Go(func() {
			for {
				s, err := ln.Accept(ctx)
				if err != nil {
					return
				}
				s.Serve(publisher.Set.Handler())
			}
		})
		url := "moqt://" + paths[0].A.LocalAddr().String() + "/test"
		s, err := moqt.Dial(ctx, url, devcert.Pinned(devcert.Hash(cert)), moqt.Handler{}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(wire.NoError, "")
		cat, err := readCatalog(ctx, s, ns)
		if err != nil {
			t.Fatal(err)
		}
		v, err := sphere.New(sphere.Config{
			Head: tr.head.At, Crowd: tr.crowd, Viewport: fieldOfView, Scheme: Ours, Log: direct.Quiet.Log,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		v.Configure(cat, func(track catalog.Track) moqt.TrackName {
			return moqt.TrackName{Namespace: ns, Name: track.Name}
		})
		for _, p := range paths {
			p.Begin()
		}
		running.Go(func() { _ = v.Play(ctx, s) })
		for end := time.Now().Add(time.Duration(gops+20) * time.Second); v.Report().GOPs < gops; {
			time.Sleep(50 * time.Millisecond) // of the bubble
			if time.Now().After(end) {
				break
			}
		}
		report = v.Report()
	})
	return report
}
