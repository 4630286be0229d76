package sphere

import (
	"fmt"
	"image"
	"math"
	"slices"
	"time"

	"holocast/internal/qoe"
	"holocast/internal/tile360"
)

// judge accumulates the measurements of the displayed viewport.
type judge struct {
	view      *tile360.View // finer than the planner's
	psnr      []float64     // PSNR of each slot in dB, from the published distortions
	hits      float64       // sum over slots of the fraction of the viewport covered by tiles
	slots     int           // slots with a picture
	stalled   int           // slots without a picture
	frames    int           // frames of the low-resolution sphere received in time
	missed    int           // frames of the low-resolution sphere not received in time, after the first
	from, to  time.Time     // live video: start of the first judged GoP, end of the last
	arrivals  []float64     // seconds from capture to arrival, of live frames of the low-resolution sphere
	useful    uint64        // bytes of displayed tiles and the low-resolution sphere
	counted   uint64        // bytes of all judged groups
	gops      int
	lastGroup uint64
	centre    int           // tile in the viewport's center
	since     time.Duration // media time at which the center moved to that tile; −1 once it is sharp
	turns     []float64     // seconds until the center tile was sharp
}

// maxSlots bounds memory use in long sessions, at 30 hours of slots.
const maxSlots = 1 << 20

// judgeDue judges the groups whose display time has passed. The caller holds v.mu.
func (v *Viewer) judgeDue(now time.Time) {
	if !v.began {
		return
	}
	var ids []uint64
	for id, g := range v.groups {
		if !g.judged && !g.start.IsZero() && now.After(v.due(g.start.Add(v.gop)).Add(settle)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		v.judgeGroup(v.groups[id])
	}
	for id, g := range v.groups {
		if id+keepGroups < v.newest || g.judged && id+2 < v.newest {
			delete(v.groups, id)
			v.forgotten = max(v.forgotten, id+1)
		}
	}
}

// ready returns, for each frame, whether it and all frames before it arrived in time. The result
// ends at the first missing frame.
func (v *Viewer) ready(r *received) []bool {
	ok := make([]bool, 0, len(r.frames))
	var latest time.Time
	for _, f := range r.frames {
		if f.payload == nil {
			break
		}
		if f.at.After(latest) {
			latest = f.at
		}
		ok = append(ok, !latest.After(v.due(f.stamp)))
	}
	return ok
}

// judgeGroup measures the viewport's content during a GoP.
func (v *Viewer) judgeGroup(g *group) {
	g.judged = true
	j := &v.judge
	if j.from.IsZero() {
		j.from = g.start
	}
	if end := g.start.Add(v.gop); v.playback == nil && !v.replayed && end.After(j.to) {
		j.to = end
	}
	j.gops++
	if j.lastGroup = max(j.lastGroup, g.id); j.psnr == nil {
		j.centre, j.since = -1, -1
	}
	frames := int(math.Round(v.gop.Seconds() * max(1, v.video.Framerate)))
	ready := map[key][]bool{}
	for k, r := range g.tracks {
		ready[k] = v.ready(r)
		j.counted += uint64(r.bytes)
	}
	shows := func(k key, frame int) bool { return frame < len(ready[k]) && ready[k][frame] }
	var rates tile360.GoP // only valid if rated
	rated := v.latest != nil
	if rated {
		rates = v.gopOf(g.id, 0)
	}
	whole := g.tracks[key{-1, 0}]
	slots := max(1, int(math.Round(v.gop.Seconds()*slotsPerS)))
	shares := make([]float64, v.grid.Tiles())
	used := map[key]bool{{-1, 0}: true}
	var seen []slotShown
	for i := range slots {
		if slot := v.gop / time.Duration(slots); v.playback != nil &&
			!v.playback.seen(g.start.Add(time.Duration(i)*slot), slot) {
			continue
		}
		frame := (2*i + 1) * frames / (2 * slots)
		media := v.media(g.start) + (float64(i)+0.5)*v.gop.Seconds()/float64(slots)
		gaze := v.cfg.Head(max(0, media))
		j.view.Shares(gaze, shares)
		low := shows(key{-1, 0}, frame)
		for f := i * frames / slots; f < (i+1)*frames/slots; f++ {
			if shows(key{-1, 0}, f) {
				j.frames++
			} else if j.frames > 0 && !whole.ended(f) {
				j.missed++
			}
		}
		shown := slotShown{frame: frame, gaze: gaze, quality: map[int]int{}}
		mse, hits := 0.0, 0.0
		for t, share := range shares {
			best := -1
			for q := range v.planner.Qualities {
				if v.tiled && shows(key{t, q}, frame) {
					best = q
				}
			}
			if share == 0 {
				continue
			}
			if best < 0 {
				if rated {
					mse += share * rates.Miss[t]
				}
				continue
			}
			hits += share
			used[key{t, best}] = true
			shown.quality[t] = best
			if rated {
				if d := rates.Distortion[t*v.planner.Qualities+best]; d >= 0 {
					mse += share * d
				}
			}
		}
		if !low && hits < 0.999 { // part of the viewport has no image
			if j.slots > 0 {
				j.stalled++
			}
			continue
		}
		j.slots++
		v.noteShown()
		j.hits += hits
		if rated && len(j.psnr) < maxSlots {
			j.psnr = append(j.psnr, tile360.PSNR(mse))
		}
		if low {
			seen = append(seen, shown)
		}
		v.turned(gaze, time.Duration(media*float64(time.Second)), shown.quality)
	}
	for k := range used {
		j.useful += uint64(g.bytes(k))
	}
	if v.decoder != nil && len(seen) > 0 {
		v.decoder.offer(
			&job{
				sphere: *v.video.Sphere,
				video:  image.Pt(v.video.Width, v.video.Height),
				grid:   v.grid,
				tracks: g.tracks,
				slots:  seen,
			},
		)
	}
}

// ended reports whether the publisher ended the group before a frame.
func (r *received) ended(frame int) bool { return r != nil && r.complete && frame >= len(r.frames) }

// turned measures how long after the viewport's center enters a tile that tile is displayed or the
// center leaves it.
func (v *Viewer) turned(gaze tile360.Vec, media time.Duration, quality map[int]int) {
	j := &v.judge
	centre := v.grid.Tile(gaze)
	if centre != j.centre {
		if j.since >= 0 && len(j.turns) < maxSlots {
			j.turns = append(j.turns, (media - j.since).Seconds())
		}
		if j.centre >= 0 {
			j.since = media
		}
		j.centre = centre
	}
	if _, sharp := quality[centre]; sharp && j.since >= 0 && len(j.turns) < maxSlots {
		j.turns = append(j.turns, (media - j.since).Seconds())
		j.since = -1
	}
}

// counters counts a viewer's traffic and requests.
type counters struct {
	Bytes        uint64
	Decisions    uint64
	Urgent       uint64
	Subscribes   uint64
	Updates      uint64
	Unsubscribes uint64
	Fetches      uint64
	Refused      uint64
	Reset        uint64
	Damaged      uint64
}

// Report holds a viewer's measurements of the 360° video.
type Report struct {
	Scheme string `json:"scheme"`
	// Frames counts the frames of the low-resolution sphere received in time. FramesMissed counts
	// its late and missing frames after the first one received. FPS is Frames per second of
	// playback.
	Frames       int     `json:"frames"`
	FramesMissed int     `json:"frames_missed"`
	FPS          float64 `json:"fps"`
	// LatencyMS is the target latency from capture to display.
	LatencyMS float64 `json:"latency_ms"`
	// ArrivalMS holds percentiles of the time from capture to arrival on the relay's clock; nil for
	// recordings and without a relay clock.
	ArrivalMS *qoe.Percentiles `json:"arrival_ms,omitempty"`
	// PSNR of the viewport in dB, weighted by solid angle, from the distortions that the publisher
	// measured.
	PSNRMean float64 `json:"viewport_psnr_mean"`
	PSNRP5   float64 `json:"viewport_psnr_p5"` // exceeded by 95 % of slots
	// PSNR of the decoded viewport against the reference; absent without a reference.
	DecodedPSNRMean float64 `json:"decoded_psnr_mean,omitempty"`
	DecodedPSNRP5   float64 `json:"decoded_psnr_p5,omitempty"`
	StallRatio      float64 `json:"stall_ratio"` // fraction of the time since the first displayed frame
	TileHits        float64 `json:"tile_hits"`   // fraction of the viewport covered by tiles
	MbitPerS        float64 `json:"mbit_per_s"`  // payload
	WastedRatio     float64 `json:"wasted_ratio"`
	// MotionToQualityMS is the mean time from the viewport's center moving to another tile until
	// that tile is displayed or the center moves on, over Turns movements.
	Turns                int     `json:"turns"`
	MotionToQualityMS    float64 `json:"motion_to_quality_ms"`
	MotionToQualityP95MS float64 `json:"motion_to_quality_p95_ms"`
	GOPs                 int     `json:"gops"`
	GOPsDecoded          int     `json:"gops_decoded"`
	GOPsNotDecoded       int     `json:"gops_not_decoded"` // because the decoder was behind
	Decisions            uint64  `json:"decisions"`
	Urgent               uint64  `json:"urgent_tiles"` // requested within their GoP
	// Messages counts the requests sent.
	Messages struct {
		Subscribe     uint64 `json:"subscribe"`
		RequestUpdate uint64 `json:"request_update"`
		Unsubscribe   uint64 `json:"unsubscribe"`
		Fetch         uint64 `json:"fetch"`
	} `json:"messages"`
	MessagesPerGOP float64 `json:"messages_per_gop"`
	Refused        uint64  `json:"requests_refused"`
	Reset          uint64  `json:"groups_reset"`    // late groups, reset by the relay or the publisher
	Damaged        uint64  `json:"objects_damaged"` // objects that failed to parse
	CapacityMbit   float64 `json:"capacity_mbit_per_s"`
	// Sound counts sound packets; nil if the session has no sound.
	Sound *SoundReport `json:"sound,omitempty"`
}

// SoundReport counts sound packets.
type SoundReport struct {
	Codec   string `json:"codec"`
	Packets uint64 `json:"packets"` // received in time
	Late    uint64 `json:"packets_late"`
	Missing uint64 `json:"packets_missing"`
	Bytes   uint64 `json:"bytes"`
}

// Report returns the report for the whole run.
func (v *Viewer) Report() Report {
	v.mu.Lock()
	defer v.mu.Unlock()
	j, c := &v.judge, &v.counters
	r := Report{
		Scheme: v.cfg.Scheme, GOPs: j.gops, Decisions: c.Decisions, Urgent: c.Urgent,
		Refused: c.Refused, Reset: c.Reset, Damaged: c.Damaged,
		CapacityMbit: 8e-6 * v.planner.Capacity.Mean(), Frames: j.frames, FramesMissed: j.missed,
		LatencyMS: v.latency.Seconds() * 1000,
		Turns:     len(j.turns),
	}
	if len(j.arrivals) > 0 {
		sorted := slices.Sorted(slices.Values(j.arrivals))
		r.ArrivalMS = &qoe.Percentiles{P50: quantile(sorted, 0.50), P95: quantile(sorted, 0.95), P99: quantile(sorted, 0.99)}
	}
	r.PSNRMean, r.PSNRP5 = meanAndQuantile(j.psnr, 0.05)
	if v.decoder != nil {
		var psnr []float64
		psnr, r.GOPsDecoded, r.GOPsNotDecoded = v.decoder.results()
		r.DecodedPSNRMean, r.DecodedPSNRP5 = meanAndQuantile(psnr, 0.05)
	}
	if n := j.slots + j.stalled; n > 0 {
		r.StallRatio = float64(j.stalled) / float64(n)
		r.MbitPerS = 8e-6 * float64(c.Bytes) / (float64(n) / slotsPerS)
		// FPS is also limited by the wall time, since GoPs without any received data are not
		// judged.
		r.FPS = math.Round(100*float64(j.frames)/max(float64(n)/slotsPerS, j.to.Sub(j.from).Seconds())) / 100
	}
	r.TileHits = j.hits / float64(max(1, j.slots))
	if j.counted > 0 {
		r.WastedRatio = 1 - float64(j.useful)/float64(j.counted)
	}
	mean, p95 := meanAndQuantile(j.turns, 0.95)
	r.MotionToQualityMS, r.MotionToQualityP95MS = 1000*mean, 1000*p95
	m := &r.Messages
	m.Subscribe, m.RequestUpdate, m.Unsubscribe, m.Fetch = c.Subscribes, c.Updates, c.Unsubscribes, c.Fetches
	if v.audio != "" {
		r.Sound = new(v.sound)
	}
	if j.gops > 0 {
		r.MessagesPerGOP = float64(m.Subscribe+m.RequestUpdate+m.Unsubscribe+m.Fetch) / float64(j.gops)
	}
	return r
}

// String returns the report as one line.
func (r Report) String() string {
	s := fmt.Sprintf("%5.1f fps  ", r.FPS)
	if r.DecodedPSNRMean > 0 {
		s += fmt.Sprintf("viewport %.1f dB against the source (p5 %.1f)", r.DecodedPSNRMean, r.DecodedPSNRP5)
	} else {
		s += fmt.Sprintf("viewport %.1f dB (p5 %.1f)", r.PSNRMean, r.PSNRP5)
	}
	more := ""
	if r.Turns > 0 {
		more = fmt.Sprintf("  motion to quality %.0f ms", r.MotionToQualityMS)
	}
	if r.Sound != nil {
		more += fmt.Sprintf("  %d sound packets, %d late, %d missing", r.Sound.Packets, r.Sound.Late, r.Sound.Missing)
	}
	return s + fmt.Sprintf("  %.0f %% tile hits  %.1f %% stalls  %.2f Mbit/s  %.0f %% wasted  %.1f messages/GoP",
		100*r.TileHits, 100*r.StallRatio, r.MbitPerS, 100*r.WastedRatio, r.MessagesPerGOP) + more
}

// quantile returns a quantile of sorted values in seconds, as milliseconds rounded to a hundredth.
func quantile(sorted []float64, q float64) float64 {
	return math.Round(1e5*sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]) / 100
}

// meanAndQuantile returns the mean and a quantile of v, or zeros if v is empty.
func meanAndQuantile(v []float64, q float64) (mean, quantile float64) {
	if len(v) == 0 {
		return 0, 0
	}
	for _, x := range v {
		mean += x / float64(len(v))
	}
	sorted := slices.Sorted(slices.Values(v))
	return mean, sorted[min(len(v)-1, int(q*float64(len(v))))]
}
