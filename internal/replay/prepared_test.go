package replay

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/prepared"
	"holocast/internal/recording"
	"holocast/internal/sessiontest"
)

// tour prepares two and a half seconds of video.
func tour(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	film, dir := filepath.Join(t.TempDir(), "film.mp4"), filepath.Join(t.TempDir(), "tour")
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error",
		"-f", "lavfi", "-i", "testsrc2=size=64x32:rate=10", "-f", "lavfi", "-i", "sine",
		"-t", "2.5", film).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	options := prepared.Options{Columns: 2, Rows: 1, Qualities: 2, Preset: "ultrafast", Log: quiet}
	if err := prepared.Prepare(t.Context(), film, dir, options); err != nil {
		t.Fatal(err)
	}
	return dir
}

// toMCAP converts a folder to a recording whose tiles arrive slightly apart.
func toMCAP(t *testing.T, dir string) string {
	t.Helper()
	r, err := prepared.NewReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	path := filepath.Join(t.TempDir(), "tour.mcap")
	w, err := recording.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		o, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		o.Arrival = o.Arrival.Add(time.Duration(n%7) * 3 * time.Millisecond)
		if err := w.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A seeking viewer finds the same moment in the same group of all tracks, for folders and
// recordings.
func TestSphereOnDemand(t *testing.T) {
	dir := tour(t)
	for name, path := range map[string]string{"folder": dir, "recording": toMCAP(t, dir)} {
		t.Run(name, func(t *testing.T) {
			r, err := Open(path, Config{
				Namespace: moqt.Namespace{"a", "b"}, Loop: true, Source: prepared.OpenSource, Log: quiet,
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = r.Run(ctx) }()
			t.Cleanup(func() { stop(); <-done })
			s, _ := sessiontest.Connect(t, moqt.Handler{}, r.Handler())
			fetch := func(name string, first, last uint64) (objects []wire.FetchObject, payloads [][]byte) {
				t.Helper()
				f, err := s.Fetch(t.Context(), moqt.TrackName{Namespace: moqt.Namespace{"a", "b", OnDemandField}, Name: name},
					moqt.Location{Group: first}, moqt.Location{Group: last}, moqt.FetchOptions{})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				defer f.Cancel()
				for {
					o, err := f.Next()
					if err == io.EOF {
						return objects, payloads
					}
					if err != nil {
						t.Fatal(err)
					}
					b, err := f.ReadPayload(nil, 1<<20)
					if err != nil {
						t.Fatal(err)
					}
					objects, payloads = append(objects, o), append(payloads, b)
				}
			}
			_, doc := fetch(catalog.TrackName, 0, 1<<40)
			c, err := catalog.Parse(doc[0])
			if err != nil {
				t.Fatal(err)
			}
			sphere := c.Sphere()
			if sphere == nil || sphere.IsLive || len(c.Tracks) != 7 {
				t.Fatalf("catalog %s", doc[0])
			}
			w := int64(sphere.Template.Wallclock)
			var groups []uint64
			all, _ := fetch(catalog.VideoTrack, 0, 1<<40)
			for _, o := range all {
				if o.Object == 0 {
					groups = append(groups, o.Group)
				}
			}
			if len(groups) != 3 || len(all) != 25 || groups[0] > 25 || groups[2] < 1990 || groups[2] > 2025 {
				t.Fatalf("%d objects in groups %v", len(all), groups)
			}
			for _, name := range []string{"tiles/1/1", catalog.AudioTrack, catalog.RatesTrack} {
				objects, payloads := fetch(name, groups[1], groups[1]+1)
				if len(objects) == 0 || objects[0].Group != groups[1] {
					t.Fatalf("%s: no objects in group %d", name, groups[1])
				}
				if name == catalog.RatesTrack {
					rates, err := catalog.ParseRates(payloads[0], sphere.Sphere)
					if err != nil || (rates.T-w-1000)*(rates.T-w-1000) > 25*25 {
						t.Errorf("rates of %d ms, %v", rates.T-w, err)
					}
					continue
				}
				p, err := loc.Parse(objects[0].Properties)
				if d := p.Timestamp.UnixMilli() - w; err != nil || d < 975 || d > 1040 {
					t.Errorf("%s: time stamp %d ms after the beginning, %v", name, d, err)
				}
			}
		})
	}
}

// Each pass raises all tracks' groups equally, even if audio has more of them.
func TestPassesStayAligned(t *testing.T) {
	path := toMCAP(t, tour(t))
	r, err := Open(path, Config{
		Namespace: moqt.Namespace{"a", "b"}, Loop: true, Speed: 20, Source: prepared.OpenSource, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	video := r.set.Track(moqt.TrackName{Namespace: moqt.Namespace{"a", "b"}, Name: catalog.VideoTrack})
	first, _ := video.Largest()
	sessiontest.Until(t, "a third pass", func() bool { l, ok := video.Largest(); return ok && l.Group >= first.Group+6 })
	stop()
	<-done
	for _, a := range r.tracks {
		if !a.catalog && a.offset != r.tracks[wire.TrackName{Namespace: r.root, Name: catalog.VideoTrack}.String()].offset {
			t.Errorf("%s is raised by %d", a.Name(), a.offset)
		}
	}
}

// In live mode, timestamps are send times, and rates refer to the same time.
func TestSphereLooksLive(t *testing.T) {
	r, err := prepared.NewReader(tour(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	var s shift
	now := time.UnixMicro(1790000000000000)
	at := r.Info.Start
	var shifted bool
	for {
		o, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		old := bytes.Clone(o.Properties)
		s.renew(&o, 0, func() time.Time { return now })
		if p, err := loc.Parse(o.Properties); err == nil {
			if d := p.Timestamp.Sub(now) - o.Arrival.Sub(at); d.Abs() > time.Millisecond || bytes.Equal(old, o.Properties) {
				t.Fatalf("%s: time stamp is off by %s", o.Track.Name, d)
			}
		}
		if o.Track.Name == catalog.RatesTrack && s.some {
			rates, err := catalog.ParseRates(o.Payload, &catalog.Sphere{Columns: 2, Rows: 1, Qualities: 2})
			if err != nil || rates.T < now.UnixMilli() || rates.T > now.UnixMilli()+3000 {
				t.Errorf("rates of %d, %v", rates.T, err)
			}
			shifted = true
		}
	}
	if !shifted {
		t.Error("no rates came after the first frame")
	}
}
