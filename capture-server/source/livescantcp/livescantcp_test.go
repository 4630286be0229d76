package livescantcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/capture-server/source"
	"holocast/internal/leaktest"
	"holocast/internal/livescan"
	"holocast/internal/livescan/livescantest"
	"holocast/internal/pointcloud"
	"holocast/internal/testlog"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// hang is the time after which a test gives up.
const hang = 2 * time.Minute

// places is a server under test.
type places struct {
	t       *testing.T
	cameras []*Camera
	log     testlog.Buffer
}

func listen(t *testing.T, o Options) *places {
	t.Helper()
	p := &places{t: t}
	o.Log = slog.New(slog.NewTextHandler(&p.log, nil))
	var err error
	if p.cameras, err = Listen("127.0.0.1:0", o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range p.cameras {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

func (p *places) dial() net.Conn {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.cameras[0].Address().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// attach runs a client until the test ends or stop is called.
func (p *places) attach(c *livescantest.Client) (stop func()) {
	p.t.Helper()
	conn := p.dial()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Run(conn); err != nil {
			p.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		_ = conn.Close()
		wg.Wait()
	})
	p.t.Cleanup(stop)
	return stop
}

func (p *places) until(text string) {
	p.t.Helper()
	deadline := time.Now().Add(hang)
	for ; !strings.Contains(p.log.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("no %q in the log:\n%s", text, p.log.String())
		}
	}
}

// free waits until the first camera is free.
func (p *places) free() {
	p.t.Helper()
	for deadline := time.Now().Add(hang); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		p.cameras[0].l.mu.Lock()
		taken := p.cameras[0].taken
		p.cameras[0].l.mu.Unlock()
		if !taken {
			return
		}
	}
	p.t.Fatal("the camera is still taken")
}

func (p *places) next(c *Camera) (cloud source.Cloud) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), hang)
	defer cancel()
	if err := c.Next(ctx, &cloud); err != nil {
		p.t.Fatalf("%v; log:\n%s", err, p.log.String())
	}
	return cloud
}

// counter returns clouds of n points; the first x increases by one each time.
func counter(n int) func() *pointcloud.Points {
	k := int16(0)
	return func() *pointcloud.Points {
		k++
		p := &pointcloud.Points{XYZ: make([]int16, 3*n), RGB: make([]byte, 3*n)}
		for i := range p.RGB {
			p.RGB[i] = byte(rand.Uint32())
		}
		p.XYZ[0], p.RGB[0] = k, 7
		return p
	}
}

func TestClients(t *testing.T) {
	azure := &[12]float32{1, 0, 0, 0.1, 0, 1, 0, 0.2, 0, 0, 1, 0.3}
	kinect := &[12]float32{1, 0, 0, 0, 1, 0, 0, 0, 1, 0.1, 0.2, 0.3}
	for _, c := range []struct {
		name   string
		client livescantest.Client
		log    []string
	}{
		{
			"Azure Kinect with a pose",
			livescantest.Client{Version: livescan.AzureKinect, Compress: true, Matrix: azure},
			[]string{"version=\"Azure Kinect\"", "serial=000841194412", "at_mm=\"[100"},
		},
		{
			"Azure Kinect without one",
			livescantest.Client{Version: livescan.AzureKinect},
			[]string{"serial=000841194412"},
		},
		{
			"Kinect v2 with a pose",
			livescantest.Client{Version: livescan.KinectV2, Compress: true, Matrix: kinect},
			[]string{"version=\"Kinect v2\"", "at_mm=\"[100"},
		},
		{"Kinect v2 without one", livescantest.Client{Version: livescan.KinectV2}, []string{"version=\"Kinect v2\""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := Options{FPS: 120, Probe: hang}
			if c.client.Version == livescan.KinectV2 { // does not answer the probe
				o.Probe = 200 * time.Millisecond
			}
			p := listen(t, o)
			c.client.Frame = counter(1000)
			before := time.Now()
			stop := p.attach(&c.client)
			last := int16(0)
			for range 5 {
				cloud := p.next(p.cameras[0])
				if len(cloud.XYZ) != 3000 || cloud.XYZ[0] <= last || cloud.RGB[0] != 7 ||
					cloud.CaptureTime.Before(before) {
					t.Fatalf("%d coordinates, first %d after %d, captured %v", len(cloud.XYZ), cloud.XYZ[0], last,
						cloud.CaptureTime)
				}
				last = cloud.XYZ[0]
			}
			for _, text := range c.log {
				p.until(text)
			}
			stop()
			p.until("LiveScan3D client disconnected")
			if c.client.Settings != 1 {
				t.Errorf("settings were sent %d times", c.client.Settings)
			}
		})
	}
}

