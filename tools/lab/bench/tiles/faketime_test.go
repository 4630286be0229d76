package tiles

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/gazetrace"
	"holocast/internal/moqt"
	"holocast/internal/quiccc"
	"holocast/internal/sessiontest/fakepath"
	"holocast/tools/holocast/player/sphere"
	"holocast/tools/holocast/player/sphere/spheretest"
	"holocast/tools/lab/bench/internal/direct"
)

var recordings = flag.String("recordings", "",
	"page to write on viewings of the recordings in HOLOCAST_DATA, in fake time")

// inFakeTime runs a session without delays caused by the machine: viewer, publisher and QUIC run
// unmodified in a synctest bubble over a simulated path.
//
// after is the time that the viewer runs before the path starts to follow net.
func inFakeTime(t *testing.T, after time.Duration, film spheretest.Film, tr trace, net network, scheme string,
	percentile float64, gops int,
) (report sphere.Report) {
	t.Helper()
	fakepath.Test(t, func(t *testing.T) {
		path := fakepath.New(
			fakepath.Direction{
				Rate:  func(s int) float64 { return max(leastMbit*1e6/8, net.at(float64(s))) },
				Delay: sessionDelay, Queue: sessionQueue,
			},
			fakepath.Direction{Rate: func(int) float64 { return 20e6 / 8 }, Delay: sessionDelay, Queue: sessionQueue})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		ns := moqt.Namespace{"holocast", "bench"}
		publisher, err := spheretest.New(ns, film)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 2)
		running.Go(func() { failed <- publisher.Run(ctx) })
		time.Sleep(2200 * time.Millisecond) // GoP rates are known once the GoPs have ended
		s, _ := path.Connect(t, moqt.Handler{}, publisher.Set.Handler())
		cat, err := readCatalog(ctx, s, ns)
		if err != nil {
			t.Fatal(err)
		}
		v, err := sphere.New(sphere.Config{
			Head: tr.head.At, Crowd: tr.crowd, Viewport: fieldOfView, Scheme: scheme,
			Percentile: percentile, Log: direct.Quiet.Log,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		v.Configure(cat, func(track catalog.Track) moqt.TrackName {
			return moqt.TrackName{
				Namespace: ns,
				Name:      track.Name,
			}
		})
		time.AfterFunc(after, path.Begin)
		running.Go(func() { failed <- v.Play(ctx, s) })
		limit := time.Now().Add(time.Duration(gops+20) * time.Second)
		for ; v.Report().GOPs < gops; time.Sleep(50 * time.Millisecond) {
			select {
			case err := <-failed:
				t.Fatalf("session ended: %v", err)
			default:
			}
			if time.Now().After(limit) {
				break
			}
		}
		report = v.Report()
	})
	return report
}

// streams encodes a synthetic clip as frames of the right sizes without content.
func streams(c *clip) {
	config := []byte{1, 0x42, 0xc0, 0x1e, 0xff, 0xe1, 0, 4, 0x67, 0x42, 0xc0, 0x1e, 1, 0, 2, 0x68, 0xce}
	of := func(bytes func(gop int) float64) stream {
		s := stream{config: config}
		for g := range c.gops {
			for range fps {
				s.frames = append(s.frames, make([]byte, int(bytes(g)/fps)))
			}
		}
		return s
	}
	c.lowWidth, c.lowHeight = c.grid.Width/4, c.grid.Height/4
	c.encodedLow = of(func(g int) float64 { return c.video[g] })
	for t := range c.grid.Tiles() {
		var tile []stream
		for q := range c.qualities {
			tile = append(tile, of(func(g int) float64 { return c.gops[g].Bytes[t*c.qualities+q] }))
		}
		c.encoded = append(c.encoded, tile)
	}
}

// Over paths below the whole sphere's rate, our scheme does not stall, and its image quality is
// better than that of other schemes.
func TestViewingsInFakeTime(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("needs quic-go as patched by tools/quicpatch (make build)")
	}
	c := synthetic()
	streams(c)
	h := head()
	tr := newTrace("test", h, gazetrace.Crowd([]gazetrace.Trace{h, h}, 10), c.grid, 1)
	const gops = 12
	for _, net := range []network{
		{"steady", []float64{200_000}},
		{"falls", append(seconds(5, 250_000), seconds(15, 70_000)...)},
		{"falls and rises", append(append(seconds(4, 250_000), seconds(3, 100_000)...), seconds(13, 250_000)...)},
	} {
		t.Run(net.name, func(t *testing.T) {
			ours := inFakeTime(t, 0, c.film(), tr, net, Ours, 0, gops)
			t.Logf("%s: %v", Ours, ours)

			// Tolerate a few stalls: the number of late frames after a drop in rate depends on the
			// order of goroutines.
			if ours.GOPs < gops || ours.StallRatio > 0.02 {
				t.Errorf("%d GoPs, %.1f %% stalls", ours.GOPs, 100*ours.StallRatio)
			}
			for _, name := range []string{Whole, Viewport, Fixed, Paper} {
				r := inFakeTime(t, 0, c.film(), tr, net, name, 0, gops)
				t.Logf("%s: %v", name, r)
				if r.GOPs < gops {
					t.Errorf("%s: %d GoPs", name, r.GOPs)
				}
				if r.PSNRMean >= ours.PSNRMean {
					t.Errorf("%s shows %.2f dB, ours %.2f dB", name, r.PSNRMean, ours.PSNRMean)
				}
			}
		})
	}
}

