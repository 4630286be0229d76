//go:build linux && (amd64 || arm64)

package fastpath

import (
	"testing"
	"time"
)

// TestSlots checks that a freed slot is not reused immediately.
func TestSlots(t *testing.T) {
	s := newSlots(2)
	a, b := s.take(), s.take()
	if a == b || s.take() != -1 {
		t.Fatalf("slots %d and %d of two, and a third one", a, b)
	}
	s.free(a)
	if got := s.take(); got != -1 {
		t.Errorf("slot %d was reused immediately", got)
	}
	s.retired[0].at = time.Now().Add(-2 * retire)
	if got := s.take(); got != a {
		t.Errorf("slot %d, want %d", got, a)
	}
}

// TestBlock checks that a block counts the records of only its own numbers.
func TestBlock(t *testing.T) {
	b := &block{first: 1000, end: 1000 + blockSize}
	for number, ours := range map[int64]bool{
		999: false, 1000: true, 1063: true, 1064: true,
		1000 + blockSize - 1: true, 1000 + blockSize: false,
	} {
		if b.see(number) != ours {
			t.Errorf("number %d: %v", number, !ours)
		}
	}
	if b.recorded != 4 || b.seen != [blockSize / 64]uint64{0: 1 | 1<<63, 1: 1, blockSize/64 - 1: 1 << 63} {
		t.Errorf("%d records: %x", b.recorded, b.seen)
	}
}

func TestMode(t *testing.T) {
	for mode, ok := range map[Mode]bool{Off: true, Auto: true, ChaCha20: true, "": false, "on": false} {
		if err := mode.Check(); (err == nil) != ok {
			t.Errorf("%q: %v", mode, err)
		}
	}
}

// TestNil checks that with a nil Manager the fast path is off.
func TestNil(t *testing.T) {
	var m *Manager
	m.Publisher(nil, nil)
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if s := m.Stats(); s.Forwarded != 0 {
		t.Errorf("%+v", s)
	}
}
