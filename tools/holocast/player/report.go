package player

import (
	"fmt"
	"math"
	"time"

	"holocast/internal/parts"
	"holocast/internal/qoe"
	"holocast/tools/holocast/player/sound"
	"holocast/tools/holocast/player/sphere"
)

// Report holds a player's measurements. Its JSON form is one flat object.
type Report struct {
	qoe.Snapshot
	// DelayFrom is the start of the measured frame delays: "capture" for live sessions, "arrival"
	// for a replay, and "due" for a recording that this player plays at its own pace.
	DelayFrom string `json:"delay_from"`
	// Clock names the clock of the delays: "relay", or "local" if the relay sends no stamps.
	Clock string `json:"clock"`
	// ClockErrorMS bounds the error of the relay clock estimate.
	ClockErrorMS float64 `json:"clock_error_ms"`
	RTTMS        float64 `json:"rtt_ms"` // smoothed RTT to the relay; 0 until the first stamp
	MinRTTMS     float64 `json:"min_rtt_ms"`
	FirstFrameMS float64 `json:"first_frame_ms"` // from New to the first displayed frame
	// Density is the fraction of descriptions received, over all displayed frames.
	Density          float64 `json:"density"`
	FramesPartial    uint64  `json:"frames_partial"`    // displayed without all their descriptions
	FramesSkipped    uint64  `json:"frames_skipped"`    // lost because the decoder fell behind
	FramesDamaged    uint64  `json:"frames_damaged"`    // lost because decoding failed
	DescriptionsLate uint64  `json:"descriptions_late"` // received after their frame was displayed
	SubgroupsReset   uint64  `json:"subgroups_reset"`   // streams reset by the relay or the publisher
	// DepthErrorMM is the root mean square error in mm that coding with loss adds to depth, mean over
	// the cameras whose publisher announces it; 0 without any.
	DepthErrorMM float64 `json:"depth_error_mm,omitempty"`
	// Parts counts frames sent as datagrams; nil if there were none.
	Parts *parts.Stats `json:"parts,omitempty"`
	// Selection reports the choice of qualities; nil without Config.View.
	Selection *Selection `json:"selection,omitempty"`
	// Sphere reports the 360° video; nil if the session has none.
	Sphere *sphere.Report `json:"sphere,omitempty"`
	// Sound reports the sound; nil if it is not played.
	Sound *sound.Report `json:"sound,omitempty"`
	// Recording reports playback of the recording; nil for live sessions.
	Recording *Recording `json:"recording,omitempty"`
	// Encryption counts the objects of an encrypted session; nil without Config.Decrypt.
	Encryption *Encryption `json:"encryption,omitempty"`
}

// Encryption counts the objects of an encrypted session.
type Encryption struct {
	Opened  uint64            `json:"opened"`
	Refused map[string]uint64 `json:"refused,omitempty"` // by secureobjects.Reason
}

// Snapshot returns the report for the whole run.
func (p *Player) Snapshot(now time.Time) Report { return p.report(p.meter.Snapshot(now), now) }

// Live returns the report for the most recent interval.
func (p *Player) Live(now time.Time) Report { return p.report(p.meter.Live(now), now) }

func (p *Player) report(s qoe.Snapshot, now time.Time) Report {
	r := Report{Snapshot: s, DelayFrom: "capture", Clock: "relay", Recording: p.recordingReport()}
	feeds := p.all()
	if v := p.cfg.Decrypt; v != nil {
		s := v.Stats()
		r.Encryption = &Encryption{s.Opened, s.Map()}
	}
	r.Selection = p.selectionReport()
	r.DepthErrorMM = p.depthError()
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
	var shown, total uint64
	for _, f := range feeds {
		f.mu.Lock()
		c := f.counters
		f.mu.Unlock()
		shown += c.shown
		total += c.total
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
			r.fillFromSphere()
		}
	}
	if p.cfg.Sound != nil {
		r.Sound = new(p.cfg.Sound.Report())
	}
	if total > 0 {
		r.Density = math.Round(1e4*float64(shown)/float64(total)) / 1e4
	}
	return r
}

// depthError returns Report.DepthErrorMM.
func (p *Player) depthError() float64 {
	var sum, n float64
	for _, f := range p.sorted() {
		f.mu.Lock()
		if t := f.track.Points; t != nil && t.DepthError != nil {
			sum, n = sum+*t.DepthError, n+1
		}
		f.mu.Unlock()
	}
	if n == 0 {
		return 0
	}
	return qoe.Round(sum/n, 2)
}

// fillFromSphere fills the common figures from the 360° video of a session without point clouds.
// Every frame has the same delay, because each is displayed at its due time.
func (r *Report) fillFromSphere() {
	s := r.Sphere
	r.FPS, r.Frames, r.FramesLost, r.MbitPerS = s.FPS, uint64(s.Frames), uint64(s.FramesMissed), s.MbitPerS
	if s.Frames > 0 {
		r.FrameDelayMS = qoe.Percentiles{P50: s.LatencyMS, P95: s.LatencyMS, P99: s.LatencyMS}
	}
}

func milliseconds(d time.Duration) float64 { return math.Round(float64(d)/1e4) / 100 }

// String returns the report as one line.
func (r Report) String() string {
	if x := r.Recording; x != nil {
		r.Recording = nil
		return x.String() + "  " + r.String()
	}
	if x := r.Sound; x != nil {
		r.Sound = nil
		return r.String() + "  " + x.String()
	}
	if r.Sphere != nil {
		s := r.Sphere.String()
		if r.Cameras == 0 {
			return s
		}
		r.Sphere = nil
		return r.String() + "  " + s
	}
	s := fmt.Sprintf(
		"%5.1f fps  delay %.1f / %.1f / %.1f ms (p50/p95/p99", r.FPS, r.FrameDelayMS.P50, r.FrameDelayMS.P95,
		r.FrameDelayMS.P99,
	)
	if r.DelayFrom != "capture" {
		s += " since " + r.DelayFrom + ", recording"
	}
	s += fmt.Sprintf(")  %.0f points  %.1f Mbit/s  %d lost", r.PointsPerFrame, r.MbitPerS, r.FramesLost)
	if r.Cameras > 1 {
		s += fmt.Sprintf("  %d cameras", r.Cameras)
	}
	if r.Selection != nil {
		s += r.Selection.String()
	}
	if r.DepthErrorMM > 0 {
		s += fmt.Sprintf("  depth ±%.1f mm", r.DepthErrorMM)
	}
	if r.Parts != nil {
		s += fmt.Sprintf("  %d repaired", r.Parts.Repaired)
	}
	if r.FramesPartial > 0 {
		s += fmt.Sprintf("  density %.2f", r.Density)
	}
	return s
}

// String returns the position in the format that players display.
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
