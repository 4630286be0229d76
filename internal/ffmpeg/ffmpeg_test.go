package ffmpeg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pretend replaces FFmpeg's programs with one that prints a message and fails.
func pretend(t *testing.T, says string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		script := "#!/bin/sh\ncat >&2 <<'END'\n" + says + "\nEND\nexit 1\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script),
			0o700); err != nil { //nolint:gosec // an executable
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func mustParse(t *testing.T, s string) Input {
	t.Helper()
	in, err := ParseInput(s)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct{ name, says, want string }{
		{
			"no decoder", "[aost#0:0 @ 0x5] x\nDecoder (codec av1) not found for input stream #0:0",
			"this FFmpeg cannot decode av1",
		},
		{"no encoder", "Unknown encoder 'libopus'", "this FFmpeg cannot encode libopus"},
		{
			"truncated",
			"[mov,mp4,m4a,3gp,3g2,mj2 @ 0x55d] moov atom not found\nx.mp4: Invalid data found when processing input",
			"it has no moov box",
		},
		{
			"anything", "a\n[tcp @ 0x55d0c0] Connection to tcp://127.0.0.1:1 failed: Connection refused\n",
			"Connection to tcp://127.0.0.1:1 failed: Connection refused",
		},
		{
			"port in use", "[udp @ 0x55d0c0] bind failed: Address already in use\n" +
				"udp://127.0.0.1:5000: Inappropriate ioctl for device", "ffmpeg: bind failed: Address already in use",
		},
		{"nothing", "", "exit status 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pretend(t, tt.says)
			if err := Run(t.Context(), "-version"); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ffmpeg: %v, want %q", err, tt.want)
			}
			if _, err := Probe(t.Context(), mustParse(t, "/dev/null")); err == nil ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("ffprobe: %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAbsent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Run(t.Context(), "-version"); !errors.Is(err, ErrAbsent) ||
		!strings.Contains(err.Error(), "apt install ffmpeg") {
		t.Errorf("ffmpeg: %v", err)
	}
	if _, err := Probe(t.Context(), mustParse(t, "/dev/null")); !errors.Is(err, ErrAbsent) {
		t.Errorf("ffprobe: %v", err)
	}
	if HasEncoder(t.Context(), "libopus") {
		t.Error("it has an encoder")
	}
}

func TestParseInput(t *testing.T) {
	for _, tt := range []struct {
		in   string
		live bool
		args string // expected substring
		err  string
	}{
		{in: "film.mp4", args: "-protocol_whitelist file -i file:/"},
		{in: "-i", args: "-i file:/"},
		{in: "50%d.jpg", args: "-f image2 -pattern_type none -protocol_whitelist file -i file:/"},
		{in: "50%d.mp4", args: "-protocol_whitelist file -i file:/"},
		{in: "concat:/etc/passwd", args: "file:/"},
		{in: "/dev/video0", live: true, args: "-f v4l2 -i /dev/video0"},
		{in: "rtmp://host/live", live: true, args: "-i rtmp://host/live"},
		{in: "srt://host:9000", live: true, args: "-i srt://host:9000"},
		{in: "https://host/film.mp4", args: "-i https://host/film.mp4"},
		{in: "subfile://x", err: "is not supported; want rtmp"},
		{in: "", err: "no input"},
	} {
		in, err := ParseInput(tt.in)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: %v, want %q", tt.in, err, tt.err)
			}
			continue
		}
		if args := strings.Join(in.Args(), " "); err != nil || in.Live() != tt.live ||
			!strings.Contains(args, tt.args) {
			t.Errorf("%q: %q, live %v, %v", tt.in, args, in.Live(), err)
		}
	}
}

func decodes(codec string) bool { return codec != "ac4" }

func TestParseProbe(t *testing.T) {
	info, err := parseProbe([]byte(`{"streams":[{"index":0,"codec_type":"audio","codec_tag_string":"apac"},
		{"index":1,"codec_type":"audio","codec_name":"ac4"},
		{"index":2,"codec_type":"audio","codec_name":"aac","channels":2,"channel_layout":"stereo"},
		{"index":3,"codec_type":"audio","codec_name":"opus"},
		{"index":4,"codec_type":"video","codec_name":"png","width":1,"height":1,"disposition":{"attached_pic":1}},
		{"index":5,"codec_type":"video","codec_name":"h264","width":1920,"height":1080,"sample_aspect_ratio":"9:16",
		"avg_frame_rate":"0/0","r_frame_rate":"30000/1001",
		"side_data_list":[{"side_data_type":"Stereo 3D","type":"top and bottom","inverted":1},
		{"side_data_type":"Content light level metadata","max_content":1000,"max_average":400},
		{"side_data_type":"Spherical Mapping","projection":"equirectangular","yaw":3}],
		"tags":{"SPHERICAL-VIDEO":"<a>"}}],
		"format":{"duration":"10.5"}}`), decodes)
	if err != nil {
		t.Fatal(err)
	}
	want := Video{
		Stream: 5, Codec: "h264", Width: 1920, Height: 1080, PixelAspect: 9.0 / 16, FPSNum: 30000, FPSDen: 1001,
		Projection: "equirectangular", Stereo: "top and bottom", Yaw: 3, MaxCLL: 1000,
		Inverted: true, SphericalV1: "<a>",
	}
	if info.Audio == nil || *info.Audio != (Audio{2, "aac", 2, "stereo"}) || *info.Video != want ||
		strings.Join(info.Undecodable, " ") != "apac ac4" || info.Duration.Seconds() != 10.5 {
		t.Errorf("got %+v %+v", info, *info.Video)
	}
	for _, tt := range []struct{ doc, want string }{
		{`{}`, "no video stream"},
		{`{"streams":[{"codec_type":"audio"}]}`, "no video stream"},
		{`{"streams":[{"codec_type":"video","codec_name":"h264"}]}`, "pictures have an invalid size, 0×0"},
		{`{"streams":[{"codec_type":"video","codec_tag_string":"abcd"}]}`, "cannot decode video of type abcd"},
		{`[`, "ffprobe"},
	} {
		if _, err := parseProbe([]byte(tt.doc), decodes); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.doc, err, tt.want)
		}
	}
}

