//go:build linux

package duplication

import (
	"testing"
	"time"
)

func TestNetwork(t *testing.T) {
	for _, c := range []struct {
		name   string
		varies bool
		s      schedule
	}{{"calm", false, full}, {"as in the paper", true, full}, {"quick", true, quick}} {
		t.Run(c.name, func(t *testing.T) {
			n, err := network(c.s, c.varies)
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
				if c.varies && (p.Forward[1].At != c.s.from || p.Backward[2].At != c.s.to || p.Forward[2].Variation != nil) {
					t.Errorf("%s: %+v", p.Name, p.Forward)
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
