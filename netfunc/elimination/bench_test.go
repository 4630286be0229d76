package elimination

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkObserve is one arrival of a stream over three paths, 0, 10 and 80 ms behind the
// first, so that all three and a memory of 1 s are at work.
func BenchmarkObserve(b *testing.B) {
	for _, rate := range []int{7500, 100_000} {
		for name, c := range map[string]Config{"packets": Printed(), "span": Default()} {
			b.Run(fmt.Sprintf("%s/%dpps", name, rate), func(b *testing.B) {
				c.Alpha, c.Timeout = 200*time.Millisecond, 200*time.Millisecond
				c.Misses = 0
				f, err := New(c)
				if err != nil {
					b.Fatal(err)
				}
				f.SetPaths(1, Of(1, 2, 3), 0)
				step := time.Second / time.Duration(rate)
				lags := [3]uint64{0, uint64(10 * time.Millisecond / step), uint64(80 * time.Millisecond / step)}
				n := uint64(0)
				round := func() {
					for i, lag := range lags {
						if key := n - lag; n >= lag && (key+uint64(i))%50 != 0 {
							f.Observe(key*0x9e3779b97f4a7c15, i+1, time.Second+time.Duration(n)*step)
						}
					}
					n++
				}
				for range 2 * rate {
					round()
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					round()
				}
				b.StopTimer()
				if f.stopped() {
					b.Fatal("the algorithm stopped")
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/3, "ns/arrival")
			})
		}
	}
}
