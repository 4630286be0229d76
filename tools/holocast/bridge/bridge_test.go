package bridge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"holocast/internal/leaktest"
	"holocast/internal/livescan"
	"holocast/internal/pointcloud"
	"holocast/internal/testlog"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// scene holds the clouds of a session's cameras.
type scene struct {
	mu     sync.Mutex
	clouds []pointcloud.Points
}

func (s *scene) set(clouds ...pointcloud.Points) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clouds = clouds
}

func (s *scene) get() []pointcloud.Points {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clouds
}

// line returns n points along x, all of one color.
func line(n int, color byte) (p pointcloud.Points) {
	for i := range n {
		p.XYZ = append(p.XYZ, int16(i), 0, 0)
		p.RGB = append(p.RGB, color, color, color)
	}
	return p
}

// served is a server under test.
type served struct {
	*Server
	frames *Frames
	scene  scene
	log    testlog.Buffer
	addr   string
	stop   func()
}

func serve(t *testing.T, budget int, cfg Config) *served {
	t.Helper()
	s := &served{}
	s.frames = NewFrames(s.scene.get, budget)
	cfg.Log = slog.New(slog.NewTextHandler(&s.log, nil))
	s.Server = NewServer(s.frames, cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// viewer is a LiveScan3D viewer.
type viewer struct {
	t *testing.T
	net.Conn
	answers *livescan.Answers
}

func (s *served) connect(t *testing.T) *viewer {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &viewer{t, conn, livescan.NewAnswers(conn)}
}

func (v *viewer) ask() {
	v.t.Helper()
	if _, err := v.Write([]byte{livescan.RequestFrame}); err != nil {
		v.t.Fatal(err)
	}
}

func (v *viewer) read() (p pointcloud.Points) {
	v.t.Helper()
	if _, err := v.answers.Next(&p); err != nil {
		v.t.Fatal(err)
	}
	return p
}

func (v *viewer) expectEnd() {
	v.t.Helper()
	if _, err := io.Copy(io.Discard, v); err != nil && !strings.Contains(err.Error(), "reset") {
		v.t.Error(err)
	}
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting for %s", what)
		}
	}
}

func TestAnswersWithTheNewest(t *testing.T) {
	s := serve(t, 1000, Config{MaxWait: 20 * time.Millisecond})
	v := s.connect(t)
	v.ask()
	if p := v.read(); len(p.XYZ) != 0 {
		t.Errorf("%d points before the first frame", len(p.XYZ)/3)
	}
	now := time.Now()
	s.scene.set(line(3, 1), line(4, 2))
	s.frames.Shown(0, now, now)
	v.ask()
	if p := v.read(); len(p.XYZ) != 3*7 || p.RGB[0] != 1 || p.RGB[3*3] != 2 || p.XYZ[3*4] != 1 {
		t.Errorf("points %v, colours %v", p.XYZ, p.RGB)
	}
	v.ask() // no newer frame exists, so the bridge sends this one again
	if p := v.read(); len(p.XYZ) != 3*7 {
		t.Errorf("%d points", len(p.XYZ)/3)
	}
	until(t, "the sum", func() bool { return s.Statistics().Frames == 3 })
	if sum := s.Statistics(); sum.Again != 2 || sum.Encoded != 1 || sum.Points != 14 || sum.Viewers != 1 {
		t.Errorf("%+v", sum)
	}
}

// A viewer waits for a frame that it has not received yet.
func TestWaitsForANewFrame(t *testing.T) {
	s := serve(t, 1000, Config{MaxWait: time.Hour})
	v := s.connect(t)
	now := time.Now()
	s.scene.set(line(1, 1))
	s.frames.Shown(0, now, now)
	v.ask()
	v.ask() // pipelined
	if p := v.read(); len(p.XYZ) != 3 {
		t.Errorf("%d points", len(p.XYZ)/3)
	}
	s.scene.set(line(2, 1))
	s.frames.Shown(0, now, now)
	if p := v.read(); len(p.XYZ) != 6 {
		t.Errorf("%d points", len(p.XYZ)/3)
	}
}

func TestOneEncodingForAll(t *testing.T) {
	s := serve(t, 1000, Config{MaxWait: time.Hour})
	var viewers []*viewer
	for range 8 {
		viewers = append(viewers, s.connect(t))
	}
	now := time.Now()
	for k := 1; k <= 20; k++ {
		s.scene.set(line(k, 1))
		s.frames.Shown(0, now, now)
		for _, v := range viewers {
			v.ask()
		}
		for _, v := range viewers {
			if p := v.read(); len(p.XYZ) != 3*k {
				t.Fatalf("%d points, want %d", len(p.XYZ)/3, k)
			}
		}
	}
	until(t, "the sum", func() bool { return s.Statistics().Frames == 160 })
	if sum := s.Statistics(); sum.Encoded != 20 || sum.Most != 8 {
		t.Errorf("%+v", sum)
	}
}

func TestBudget(t *testing.T) {
	for _, c := range []struct {
		name   string
		clouds []pointcloud.Points
		budget int
		want   []int // points per cloud
	}{
		{"all", []pointcloud.Points{line(10, 1), line(20, 2)}, 30, []int{10, 20}},
		{"half", []pointcloud.Points{line(10, 1), line(20, 2)}, 15, []int{5, 10}},
		{"a third of one", []pointcloud.Points{line(9, 1)}, 3, []int{3}},
		{"one point", []pointcloud.Points{line(1000, 1)}, 1, []int{1}},
		{"none", nil, 10, []int{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := NewFrames(func() []pointcloud.Points { return c.clouds }, c.budget)
			e := f.encode(1, time.Time{})
			var p pointcloud.Points
			if n, err := livescan.NewAnswers(bytes.NewReader(e.answer)).Next(&p); n != e.points || err != nil {
				t.Fatalf("%d points, %v", n, err)
			}
			got := make([]int, len(c.want))
			for i := 0; i < len(p.RGB); i += 3 {
				got[p.RGB[i]-1]++
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("points %v, want %v", got, c.want)
					break
				}
			}
		})
	}
}

