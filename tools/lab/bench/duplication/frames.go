package duplication

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"holocast/internal/qoe"
)

// frame is a frame displayed by the player. Times are relative to the end of the warm-up.
type frame struct {
	sequence        uint32
	captured, shown time.Duration
	points, bytes   int
}

// readFrames reads the player's frame list and skips repeated frames. Player and capture server share
// one machine's clock, so differences are exact.
func readFrames(r io.Reader, begun time.Time) ([]frame, error) {
	var frames []frame
	seen := map[uint32]bool{}
	lines := bufio.NewScanner(r)
	if !lines.Scan() {
		return nil, fmt.Errorf("read the frame list: %w", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
	}
	for lines.Scan() {
		var camera, captured, arrived, shown int64
		var f frame
		_, err := fmt.Sscanf(lines.Text(), "%d,%d,%d,%d,%d,%d,%d", &camera, &f.sequence, &captured, &arrived, &shown,
			&f.points, &f.bytes)
		if err != nil {
			return nil, fmt.Errorf("frame list: %q: %w", lines.Text(), err)
		}
		if seen[f.sequence] {
			continue
		}
		seen[f.sequence] = true
		f.captured, f.shown = time.UnixMicro(captured).Sub(begun), time.UnixMicro(shown).Sub(begun)
		frames = append(frames, f)
	}
	return frames, lines.Err()
}

// Quantiles of frame delays in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// shownFrames summarizes frames.
type shownFrames struct {
	fps             float64
	delay           Quantiles
	points, bytes   float64 // mean per frame
	frames, skipped int     // skipped sequence numbers between the first and the last
}

// sum summarizes the frames displayed between from and to.
func sum(frames []frame, from, to time.Duration) (s shownFrames) {
	var delays []float64
	low, high := uint32(math.MaxUint32), uint32(0)
	for _, f := range frames {
		if f.shown < from || f.shown >= to {
			continue
		}
		delays = append(delays, ms(f.shown-f.captured))
		s.points += float64(f.points)
		s.bytes += float64(f.bytes)
		low, high = min(low, f.sequence), max(high, f.sequence)
	}
	if s.frames = len(delays); s.frames == 0 {
		return s
	}
	slices.Sort(delays)
	n := float64(s.frames)
	s.fps = n / (to - from).Seconds()
	s.points, s.bytes = s.points/n, s.bytes/n
	s.delay = Quantiles{quantile(delays, 0.5), quantile(delays, 0.95), quantile(delays, 0.99)}
	s.skipped = int(high-low) + 1 - s.frames
	return s
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// quantile returns a quantile of sorted values by nearest rank, or 0 if there are none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Series holds the figures of one run over time.
type Series struct {
	T     []float64 `json:"t"`              // seconds; end of the interval
	FPS   []float64 `json:"fps"`            // frames displayed in the preceding second
	Delay []float64 `json:"frame_delay_ms"` // mean over the preceding second; 0 if there are no frames
	Mbps  []float64 `json:"throughput_mbps"`
	Paths []float64 `json:"paths"` // bytes sent over all paths per byte to send
}

// series returns a run's figures in one-second steps.
func series(frames []frame, counted []traffic, length time.Duration) (s Series) {
	const window = time.Second
	for t := window; t <= length; t += window {
		n, delay := 0, 0.0
		for _, f := range frames {
			if f.shown >= t-window && f.shown < t {
				n++
				delay += ms(f.shown - f.captured)
			}
		}
		if n > 0 {
			delay /= float64(n)
		}
		d := difference(counted, t-window, t)
		s.T = append(s.T, t.Seconds())
		s.FPS = append(s.FPS, float64(n)/window.Seconds())
		s.Delay = append(s.Delay, qoe.Round(delay, 2))
		s.Mbps = append(s.Mbps, qoe.Round(d.mbps(), 2))
		s.Paths = append(s.Paths, qoe.Round(d.cost(), 3))
	}
	return s
}
