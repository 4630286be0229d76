//go:build linux

package duplication

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/netlab/wire"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
	"holocast/internal/recording"
	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// pointsName is the name of the recorded track.
var pointsName = catalog.PointsTrack(0, "full")

// recorded returns media of a catalog and objects of its track.
func recorded(t *testing.T, c catalog.Catalog, objects []recording.Object) *media {
	t.Helper()
	path := filepath.Join(t.TempDir(), "second.mcap")
	w, err := recording.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1790000000, 0)
	described := recording.Object{
		Track: moqt.TrackName{Name: catalog.TrackName}, Payload: text, FirstObject: true, End: recording.EndFIN,
	}
	for i, o := range append([]recording.Object{described}, objects...) {
		if i > 0 {
			o.Track.Name = pointsName
		}
		o.Track.Namespace = []string{"holocast", "bench"}
		o.Arrival = start.Add(time.Duration(max(0, i-1)) * time.Second / fps)
		if err := w.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &media{level: levels[0], file: path}
}

// cloudMedia returns one second of frames that are cheap to generate: 8000 random points each, about 15 Mbit/s.
func cloudMedia(t *testing.T) *media {
	t.Helper()
	const points = 2000
	c := catalog.Catalog{Version: catalog.Version, Tracks: []catalog.Track{{
		Name: pointsName, Packaging: catalog.PackagingPoints, IsLive: true,
		Points: &catalog.Points{Quality: "full", Layout: "B", Descriptions: 1, MaxPoints: points, DeliveryTimeout: 500},
	}}}
	encoder, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	cloud := pointcloud.Points{XYZ: make([]int16, 3*points), RGB: make([]byte, 3*points)}
	for i := range cloud.XYZ {
		cloud.XYZ[i], cloud.RGB[i] = int16(rand.IntN(4000)), byte(rand.IntN(256))
	}
	frame, err := encoder.Encode(nil, pointcloud.Header{}, &pointcloud.Frame{
		Layout: pointcloud.LayoutPoints,
		Points: cloud,
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var objects []recording.Object
	for i := range fps {
		objects = append(objects, recording.Object{
			Group: uint64(i), Payload: frame, FirstObject: true, End: recording.EndFIN,
		})
	}
	return recorded(t, c, objects)
}

// videoMedia returns one second of frames in layout W, one group, about 2 Mbit/s: a wall in random
// colors.
func videoMedia(t *testing.T) *media {
	t.Helper()
	const width, height = 320, 288
	c := catalog.Catalog{Version: catalog.Version}
	ref, err := c.AddInit("camera-0", catalog.CameraInit{
		Grid: camera.Intrinsics{Width: width, Height: height, Fx: 250, Fy: 250, Cx: width / 2, Cy: height / 2},
		Pose: camera.Identity,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Tracks = []catalog.Track{{
		Name: pointsName, Packaging: catalog.PackagingPoints, IsLive: true, InitRef: ref, Width: width, Height: height,
		Points: &catalog.Points{
			Quality: "full", Layout: catalog.LayoutVideo, Descriptions: 1, MaxPoints: width * height, DeliveryTimeout: 500,
		},
	}}
	e, err := pointvideo.NewEncoder(pointvideo.Config{Width: width, Height: height})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var objects []recording.Object
	g := pointcloud.Grid{
		Width: width, Height: height, Depth: slices.Repeat([]uint16{2000}, width*height), Color: make([]byte, 3*width*height),
	}
	for i := range fps {
		for p := range width * height {
			if x, y := p%width, p/width; x%8 == 0 && y%8 == 0 {
				g.Color[3*p] = byte(rand.IntN(256))
			} else {
				g.Color[3*p] = g.Color[3*(y&^7*width+x&^7)]
			}
		}
		payload, err := e.Encode(nil, pointcloud.Header{Sequence: uint32(i)}, &g, i == 0)
		if err != nil {
			t.Fatal(err)
		}
		o := recording.Object{ObjectID: uint64(i), Payload: payload, FirstObject: i == 0, EndOfGroup: true}
		if i == fps-1 {
			o.End = recording.EndFIN
		}
		objects = append(objects, o)
	}
	return recorded(t, c, objects)
}

// faults is a session that must survive faults in its network and in the pair.
type faults struct {
	*session
	t       *testing.T
	begun   time.Time
	initial map[string]wire.Conditions // by path
	steps   []step
}

// step is one fault and when it began and ended.
type step struct {
	name     string
	from, to time.Duration
}

// newFaults starts a session over Table I without variation, with the pair.
func newFaults(t *testing.T, mode api.Mode, m *media) *faults {
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
	table, err := network(full, false, false)
	if err != nil {
		t.Fatal(err)
	}
	lab, err := netlab.Start(table, netlab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &faults{session: &session{programs: p, lab: lab, dir: t.TempDir()}, t: t, initial: conditions(table)}
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
	// The interval exceeds the delay of receipts on a busy machine, so only a dead path triggers.
	if err := f.startPair(ctx, mode, watched{controller: "trigger: {rule: paper, interval: 400ms, count: 1}\nrearm: 5s\n"},
		false); err != nil {
		t.Fatal(err)
	}
	// Also duplicate acknowledgements, which must survive the loss of one path.
	if err := f.pair.back(ctx, pathset.Of(1, 2)); err != nil {
		t.Fatal(err)
	}
	if err := f.startMedia(ctx, m, ""); err != nil {
		t.Fatal(err)
	}
	if err := lab.Begin(); err != nil {
		t.Fatal(err)
	}
	f.begun = time.Now()
	return f
}

func conditions(table *topology.Topology) map[string]wire.Conditions {
	c := map[string]wire.Conditions{}
	for _, p := range table.Paths {
		c[p.Name] = p.Forward[0].Conditions
	}
	return c
}

// logs prints the tail of each program's output.
func (f *faults) logs() {
	files, _ := filepath.Glob(filepath.Join(f.dir, "*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		f.t.Logf("%s:\n%s", filepath.Base(file), text[max(0, len(text)-3000):])
	}
}

const (
	minFault    = 900 * time.Millisecond // long enough for the pair to notice
	faultFrames = 20                     // data that must reach the viewer during each fault, in frames
	faultBytes  = faultFrames * 60_000
)

// during injects a fault, waits until the stream has continued, and undoes the fault.
func (f *faults) during(name string, do, undo func() error) {
	f.t.Helper()
	if err := do(); err != nil {
		f.t.Fatalf("%s: %v", name, err)
	}
	s := step{name: name, from: time.Since(f.begun)}
	before, err := counters(f.lab)
	if err != nil {
		f.t.Fatal(err)
	}
	time.Sleep(minFault)
	f.until("frames while "+name, func() (bool, string) {
		now, err := counters(f.lab)
		delivered := now.delivered - before.delivered
		return err == nil && delivered >= faultBytes, fmt.Sprintf("%d bytes delivered, want %d; %v", delivered,
			faultBytes, err)
	})
	s.to = time.Since(f.begun)
	f.steps = append(f.steps, s)
	if err := undo(); err != nil {
		f.t.Fatalf("undo %s: %v", name, err)
	}
}

// check stops the player. During each fault, the player must have displayed frames captured since
// the fault began.
func (f *faults) check() {
	f.t.Helper()
	frames, err := f.endMedia(f.begun)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, s := range f.steps {
		f.t.Run(s.name, func(t *testing.T) {
			shown, longest, last := 0, time.Duration(0), s.from
			for _, x := range frames {
				if x.captured >= s.from && x.shown <= s.to {
					shown++
					longest, last = max(longest, x.shown-last), x.shown
				}
			}
			t.Logf("%d frames in %v, the longest gap %v", shown, (s.to - s.from).Round(time.Millisecond),
				longest.Round(time.Millisecond))
			if shown < faultFrames/4 {
				t.Errorf("%d frames captured and shown during the fault, want %d of about %d", shown, faultFrames/4,
					faultFrames)
			}
		})
	}
}

// path takes a path down during a fault and brings it back.
func (f *faults) path(index int) {
	f.t.Helper()
	name := pathName(index)
	dead := f.initial[name]
	dead.Loss = 1
	f.during(fmt.Sprintf("path %d is dead", index),
		func() error { return f.lab.Set(name, dead) },
		func() error { return f.lab.Set(name, f.initial[name]) })
}

// until polls for a condition, for up to two minutes.
func (f *faults) until(what string, ok func() (bool, string)) {
	f.t.Helper()
	state := ""
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		yes, now := ok()
		if yes {
			return
		}
		state = now
	}
	f.t.Fatalf("waiting for %s: %s", what, state)
}

// flow returns the controller's state for the flow to the viewer.
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

// set waits until the controller and the sender agree on a path set that satisfies want.
func (f *faults) set(want func(pathset.Set) bool) {
	f.t.Helper()
	f.until("a path set", func() (bool, string) {
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

// kill returns a function that kills programs.
func (f *faults) kill(programs ...**process) func() error {
	return func() error {
		for _, x := range programs {
			f.group.remove(*x)
			(*x).kill()
		}
		return nil
	}
}

// restart returns a function that starts an edge again.
func (f *faults) restart(edge string) func() error {
	return func() error { return f.pair.startEdge(edge) }
}

// While packets are duplicated, the stream survives the failure of any path, of either edge program
// and of the controller. Restarted programs resume duplication.
func TestFaults(t *testing.T) {
	f := newFaults(t, api.Duplicate, cloudMedia(t))
	all := pathset.Of(1, 2, 3, 4, 5)
	f.set(func(s pathset.Set) bool { return s == all })
	for i := range paths {
		f.path(i + 1)
	}
	f.during("the sender's program is dead", f.kill(&f.pair.near), f.restart(near))
	f.during("the receiver's program is dead", f.kill(&f.pair.far), f.restart(far))
	f.during("the controller is dead", f.kill(&f.pair.controller), f.pair.startController)
	if err := f.pair.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.set(func(s pathset.Set) bool { return s == all })
	f.during("all programs of the pair are dead", f.kill(&f.pair.controller, &f.pair.near, &f.pair.far), func() error {
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
	f.path(1)
	f.check()
}

// A path and an edge fail while frames in layout W are duplicated. As each frame needs those before it,
// a single lost packet would stop the stream until the next group.
func TestFaultsOfVideo(t *testing.T) {
	f := newFaults(t, api.Duplicate, videoMedia(t))
	all := pathset.Of(1, 2, 3, 4, 5)
	f.set(func(s pathset.Set) bool { return s == all })
	f.path(1)
	f.path(2)
	f.during("the receiver's program is dead", f.kill(&f.pair.far), f.restart(far))
	f.check()
}

// armed waits until the controller knows the flow and duplication is ready to trigger.
func (f *faults) armed() {
	f.t.Helper()
	f.until("an armed flow", func() (bool, string) {
		x, err := f.flow()
		return err == nil && x.Live && x.State == api.Armed, fmt.Sprintf("%+v, %v", x, err)
	})
}

// The default path fails while the controller restarts, so the new controller sees no receipt from
// the viewer. It still moves the flow, either because of the edges' last observations or because
// the path counts as down.
func TestPathDiesWithController(t *testing.T) {
	f := newFaults(t, api.Auto, cloudMedia(t))
	f.armed()
	dead := f.initial[pathName(1)]
	dead.Loss = 1
	f.during("path 1 and the controller are dead", func() error {
		if err := f.kill(&f.pair.controller)(); err != nil {
			return err
		}
		if err := f.lab.Set(pathName(1), dead); err != nil {
			return err
		}
		return f.pair.startController()
	}, func() error {
		f.set(func(s pathset.Set) bool { return s&^pathset.Of(1) != 0 })
		return f.lab.Set(pathName(1), f.initial[pathName(1)])
	})
	f.check()
}

// The only path in use fails. The trigger starts duplication, which elimination later ends.
func TestSinglePathDies(t *testing.T) {
	f := newFaults(t, api.Auto, cloudMedia(t))
	f.armed()
	f.during("the controller is dead", f.kill(&f.pair.controller), f.pair.startController)
	f.armed()
	time.Sleep(minFault) // silence triggers only after the flow's first few receipts
	f.path(1)
	f.set(func(s pathset.Set) bool { return s.Len() <= 1 })
	f.check()
}
