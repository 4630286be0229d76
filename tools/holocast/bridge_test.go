package main

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holocast/internal/livescan"
	"holocast/internal/livescan/livescantest"
	"holocast/internal/pointcloud"
	"holocast/internal/sampledata"
)

// startBridge starts a bridge and returns the address for viewers.
func startBridge(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	b := start(t, "holocast", append([]string{"bridge", "--listen", "127.0.0.1:0"}, args...)...)
	const before = "LiveScan3D's viewers of "
	until(t, "the bridge's address", func() bool { return strings.Contains(b.Stdout.String(), before) })
	line, _, _ := strings.Cut(b.Stdout.String(), "\n")
	return b, line[strings.LastIndex(line, " ")+1:]
}

// livescanViewer is a viewer that speaks LiveScan3D's protocol.
type livescanViewer struct {
	t *testing.T
	net.Conn
	answers *livescan.Answers
	cloud   pointcloud.Points
}

func connectViewer(t *testing.T, address string) *livescanViewer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &livescanViewer{t: t, Conn: conn, answers: livescan.NewAnswers(conn)}
}

// frame requests a frame and returns its number of points.
func (v *livescanViewer) frame() int {
	v.t.Helper()
	if _, err := v.Write([]byte{livescan.RequestFrame}); err != nil {
		v.t.Fatal(err)
	}
	n, err := v.answers.Next(&v.cloud)
	if err != nil {
		v.t.Fatal(err)
	}
	return n
}

func healthz(t *testing.T, address string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	return r.StatusCode
}

func TestBridge(t *testing.T) {
	port := freePort(t)
	relay := startRelay(t, port)
	web := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	list := filepath.Join(t.TempDir(), "sent.csv")
	b, address := startBridge(t, "--json", "--http", web, "--frames", list, sessionURL(port, "bridged"))

	v := connectViewer(t, address)
	if n := v.frame(); n != 0 {
		t.Errorf("%d points before the session exists", n)
	}
	if code := healthz(t, web); code != http.StatusServiceUnavailable {
		t.Errorf("without a session: %d", code)
	}
	p := publish(t, sessionURL(port, "bridged"), 2, 1)
	const points = testWidth * testHeight
	until(t, "a frame of both cameras", func() bool { return v.frame() == 2*points })
	// Both cameras see the same points; the second camera stands 300 mm to the right.
	if dx := int(v.cloud.XYZ[3*points]) - int(v.cloud.XYZ[0]); dx < 250 || dx > 350 {
		t.Errorf("the cameras' first points are %d mm apart, want 300", dx)
	}
	if code := healthz(t, web); code != http.StatusOK {
		t.Errorf("with a session: %d", code)
	}

	// The viewer stays connected across a restart of the relay.
	relay.Kill()
	for range 3 {
		if n := v.frame(); n != 2*points {
			t.Fatalf("%d points without a relay", n)
		}
	}
	startRelay(t, port)
	last := v.cloud.XYZ[2]
	until(t, "a new frame", func() bool { v.frame(); return v.cloud.XYZ[2] != last })

	b.Signal(syscall.SIGTERM)
	b.mustSucceed()
	var sum struct {
		Viewers  int    `json:"viewers"`
		Frames   uint64 `json:"frames"`
		Received struct {
			Cameras int `json:"cameras"`
		} `json:"received"`
	}
	b.lastLine(&sum)
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); sum.Viewers != 1 || sum.Frames < 6 || sum.Received.Cameras != 2 ||
		lines != int(sum.Frames)+1 {
		t.Errorf("%+v, %d lines", sum, lines)
	}
	p.stop()
}

// TestBridgeVideo compares the frames of quality high, which are video, with those of quality full.
func TestBridgeVideo(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	start(
		t, "capture-server", "--source", "synthetic", "--cameras", "2", "--fps", "10", "--depth-mode", "NFOV_2X2BINNED",
		"--high", sessionURL(port, "video"),
	)
	view := func(quality string) *livescanViewer {
		_, address := startBridge(t, "--quality", quality, sessionURL(port, "video"))
		return connectViewer(t, address)
	}
	full, high := view("full"), view("high")
	// middle returns the means of position and color.
	middle := func(v *livescanViewer) (mean [6]float64) {
		n := float64(len(v.cloud.XYZ) / 3)
		for i := range v.cloud.XYZ {
			mean[i%3] += float64(v.cloud.XYZ[i]) / n
			mean[3+i%3] += float64(v.cloud.RGB[i]) / n
		}
		return mean
	}
	until(t, "the same frames in both qualities", func() bool {
		a, b := full.frame(), high.frame()
		if a == 0 || math.Abs(float64(a-b)) > 0.02*float64(a) {
			return false
		}
		same := true
		for i, m := range middle(full) {
			same = same && math.Abs(m-middle(high)[i]) < 10 // mm, levels of 255
		}
		return same
	})
}

