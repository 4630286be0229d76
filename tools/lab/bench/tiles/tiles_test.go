package tiles

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holocast/internal/gazetrace"
	"holocast/internal/tile360"
)

// synthetic returns a clip whose tiles are all alike.
func synthetic() *clip {
	c := &clip{
		name: "synthetic", grid: tile360.Grid{Columns: columns, Rows: rows, Width: 1920, Height: 960},
		qualities: 3,
	}
	mse := []float64{60, 25, 8, 250, 14000} // by quality, then the low-resolution sphere, then black
	for range 4 {
		g := tile360.GoP{Duration: 1}
		var black []float64
		for range c.grid.Tiles() {
			g.Miss = append(g.Miss, mse[3])
			g.Bytes = append(g.Bytes, 1500, 3500, 9000)
			g.Distortion = append(g.Distortion, mse[:3]...)
			black = append(black, mse[4])
		}
		c.gops, c.black, c.video = append(c.gops, g), append(c.black, black), append(c.video, 5000)
	}
	for _, e := range mse {
		var slots [][]float32
		for range len(c.gops) * slotsPerS {
			s := make([]float32, cells)
			for i := range s {
				s[i] = float32(e)
			}
			slots = append(slots, s)
		}
		c.errors = append(c.errors, slots)
	}
	return c
}

// head turns left and right.
func head() gazetrace.Trace {
	var t gazetrace.Trace
	for i := range 300 {
		at := float64(i) / 10
		yaw := at * 0.4
		if i/50%2 == 1 {
			yaw = -yaw
		}
		t.Samples = append(t.Samples, tile360.Sample{T: at, Gaze: tile360.Direction(yaw, 0.2)})
	}
	return t
}

func TestSimulatedSchemes(t *testing.T) {
	c := synthetic()
	h := head()
	tr := newTrace("test", h, gazetrace.Crowd([]gazetrace.Trace{h, h}, 10), c.grid, 20)
	net := network{"steady", []float64{100_000, 80_000, 120_000, 60_000, 100_000, 140_000}}
	ours := figures([]outcome{simulate(c, net, tr, compared(Ours, 10), 20, nil, false)})
	for _, name := range Schemes() {
		o := simulate(c, net, tr, compared(name, 10), 20, nil, false)
		f := figures([]outcome{o})
		if len(o.psnr) != 20*slotsPerS || f.Stall != 0 || f.Wasted < 0 || f.Wasted > 1 || f.Hits < 0 ||
			f.Hits > 1+1e-6 {
			t.Errorf("%s: %d slots, %+v", name, len(o.psnr), f)
		}
		if name != Ours && f.PSNRMean >= ours.PSNRMean {
			t.Errorf("%s shows %.2f dB, ours %.2f dB", name, f.PSNRMean, ours.PSNRMean)
		}
		most := 0.0
		for i := range 22 {
			most += net.at(float64(i))
		}
		if o.received > most {
			t.Errorf("%s received %.0f bytes of %.0f", name, o.received, most)
		}
	}

	// A network faster than every rate yields the best quality everywhere.
	wide := network{"wide", []float64{1e7}}
	for _, name := range []string{Ours, Whole} {
		f := figures([]outcome{simulate(c, wide, tr, compared(name, 10), 20, nil, false)})
		if f.PSNRP5 < tile360.PSNR(8)-0.01 {
			t.Errorf("%s over a wide network: %+v", name, f)
		}
	}

	// A network that stops causes a stall.
	gap := network{"gap", append(seconds(5, 100_000), seconds(3, 0)...)}
	if f := figures([]outcome{simulate(c, gap, tr, compared(Ours, 10), 20, nil, false)}); f.Stall == 0 {
		t.Errorf("three seconds without capacity: %+v", f)
	}
}

func seconds(n int, rate float64) (r []float64) {
	for range n {
		r = append(r, rate)
	}
	return r
}

func TestPaperSetting(t *testing.T) {
	c := synthetic()
	h := head()
	tr := newTrace("test", h, gazetrace.Crowd([]gazetrace.Trace{h}, 10), c.grid, 10)
	steps := paperSetting(c, network{"walking", []float64{3, 1, 2, 4}}, []trace{tr}, 10)
	if len(steps) != 7 {
		t.Fatalf("%d schemes", len(steps))
	}
	for i, name := range ConditionNames() {
		if mptcp, fbdt := steps[5].PSNR[i], steps[6].PSNR[i]; !(mptcp > tile360.PSNR(14000)) || fbdt < mptcp-0.1 {
			t.Errorf("%s: %.1f dB over what MPTCP carries, %.1f dB over more", name, mptcp, fbdt)
		}
	}
}

func TestOrderAndTransport(t *testing.T) {
	c := synthetic()
	h := head()
	tr := newTrace("test", h, gazetrace.Crowd([]gazetrace.Trace{h}, 10), c.grid, 10)
	all := orderAndTransport([]*clip{c}, [][]trace{{tr}}, []network{{"walking", []float64{3, 1, 2, 4}}}, 10)
	if len(all) != 4 {
		t.Fatalf("%d rows", len(all))
	}
	for _, x := range all {
		for i, name := range ConditionNames() {
			for _, psnr := range [][]float64{x.FixMPTCP, x.OWSMPTCP, x.FixFBDT, x.OWSFBDT} {
				if len(psnr) != len(ConditionNames()) || !(psnr[i] > 0) {
					t.Errorf("%s, %s: %v dB", x.Name, name, psnr)
				}
			}
		}
	}
	// With known rates and a fixed order, more rate gives more quality.
	for i, name := range ConditionNames() {
		if known := all[1]; known.FixFBDT[i] < known.FixMPTCP[i]-0.1 {
			t.Errorf("%s, rates known: %.1f dB on FBDT, %.1f on MPTCP", name, known.FixFBDT[i], known.FixMPTCP[i])
		}
	}
}

func TestBetween(t *testing.T) {
	n := network{"n", []float64{10, 20}}
	if b := n.between(0.5, 2.25); b != 5+20+2.5 {
		t.Errorf("%v bytes", b)
	}
}

func TestScaled(t *testing.T) {
	n := network{"n", []float64{1, 3}}
	if s := n.scaled(100, 2); s.at(0) != 50 || s.at(1.5) != 150 || s.at(2) != 50 {
		t.Errorf("scaled: %v", s.rate)
	}
}

func TestReadStream(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.h264")
	sps, pps := []byte{0x67, 0x42, 0xc0, 0x1e, 0x99}, []byte{0x68, 0xce, 0x38, 0x80}
	var b []byte
	for _, unit := range [][]byte{sps, pps, {0x06, 5, 1}, {0x65, 1, 2}, {0x41, 3}, sps, pps, {0x65, 4}} {
		b = append(append(b, 0, 0, 0, 1), unit...)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := readStream(file)
	if err != nil || len(s.frames) != 3 || !bytes.Equal(s.frames[1], []byte{0, 0, 0, 2, 0x41, 3}) ||
		len(s.config) == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if sizes, err := gopBytes(file); err != nil || len(sizes) != 2 {
		t.Errorf("GoPs %v, %v", sizes, err)
	}
}

func TestRunWithoutData(t *testing.T) {
	if _, err := Run(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "HOLOCAST_DATA") {
		t.Errorf("error %v", err)
	}
}
