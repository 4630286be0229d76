package prepared

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/recording"
)

var quiet = slog.New(slog.DiscardHandler)

// film creates 2.5 seconds of video at 10 pictures per second, with sound.
func film(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	path := filepath.Join(t.TempDir(), "film.mp4")
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i",
		"testsrc2=size=64x32:rate=10", "-f", "lavfi", "-i", "sine",
		"-t", "2.5", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func options() Options {
	return Options{Columns: 2, Rows: 1, Qualities: 2, Preset: "ultrafast", Log: quiet}
}

func prepare(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	if err := Prepare(t.Context(), film(t), dir, options()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func objects(t *testing.T, dir string) ([]recording.Object, *Reader) {
	t.Helper()
	r, err := NewReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	var list []recording.Object
	for {
		o, err := r.Next()
		if err == io.EOF {
			return list, r
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, o)
	}
}

// TestReadsLikeARecording checks that the folder reads like the recording of a session: complete,
// in time order, with aligned groups, and with the rates of each GoP one GoP ahead.
func TestReadsLikeARecording(t *testing.T) {
	dir := prepare(t)
	list, r := objects(t, dir)
	if d := r.Info.Duration(); d != 2400*time.Millisecond {
		t.Errorf("it lasts %s", d)
	}
	first := r.s.firstGroup()
	count := map[string]int{}
	var c *catalog.Catalog
	for i, o := range list {
		if i > 0 && o.Arrival.Before(list[i-1].Arrival) {
			t.Fatalf("object %d comes before the one before", i)
		}
		count[o.Track.Name]++
		at := o.Arrival.Sub(r.Info.Start)
		switch o.Track.Name {
		case catalog.TrackName:
			var err error
			if c, err = catalog.Parse(o.Payload); err != nil {
				t.Fatal(err)
			}
			continue
		case catalog.RatesTrack:
			rates, err := catalog.ParseRates(o.Payload, c.Sphere().Sphere)
			if err != nil {
				t.Fatal(err)
			}
			if g := int64(o.Group - first); rates.T != r.s.Start.UnixMilli()+1000*g ||
				at != time.Duration(max(0, g-1))*time.Second {
				t.Errorf("rates of GoP %d, of %d ms, come at %s", g, rates.T-r.s.Start.UnixMilli(), at)
			}
			continue
		}
		p, err := loc.Parse(o.Properties)
		if err != nil || !p.Timestamp.Equal(o.Arrival.Truncate(time.Microsecond)) {
			t.Fatalf("%s: time stamp %v, arrival %v, %v", o.Track.Name, p.Timestamp, o.Arrival, err)
		}
		if g := uint64(at / time.Second); o.Group-first != g {
			t.Errorf("%s: group %d at %s", o.Track.Name, o.Group-first, at)
		}
		video := o.Track.Name != catalog.AudioTrack
		if (p.VideoConfig != nil) != (video && o.ObjectID == 0) || o.FirstObject != (o.ObjectID == 0) ||
			len(o.Payload) == 0 {
			t.Errorf("%s: object %d has configuration %x, first %v, %d bytes", o.Track.Name, o.ObjectID, p.VideoConfig,
				o.FirstObject, len(o.Payload))
		}
		if last := o.ObjectID == 9 || at == 2400*time.Millisecond; video && (o.End == recording.EndFIN) != last {
			t.Errorf("%s: object %d at %s ends its group: %v", o.Track.Name, o.ObjectID, at, o.End)
		}
	}
	want := map[string]int{
		"catalog":   1,
		"rd":        3,
		"video":     25,
		"tiles/0/0": 25,
		"tiles/0/1": 25,
		"tiles/1/0": 25,
		"tiles/1/1": 25,
		"audio":     count["audio"],
	}
	if a, b := string(mustMarshal(count)), string(mustMarshal(want)); a != b || count["audio"] < 120 {
		t.Errorf("objects %s, want %s", a, b)
	}
	if !c.Sphere().IsLive || c.Sphere().TargetLatency != 1000 || r.s.Video.IsLive || r.s.Video.TrackDuration != 2500 {
		t.Errorf("live catalog %+v, the folder's %+v", c.Sphere(), r.s.Video)
	}
	// Chunks must list the same objects without reading media.
	n := 0
	if err := r.Chunks(func(offset int64, some []recording.Object) error {
		full, err := r.ReadChunk(offset)
		for i := range some {
			x := full[i]
			if x.Track.Name != catalog.TrackName && x.Track.Name != catalog.RatesTrack {
				x.Payload = nil
			}
			if a, b := mustMarshal(x), mustMarshal(some[i]); !bytes.Equal(a, b) {
				t.Errorf("object %d of GoP %d: %s, listed as %s", i, offset, a, b)
			}
		}
		n += len(some)
		return err
	}); err != nil || n != len(list) {
		t.Errorf("%d objects listed, %d read, %v", n, len(list), err)
	}
}

// decoded decodes the folder's pictures, using FFmpeg.
func decoded(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, name := range []string{"video.mp4", "tiles/0/0.mp4", "tiles/1/1.mp4"} {
		b, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", filepath.Join(dir, name), "-f",
			"rawvideo", "pipe:1").
			Output()
		if err != nil {
			t.Fatal(err)
		}
		all[name] = b
	}
	return all
}

func meanError(a, b []byte) float64 {
	sum := 0.0
	for i := range a {
		sum += math.Abs(float64(a[i]) - float64(b[i]))
	}
	return sum / float64(len(a))
}

// TestInterrupted checks that an interrupted preparation resumes and yields the same pictures.
func TestInterrupted(t *testing.T) {
	input := film(t)
	whole := filepath.Join(t.TempDir(), "whole")
	if err := Prepare(t.Context(), input, whole, options()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "parts")
	ctx, cancel := context.WithCancel(t.Context())
	o := options()
	o.Progress = func(done, total int64) {
		if total != 25 {
			t.Errorf("%d pictures of %d", done, total)
		}
		if done == 15 {
			cancel()
		}
	}
	if err := Prepare(ctx, input, dir, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "run holocast prepare again") {
		t.Errorf("half a preparation: %v", err)
	}
	header := filepath.Join(dir, workFolder, "000000.json")
	before, err := os.Stat(header)
	if err != nil {
		t.Fatal(err)
	}
	other := options()
	other.Preset = "veryfast"
	if err := Prepare(t.Context(), input, dir, other); err == nil ||
		!strings.Contains(err.Error(), "holds an unfinished preparation") {
		t.Errorf("with other settings: %v", err)
	}
	o.Progress = func(done, _ int64) {
		after, err := os.Stat(header)
		if done == 20 && (err != nil || !after.ModTime().Equal(before.ModTime())) {
			t.Error("the first GoP was encoded again")
		}
	}
	if err := Prepare(t.Context(), input, dir, o); err != nil {
		t.Fatal(err)
	}
	// Frames are equal except for IDR frame numbers and the state of the rate controller.
	was, now := decoded(t, whole), decoded(t, dir)
	for name, x := range was {
		if y := now[name]; len(x) != len(y) || len(x) == 0 {
			t.Errorf("%s: %d bytes of pictures, %d uninterrupted", name, len(y), len(x))
		} else if e := meanError(x, y); e > 8 {
			t.Errorf("%s: differs by %.2f a sample from the uninterrupted preparation", name, e)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, workFolder)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the parts are still there: %v", err)
	}
	if err := Prepare(t.Context(), input, dir, options()); err == nil ||
		!strings.Contains(err.Error(), "already holds prepared video") {
		t.Errorf("once more: %v", err)
	}
	if err := Prepare(t.Context(), input, filepath.Dir(dir), options()); err == nil ||
		!strings.Contains(err.Error(), "is not empty") {
		t.Errorf("into a folder with other things: %v", err)
	}
}

// TestDiskFull checks that a full disk is reported and encoded GoPs are kept.
func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	input := film(t)
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=100k"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, 0) })
	dir := filepath.Join(disk, "out")
	o := options()
	o.Quantisers = []int{12, 1}
	err := Prepare(t.Context(), input, dir, o)
	if !errors.Is(err, syscall.ENOSPC) ||
		!strings.Contains(err.Error(), "free some space, then run the same command again") {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT, "size=100m"); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(t.Context(), input, dir, o); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

func TestBadFolders(t *testing.T) {
	good := prepare(t)
	for _, tt := range []struct {
		name   string
		damage func(dir string) error
		want   string
	}{
		{
			"nothing", func(dir string) error { return os.Remove(filepath.Join(dir, "catalog.json")) },
			"holocast prepare did not write it",
		},
		{"catalog", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "catalog.json"), []byte("{"),
				0o600)
		}, "catalog.json: catalog: $"},
		{"no sphere", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "catalog.json"), []byte(`{"version":"draft-01","tracks":[]}`), 0o600)
		}, "no 360° video in it"},
		{"a track elsewhere", func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, "catalog.json"))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "catalog.json"),
				bytes.Replace(b, []byte(`"name":"audio"`), []byte(`"name":"../audio"`), 1), 0o600))
		}, `track "../audio"`},
		{
			"a tile is missing", func(dir string) error { return os.Remove(filepath.Join(dir, "tiles", "0", "1.mp4")) },
			"tiles/0/1.mp4",
		},
		{"a tile is cut off", func(dir string) error {
			return os.Truncate(filepath.Join(dir, "tiles", "0", "1.mp4"),
				2000)
		}, "truncated: 2000 bytes"},
		{
			"a tile without an index",
			func(dir string) error { return os.Truncate(filepath.Join(dir, "tiles", "0", "1.mp4"), 100) },
			"truncated index or fragment",
		},
		{"a tile of another film", func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, "audio.mp4"))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "tiles", "0", "1.mp4"), b[:len(b)-1], 0o600))
		}, "tiles/0/1.mp4"},
		{
			"rates",
			func(dir string) error { return os.WriteFile(filepath.Join(dir, "rates.json"), []byte("[]"), 0o600) },
			"rates.json: it has no GoPs",
		},
		{"rates of other tiles", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "rates.json"), []byte(`[{"data":{"missing":[1]}}]`), 0o600)
		}, "rates.json: GoP 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bad")
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			if err := tt.damage(dir); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir)
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestBadPreparations(t *testing.T) {
	for _, tt := range []struct {
		name   string
		input  string
		change func(*Options)
		want   string
	}{
		{"absurd grid", "", func(o *Options) { o.Columns = 1000 }, "a grid of 1000×1 tiles"},
		{"absurd qualities", "", func(o *Options) { o.Qualities = 99 }, "qualities: 99"},
		{"preset", "", func(o *Options) { o.Preset = "slowest" }, `preset "slowest"`},
		{"live", "srt://127.0.0.1:1", func(*Options) {}, "srt://127.0.0.1:1"},
		{"no film", "/nonexistent.mp4", func(*Options) {}, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options()
			tt.change(&o)
			input := tt.input
			if input == "" {
				input = film(t)
			}
			dir := filepath.Join(t.TempDir(), "out")
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			if err := Prepare(ctx, input, dir, o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}

// TestManifest checks that FFmpeg reads the manifest and every file.
func TestManifest(t *testing.T) {
	dir := prepare(t)
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-show_entries",
		"stream=codec_name,width,height", "-of", "json", filepath.Join(dir, "manifest.mpd")).
		Output()
	if err != nil {
		t.Fatalf("ffprobe: %v", err)
	}
	var doc struct {
		Streams []struct {
			Codec string `json:"codec_name"`
			Width int    `json:"width"`
		} `json:"streams"`
	}
	if err := json.Unmarshal(out, &doc); err != nil || len(doc.Streams) != 6 {
		t.Errorf("%d streams, %v: %s", len(doc.Streams), err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "manifest.mpd"))
	if err != nil || !strings.Contains(string(b), `schemeIdUri="urn:mpeg:dash:srd:2014" value="0,32,0,32,32,64,32"`) {
		t.Errorf("the second tile is not described: %v\n%s", err, b)
	}
	frames, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-count_frames", "-show_entries",
		"stream=nb_read_frames", "-of", "csv=p=0",
		filepath.Join(dir, "tiles", "1", "0.mp4")).
		CombinedOutput()
	if err != nil || strings.TrimSpace(string(frames)) != "25" {
		t.Errorf("a tile alone: %v: %s", err, frames)
	}
	list, err := filepath.Glob(filepath.Join(dir, "*"))
	if slices.Sort(list); err != nil || len(list) != 6 {
		t.Errorf("files %q", list)
	}
}
