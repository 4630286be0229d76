//go:build unix

package quiccc_test

import (
	"io"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLoopback transfers 64 MiB per operation over the loopback interface and reports the
// processor time of both ends per gigabit. "stock" is quic-go's own congestion control.
func BenchmarkLoopback(b *testing.B) {
	for _, name := range []string{"stock", "bbr", "cubic", "newreno"} {
		b.Run(name, func(b *testing.B) {
			const size = 64 << 20
			client, server := pair(b, name)
			data := make([]byte, size)
			b.SetBytes(size)
			begin := cpuTime(b)
			for b.Loop() {
				go func() {
					if s, err := server.OpenUniStream(); err == nil {
						_, _ = s.Write(data)
						_ = s.Close()
					}
				}()
				s, err := client.AcceptUniStream(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, s); err != nil || n != size {
					b.Fatalf("received %d bytes: %v", n, err)
				}
			}
			cpu := cpuTime(b) - begin
			b.ReportMetric(cpu.Seconds()/(float64(b.N)*size*8e-9), "cpu-s/Gbit")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