// fall is a drop of the rate to part of its value for some seconds, followed by a recovery.
type fall struct {
	name    string
	part    float64 // 0 = an outage
	seconds int
}

var falls = []fall{
	{"to a half for 5 s", 1. / 2, 5},
	{"to a third for 5 s", 1. / 3, 5},
	{"to a fifth for 5 s", 1. / 5, 5},
	{"to a tenth for 5 s", 1. / 10, 5},
	{"outage of 1 s", 0, 1},
	{"outage of 3 s", 0, 3},
}

const (
	fallBegins = 6
	fallGOPs   = 14
)

// network returns a path whose rate, in bytes per second, drops and recovers.
func (f fall) network(rate float64) network {
	return network{f.name, append(append(seconds(fallBegins, rate), seconds(f.seconds, max(rate*f.part,
		leastMbit*1e6/8))...), seconds(20, rate)...)}
}

// The path's rate drops after the viewer has requested tiles for the higher rate. The
// low-resolution sphere must still arrive in time, ahead of retransmitted tiles, and the viewport's
// PSNR must be better than if the whole sphere were sent.
func TestFallsInFakeTime(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("needs quic-go as patched by tools/quicpatch (make build)")
	}
	c := synthetic()
	streams(c)
	h := head()
	tr := newTrace("test", h, gazetrace.Crowd([]gazetrace.Trace{h, h}, 10), c.grid, 1)
	for _, f := range falls {
		t.Run(f.name, func(t *testing.T) {
			var stall, psnr [2]float64
			for i, scheme := range []string{Ours, Whole} {
				for _, after := range []time.Duration{0, 500 * time.Millisecond} {
					r := inFakeTime(t, after, c.film(), tr, f.network(250_000), scheme, 0, fallGOPs)
					t.Logf("%s: %v", scheme, r)
					stall[i] += r.StallRatio / 2
					psnr[i] += r.PSNRMean / 2
				}
			}

			// Tolerate a few stalls: the number of late frames depends on the order of goroutines.
			if most := stall[1] + 0.05; f.part == 0 && stall[0] > most || f.part > 0 && stall[0] > 0.04 {
				t.Errorf("%.1f %% stalls, %.1f %% where the whole sphere is sent", 100*stall[0], 100*stall[1])
			}
			least := psnr[1]
			if f.part > 0 {
				least += 0.5
			}
			if psnr[0] <= least {
				t.Errorf("%.2f dB, %.2f dB where the whole sphere is sent", psnr[0], psnr[1])
			}
		})
	}
}

