package main

import (
	"net/netip"
	"testing"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
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

// TestMultipathOff: without multipath, a client with two paths gets an ordinary session.
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
}
