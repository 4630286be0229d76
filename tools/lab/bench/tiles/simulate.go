package tiles

import (
	"math"
	"slices"

	"holocast/internal/gazetrace"
	"holocast/internal/tile360"
)

// The simulated viewer.
const (
	step    = 0.01 // s
	rtt     = 0.04 // s from a request to the first byte
	replan  = 0.25 // s between decisions of schemes that decide repeatedly
	planned = 8    // samples along a viewport's edge in planning
)

// fieldOfView is the viewport's.
var fieldOfView = tile360.Degrees(90, 90)

// trace is a head movement, with the viewport at every slot.
type trace struct {
	name  string
	head  gazetrace.Trace
	crowd *tile360.Crowd
	rays  [][]ray // by slot, for the clip's grid
}

func newTrace(name string, head gazetrace.Trace, crowd *tile360.Crowd, g tile360.Grid, seconds int) trace {
	t := trace{name: name, head: head, crowd: crowd}
	for slot := range seconds * slotsPerS {
		t.rays = append(t.rays, look(g, fieldOfView, head.At((float64(slot)+0.5)/slotsPerS)))
	}
	return t
}

// job is a tile of a GoP being transferred; tile −1 is the low-resolution sphere.
type job struct {
	gop, tile, quality int
	bytes, left        float64
	ready              float64 // earliest arrival of the first byte
}

// viewer is a simulated viewer. It watches a repeating clip over a network and requests the tiles
// that its scheme selects.
type viewer struct {
	clip      *clip
	net       network
	predicted network // the basis of capacity prediction
	trace     trace
	scheme    scheme
	seconds   int
	blank     bool // missing tiles are black, and there is no low-resolution sphere

	planner tile360.Planner
	problem tile360.Problem
	plan    tile360.Plan
	share   []float64
	seen    []float64

	now      float64 // s since the start
	head     float64 // playhead, s of media time; starts at −1
	queue    []job
	quality  map[int][]int  // tile qualities received, by GoP; −1 = none
	video    map[int]bool   // GoPs whose low-resolution sphere has been received
	stalled  float64        // s
	used     map[[3]int]int // bytes of received tiles; 0 once they have been seen
	received float64
	wasted   float64
	psnr     []float64 // by slot shown
	hits     float64   // sum over slots of the viewport's share covered by tiles

	center int     // tile at the viewport's center
	since  float64 // when the viewport's center reached the tile, s; −1 once it is sharp
	turns  []float64
}

// outcome holds a viewer's results.
type outcome struct {
	psnr             []float64 // per slot shown, dB
	turns            []float64 // s from the head turning to another tile until that tile is sharp
	shown, stalled   float64   // s
	received, wasted float64   // bytes
	hits             float64   // sum over slots of the viewport's share covered by tiles
}

// simulate runs a viewer for some seconds. predicted, if not nil, replaces n as the basis of
// capacity prediction. If blank is set, missing tiles are black.
func simulate(c *clip, n network, t trace, s scheme, seconds int, predicted *network, blank bool) outcome {
	v := &viewer{
		clip: c, net: n, predicted: n, trace: t, scheme: s, seconds: seconds, blank: blank, head: -1,
		share: make([]float64, c.grid.Tiles()), seen: make([]float64, c.grid.Tiles()),
		quality: map[int][]int{}, video: map[int]bool{}, used: map[[3]int]int{}, center: -1, since: -1,
	}
	if predicted != nil {
		v.predicted = *predicted
	}
	v.planner = tile360.Planner{
		View: tile360.NewView(c.grid, fieldOfView, planned), Qualities: c.qualities, Latency: rtt + 0.1,
		Solver: tile360.Solver{Refine: tile360.DefaultRefine},
	}
	if s.gaze != alone {
		v.planner.Gaze.Crowd = t.crowd
	}
	v.run()
	for _, bytes := range v.used {
		v.wasted += float64(bytes)
	}
	return outcome{v.psnr, v.turns, float64(seconds), v.stalled, v.received, v.wasted, v.hits}
}

func (v *viewer) run() {
	v.planner.Capacity.Add(v.predicted.at(0))
	v.enter(-1)
	nextPlan, nextSlot := replan, 0
	carried, measured := 0.0, 0.0

	// Time is counted in steps, so that sums are exact.
	for steps, played := 0, 0; v.head < float64(v.seconds)-step/2; steps++ {
		v.now = float64(steps) * step
		v.transfer()
		carried += v.predicted.at(v.now) * step
		if measured += step; measured > 1-step/2 {
			v.planner.Capacity.Add(carried / measured)
			carried, measured = 0, 0
		}

		// The playhead stops where the low-resolution sphere is missing.
		gop := int(math.Floor(float64(played+1)*step - 1 + 1e-9))
		if boundary := (played+1)%int(1/step) == 0; boundary && gop < v.seconds && !v.video[gop] {
			v.stalled += step
			if gop == 0 {
				v.stalled = 0 // start-up is no stall
			}
		} else {
			played++
			v.head = float64(played)*step - 1
			if boundary && gop < v.seconds {
				v.enter(gop)
				nextPlan = v.head + replan
			}
		}
		if v.scheme.again && v.head >= nextPlan-step/2 {
			v.decide(int(math.Floor(v.head + 1e-9)))
			nextPlan += replan
		}
		for v.head >= 0 && float64(nextSlot) <= v.head*slotsPerS+1e-6 && nextSlot < v.seconds*slotsPerS {
			v.show(nextSlot)
			nextSlot++
		}
	}
}

