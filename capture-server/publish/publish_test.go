package publish

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"holocast/capture-server/cloud"
	"holocast/capture-server/source"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/pointcloud"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// still is a camera that shows the same picture again and again.
type still struct {
	cal    camera.Calibration
	frame  source.Frame
	period time.Duration
	end    error // returned after the given number of frames
	frames int
	closed bool
}

func (s *still) Name() string                    { return "still" }
func (s *still) Calibration() camera.Calibration { return s.cal }
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

func newStill(t testing.TB) *still {
	t.Helper()
	studio, err := synthetic.Open(t.Context(), synthetic.Options{Frames: 1, Depth: camera.NFOV2x2Binned})
	if err != nil {
		t.Fatal(err)
	}
	s := &still{cal: studio.Cameras[0].Calibration(), period: 5 * time.Millisecond}
	if err := studio.Cameras[0].Next(t.Context(), &s.frame); err != nil {
		t.Fatal(err)
	}
	return s
}

var testNamespace = moqt.Namespace{connect.Root, "test"}

func newPublisher(t testing.TB, cfg Config, sources ...source.Source) *Publisher {
	t.Helper()
	cfg.Namespace, cfg.Log = testNamespace, slog.New(slog.DiscardHandler)
	cameras := make([]Camera, 0, len(sources))
	for _, s := range sources {
		cameras = append(cameras, Camera{Source: s, FPS: 30})
	}
	p, err := New(cfg, cameras)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// counted is how many captures ended as result says.
func counted(t *testing.T, p *Publisher, result string) float64 {
	t.Helper()
	var m dto.Metric
	if err := p.metrics.frames.WithLabelValues("still", result).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestNewestCaptureWins(t *testing.T) {
	s := newStill(t)
	p := newPublisher(t, Config{AlwaysEncode: true}, s)
	l := p.pipelines[0]
	for i := range 5 {
		f := s.frame
		f.DeviceTime = time.Duration(i) * time.Millisecond
		l.take(&f)
	}
	if dropped := counted(t, p, "dropped"); dropped != 4 {
		t.Errorf("%v captures dropped, want 4", dropped)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.encode(ctx) }()
	object := firstObject(t, p, "points/0/full")
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

func TestUnwatchedTrackStaysFresh(t *testing.T) {
	p := newPublisher(t, Config{}, newStill(t))
	track := p.pipelines[0].tracks[0]
	now := time.Now()
	track.newest.Store(now.UnixNano())
	if track.wanted(now.Add(idleInterval - 1)) {
		t.Error("a frame is wanted although nobody watches and the newest is fresh")
	}
	if !track.wanted(now.Add(idleInterval)) {
		t.Error("no frame is wanted although the newest is old")
	}
}

func TestQualities(t *testing.T) {
	s := newStill(t)
	var want pointcloud.Grid
	m, err := cloud.New(s.cal, cloud.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Map(&s.frame, &want); err != nil {
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
			p := newPublisher(t, Config{Layout: tt.layout, Descriptions: tt.descriptions, Low: true, AlwaysEncode: true}, s)
			l := p.pipelines[0]
			c := &capture{Frame: s.frame, taken: time.Now()}
			c.CaptureTime = time.Now()
			l.publish(c)
			for _, track := range l.tracks {
				objects := objectsOf(t, p, track.Track.Name().Name)
				if len(objects) != tt.descriptions {
					t.Fatalf("%s: %d objects, want %d", track.quality, len(objects), tt.descriptions)
				}
				checkPoints(t, track, objects, &want)
			}
		})
	}
}

// checkPoints compares a frame with the pixels of the full grid that it should have.
func checkPoints(t *testing.T, track *pointsTrack, objects [][]byte, full *pointcloud.Grid) {
	t.Helper()
	d, err := pointcloud.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	step := map[string]int{qualityFull: 1, qualityLow: 2}[track.quality]
	var want pointcloud.Grid
	for y := 0; y < full.Height; y += step {
		for x := 0; x < full.Width; x += step {
			i := y*full.Width + x
			want.Depth = append(want.Depth, full.Depth[i])
			want.Color = append(want.Color, full.Color[3*i:3*i+3]...)
		}
	}
	if track.layout == pointcloud.LayoutGrid {
		var got pointcloud.Grid
		if _, err := d.DecodeGrid(&got, objects...); err != nil {
			t.Fatal(err)
		}
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
	// A point belongs to the pixel that its place projects to.
	n := 0
	for _, o := range objects {
		var got pointcloud.Points
		if _, err := d.DecodePoints(&got, o); err != nil {
			t.Fatal(err)
		}
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

// near reports whether pixel (x, y) or one beside it has depth z: millimetres round a
// point's place by up to a pixel.
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
	}{
		{"no colour", func(f *source.Frame) { f.Color = nil }, "frame has no colour image"},
		{"cut colour", func(f *source.Frame) { f.Color = f.Color[:100] }, "cloud: "},
		{"raw colour of another size", func(f *source.Frame) { f.Format = source.BGRA; f.Color = f.Color[:4] },
			"BGRA colour image has 4 bytes, calibration's 1280×720 pixels have 3686400"},
		{"depth of another size", func(f *source.Frame) { f.Depth = f.Depth[:100] }, "depth image has 100 pixels, calibration has 320×288 (92160)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			p := newPublisher(t, Config{}, s)
			p.log = slog.New(slog.NewTextHandler(&log, nil))
			c := &capture{Frame: s.frame}
			tt.change(&c.Frame)
			for range 3 {
				p.pipelines[0].publish(c)
			}
			if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), tt.want) {
				t.Errorf("log %q, want %q once", log.String(), tt.want)
			}
			if failed := counted(t, p, "failed"); failed != 3 {
				t.Errorf("%v captures failed, want 3", failed)
			}
		})
	}
}