func TestRotation(t *testing.T) {
	for _, tt := range []struct {
		rotation      float64
		width, height int
		aspect        float64
	}{{0, 4, 2, 2}, {90, 2, 4, 0.5}, {-90, 2, 4, 0.5}, {270, 2, 4, 0.5}, {180, 4, 2, 2}, {-180, 4, 2, 2}, {3, 4, 2, 2}} {
		info, err := parseProbe(fmt.Appendf(nil, `{"streams":[{"codec_type":"video","codec_name":"h264","width":4,"height":2,
			"sample_aspect_ratio":"2:1","side_data_list":[{"side_data_type":"Display Matrix","rotation":%v}]}]}`,
			tt.rotation), decodes)
		if err != nil {
			t.Fatal(err)
		}
		if v := info.Video; v.Width != tt.width || v.Height != tt.height || v.PixelAspect != tt.aspect {
			t.Errorf("%v°: %d×%d, pixel aspect %v; want %d×%d, %v", tt.rotation, v.Width, v.Height, v.PixelAspect,
				tt.width, tt.height, tt.aspect)
		}
	}
}

func TestPipes(t *testing.T) {
	if _, err := Find("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	p, pipes, err := Start(t.Context(), 2, nil, "-f", "lavfi", "-i", "color=size=4x2:rate=5:duration=1", "-f", "lavfi",
		"-i", "sine=duration=1:sample_rate=8000", "-map", "0", "-f", "rawvideo", "-pix_fmt", "gray", "pipe:3", "-map",
		"1", "-f", "s16le", "pipe:4")
	if err != nil {
		t.Fatal(err)
	}
	sound := make(chan int)
	go func() {
		b, _ := io.ReadAll(pipes[1])
		sound <- len(b)
	}()
	b, err := io.ReadAll(pipes[0])
	if n := <-sound; err != nil || len(b) != 5*4*2 || n != 16000 {
		t.Errorf("%d bytes of pictures, %d of sound, %v", len(b), n, err)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	// Canceling the context kills the program.
	ctx, cancel := context.WithCancel(t.Context())
	p, pipes, err = Start(ctx, 1, nil, "-f", "lavfi", "-i", "testsrc2", "-f", "rawvideo", "pipe:3")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if p.Wait() == nil {
		t.Error("it ended well although it was killed")
	}
	for _, f := range pipes {
		_ = f.Close()
	}
}
