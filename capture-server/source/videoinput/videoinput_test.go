package videoinput

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

// play runs the source until its end or some number of pictures, and returns all capture times.
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

// server serves a stream to each connection, then stays silent or closes it.
func server(t *testing.T, stream []byte, silent bool) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(stream) // the client may close early
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
		{"it falls silent", true, "no picture within the time limit"},
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
			if !log.Has("input stopped, reopening it") || !log.Has(tt.says) {
				t.Errorf("the log is %s", log.String())
			}
		})
	}
}

func TestTimeline(t *testing.T) {
	base := time.Now()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	l := &timeline{live: true, known: make(chan struct{})}
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
