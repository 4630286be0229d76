package fbdt

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/internal/fbdt"
	"holocast/tools/lab/bench/fbdt/schedulers"
)

func TestScenarios(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "network_traces"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "network_traces", driveFile),
		[]byte("TMobile_throughput_mbps,Verizon_throughput_mbps\n100,300\n0,900\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := scenarios(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]Scenario{}
	for _, s := range list {
		names[s.Name] = s
		topology, err := s.topology(10 * time.Second)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if len(topology.Paths) != len(s.Radios) {
			t.Errorf("%s: %d paths, %d radios", s.Name, len(topology.Paths), len(s.Radios))
		}
		for i, p := range topology.Paths {
			r := s.Radios[i]
			if got := p.Forward[0].Loss; got != r.Loss {
				t.Errorf("%s, %s: loss %g, want %g", s.Name, r.Name, got, r.Loss)
			}
			if got := p.Backward[0].Loss; got != 0 {
				t.Errorf("%s, %s: acknowledgements are lost: %g", s.Name, r.Name, got)
			}
			if varies := len(p.Forward) > 1; varies != (r.steps != nil) {
				t.Errorf("%s, %s: varies %v", s.Name, r.Name, varies)
			}
		}
	}
	for _, want := range []string{static, loss, delay, mobile, traces, rates, rtts, three} {
		if _, ok := names[want]; !ok {
			t.Errorf("no scenario %s", want)
		}
	}
	// The means of 50 and 600 Mbit/s are scaled to a fifth, 130 Mbit/s in total. An outage becomes leastMbps.
	for i, want := range [][]float64{{20, leastMbps}, {60, 180}} {
		for k, s := range names[traces].Radios[i].steps {
			if d := s.mbps - want[k]; d < -1e-9 || d > 1e-9 {
				t.Errorf("trace %d, second %d: %g Mbit/s, want %g", i, k, s.mbps, want[k])
			}
		}
	}
	if a, b := sight(100), sight(100); !slices.Equal(a, b) || a[0].mbps != 100 || a[1].mbps != 10 ||
		a[0].time < time.Second || a[0].time >= 3*time.Second {
		t.Errorf("line of sight: %v, %v", a[:2], b[:2])
	}
	without, err := scenarios("")
	if err != nil || len(without) != len(list)-1 {
		t.Errorf("without data: %d scenarios, %v", len(without), err)
	}
	if _, err := scenarios(t.TempDir()); err == nil {
		t.Error("accepts a folder without traces")
	}
}

