package fbdt

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holocast/internal/netlab/topology"
	"holocast/tools/lab/bench/internal/csvtrace"
)

// Scenario is a client with several radios, each a path to the server.
type Scenario struct {
	Name   string  `json:"name"`
	About  string  `json:"about"`
	Radios []Radio `json:"radios"`
	// warmup is the time that every transport needs to reach its rate.
	warmup time.Duration
}

// Radio is one path. Rates are in Mbit/s of Ethernet frames; delays are one-way.
type Radio struct {
	Name    string  `json:"name"`
	Mbps    float64 `json:"mbps"` // of a varying rate the mean
	DelayMs float64 `json:"delay_ms"`
	Loss    float64 `json:"loss,omitempty"` // share, from server to client
	// steps is the repeating sequence of rates; nil means a constant rate.
	steps []step
}

// step is a rate and its duration.
type step struct {
	time time.Duration
	mbps float64
}

// Names of scenarios. The first four are the paper's.
const (
	static = "static"
	loss   = "loss"
	delay  = "delay"
	mobile = "mobile"
	traces = "traces"
	rates  = "rates 5:1"
	rtts   = "RTTs 5:1"
	three  = "three"
)

// The radios have a fifteenth of the paper's rates (section 2.2: 630 and 1800 Mbit/s), so that two processor cores
// can emulate them and run both ends.
const (
	wifiMbps = 42
	wigMbps  = 120
)

// scenarios returns the scenarios. data is the folder with network_traces; if it is "", traces is left out.
func scenarios(data string) ([]Scenario, error) {
	wifi, wig := Radio{Name: "wifi", Mbps: wifiMbps, DelayMs: 10}, Radio{Name: "mmwave", Mbps: wigMbps, DelayMs: 5}
	lossy, late, moving := wig, wig, wig
	lossy.Loss, late.DelayMs = 0.05, wig.DelayMs+500
	moving.steps = sight(wig.Mbps)
	moving.Mbps = mean(moving.steps)
	list := []Scenario{
		{Name: static, About: "nothing changes", Radios: []Radio{wifi, wig}},
		{Name: loss, About: "5 % loss on mmWave", Radios: []Radio{wifi, lossy}},
		{Name: delay, About: "+500 ms on mmWave", Radios: []Radio{wifi, late}, warmup: 22 * time.Second},
		{
			Name: mobile, About: "mmWave alternates between LoS and nLoS, a tenth of the rate, after 1 to 3 s",
			Radios: []Radio{wifi, moving},
		},
		{Name: rates, About: "rates 5:1", Radios: []Radio{
			{Name: "wifi", Mbps: 24, DelayMs: 10}, {Name: "mmwave", Mbps: 120, DelayMs: 10},
		}},
		{Name: rtts, About: "round-trip times 5:1", Radios: []Radio{
			{Name: "wifi", Mbps: 60, DelayMs: 10}, {Name: "cellular", Mbps: 60, DelayMs: 50},
		}},
		{Name: three, About: "three radios", Radios: []Radio{
			wifi, {Name: "cellular", Mbps: 30, DelayMs: 25}, {Name: "mmwave", Mbps: 90, DelayMs: 5},
		}},
	}
	if data != "" {
		driving, err := recorded(filepath.Join(data, "network_traces"), 2, tracesMbps)
		if err != nil {
			return nil, err
		}
		list = slices.Insert(list, 4, driving)
	}
	return list, nil
}

// sight returns a rate that alternates between mbps (line of sight) and a tenth of it, at random times that are the
// same in every run.
func sight(mbps float64) (steps []step) {
	r := rand.New(rand.NewPCG(3, 0))
	for i := range 40 {
		rate := mbps
		if i%2 == 1 {
			rate /= 10
		}
		steps = append(steps, step{time.Second + time.Duration(r.IntN(2000))*time.Millisecond, rate})
	}
	return steps
}

// Scaling of the recorded rates.
const (
	tracesMbps = 130 // mean of both modems together
	leastMbps  = 0.5 // an outage; 0 would be unlimited
)

// driveFile is the trace of a drive. It holds the throughput of each second.
const driveFile = "All-Carriers_03-User-Mobility_car-driving-trace-2.csv"

// modems lists the operators in the recorded drive.
var modems = []struct {
	radio, column string
	delayMs       float64
}{
	{"tmobile", "TMobile_throughput_mbps", 15},
	{"verizon", "Verizon_throughput_mbps", 10},
	{"sprint", "Sprint_throughput_mbps", 25},
}

// recorded returns a scenario with the throughput of n operators on one drive (5Gophers), scaled to a total mean of
// mbps.
func recorded(dir string, n int, mbps float64) (Scenario, error) {
	s := Scenario{Name: traces, About: fmt.Sprintf("a drive with %d 5G modems (5Gophers), scaled", n)}
	if n != 2 {
		s.Name += fmt.Sprintf(" of %d", n)
	}
	sum := 0.0
	for _, c := range modems[:n] {
		column, err := csvtrace.Column(filepath.Join(dir, driveFile), c.column)
		if err != nil {
			return s, err
		}
		radio := Radio{Name: c.radio, DelayMs: c.delayMs}
		for _, rate := range column {
			radio.steps = append(radio.steps, step{time.Second, rate * 8e-6})
		}
		sum += mean(radio.steps)
		s.Radios = append(s.Radios, radio)
	}
	for i := range s.Radios {
		r := &s.Radios[i]
		for k := range r.steps {
			r.steps[k].mbps = max(r.steps[k].mbps*mbps/sum, leastMbps)
		}
		r.Mbps = mean(r.steps)
	}
	return s, nil
}

// mean returns the mean rate.
func mean(steps []step) float64 {
	bits, seconds := 0.0, 0.0
	for _, s := range steps {
		bits += s.mbps * s.time.Seconds()
		seconds += s.time.Seconds()
	}
	return bits / max(seconds, 1e-9)
}

// queueTime is the length of every path's queue at the path's rate. Radios have deep queues.
const queueTime = 100 * time.Millisecond

// topology returns the scenario's network for a run of the given length: the client a, whose radios lead to the edge
// e, and the server b behind the edge.
func (s Scenario) topology(length time.Duration) (*topology.Topology, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "name: fbdt\nhosts: [a, b]\nedges: [e]\nlinks:\n  - between: [e, b]\npaths:\n")
	for _, r := range s.Radios {
		rate := r.Mbps
		if r.steps != nil {
			rate = r.steps[0].mbps
		}
		fmt.Fprintf(&b, "  - name: %s\n    between: [e, a]\n    rate: %gMbit\n    delay: %gms\n    loss: %g%%\n"+
			"    queue: %v\n    backward: {loss: 0%%}\n", r.Name, rate, r.DelayMs, 100*r.Loss, queueTime)
		if r.steps == nil {
			continue
		}
		b.WriteString("    schedule:\n")
		at := r.steps[0].time
		for i := 1; at < length; i++ {
			next := r.steps[i%len(r.steps)]
			fmt.Fprintf(&b, "      - {at: %v, rate: %gMbit}\n", at, next.mbps)
			at += next.time
		}
	}
	return topology.Parse([]byte(b.String()))
}
