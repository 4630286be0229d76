package main

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/ffmpeg"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
)

// clapsSeen returns the capture times, in UNIX µs, of the recorded frames in which the performer's
// hands meet: the frames with the most points in the place where they meet. Claps next to a gap of
// half a second do not count, as they may be missing from the frames or the sound.
// Each has an uncertainty in ms: on a busy machine, the frame of the clap itself may be missing.
func clapsSeen(t *testing.T, path string) map[int64]float64 {
	t.Helper()
	r, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // read-only
	dec, err := pointcloud.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	var init catalog.CameraInit
	var rays camera.RayTable
	var frame pointcloud.Frame
	name := "" // of the best track
	type count struct {
		at     int64
		points int
	}
	var counts []count
	for {
		o, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if o.Track.Name == catalog.TrackName && init.Grid.Width == 0 && !o.EndOnly {
			var reader catalog.Reader
			c, err := reader.Read(o.Group, o.Payload)
			if err != nil {
				t.Fatal(err)
			}
			track, err := c.Select(0, "")
			if err != nil {
				continue
			}
			if init, err = c.Init(track); err != nil {
				t.Fatal(err)
			}
			name, rays, dec.MaxPoints = track.Name, init.Grid.RayTable(), track.Points.MaxPoints
		}
		if o.Track.Name != name || o.EndOnly {
			continue
		}
		if h, err := pointcloud.ParseHeader(o.Payload); err == nil {
			if _, err := dec.Decode(&frame, o.Payload); err != nil {
				t.Fatal(err)
			}
			counts = append(counts, count{int64(h.CaptureTime), between(frame.Grid.Transform(&rays, init.Pose))})
		}
	}
	seen := map[int64]float64{}
	for i := 11; i < len(counts)-10; i++ {
		c := counts[i]
		most := c.points > 0
		for j := max(0, i-45); j < min(len(counts), i+45); j++ {
			most = most && (counts[j].points < c.points || counts[j].points == c.points && j >= i)
		}
		for j := i - 10; j < i+10; j++ {
			most = most && counts[j+1].at-counts[j].at < 500_000
		}
		if most {
			gap := max(c.at-counts[i-1].at, counts[i+1].at-c.at)
			seen[c.at] = max(0, float64(gap)/1000-1000./30)
		}
	}
	return seen
}

// between counts the points in the place where the hands meet.
func between(p pointcloud.Points) (n int) {
	for i := 0; i+2 < len(p.XYZ); i += 3 {
		x, y, z := float64(p.XYZ[i]), float64(p.XYZ[i+1]), float64(p.XYZ[i+2])
		c := synthetic.SoundPosition
		if math.Abs(x-c[0]) < 20 && math.Abs(y-c[1]) < 80 && math.Abs(z-c[2]) < 120 {
			n++
		}
	}
	return n
}

// clapsHeard returns the times of claps in x, in µs since its first sample.
func clapsHeard(x []float32) (at []float64) {
	quiet := soundRate
	for i, v := range x {
		if quiet++; max(v, -v) < synthetic.ClapThreshold {
			continue
		}
		if quiet > soundRate {
			at = append(at, float64(i)*1e6/soundRate)
		}
		quiet = 0
	}
	return at
}

// watchClaps plays a session. The returned function waits for the end and returns the lip offsets
// of the claps seen, in ms and in order.
func watchClaps(t *testing.T, url string, args ...string) func(seen map[int64]float64) ([]float64, soundReport) {
	t.Helper()
	dir := t.TempDir()
	file, list := filepath.Join(dir, "sound.wav"), filepath.Join(dir, "frames.csv")
	p := start(t, "holocast", append([]string{"play", url, "--wav", file, "--frames", list, "--json"}, args...)...)
	return func(seen map[int64]float64) ([]float64, soundReport) {
		t.Helper()
		var r soundReport
		p.mustSucceed()
		p.lastLine(&r)
		return lipOffsets(t, seen, r, file, list), r
	}
}

// lipOffsets returns the time from each clap seen to its sound, in ms.
func lipOffsets(t *testing.T, seen map[int64]float64, r soundReport, file, list string) (offsets []float64) {
	t.Helper()
	heard := clapsHeard(readWAV(t, file))
	f, err := os.Open(list)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // read-only
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		captured, _ := strconv.ParseInt(row[2], 10, 64)
		shown, _ := strconv.ParseInt(row[4], 10, 64)
		uncertainty, ok := seen[captured]
		if !ok {
			continue
		}
		for _, at := range heard {
			if off := (at + float64(r.WAV.BeganUS-shown)) / 1000; math.Abs(off) < 500 {
				offsets = append(offsets, math.Round(10*certain(off, uncertainty))/10)
			}
		}
	}
	return offsets
}

