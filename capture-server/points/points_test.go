package points

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"holocast/capture-server/depthmap"
	"holocast/capture-server/publish"
	"holocast/capture-server/publish/publishtest"
	"holocast/capture-server/source"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/clock/clocktest"
	"holocast/internal/leaktest"
	"holocast/internal/pointcloud"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// still is a camera that repeats one image.
type still struct {
	cal    camera.Calibration
	frame  source.Frame
	period time.Duration
	end    error // returned after frames frames
	frames int
	closed bool
	fps    float64 // 0 means 30
}

func (s *still) Name() string                    { return "still" }
func (s *still) Calibration() camera.Calibration { return s.cal }
func (s *still) Dropped() int64                  { return 7 }
func (s *still) FPS() float64                    { return cmp.Or(s.fps, 30) }
func (s *still) Close() error                    { s.closed = true; return nil }

func (s *still) Next(ctx context.Context, f *source.Frame) error {
	if s.frames == 0 && s.end != nil {
		return s.end
	}
	s.frames--
	select {
	case <-time.After(s.period):
	case <-ctx.Done():
		return ctx.Err()
	}
	*f = s.frame
	f.CaptureTime = time.Now()
	return nil
}

// picture renders the image of the still cameras once.
var picture = sync.OnceValues(func() (*still, error) {
	studio, err := synthetic.Open(context.Background(), synthetic.Options{Frames: 1, Depth: camera.NFOV2x2Binned})
	if err != nil {
		return nil, err
	}
	s := &still{cal: studio.Cameras[0].Calibration(), period: 5 * time.Millisecond}
	return s, studio.Cameras[0].Next(context.Background(), &s.frame)
})

func newStill(t testing.TB) *still {
	t.Helper()
	s, err := picture()
	if err != nil {
		t.Fatal(err)
	}
	shown := *s
	return &shown
}

func newMedium(t testing.TB, cfg Config, sources ...source.Source) *Medium {
	t.Helper()
	return newMediumLogging(t, slog.DiscardHandler, cfg, sources...)
}

func newMediumLogging(t testing.TB, log slog.Handler, cfg Config, sources ...source.Source) *Medium {
	t.Helper()
	p := publish.New(publish.Config{Namespace: publishtest.Namespace, Log: slog.New(log)})
	cameras := make([]Camera, 0, len(sources))
	for _, s := range sources {
		cameras = append(cameras, Camera{Source: s})
	}
	m, err := New(p, cfg, cameras)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := p.Add(m); err != nil {
		t.Fatal(err)
	}
	return m
}

// counted returns the number of captures with the given result.
func counted(t *testing.T, m *Medium, result string) float64 {
	t.Helper()
	var metric dto.Metric
	if err := m.metrics.frames.WithLabelValues("still", result).Write(&metric); err != nil {
		t.Fatal(err)
	}
	return metric.GetCounter().GetValue()
}

func TestNewestCaptureWins(t *testing.T) {
	s := newStill(t)
	m := newMedium(t, Config{AlwaysEncode: true}, s)
	l := m.pipelines[0]
	for i := range 5 {
		f := s.frame
		f.DeviceTime = time.Duration(i) * time.Millisecond
		l.take(f)
	}
	if dropped := counted(t, m, "dropped"); dropped != 4 {
		t.Errorf("%v captures dropped, want 4", dropped)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.encode(ctx) }()
	object := firstObject(t, m)
	cancel()
	<-done
	h, err := pointcloud.ParseHeader(object)
	if err != nil {
		t.Fatal(err)
	}
	if h.Sequence != 4 || h.DeviceTime != 4000 {
		t.Errorf("frame has sequence %d and device time %d µs, want 4 and 4000", h.Sequence, h.DeviceTime)
	}
}

// lender is a camera that clears each frame's memory when the frame is released.
type lender struct {
	still
	lent     atomic.Int64
	released atomic.Int64
}

