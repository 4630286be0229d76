package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pointcloud"
	"holocast/internal/programtest"
)

// programs is the folder of the programs under test.
var programs string

func TestMain(m *testing.M) {
	programtest.Main(
		m, func(dir string) { programs = dir }, "holocast/relay", "holocast/tools/holocast",
		"holocast/capture-server",
	)
}

// process is a program under test.
type process struct {
	*programtest.Process
	t *testing.T
}

// start starts a program, which is killed at the end of the test.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return &process{programtest.Start(t, exec.Command(filepath.Join(programs, name), args...)), t}
}

// exitTimeout bounds the wait for a program's exit on an overloaded machine.
const exitTimeout = 4 * time.Minute

// wait waits for the program's exit.
func (p *process) wait() error {
	p.t.Helper()
	return p.Wait(exitTimeout)
}

func (p *process) mustSucceed() {
	p.t.Helper()
	if err := p.wait(); err != nil {
		p.t.Fatalf("%s: %v", p.Cmd.Path, err)
	}
}

// mustReplay waits for holocast replay to exit. On a slow machine it may have dropped objects.
func (p *process) mustReplay() {
	p.t.Helper()
	if err := p.wait(); err != nil && !strings.Contains(p.Stderr.String(), "could not be sent in time") {
		p.t.Fatalf("%s: %v", p.Cmd.Path, err)
	}
}

// mustFail waits for the program to exit with code 1 and returns stderr.
func (p *process) mustFail() string {
	p.t.Helper()
	var exit *exec.ExitError
	if err := p.wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		p.t.Fatalf("%s: %v, want exit code 1", p.Cmd.Path, err)
	}
	return p.Stderr.String()
}

// lastLine unmarshals the last line of stdout into a value.
func (p *process) lastLine(into any) {
	p.t.Helper()
	lines := strings.Split(strings.TrimSpace(p.Stdout.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), into); err != nil {
		p.t.Fatalf("last line %q: %v", lines[len(lines)-1], err)
	}
}

// interrupted sends SIGINT, waits for a successful exit and unmarshals the report.
func (p *process) interrupted(into any) {
	p.t.Helper()
	p.Signal(syscall.SIGINT)
	p.mustSucceed()
	p.lastLine(into)
}

// until polls until f returns true.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// freePort returns a free port for UDP and TCP.
func freePort(t *testing.T) int {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		u, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		_ = l.Close()
		if err == nil {
			_ = u.Close()
			return port
		}
	}
	t.Fatal("no port is free for both UDP and TCP")
	return 0
}

