package sphere_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/sessiontest"
	"holocast/internal/sessiontest/fakepath"
	"holocast/internal/testlog"
	"holocast/internal/tile360"
	"holocast/tools/holocast/player/sphere"
	"holocast/tools/holocast/player/sphere/spheretest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var namespace = moqt.Namespace{"holocast", "tour"}

// avcC is the decoder configuration of video that is never decoded.
var avcC = []byte{1, 0x42, 0xc0, 0x1e, 0xff, 0xe1, 0, 4, 0x67, 0x42, 0xc0, 0x1e, 1, 0, 2, 0x68, 0xce}

// film returns a sphere of 8×4 tiles at two qualities, with 60 and 240 kbit/s per tile.
func film() spheretest.Film {
	frames := [2][]byte{make([]byte, 250), make([]byte, 1000)}
	low := make([]byte, 500)
	return spheretest.Film{
		Sphere: catalog.Sphere{
			Projection: catalog.ProjectionEquirectangular,
			Stereo:     catalog.StereoMono,
			Width:      1920,
			Height:     960,
			Columns:    8,
			Rows:       4,
			Qualities:  2,
		},
		VideoWidth: 480, VideoHeight: 240, FPS: 30, GOPs: 4, Latency: time.Second,
		Frame: func(_, tile, quality, _ int) []byte {
			if tile == spheretest.Video {
				return low
			}
			return frames[quality]
		},
		Config: func(int, int) []byte { return avcC },
		Rates: func(int) (r catalog.RatesData) {
			for range 32 {
				r.Bytes = append(r.Bytes, []*int64{new(int64(7500)), new(int64(30000))})
				r.MSE = append(r.MSE, []*float64{new(60.), new(15.)})
				r.Missing = append(r.Missing, 300)
			}
			return r
		},
	}
}

// watch plays the film in fake time until the viewer has judged the given number of GoPs.
func watch(t *testing.T, f spheretest.Film, cfg sphere.Config, gops int) (report sphere.Report) {
	t.Helper()
	fakepath.Test(t, func(t *testing.T) { report = watchNow(t, f, cfg, gops) })
	return report
}

func watchNow(t *testing.T, f spheretest.Film, cfg sphere.Config, gops int, missing ...string) sphere.Report {
	t.Helper()
	p, err := spheretest.New(namespace, f)
	if err != nil {
		t.Fatal(err)
	}
	session, _ := fakepath.New(fakepath.Direction{}, fakepath.Direction{}).
		Connect(t, moqt.Handler{}, without(p.Set.Handler(), missing...))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	c := readCatalog(t, ctx, session)
	v, err := sphere.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	v.Configure(c, func(track catalog.Track) moqt.TrackName {
		return moqt.TrackName{Namespace: namespace, Name: track.Name}
	})
	played := make(chan error, 1)
	running.Go(func() { played <- v.Play(ctx, session) })
	for deadline := time.Now().Add(time.Minute); v.Report().GOPs < gops; {
		select {
		case err := <-played:
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: %+v", v.Report())
		}
	}
	report := v.Report()
	stop()
	if err := <-played; !errors.Is(err, context.Canceled) {
		t.Errorf("Play returned %v", err)
	}
	return report
}

// without returns a handler that rejects requests for tracks with the given name prefixes.
func without(h moqt.Handler, prefixes ...string) moqt.Handler {
	missing := func(n moqt.TrackName) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(n.Name, p) })
	}
	subscribe, fetch := h.Subscribe, h.Fetch
	h.Subscribe = func(r *moqt.SubscribeRequest) {
		if missing(r.Track) {
			_ = r.Reject(wire.RequestDoesNotExist, fmt.Sprintf("no %s", r.Track.Name))
			return
		}
		subscribe(r)
	}
	h.Fetch = func(r *moqt.FetchRequest) {
		if missing(r.Track) {
			_ = r.Reject(wire.RequestDoesNotExist, fmt.Sprintf("no %s", r.Track.Name))
			return
		}
		fetch(r)
	}
	return h
}

