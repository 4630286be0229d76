package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"holocast/capture-server/depthmap"
	"holocast/capture-server/source"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/pointcloud"
	"holocast/internal/programtest"
)

// bin is the directory into which TestMain builds the relay and the capture server.
var bin string

func TestMain(m *testing.M) {
	programtest.Main(m, func(dir string) { bin = dir }, "holocast/relay", "holocast/capture-server")
}

// start runs a program until the test ends.
func start(t *testing.T, path string, args ...string) *programtest.Process {
	t.Helper()
	return programtest.Start(t, exec.Command(path, args...))
}

// freePort returns a port that is free for TCP and UDP.
func freePort(t *testing.T) string {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		u, err := net.ListenPacket("udp", addr)
		_ = l.Close()
		if err == nil {
			_ = u.Close()
			return addr
		}
	}
	t.Fatal("no port is free for both TCP and UDP")
	return ""
}

// view connects to the relay, retrying until it listens.
func view(ctx context.Context, t *testing.T, target connect.Target) *moqt.Session {
	t.Helper()
	for {
		s, err := target.Dial(ctx, moqt.Handler{}, moqt.Config{})
		if err == nil {
			t.Cleanup(func() { s.Close(wire.NoError, "") })
			return s
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func subscribe(ctx context.Context, t *testing.T, s *moqt.Session, ns moqt.Namespace, name string) *moqt.Subscription {
	t.Helper()
	for {
		sub, err := s.Subscribe(ctx, moqt.TrackName{Namespace: ns, Name: name},
			moqt.SubscribeOptions{RendezvousTimeout: 20 * time.Second})
		if e := (*moqt.RequestError)(nil); errors.As(err, &e) && e.Code == wire.RequestTimeout {
			continue // the publisher may still be rendering the performer
		}
		if err != nil {
			t.Fatalf("subscribe %s: %v", name, err)
		}
		return sub
	}
}

// received is one object of a frame.
type received struct {
	group, subgroup, object uint64
	priority                uint8
	payload                 []byte
}

// next returns the next complete object and the number of incomplete objects skipped before it,
// which occur on an overloaded machine.
func next(ctx context.Context, t *testing.T, sub *moqt.Subscription) (o received, late int) {
	t.Helper()
	for ; ; late++ {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			t.Fatalf("%s: %v", sub.Track(), err)
		}
		o, err := r.NextObject()
		var payload []byte
		if err == nil {
			payload, err = r.ReadPayload(nil, 32<<20)
		}
		if e := (*moqt.StreamError)(nil); errors.As(err, &e) &&
			(e.Code == wire.StreamDeliveryTimeout || e.Code == wire.StreamTooFarBehind) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return received{r.Group, r.Subgroup, o.ID, r.Priority, payload}, late
	}
}

// newestObject fetches the newest object of a track.
func newestObject(ctx context.Context, t *testing.T, sub *moqt.Subscription) []byte {
	t.Helper()
	f, err := sub.Session().FetchJoining(ctx, sub, 0, moqt.FetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Cancel()
	if _, err := f.Next(); err != nil {
		t.Fatal(err)
	}
	b, err := f.ReadPayload(nil, catalog.MaxSize)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loopGrids returns the grids of the synthetic performer's loop at fps frames per second, keyed by
// device time.
func loopGrids(ctx context.Context, t *testing.T, fps float64, frames int) map[time.Duration]pointcloud.Grid {
	t.Helper()
	const haste = 10 // play faster; the loop is the same at any rate
	studio, err := synthetic.Open(ctx, synthetic.Options{FPS: haste * fps, Frames: frames})
	if err != nil {
		t.Fatal(err)
	}
	cfg := defaultConfig()
	m, err := depthmap.New(studio.Cameras[0].Calibration(), cfg.cloud())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	grids := map[time.Duration]pointcloud.Grid{}
	var f source.Frame
	for len(grids) < frames {
		if err := studio.Cameras[0].Next(ctx, &f); err != nil {
			t.Fatal(err)
		}
		at := haste * f.DeviceTime % (time.Duration(frames) * time.Second / time.Duration(fps))
		if _, again := grids[at]; again {
			// Sleep for random times, since reads in step with the loop would always miss the same
			// frames.
			time.Sleep(rand.N(20 * time.Millisecond))
			continue
		}
		var g pointcloud.Grid
		if err := m.Map(&f, &g); err != nil {
			t.Fatal(err)
		}
		grids[at] = g
	}
	return grids
}

func TestFramesReachViewerOfRelay(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const fps, loop = 10, 30 // the performer's loop lasts three seconds
	grids := loopGrids(ctx, t, fps, loop)
	target, ns := startRelay(t)
	web := freePort(t)
	began := time.Now()
	server := start(t, filepath.Join(bin, "capture-server"), "--source", "synthetic", "--fps", "10", "--descriptions",
		"4", "--thin=false", "--http", web, target.URL)
	s := view(ctx, t, target)

	catalogs := subscribe(ctx, t, s, ns, catalog.TrackName)
	c, err := catalog.Parse(newestObject(ctx, t, catalogs))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Cameras(); !slices.Equal(got, []int{0}) {
		t.Fatalf("catalog has cameras %v, want [0]", got)
	}
	track, err := c.Select(0, "")
	if err != nil {
		t.Fatal(err)
	}
	init, err := c.Init(track)
	if err != nil {
		t.Fatal(err)
	}
	if track.Name != "points/0/full" || track.Framerate != fps || track.Points.Descriptions != 4 ||
		init.Calibration == nil ||
		init.Pose.T[1] == 0 {
		t.Errorf("catalog track %+v, init %+v", track, init)
	}
	poses, err := catalog.ParsePoses(newestObject(ctx, t, subscribe(ctx, t, s, ns, catalog.PoseTrack)))
	if err != nil || len(poses) != 1 || poses[0].Data.Pose != init.Pose {
		t.Errorf("poses %+v, %v; the catalog's is %+v", poses, err, init.Pose)
	}

	sub := subscribe(ctx, t, s, ns, track.Name)
	for property, want := range map[uint64]uint64{
		wire.PropertyObjectDeliveryTimeout: 500, wire.PropertySubgroupDeliveryTimeout: 500,
		wire.PropertyPublisherPriority: 96,
	} {
		if got, ok := sub.Properties.Int(property); !ok || got != want {
			t.Errorf("track property %#x is %d, want %d", property, got, want)
		}
	}
	type frame struct {
		objects  [][]byte
		header   pointcloud.Header
		received time.Time
	}
	frames := map[uint64]*frame{}
	var groups []uint64
	late := 0
	for complete := 0; complete < 2*fps; {
		o, n := next(ctx, t, sub)
		late += n
		if o.subgroup != o.object || o.priority != uint8(96+32*o.object) {
			t.Fatalf("group %d: object %d in subgroup %d with priority %d", o.group, o.object, o.subgroup, o.priority)
		}
		h, err := pointcloud.ParseHeader(o.payload)
		if err != nil {
			t.Fatal(err)
		}
		if uint64(h.Description) != o.object {
			t.Fatalf("object %d holds description %d", o.object, h.Description)
		}
		f := frames[o.group]
		if f == nil {
			f = &frame{header: h, received: time.Now()}
			frames[o.group] = f
			groups = append(groups, o.group)
		}
		if f.objects = append(f.objects, o.payload); len(f.objects) == 4 {
			complete++
		}
	}
	slices.Sort(groups)
	d, err := pointcloud.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	// Every published frame arrives, except for late ones. A frame dropped by an overloaded server
	// is missing from the sequence and counted.
	first, last := frames[groups[0]].header.Sequence, frames[groups[len(groups)-1]].header.Sequence
	if lost, dropped := int(last-first)+1-len(groups), droppedFrames(ctx, t, web); lost < 0 || lost > dropped+late {
		t.Errorf("%d frames have sequences %d to %d, but the server dropped %d, and %d objects were late", len(groups),
			first, last, dropped, late)
	}
	sequence := first
	for i, group := range groups {
		f := frames[group]
		if skipped := group - groups[0] - uint64(i); f.header.Sequence < sequence || skipped > uint64(late) {
			t.Errorf("frame %d after the first has sequence %d and group %d, the first %d and %d", i, f.header.Sequence,
				group, first, groups[0])
		}
		sequence = f.header.Sequence + 1
		if captured := time.UnixMicro(int64(f.header.CaptureTime)); captured.Before(began) ||
			captured.After(f.received) {
			t.Errorf("frame %d was captured at %s and received at %s", i, captured, f.received)
		}
		if len(f.objects) != 4 {
			continue
		}
		var got pointcloud.Frame
		h, err := d.Decode(&got, f.objects...)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Duration(h.DeviceTime) * time.Microsecond % (loop * time.Second / fps)
		want := grids[at]
		if h.Camera != 0 || !sameGrid(&got.Grid, &want) {
			t.Fatalf("frame %d, at %s of the loop, differs from the source's", i, at)
		}
	}

	// The viewer is notified that the session has ended.
	server.Signal(syscall.SIGTERM)
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err == nil {
			r.Cancel(wire.StreamCancelled)
			continue
		}
		if done := (*moqt.DoneError)(nil); !errors.As(err, &done) || done.Code != wire.DoneTrackEnded {
			t.Errorf("after SIGTERM the subscription ended with %v, want TRACK_ENDED", err)
		}
		break
	}
	if err := server.Err(); err != nil {
		t.Errorf("capture-server after SIGTERM: %v", err)
	}
	end, _ := next(ctx, t, catalogs)
	if c, err := catalog.Parse(end.payload); err != nil || !c.IsComplete {
		t.Errorf("last catalog %s, %v", end.payload, err)
	}
}

// droppedFrames reads the number of dropped captures from a capture server's metrics.
func droppedFrames(ctx context.Context, t *testing.T, addr string) (n int) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil ||
		!bytes.Contains(body, []byte(`holocast_capture_frames_total{camera="synthetic-0",result="published"}`)) {
		t.Fatalf("metrics: %v\n%s", err, body)
	}
	if m := regexp.MustCompile(`frames_total\{camera="synthetic-0",result="dropped"\} (\d+)`).
		FindSubmatch(body); m != nil {
		n, err = strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// sameGrid compares depth, and colour where there are points.
func sameGrid(a, b *pointcloud.Grid) bool {
	if a.Width != b.Width || a.Height != b.Height || !slices.Equal(a.Depth, b.Depth) {
		return false
	}
	for i, d := range a.Depth {
		if d != 0 && [3]byte(a.Color[3*i:]) != [3]byte(b.Color[3*i:]) {
			return false
		}
	}
	return true
}

func TestViewerSurvivesServerRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	addr := freePort(t)
	// The deadline allows for rendering the performer again on a busy machine.
	start(t, filepath.Join(bin, "relay"), "--listen", addr, "--http", addr, "--publisher-grace", "5m")
	target := connect.Target{URL: "moqt://" + addr + "/test"}
	ns, err := target.Namespace()
	if err != nil {
		t.Fatal(err)
	}
	serve := func() *programtest.Process {
		return start(t, filepath.Join(bin, "capture-server"), "--source", "synthetic", "--fps", "10", target.URL)
	}
	server := serve()
	sub := subscribe(ctx, t, view(ctx, t, target), ns, "points/0/full")
	var last uint64
	for range 10 {
		o, _ := next(ctx, t, sub)
		last = max(last, o.group)
	}
	server.Kill()
	serve()
	for {
		// Objects sent before the server was killed may still arrive.
		if o, _ := next(ctx, t, sub); o.group > last+5 {
			return
		}
	}
}

// startRelay runs a relay until the test ends. It returns a session's address and namespace.
func startRelay(t *testing.T) (connect.Target, moqt.Namespace) {
	t.Helper()
	addr := freePort(t)
	start(t, filepath.Join(bin, "relay"), "--listen", addr, "--http", addr)
	target := connect.Target{URL: "moqt://" + addr + "/test"}
	ns, err := target.Namespace()
	if err != nil {
		t.Fatal(err)
	}
	return target, ns
}