// TestCalibrates checks that a client without a pose is asked to find a marker if Options.Calibrate
// is set.
func TestCalibrates(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		p := listen(t, Options{FPS: 120, Calibrate: wanted, Probe: hang})
		c := &livescantest.Client{Version: livescan.AzureKinect, Frame: counter(10)}
		stop := p.attach(c)
		p.until("has no pose")
		for range 20 {
			p.next(p.cameras[0])
		}
		if wanted {
			p.until("at_mm=\"[0 0 2000]\"")
		}
		stop()
		if got := c.Calibrations == 1; got != wanted {
			t.Errorf("wanted %v, asked %d times", wanted, c.Calibrations)
		}
	}
}

// TestSameCloud checks that a repeated cloud is not delivered twice.
func TestSameCloud(t *testing.T) {
	p := listen(t, Options{FPS: 1000})
	k := 0
	clouds := counter(10)
	var cloud *pointcloud.Points
	c := &livescantest.Client{Version: livescan.AzureKinect, Frame: func() *pointcloud.Points {
		if k++; k%3 == 1 {
			cloud = clouds()
		}
		return cloud
	}}
	stop := p.attach(c)
	seen := map[int16]bool{}
	for range 10 {
		x := p.next(p.cameras[0]).XYZ[0]
		if seen[x] {
			t.Errorf("cloud %d came twice", x)
		}
		seen[x] = true
	}
	stop()
}

func TestMaxPointsGrows(t *testing.T) {
	p := listen(t, Options{FPS: 120})
	c := p.cameras[0]
	if n := c.MaxPoints(); n != firstPoints {
		t.Errorf("%d points at first", n)
	}
	p.attach(&livescantest.Client{Version: livescan.AzureKinect, Compress: true, Frame: counter(300_000)})
	if cloud := p.next(c); len(cloud.XYZ) != 900_000 || c.MaxPoints() != 1<<19 {
		t.Errorf("%d points at most, a cloud has %d", c.MaxPoints(), len(cloud.XYZ)/3)
	}
}

// TestPlaces checks that each client gets a camera, that a surplus client is refused, that a camera
// is free after its client disconnects, and that a returning client gets the same camera.
func TestPlaces(t *testing.T) {
	p := listen(t, Options{Cameras: 2, FPS: 120})
	client := func() *livescantest.Client {
		return &livescantest.Client{Version: livescan.AzureKinect, Frame: counter(10)}
	}
	stop := p.attach(client())
	p.next(p.cameras[0])
	p.attach(client())
	p.next(p.cameras[1])
	conn := p.dial()
	if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	p.until("raise --cameras")
	stop()
	p.until("LiveScan3D client disconnected")
	p.free()
	p.attach(client())
	p.next(p.cameras[0])
	p.next(p.cameras[0])
}

func TestBadClients(t *testing.T) {
	hello := slices.Clip(livescantest.AppendConfiguration(nil, "1", "bad")) // cases append to it
	for _, c := range []struct {
		name   string
		silent bool // does not answer the probe
		do     func(net.Conn)
		log    string
	}{
		{"silent from the beginning", true, func(net.Conn) {}, "did not answer"},
		{"silent after a while", false, func(c net.Conn) { _, _ = c.Write(hello) }, "did not answer"},
		{
			"a web browser", false, func(c net.Conn) { _, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n")) },
			"message 71 is unknown",
		},
		{"hostile length", false, func(c net.Conn) {
			_, _ = c.Write(append(hello, 3, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0))
		}, "announces 2147483647 bytes"},
		{"gone half-way", false, func(c net.Conn) {
			b := livescantest.AppendFrame(hello, counter(1000)(), true)
			_, _ = c.Write(b[:len(b)-5])
			_ = c.(*net.TCPConn).CloseWrite()
		}, "disconnected in the middle of a message"},
		{"stuck half-way", false, func(c net.Conn) {
			b := livescantest.AppendFrame(hello, counter(1000)(), false)
			_, _ = c.Write(b[:len(b)-5])
		}, "did not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Only the tests of a time limit shorten it, since any test may stall for longer.
			o := Options{FPS: 120, Probe: hang, Timeout: hang}
			if c.log == "did not answer" {
				o.Timeout = 200 * time.Millisecond
			}
			if c.silent {
				o.Probe = 20 * time.Millisecond
			}
			p := listen(t, o)
			conn := p.dial()
			c.do(conn)
			p.until(c.log)
			p.free()
			// The next client may also exceed a short time limit; it then connects again.
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				for ctx.Err() == nil {
					conn := p.dial()
					stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
					client := &livescantest.Client{Version: livescan.AzureKinect, Frame: counter(10)}
					if err := client.Run(conn); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					stop()
					_ = conn.Close()
				}
			})
			p.next(p.cameras[0])
			cancel()
			wg.Wait()
		})
	}
}

func TestNextEndsWithContext(t *testing.T) {
	p := listen(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.cameras[0].Next(ctx, new(source.Cloud)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	p := listen(t, Options{})
	for _, c := range []struct {
		address string
		o       Options
		want    string
	}{
		{p.cameras[0].Address().String(), Options{}, "livescan-tcp: listen tcp"},
		{"127.0.0.1:0", Options{Cameras: 65}, "cameras is 65, want 1 to 64"},
	} {
		if _, err := Listen(c.address, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}
