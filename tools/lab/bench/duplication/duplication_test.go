package duplication

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name, parts, levels, modes, err string
	}{
		{"all", "", "nfov hd fhd", "[reference single redirect duplicate]", ""},
		{"a level", "hd", "hd", "[reference single redirect duplicate]", ""},
		{"a mode", "single", "nfov hd fhd", "[single]", ""},
		{"both, in the paper's order", "duplicate fhd reference nfov", "nfov fhd", "[reference duplicate]", ""},
		{"neither", "4k", "", "", `no part "4k"; want one of nfov, hd, fhd, reference, single, redirect, duplicate`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ls, ms, err := Options{Parts: strings.Fields(c.parts)}.choose()
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("error %v", err)
				}
				return
			}
			var names []string
			for _, l := range ls {
				names = append(names, l.name)
			}
			if got := strings.Join(names, " "); got != c.levels || fmt.Sprint(ms) != c.modes || err != nil {
				t.Errorf("%s, %v, %v", got, ms, err)
			}
		})
	}
}

// regularFrames returns a player's frame list: 30 frames per second for ten seconds, each shown
// delay after capture. Every tenth frame is missing.
func regularFrames(begun time.Time, delay time.Duration) string {
	var b strings.Builder
	b.WriteString("camera,sequence,captured_us,arrived_us,shown_us,points,bytes\n")
	for i := range 300 {
		if i%10 == 9 {
			continue
		}
		captured := begun.Add(time.Duration(i) * time.Second / fps)
		shown := captured.Add(delay)
		fmt.Fprintf(&b, "0,%d,%d,%d,%d,1000,50000\n", i, captured.UnixMicro(), shown.UnixMicro(), shown.UnixMicro())
	}
	return b.String()
}

