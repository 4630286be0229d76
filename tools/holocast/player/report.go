package player

import (
	"fmt"
	"math"
	"time"

	"holocast/internal/parts"
	"holocast/internal/qoe"
	"holocast/tools/holocast/player/sphere"
)

// Report is what a player measured; its JSON form is one flat object.
type Report struct {
	qoe.Snapshot
	// DelayFrom is what frame delays are counted from: "capture", or of a replayed
	// recording, whose capture lies in the past, the frame's "arrival" here, or when it was
	// "due" where this player plays the recording by itself.
	DelayFrom string `json:"delay_from"`
	// Clock is whose clock delays are on: "relay", or "local" where the relay sends
	// none.
	Clock string `json:"clock"`
	// ClockErrorMS bounds the error of the estimate of the relay's clock.
	ClockErrorMS float64 `json:"clock_error_ms"`
	RTTMS        float64 `json:"rtt_ms"` // to the relay, smoothed; 0 until its clock was heard
	MinRTTMS     float64 `json:"min_rtt_ms"`
	FirstFrameMS float64 `json:"first_frame_ms"` // from the start of the player to the first frame shown
	// Density is the part of the shown frames' descriptions that was there.
	Density          float64 `json:"density"`
	FramesPartial    uint64  `json:"frames_partial"`    // shown without all their descriptions
	FramesSkipped    uint64  `json:"frames_skipped"`    // of those lost: the decoder was behind
	FramesDamaged    uint64  `json:"frames_damaged"`    // of those lost: could not be decoded
	DescriptionsLate uint64  `json:"descriptions_late"` // came after their frame was shown
	SubgroupsReset   uint64  `json:"subgroups_reset"`   // given up by the relay or the publisher
	// Parts is of the frames that came in datagrams; nil where none did.
	Parts *parts.Stats `json:"parts,omitempty"`
	// Sphere is of the 360° video; nil where the session has none.
	Sphere *sphere.Report `json:"sphere,omitempty"`
	// Recording is of the session's recording; nil where the session is live.
	Recording *Recording `json:"recording,omitempty"`
}

// Snapshot sums up the run so far.
func (p *Player) Snapshot(now time.Time) Report { return p.report(p.meter.Snapshot(now), now) }

// Live sums up the moment.
func (p *Player) Live(now time.Time) Report { return p.report(p.meter.Live(now), now) }

func (p *Player) report(s qoe.Snapshot, now time.Time) Report {
	r := Report{Snapshot: s, DelayFrom: "capture", Clock: "relay", Recording: p.recordingReport()}
	feeds := p.sorted()
	p.mu.Lock()
	if p.replayed {
		r.DelayFrom = "arrival"
	}
	if p.own {
		r.DelayFrom = "due"
	}
	if p.hasClock != clockRelay {
		r.Clock = "local"
	}
	r.RTTMS, r.MinRTTMS = milliseconds(p.rtt), milliseconds(p.minRTT)
	if !p.first.IsZero() {
		r.FirstFrameMS = milliseconds(p.first.Sub(p.began))
	}
	p.mu.Unlock()
	r.ClockErrorMS = milliseconds(p.clock.Estimate(now).Error)
	var shown, whole uint64
	for _, f := range feeds {
		f.mu.Lock()
		c := f.counters
		f.mu.Unlock()
		shown += c.shown
		whole += c.whole
		r.FramesPartial += c.partial
		r.FramesSkipped += c.skipped
		r.FramesDamaged += c.damaged
		r.DescriptionsLate += c.late
		r.SubgroupsReset += c.reset
	}
	var sum parts.Stats
	for _, f := range feeds {
		sum.Add(f.partStats())
	}
	if sum != (parts.Stats{}) {
		r.Parts = &sum
	}
	if v := p.Sphere(); v != nil {
		r.Sphere = new(v.Report())
		if len(feeds) == 0 {
			r.ofSphere()
		}
	}
	if whole > 0 {
		r.Density = math.Round(1e4*float64(shown)/float64(whole)) / 1e4
	}
	return r
}

// ofSphere has the figures that all media have say what was seen of the sphere, in a session
// that has nothing else. Every picture is shown at its time, so that all have the same delay.
func (r *Report) ofSphere() {
	s := r.Sphere
	r.FPS, r.Frames, r.FramesLost, r.MbitPerS = s.FPS, uint64(s.Frames), uint64(s.FramesMissed), s.MbitPerS
	if s.Frames > 0 {
		r.FrameDelayMS = qoe.Percentiles{P50: s.LatencyMS, P95: s.LatencyMS, P99: s.LatencyMS}
	}
}

func milliseconds(d time.Duration) float64 { return math.Round(float64(d)/1e4) / 100 }

// String is the report on one line.
func (r Report) String() string {
	if x := r.Recording; x != nil {
		r.Recording = nil
		return x.String() + "  " + r.String()
	}
	if r.Sphere != nil {
		s := r.Sphere.String()
		if r.Cameras == 0 {
			return s
		}
		r.Sphere = nil
		return r.String() + "  " + s
	}
	s := fmt.Sprintf("%5.1f fps  delay %.1f / %.1f / %.1f ms (p50/p95/p99", r.FPS, r.FrameDelayMS.P50, r.FrameDelayMS.P95, r.FrameDelayMS.P99)
	if r.DelayFrom != "capture" {
		s += " since " + r.DelayFrom + ", recording"
	}
	s += fmt.Sprintf(")  %.0f points  %.1f Mbit/s  %d lost", r.PointsPerFrame, r.MbitPerS, r.FramesLost)
	if r.Cameras > 1 {
		s += fmt.Sprintf("  %d cameras", r.Cameras)
	}
	if r.Parts != nil {
		s += fmt.Sprintf("  %d repaired", r.Parts.Repaired)
	}
	if r.FramesPartial > 0 {
		s += fmt.Sprintf("  density %.2f", r.Density)
	}
	return s
}

// String is the position, as players show it.
func (r *Recording) String() string {
	clock := func(seconds float64) string {
		return fmt.Sprintf("%d:%04.1f", int(seconds)/60, seconds-float64(int(seconds)/60*60))
	}
	state := ""
	if !r.Playing {
		state = " paused"
	}
	return clock(r.PositionS) + " / " + clock(r.LengthS) + state
}
