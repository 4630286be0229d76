package equirect

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holocast/internal/ffmpeg"
	"holocast/internal/spherical"
)

// film creates one second of video with 10 pictures, using FFmpeg with additional arguments.
func film(t *testing.T, name, size string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	path := filepath.Join(t.TempDir(), name)
	all := append(
		[]string{"-v", "error", "-f", "lavfi", "-i", "testsrc2=size=" + size + ":rate=10:duration=1"},
		append(args, path)...)
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", all...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func tagged(t *testing.T, size, stereo string) string {
	t.Helper()
	path := film(t, "film.mp4", size)
	if err := spherical.Tag(path, spherical.Metadata{Stereo: stereo}); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpen(t *testing.T) {
	for _, tt := range []struct {
		name          string
		path          func() string
		opts          Options
		layout        string
		width, height int
		note          string
	}{
		{"2:1", func() string { return film(t, "a.mkv", "128x64") }, Options{}, spherical.Mono, 128, 64, ""},
		{
			"1:1", func() string { return film(t, "a.mp4", "128x128") },
			Options{},
			spherical.TopBottom, 128, 64,
			"assumed to show two eyes",
		},
		{
			"4:1", func() string { return film(t, "a.mp4", "256x64") },
			Options{},
			spherical.SideBySide, 128, 64,
			"assumed to show two eyes",
		},
		{
			"pixels that are not square", func() string { return film(t, "a.mp4", "128x96", "-vf", "setsar=3/2") },
			Options{},
			spherical.Mono, 128, 96, "",
		},
		{
			"any shape with metadata", func() string { return tagged(t, "128x96", spherical.Mono) },
			Options{},
			spherical.Mono, 128, 96, "",
		},
		{
			"top-bottom by metadata", func() string { return tagged(t, "128x96", spherical.TopBottom) },
			Options{},
			spherical.TopBottom, 128, 48, "",
		},
		{
			"side by side by metadata", func() string { return tagged(t, "128x64", spherical.SideBySide) },
			Options{},
			spherical.SideBySide, 64, 64, "",
		},
		{
			"overridden", func() string { return tagged(t, "128x64", spherical.SideBySide) },
			Options{Stereo: spherical.Mono},
			spherical.Mono, 128, 64, "",
		},
		{"odd size", func() string {
			return film(t, "a.mkv", "128x64", "-vf", "scale=127:63,format=yuv444p", "-c:v",
				"ffv1")
		}, Options{}, spherical.Mono, 126, 62, "scaled to 126×62"},
		{
			"odd size of an eye", func() string { return film(t, "a.mkv", "128x126", "-c:v", "ffv1") },
			Options{},
			spherical.TopBottom, 128, 62, "scaled to 128×62",
		},
		{
			"scaled", func() string { return film(t, "a.mp4", "128x64") },
			Options{Width: 64, Height: 32},
			spherical.Mono,
			64, 32, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Open(t.Context(), tt.path(), tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			if v.layout != tt.layout || v.Sphere.Width != tt.width || v.Sphere.Height != tt.height || v.FPSNum != 10 ||
				v.FPSDen != 1 {
				t.Errorf("%s, %d×%d, %d/%d; want %s, %d×%d", v.layout, v.Sphere.Width, v.Sphere.Height, v.FPSNum,
					v.FPSDen, tt.layout, tt.width, tt.height)
			}
			if notes := strings.Join(v.Notes, "\n"); tt.note == "" && notes != "" || !strings.Contains(notes, tt.note) {
				t.Errorf("notes %q, want %q", notes, tt.note)
			}
			r, err := v.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			f := v.NewFrame()
			n := 0
			for ; ; n++ {
				if err = r.Next(f); err != nil {
					break
				}
				for eye := range v.Sphere.Eyes() {
					if y := f.Eyes[eye].Y; bytes.Count(y[:tt.width], y[:1]) == tt.width {
						t.Fatal("a picture without anything in it")
					}
				}
			}
			if err != io.EOF || n != 10 {
				t.Errorf("%d pictures, %v", n, err)
			}
		})
	}
}

// matroska copies a film with spherical metadata to Matroska and replaces its ProjectionType and
// StereoMode (RFC 9559, sections 5.1.4.1.28.42 and 5.1.4.1.28.3), unless they are 0.
func matroska(t *testing.T, size string, projection, stereoMode byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.mkv")
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i",
		tagged(t, size, spherical.TopBottom), "-c", "copy", "-write_crc32", "0", "-strict", "unofficial", path).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		value   byte
		element []byte
	}{{projection, []byte{0x76, 0x71, 0x81, 1}}, {stereoMode, []byte{0x53, 0xb8, 0x81, 3}}} {
		at := bytes.Index(b, e.element)
		if at < 0 {
			t.Fatalf("no element %x", e.element)
		}
		if e.value != 0 {
			b[at+3] = e.value
		}
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMatroska(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		projection, stereoMode byte
		layout                 string
		rightFirst             bool
		err                    string
	}{
		{name: "top-bottom", layout: spherical.TopBottom},
		{name: "bottom-top", stereoMode: 2, layout: spherical.TopBottom, rightFirst: true},
		{name: "left-right", stereoMode: 1, layout: spherical.SideBySide},
		{name: "right-left", stereoMode: 11, layout: spherical.SideBySide, rightFirst: true},
		{name: "checkerboard", stereoMode: 4, err: "its eyes are arranged as checkerboard"},
		{name: "rows", stereoMode: 6, err: "its eyes are arranged as interleaved lines"},
		{name: "mesh", projection: 3, err: "it shows a mesh, as VR180 does"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Open(t.Context(), matroska(t, "128x128", tt.projection, tt.stereoMode), Options{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if v.layout != tt.layout || v.rightFirst != tt.rightFirst {
				t.Errorf("%s, the right eye first: %v", v.layout, v.rightFirst)
			}
			f := v.NewFrame()
			if first := &f.Eyes[0].Y[0] == &f.b[0]; first == tt.rightFirst {
				t.Errorf("the left eye is first: %v", first)
			}
		})
	}
}

// TestReopenEyes checks the error for an input whose eyes have changed places.
func TestReopenEyes(t *testing.T) {
	v, err := Open(t.Context(), matroska(t, "128x128", 0, 0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	swapped, err := os.ReadFile(matroska(t, "128x128", 0, 2))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v.Input.File(), swapped, 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "its pictures of 128×128 are now top-bottom with the right eye first, but the session is top-bottom; " +
		"restart the session"
	if _, err := v.Reopen(t.Context()); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestMatroskaTag reads Spherical Video V1 metadata from the Matroska tag that the RFC specifies.
func TestMatroskaTag(t *testing.T) {
	v, err := Open(t.Context(), film(t, "a.mkv", "128x96", "-metadata:s:v:0", "SPHERICAL-VIDEO=<rdf:SphericalVideo>"+
		"<GSpherical:Spherical>true</GSpherical:Spherical><GSpherical:StereoMode>top-bottom</GSpherical:StereoMode>"+
		"<GSpherical:InitialViewHeadingDegrees>90</GSpherical:InitialViewHeadingDegrees></rdf:SphericalVideo>"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if v.layout != spherical.TopBottom || v.Sphere.Yaw != -90 {
		t.Errorf("%s, yaw %v", v.layout, v.Sphere.Yaw)
	}
}

// TestPlaysWhatPlays checks that films play even if a part of them, such as undecodable sound, cannot.
func TestPlaysWhatPlays(t *testing.T) {
	sound := []string{"-f", "lavfi", "-i", "sine=duration=1"}
	cover := func(t *testing.T) string {
		return film(t, "cover.png", "32x32", "-frames:v", "1")
	}
	for _, tt := range []struct {
		name  string
		path  func(t *testing.T) string
		sound bool
		note  string
	}{
		{"raw H.264", func(t *testing.T) string { return film(t, "a.h264", "128x64") }, false, ""},
		{"cover art first", func(t *testing.T) string {
			return film(t, "a.mp4", "128x64", "-i", cover(t), "-map", "1", "-map", "0", "-c:v:0", "png", "-c:v:1", "libx264",
				"-disposition:v:0", "attached_pic")
		}, false, ""},
		{"vendor's bytes at the end", func(t *testing.T) string {
			path := film(t, "a.mp4", "128x64")
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, append(b, "\xff\xff\xff\xffvendor's trailer"...), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			return path
		}, false, ""},
		{"undecodable sound", func(t *testing.T) string {
			return unknownSound(t, film(t, "a.mp4", "128x64", sound...))
		}, false, "cannot decode its sound (apac): it plays without sound"},
		{"undecodable sound first", func(t *testing.T) string {
			return unknownSound(t, film(t, "a.mp4", "128x64", append(sound, "-map", "1", "-map", "0", "-map", "1")...))
		}, true, "cannot decode its sound (apac): the track after it plays"},
		{"a picture with a percent sign", func(t *testing.T) string {
			from := film(t, "a.jpg", "128x64", "-frames:v", "1")
			to := filepath.Join(filepath.Dir(from), "50%d.jpg")
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
			return to
		}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Open(t.Context(), tt.path(t), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(v.Notes, "\n"); tt.note == "" && notes != "" || !strings.Contains(notes, tt.note) {
				t.Errorf("notes %q, want %q", notes, tt.note)
			}
			if v.Sphere.Width != 128 || (v.AudioFormat() != nil) != tt.sound {
				t.Errorf("%s, sound %v", v.Name(), v.AudioFormat())
			}
			r, err := v.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if tt.sound {
				go func() {
					a, err := r.Audio()
					for err == nil {
						_, err = a.Next()
					}
				}()
			}
			if err := r.Next(v.NewFrame()); err != nil {
				t.Error(err)
			}
		})
	}
}

// unknownSound changes the type of a film's first sound track.
func unknownSound(t *testing.T, path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("mp4a"))
	copy(b[at:], "apac")
	copy(b[at+bytes.Index(b[at:], []byte("esds")):], "free")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRotated checks that films rotated by the track's matrix (tkhd), as phones and cameras record
// them, play as in FFmpeg.
func TestRotated(t *testing.T) {
	for _, tt := range []struct {
		degrees int
		matrix  [4]int32 // a, b, c, d of ISO/IEC 14496-12, §8.3.2
	}{{90, [4]int32{0, 1, -1, 0}}, {180, [4]int32{-1, 0, 0, -1}}, {270, [4]int32{0, -1, 1, 0}}} {
		size := "64x128"
		if tt.degrees == 180 {
			size = "128x64"
		}
		path := film(t, "a.mp4", size)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(b, []byte("tkhd")) + 44
		for i, v := range tt.matrix {
			binary.BigEndian.PutUint32(b[at+4*(i+i/2):], uint32(v<<16))
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		want, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", path, "-pix_fmt", "yuv420p", "-f",
			"rawvideo", "-").Output()
		if err != nil {
			t.Fatal(err)
		}
		v, err := Open(t.Context(), path, Options{})
		if err != nil {
			t.Fatalf("%d°: %v", tt.degrees, err)
		}
		if v.Sphere.Width != 128 || v.Sphere.Height != 64 || v.layout != spherical.Mono {
			t.Errorf("%d°: %d×%d, %s; want 128×64, mono", tt.degrees, v.Sphere.Width, v.Sphere.Height, v.layout)
		}
		if got := decode(t, v); psnr(got, want) < 60 {
			t.Errorf("%d°: %d bytes, PSNR %.1f dB to FFmpeg's %d bytes", tt.degrees, len(got), psnr(got, want), len(want))
		}
	}
}

// decode returns all pictures of a file.
func decode(t *testing.T, v *Video) (b []byte) {
	t.Helper()
	r, err := v.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := v.NewFrame()
	for err = r.Next(f); err == nil; err = r.Next(f) {
		b = append(b, f.b...)
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return b
}

func TestBadInput(t *testing.T) {
	whole := func(t *testing.T) []byte {
		b, err := os.ReadFile(film(t, "a.mp4", "128x64", "-movflags", "+faststart"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	write := func(t *testing.T, b []byte) string {
		path := filepath.Join(t.TempDir(), "bad.mp4")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		name string
		path func(t *testing.T) string
		opts Options
		want string
	}{
		{
			"not 2:1", func(t *testing.T) string { return film(t, "a.mp4", "128x72") },
			Options{},
			"are not 2:1, as an entire sphere is",
		},
		{"no video stream", func(t *testing.T) string {
			return film(t, "a.m4a", "128x64", "-f", "lavfi", "-i", "sine=duration=1", "-map", "1")
		}, Options{}, "it has no video stream"},
		{
			"cut off in its index", func(t *testing.T) string { return write(t, whole(t)[:200]) },
			Options{},
			"truncated MP4: it has no moov box",
		},
		{"hostile box", func(t *testing.T) string {
			b := whole(t)
			i := bytes.Index(b, []byte("trak"))
			copy(b[i-4:], "\x7f\xff\xff\xff")
			return write(t, b)
		}, Options{}, "damaged MP4"},
		{"box of impossible size", func(t *testing.T) string {
			return write(t, []byte("\x00\x00\x00\x01ftyp\xff\xff\xff\xff\xff\xff\xff\xff"))
		}, Options{}, "damaged MP4"},
		{
			"text", func(t *testing.T) string { return write(t, []byte("this is no film")) },
			Options{},
			"it has no moov box",
		},
		{"no file", func(*testing.T) string { return "/nonexistent/film.mp4" }, Options{}, "no such file"},
		{"a folder", func(t *testing.T) string { return t.TempDir() }, Options{}, "not a regular file"},
		{
			"unknown layout", func(t *testing.T) string { return film(t, "a.mp4", "128x64") },
			Options{Stereo: "both"},
			`stereo is "both"`,
		},
		{
			"odd size asked for", func(t *testing.T) string { return film(t, "a.mp4", "128x64") },
			Options{Width: 63, Height: 32},
			"want even numbers",
		},
		{
			"too small", func(t *testing.T) string { return film(t, "a.mkv", "16x8", "-c:v", "ffv1") },
			Options{},
			"too small",
		},
		{"nobody listens", func(*testing.T) string { return "tcp://127.0.0.1:1" }, Options{}, "refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(t.Context(), tt.path(t), tt.opts)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestTruncatedPlays checks that a file truncated after its index plays up to there.
func TestTruncatedPlays(t *testing.T) {
	path := film(t, "a.mp4", "128x64", "-movflags", "+faststart")
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()*2/3)
	}
	if err != nil {
		t.Fatal(err)
	}
	v, err := Open(t.Context(), path, Options{})
	if err != nil || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "truncated MP4") {
		t.Fatalf("%v, notes %q", err, v.Notes)
	}
	r, err := v.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for f := v.NewFrame(); r.Next(f) == nil; n++ {
	}
	if n == 0 {
		t.Error("nothing of it plays")
	}
}

func TestFFmpegMissing(t *testing.T) {
	path := film(t, "a.mp4", "128x64")
	t.Setenv("PATH", t.TempDir())
	if _, err := Open(t.Context(), path, Options{}); !errors.Is(err, ffmpeg.ErrAbsent) {
		t.Error(err)
	}
}

// TestSound reads sound as Opus, and as AAC, which is used if FFmpeg lacks libopus.
func TestSound(t *testing.T) {
	path := film(t, "a.mp4", "128x64", "-f", "lavfi", "-i", "sine=duration=1")
	for _, aac := range []bool{false, true} {
		t.Run(fmt.Sprint(aac), func(t *testing.T) {
			v, err := Open(t.Context(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			v.aac = aac
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, err := v.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				for f := v.NewFrame(); r.Next(f) == nil; {
				}
			}()
			a, err := r.Audio()
			if err != nil {
				t.Fatal(err)
			}
			if want := v.AudioFormat(); a.Format.Codec != want.Codec || a.Format.SampleRate != want.SampleRate ||
				a.Format.Channels != want.Channels ||
				!bytes.Equal(a.Format.Config, want.Config) {
				t.Errorf("format %+v, foretold %+v", a.Format, *want)
			}
			samples := 0
			for {
				p, err := a.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				samples += p.Samples
			}
			<-done
			if samples < 48000 || samples > 53000 {
				t.Errorf("%d samples of a second", samples)
			}
		})
	}
}

func TestFrameRate(t *testing.T) {
	for _, tt := range []struct{ num, den, wantNum, wantDen int }{
		{30, 1, 30, 1},
		{30000, 1001, 30000, 1001},
		{917425, 30617, 29965, 1000},
		{120, 1, 60, 1},
		{1, 5, 1, 1},
		{25, 1, 25, 1},
		{12500, 1000, 12500, 1000},
	} {
		if n, d := frameRate(tt.num, tt.den); n*tt.wantDen != d*tt.wantNum {
			t.Errorf("%d/%d: %d/%d, want %d/%d", tt.num, tt.den, n, d, tt.wantNum, tt.wantDen)
		}
	}
}
