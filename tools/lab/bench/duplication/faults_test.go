//go:build linux

package duplication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/netlab/wire"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// cloudMedia is a second of frames that cost nothing to make: 8000 points of noise each,
// about 15 Mbit/s.
func cloudMedia(t *testing.T) *media {
	t.Helper()
	const points = 8000
	path := filepath.Join(t.TempDir(), "cloud.mcap")
	w, err := recording.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	namespace := []string{"holocast", "bench"}
	write := func(o recording.Object) {
		t.Helper()
		o.Track.Namespace, o.FirstObject, o.End = namespace, true, recording.EndFIN
		if err := w.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	c := catalog.Catalog{Version: catalog.Version, Tracks: []catalog.Track{{
		Name: catalog.PointsTrack(0, "full"), Packaging: catalog.PackagingPoints, IsLive: true,
		Points: &catalog.Points{Quality: "full", Layout: "B", Descriptions: 1, MaxPoints: points, DeliveryTimeout: 500},
	}}}
	text, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1790000000, 0)
	write(recording.Object{Track: moqt.TrackName{Name: catalog.TrackName}, Arrival: start, Payload: text})
	encoder, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	cloud := pointcloud.Points{XYZ: make([]int16, 3*points), RGB: make([]byte, 3*points)}
	for i := range cloud.XYZ {
		cloud.XYZ[i], cloud.RGB[i] = int16(rand.IntN(4000)), byte(rand.IntN(256))
	}
	frame, err := encoder.Encode(nil, pointcloud.Header{}, &pointcloud.Frame{Layout: pointcloud.LayoutPoints, Points: cloud}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range fps {
		write(recording.Object{
			Track: moqt.TrackName{Name: catalog.PointsTrack(0, "full")}, Group: uint64(i), Payload: frame,
			Arrival: start.Add(time.Duration(i) * time.Second / fps),
		})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &media{level: levels[0], file: path}
}

// faults is a session that things happen to.
type faults struct {
	*session
	t     *testing.T
	begun time.Time
	calm  map[string]wire.Conditions // of the paths
	steps []step
	rests []step // before the steps, in which nothing was wrong

	mu     sync.Mutex
	stalls []stall // of the machine
}

// stall is a time in which this process did not run although it wanted to.
type stall struct{ from, length time.Duration }

// step is a time in which something was wrong.
type step struct {
	name     string
	from, to time.Duration
	gap      time.Duration // the longest that may pass without a new frame
}

// newFaults starts a session over Table I without variation, with the pair.
func newFaults(t *testing.T, mode api.Mode) *faults {
	t.Helper()
	t.Parallel()
	if err := netlab.Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
	ctx := t.Context()
	p, err := findPrograms(ctx, "relay", "holocast", "edge", "controller")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.remove(); err != nil {
			t.Error(err)
		}
	})
	table, err := network(full, false)
	if err != nil {
		t.Fatal(err)
	}
	lab, err := netlab.Start(table, netlab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &faults{session: &session{programs: p, lab: lab, dir: t.TempDir()}, t: t, calm: calm(table)}
	t.Cleanup(func() {
		if t.Failed() {
			f.logs()
		}
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	// A busy machine delays receipts too: the silence after a path has died is to count.
	if err := f.startPair(ctx, mode, watched{400 * time.Millisecond, 1, 200, 300}); err != nil {
		t.Fatal(err)
	}
	// Whatever becomes of one path, acknowledgements get through.
	if err := f.pair.back(ctx, pathset.Of(1, 2)); err != nil {
		t.Fatal(err)
	}
	if err := f.startMedia(ctx, cloudMedia(t), ""); err != nil {
		t.Fatal(err)
	}
	if err := lab.Begin(); err != nil {
		t.Fatal(err)
	}
	f.begun = time.Now()
	go f.watch()
	return f
}

// watch notes when the machine itself stands still.
func (f *faults) watch() {
	const tick, usual = 5 * time.Millisecond, 15 * time.Millisecond
	for last := time.Now(); f.t.Context().Err() == nil; {
		time.Sleep(tick)
		now := time.Now()
		if d := now.Sub(last); d > usual {
			f.mu.Lock()
			f.stalls = append(f.stalls, stall{last.Sub(f.begun), d})
			f.mu.Unlock()
		}
		last = now
	}
}

// stalled is how long the machine stood still in all between two times.
func (f *faults) stalled(from, to time.Duration) (sum time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.stalls {
		if s.from < to && s.from+s.length > from {
			sum += s.length
		}
	}
	return sum
}

func calm(table *topology.Topology) map[string]wire.Conditions {
	c := map[string]wire.Conditions{}
	for _, p := range table.Paths {
		c[p.Name] = p.Forward[0].Conditions
	}
	return c
}

// logs shows the ends of what the programs said.
func (f *faults) logs() {
	files, _ := filepath.Glob(filepath.Join(f.dir, "*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		f.t.Logf("%s:\n%s", filepath.Base(file), text[max(0, len(text)-3000):])
	}
}

const (
	moment = 900 * time.Millisecond // how long things are wrong
	rest   = 300 * time.Millisecond // before that
)

// while does something, lets some time pass and undoes it.
func (f *faults) while(name string, hold, gap time.Duration, do, undo func() error) {
	f.t.Helper()
	r := step{from: time.Since(f.begun)}
	time.Sleep(rest)
	s := step{name: name, from: time.Since(f.begun), gap: gap}
	r.to = s.from
	f.rests = append(f.rests, r)
	if err := do(); err != nil {
		f.t.Fatalf("%s: %v", name, err)
	}
	time.Sleep(hold)
	if err := undo(); err != nil {
		f.t.Fatalf("%s, undone: %v", name, err)
	}
	time.Sleep(400 * time.Millisecond)
	s.to = time.Since(f.begun)
	f.steps = append(f.steps, s)
}

// check ends the player and looks how long it had to wait for frames.
func (f *faults) check() {
	f.t.Helper()
	end := time.Since(f.begun)
	time.Sleep(200 * time.Millisecond)
	frames, err := f.endMedia(f.begun)
	if err != nil {
		f.t.Fatal(err)
	}
	slices.SortFunc(frames, func(a, b frame) int { return int(a.shown - b.shown) })
	longest := func(s step) (gap time.Duration) {
		last := s.from
		look := func(now time.Duration) {
			gap = max(gap, now-last-f.stalled(last, now))
			last = now
		}
		for _, x := range frames {
			if x.shown > s.from && x.shown < min(s.to, end) {
				look(x.shown)
			}
		}
		look(min(s.to, end))
		return gap
	}
	// A machine that is too busy for the frames has gaps of its own.
	var busy time.Duration
	for _, r := range f.rests {
		busy = max(busy, longest(r)-usualGap)
	}
	for _, s := range f.steps {
		f.t.Run(s.name, func(t *testing.T) {
			gap := longest(s)
			t.Logf("no new frame for at most %v while the machine ran, which is %v late by itself", gap.Round(time.Millisecond), busy.Round(time.Millisecond))
			if gap > s.gap+busy {
				t.Errorf("no new frame for %v, more than %v", gap, s.gap+busy)
			}
		})
	}
}

// usualGap is the longest between frames where nothing is wrong.
const usualGap = 100 * time.Millisecond

// path takes a path down and brings it back.
func (f *faults) path(index int, hold, gap time.Duration) {
	f.t.Helper()
	name := pathName(index)
	dead := f.calm[name]
	dead.Loss = 1
	f.while(fmt.Sprintf("path %d is dead", index), hold, gap,
		func() error { return f.lab.Set(name, dead) },
		func() error { return f.lab.Set(name, f.calm[name]) })
}

// until waits until what of the pair is true.
func (f *faults) until(what string, ok func() (bool, string)) {
	f.t.Helper()
	said := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		yes, now := ok()
		if yes {
			return
		}
		said = now
	}
	f.t.Fatalf("waiting for %s: %s", what, said)
}

// flow is the flow to the viewer, as the controller has it.
func (f *faults) flow() (x api.Flow, err error) {
	ctx, stop := context.WithTimeout(f.t.Context(), 2*time.Second)
	defer stop()
	var list api.FlowList
	if err := f.pair.ask(ctx, http.MethodGet, "/v1/flows", nil, &list); err != nil {
		return x, err
	}
	for _, x := range list.Flows {
		if x.Destination == f.pair.destination {
			return x, nil
		}
	}
	return x, fmt.Errorf("the controller has no flow to %v", f.pair.destination)
}

// set waits until the flow has a path set, and the sender too.
func (f *faults) set(want func(pathset.Set) bool) {
	f.t.Helper()
	f.until("the path set", func() (bool, string) {
		x, err := f.flow()
		if err != nil {
			return false, err.Error()
		}
		s, err := f.pair.status(f.t.Context(), near)
		if err != nil || s.Sender == nil {
			return false, fmt.Sprintf("%+v, %v", s, err)
		}
		inForce := pathset.Set(0)
		for _, p := range s.Sender.Policies {
			if p.Destination == f.pair.destination {
				inForce = p.Paths
			}
		}
		return want(x.Paths) && inForce == x.Paths, fmt.Sprintf("%+v, in force: %v", x, inForce)
	})
}

// kill ends programs without a warning.
func (f *faults) kill(programs ...**process) func() error {
	return func() error {
		for _, x := range programs {
			f.group.remove(*x)
			(*x).kill()
		}
		return nil
	}
}

// restart starts an edge again.
func (f *faults) restart(edge string) func() error {
	return func() error { return f.pair.startEdge(edge) }
}

// The longest waits for a frame: where another path has it already, and where the
// controller has to see the trouble first (its silence), tell the sender, and what was
// lost has to be sent again.
const (
	seamless = 400 * time.Millisecond
	repaired = 1500 * time.Millisecond
)

// TestFaults: while packets are duplicated, any path, edge program and the controller may
// die; with one path in use, it may die too. The stream goes on, and what comes back takes
// part again.
func TestFaults(t *testing.T) {
	f := newFaults(t, api.Duplicate)
	all := pathset.Of(1, 2, 3, 4, 5)
	f.set(func(s pathset.Set) bool { return s == all })
	for i := range paths {
		f.path(i+1, moment, seamless)
	}
	f.while("the sender's program is dead", moment, seamless, f.kill(&f.pair.near), f.restart(near))
	f.while("the receiver's program is dead", moment, seamless, f.kill(&f.pair.far), f.restart(far))
	f.while("the controller is dead", moment, seamless, f.kill(&f.pair.controller), f.pair.startController)
	if err := f.pair.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.set(func(s pathset.Set) bool { return s == all })
	f.while("all programs of the pair are dead", moment, seamless, f.kill(&f.pair.controller, &f.pair.near, &f.pair.far), func() error {
		for _, start := range []func() error{f.restart(far), f.restart(near), f.pair.startController} {
			if err := start(); err != nil {
				return err
			}
		}
		return nil
	})
	if err := f.pair.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.set(func(s pathset.Set) bool { return s == all })
	f.path(1, moment, seamless)
	f.check()
}

// TestPathDiesWithController: the path that plain routing takes dies while the controller starts
// again, which therefore sees no receipt of the viewer. It moves the flow all the same, because
// of what the edges saw last, or else once the path is known to be dead.
func TestPathDiesWithController(t *testing.T) {
	f := newFaults(t, api.Auto)
	f.until("a live flow", func() (bool, string) {
		x, err := f.flow()
		return err == nil && x.Live && x.State == api.Armed, fmt.Sprintf("%+v, %v", x, err)
	})
	dead := f.calm[pathName(1)]
	dead.Loss = 1
	f.while("path 1 and the controller are dead", 3*moment, repaired+500*time.Millisecond, func() error {
		if err := f.kill(&f.pair.controller)(); err != nil {
			return err
		}
		if err := f.lab.Set(pathName(1), dead); err != nil {
			return err
		}
		return f.pair.startController()
	}, func() error {
		x, err := f.flow()
		if err == nil && x.Paths&^pathset.Of(1) == 0 {
			t.Errorf("the flow is left on paths %v: %+v", x.Paths, x)
		}
		return errors.Join(err, f.lab.Set(pathName(1), f.calm[pathName(1)]))
	})
	f.check()
}

// TestSinglePathDies: without duplication the path in use dies; the trigger starts
// duplication, which the elimination ends.
func TestSinglePathDies(t *testing.T) {
	f := newFaults(t, api.Auto)
	live := func() (bool, string) {
		x, err := f.flow()
		return err == nil && x.Live && x.State == api.Armed, fmt.Sprintf("%+v, %v", x, err)
	}
	f.until("a live flow", live)
	f.while("the controller is dead", moment, seamless, f.kill(&f.pair.controller), f.pair.startController)
	f.until("a live flow", live)
	time.Sleep(moment) // a flow's silence is trouble only after its first few receipts
	f.path(1, 3*moment, repaired)
	f.set(func(s pathset.Set) bool { return s.Len() <= 1 })
	f.check()
}
