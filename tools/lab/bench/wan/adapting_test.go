package wan

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/pointcloud"
	"holocast/internal/quiccc"
	"holocast/internal/ratecontrol"
)

// sizes holds the bytes of a frame's map, depth and color.
type sizes [3]int

// ladder holds the sizes of each camera's frames at the quantizers ratecontrol.MinQP, MinQP + rung and so
// on.
type ladder [cameras][group][]sizes

const rung = 4

// ladderOf encodes a group of each camera at every quantizer of a ladder.
func ladderOf(ctx context.Context, from []*sequence) (l ladder, err error) {
	for i, s := range from {
		var coders []*videoCoder
		for qp := ratecontrol.MinQP; qp <= ratecontrol.MaxQP; qp += rung {
			c, err := newVideoCoder(s.rays.Width, s.rays.Height, qp, qp)
			if err != nil {
				return l, err
			}
			defer c.close()
			coders = append(coders, c.(*videoCoder))
		}
		s.restart(uint64(i))
		var g pointcloud.Grid
		for k := range group {
			if _, err := s.capture(k, &g); err != nil {
				return l, err
			}
			for _, c := range coders {
				if _, err := c.encode(nil, &g); err != nil {
					return l, err
				}
				l[i][k] = append(l[i][k], c.encoder.Sizes())
			}
			if err := ctx.Err(); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// imagined returns a ladder of frames whose pictures halve every 6 quantizer steps, with key frames five
// times as large.
func imagined() (l ladder) {
	for i := range l {
		for k := range l[i] {
			for qp := float64(ratecontrol.MinQP); qp <= ratecontrol.MaxQP; qp += rung {
				size := 8000 * math.Exp2((20-qp)/6)
				if k == 0 {
					size *= 5
				}
				l[i][k] = append(l[i][k], sizes{3000, int(size / 2), int(size / 2)})
			}
		}
	}
	return l
}

// size returns the bytes of a picture at a quantizer, interpolated between rungs.
func (l *ladder) size(camera, k, picture, qp int) int {
	steps := l[camera][k]
	i := (qp - ratecontrol.MinQP) / rung
	low, high := steps[i][picture], steps[min(i+1, len(steps)-1)][picture]
	part := float64((qp-ratecontrol.MinQP)%rung) / rung
	return int(float64(low) * math.Pow(float64(max(high, 1))/float64(max(low, 1)), part))
}

// adapting sizes frames like capture-server --bitrate: ratecontrol divides a bit rate, which follows the path,
// among the cameras.
type adapting struct {
	ladder       ladder
	control      *ratecontrol.Controller
	target       *ratecontrol.Target
	depth, color [cameras]*ratecontrol.Stream
	session      *moqt.Session
	began        time.Time
	updated      time.Duration

	mu   sync.Mutex
	sent []sentFrame
}

type sentFrame struct {
	at   time.Duration
	bits int
}

// sendAdapting sends frames over a path in fake time and returns what each camera's viewer shows.
func sendAdapting(t *testing.T, l ladder, p path, duration time.Duration) (*adapting, [][]sample) {
	t.Helper()
	const limit = 1e6 * homeTarget
	r := &adapting{ladder: l, control: ratecontrol.New(limit, fps, fps/group), target: ratecontrol.NewTarget(limit)}
	for i := range cameras {
		r.depth[i], r.color[i] = r.control.Add(0), r.control.Add(0)
	}
	s := stream{objects: make([][][]byte, cameras), group: group, stagger: group / cameras, live: r.next}
	return r, deliver(t, p, s, duration, func(s *moqt.Session) { r.session, r.began = s, time.Now() })
}

// next returns a frame of the right size.
func (r *adapting) next(camera, k int) []byte {
	now := time.Since(r.began)
	k %= group
	if now-r.updated >= 100*time.Millisecond { // as the capture server
		r.updated = now
		st := r.session.Stats()
		r.control.SetTarget(r.target.Update(now, ratecontrol.Path{
			RTT: st.RTT, MinRTT: st.MinRTT, Bandwidth: 8 * st.Path.Bandwidth, Delivered: 8 * float64(st.Path.Delivered),
			Limited: !st.Path.AppLimited,
		}))
	}
	key := k == 0
	depth, color := r.depth[camera].QP(now, key), r.color[camera].QP(now, key)
	of := sizes{
		r.ladder.size(camera, k, 0, depth), r.ladder.size(camera, k, 1, depth), r.ladder.size(camera, k, 2, color),
	}
	r.depth[camera].Sent(now, key, depth, 8*of[1], 8*of[0])
	r.color[camera].Sent(now, key, color, 8*of[2], 0)
	n := of[0] + of[1] + of[2]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, sentFrame{now, 8 * n})
	return make([]byte, n)
}

// mbps returns the bit rate sent between two times.
func (r *adapting) mbps(from, to time.Duration) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	bits := 0
	for _, f := range r.sent {
		if f.at >= from && f.at < to {
			bits += f.bits
		}
	}
	return float64(bits) / 1e6 / (to - from).Seconds()
}

// back returns the seconds from a time to the first second with 9/10 of the given bit rate; −1 if none has.
func (r *adapting) back(from, to time.Duration, mbps float64) float64 {
	for at := from; at+time.Second <= to; at += time.Second / fps {
		if r.mbps(at, at+time.Second) >= 0.9*mbps {
			return (at - from).Seconds()
		}
	}
	return -1
}

// halvedAndBack is a path whose rate halves at fall and returns at rise.
func halvedAndBack(fall, rise int) path {
	return path{rates: []step{{0, homeRate}, {fall, homeRate / 2}, {rise, homeRate}}}
}

func figuresOf(shown [][]sample, from, to time.Duration) (run PathRun) {
	run.figures(shown, from, to, 0)
	return run
}

// TestRateInFakeTime checks that four cameras do not freeze when the path's rate halves, and use the rate
// again soon after it returns.
func TestRateInFakeTime(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("needs quic-go as patched by tools/quicpatch (make build)")
	}
	const fall, rise, end = 4 * time.Second, 7 * time.Second, 11 * time.Second
	r, shown := sendAdapting(t, imagined(), halvedAndBack(4, 7), end)
	run, before := figuresOf(shown, warmup, end), r.mbps(2*time.Second, fall)
	back := r.back(rise, end, before)
	t.Logf("%.1f, %.1f and %.1f Mbit/s, back after %.1f s; %.1f frames/s, delay %.0f / %.0f ms, longest %.0f ms", before,
		r.mbps(fall+time.Second, rise), r.mbps(rise+2*time.Second, end), back, run.FPS, run.DelayP50, run.DelayP95,
		run.LongestMs)
	if run.LongestMs > 300 {
		t.Errorf("%.0f ms without a frame", run.LongestMs)
	}
	if back < 0 || back > 2 {
		t.Errorf("back after %.1f s", back)
	}
}