// A frame is complete when every camera has a newer cloud; a late or missing camera does not delay
// the others.
func TestWholeFrames(t *testing.T) {
	f := NewFrames(func() []pointcloud.Points { return nil }, 1)
	begun := time.Now()
	at := func(n int) time.Time { return begun.Add(time.Duration(n) * time.Second / 30) }
	number := func() uint64 { n, _, _ := f.state(); return n }
	show := func(n int, cameras ...uint16) {
		for _, c := range cameras {
			f.Shown(c, at(n), at(n))
		}
	}
	show(-1, 0, 1, 2) // establishes the set of cameras
	show(0, 0, 1, 2)
	first := number()
	for n := 1; n <= 10; n++ {
		show(n, 0)
		show(n, 1)
		if got := number(); got != first+uint64(n)-1 {
			t.Fatalf("frame %d before camera 2 has it", got)
		}
		show(n, 2)
		if got := number(); got != first+uint64(n) {
			t.Fatalf("frame %d with all cameras, want %d", got, first+uint64(n))
		}
	}
	if _, captured, _ := f.state(); !captured.Equal(at(10)) {
		t.Errorf("captured %v", captured)
	}
	before := number()
	for n := 11; n <= 20; n++ { // camera 2 lags
		show(n, 0, 1)
	}
	if got := number(); got < before+9 {
		t.Errorf("%d frames of 10 while a camera lags", got-before)
	}
	show(60, 0, 1) // camera 2 has been missing for over a second
	show(61, 0, 1)
	before = number()
	show(62, 0, 1)
	if got := number(); got != before+1 {
		t.Errorf("%d frames instead of one while a camera is away", got-before)
	}
}

func TestLimits(t *testing.T) {
	s := serve(t, 10, Config{Viewers: 2, PerAddress: 1, MaxWait: time.Millisecond})
	first := s.connect(t)
	first.ask()
	first.read()
	s.connect(t).expectEnd() // from the same address
	until(t, "the refusal", func() bool { return s.Statistics().Refused == 1 })
	if text := s.log.String(); !strings.Contains(text, "--max-per-address") {
		t.Errorf("log %s", text)
	}
	_ = first.Close()
	until(t, "the viewer's end", func() bool { return testutil.ToFloat64(s.connected) == 0 })
	again := s.connect(t)
	again.ask()
	again.read()

	s = serve(t, 10, Config{Viewers: 1, MaxWait: time.Millisecond})
	first = s.connect(t)
	first.ask()
	first.read()
	s.connect(t).expectEnd()
	until(t, "the refusal", func() bool { return s.Statistics().Refused == 1 })
	if text := s.log.String(); !strings.Contains(text, "--max-viewers") {
		t.Errorf("log %s", text)
	}
}

func TestBadViewers(t *testing.T) {
	big := line(1_000_000, 1) // more than the socket buffers hold
	for _, c := range []struct {
		name   string
		cfg    Config
		do     func(*viewer)
		log    string
		reason string
	}{
		{"silent", Config{Idle: 20 * time.Millisecond}, func(*viewer) {}, "requested no frames", "silent"},
		{
			"a web browser",
			Config{},
			func(v *viewer) { _, _ = v.Write([]byte("GET / HTTP/1.1\r\n\r\n")) },
			"does not speak LiveScan3D's protocol", "protocol",
		},
		{"slow", Config{Stall: 50 * time.Millisecond}, func(v *viewer) {
			for range 4 { // without reading any
				v.ask()
			}
		}, "too slow", "slow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.MaxWait = time.Millisecond
			s := serve(t, 2_000_000, c.cfg)
			s.scene.set(big)
			s.frames.Shown(0, time.Now(), time.Now())
			v := s.connect(t)
			c.do(v)
			until(t, "the drop", func() bool { return s.Statistics().Dropped == 1 })
			if text := s.log.String(); !strings.Contains(text, c.log) {
				t.Errorf("log %s", text)
			}
			if n := testutil.ToFloat64(s.gone.WithLabelValues(c.reason)); n != 1 {
				t.Errorf("%v ended as %s", n, c.reason)
			}
		})
	}
}

// Serve returns when its context is cancelled, even while viewers are connected.
func TestEnds(t *testing.T) {
	s := serve(t, 10, Config{MaxWait: time.Hour})
	asking, silent := s.connect(t), s.connect(t)
	asking.ask()
	until(t, "both viewers", func() bool { return testutil.ToFloat64(s.connected) == 2 })
	s.stop()
	asking.expectEnd()
	silent.expectEnd()
	if sum := s.Statistics(); sum.Dropped != 0 {
		t.Errorf("%+v", sum)
	}
}

type broken struct{ net.Listener }

func (broken) Accept() (net.Conn, error) { return nil, errors.New("broken") }
func (broken) Close() error              { return nil }

func TestListenerFails(t *testing.T) {
	s := NewServer(NewFrames(func() []pointcloud.Points { return nil }, 1), Config{Log: slog.New(slog.DiscardHandler)})
	if err := s.Serve(t.Context(), broken{}); err == nil || err.Error() != "broken" {
		t.Errorf("error %v", err)
	}
}