func TestFrames(t *testing.T) {
	begun := time.Unix(1790000000, 0)
	frames, err := readFrames(strings.NewReader(regularFrames(begun, 40*time.Millisecond)), begun)
	if err != nil {
		t.Fatal(err)
	}
	s := sum(frames, 2*time.Second, 8*time.Second)
	if s.fps != 27 || s.frames != 162 || s.skipped != 17 && s.skipped != 18 || s.points != 1000 || s.bytes != 50000 {
		t.Errorf("%+v", s)
	}
	if d := s.delay; d.P50 < 39.9 || d.P99 > 40.1 {
		t.Errorf("delays %+v", d)
	}
	if s := sum(frames, time.Minute, 2*time.Minute); s.frames != 0 || s.fps != 0 {
		t.Errorf("summary without frames: %+v", s)
	}
	for text, want := range map[string]string{
		"":                "read the frame list: unexpected EOF",
		"camera\n0,1,2\n": `frame list: "0,1,2": unexpected EOF`,
	} {
		if _, err := readFrames(strings.NewReader(text), begun); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestQuantile(t *testing.T) {
	v := make([]float64, 100)
	for i := range v {
		v[i] = float64(i + 1)
	}
	for _, c := range []struct{ q, want float64 }{{0.5, 50}, {0.95, 95}, {0.99, 99}, {1, 100}, {0, 1}} {
		if got := quantile(v, c.q); got != c.want {
			t.Errorf("%v: %v", c.q, got)
		}
	}
}

// sampleTraffic returns ten seconds of traffic at 1 MB/s, which is duplicated from 5 s on.
func sampleTraffic() (list []traffic) {
	for i := range 41 {
		t := traffic{at: time.Duration(i) * time.Second / 4}
		t.entered = uint64(i) * 250_000
		t.delivered = t.entered
		t.paths[0] = t.entered
		if i > 20 {
			t.paths[1] = uint64(i-20) * 250_000
		}
		list = append(list, t)
	}
	return list
}

func TestTraffic(t *testing.T) {
	for _, c := range []struct {
		from, to   time.Duration
		cost, mbps float64
	}{
		{0, 10 * time.Second, 1.5, 8},
		{0, 5 * time.Second, 1, 8},
		{5 * time.Second, 10 * time.Second, 2, 8},
		{5100 * time.Millisecond, 10 * time.Second, 2, 8}, // uses the nearest readings
	} {
		if d := difference(sampleTraffic(), c.from, c.to); d.cost() != c.cost || d.mbps() != c.mbps {
			t.Errorf("%v to %v: cost %v, %v Mbit/s", c.from, c.to, d.cost(), d.mbps())
		}
	}
	if d := difference(nil, 0, time.Second); d.cost() != 0 || d.mbps() != 0 {
		t.Errorf("of nothing: %+v", d)
	}
}

// TestReorderedResult checks the report of both eliminations.
func TestReorderedResult(t *testing.T) {
	r := syntheticResult(t, Reordered)
	text := r.Markdown()
	for _, want := range []string{"| printed |", "| paths kept by the printed elimination | 1 and 2 | NFOV 1+2, HD 1+2, FHD 1+2 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// syntheticResult returns a result of invented runs.
func syntheticResult(t *testing.T, app App) *Result {
	t.Helper()
	begun := time.Unix(1790000000, 0)
	frames, err := readFrames(strings.NewReader(regularFrames(begun, 40*time.Millisecond)), begun)
	if err != nil {
		t.Fatal(err)
	}
	s := schedule{10 * time.Second, 2 * time.Second, 8 * time.Second}
	r := newResult(Options{App: app}, s)
	for _, l := range levels {
		for _, m := range app.modes() {
			x := newMeasurement(l.name, m, s, frames, sampleTraffic())
			x.Attempts = 1
			x.Processors = map[string]float64{"relay": 0.25, "network": 0.5}
			if m == Duplicate || m == Printed {
				x.Decisions = []Decision{
					{2.5, "start", []int{1, 2, 3, 4, 5}, "late"},
					{5, "trim", []int{1, 2}, "no rewards"},
					{9, "single", []int{1}, "enough"},
				}
				x.Rewards = []Rewards{{3, 100, map[int]int{1: 90, 2: 80}}, {4, 100, map[int]int{1: 100}}}
				x.Delays.T = []float64{1, 2}
				x.Delays.Ms[0] = []float64{20, 70}
				x.Delays.Ms[1] = []float64{0, 30}
			}
			r.add(l, x)
		}
	}
	return r
}

func TestResult(t *testing.T) {
	r := syntheticResult(t, Push)
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(r); err != nil {
		t.Fatal(err)
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(out.Bytes(), &whole); err != nil {
		t.Fatal(err)
	}
	for _, l := range levels {
		var x struct {
			FPS        map[string]float64 `json:"fps"`
			DelayP95   map[string]float64 `json:"frame_delay_ms_p95"`
			Throughput map[string]float64 `json:"throughput_mbps"`
			Cost       float64            `json:"cost"`
		}
		if err := json.Unmarshal(whole[l.name], &x); err != nil {
			t.Fatal(err)
		}
		if len(x.FPS) != 4 || len(x.DelayP95) != 4 || len(x.Throughput) != 4 || x.FPS["duplicate"] != 27 ||
			x.Cost != 1.5 {
			t.Errorf("%s: %+v", l.name, x)
		}
	}
	text := r.Markdown()
	for _, want := range []string{
		"| FPS with duplication | almost full at all levels | NFOV 27.0, HD 27.0, FHD 27.0 |",
		"NFOV 1+2", "| run | network | relay |", "| HD redirect | 0.50 | 0.25 |",
		"| 5.00 | trim | 1+2 | no rewards |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if y := r.run("nfov", Duplicate).firstDelays(); y[0] != 20 || y[1] != 30 {
		t.Errorf("first delays %v", y)
	}
	dir := t.TempDir()
	if err := r.SavePlots(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nfov", "hd", "fhd", "paths", "gain"} {
		info, err := os.Stat(filepath.Join(dir, "duplication-"+name+".png"))
		if err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWith(t *testing.T) {
	before := syntheticResult(t, Push)
	earlier, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	now := newResult(Options{}, schedule{length: 10 * time.Second})
	now.add(levels[2], &Measurement{Level: "fhd", Mode: Single, FPS: 3, Mbps: 1, Began: time.Date(2026, 1, 2, 3, 4, 5,
		0, time.UTC)})
	x, err := now.With(earlier)
	if err != nil {
		t.Fatal(err)
	}
	all, ok := x.(*Result)
	if !ok || len(all.Runs) != len(before.Runs) || all.FHD.FPS[Single] != 3 || all.FHD.Gain[Duplicate] != 8 ||
		all.NFOV.Cost != before.NFOV.Cost {
		t.Errorf("%d runs, %+v", len(all.Runs), all.FHD)
	}
	if !strings.Contains(all.Markdown(), "Start of the runs, UTC: FHD single 2026-01-02 03:04.") ||
		len(all.run("nfov", Duplicate).Decisions) != 3 {
		t.Error("merging lost earlier or new runs")
	}
	if _, err := newResult(Options{App: LiveScan}, schedule{length: 10 * time.Second}).With(earlier); err == nil ||
		!strings.Contains(err.Error(), "is for application push, not livescan") {
		t.Errorf("error %v", err)
	}
	if _, err := newResult(Options{}, full).With(earlier); err == nil || !strings.Contains(err.Error(),
		"10 s runs") {
		t.Errorf("error %v", err)
	}
}

func TestChooseApp(t *testing.T) {
	for _, c := range []struct {
		app   App
		parts string
		want  string
		err   string
	}{
		{Push, "", "[]", ""},
		{LiveScan, "", "[cubic bbr]", ""},
		{LiveScan, "nfov bbr", "[bbr]", ""},
		{Push, "bbr", "", `no part "bbr"; want one of nfov, hd, fhd, reference, single, redirect, duplicate`},
		{Uplink, "nfov single", "[]", ""},
		{Uplink, "redirect", "", `no part "redirect"; want one of nfov, hd, fhd, reference, single, duplicate`},
		{"web", "", "", `no application "web"; want one of [push livescan uplink reordered livescan-reordered]`},
		{Reordered, "fhd printed", "[]", ""},
		{LiveScanReordered, "printed bbr", "[bbr]", ""},
		{Push, "printed", "", `no part "printed"; want one of nfov, hd, fhd, reference, single, redirect, duplicate`},
	} {
		o := Options{App: c.app, Parts: strings.Fields(c.parts)}
		_, _, err := o.choose()
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s %q: error %v", c.app, c.parts, err)
			}
			continue
		}
		if got := fmt.Sprint(o.congestions()); err != nil || got != c.want {
			t.Errorf("%s %q: %s, %v", c.app, c.parts, got, err)
		}
	}
}

// syntheticLiveScan returns a LiveScan result of invented runs.
func syntheticLiveScan(t *testing.T, parts ...string) *Result {
	t.Helper()
	o := Options{App: LiveScan, Parts: parts}
	r := newResult(o, schedule{10 * time.Second, 2 * time.Second, 8 * time.Second})
	for _, c := range o.congestions() {
		for i, x := range syntheticResult(t, Push).Runs {
			x.FPS = map[Congestion]float64{Cubic: 10, BBR: 20}[c]
			r.of(c).add(levels[i/len(Modes)], x)
		}
	}
	return r
}

func TestLiveScanResult(t *testing.T) {
	r := syntheticLiveScan(t)
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		App        string                           `json:"app"`
		Congestion string                           `json:"congestion"`
		NFOV       struct{ FPS map[string]float64 } `json:"nfov"`
		BBR        struct {
			FHD struct{ FPS map[string]float64 }
		} `json:"bbr"`
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.App != "livescan" || got.Congestion != "cubic" || got.NFOV.FPS["single"] != 10 ||
		got.BBR.FHD.FPS["duplicate"] != 20 {
		t.Errorf("%+v", got)
	}
	text := r.Markdown()
	for _, want := range []string{
		"## The kernel's TCP with CUBIC", "## The kernel's TCP with BBR",
		"(duplication-livescan-cubic-nfov.png)", "(duplication-livescan-bbr-gain.png)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	dir := t.TempDir()
	if err := r.SavePlots(dir); err != nil {
		t.Fatal(err)
	}
	if list, err := filepath.Glob(dir + "/duplication-livescan-*.png"); err != nil || len(list) != 10 {
		t.Errorf("plots %v", list)
	}
}

func TestLiveScanWith(t *testing.T) {
	earlier, err := json.Marshal(syntheticLiveScan(t, "cubic"))
	if err != nil {
		t.Fatal(err)
	}
	x, err := syntheticLiveScan(t, "bbr").With(earlier)
	if err != nil {
		t.Fatal(err)
	}
	all, ok := x.(*Result)
	if !ok || all.Congestion != Cubic || all.BBR == nil || all.FHD.FPS[Single] != 10 || all.BBR.FHD.FPS[Single] != 20 {
		t.Errorf("%+v", all)
	}
}
