//go:build linux && (amd64 || arm64)

package fastpath

import (
	"os"
	"slices"
	"testing"
	"time"
)

// TestMeasure measures each way for a moment. It opens every packet that the relay sent:
// no number is used twice under one key.
func TestMeasure(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: network namespaces need CAP_SYS_ADMIN")
	}
	relay, remove, err := findRelay(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	for _, way := range Ways {
		t.Run(way, func(t *testing.T) {
			const viewers = 2
			m, err := measure(t.Context(), relay, way, Idle, viewers, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.delays) < 1000 {
				t.Errorf("%d packets were measured", len(m.delays))
			}
			if slices.Min(m.delays) < 0 {
				t.Errorf("a packet left %v µs before it came", -slices.Min(m.delays))
			}
			kernel := way == ChaCha20 || way == None
			if got := m.kernel > float64(len(m.delays))/2; got != kernel {
				t.Errorf("the kernel made %v of %d packets", m.kernel, len(m.delays))
			}
			t.Logf("%d packets, %v by the kernel, left %v, %d lost", len(m.delays), m.kernel, m.left, m.lost)
		})
	}
}