// relay is the other end of publishers' sessions.
type relay struct {
	*moqt.Listener
	target   connect.Target
	sessions chan *moqt.Session // whose namespace was published
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	hash := devcert.Hash(cert)
	ln, err := moqt.Listen("127.0.0.1:0", moqt.ListenConfig{
		Config: moqt.Config{Log: slog.New(slog.DiscardHandler)}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	r := &relay{
		Listener: ln, sessions: make(chan *moqt.Session, 10),
		target: connect.Target{URL: "moqt://" + ln.Addr().String() + "/test", CertificateHash: hex.EncodeToString(hash[:])},
	}
	go func() {
		for {
			s, err := ln.Accept(t.Context())
			if err != nil {
				return
			}
			s.Serve(moqt.Handler{PublishNamespace: func(req *moqt.NamespaceRequest) {
				_ = req.Accept(func() { r.sessions <- s })
			}})
		}
	}()
	return r
}

func TestSessionIsMadeAnew(t *testing.T) {
	r := newRelay(t)
	p := newPublisher(t, Config{Metrics: prometheus.NewRegistry()}, newStill(t))
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx, r.target) }()
	var before uint64 // the newest group of the session before; within one, streams overtake each other
	for range 2 {
		s := <-r.sessions
		sub, err := s.Subscribe(t.Context(), moqt.TrackName{Namespace: testNamespace, Name: "points/0/full"}, moqt.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		newest := before
		for range 3 {
			g, err := sub.AcceptSubgroup(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if g.Group <= before {
				t.Errorf("group %d, after %d in the session before", g.Group, before)
			}
			newest = max(newest, g.Group)
			g.Cancel(wire.StreamCancelled)
		}
		before = newest
		s.Close(wire.NoError, "") // a relay that restarts
	}
	<-r.sessions
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// TestDocumentIsRenewed: whoever missed a catalog can have it in another group, but
// not more often than is good for the others.
func TestDocumentIsRenewed(t *testing.T) {
	d := (&Publisher{cfg: Config{Namespace: moqt.Namespace{"holocast", "test"}}}).newDocument("catalog")
	if dynamic, _ := d.Properties().Int(wire.PropertyDynamicGroups); dynamic != 1 {
		t.Error("the track does not say that its groups are dynamic")
	}
	d.renew(0)
	if l, ok := d.Largest(); ok {
		t.Fatalf("published before there was anything: %v", l)
	}
	if err := d.publish([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	first, _ := d.Largest()
	for _, c := range []struct {
		name    string
		ask     uint64 // beyond the first group
		recent  bool   // it was renewed just now
		largest uint64
	}{
		{"it is there", 0, false, 0},
		{"it was missed", 1, false, 1},
		{"too often", 2, true, 1},
		{"another missed it", 1, false, 1},
		{"after a while", 2, false, 2},
	} {
		if !c.recent {
			d.renewed = time.Time{}
		}
		d.renew(first.Group + c.ask)
		if l, _ := d.Largest(); l.Group != first.Group+c.largest {
			t.Errorf("%s: the largest group is %d after the first, want %d", c.name, l.Group-first.Group, c.largest)
		}
	}
}

func TestCamerasThatEnd(t *testing.T) {
	tests := []struct {
		name string
		ends []error // of each camera
		want string  // Run's error
	}{
		{"end of the recordings", []error{io.EOF, io.EOF}, ""},
		{"a camera is unplugged", []error{io.EOF, errors.New("pulled")}, "no camera is left to publish; camera still: pulled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRelay(t)
			var cameras []source.Source
			for i, end := range tt.ends {
				s := newStill(t)
				s.end, s.frames = end, 2+i
				cameras = append(cameras, s)
			}
			p := newPublisher(t, Config{AlwaysEncode: true}, cameras...)
			err := p.Run(t.Context(), r.target)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want) {
				t.Errorf("Run: %v, want %q", err, tt.want)
			}
			objects := objectsOf(t, p, catalog.TrackName)
			last, err := catalog.Parse(objects[len(objects)-1])
			if err != nil || !last.IsComplete {
				t.Errorf("last catalog %+v, %v", last, err)
			}
			for i, want := range []uint32{1, 2} {
				frames := objectsOf(t, p, catalog.PointsTrack(i, qualityFull))
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

// firstObject waits for a track's first object.
func firstObject(t *testing.T, p *Publisher, name string) []byte {
	t.Helper()
	for p.set.Track(moqt.TrackName{Namespace: testNamespace, Name: name}).Stats().Objects == 0 {
		time.Sleep(time.Millisecond)
	}
	return objectsOf(t, p, name)[0]
}

// objectsOf fetches what a track's cache holds.
func objectsOf(t *testing.T, p *Publisher, name string) [][]byte {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	log := moqt.Config{Log: slog.New(slog.DiscardHandler)}
	ln, err := moqt.Listen("127.0.0.1:0", moqt.ListenConfig{Config: log, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	go func() {
		if s, err := ln.Accept(t.Context()); err == nil {
			s.Serve(p.set.Handler())
		}
	}()
	s, err := moqt.Dial(t.Context(), "moqt://"+ln.Addr().String()+"/", devcert.Pinned(devcert.Hash(cert)), moqt.Handler{}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(wire.NoError, "")
	track := moqt.TrackName{Namespace: testNamespace, Name: name}
	f, err := s.Fetch(t.Context(), track, moqt.Location{}, moqt.Location{Group: 1 << 60}, moqt.FetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Cancel()
	var objects [][]byte
	for {
		o, err := f.Next()
		if err == io.EOF {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if o.Range != wire.RangeNone {
			continue
		}
		b, err := f.ReadPayload(nil, 32<<20)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, b)
	}
}