// startRelay starts a relay and waits until it is healthy.
func startRelay(t *testing.T, port int, args ...string) *process {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	p := start(t, "relay", append([]string{"--listen", addr, "--http", addr}, args...)...)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	until(t, "a healthy relay", func() bool {
		r, err := client.Get("http://" + addr + "/healthz")
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return p
}

func sessionURL(port int, session string) string {
	return fmt.Sprintf("moqt://127.0.0.1:%d/%s", port, session)
}

// publisher publishes a session of small noisy frames.
type publisher struct {
	set    origin.Set
	tracks []*origin.Track
	ns     moqt.Namespace
	cat    *origin.Track
	enc    *pointcloud.Encoder
	next   uint32
	groups uint64
	first  uint64 // ID before the first group

	descriptions int
	pause        atomic.Bool
	stop         func()
}

const (
	testWidth  = 64
	testHeight = 48
)

// testCatalog returns the catalog of a session of small frames.
func testCatalog(t *testing.T, cameras, descriptions int) []byte {
	t.Helper()
	c := catalog.Catalog{Version: catalog.Version, Tracks: []catalog.Track{catalog.NewClockTrack()}}
	for n := range cameras {
		id, err := c.AddInit(fmt.Sprintf("camera-%d", n), catalog.CameraInit{
			Grid:     camera.Intrinsics{Width: testWidth, Height: testHeight, Fx: 60, Fy: 60, Cx: 31.5, Cy: 23.5},
			Pose:     camera.Transform{R: camera.Identity.R, T: [3]float64{float64(300 * n), 0, 0}},
			DepthMin: 500, DepthMax: 5000,
		})
		if err != nil {
			t.Fatal(err)
		}
		name := catalog.PointsTrack(n, "full")
		c.Tracks = append(c.Tracks, catalog.Track{
			Name: name, Packaging: catalog.PackagingPoints, IsLive: true, Role: catalog.RolePoints, InitRef: id,
			Width: testWidth, Height: testHeight, Framerate: 30, Bitrate: 1e6,
			Points: &catalog.Points{
				Camera: n, Quality: "full", Layout: "A", Descriptions: descriptions,
				MaxPoints: testWidth * testHeight, DeliveryTimeout: 1000,
			},
		})
	}
	doc, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// publish publishes a session at 30 frames per second.
func publish(t *testing.T, url string, cameras, descriptions int) *publisher {
	t.Helper()
	target := connect.Target{URL: url}
	ns, err := target.Namespace()
	if err != nil {
		t.Fatal(err)
	}
	p := &publisher{ns: ns, groups: uint64(time.Now().UnixMilli()), descriptions: descriptions}
	p.first = p.groups
	if p.enc, err = pointcloud.NewEncoder(pointcloud.EncoderOptions{}); err != nil {
		t.Fatal(err)
	}
	for n := range cameras {
		track := moqt.TrackName{Namespace: ns, Name: catalog.PointsTrack(n, "full")}
		p.tracks = append(p.tracks, origin.NewTrack(track, nil, origin.Limits{}))
		p.set.Add(p.tracks[n])
	}
	doc := testCatalog(t, cameras, descriptions)
	p.cat = origin.NewTrack(moqt.TrackName{Namespace: ns, Name: catalog.TrackName}, nil, origin.Limits{})
	p.set.Add(p.cat)
	h := wire.SubgroupHeader{Group: p.groups, Mode: wire.SubgroupIDZero, Priority: 10, FirstObject: true}
	if err := p.cat.WriteObject(h, moqt.Object{}, doc); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	published := make(chan struct{})
	var once sync.Once
	wg.Go(func() {
		_ = target.Keep(ctx, p.set.Handler(), moqt.Config{}, func(ctx context.Context, s *moqt.Session) error {
			if _, err := s.PublishNamespace(ctx, ns); err != nil {
				return err
			}
			once.Do(func() { close(published) })
			select {
			case <-ctx.Done():
				return nil
			case <-s.Context().Done():
				return s.Err()
			}
		})
	})
	<-published
	wg.Go(func() { p.run(ctx, t) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		p.enc.Close()
	})
	t.Cleanup(p.stop)
	return p
}

func (p *publisher) run(ctx context.Context, t *testing.T) {
	tick := time.NewTicker(time.Second / 30)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if p.pause.Load() {
			continue
		}
		if err := p.frame(); err != nil {
			t.Error(err)
			return
		}
	}
}

// frame publishes one frame of every camera.
func (p *publisher) frame() error {
	p.groups++
	return p.encode(len(p.tracks), time.Now(), func(camera, description int, b []byte) error {
		h := wire.SubgroupHeader{
			Group: p.groups, Subgroup: uint64(description), Mode: wire.SubgroupIDExplicit,
			Priority: uint8(64 + description), FirstObject: true,
		}
		return p.tracks[camera].WriteObject(h, moqt.Object{ID: uint64(description)}, b)
	})
}

// encode encodes one frame of every camera and passes each description to write.
func (p *publisher) encode(cameras int, captured time.Time, write func(camera, description int, b []byte) error) error {
	g := pointcloud.Grid{
		Width:  testWidth,
		Height: testHeight,
		Depth:  make([]uint16, testWidth*testHeight),
		Color:  make([]byte, 3*testWidth*testHeight),
	}
	for i := range g.Depth {
		g.Depth[i] = uint16(1000 + i%testWidth*10 + rand.IntN(32)) // incompressible noise
	}
	for i := range g.Color {
		g.Color[i] = byte(rand.Uint32())
	}
	for n := range cameras {
		for d := range p.descriptions {
			b, err := p.enc.Encode(nil, pointcloud.Header{
				Sequence: p.next, CaptureTime: uint64(captured.UnixMicro()), Camera: uint16(n), Descriptions: uint8(p.descriptions),
			}, &pointcloud.Frame{Layout: pointcloud.LayoutGrid, Grid: g}, d)
			if err != nil {
				return err
			}
			if err := write(n, d, b); err != nil {
				return err
			}
		}
	}
	p.next++
	return nil
}
