package fbdt

import (
	"testing"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/quiccc"
)

// TestMeasure runs bulk, paced and small-object loads over two slow paths with the contenders of a quick run.
func TestMeasure(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
	if !quiccc.Patched() {
		t.Skip("built with the published quic-go")
	}
	s := Scenario{Name: static, About: "slow", Radios: []Radio{
		{Name: "wifi", Mbps: 8, DelayMs: 10}, {Name: "mmwave", Mbps: 12, DelayMs: 5},
	}}
	bulk := load{part: throughputPart, window: 100_000, warmup: time.Second, duration: time.Second}
	paced := load{
		part: windowsPart, window: 10_000, every: 20 * time.Millisecond, warmup: time.Second, duration: time.Second,
	}
	objects := paced
	objects.part = smallPart
	for _, l := range []load{bulk, paced, objects} {
		for _, c := range contenders(s, l, true) {
			m, err := measure(t.Context(), s, c, l)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			t.Log(m)
			if m.Mbps <= 0 || m.Mbps > 22 || len(m.Paths) != 2 { // data behind a gap count when it closes
				t.Errorf("%s: %+v", c.name, *m)
			}
			if d := m.Delivery; (d != nil) != (l.every > 0) || d != nil && (d.Windows == 0 || d.P50Ms < 5) {
				t.Errorf("%s: %+v", c.name, d)
			}
		}
	}
}
