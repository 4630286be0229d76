// Package scale simulates clusters of many relays in fake time, with the tables of routes that relays use
// (relay/cluster): how soon all relays know a session, how often it crosses between regions, and how many
// viewers lack a picture while relays fail and regions are cut off.
package scale

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"holocast/internal/qoe"
	"holocast/tools/lab/bench/internal/quantile"
)

// Options configures a simulation.
type Options struct {
	Quick bool
	Log   io.Writer // progress
}

// Extent is the size of a simulated cluster.
type Extent struct {
	Relays   int     `json:"relays"`
	Regions  int     `json:"regions"`
	Sessions int     `json:"sessions"` // at random relays
	Viewers  int     `json:"viewers"`  // of each session, at random relays
	Churn    float64 `json:"churn"`    // share of the relays killed, and others started, per minute
	Seconds  float64 `json:"seconds"`  // of churn
	Cut      float64 `json:"cut_s"`    // for which a region is cut off
}

func extentOf(quick bool) Extent {
	if quick {
		return Extent{Relays: 120, Regions: 6, Sessions: 120, Viewers: 20, Churn: 0.05, Seconds: 60, Cut: 15}
	}
	return Extent{Relays: 1000, Regions: 10, Sessions: 1000, Viewers: 50, Churn: 0.01, Seconds: 60, Cut: 20}
}

// Result holds the figures of a simulation. Times are in milliseconds.
type Result struct {
	Extent
	AnnounceP50 float64 `json:"announce_ms_p50"` // until a relay knows a session announced elsewhere
	AnnounceMax float64 `json:"announce_ms_max"` // until all do
	StartMs     float64 `json:"start_ms"`        // until a relay that joins knows all sessions

	Copies       float64 `json:"copies"` // of a session received by a region with viewers other than its own, mean
	CopiesDirect float64 `json:"copies_direct"`
	MaxCopies    int     `json:"max_copies"`
	MaxHops      int     `json:"max_hops"` // between relays, from publisher's to viewer's

	Killed    int     `json:"killed"`    // relays
	Affected  float64 `json:"affected"`  // share of viewers without a picture, mean over time
	AtKilled  Gaps    `json:"at_killed"` // viewers at a killed relay
	Elsewhere Gaps    `json:"elsewhere"` // other viewers, whose publisher's relay or gateway was killed

	// Shares of the time with a picture while a region is cut off: for viewers of sessions within it, and of
	// sessions among the others.
	CutInside float64 `json:"cut_inside"`
	CutOthers float64 `json:"cut_others"`
	HealP50   float64 `json:"heal_ms_p50"` // until the others have a picture after the cut
	HealMax   float64 `json:"heal_ms_max"`
	Messages  float64 `json:"messages_per_s"` // received by a relay, idle
	KbitPerS  float64 `json:"kbit_per_s"`     // of these messages
}

// Gaps are times without a picture, in milliseconds.
type Gaps struct {
	Viewers int     `json:"viewers"`
	P50     float64 `json:"p50_ms"`
	P95     float64 `json:"p95_ms"`
	Max     float64 `json:"max_ms"`
}

// Run simulates a cluster.
func Run(ctx context.Context, o Options) (*Result, error) {
	return simulate(ctx, extentOf(o.Quick), rand.New(rand.NewPCG(1, 2)), o.Log)
}

func simulate(ctx context.Context, x Extent, random *rand.Rand, log io.Writer) (*Result, error) {
	w := newWorld(x, random)
	r := &Result{Extent: x}
	for _, step := range []struct {
		about string
		run   func(context.Context, *Result) error
	}{
		{"starting the relays", w.start},
		{"announcing sessions", w.announce},
		{"idle", w.idle},
		{"killing and starting relays", w.churn},
		{"cutting a region off", w.cutOff},
	} {
		began := time.Now()
		if err := step.run(ctx, r); err != nil {
			return nil, fmt.Errorf("%s: %w", step.about, err)
		}
		if log != nil {
			fmt.Fprintf(log, "%s: %.0f s\n", step.about, time.Since(began).Seconds())
		}
	}
	return r, nil
}

func ms(d time.Duration) float64 { return float64(d.Milliseconds()) }

func quantiles(list []time.Duration) (p50, p95, most float64) {
	var v []float64
	for _, d := range list {
		v = append(v, ms(d))
	}
	return qoe.Round(quantile.Of(v, 0.5), 0), qoe.Round(quantile.Of(v, 0.95), 0), qoe.Round(quantile.Of(v, 1), 0)
}
