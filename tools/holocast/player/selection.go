package player

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/qoe"
	"holocast/internal/viewselect"
)

// View configures the choice of each camera's quality by the viewer's pose.
type View struct {
	// At returns the eye in studio space at a time in seconds since the first displayed frame.
	At func(seconds float64) viewselect.View
	// Budget is the maximum bit rate of all cameras in bit/s; 0 lowers and raises it by lost frames.
	Budget float64
}

const (
	// selectInterval is the time between choices of qualities.
	selectInterval = 500 * time.Millisecond
	// change is the time until a change of quality is visible, in seconds, and turn how fast viewers
	// turn, in rad/s.
	change = 0.5
	turn   = 1.5
	// patches is the number of surface patches of a whole frame.
	patches = 1600
	// Subscriber priorities of the cameras with the largest and the smallest worth.
	firstPriority = 120
	lastPriority  = 136
)

// selection chooses the cameras' qualities by the viewer's pose.
type selection struct {
	view *View // nil: every camera has the quality of Config.Quality

	mu      sync.Mutex
	scene   viewselect.Scene
	chooser viewselect.Chooser
	level   viewselect.Level
	current []int
	before  *viewselect.View // of the previous choice
	at      time.Time        // of before
	catalog *catalog.Catalog // of the live session; nil without one
	chosen  map[int]string   // track names by camera
	worth   map[int]float64  // shares of the picture by camera
	gap     float64          // of the newest choice
	changed chan struct{}    // closed when the tracks to receive may have changed
}

func newSelection(v *View) *selection {
	return &selection{view: v, chosen: map[int]string{}, changed: make(chan struct{})}
}

// wait returns a channel that is closed at the next change.
func (x *selection) wait() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.changed
}

// notify announces a change to all connections.
func (x *selection) notify() {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.changed)
	x.changed = make(chan struct{})
}

// track returns the chosen track of a camera, or the one of the best quality.
func (x *selection) track(c *catalog.Catalog, camera int) catalog.Track {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := c.PointsTracks(camera)
	i := slices.IndexFunc(list, func(t catalog.Track) bool { return t.Name == x.chosen[camera] })
	return list[max(0, i)]
}

// useForSelection sets the catalog of the live session, or nil. Within a fixed budget, it chooses
// first qualities for equal worths.
func (p *Player) useForSelection(c *catalog.Catalog) {
	x := p.selection
	if x.view == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.catalog = c; c == nil || x.view.Budget == 0 {
		return
	}
	cameras, lists := p.qualities(c)
	if slices.ContainsFunc(cameras, func(n int) bool { return x.chosen[n] == "" }) {
		x.choose(cameras, lists, slices.Repeat([]float64{1}, len(cameras)), x.view.Budget)
	}
}

// selectQualities chooses qualities until ctx is done.
func (p *Player) selectQualities(ctx context.Context) {
	if p.selection.view == nil {
		return
	}
	tick := time.NewTicker(selectInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if p.selectOnce(now) {
				p.selection.notify()
			}
		}
	}
}

// selectOnce chooses the cameras' qualities. It reports whether the choice changed.
func (p *Player) selectOnce(now time.Time) bool {
	p.mu.Lock()
	first := p.first
	p.mu.Unlock()
	x := p.selection
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.catalog == nil || first.IsZero() {
		return false
	}
	cameras, lists := p.qualities(x.catalog)
	if len(cameras) == 0 {
		return false
	}
	level, budget := 0, x.view.Budget
	if budget == 0 {
		level = x.level.Update(now, p.counts(now), costsOf(lists))
		budget = viewselect.Budget(optionsOf(lists), level)
	}
	worth := p.worths(cameras, x.eyes(now, now.Sub(first)))
	unknown := func(list []catalog.Track) bool {
		return slices.ContainsFunc(list, func(t catalog.Track) bool { return t.Bitrate == 0 })
	}
	if worth == nil || slices.ContainsFunc(lists, unknown) {
		return x.view.Budget == 0 && x.chooseLevel(cameras, lists, level)
	}
	p.prioritize(cameras, worth)
	return x.choose(cameras, lists, worth, budget)
}

