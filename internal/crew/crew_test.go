package crew

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"weak"
)

// TestCrew: every function runs, all at a time where they wait for one another, and Wait
// leaves no goroutine.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
		c := New()
		var ran atomic.Int32
		for range 3 {
			var all, here sync.WaitGroup
			all.Add(1)
			for range 2 * kept {
				here.Add(1)
				c.Go(func() {
					here.Done()
					all.Wait()
					ran.Add(1)
				})
			}
			here.Wait()
			all.Done()
			synctest.Wait()
			if n := c.idle.Load(); n != kept {
				t.Errorf("%d goroutines wait, want %d", n, kept)
			}
		}
		c.Wait()
		if n := ran.Load(); n != 6*kept {
			t.Errorf("%d functions ran of %d", n, 6*kept)
		}
		c.Go(func() { ran.Add(1) })
		c.Wait()
		if n := ran.Load(); n != 6*kept+1 {
			t.Error("a function after the end did not run")
		}
	})
}

// TestSameGoroutine: a function runs where the one before it has.
func TestSameGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		defer c.Wait()
		before := 0
		for i := range 100 {
			c.Go(func() {})
			synctest.Wait()
			if n := runtime.NumGoroutine(); i == 0 {
				before = n
			} else if n != before {
				t.Fatalf("%d goroutines after %d functions, %d after the first", n, i+1, before)
			}
		}
	})
}

// TestNothingKept: a goroutine that waits keeps nothing of what its last function had.
func TestNothingKept(t *testing.T) {
	c := New()
	defer c.Wait()
	for range 2 {
		big := new([1 << 20]byte)
		kept, done := weak.Make(big), make(chan struct{})
		c.Go(func() { big[0]++; close(done) })
		<-done
		for i := 0; kept.Value() != nil; i++ {
			if i == 100 {
				t.Fatal("what the function had is kept")
			}
			runtime.GC()
		}
	}
}

// deep needs a stack of some kilobytes.
func deep(n int) (sum byte) {
	var b [512]byte
	if n > 0 {
		b[n] = deep(n - 1)
	}
	for _, x := range b {
		sum += x
	}
	return sum + 1
}

func BenchmarkCrew(b *testing.B) {
	run := func(b *testing.B, run func(func())) {
		done := make(chan struct{})
		for b.Loop() {
			run(func() { deep(8); done <- struct{}{} })
			<-done
		}
	}
	b.Run("kept", func(b *testing.B) {
		c := New()
		defer c.Wait()
		run(b, c.Go)
	})
	b.Run("new", func(b *testing.B) { run(b, func(f func()) { go f() }) })
}
