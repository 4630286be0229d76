//go:build linux

package main

import (
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/controller/control"
	"holocast/netfunc/controller/policy"
	"holocast/netfunc/controller/rest"
	"holocast/netfunc/signal"
)

// BenchmarkReaction measures, over loopback, the time from an edge's POST of the observation that
// fires the trigger to the arrival of the signalling packet at the sender.
func BenchmarkReaction(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	conf := policy.DefaultConfig()
	conf.MaxFlows = 1 << 20
	plane, err := control.New(control.Config{Policy: conf, Key: key, StateFile: b.TempDir() + "/state.json", Log: log})
	if err != nil {
		b.Fatal(err)
	}
	defer plane.Close()
	srv := httptest.NewServer(rest.New(rest.Config{
		Auth: rest.Auth{Token: token}, MaxBody: 1 << 20,
		KeepAlive: time.Second, Log: log,
	}, plane))
	defer srv.Close()
	ctx, stop := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = plane.Run(ctx) })
	defer wg.Wait()
	defer stop()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = udp.Close() }()
	client, err := api.NewClient(api.Options{URL: srv.URL, Token: token})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	paths := []api.Path{{Index: 1, Up: true}, {Index: 2, Up: true}, {Index: 3, Up: true}}
	prefix := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, e := range []api.Edge{
		{
			Name: "a", Role: api.Sender, Signal: udp.LocalAddr().(*net.UDPAddr).AddrPort(),
			SignalVersion: signal.Version,
			Paths:         paths, Towards: prefix,
		},
		{Name: "b", Role: api.Receiver, Paths: paths, Behind: prefix},
	} {
		if _, err := client.Hello(ctx, e); err != nil {
			b.Fatal(err)
		}
	}
	var took []time.Duration
	buf := make([]byte, 100)
	policies := map[netip.Addr]api.Policy{}
	for i := 0; b.Loop(); i++ {
		// Each round uses a new flow, whose trigger is armed.
		viewer := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 40000)
		seen := func(n int) api.Observation {
			return api.Observation{
				Time: int64(n) * int64(200*time.Millisecond), Source: viewer, Destination: viewer,
				Length: 240,
			}
		}
		if err := client.Uplink(ctx, "b", []api.Observation{seen(0), seen(1), seen(2)}); err != nil {
			b.Fatal(err)
		}
		if err := client.Report(ctx, "b", api.Report{Paths: paths, Ready: []netip.Addr{viewer.Addr()}}); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if err := client.Uplink(ctx, "b", []api.Observation{seen(3)}); err != nil {
			b.Fatal(err)
		}
		_ = udp.SetReadDeadline(time.Now().Add(5 * time.Second))
		for {
			n, err := udp.Read(buf)
			if err != nil {
				b.Fatal(err)
			}
			m, err := signal.Parse(buf[:n], signal.EdgeKey(key, "a"))
			if err == nil && m.Destination == viewer.Addr() {
				took = append(took, time.Since(began))
				policies[m.Destination] = api.Policy{Destination: m.Destination, Paths: m.Paths, Nonce: m.Nonce}
				break
			}
		}
		b.StopTimer()
		r := api.Report{Paths: paths}
		for _, p := range policies {
			r.Policies = append(r.Policies, p)
		}
		if err := client.Report(ctx, "a", r); err != nil {
			b.Fatal(err)
		}
		if _, err := client.SetFlow(ctx, viewer.Addr(), api.Setting{Mode: api.Off}); err != nil {
			b.Fatal(err)
		}
		delete(policies, viewer.Addr())
		if err := client.Report(ctx, "a", api.Report{Paths: paths, Nonce: uint64(time.Now().UnixNano())}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))]) / float64(time.Microsecond) }
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
	b.ReportMetric(0, "ns/op")
}