// choose chooses tracks within a budget. It reports whether the choice changed. The caller holds x.mu.
func (x *selection) choose(cameras []int, lists [][]catalog.Track, worth []float64, budget float64) bool {
	options := optionsOf(lists)
	choice := make([]int, len(cameras))
	if x.gap = 0; budget < viewselect.Budget(options, 0) {
		x.gap = x.chooser.ChooseWithin(choice, worth, options, budget, x.current)
		x.current = slices.Clone(choice)
	} else {
		x.current = nil // everything fits
	}
	x.worth = map[int]float64{}
	for i, n := range cameras {
		x.worth[n] = worth[i]
	}
	return x.take(cameras, lists, choice)
}

// chooseLevel chooses the same quality for all cameras. The caller holds x.mu.
func (x *selection) chooseLevel(cameras []int, lists [][]catalog.Track, level int) bool {
	choice := make([]int, len(cameras))
	for i := range choice {
		choice[i] = min(level, len(lists[i])-1)
	}
	x.gap, x.current = 0, nil
	return x.take(cameras, lists, choice)
}

// take records a choice and reports whether it is new. The caller holds x.mu.
func (x *selection) take(cameras []int, lists [][]catalog.Track, choice []int) bool {
	chosen := map[int]string{}
	for i, n := range cameras {
		chosen[n] = lists[i][choice[i]].Name
	}
	changed := !maps.Equal(chosen, x.chosen)
	x.chosen = chosen
	return changed
}

// qualities returns the played cameras and their tracks, best first.
func (p *Player) qualities(c *catalog.Catalog) (cameras []int, lists [][]catalog.Track) {
	for _, n := range c.Cameras() {
		if p.cfg.Cameras == nil || slices.Contains(p.cfg.Cameras, n) {
			cameras, lists = append(cameras, n), append(lists, c.PointsTracks(n))
		}
	}
	return cameras, lists
}

func optionsOf(lists [][]catalog.Track) [][]viewselect.Option {
	options := make([][]viewselect.Option, len(lists))
	for i, list := range lists {
		for q, t := range list {
			o := viewselect.Option{Rate: float64(t.Bitrate), Error: viewselect.UnknownError(q)}
			if e := t.Points.Error; e != nil {
				o.Error = *e
			}
			options[i] = append(options[i], o)
		}
	}
	return options
}

// costsOf returns the cost of each level of quality.
func costsOf(lists [][]catalog.Track) []viewselect.Cost {
	var costs []viewselect.Cost
	for _, list := range lists {
		for len(costs) < len(list) {
			costs = append(costs, viewselect.Cost{})
		}
	}
	for level := range costs {
		for _, list := range lists {
			t := list[min(level, len(list)-1)]
			costs[level].Points += float64(t.Points.MaxPoints)
			costs[level].Bitrate += float64(t.Bitrate)
		}
	}
	return costs
}

// counts returns the frame counts that decide on the level.
func (p *Player) counts(now time.Time) viewselect.Counts {
	s := p.meter.Live(now)
	var skipped uint64
	for _, f := range p.all() {
		f.mu.Lock()
		skipped += f.counters.skipped
		f.mu.Unlock()
	}
	return viewselect.Counts{Frames: s.Frames + skipped, Unshown: skipped, Lost: s.FramesLost - min(s.FramesLost, skipped)}
}

// eyes returns the views that the viewer may have when a change becomes visible. The caller holds
// x.mu.
func (x *selection) eyes(now time.Time, played time.Duration) []viewselect.View {
	v := x.view.At(played.Seconds())
	var velocity [3]float64
	if elapsed := now.Sub(x.at).Seconds(); x.before != nil && elapsed > 0 {
		from, to := x.before.Eye.Inverse().T, v.Eye.Inverse().T
		for i := range velocity {
			velocity[i] = (to[i] - from[i]) / elapsed
		}
	}
	x.before, x.at = &v, now
	return viewselect.Ahead(v, velocity, turn, change)
}

// worths returns the cameras' worths, or nil if a camera's surfaces are unknown. The caller holds
// p.selection.mu.
func (p *Player) worths(cameras []int, eyes []viewselect.View) []float64 {
	surfaces := make([][]viewselect.Sample, len(cameras))
	for i, n := range cameras {
		p.mu.Lock()
		f := p.feeds[n]
		p.mu.Unlock()
		if f == nil {
			return nil
		}
		var ok bool
		if surfaces[i], ok = f.surface(); !ok {
			return nil
		}
	}
	worth := make([]float64, len(cameras))
	p.selection.scene.Worth(worth, surfaces, eyes...)
	return worth
}

