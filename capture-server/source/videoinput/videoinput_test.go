package videoinput

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/ffmpeg"
	"holocast/internal/leaktest"
	"holocast/internal/testlog"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// film creates a video with sound, using FFmpeg.
func film(t *testing.T, name string, seconds int, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	path := filepath.Join(t.TempDir(), name)
	all := append(
		[]string{
			"-v",
			"error",
			"-f",
			"lavfi",
			"-i",
			"testsrc2=size=64x32:rate=20",
			"-f",
			"lavfi",
			"-i",
			"sine",
			"-t",
			strconv.Itoa(seconds),
		},
		append(args, path)...)
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", all...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// play runs the source until it ends or has delivered a number of frames. It returns all capture
// times.
func play(t *testing.T, s *Player, pictures int) (frames, packets []time.Time, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	video, sound := s.Frames(), s.Packets()
	for video != nil || sound != nil {
		select {
		case f, more := <-video:
			if !more {
				video = nil
				continue
			}
			if frames = append(frames, f.Captured); len(frames) == pictures {
				cancel()
			}
			s.Release(f)
		case p, more := <-sound:
			if !more {
				sound = nil
				continue
			}
			packets = append(packets, p.Captured)
		}
	}
	return frames, packets, <-ran
}

func TestFileEnds(t *testing.T) {
	s, err := Open(t.Context(), film(t, "a.mp4", 1), Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	frames, packets, err := play(t, s, 0)
	if err != nil || len(frames) != 20 || len(packets) < 50 || len(packets) > 53 {
		t.Fatalf("%d pictures, %d packets, %v", len(frames), len(packets), err)
	}
	for i, at := range frames {
		if d := at.Sub(frames[0]); d != time.Duration(i)*50*time.Millisecond {
			t.Errorf("picture %d is due after %s", i, d)
		}
	}
	if d := time.Since(began); d < 950*time.Millisecond {
		t.Errorf("a second was played in %s", d)
	}
	if d := packets[0].Sub(frames[0]); d.Abs() > 10*time.Millisecond {
		t.Errorf("sound begins %s after the pictures", d)
	}
}

// TestLoopRepeatsTheFilm checks that all frames repeat, with sound shorter or longer than the
// video.
func TestLoopRepeatsTheFilm(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sound string // seconds; "" for none
		lap   int    // pictures
	}{
		{"no sound", "", 10},
		{"short sound", "0.2", 10},
		{"sound of the same length", "0.5", 10},
		{"long sound", "1", 18},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"-map", "0:v", "-vf", "trim=end_frame=10"}
			if tt.sound != "" {
				args = append(args, "-map", "1:a", "-af", "atrim=duration="+tt.sound)
			}
			s, err := Open(t.Context(), film(t, "a.mp4", 1, args...), Options{Loop: true, Log: quiet})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- s.Run(ctx) }()
			go func() {
				for range s.Packets() {
					continue
				}
			}()
			var hashes []uint32
			var times []time.Time
			for f := range s.Frames() {
				hashes, times = append(hashes, crc32.ChecksumIEEE(f.Eyes[0].Y)), append(times, f.Captured)
				s.Release(f)
				if len(hashes) == 25 {
					cancel()
				}
			}
			cancel()
			if err := <-ran; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			for i := range 25 {
				if hashes[i] != hashes[i%10] || hashes[9] == hashes[0] {
					t.Errorf("picture %d is not picture %d of the film", i, i%10)
				}
				due := time.Duration(i/10*tt.lap+i%10) * 50 * time.Millisecond
				if d := times[i].Sub(times[0]); (d - due).Abs() > 60*time.Millisecond {
					t.Errorf("picture %d is due after %s, want %s", i, d, due)
				}
			}
		})
	}
}

