package main

import (
	"net/netip"
	"testing"

	"github.com/quic-go/quic-go"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/relay/admin"
)

// dialPaths opens a session over two paths.
func (p *process) dialPaths() *moqt.Session {
	p.t.Helper()
	cfg := quiet
	for name, address := range map[string]string{"wifi": "127.0.0.2", "modem": "127.0.0.3"} {
		cfg.Paths = append(cfg.Paths, moqt.Path{Name: name, Local: netip.MustParseAddr(address)})
	}
	s, err := moqt.Dial(p.t.Context(), "moqt://"+p.udp, pinned(p.t, p.hash), moqt.Handler{}, cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { s.Close(wire.NoError, "") })
	return s
}

// TestMultipath checks that a session over two paths delivers frames, and that metrics and the live
// page show its paths.
func TestMultipath(t *testing.T) {
	p := start(t)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	viewer := p.dialPaths()
	sub := subscribe(t, viewer, points)
	payload := make([]byte, 100_000)
	write(t, tr, 1, payload)
	expect(t, sub, 1, payload)
	eventually(t, "two paths", func() bool { return p.metric(`holocast_relay_paths{state="up"}`) == 2 })
	for series, want := range map[string]float64{
		`holocast_relay_multipath_sessions`:                          1,
		`holocast_relay_sessions{transport="quic"}`:                  2,
		`holocast_relay_paths{state="down"}`:                         0,
		`holocast_relay_refused_paths_total{reason="unknown token"}`: 0,
	} {
		if got := p.metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	viewers := list[admin.Viewer](p.api(""), "viewers")
	shown, sent, share := 0, uint64(0), 0.0
	for _, s := range viewers {
		for _, path := range s.Paths {
			shown++
			sent += path.SentBytes
			share += path.Share
			host := map[string]string{"wifi": "127.0.0.2", "modem": "127.0.0.3"}[path.Name]
			if from, err := netip.ParseAddrPort(path.Peer); err != nil || from.Addr().String() != host || path.Down {
				t.Errorf("%+v", path)
			}
		}
	}
	if shown != 2 || sent < uint64(len(payload)) || share < 0.999 || share > 1.001 {
		t.Errorf("%+v", viewers)
	}
}

// TestRefusedPath checks that metrics count a connection that sends no HELLO.
func TestRefusedPath(t *testing.T) {
	p := start(t)
	conf := pinned(t, p.hash)
	conf.NextProtos = []string{"holocast-mp-18"}
	qc, err := quic.DialAddr(t.Context(), p.udp, conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := qc.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte{1, 0}); err != nil {
		t.Fatal(err)
	}
	<-qc.Context().Done()
	const series = `holocast_relay_refused_paths_total{reason="malformed hello"}`
	if n := p.metric(series); n != 1 {
		t.Errorf("%s is %v, want 1", series, n)
	}
}

// TestMultipathOff checks that without multipath, a client with two paths gets an ordinary session.
func TestMultipathOff(t *testing.T) {
	p := start(t, "--multipath=false")
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	viewer := p.dialPaths()
	if list := viewer.Paths(); list != nil {
		t.Errorf("paths %+v", list)
	}
	sub := subscribe(t, viewer, points)
	write(t, tr, 1, []byte("frame"))
	expect(t, sub, 1, []byte("frame"))
	if n := p.metric("holocast_relay_multipath_sessions"); n != 0 {
		t.Errorf("%v sessions over several paths", n)
	}
}
