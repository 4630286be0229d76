//go:build linux && (amd64 || arm64)

package fastpath

import (
	"testing"
	"time"
)

// TestHandover checks that the kernel continues only after user space has sent everything. A viewer
// is handed over if user space takes too long, and for longer if that soon happens again.
func TestHandover(t *testing.T) {
	const ms = time.Millisecond
	type step struct {
		at      time.Duration
		left    uint64
		several bool
		unsent  bool
		passed  uint64
		maySend bool
		handed  bool
	}
	for name, steps := range map[string][]step{
		"nothing left": {{at: 1 * ms, maySend: true}, {at: 2 * ms, maySend: true}},
		"caught up in time": {
			{at: 1 * ms, left: 5, several: true, passed: 0},
			{at: 20 * ms, left: 9, several: true, passed: 5},
			{at: 25 * ms, left: 9, several: true, passed: 9, unsent: true}, // passed on, but not sent
			{at: 30 * ms, left: 9, several: true, passed: 9, maySend: true},
			{at: 50 * ms, left: 12, several: true, passed: 9}, // behind again, and caught up in time
			{at: 80 * ms, left: 12, several: true, passed: 12, maySend: true},
		},
		"groups of one object never wait": {
			{at: 1 * ms, left: 5, maySend: true},
			{at: 2 * ms, left: 5, unsent: true, maySend: true},
			{at: 500 * ms, left: 5, unsent: true, maySend: true},
		},
		"handed over and back": {
			{at: 1 * ms, left: 5, several: true},
			{at: 32 * ms, left: 50, several: true, handed: true},
			{at: 100 * ms, left: 50, several: true, passed: 50, handed: true}, // catching up is not enough
			{at: 1031 * ms, left: 50, several: true, passed: 50, handed: true},
			{at: 1032 * ms, left: 50, several: true, passed: 50}, // the kernel needs a new fallback first
			{at: 1040 * ms, left: 55, several: true, passed: 50},
			{at: 1050 * ms, left: 55, several: true, passed: 55, maySend: true},
			{at: 3000 * ms, left: 60, several: true, passed: 55}, // much later: one second again
			{at: 3031 * ms, left: 60, several: true, passed: 55, handed: true},
			{at: 4031 * ms, left: 60, several: true, passed: 60},
		},
		"handed over for longer each time": {
			{at: 1 * ms, left: 5, several: true},
			{at: 32 * ms, left: 50, several: true, handed: true},
			{at: 1032 * ms, left: 60, several: true},
			{at: 1063 * ms, left: 60, several: true, handed: true},
			{at: 3062 * ms, left: 60, several: true, handed: true},
			{at: 3063 * ms, left: 70, several: true},
			{at: 3094 * ms, left: 70, several: true, handed: true},
			{at: 7093 * ms, left: 70, several: true, handed: true},
			{at: 7094 * ms, left: 80, several: true},
			{at: 7125 * ms, left: 80, several: true, handed: true},
			{at: 15124 * ms, left: 80, several: true, handed: true},
			{at: 15125 * ms, left: 90, several: true},
			{at: 15156 * ms, left: 90, several: true, handed: true}, // the maximum
			{at: 23156 * ms, left: 90, several: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandover()
			for i, s := range steps {
				h.passed = s.passed
				if maySend := h.check(s.at, s.left, s.several, s.unsent); maySend != s.maySend || h.handed != s.handed {
					t.Fatalf(
						"step %d, at %v: kernel may send: %v, handed over: %v; want %v, %v",
						i,
						s.at,
						maySend,
						h.handed,
						s.maySend,
						s.handed,
					)
				}
			}
		})
	}
}