// gop returns a GoP's sizes and distortions.
func (v *viewer) gop(g int) *tile360.GoP { return &v.clip.gops[g%len(v.clip.gops)] }

// videoBytes returns the size of a GoP's low-resolution sphere.
func (v *viewer) videoBytes(g int) float64 {
	if v.blank {
		return 0
	}
	return v.clip.video[g%len(v.clip.video)]
}

// have returns the received qualities of a GoP's tiles.
func (v *viewer) have(g int) []int {
	q, ok := v.quality[g]
	if !ok {
		q = make([]int, v.clip.grid.Tiles())
		for t := range q {
			q[t] = -1
		}
		v.quality[g] = q
	}
	return q
}

// enter begins displaying GoP g. If the scheme decides only once per GoP, it cancels the outstanding
// tiles of g. It then requests the next GoP.
func (v *viewer) enter(g int) {
	keep := v.queue[:0]
	for _, j := range v.queue {
		if j.gop <= g && j.tile >= 0 && !v.scheme.again {
			v.wasted += j.bytes - j.left
			continue
		}
		keep = append(keep, j)
	}
	v.queue = keep
	delete(v.quality, g-2)
	delete(v.video, g-2)
	if g+1 < v.seconds {
		if bytes := v.videoBytes(g + 1); bytes > 0 {
			v.queue = slices.Insert(v.queue, 0, job{g + 1, -1, 0, bytes, bytes, v.now + rtt})
		} else {
			v.video[g+1] = true
		}
	}
	v.decide(g)
}

// decide requests tiles of the GoP after g, or of both if the scheme decides repeatedly.
func (v *viewer) decide(g int) {
	// The gaze is known up to the time being displayed.
	for t := max(0, v.planner.Gaze.Last().T+0.05); t <= max(0, v.head)+1e-9; t += 0.05 {
		v.planner.Gaze.Add(tile360.Sample{T: t, Gaze: v.trace.head.At(t)})
	}
	if v.planner.Gaze.Last().T == 0 {
		v.planner.Gaze.Add(tile360.Sample{T: 0, Gaze: v.trace.head.At(0)})
	}
	if v.scheme.again {
		v.planAgain(g)
	} else if g+1 < v.seconds {
		v.planOnce(g + 1)
	}
}

// transfer transmits queued jobs, in order, for one step.
func (v *viewer) transfer() {
	budget := v.net.at(v.now) * step
	for i := 0; i < len(v.queue) && budget > 0; {
		j := &v.queue[i]
		if j.ready > v.now {
			i++
			continue
		}
		n := min(budget, j.left)
		j.left -= n
		budget -= n
		v.received += n
		if j.left > 1e-6 {
			break
		}
		if j.tile < 0 {
			v.video[j.gop] = true
		} else {
			q := v.have(j.gop)
			v.used[[3]int{j.gop, j.tile, j.quality}] = int(j.bytes)
			q[j.tile] = max(q[j.tile], j.quality)
		}
		v.queue = slices.Delete(v.queue, i, i+1)
	}
}

// show evaluates the viewport in a slot.
func (v *viewer) show(slot int) {
	g := slot / slotsPerS
	have := v.have(g)
	at := slot % (len(v.clip.gops) * slotsPerS)
	sum, hits := 0.0, 0.0
	missing := v.clip.low()
	if v.blank {
		missing = v.clip.blank()
	}
	for _, r := range v.trace.rays[slot] {
		q := have[r.tile]
		if q < 0 {
			sum += float64(r.weight * v.clip.errors[missing][at][r.cell])
			continue
		}
		hits += float64(r.weight)
		if k := [3]int{g, int(r.tile), q}; v.used[k] != 0 {
			v.used[k] = 0
		}
		sum += float64(r.weight * v.clip.errors[q][at][r.cell])
	}
	v.psnr = append(v.psnr, tile360.PSNR(sum))
	v.hits += hits

	// The time until a tile is sharp starts when the viewport's center reaches the tile.
	center := v.clip.grid.Tile(v.trace.head.At((float64(slot) + 0.5) / slotsPerS))
	if center != v.center {
		if v.since >= 0 {
			v.turns = append(v.turns, v.now-v.since) // the viewer moved on before it was sharp
		}
		if v.center = center; slot > 0 {
			v.since = v.now
		}
	}
	if v.since >= 0 && have[center] >= 0 {
		v.turns = append(v.turns, v.now-v.since)
		v.since = -1
	}
}