func (s *lender) Next(ctx context.Context, f *source.Frame) error {
	if err := s.still.Next(ctx, f); err != nil {
		return err
	}
	f.Depth, f.Color = slices.Clone(f.Depth), bytes.Clone(f.Color)
	depth, color := f.Depth, f.Color
	s.lent.Add(1)
	f.Free = func() {
		clear(depth)
		clear(color)
		s.released.Add(1)
	}
	return nil
}

// TestFramesReleased checks that a frame's memory returns to its source exactly once, after
// the frame has been encoded.
func TestFramesReleased(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cfg    Config
		period time.Duration
	}{
		{"every frame encoded", Config{AlwaysEncode: true, Low: true, Descriptions: 4}, 30 * time.Millisecond},
		{"overtaken frames dropped", Config{AlwaysEncode: true}, time.Microsecond},
		{"no viewers", Config{}, time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &lender{still: *newStill(t)}
			s.period, s.frames, s.end = tt.period, 40, io.EOF
			m := newMedium(t, tt.cfg, s)
			if err := m.pipelines[0].run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if lent, released := s.lent.Load(), s.released.Load(); lent != 40 || released != lent {
				t.Errorf("%d of %d frames released, want all 40", released, lent)
			}
			if failed := counted(t, m, "failed"); failed != 0 {
				t.Errorf("%v captures could not be encoded", failed)
			}
			for _, track := range m.pipelines[0].tracks {
				objects := publishtest.Objects(t, m.session, track.Track.Name().Name)
				var want pointcloud.Grid
				mapper, err := depthmap.New(s.cal, depthmap.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer mapper.Close()
				if err := mapper.Map(&s.frame, &want); err != nil {
					t.Fatal(err)
				}
				checkPoints(t, track, objects[len(objects)-max(1, tt.cfg.Descriptions):], &want)
			}
		})
	}
}

func TestUnwatchedTrackStaysFresh(t *testing.T) {
	m := newMedium(t, Config{}, newStill(t))
	track := m.pipelines[0].tracks[0]
	now := time.Now()
	if !track.wanted(now) {
		t.Error("no first frame is wanted")
	}
	track.newest.Store(&now)
	for _, step := range []time.Duration{0, time.Hour, -time.Hour} { // wall clock steps
		now := clocktest.Step(now, step)
		if track.wanted(now.Add(idleInterval - 1)) {
			t.Errorf("clock stepped by %v: a frame is wanted, without viewers and with a fresh newest frame", step)
		}
		if !track.wanted(now.Add(idleInterval)) {
			t.Errorf("clock stepped by %v: no frame is wanted although the newest is old", step)
		}
	}
}

// A late joiner fetches the newest frame and interprets a gap before the next sequence number as a
// loss, so captures of a track without viewers must not use up sequence numbers.
func TestUnwatchedTrackHasNoGaps(t *testing.T) {
	s := newStill(t)
	m := newMedium(t, Config{Low: true}, s)
	l := m.pipelines[0]
	full, low := l.tracks[0], l.tracks[1]
	take := func() *capture { // returns the waiting capture
		f := s.frame
		l.take(f)
		return l.pending
	}
	encode := func() { l.publish(l.next()) }
	sequences := func(of *pointsTrack) (list []uint32) {
		for _, o := range publishtest.Objects(t, m.session, of.Track.Name().Name) {
			h, err := pointcloud.ParseHeader(o)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, h.Sequence)
		}
		return list
	}

	for range 4 {
		take() // the first is being encoded
	}
	encode()
	for _, of := range l.tracks {
		if of.newest.Load() == nil {
			t.Fatalf("no frame of %s", of.quality)
		}
		fresh := time.Now().Add(time.Hour) // however long this test takes
		of.newest.Store(&fresh)
	}
	if take() != nil {
		t.Error("a capture is taken though the newest frame is fresh")
	}
	long := time.Now().Add(-idleInterval)
	full.newest.Store(&long)
	take()
	full.always = true // a viewer leaves before the capture is encoded
	take()
	full.always = false
	encode()
	if got := sequences(full); !slices.Equal(got, []uint32{0, 2}) { // capture 1 was replaced while there was a viewer
		t.Errorf("the frames of %s are %v, want 0 and 2", full.quality, got)
	}
	if got := sequences(low); !slices.Equal(got, []uint32{0}) {
		t.Errorf("the frames of %s are %v, want 0", low.quality, got)
	}
	idle, dropped, published := counted(t, m, "idle"), counted(t, m, "dropped"), counted(t, m, "published")
	if idle != 4 || dropped != 1 || published != 2 {
		t.Errorf("%v captures idle, %v dropped, %v published; want 4, 1 and 2", idle, dropped, published)
	}

	// An unusable capture is replaced immediately.
	full.newest.Store(&long)
	take().Depth = nil
	encode()
	if failed := counted(t, m, "failed"); failed != 1 {
		t.Errorf("%v captures failed, want 1", failed)
	}
	if take() == nil {
		t.Error("no capture is taken after one that could not be used")
	}
}

