package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/tileencoder"
)

// gop holds the objects received from one group of a track.
type gop struct {
	payload []byte // NAL units or packets of all its objects
	config  []byte
	sizes   []int
	stamps  []time.Time
}

// gops collects complete groups of a session.
type gops struct {
	mu     sync.Mutex
	groups map[string]map[uint64]*gop // by track name
	came   chan struct{}
}

func (g *gops) collect(ctx context.Context, sub *moqt.Subscription) {
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			return
		}
		go func() {
			var x gop
			for want := uint64(0); ; want++ {
				o, err := r.NextObject()
				if err != nil {
					if err != io.EOF || want == 0 {
						return // reset because it was late
					}
					break
				}
				b, err := r.ReadPayload(nil, 1<<24)
				if err != nil || o.ID != want {
					return
				}
				x.payload, x.sizes = append(x.payload, b...), append(x.sizes, len(b))
				if p, err := loc.Parse(o.Properties); err == nil {
					x.stamps = append(x.stamps, p.Timestamp)
					if want == 0 {
						x.config = p.VideoConfig
					}
				}
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			name := sub.Track().Name
			if g.groups[name] == nil {
				g.groups[name] = map[uint64]*gop{}
			}
			g.groups[name][r.Group] = &x
			select {
			case g.came <- struct{}{}:
			default:
			}
		}()
	}
}

// complete waits for a group that is complete on all tracks.
func (g *gops) complete(ctx context.Context, t *testing.T, tracks []string) (uint64, map[string]*gop) {
	t.Helper()
	for {
		g.mu.Lock()
		for group := range g.groups[tracks[0]] {
			all := map[string]*gop{}
			for _, name := range tracks {
				if x := g.groups[name][group]; x != nil {
					all[name] = x
				}
			}
			if len(all) == len(tracks) {
				g.mu.Unlock()
				return group, all
			}
		}
		g.mu.Unlock()
		select {
		case <-g.came:
		case <-ctx.Done():
			t.Fatal("no group came whole on all tracks")
		}
	}
}

// luma decodes video to luma planes, using FFmpeg.
func luma(ctx context.Context, t *testing.T, stdin []byte, width, height int, args ...string) [][]byte {
	t.Helper()
	cmd := exec.CommandContext(
		ctx,
		"ffmpeg",
		append(append([]string{"-v", "error"}, args...), "-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1")...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("ffmpeg: %v: %s", err, stderr.String())
	}
	var frames [][]byte
	for at, size := 0, width*height*3/2; at+size <= len(out); at += size {
		frames = append(frames, out[at:at+width*height])
	}
	return frames
}

