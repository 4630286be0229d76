//go:build linux && (amd64 || arm64)

package fastpath

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"holocast/internal/netlab"
	"holocast/tools/lab/bench/internal/load"
)

// TestMeasure measures each way briefly. It decrypts every packet of the relay and checks that no
// packet number repeats under the same key.
func TestMeasure(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: network namespaces need CAP_SYS_ADMIN")
	}
	relay, remove, err := load.Binary(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	for _, way := range Ways {
		t.Run(way, func(t *testing.T) {
			const viewers = 2
			var m measured
			for range 10 { // a stalled machine may deliver few packets
				o, err := measure(t.Context(), relay, way, Idle, viewers, time.Second)
				if err != nil && !errors.Is(err, errNoneForwarded) {
					t.Fatal(err)
				}
				if m.add(o); len(m.delays) >= 100 {
					break
				}
			}
			if len(m.delays) < 100 {
				t.Fatalf("only %d packets measured", len(m.delays))
			}
			if slices.Min(m.delays) < 0 {
				t.Errorf("a packet left %v µs before it arrived", -slices.Min(m.delays))
			}
			// On a busy machine, most packets exceed the congestion window and wait in user space.
			kernel := way == ChaCha20 || way == None
			if got := m.kernel > 0; got != kernel {
				t.Errorf("kernel forwarded %v of %d packets", m.kernel, len(m.delays))
			}
			if relay := way == ChaCha20 || way == User; (len(m.calls) > 0) != relay {
				t.Errorf("%v system calls of the relay", m.calls)
			}
			t.Logf("%d packets, %v by the kernel, fallback %v, %d lost", len(m.delays), m.kernel, m.fallback, m.lost)
		})
	}
}

// TestCamera sends frames to near and far viewers. It checks that the kernel forwards packets and
// that congestion control eventually accounts for every byte sent.
func TestCamera(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip(err)
	}
	relay, remove, err := load.Binary(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	frames := [][]byte{make([]byte, 30_000), make([]byte, 31_000)}
	for range 5 { // a stalled machine may deliver nothing
		r := CameraRun{Way: ChaCha20, TCP: true, Fallback: map[string]float64{}}
		if err := r.measure(t.Context(), relay, frames, time.Second); err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", r)
		if r.Samples == 0 || r.UnregisteredEnd != 0 {
			t.Fatalf("%d samples; %v bytes unregistered in the end", r.Samples, r.UnregisteredEnd)
		}
		if r.Forwarded > 0 && r.Near.FPS > 0 && r.Far.FPS > 0 && r.TCPMbps > 0 {
			return
		}
	}
	t.Error("nothing arrived")
}

// TestMedians merges three turns.
func TestMedians(t *testing.T) {
	var turns []CameraRun
	for i, fps := range []float64{30, 10, 20} {
		turns = append(turns, CameraRun{
			Way: Auto, Seconds: 10, Near: Shown{FPS: fps, DelayP50: 2 * fps}, Far: Shown{Repaired: uint64(fps)},
			Forwarded: 5, Samples: 2, UnregisteredMax: fps, Fallback: map[string]float64{"budget": float64(i)},
		})
	}
	got := medians(turns)
	want := CameraRun{
		Way: Auto, Turns: 3, Seconds: 10, Near: Shown{FPS: 20, DelayP50: 40}, Far: Shown{Repaired: 20},
		Forwarded: 15, Samples: 6, UnregisteredMax: 30, Fallback: map[string]float64{"budget": 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