func TestQualities(t *testing.T) {
	s := newStill(t)
	var want pointcloud.Grid
	mapper, err := depthmap.New(s.cal, depthmap.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer mapper.Close()
	if err := mapper.Map(&s.frame, &want); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name         string
		layout       pointcloud.Layout
		descriptions int
	}{
		{"grid", pointcloud.LayoutGrid, 1},
		{"grid of four descriptions", pointcloud.LayoutGrid, 4},
		{"points", pointcloud.LayoutPoints, 1},
		{"interleaved points of four descriptions", pointcloud.LayoutInterleaved, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMedium(t, Config{Layout: tt.layout, Descriptions: tt.descriptions, Low: true, AlwaysEncode: true},
				s)
			l := m.pipelines[0]
			c := &capture{Frame: s.frame, taken: time.Now()}
			c.CaptureTime = time.Now()
			l.publish(c)
			for _, track := range l.tracks {
				objects := publishtest.Objects(t, m.session, track.Track.Name().Name)
				if len(objects) != tt.descriptions {
					t.Fatalf("%s: %d objects, want %d", track.quality, len(objects), tt.descriptions)
				}
				checkPoints(t, track, objects, &want)
			}
		})
	}
}

// checkPoints compares a frame with the expected pixels of the full grid.
func checkPoints(t *testing.T, track *pointsTrack, objects [][]byte, full *pointcloud.Grid) {
	t.Helper()
	d, err := pointcloud.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	want := full
	if track.quality == qualityLow {
		want = new(pointcloud.Grid)
		full.Halve(want)
	}
	if track.layout.OnGrid() {
		var frame pointcloud.Frame
		if _, err := d.Decode(&frame, objects...); err != nil {
			t.Fatal(err)
		}
		got := frame.Grid
		if got.Width != track.lens.Width || got.Height != track.lens.Height || !slices.Equal(got.Depth, want.Depth) {
			t.Fatalf("%s: depth of %d×%d pixels differs from the camera's", track.quality, got.Width, got.Height)
		}
		for i, z := range want.Depth {
			if z != 0 && !bytes.Equal(got.Color[3*i:3*i+3], want.Color[3*i:3*i+3]) {
				t.Fatalf("%s: colour of pixel %d differs from the camera's", track.quality, i)
			}
		}
		return
	}
	// Identify each point's pixel by projection.
	n := 0
	for _, o := range objects {
		var frame pointcloud.Frame
		if _, err := d.Decode(&frame, o); err != nil {
			t.Fatal(err)
		}
		got := frame.Points
		for i := 0; i < len(got.XYZ); i += 3 {
			p := [3]float64{float64(got.XYZ[i]), float64(got.XYZ[i+1]), float64(got.XYZ[i+2])}
			u, v, ok := track.lens.Project(p)
			x, y := int(u+0.5), int(v+0.5)
			if !ok || x < 0 || x >= track.lens.Width || y < 0 || y >= track.lens.Height {
				t.Fatalf("%s: point %v is outside the picture", track.quality, p)
			}
			if near(want.Depth, track.lens.Width, x, y, uint16(p[2])) {
				n++
			}
		}
	}
	points := 0
	for _, z := range want.Depth {
		if z != 0 {
			points++
		}
	}
	if n != points {
		t.Errorf("%s: %d points are where the camera has one, want %d", track.quality, n, points)
	}
}

