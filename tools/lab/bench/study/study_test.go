package study

import (
	"slices"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	names, missing := transports([]string{"reno", "bbr", "cubic"})
	if !slices.Equal(missing, []string{"tcp-vegas", "tcp-yeah"}) || len(names) != 17 {
		t.Errorf("%v, missing %v", names, missing)
	}
	for _, c := range []struct {
		name string
		o    Options
		most time.Duration
	}{
		{"quick", Options{Quick: true}, 10 * time.Minute},
		{"full", Options{}, 2 * time.Hour},
	} {
		names, _ := transports(tcpControllers)
		// A transfer takes its size by three quarters of the path's rate, and half a second around.
		total := time.Duration(0)
		ids := plan(c.o, names)
		for i, id := range ids {
			if slices.Contains(ids[:i], id) {
				t.Errorf("%+v twice", id)
			}
			rate := 300.0
			if id.Path == "wifi" {
				rate = 50
			}
			total += 500*time.Millisecond + time.Duration(float64(id.Mbit)/rate*float64(time.Second))
			if id.Load == framesLoad {
				total += time.Duration(id.Seconds)*time.Second + 2*time.Second
			}
		}
		t.Logf("%s: %d cells, %v", c.name, len(ids), total)
		if total > c.most {
			t.Errorf("%s takes %v", c.name, total)
		}
	}
	if err := (Options{Paths: []string{"moon"}}).Check(); err == nil {
		t.Error("path moon")
	}
}