// Window 1 arrives first but waits for window 0; window 2 is missing at the end.
func TestDelays(t *testing.T) {
	const size = 100
	r := newReceiver()
	ms := time.Millisecond
	for range 4 {
		r.window(size)
	}
	r.windows = map[uint64]window{
		0: {sent: 10 * ms, arrived: 70 * ms}, 1: {sent: 20 * ms, arrived: 50 * ms},
		2: {sent: 30 * ms}, 3: {sent: 90 * ms, arrived: 95 * ms},
	}
	delays, missing := r.delays(10*ms, 40*ms, 200*ms)
	if want := []float64{60, 50, 170}; !slices.Equal(delays, want) || missing != 1 {
		t.Errorf("%v, %d missing; want %v, 1", delays, missing, want)
	}

	b := r.window(size)
	if err := r.read(bytes.NewReader(b), make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if w := r.windows[binary.BigEndian.Uint64(b)]; w.arrived < w.sent || r.bytes.Load() != size {
		t.Errorf("%+v, %d bytes", w, r.bytes.Load())
	}
	if err := r.read(bytes.NewReader(b[:50]), make([]byte, size)); err == nil || r.bytes.Load() != size+50 {
		t.Errorf("half a window: %v, %d bytes", err, r.bytes.Load())
	}
}

// Two streams of three 1000-byte segments each arrive out of order, one segment twice.
func TestMeter(t *testing.T) {
	m := newMeter(schedulers.New("minrtt", fbdt.Options{MinSegment: 1000, MaxSegment: 1000}))
	m.SetPath(0, fbdt.Estimate{Rate: 1e6, RTT: time.Millisecond})
	m.SetPath(1, fbdt.Estimate{Rate: 1e6, RTT: time.Millisecond})
	m.Add(9, fbdt.Priority{Urgency: -1}, 1000) // control messages do not count
	m.Add(7, fbdt.Priority{Order: 2}, 3000)
	m.Add(3, fbdt.Priority{Order: 1}, 3000) // before stream 7 for the receiver
	for i := range 7 {
		if g, ok := m.Next(0, 0); !ok || g.Number != uint64(i) {
			t.Fatalf("segment %d: %+v, %v", i, g, ok)
		}
	}
	step := func(segment uint64, buffered int64) {
		t.Helper()
		m.Acked(segment, 0)
		if m.buffered != buffered {
			t.Errorf("segment %d delivered: %d bytes behind a gap, want %d", segment, m.buffered, buffered)
		}
	}
	step(0, 0)    // control
	step(4, 1000) // stream 7
	step(3, 2000) // the end of stream 3
	step(1, 2000) // its beginning
	step(2, 1000) // closes its gap
	m.Truncate(3, 3000)
	if m.buffered != 0 {
		t.Errorf("stream 3 complete: %d bytes behind a gap", m.buffered)
	}
	m.SetPath(0, fbdt.Estimate{Down: true})
	if g, ok := m.Next(1, 0); !ok || !g.Copy {
		t.Fatalf("no copy: %+v, %v", g, ok)
	}
	step(6, 1000)
	step(5, 0)
	f := m.mark()
	if want := (figures{delivered: 6000, repeated: 1000, peak: 2000}); f != want {
		t.Errorf("%+v, want %+v", f, want)
	}
	if f = m.mark(); f.peak != 0 {
		t.Errorf("peak %d after a mark", f.peak)
	}
}

func TestResult(t *testing.T) {
	list, err := scenarios("")
	if err != nil {
		t.Fatal(err)
	}
	r := Result{Scenarios: list}
	run := func(part, scenario, contender string, v, waste float64) {
		m := Measurement{
			Part: part, Scenario: scenario, Contender: contender, Mbps: v, Waste: waste,
			at: []float64{1, 2}, total: []int64{1e6, 3e6},
		}
		if part != throughputPart {
			d := deliveryOf([]float64{v}, 0)
			m.Mbps, m.Delivery = 40, &d
		}
		r.Runs = append(r.Runs, m)
	}
	for _, s := range []string{static, mobile} {
		run(throughputPart, s, "quic wifi", 40, 0)
		run(throughputPart, s, "quic mmwave", 100, 0)
		run(throughputPart, s, "mptcp cubic", 70, 0)
	}
	run(throughputPart, static, ours, 140, 0.01)
	run(throughputPart, mobile, ours, 133, 0.03)
	for i, s := range []string{rates, rtts} {
		k := float64(1 + i)
		run(windowsPart, s, "quic wifi", 90*k, 0)
		run(windowsPart, s, "quic "+map[string]string{rates: "mmwave", rtts: "cellular"}[s], 30*k, 0)
		run(windowsPart, s, "mptcp bbr", 50*k, 0)
		run(windowsPart, s, "mptcp cubic", 60*k, 0)
		run(windowsPart, s, "minrtt", 40*k, 0)
		run(windowsPart, s, paper, 35*k, 0)
		run(windowsPart, s, ours, 20*k, 0)
	}
	run(smallPart, loss, "quic wifi", 12, 0)
	run(smallPart, loss, "quic mmwave", 30, 0)
	run(smallPart, loss, duplicate, 10, 0.98)
	run(smallPart, loss, ours, 11, 0.02)
	r.summarize()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		SumRatio map[string]float64 `json:"sum_ratio"`
		Windows  map[string]float64 `json:"window_p95_ms"`
		Waste    float64            `json:"waste"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.SumRatio[static] != 1 || got.SumRatio[mobile] != 0.95 || len(got.SumRatio) != 2 || got.Waste != 0.03 {
		t.Errorf("%+v", got)
	}
	for name, want := range map[string]float64{ours: 40, paper: 70, "mptcp": 100, "minrtt": 80, "single": 60} {
		if got.Windows[name] != want {
			t.Errorf("windows, %s: %g ms, want %g", name, got.Windows[name], want)
		}
	}
	md := r.Markdown()
	for _, want := range []string{
		"| throughput, mobile | 95.0 % of the sum |", "| ours | 133.0 | 95.0 % |", coursePlot, windowsPlot,
		"| LoS (6.2) | 0.83", "| small, loss | 12 / 12 | 10 / 10 | 11 / 11 | 98 | 2.0 |",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("the report lacks %q:\n%s", want, md)
		}
	}
	dir := t.TempDir()
	if err := r.SavePlots(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{coursePlot, windowsPlot} {
		if svg, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Contains(svg, []byte("<svg")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestContenders(t *testing.T) {
	list, err := scenarios("")
	if err != nil {
		t.Fatal(err)
	}
	for _, quick := range []bool{false, true} {
		for _, l := range loads(Options{Quick: quick}) {
			seen := map[string]bool{}
			for _, c := range contenders(list[0], l, quick) {
				if seen[c.name] {
					t.Errorf("%s: %s twice", l.part, c.name)
				}
				seen[c.name] = true
				known := c.name == ours || c.name == paper || schedulers.New(c.name, fbdt.Options{}) != nil
				if known != (c.kind == kindBundle) {
					t.Errorf("%s is a bundle: %v", c.name, c.kind == kindBundle)
				}
			}
			others := []string{paper, "minrtt", "mptcp bbr"}
			if l.part == smallPart || l.part == largePart {
				others = []string{duplicate}
			}
			for _, want := range append(others, ours, "quic wifi", "quic mmwave") {
				if !seen[want] {
					t.Errorf("%s, quick %v: no %s", l.part, quick, want)
				}
			}
		}
	}
	_, err = Run(t.Context(), Options{Parts: []string{"speed"}})
	if err == nil || !strings.Contains(err.Error(), "speed") {
		t.Errorf("part speed: %v", err)
	}
}