// near reports whether pixel (x, y) or a neighbour has depth z. Rounding to millimetres moves a
// point by up to a pixel.
func near(depth []uint16, width, x, y int, z uint16) bool {
	for dy := -1; dy <= 1; dy++ {
		for dx := -1; dx <= 1; dx++ {
			i := (y+dy)*width + x + dx
			if i >= 0 && i < len(depth) && depth[i] == z {
				return true
			}
		}
	}
	return false
}

func TestUnusableCaptures(t *testing.T) {
	s := newStill(t)
	tests := []struct {
		name   string
		change func(*source.Frame)
		want   string
		result string
	}{
		{"no colour", func(f *source.Frame) { f.Color = nil }, "frame has no colour image", "published"},
		{"cut colour", func(f *source.Frame) { f.Color = f.Color[:100] }, "depthmap: ", "published"},
		{
			"raw colour of another size", func(f *source.Frame) { f.Format = camera.BGRA; f.Color = f.Color[:4] },
			"BGRA colour image has 4 bytes, calibration's 1280×720 pixels have 3686400", "published",
		},
		{
			"depth of another size",
			func(f *source.Frame) { f.Depth = f.Depth[:100] },
			"depth image has 100 pixels, calibration has 320×288 (92160)", "failed",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			m := newMediumLogging(t, slog.NewTextHandler(&log, nil), Config{}, s)
			c := &capture{Frame: s.frame}
			tt.change(&c.Frame)
			for range 3 {
				m.pipelines[0].publish(c)
			}
			if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), tt.want) {
				t.Errorf("log %q, want %q once", log.String(), tt.want)
			}
			if n := counted(t, m, tt.result); n != 3 {
				t.Errorf("%v captures %s, want 3", n, tt.result)
			}
		})
	}
}

func TestCamerasThatEnd(t *testing.T) {
	tests := []struct {
		name string
		ends []error // of each camera
		want string  // Run's error
	}{
		{"end of the recordings", []error{io.EOF, io.EOF}, ""},
		{
			"a camera is unplugged",
			[]error{io.EOF, errors.New("pulled")},
			"no camera is left to publish; camera still: pulled",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := publishtest.NewRelay(t)
			var cameras []source.Source
			for i, end := range tt.ends {
				s := newStill(t)
				s.end, s.frames = end, 2+i
				cameras = append(cameras, s)
			}
			m := newMedium(t, Config{AlwaysEncode: true}, cameras...)
			err := m.session.Run(t.Context(), r.Target)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want) {
				t.Errorf("Run: %v, want %q", err, tt.want)
			}
			objects := publishtest.Objects(t, m.session, catalog.TrackName)
			last, err := catalog.Parse(objects[len(objects)-1])
			if err != nil || !last.IsComplete {
				t.Errorf("last catalog %+v, %v", last, err)
			}
			for i, want := range []uint32{1, 2} {
				frames := publishtest.Objects(t, m.session, catalog.PointsTrack(i, qualityFull))
				if h, err := pointcloud.ParseHeader(frames[len(frames)-1]); err != nil || h.Sequence != want {
					t.Errorf("camera %d: last frame %+v, %v; want sequence %d", i, h, err, want)
				}
			}
			for _, camera := range cameras {
				if camera.(*still).closed {
					t.Error("a camera was closed before Close")
				}
			}
		})
	}
}