// TestSphereReachesViewerOfRelay checks that every tile at every quality, received from a relay,
// decodes independently and matches the source as closely as the rates track says.
func TestSphereReachesViewerOfRelay(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const width, height, fps, seconds = 320, 160, 10, 4
	film := filepath.Join(t.TempDir(), "film.mp4")
	if out, err := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-f", "lavfi", "-i",
		fmt.Sprintf("testsrc2=size=%dx%d:rate=%d:duration=%d", width, height, fps, seconds),
		"-f", "lavfi", "-i", fmt.Sprintf("sine=duration=%d", seconds), "-c:v", "libx264", "-qp", "4", film).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	source := luma(ctx, t, nil, width, height, "-i", film)
	if len(source) != fps*seconds {
		t.Fatalf("the film has %d frames", len(source))
	}

	target, ns := startRelay(t)
	began := time.Now()
	start(t, filepath.Join(bin, "capture-server"), "--source", "equirect:"+film, "--source", "synthetic", "--fps", "1",
		"--grid", "4x2", "--qualities", "2", target.URL)
	s := view(ctx, t, target)
	c, err := catalog.Parse(newestObject(ctx, t, subscribe(ctx, t, s, ns, catalog.TrackName)))
	if err != nil {
		t.Fatal(err)
	}
	video := c.Sphere()
	if video == nil || len(c.Cameras()) != 1 {
		t.Fatalf("the catalog has a sphere %v and cameras %v", video, c.Cameras())
	}
	want := catalog.Sphere{
		Projection: "equirectangular", Stereo: "mono", Width: width, Height: height, Columns: 4, Rows: 2, Qualities: 2,
		Color: catalog.Color{Primaries: "smpte170m", Transfer: "smpte170m", Matrix: "smpte170m"},
	}
	if *video.Sphere != want {
		t.Fatalf("sphere %+v, want %+v", *video.Sphere, want)
	}
	sphere := video.Sphere
	names := []string{catalog.VideoTrack, catalog.AudioTrack, catalog.RatesTrack}
	for tile := range sphere.Tiles() {
		if n := len(c.TileTracks(tile)); n != 2 {
			t.Fatalf("tile %d has %d tracks", tile, n)
		}
		for q := range sphere.Qualities {
			names = append(names, catalog.TileTrack(tile, q))
		}
	}
	collected := &gops{groups: map[string]map[uint64]*gop{}, came: make(chan struct{}, 1)}
	for _, name := range names {
		go collected.collect(ctx, subscribe(ctx, t, s, ns, name))
	}
	group, all := collected.complete(ctx, t, names)

	rates, err := catalog.ParseRates(all[catalog.RatesTrack].payload, sphere)
	if err != nil {
		t.Fatal(err)
	}
	first := all[catalog.VideoTrack]
	if len(first.stamps) != fps || rates.T != first.stamps[0].UnixMilli() ||
		first.stamps[0].Before(began) || first.stamps[0].After(time.Now()) {
		t.Errorf("group %d: %d frames from %v on, rates of %d", group, len(first.stamps), first.stamps[0], rates.T)
	}
	offset := -1
	for tile := range sphere.Tiles() {
		r := sphere.Rect(tile)
		for q := range sphere.Qualities {
			name := catalog.TileTrack(tile, q)
			x := all[name]
			if !slices.EqualFunc(x.stamps, first.stamps, time.Time.Equal) {
				t.Errorf("%s: time stamps %v, those of video %v", name, x.stamps, first.stamps)
			}
			i := slices.IndexFunc(c.Tracks, func(t catalog.Track) bool { return t.Name == name })
			if got, codec := initData(t, c, &c.Tracks[i]), c.Tracks[i].Codec; !bytes.Equal(got, x.config) ||
				!strings.HasPrefix(codec, "avc1.") {
				t.Errorf("%s: catalog says %x (%s), the first object %x", name, got, codec, x.config)
			}
			if total := int64(len(x.payload)); *rates.Data.Bytes[tile][q] != total {
				t.Errorf("%s: %d bytes, rates say %d", name, total, *rates.Data.Bytes[tile][q])
			}
			stream, err := loc.AppendAnnexBConfig(nil, x.config)
			if err == nil {
				stream, err = loc.AppendAnnexB(stream, x.payload)
			}
			if err != nil {
				t.Fatal(err)
			}
			frames := luma(ctx, t, stream, r.Dx(), r.Dy(), "-f", "h264", "-i", "pipe:0")
			if len(frames) != fps {
				t.Fatalf("%s: %d frames decode, want %d", name, len(frames), fps)
			}
			mse := func(offset int) float64 {
				var sum, weights float64
				for n, f := range frames {
					if n%3 != 0 {
						continue // rates cover every third frame
					}
					src := source[(offset+n)%len(source)]
					for y := range r.Dy() {
						w := math.Cos(math.Pi * (0.5 - (float64(r.Min.Y+y)+0.5)/height))
						for x := range r.Dx() {
							d := float64(f[y*r.Dx()+x]) - float64(src[(r.Min.Y+y)*width+r.Min.X+x])
							sum += w * d * d
							weights += w
						}
					}
				}
				return sum / weights
			}
			if offset < 0 { // position of the group in the video
				offset = 0
				for o := range source {
					if mse(o) < mse(offset) {
						offset = o
					}
				}
				if offset%fps != 0 {
					t.Errorf("the group begins at frame %d of the film", offset)
				}
			}
			psnr := 10 * math.Log10(255*255/mse(offset))
			said := 10 * math.Log10(255*255 / *rates.Data.MSE[tile][q])
			if psnr < 24 || math.Abs(psnr-said) > 0.5 {
				t.Errorf("%s: %.2f dB, rates say %.2f", name, psnr, said)
			}
		}
		if *rates.Data.MSE[tile][1] > *rates.Data.MSE[tile][0] || rates.Data.Missing[tile] < *rates.Data.MSE[tile][1] {
			t.Errorf("tile %d: distortions %v, %v and %v where it is missing", tile, *rates.Data.MSE[tile][0],
				*rates.Data.MSE[tile][1], rates.Data.Missing[tile])
		}
	}
	w, h := tileencoder.VideoSize(sphere)
	stream, err := loc.AppendAnnexBConfig(nil, initData(t, c, video))
	if err == nil {
		stream, err = loc.AppendAnnexB(stream, first.payload)
	}
	if err != nil {
		t.Fatal(err)
	}
	if frames := luma(ctx, t, stream, w, h, "-f", "h264", "-i", "pipe:0"); len(frames) != fps {
		t.Errorf("video: %d frames decode", len(frames))
	}
	sound := all[catalog.AudioTrack]
	if n := len(sound.stamps); n < 45 || n > 55 {
		t.Errorf("%d packets of sound in a second", n)
	}
	for i, at := range sound.stamps {
		if d := at.Sub(first.stamps[0]); d < -50*time.Millisecond || d > 1050*time.Millisecond {
			t.Errorf("packet %d of group %d is %s from its first frame", i, group, d)
		}
	}
}

// initData returns a track's inline initialization data.
func initData(t *testing.T, c *catalog.Catalog, track *catalog.Track) []byte {
	t.Helper()
	for _, d := range c.InitDataList {
		if d.ID == track.InitRef {
			b, err := base64.StdEncoding.DecodeString(d.Data)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("track %s has no initialization data", track.Name)
	return nil
}