func TestFileLoops(t *testing.T) {
	s, err := Open(t.Context(), film(t, "a.mp4", 1), Options{Loop: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	frames, _, err := play(t, s, 50)
	if !errors.Is(err, context.Canceled) || len(frames) < 50 {
		t.Errorf("%d pictures, %v", len(frames), err)
	}
}

// server serves a stream to each connection, then stays silent or closes the connection.
func server(t *testing.T, stream []byte, silent bool) (url string) {
	t.Helper()
	return serve(t, func(int) []byte { return stream }, silent)
}

// serve is like server, but stream returns the data of each connection by its number.
func serve(t *testing.T, stream func(connection int) []byte, silent bool) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(stream(n)) // the client may close early
			if silent {
				_, _ = io.Copy(io.Discard, c) // until the client closes
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "tcp://" + l.Addr().String()
}

// TestLiveInputReopens checks that a live input that ends or falls silent is reopened.
func TestLiveInputReopens(t *testing.T) {
	stream, err := os.ReadFile(film(t, "a.ts", 5, "-c:v", "libx264", "-g", "5", "-bf", "0"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		silent bool
		says   string
	}{
		{"it ends", false, "the sender ended the stream"},
		{"it falls silent", true, "no frame within the time limit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log testlog.Buffer
			s, err := Open(t.Context(), server(t, stream, false),
				Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if s.Input, err = ffmpeg.ParseInput(server(t, stream, tt.silent)); err != nil {
				t.Fatal(err)
			}
			s.silence, s.firstBackoff = 5*time.Second, 10*time.Millisecond
			frames, _, err := play(t, s, 150)
			if !errors.Is(err, context.Canceled) || len(frames) < 150 {
				t.Errorf("%d pictures, %v", len(frames), err)
			}
			if !log.Has("input stopped; reopening it") || !log.Has(tt.says) {
				t.Errorf("the log is %s", log.String())
			}
		})
	}
}

// TestLiveInputChanges checks that a reopened live input may have another size, other colours and
// no sound.
func TestLiveInputChanges(t *testing.T) {
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	before := read(film(t, "a.ts", 5, "-c:v", "libx264", "-g", "5", "-bf", "0"))
	after := read(film(t, "b.ts", 5, "-map", "0:v", "-vf", "drawbox=color=white:thickness=fill,scale=96:48",
		"-c:v", "libx264", "-g", "5", "-bf", "0", "-pix_fmt", "yuvj420p", "-color_range", "pc"))
	var log testlog.Buffer
	s, err := Open(t.Context(), serve(t, func(n int) []byte {
		if n < 2 { // probed and played
			return before
		}
		return after
	}, false), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.firstBackoff = 10 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	go func() {
		for range s.Packets() {
			continue
		}
	}()
	white := 0
	for f := range s.Frames() {
		y := f.Eyes[0].Y
		if !slices.ContainsFunc(y, func(v byte) bool { return v < 233 || v > 237 }) && len(y) == 64*32 {
			if white++; white == 30 {
				cancel()
			}
		}
		s.Release(f)
	}
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) || white < 30 {
		t.Errorf("%d pictures of the encoder that returned, %v; log: %s", white, err, log.String())
	}
	for _, want := range []string{"pictures were 64×32, now 96×48", "it has no sound now", "colours converted"} {
		if !log.Has(want) {
			t.Errorf("%q is not in the log: %s", want, log.String())
		}
	}
}

// TestPlaylistPauses checks that a live HLS input resumes after failing for some time.
func TestPlaylistPauses(t *testing.T) {
	dir := filepath.Dir(film(t, "all.m3u8", 6, "-map", "0:v", "-c:v", "libx264", "-g", "20", "-bf", "0", "-f", "hls",
		"-hls_time", "1", "-hls_list_size", "0"))
	var playlists atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/live.m3u8" {
			http.ServeFile(w, r, filepath.Join(dir, filepath.Base(r.URL.Path)))
			return
		}
		n := playlists.Add(1)
		first := 0
		switch {
		case n > 6:
			first = 3
		case n > 2:
			http.Error(w, "the encoder pauses", http.StatusNotFound)
			return
		}
		_, _ = fmt.Fprintf(w, "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:%d\n", first)
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "#EXTINF:1.0,\nall%d.ts\n", first+i)
		}
	}))
	defer web.Close()
	var log testlog.Buffer
	s, err := Open(t.Context(), web.URL+"/live.m3u8", Options{Loop: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.firstBackoff = 10 * time.Millisecond
	if frames, _, err := play(t, s, 80); !errors.Is(err, context.Canceled) || len(frames) < 80 {
		t.Errorf("%d pictures, %v", len(frames), err)
	}
	if !log.Has("input stopped; reopening it") {
		t.Errorf("the log is %s", log.String())
	}
}

func TestTimeline(t *testing.T) {
	base := time.Now()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	l := &timeline{live: true, endless: true, known: make(chan struct{})}
	for _, tt := range []struct {
		name           string
		media, arrival int
		want, slack    int // ms
	}{
		{"first", 0, 0, 0, 0},
		{"late", 100, 150, 100, 1},
		{"early", 200, 190, 190, 0},
		{"in time after that", 300, 290, 290, 0},
		{"after a pause", 400, 5000, 5000, 0},
	} {
		if got := l.frame(ms(tt.media), base.Add(ms(tt.arrival))).Sub(base); (got - ms(tt.want)).Abs() > ms(tt.slack) {
			t.Errorf("%s: captured at %s, want %s", tt.name, got, ms(tt.want))
		}
	}
	file := &timeline{known: make(chan struct{})}
	file.frame(0, base)
	if got := file.frame(ms(100), base.Add(time.Hour)).Sub(base); got != ms(100) {
		t.Errorf("a file's picture is captured at %s", got)
	}
	playlist := &timeline{endless: true, known: make(chan struct{})}
	playlist.frame(0, base)
	for _, tt := range []struct{ media, arrival, want int }{{2000, 10, 2000}, {3000, 3500, 3000}, {4000, 9000, 9000}} {
		if got := playlist.frame(ms(tt.media), base.Add(ms(tt.arrival))).Sub(base); got != ms(tt.want) {
			t.Errorf("a playlist's picture of %s is captured at %s, want %s", ms(tt.media), got, ms(tt.want))
		}
	}
}

func TestInputWithoutPictures(t *testing.T) {
	s, err := Open(t.Context(), film(t, "a.mp4", 1), Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.Input.File()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := play(t, s, 0); err == nil || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("a film that is gone: %v", err)
	}
}