func TestBridgePoints(t *testing.T) {
	port := freePort(t)
	startRelay(t, port)
	publish(t, sessionURL(port, "thinned"), 2, 1)
	_, address := startBridge(t, "--points", "1000", sessionURL(port, "thinned"))
	v := connectViewer(t, address)
	until(t, "a thinned frame", func() bool { n := v.frame(); return n > 990 && n <= 1000 })
}

func TestBridgeRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	url := sessionURL(1, "none")
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"points", []string{"--points", "0", url}, "--points is 0, want 1 to 12582912"},
		{"viewers", []string{"--max-viewers", "0", url}, "--max-viewers is 0"},
		{"viewers of an address", []string{"--max-per-address", "-1", url}, "--max-per-address is -1"},
		{"address taken", []string{"--listen", taken.Addr().String(), url}, "--listen: "},
		{
			"congestion control",
			[]string{"--listen", "127.0.0.1:0", "--tcp-congestion", "none", url},
			`--tcp-congestion: TCP congestion control "none"`,
		},
		{"no address", []string{"--listen", "here", url}, `--listen: "here" is not an address to listen on; want HOST:PORT`},
		{
			"another's address",
			[]string{"--listen", "192.0.2.1:48002", url},
			`--listen: "192.0.2.1:48002" is not an address of this machine; want HOST:PORT`,
		},
		{"no session", []string{"moqt://localhost:4443"}, "names no session"},
		{
			"no folder for the list",
			[]string{"--listen", "127.0.0.1:0", "--frames", "/nowhere/x.csv", url},
			"frames: open /nowhere/x.csv",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if text := start(t, "holocast", append([]string{"bridge"}, c.args...)...).mustFail(); !strings.Contains(
				text, c.want,
			) {
				t.Errorf("%s", text)
			}
		})
	}
}

// TestBridgeDuration checks that --duration ends the bridge.
func TestBridgeDuration(t *testing.T) {
	b := start(t, "holocast", "bridge", "--listen", "127.0.0.1:0", "--duration", "100ms", sessionURL(1, "none"))
	begun := time.Now()
	b.mustSucceed()
	if !strings.Contains(b.Stdout.String(), "0 frames of 0 points to 0 viewers") {
		t.Errorf("after %v: %s", time.Since(begun), b.Stdout.String())
	}
}

// TestLiveScanBothWays serves real frames to a LiveScan3D viewer, which sends them on to a capture
// server as a LiveScan3D client.
func TestLiveScanBothWays(t *testing.T) {
	data, err := sampledata.Find()
	if err != nil {
		t.Skip(err)
	}
	port := freePort(t)
	startRelay(t, port)
	start(
		t, "capture-server", "--source", "livescan:"+filepath.Join(data, "livescan_testdata"), "--fps", "2",
		"--always-encode", sessionURL(port, "real"),
	)
	const points = 50_000
	_, address := startBridge(t, "--points", fmt.Sprint(points), sessionURL(port, "real"))
	v := connectViewer(t, address)
	until(t, "a frame of four cameras", func() bool { return v.frame() > points*9/10 })

	in := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	back := start(
		t, "capture-server", "--source", "livescan-tcp:"+in, "--calibration", "none", "--always-encode",
		sessionURL(port, "back"),
	)
	until(
		t, "the address for clients",
		func() bool { return strings.Contains(back.Stderr.String(), "waiting for LiveScan3D clients") },
	)
	conn, err := net.Dial("tcp", in)
	if err != nil {
		t.Fatal(err)
	}
	client := livescantest.Client{Version: livescan.AzureKinect, Compress: true, Frame: func() *pointcloud.Points {
		v.frame()
		return &v.cloud
	}}
	ended := make(chan error, 1)
	go func() { ended <- client.Run(conn) }()
	defer func() {
		_ = conn.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	picture := filepath.Join(t.TempDir(), "back.png")
	play := start(
		t, "holocast", "play", sessionURL(port, "back"), "--wait", "--duration", "3s", "--json", "--png", picture,
	)
	play.mustSucceed()
	var report struct {
		Frames  uint64  `json:"frames"`
		Points  float64 `json:"points_per_frame"`
		Damaged uint64  `json:"frames_damaged"`
	}
	play.lastLine(&report)
	if report.Frames < 1 || report.Damaged != 0 || report.Points < points*9/10 || report.Points > points {
		t.Errorf("%+v", report)
	}
	if info, err := os.Stat(picture); err != nil || info.Size() < 10_000 {
		t.Errorf("picture: %v", err)
	}
}