// adaptingPage describes sessions whose rate follows the path, a minute of loss among them.
func adaptingPage(t *testing.T, from []*sequence) string {
	l, err := ladderOf(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	const minutes = 3 // equal but for the order of goroutines
	var b strings.Builder
	fmt.Fprintf(&b, `
## With rate control

Frames of the sizes that a bit rate of %d Mbit/s for the four cameras asks for, as with
`+"`capture-server --bitrate %dM`"+`: the sizes of a second of each camera, encoded with quantizers %d to %d in steps
of %d, repeat and are interpolated. The bit rate follows the path as in the capture server: it falls while key frames
fill the queue, and while congestion control, which takes a lasting loss of 2 %% for a full path, sends less than the
cameras. Key frames are staggered. Freezes are counted over all cameras.

### A minute with loss

60 s after the first second, on the path of 20 Mbit/s, %d times.

`, homeTarget, homeTarget, ratecontrol.MinQP, ratecontrol.MaxQP, rung, minutes)
	row(&b, []string{
		"packets lost", "Mbit/s sent", "frames/s", "delay p50 / p95 ms", "freezes ≥ 200 / 300 ms", "longest ms",
	})
	row(&b, append([]string{"---:"}, right(5)...))
	for _, loss := range []float64{0, 0.5, 2} {
		for range minutes {
			const end = 61 * time.Second
			r, shown := sendAdapting(t, l, path{rates: []step{{0, homeRate}}, loss: loss}, end)
			row(&b, append([]string{fmt.Sprintf("%g %%", loss)}, r.cells(shown, warmup, end)...))
		}
	}
	const fall, rise, end = 15, 30, 45
	r, shown := sendAdapting(t, l, halvedAndBack(fall, rise), end*time.Second)
	before := r.mbps(5*time.Second, fall*time.Second)
	fmt.Fprintf(&b, `
### Half the rate, and back

One session. The path's rate is %d Mbit/s, falls to %d at %d s and returns to %d at %d s. From %.1f s after the return,
the cameras send 9/10 of their former bit rate again.

`, homeRate, homeRate/2, fall, homeRate, rise,
		r.back(rise*time.Second, end*time.Second, before))
	row(&b, []string{
		"seconds", "path", "Mbit/s sent", "frames/s", "delay p50 / p95 ms", "freezes ≥ 200 / 300 ms", "longest ms",
	})
	row(&b, append([]string{"---"}, right(6)...))
	for _, part := range []struct {
		from, to int
		path     string
	}{
		{1, fall, "20"},
		{fall, fall + 2, "falls to 10"},
		{fall + 2, rise, "10"},
		{rise, rise + 2, "returns to 20"},
		{rise + 2, end, "20"},
		{1, end, "all"},
	} {
		row(&b, append([]string{fmt.Sprintf("%d–%d", part.from, part.to), part.path},
			r.cells(shown, time.Duration(part.from)*time.Second, time.Duration(part.to)*time.Second)...))
	}
	return b.String()
}

func (r *adapting) cells(shown [][]sample, from, to time.Duration) []string {
	run := figuresOf(shown, from, to)
	return []string{
		fmt.Sprintf("%.1f", r.mbps(from, to)), fmt.Sprintf("%.1f", run.FPS),
		fmt.Sprintf("%.0f / %.0f", run.DelayP50, run.DelayP95), fmt.Sprintf("%d / %d", run.Freezes200, run.Freezes300),
		fmt.Sprintf("%.0f", run.LongestMs),
	}
}
