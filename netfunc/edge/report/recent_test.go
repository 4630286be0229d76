package report

import (
	"net/netip"
	"testing"
	"time"

	"holocast/netfunc/api"
)

func TestRecent(t *testing.T) {
	var r recent
	start := time.Unix(1_700_000_000, 0)
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), 1)
	}
	if out := r.since(start); len(out) != 0 {
		t.Errorf("%v of nothing", out)
	}
	for i := range maxViewers + 10 {
		for n := range 3 {
			r.add(api.Observation{Time: int64(10*i + n), Source: at(i)}, start.Add(time.Duration(i)*time.Millisecond))
		}
	}
	if len(r) != maxViewers || r[at(9)] != nil || r[at(10)] == nil {
		t.Errorf("%d viewers, not the newest", len(r))
	}
	out := r.since(start.Add((maxViewers + 8) * time.Millisecond))
	if len(out) != 6 || out[0].Time != 10*(maxViewers+8) || out[5].Time != 10*(maxViewers+9)+2 {
		t.Errorf("%+v, want the last two viewers' in order", out)
	}
	if len(r) != 2 {
		t.Errorf("%d viewers are remembered that were not seen recently", len(r)-2)
	}
}
