package moqt

import (
	"errors"
	"math/rand/v2"
	"testing"

	"holocast/internal/moqt/wire"
)

// TestRequestIDGap checks that a request whose stream was reset before delivery leaves a permanent
// gap and does not end the session.
func TestRequestIDGap(t *testing.T) {
	r := requestIDs{parity: 1, next: 1}
	for id := uint64(3); id < 8*maxRequestGaps; id += 2 {
		if err := r.check(id); err != nil {
			t.Fatalf("request %d, with 1 missing: %v", id, err)
		}
	}
	if r.firstUnseen() != 1 || r.seen(1) || !r.seen(3) {
		t.Error("the missing request is not known as such")
	}
	if err := r.check(1); err != nil {
		t.Errorf("the missing request, late: %v", err)
	}
	if len(r.gaps) != 0 {
		t.Errorf("gaps %v are left", r.gaps)
	}
	for _, id := range []uint64{1, 3, 4} {
		var e *wire.Error
		if err := r.check(id); !errors.As(err, &e) || e.Code != wire.InvalidRequestID {
			t.Errorf("request %d again, or of the wrong parity: %v", id, err)
		}
	}
}

// TestRequestIDsAtRandom compares requestIDs with a set of all seen IDs.
func TestRequestIDsAtRandom(t *testing.T) {
	r, seen := requestIDs{}, map[uint64]bool{}
	for range 20_000 {
		id := 2 * rand.Uint64N(3000)
		err := r.check(id)
		if (err != nil) != seen[id] {
			t.Fatalf("request %d, seen %v: %v", id, seen[id], err)
		}
		seen[id] = true
		if probe := 2 * rand.Uint64N(4000); r.seen(probe) != seen[probe] {
			t.Fatalf("request %d: seen %v, want %v", probe, r.seen(probe), seen[probe])
		}
	}
}

// TestRequestIDsBounded checks that memory is bounded if every second ID is missing, and that
// forgotten IDs are accepted.
func TestRequestIDsBounded(t *testing.T) {
	var r requestIDs
	for id := uint64(2); id < 16*maxRequestGaps; id += 4 {
		if err := r.check(id); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.gaps) > maxRequestGaps {
		t.Errorf("%d gaps are kept", len(r.gaps))
	}
	if err := r.check(0); err != nil {
		t.Errorf("a request from a gap that was forgotten: %v", err)
	}
}
