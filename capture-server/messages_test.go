package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"image"
	"image/jpeg"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/image/tiff"

	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
	"holocast/internal/config"
)

func writeFile(t *testing.T, path string, content []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// studio writes a livescan directory of one camera with a colour image of the given size.
func studio(t *testing.T, width, height int) string {
	t.Helper()
	cal, err := synthetic.Calibration(0, camera.NFOVUnbinned, camera.Color720P)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "kinect")
	writeFile(t, filepath.Join(dir, "Intrinsics.json"), cal.Raw)
	depth := image.NewGray16(image.Rect(0, 0, cal.Depth.Width, cal.Depth.Height))
	for i := 0; i < len(depth.Pix); i += 2 {
		binary.BigEndian.PutUint16(depth.Pix[i:], 1000)
	}
	var b bytes.Buffer
	if err := tiff.Encode(&b, depth, nil); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "depth_NFOV_UNBINNED", "Depth_1.tiff"), bytes.Clone(b.Bytes()))
	b.Reset()
	if err := jpeg.Encode(&b, image.NewYCbCr(image.Rect(0, 0, width, height), image.YCbCrSubsampleRatio420),
		nil); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "color_720p", "Color_1.jpg"), b.Bytes())
	return dir
}

func TestMessages(t *testing.T) {
	dir := t.TempDir()
	good := studio(t, 1280, 720)
	file := func(name, text string) string { return writeFile(t, filepath.Join(dir, name), []byte(text)) }
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	livescan := []string{"--source", "livescan:" + good}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{
			"no source",
			nil,
			"sources is empty: use --source synthetic, or another of synthetic, livescan:DIR, livescan:FILE.bin",
		},
		{
			"unknown source",
			[]string{"--source", "webcam"},
			`source "webcam" is unknown: want one of synthetic, livescan:DIR, livescan:FILE.bin, ` +
				`livescan-tcp:HOST:PORT, k4amkv:FILE, k4a`,
		},
		{
			"unknown microphone position",
			[]string{"--audio", "default,position=1/2"},
			`audio "default,position=1/2": position is "1/2", want X/Y/Z in millimetres`,
		},
		{
			"no WAV file",
			[]string{"--audio", file("page.wav", "<html>Not a sound file</html>")},
			"page.wav: wav: not a WAV file",
		},
		{
			"synthetic sound without the performer",
			append([]string{"--audio", "synthetic"}, livescan...),
			"audio synthetic requires the source synthetic",
		},
		{"livescan without a path", []string{"--source", "livescan"}, `source "livescan" has no path`},
		{
			"clients without an address",
			[]string{"--source", "livescan-tcp"},
			`source "livescan-tcp" has no address: want livescan-tcp:HOST:PORT, such as ` +
				`livescan-tcp:192.168.1.20:48001`,
		},
		{
			"clients' address in use",
			[]string{"--source", "livescan-tcp:" + ln.Addr().String()},
			"livescan-tcp: listen tcp " + ln.Addr().String() + ": bind: address already in use",
		},
		{
			"clients at no host",
			[]string{"--source", "livescan-tcp:no..host"},
			`source "livescan-tcp:no..host": "no..host:48001" is not an address of this machine; want HOST:PORT ` +
				`with an address of this machine, or :PORT for all of them`,
		},
		{
			"clients at another machine",
			[]string{"--source", "livescan-tcp:192.0.2.1:48001"},
			`source "livescan-tcp:192.0.2.1:48001": "192.0.2.1:48001" is not an address of this machine; want ` +
				`HOST:PORT`,
		},
		{
			"clients at no port",
			[]string{"--source", "livescan-tcp:127.0.0.1:99999"},
			`source "livescan-tcp:127.0.0.1:99999": "127.0.0.1:99999" is not an address to listen on; want HOST:PORT`,
		},
		{
			"synthetic with a path",
			[]string{"--source", "synthetic:4"},
			"synthetic takes no argument; set the number of cameras with --cameras",
		},
		{
			"missing directory",
			[]string{"--source", "livescan:" + dir + "/none"},
			"livescan: open " + dir + "/none: no such file or directory\n",
		},
		{
			"directory without the mode", append([]string{"--color-mode", "1080p"}, livescan...),
			"color_1080p: no such file or directory (depthMode is NFOV_UNBINNED and colorMode 1080P; the directory " +
				"may have other modes)",
		},
		{"fewer cameras", append([]string{"--cameras", "2"}, livescan...), "cameras is 2, but " + good + " has only 1"},
		{
			"colour of another size",
			[]string{"--source", "livescan:" + studio(t, 640, 480)},
			"Color_1.jpg: colour image is 640×480, the colour mode has 1280×720",
		},
		{
			"missing recording",
			[]string{"--source", "k4amkv:" + dir + "/none.mkv"},
			"open " + dir + "/none.mkv: no such file or directory",
		},
		{
			"clouds that are none",
			[]string{"--source", "livescan:" + file("no.bin", "text")},
			"no.bin: byte 0, frame 0: no LiveScan3D frame",
		},
		{"no recording", []string{"--source", "k4amkv:" + file("no.mkv", "text")}, "no.mkv"},
		{
			"no libk4a",
			[]string{"--source", "k4a", "--k4a-library", dir + "/none"},
			"no libk4a found. Install the Azure Kinect Sensor SDK",
		},
		{
			"list without libk4a",
			[]string{"list", "--k4a-library", dir + "/none"},
			"no libk4a found. Install the Azure Kinect Sensor SDK",
		},
		{
			"format of a Kinect",
			[]string{"--source", "k4a", "--k4a-format", "h264"},
			`k4a.format: unknown colour format "h264": want MJPG, NV12, YUY2 or BGRA`,
		},
		{
			"sync of a Kinect",
			[]string{"--source", "k4a,sync=both"},
			`source "k4a,sync=both": sync is "both", want standalone, master or subordinate`,
		},
		{
			"fps of a Kinect",
			[]string{"--source", "k4a", "--fps", "29.97"},
			"fps is 29.97, but an Azure Kinect supports 5, 15 or 30",
		},

		{
			"URL of a page",
			[]string{"--source", "synthetic", "http://localhost/demo"},
			`relay "http://localhost/demo" must begin with moqt:// (raw QUIC) or https:// (WebTransport)`,
		},
		{
			"URL with a bad port",
			[]string{"--source", "synthetic", "moqt://localhost:foo/demo"},
			`relay: "moqt://localhost:foo/demo": invalid port ":foo" after host; want moqt://HOST:PORT/SESSION`,
		},
		{"URL without a session", []string{"--source", "synthetic", "moqt://localhost:4443"}, "names no session"},
		{"URL without a host", []string{"--source", "synthetic", "moqt:///demo"}, "names no host"},
		{"certificate hash", []string{"--source", "synthetic", "--certificate-hash", "12"}, "certificateHash: "},

		{"fps", []string{"--source", "synthetic", "--fps", "0"}, "fps is 0, want 0.1 to 120"},
		{
			"cameras",
			[]string{"--source", "synthetic", "--cameras", "-1"},
			"cameras is -1, want 1 to 64, or 0 for all cameras of a source",
		},
		{"synthetic cameras", []string{"--source", "synthetic", "--cameras", "9"}, "synthetic: cameras is 9, want 1 to 8"},
		{"depth mode", []string{"--source", "synthetic", "--depth-mode", "wide"}, "depthMode: "},
		{"colour mode", []string{"--source", "synthetic", "--color-mode", "4K"}, "colorMode: "},
		{
			"no colour",
			[]string{"--source", "synthetic", "--color-mode", "off"},
			`colorMode is "off", but points take their colour from the colour camera`,
		},
		{"layout", []string{"--source", "synthetic", "--layout", "d"}, `layout is "d", want a, b or c`},
		{"descriptions", []string{"--source", "synthetic", "--descriptions", "2"}, "descriptions is 2, want 1 or 4"},
		{
			"delivery timeout",
			[]string{"--source", "synthetic", "--delivery-timeout", "-1s"},
			"deliveryTimeout is -1s, want 0 (none) to 1m0s",
		},
		{"crop of four", []string{"--source", "synthetic", "--crop", "1,2,3,4"}, "points.crop has 4 numbers, want 6"},
		{
			"empty crop",
			append([]string{"--crop", "0,0,0,1,-1,1"}, livescan...),
			"camera kinect: depthmap: crop box is empty: y from 0 to -1 mm",
		},
		{
			"geometry",
			append([]string{"--geometry", "mesh"}, livescan...),
			`camera kinect: depthmap: geometry is "mesh", want "depth" or "color"`,
		},
		{
			"depth range",
			append([]string{"--depth-min", "900", "--depth-max", "800"}, livescan...),
			"minimum depth 900 mm exceeds maximum depth 800 mm",
		},
		{"erosion", append([]string{"--erode", "9"}, livescan...), "erode radius is 9 pixels, want 0 to 8"},

		{
			"missing calibration",
			append([]string{"--calibration", dir + "/none.yaml"}, livescan...),
			"calibration: open " + dir + "/none.yaml: no such file or directory",
		},
		{
			"calibration of something else",
			append([]string{"--calibration", file("other.yaml", "relay: x\n")}, livescan...),
			`other.yaml:1: unknown setting "relay"`,
		},
		{
			"calibration of other cameras",
			append([]string{"--calibration", file("a.yaml", poseYAML("left", "1,0,0, 0,1,0, 0,0,1", "0,0,0"))},
				livescan...),
			"a.yaml has no camera kinect, only left",
		},
		{
			"calibration with too few numbers",
			append([]string{"--calibration", file("b.yaml", poseYAML("kinect", "1,0,0", "0,0,0"))}, livescan...),
			"b.yaml: camera kinect has 3 rotation and 3 translation values, want 9 and 3",
		},
		{
			"calibration that is no rotation",
			append([]string{"--calibration", file("c.yaml", poseYAML("kinect", "2,0,0, 0,1,0, 0,0,1", "0,0,0"))},
				livescan...),
			"c.yaml: camera kinect: ",
		},

		{
			"HTTP address in use",
			[]string{"--source", "synthetic", "--http", ln.Addr().String()},
			"http: TCP address " + ln.Addr().String() + " is in use by another program",
		},
		{
			"unknown setting",
			[]string{"--config", file("d.yaml", "sources: [synthetic]\nspeed: 2\n")},
			`d.yaml:2: unknown setting "speed"`,
		},
		{
			"log level",
			[]string{"--source", "synthetic", "--log-level", "loud"},
			`log.level "loud": want debug, info, warn or error`,
		},
		{
			"log format",
			[]string{"--source", "synthetic", "--log-format", "xml"},
			`log.format "xml" is not text or json`,
		},
		{"two URLs", []string{"--source", "synthetic", "moqt://a/b", "moqt://a/c"}, "accepts at most 1 arg"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "capture-server"), tt.args...).
				CombinedOutput()
			if err == nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("got %v:\n%s\nwant %q", err, out, tt.want)
			}
			if !strings.HasPrefix(string(out), "capture-server: ") &&
				!strings.Contains(string(out), "\ncapture-server: ") {
				t.Errorf("the message does not begin with the program's name:\n%s", out)
			}
		})
	}
}