// surface returns the surface patches of the newest frame. ok is false if there is none in pixels.
func (f *feed) surface() (s []viewselect.Sample, ok bool) {
	f.mu.Lock()
	rays, pose := f.rays, f.at
	f.mu.Unlock()
	f.picture.Lock()
	defer f.picture.Unlock()
	g := &f.frame.Grid
	if !f.has || !f.frame.Layout.OnGrid() || rays.Width != g.Width || rays.Height != g.Height {
		return nil, false
	}
	stride := max(1, int(math.Round(math.Sqrt(float64(g.Width*g.Height)/patches))))
	return viewselect.Surface(nil, &rays, g.Depth, &pose, stride), true
}

// prioritize sets the subscriber priorities by worth.
func (p *Player) prioritize(cameras []int, worth []float64) {
	most := slices.Max(worth)
	for _, f := range p.all() {
		i := slices.Index(cameras, f.camera)
		if i < 0 || most <= 0 {
			continue
		}
		f.prioritize(lastPriority - uint8(math.Round((lastPriority-firstPriority)*worth[i]/most)))
	}
}

// displays reports whether the player displays a feed's frame. The first frame in a new quality that
// is newer than the displayed one replaces the camera's feed.
func (p *Player) displays(f *feed, sequence uint32, captured uint64) bool {
	if p.selection.view == nil {
		return true
	}
	p.mu.Lock()
	shown := p.feeds[f.camera]
	if shown == f || p.next[f.camera] != f || !shown.precedes(sequence, captured) {
		p.mu.Unlock()
		return shown == f
	}
	p.feeds[f.camera] = f
	delete(p.next, f.camera)
	p.switches[f.camera]++
	p.mu.Unlock()
	p.selection.notify()
	return true
}

// precedes reports whether the displayed frame is older than another frame.
func (f *feed) precedes(sequence uint32, captured uint64) bool {
	f.picture.Lock()
	defer f.picture.Unlock()
	return !f.has || int32(sequence-f.header.Sequence) > 0 || captured > f.header.CaptureTime
}

// Selection reports the choice of qualities by the viewer's pose.
type Selection struct {
	Cameras []CameraQuality `json:"cameras"`
	// Gap bounds how far the newest choice's error exceeds the optimum, as a fraction.
	Gap float64 `json:"gap"`
}

// CameraQuality is one camera's quality.
type CameraQuality struct {
	Camera   int               `json:"camera"`
	Quality  string            `json:"quality"`  // displayed
	Worth    float64           `json:"worth"`    // share of the picture at the newest choice
	Switches int               `json:"switches"` // changes of the displayed quality
	Frames   map[string]uint64 `json:"frames"`   // displayed, by quality
}

// selectionReport returns the report, or nil without Config.View.
func (p *Player) selectionReport() *Selection {
	x := p.selection
	if x.view == nil {
		return nil
	}
	x.mu.Lock()
	worth, gap := x.worth, x.gap // replaced, not changed
	x.mu.Unlock()
	r := &Selection{Cameras: []CameraQuality{}, Gap: qoe.Round(gap, 4)}
	for _, shown := range p.sorted() {
		n := shown.camera
		p.mu.Lock()
		c := CameraQuality{Camera: n, Worth: qoe.Round(worth[n], 4), Switches: p.switches[n], Frames: map[string]uint64{}}
		p.mu.Unlock()
		c.Quality, _ = shown.displayed()
		for _, f := range p.all() {
			if quality, frames := f.displayed(); f.camera == n && frames > 0 {
				c.Frames[quality] = frames
			}
		}
		r.Cameras = append(r.Cameras, c)
	}
	return r
}

// displayed returns the track's quality and the number of its displayed frames.
func (f *feed) displayed() (quality string, frames uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.track.Points != nil {
		quality = f.track.Points.Quality
	}
	return quality, f.counters.displayed
}

// String returns the cameras' qualities: "  camera 0 high  1 low".
func (s *Selection) String() string {
	var b strings.Builder
	for i, c := range s.Cameras {
		if i == 0 {
			b.WriteString("  camera")
		}
		fmt.Fprintf(&b, " %d %s ", c.Camera, c.Quality)
	}
	return strings.TrimRight(b.String(), " ")
}
