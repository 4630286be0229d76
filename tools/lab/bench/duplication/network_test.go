//go:build linux

package duplication

import (
	"os/exec"
	"testing"
	"time"
)

func TestNetwork(t *testing.T) {
	for _, c := range []struct {
		name             string
		varies, reorders bool
		s                schedule
	}{
		{"calm", false, false, full},
		{"as in the paper", true, false, full},
		{"quick", true, false, quick},
		{"reordered", true, true, quick},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := network(c.s, c.varies, c.reorders)
			if err != nil {
				t.Fatal(err)
			}
			if n.Varies() != c.varies || n.Duration != c.s.length || len(n.Paths) != paths {
				t.Errorf("varies %v, %v, %d paths", n.Varies(), n.Duration, len(n.Paths))
			}
			for i, p := range n.Paths {
				if p.Name != pathName(i+1) || p.Between != [2]string{near, far} {
					t.Errorf("path %d is %s between %v", i+1, p.Name, p.Between)
				}
				if c.varies && (p.Forward[1].At != c.s.from || p.Backward[2].At != c.s.to ||
					p.Forward[2].Variation != nil) {
					t.Errorf("%s: %+v", p.Name, p.Forward)
				}
				if c.varies && (p.Forward[1].Reorder != c.reorders ||
					c.reorders && p.Forward[1].Variation.EveryMax != eachPacket) {
					t.Errorf("%s: %+v", p.Name, p.Forward[1])
				}
			}
		})
	}
}

func TestShare(t *testing.T) {
	before := map[string]time.Duration{others: time.Second}
	after := map[string]time.Duration{others: 3 * time.Second, "relay": time.Second}
	if s := share(before, after, 4*time.Second); s[others] != 0.5 || s["relay"] != 0.25 {
		t.Errorf("%v", s)
	}
}

func TestOfProcess(t *testing.T) {
	stat := []byte("42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 1 0 100 0 0")
	if d := ofProcess(stat); d != 2*time.Second {
		t.Errorf("%v", d)
	}
}

// The CPU time of other programs includes that of their ended children, but not that of kernel
// threads.
func TestOfOther(t *testing.T) {
	for stat, want := range map[string]time.Duration{
		"42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 70 30 20 0 1 0 100 0 0": 3 * time.Second,
		"14 (ksoftirqd/0) S 2 0 0 0 -1 69238848 0 0 0 0 0 900 0 0 20 0 1 0 2 0 0":   0,
		"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 3 0 0 20 0 1 0 2 0 0":          0,
		"garbage": 0,
	} {
		if d := ofOther([]byte(stat)); d != want {
			t.Errorf("%s: %v, want %v", stat, d, want)
		}
	}
}

// A busy program counts as another program unless it belongs to the run.
func TestOthers(t *testing.T) {
	loop := exec.Command("sh", "-c", "while :; do :; done")
	if err := loop.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = loop.Process.Kill(); _ = loop.Wait() }()
	mine := &session{}
	mine.group.add(&process{title: "relay", cmd: loop})
	other := &session{}
	ours, theirs := mine.processors(), other.processors()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		seen, own := other.processors()[others]-theirs[others], mine.processors()["relay"]-ours["relay"]
		if seen >= 100*time.Millisecond && own >= 100*time.Millisecond {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("of a busy program %v counts as another's, and %v as the run's own", seen, own)
		}
	}
}
