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
	delay, correlations := delays(spoken, heard)
	r.Spoken, r.Heard, r.Spread = len(spoken), len(delay), ms(max(a, b))
	if len(delay) == 0 {
		return
	}
	r.P50, r.P95, r.P99 = ms(quantile.Of(delay, 0.5)), ms(quantile.Of(delay, 0.95)), ms(quantile.Of(delay, 0.99))
	r.Worst = ms(slices.Max(delay))
	r.SNR, r.SNRP5 = qoe.Round(snr(quantile.Of(correlations, 0.5)), 1), qoe.Round(snr(quantile.Of(correlations, 0.05)), 1)
}

func ms(d time.Duration) float64 { return qoe.Round(float64(d)/1e6, 1) }