func readCatalog(t *testing.T, ctx context.Context, s *moqt.Session) *catalog.Catalog {
	t.Helper()
	sub, err := s.Subscribe(
		ctx, moqt.TrackName{Namespace: namespace, Name: catalog.TrackName},
		moqt.SubscribeOptions{Filter: &moqt.Filter{Type: wire.FilterLargestObject}, Join: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Cancel()
	f, err := sub.Joined(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Cancel()
	if _, err := f.Next(); err != nil {
		t.Fatal(err)
	}
	doc, err := f.ReadPayload(nil, catalog.MaxSize)
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Parse(doc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestViewerAmpleBandwidth(t *testing.T) {
	r := watch(
		t, film(),
		sphere.Config{Head: func(s float64) tile360.Vec { return tile360.Direction(0.4*s, 0.1*math.Sin(s)) }}, 6,
	)
	if r.TileHits == 0 || r.PSNRMean < tile360.PSNR(300) || r.Decisions == 0 {
		t.Errorf("no tiles displayed: %+v", r)
	}
	if r.Damaged != 0 || r.Refused > 1 { // a FETCH may arrive just before its group exists
		t.Errorf("%d objects damaged, %d requests refused", r.Damaged, r.Refused)
	}
	if r.Frames < 120 || r.FramesMissed > 30 || r.FPS < 20 || r.FPS > 30.1 || r.LatencyMS != 1000 {
		t.Errorf("%d frames, %d missed, %.2f fps, latency %.0f ms", r.Frames, r.FramesMissed, r.FPS, r.LatencyMS)
	}
	if r.MessagesPerGOP > 64 {
		t.Errorf("%.0f messages per GoP for 32 tiles", r.MessagesPerGOP)
	}
}

// TestTurningBack checks that tiles which leave the view and return before their subscriptions have ended
// are not refused.
func TestTurningBack(t *testing.T) {
	r := watch(t, film(), sphere.Config{Head: func(s float64) tile360.Vec {
		return tile360.Direction(math.Pi*math.Floor(math.Mod(s/0.3, 2)), 0)
	}}, 12)
	if r.Refused != 0 {
		t.Errorf("%d requests refused", r.Refused)
	}
}

func TestViewerSchemes(t *testing.T) {
	for _, scheme := range []string{sphere.Whole, sphere.Viewport, sphere.Fixed, sphere.Paper} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			r := watch(t, film(), sphere.Config{Scheme: scheme}, 4)
			if r.TileHits == 0 || r.Urgent != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
	if _, err := sphere.New(sphere.Config{Scheme: "best"}); err == nil {
		t.Error("scheme best accepted")
	}
}

// TestViewerWithoutRates checks that a viewer without rates shows the low-resolution sphere and
// reports no PSNR.
func TestViewerWithoutRates(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		r := watchNow(t, film(), sphere.Config{}, 3, catalog.RatesTrack)
		if r.PSNRMean != 0 || r.TileHits != 0 || r.StallRatio != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestMissingTiles checks that the viewer shows the low-resolution sphere in place of refused tiles
// and logs the refusal once.
func TestMissingTiles(t *testing.T) {
	f := film()
	p, err := spheretest.New(namespace, f)
	if err != nil {
		t.Fatal(err)
	}
	session, _ := sessiontest.Connect(t, moqt.Handler{}, without(p.Set.Handler(), "tiles/"))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = p.Run(ctx) })
	var log testlog.Buffer
	v, err := sphere.New(sphere.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	v.Configure(readCatalog(t, ctx, session), func(track catalog.Track) moqt.TrackName {
		return moqt.TrackName{Namespace: namespace, Name: track.Name}
	})
	running.Go(func() { _ = v.Play(ctx, session) })
	for deadline := time.Now().Add(time.Minute); v.Report().GOPs < 4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: %+v", v.Report())
		}
	}
	select {
	case <-v.Showing():
	default:
		t.Error("no picture displayed")
	}
	if r := v.Report(); r.TileHits != 0 || r.Refused == 0 {
		t.Errorf("%+v", r)
	}
	if n := strings.Count(log.String(), "tile refused; showing the low-resolution sphere instead"); n != 1 {
		t.Errorf("refusal logged %d times: %s", n, log.String())
	}
}
