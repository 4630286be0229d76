package wire

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// unhex decodes hex digits; spaces separate fields.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantError checks that err closes the session with code and contains what.
func wantError(t *testing.T, err error, code SessionCode, what string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want %s: …%s…", err, code, what)
	}
	if e.Code != code || !strings.Contains(e.Msg, what) {
		t.Errorf("error %v, want %s: …%s…", err, code, what)
	}
}

// newRand returns a generator that yields the same numbers in every run.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 18)) }

// allocated returns the average number of bytes allocated by a call of f.
func allocated(f func()) uint64 {
	const runs = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / runs
}

// varintEdges returns the values on both sides of every change in encoded length.
func varintEdges() []uint64 {
	edges := []uint64{0, 1}
	for bits := 7; bits <= 56; bits += 7 {
		edges = append(edges, 1<<bits-1, 1<<bits)
	}
	return append(edges, 1<<63, 1<<64-1)
}
