package wan

import (
	"testing"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/quiccc"
	"holocast/tools/lab/bench/internal/load"
)

// TestMeasurePath checks that frames of all cameras arrive, also with staggered groups.
func TestMeasurePath(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
	if !quiccc.Patched() {
		t.Skip("built with the published quic-go")
	}
	binary, remove, err := load.Binary(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	s := stream{contender: layoutW, group: 10, stagger: 5}
	for range 2 {
		var objects [][]byte
		for range 20 {
			objects = append(objects, make([]byte, 1000))
		}
		s.objects = append(s.objects, objects)
	}
	p := path{name: homePath, rates: []step{{0, homeRate}}}
	r, err := measurePath(t.Context(), p, s, binary, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	// After a delay, frames may arrive faster than fps.
	if r.FPS <= 0 || r.DelayP50 < homeDelay || r.Mbps != 0.48 {
		t.Errorf("%+v", r)
	}
}