// certain returns the part of an offset that exceeds its uncertainty.
func certain(offset, uncertainty float64) float64 {
	return math.Copysign(max(0, math.Abs(offset)-uncertainty), offset)
}

// TestSoundOfPerformer measures the lip offset of the synthetic performer's claps live, in a replay
// shared by all viewers, and after a seek, and exports the sound.
func TestSoundOfPerformer(t *testing.T) {
	port := freePort(t)
	startRelay(t, port)
	url := sessionURL(port, "stage")
	capture := start(t, "capture-server", "--source", "synthetic", "--audio", "synthetic",
		"--depth-mode", "NFOV_2X2BINNED", url)
	file := filepath.Join(t.TempDir(), "stage.mcap")
	record := start(t, "holocast", "record", url, file, "--wait", "--duration", "11s")
	live := watchClaps(t, url, "--wait", "--duration", "9s")
	record.mustSucceed()
	seen := clapsSeen(t, file)
	if len(seen) == 0 {
		t.Fatal("no clap in the recording")
	}
	check := func(what string, offsetsOf func(map[int64]float64) ([]float64, soundReport)) {
		t.Helper()
		offsets, r := offsetsOf(seen)
		b, _ := json.Marshal(r.Sound)
		t.Logf("%s: lip offsets %v ms, reported %s", what, offsets, b)
		if len(offsets) == 0 && r.calm() {
			t.Errorf("%s: no clap was both seen and heard", what)
		}
		for _, off := range offsets {
			inSync(t, r, off)
		}
	}
	check("live", live)
	capture.Signal(syscall.SIGINT)
	capture.mustSucceed()

	past := sessionURL(port, "past")
	replay := start(t, "holocast", "replay", file, past, "--loop")
	check("replayed", watchClaps(t, past, "--wait", "--duration", "8s"))
	check("after a seek", watchClaps(
		t, past, "--from", "1s", "--seek", "2s:4s", "--pause-at", "5s:1s", "--duration", "7s",
	))
	replay.Signal(syscall.SIGINT)
	replay.mustSucceed()

	out := filepath.Join(t.TempDir(), "stage.wav")
	start(t, "holocast", "export", file, "--wav", out).mustSucceed()
	exportedInStep(t, "exported", seen, firstCapture(t, file), out)

	film := filepath.Join(t.TempDir(), "stage.mp4")
	start(t, "holocast", "export", file, "--mp4", film, "--size", "64x48", "--fps", "5", "--look", "points").mustSucceed()
	in, err := ffmpeg.ParseInput(film)
	if err != nil {
		t.Fatal(err)
	}
	info, err := ffmpeg.Probe(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if info.Audio == nil || info.Video == nil || info.Video.FPS() != 5 || info.Duration < 9*time.Second {
		t.Errorf("the film has %+v", info)
	}
	out = filepath.Join(t.TempDir(), "film.wav")
	if err := ffmpeg.Run(t.Context(), "-i", film, "-vn", "-af", "aresample=48000:first_pts=0", out); err != nil {
		t.Fatal(err)
	}
	exportedInStep(t, "film", seen, firstCapture(t, file), out)
}

// exportedInStep checks that the claps seen, at capture times, are heard in a WAV file that begins at another one.
func exportedInStep(t *testing.T, what string, seen map[int64]float64, began int64, file string) {
	t.Helper()
	heard := clapsHeard(readWAV(t, file))
	for at, uncertainty := range seen {
		want, nearest := float64(at-began), math.Inf(1)
		for _, h := range heard {
			if math.Abs(h-want) < math.Abs(nearest) {
				nearest = h - want
			}
		}
		offset := certain(nearest/1000, uncertainty)
		if t.Logf("%s: lip offset %.1f ms, after subtracting ±%.1f", what, offset, uncertainty); math.Abs(offset) > 45 {
			t.Error("the exported sound is out of step")
		}
	}
}

// firstCapture returns the capture time of a recording's first frame, UNIX µs.
func firstCapture(t *testing.T, path string) int64 {
	t.Helper()
	r, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // read-only
	for {
		o, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h, err := pointcloud.ParseHeader(o.Payload); err == nil && !o.EndOnly {
			return int64(h.CaptureTime)
		}
	}
}
