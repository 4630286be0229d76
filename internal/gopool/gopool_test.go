package gopool

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// TestPool checks that all functions run, even if they wait for each other, and that Wait leaves no
// goroutine.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		p := New()
		var ran atomic.Int32
		for range 3 {
			var all, here sync.WaitGroup
			all.Add(1)
			for range 2 * maxIdle {
				here.Add(1)
				p.Go(func() {
					here.Done()
					all.Wait()
					ran.Add(1)
				})
			}
			here.Wait()
			all.Done()
			synctest.Wait()
			if n := p.idle.Load(); n != maxIdle {
				t.Errorf("%d idle goroutines, want %d", n, maxIdle)
			}
		}
		p.Wait()
		if n := ran.Load(); n != 6*maxIdle {
			t.Errorf("%d functions ran of %d", n, 6*maxIdle)
		}
		p.Go(func() { ran.Add(1) })
		p.Wait()
		if n := ran.Load(); n != 6*maxIdle+1 {
			t.Error("a function started after Wait did not run")
		}
	})
}

// TestGoroutineReused checks that successive functions run on one goroutine.
func TestGoroutineReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		defer p.Wait()
		before := 0
		for i := range 100 {
			p.Go(func() {})
			synctest.Wait()
			if n := runtime.NumGoroutine(); i == 0 {
				before = n
			} else if n != before {
				t.Fatalf("%d goroutines after %d functions, %d after the first", n, i+1, before)
			}
		}
	})
}

// TestIdleReleasesMemory checks that an idle goroutine does not retain its last function's data.
func TestIdleReleasesMemory(t *testing.T) {
	p := New()
	defer p.Wait()
	for range 2 {
		big := new([1 << 20]byte)
		ref, done := weak.Make(big), make(chan struct{})
		p.Go(func() { big[0]++; close(done) })
		<-done
		for end := time.Now().Add(time.Minute); ref.Value() != nil; {
			if time.Now().After(end) {
				t.Fatal("the function's data is still reachable")
			}
			runtime.GC()
		}
	}
}

// deep needs a stack of several kilobytes.
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

func BenchmarkPool(b *testing.B) {
	run := func(b *testing.B, run func(func())) {
		done := make(chan struct{})
		for b.Loop() {
			run(func() { deep(8); done <- struct{}{} })
			<-done
		}
	}
	b.Run("reused", func(b *testing.B) {
		p := New()
		defer p.Wait()
		run(b, p.Go)
	})
	b.Run("new", func(b *testing.B) { run(b, func(f func()) { go f() }) })
}
