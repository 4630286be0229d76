package main

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestProcessors(t *testing.T) {
	for name, c := range map[string]struct {
		most, now int
		loads     []float64
		want      []int
	}{
		"little to do":           {4, 1, []float64{0, 0.1, 0.24}, []int{1, 1, 1}},
		"more at once":           {4, 1, []float64{0.25, 0.5, 0}, []int{2, 3, 3}},
		"no more than there are": {4, 1, []float64{1, 9}, []int{4, 4}},
		"fewer once it is calm": {
			4, 4, slices.Repeat([]float64{0.1}, looks),
			append(slices.Repeat([]int{4}, looks-1), 1),
		},
		"a bit more for long": {
			4, 1, slices.Repeat([]float64{0.2}, looks),
			append(slices.Repeat([]int{1}, looks-1), 2),
		},
		"a burst among little": {
			4, 1, append([]float64{0.6}, slices.Repeat([]float64{0.05}, looks-1)...),
			append(slices.Repeat([]int{3}, looks-1), 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := processors{most: c.most, now: c.now}
			var got []int
			for _, load := range c.loads {
				got = append(got, p.look(load))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestFitProcessors checks that an idle process ends up with one processor. A busy process, and one
// whose context is done, use all.
func TestFitProcessors(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(before)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); fitProcessors(ctx) }()
	until := func(what string, ok func(n int) bool) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); !ok(runtime.GOMAXPROCS(0)); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%s: %d processors", what, runtime.GOMAXPROCS(0))
			}
		}
	}
	until("idle", func(n int) bool { return n == 1 })
	busy, stop := context.WithCancel(t.Context())
	spun := make(chan struct{})
	go func() {
		defer close(spun)
		for busy.Err() == nil {
		}
	}()
	until("busy", func(n int) bool { return n > 1 })
	stop()
	<-spun
	cancel()
	<-done
	if n := runtime.GOMAXPROCS(0); n < 1 {
		t.Errorf("%d processors", n)
	}
}
