package sound

import (
	"slices"
	"time"

	"holocast/internal/qoe"
	"holocast/tools/lab/bench/internal/quantile"
)

// maxDelay is the delay from which a chirp counts as lost. It is below the shortest time between
// chirps.
const maxDelay = 600 * time.Millisecond

// delays pairs each heard chirp with the spoken one before it, and returns the pairs' delays and
// heard correlations.
func delays(spoken, heard []timed) (delay []time.Duration, correlations []float64) {
	used := -1
	for _, h := range heard {
		i, _ := slices.BinarySearchFunc(spoken, h.at, func(s timed, at time.Duration) int {
			if s.at <= at {
				return -1
			}
			return 1
		})
		if i--; i <= used || h.at-spoken[i].at >= maxDelay {
			continue
		}
		used = i
		delay = append(delay, h.at-spoken[i].at)
		correlations = append(correlations, h.correlation)
	}
	return delay, correlations
}

// compare computes the figures of two recordings.
func (r *Figures) compare(mouth, ear *recording) {
	spoken, a := mouth.chirps()
	heard, b := ear.chirps()
	r.Spoken, r.Spread = len(spoken), ms(max(a, b))
	r.delay, r.correlations = delays(spoken, heard)
	r.summarize()
}

// summarize computes the figures.
func (d *Delays) summarize() {
	if d.Heard = len(d.delay); d.Heard == 0 {
		return
	}
	of := func(q float64) float64 { return ms(quantile.Of(d.delay, q)) }
	d.P50, d.P95, d.P99, d.Worst = of(0.5), of(0.95), of(0.99), ms(slices.Max(d.delay))
	noise := func(q float64) float64 { return qoe.Round(snr(quantile.Of(d.correlations, q)), 1) }
	d.SNR, d.SNRP5 = noise(0.5), noise(0.05)
}

func ms(d time.Duration) float64 { return qoe.Round(float64(d)/1e6, 1) }
