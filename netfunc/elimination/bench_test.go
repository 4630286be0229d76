package elimination

import (
	"fmt"
	"testing"
	"time"

	"holocast/netfunc/pathset"
)

// BenchmarkObserve measures one arrival while packets of a full Memory are remembered. Replicas on
// three paths arrive 0, 10 and 80 ms after the first, and each path loses 2 %.
func BenchmarkObserve(b *testing.B) {
	for _, rate := range []int{7500, 100_000} {
		for _, c := range []struct {
			name string
			conf Config
		}{{"printed", Printed()}, {"default", Default()}} {
			b.Run(fmt.Sprintf("%s/%dpps", c.name, rate), func(b *testing.B) {
				c.conf.W, c.conf.Alpha, c.conf.Timeout = 1000, 100*time.Millisecond, 100*time.Millisecond
				f, err := New(c.conf)
				if err != nil {
					b.Fatal(err)
				}
				step := time.Second / time.Duration(rate)
				lags := [...]int{0, int(10 * time.Millisecond / step), int(80 * time.Millisecond / step)}
				f.SetPaths(1, pathset.Of(1, 2, 3), 0)
				i, n := 0, 0
				arrive := func() {
					if key := n - lags[i]; (key+i)%50 != 0 {
						f.Observe(uint64(key)*0x9e3779b97f4a7c15, i+1, time.Second+time.Duration(n)*step)
					}
					if i++; i == len(lags) {
						i = 0
						n++
					}
				}
				for range 6 * rate {
					arrive()
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					arrive()
				}
				if f.stopped() {
					b.Fatal("the algorithm stopped")
				}
			})
		}
	}
}