// firstObject waits for the first object of the first camera's full-quality track.
func firstObject(t *testing.T, m *Medium) []byte {
	t.Helper()
	track := m.pipelines[0].tracks[0].Track
	for track.Stats().Objects == 0 {
		time.Sleep(time.Millisecond)
	}
	return publishtest.Objects(t, m.session, track.Name().Name)[0]
}

// TestSourceDropsAreCounted checks the metric for captures lost by the source.
func TestSourceDropsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := publish.New(publish.Config{
		Namespace: publishtest.Namespace, Log: slog.New(slog.DiscardHandler),
		Metrics: registry,
	})
	m, err := New(p, Config{}, []Camera{{Source: newStill(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const want = `
# HELP holocast_capture_source_dropped_total Captures lost at the source because they had no depth or were overdue.
# TYPE holocast_capture_source_dropped_total counter
holocast_capture_source_dropped_total{camera="still"} 7
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"holocast_capture_source_dropped_total"); err != nil {
		t.Error(err)
	}
}

// TestPlace checks that a new pose reaches the pose track, the catalog and the crop box.
func TestPlace(t *testing.T) {
	crop := &depthmap.Box{Min: [3]float64{-1e5, -1e5, 50_000}, Max: [3]float64{1e5, 1e5, 1e5}}
	for _, geometry := range []depthmap.Geometry{depthmap.DepthGeometry, depthmap.ColorGeometry} {
		t.Run(string(geometry), func(t *testing.T) {
			s := newStill(t)
			m := newMedium(t, Config{Cloud: depthmap.Config{Crop: crop, Geometry: geometry}, AlwaysEncode: true}, s,
				newStill(t))
			far := camera.Transform{R: camera.Identity.R, T: [3]float64{0, 0, 60_000}}
			c := &capture{Frame: s.frame}
			m.pipelines[0].publish(c)
			if err := m.Place(map[int]camera.Transform{0: far}); err != nil {
				t.Fatal(err)
			}
			m.pipelines[0].publish(c)
			var points []uint32
			for _, object := range publishtest.Objects(t, m.session, catalog.PointsTrack(0, qualityFull)) {
				h, err := pointcloud.ParseHeader(object)
				if err != nil {
					t.Fatal(err)
				}
				points = append(points, h.Points)
			}
			if len(points) != 2 || points[0] != 0 || points[1] < 1000 {
				t.Errorf("frames of %d points, want none before and some after the camera is where the box is", points)
			}
			origin := camera.Identity
			if geometry == depthmap.ColorGeometry {
				origin = s.cal.DepthToColor.Inverse()
			}
			want := []camera.Transform{far.Compose(origin), origin}
			documents := publishtest.Objects(t, m.session, catalog.PoseTrack)
			events, err := catalog.ParsePoses(documents[len(documents)-1])
			if err != nil || len(events) != 2 || events[0].Data.Pose != want[0] || events[1].Data.Pose != want[1] {
				t.Errorf("pose track: %+v, %v, want %v", events, err, want)
			}
			if now := time.Now().UnixMilli(); len(events) > 0 && (events[0].T > now || events[0].T < now-60_000) {
				t.Errorf("the pose is about %d, now it is %d", events[0].T, now)
			}
			documents = publishtest.Objects(t, m.session, catalog.TrackName)
			described, err := catalog.Parse(documents[len(documents)-1])
			if err != nil {
				t.Fatal(err)
			}
			for n, pose := range want {
				track, err := described.Select(n, "")
				if err != nil {
					t.Fatal(err)
				}
				if init, err := described.Init(track); err != nil || init.Pose != pose {
					t.Errorf("catalog: camera %d is at %v, %v, want %v", n, init.Pose, err, pose)
				}
			}
			for _, poses := range []map[int]camera.Transform{{0: {}}, {2: camera.Identity}, {-1: camera.Identity}} {
				if err := m.Place(poses); err == nil {
					t.Errorf("%v is taken", poses)
				}
			}
		})
	}
}