func poseYAML(name, rotation, translation string) string {
	return "cameras:\n  " + name + ":\n    rotation: [" + rotation + "]\n    translation: [" + translation + "]\n"
}

func TestUnreachableRelayRetried(t *testing.T) {
	c := exec.CommandContext(
		t.Context(),
		filepath.Join(bin, "capture-server"),
		"--source",
		"livescan:"+studio(t, 1280, 720),
		"--calibration",
		"none",
		"--thin=false",
		"moqt://"+freePort(t)+"/demo",
	)
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	warned := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		line := lines.Text()
		t.Log(line)
		if !strings.Contains(line, "level=WARN") {
			continue
		}
		if warned || !strings.Contains(line, "trying again") ||
			!strings.Contains(line, "no answer (is the relay running") {
			t.Errorf("unexpected warning: %s", line)
		}
		warned = true
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Wait(); err != nil || !warned {
		t.Errorf("exit: %v; warned: %v", err, warned)
	}
}

func TestExampleHasDefaults(t *testing.T) {
	var got Config
	if _, err := config.Load([]string{"--config", "capture-server.example.yaml"}, &got); err != nil {
		t.Fatal(err)
	}
	want := defaultConfig()
	if len(got.Sources)+len(got.Paths)+len(got.OtherRelays)+len(got.Audio) != 0 || len(got.Points.Crop) != 0 ||
		len(got.Tiles.Quantisers) != 0 {
		t.Errorf("sources %v, crop %v, quantisers %v", got.Sources, got.Points.Crop, got.Tiles.Quantisers)
	}
	got.Sources, got.Paths, got.Points.Crop, got.Tiles.Quantisers, got.Audio = nil, nil, nil, nil, nil
	got.OtherRelays = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("example %+v\ndefaults %+v", got, want)
	}
}
