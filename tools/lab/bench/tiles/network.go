package tiles

import (
	"math"
	"path/filepath"

	"holocast/tools/lab/bench/internal/csvtrace"
)

// network is a path's capacity over time in bytes per second, one value for each second.
type network struct {
	name string
	rate []float64
}

// at returns the rate at time t in seconds. The trace repeats.
func (n network) at(t float64) float64 {
	return n.rate[int(max(0, t))%len(n.rate)]
}

// between returns the bytes that the path carries from one time to another, in seconds.
func (n network) between(from, to float64) (bytes float64) {
	for from < to {
		until := min(math.Floor(from)+1, to)
		bytes += n.at(from) * (until - from)
		from = until
	}
	return bytes
}

// scaled returns the network with its rates scaled to a mean, in bytes per second, over the first
// seconds.
func (n network) scaled(mean float64, seconds int) network {
	sum := 0.0
	for i := range seconds {
		sum += n.rate[i%len(n.rate)]
	}
	out := network{n.name, make([]float64, len(n.rate))}
	for i, r := range n.rate {
		out.rate[i] = r * mean * float64(seconds) / sum
	}
	return out
}

// networks reads 5Gophers traces, which hold the throughput of commercial 5G in each second of
// walking and driving.
func networks(dir string) ([]network, error) {
	var all []network
	for _, c := range []struct{ name, file, column string }{
		{"walking", "All-Carriers_03-User-Mobility_walking-trace.csv", "throughput_mbps"},
		{"driving, Sprint", "All-Carriers_03-User-Mobility_car-driving-trace-1.csv", "Sprint_throughput_mbps"},
		{"driving, T-Mobile", "All-Carriers_03-User-Mobility_car-driving-trace-1.csv", "TMobile_throughput_mbps"},
		{"driving, Verizon", "All-Carriers_03-User-Mobility_car-driving-trace-1.csv", "Verizon_throughput_mbps"},
	} {
		rate, err := csvtrace.Column(filepath.Join(dir, c.file), c.column)
		if err != nil {
			return nil, err
		}
		all = append(all, network{c.name, rate})
	}
	return all, nil
}