// TestRecordingsInFakeTime runs the sessions of `holocast-lab bench tiles --parts sessions`, and
// longer ones, without delays caused by the machine.
func TestRecordingsInFakeTime(t *testing.T) {
	data := os.Getenv("HOLOCAST_DATA")
	if *recordings == "" || data == "" {
		t.Skip("needs -recordings FILE and HOLOCAST_DATA")
	}
	set := setupOf(false)
	heads, err := gazetrace.Open(filepath.Join(data, "head_traces", "all_10hz.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	nets, err := networks(filepath.Join(data, "network_traces"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := measure(t.Context(), sources(filepath.Join(data, "video360"))[0], set.crfs, set.videoCRF, set.seconds)
	if err != nil {
		t.Fatal(err)
	}
	film := c.film()
	var b strings.Builder
	fmt.Fprintf(&b, "# tiles in fake time\n\nThe real sessions of [tiles](tiles.md) without delays by the machine: "+
		"publisher, viewer and QUIC run unmodified in the time of Go's `testing/synctest` over a simulated path, so "+
		"a busy machine changes "+
		"nothing. The order of simultaneous events still differs from run to run. Where a trace carries nothing, "+
		"the path carries 0.05 Mbit/s, enough for the low-resolution sphere and its packets' headers. "+
		"The head movements were recorded with other videos than the clip, so where people look is unrelated to its "+
		"content.\n\n"+
		"Measured by `go test ./tools/lab/bench/tiles -run TestRecordingsInFakeTime "+
		"-recordings FILE` on %s.\n",
		time.Now().UTC().Format("2006-01-02"))
	for _, s := range []int{set.sessionGOPs, set.watched} {
		set.sessionGOPs = s
		r, err := viewings(t.Context(), t.Output(), set, c, watchers(heads, c, set), nets,
			func(tr trace, net network, scheme string, percentile float64) (sphere.Report, int, error) {
				return inFakeTime(t, 0, film, tr, net, scheme, percentile, s), 0, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n## %d s\n\n%d head movements × %d networks. In the traces' first %d s the path carries", s,
			r.Heads, r.Networks, s)
		for n, net := range nets[:r.Networks] {
			scaled := net.scaled(2*c.bytes(c.qualities/2), s)
			fmt.Fprintf(&b, "%s %.2f to %.2f Mbit/s (%s)", map[bool]string{true: "", false: ","}[n == 0],
				max(leastMbit, 8e-6*slices.Min(scaled.rate[:s])), 8e-6*slices.Max(scaled.rate[:s]), net.name)
		}
		b.WriteString(".\n\n")
		r.tables(&b)
	}
	writeFalls(t, &b, film, watchers(heads, c, set)[:set.sessionHeads], 2*c.bytes(c.qualities/2))
	err = os.WriteFile(*recordings, []byte(b.String()), 0o644) //nolint:gosec // a page of the documentation
	if err != nil {
		t.Fatal(err)
	}
}

// writeFalls writes a table of results over paths whose rate, in bytes per second, drops and
// recovers.
func writeFalls(t *testing.T, b *strings.Builder, film spheretest.Film, traces []trace, rate float64) {
	t.Helper()
	fmt.Fprintf(b, "\n## Falls of the rate\n\n%d head movements × 14 s. The path carries %.2f Mbit/s, falls after "+
		"%d s, each viewing's at another moment of a GoP, and rises again.\n\n",
		len(traces), 8e-6*rate, fallBegins)
	b.WriteString("| fall | ours: stalls | whole sphere: stalls | ours: viewport PSNR mean | whole sphere: mean | " +
		"gain, median |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, f := range falls {
		var stall, psnr [2]float64
		var gain []float64
		for h, tr := range traces {
			var each [2]float64
			for i, scheme := range []string{Ours, Whole} {
				r := inFakeTime(t, time.Duration(h)*time.Second/time.Duration(len(traces)), film, tr, f.network(rate),
					scheme, 0, fallGOPs)
				t.Logf("%s, %s: %v", f.name, scheme, r)
				stall[i] += r.StallRatio / float64(len(traces))
				psnr[i] += r.PSNRMean / float64(len(traces))
				each[i] = r.PSNRMean
			}
			gain = append(gain, each[0]-each[1])
		}
		slices.Sort(gain)
		fmt.Fprintf(b, "| %s | %.2f %% | %.2f %% | %.2f dB | %.2f dB | %+.2f dB |\n", f.name, 100*stall[0],
			100*stall[1], psnr[0], psnr[1],
			(gain[(len(gain)-1)/2]+gain[len(gain)/2])/2)
	}
}
