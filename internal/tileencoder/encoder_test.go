package tileencoder

import (
	"bytes"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"holocast/internal/catalog"
	"holocast/internal/loc"
)

func sphere(stereo string, width, height, columns, rows, qualities int) catalog.Sphere {
	return catalog.Sphere{
		Projection: catalog.ProjectionEquirectangular, Stereo: stereo, Width: width, Height: height,
		Columns: columns, Rows: rows, Qualities: qualities,
	}
}

// moving draws frame n of a moving pattern that differs between the eyes.
func moving(s *catalog.Sphere, n int) *Frame {
	var f Frame
	for eye := range s.Eyes() {
		p := newPicture(s.Width, s.Height)
		for y := range s.Height {
			for x := range s.Width {
				p.Y[y*p.YStride+x] = byte(128 + 60*math.Sin(float64(x+3*n+20*eye)/9) + 50*math.Sin(float64(y-n)/7))
			}
		}
		for i := range p.Cb {
			p.Cb[i], p.Cr[i] = byte(100+i%50), byte(150-i%40)
		}
		f.Eyes[eye] = p
	}
	return &f
}

// decode decodes NAL units with lengths to frames of luma.
func decode(t *testing.T, avcC, payload []byte, width, height int) [][]byte {
	t.Helper()
	stream, err := loc.AppendAnnexBConfig(nil, avcC)
	if err == nil {
		stream, err = loc.AppendAnnexB(stream, payload)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "h264", "-i", "pipe:0", "-f", "rawvideo",
		"-pix_fmt", "yuv420p", "pipe:1")
	cmd.Stdin = bytes.NewReader(stream)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("ffmpeg: %v: %s", err, stderr.String())
	}
	size := width * height * 3 / 2
	if len(out)%size != 0 {
		t.Fatalf("ffmpeg returned %d bytes, no multiple of %d×%d", len(out), width, height)
	}
	var frames [][]byte
	for at := 0; at < len(out); at += size {
		frames = append(frames, out[at:at+width*height])
	}
	return frames
}

// TestTilesDecodeAlone checks that every tile at every quality decodes independently, shows its
// rectangle of the source, and differs from it by the distortion in Rates.
func TestTilesDecodeAlone(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	for _, tt := range []struct {
		name   string
		sphere catalog.Sphere
	}{
		{"mono", sphere(catalog.StereoMono, 256, 128, 4, 2, 2)},
		{"stereo, edges that are not even", sphere(catalog.StereoTopBottom, 240, 126, 3, 3, 3)},
		{"one tile", sphere(catalog.StereoMono, 64, 32, 1, 1, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.sphere
			e, err := New(Config{Sphere: s, FPSNum: 30, FPSDen: 1, GOP: 4, RatesEvery: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			type key struct{ tile, quality int }
			var mu sync.Mutex
			streams := map[key][]byte{}
			var frames []*Frame
			for n := range 8 {
				f := moving(&s, n)
				frames = append(frames, f)
				if err := e.Encode(f, n%4 == 0, nil, func(tile, quality int, payload []byte) error {
					mu.Lock()
					defer mu.Unlock()
					k := key{tile, quality}
					if n >= 4 { // keep only the second GoP
						streams[k] = append(streams[k], payload...)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			rates := e.Rates()
			if err := (&catalog.Rates{Data: rates}).Validate(&s); err != nil {
				t.Fatal(err)
			}
			for i := range s.Tiles() {
				r := s.Rect(i)
				last := math.Inf(1)
				for q := range s.Qualities {
					got := decode(t, e.Config(i, q), streams[key{i, q}], r.Dx(), r.Dy()*s.Eyes())
					if len(got) != 4 {
						t.Fatalf("tile %d at quality %d: %d frames, want 4", i, q, len(got))
					}
					var sum, weights float64
					for n, frame := range got {
						for eye := range s.Eyes() {
							for y := range r.Dy() {
								w := math.Cos(math.Pi * (0.5 - (float64(r.Min.Y+y)+0.5)/float64(s.Height)))
								for x := range r.Dx() {
									a := frames[4+n].Eyes[eye].Y[(r.Min.Y+y)*s.Width+r.Min.X+x]
									b := frame[(eye*r.Dy()+y)*r.Dx()+x]
									sum += w * float64(int(a)-int(b)) * float64(int(a)-int(b))
									weights += w
								}
							}
						}
					}
					want := sum / weights
					if mse := *rates.MSE[i][q]; math.Abs(mse-want) > 0.01+0.001*want {
						t.Errorf("tile %d at quality %d: distortion %v, decoded it is %v", i, q, mse, want)
					}
					if want >= last || want > 100 {
						t.Errorf("tile %d at quality %d: distortion %v after %v of the quality below", i, q, want, last)
					}
					last = want
				}
				if rates.Missing[i] <= last {
					t.Errorf("tile %d: distortion %v where it is missing, %v at its best", i, rates.Missing[i], last)
				}
			}
			w, h := VideoSize(&s)
			if got := decode(t, e.Config(Video, 0), streams[key{Video, 0}], w, h*s.Eyes()); len(got) != 4 {
				t.Errorf("video: %d frames, want 4", len(got))
			}
		})
	}
}

func TestSkippedQualityComesBack(t *testing.T) {
	s := sphere(catalog.StereoMono, 64, 32, 2, 1, 3)
	e, err := New(Config{Sphere: s, FPSNum: 30, FPSDen: 1, GOP: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for gop, skip := range [][]bool{nil, {false, true, false}, nil} {
		var mu sync.Mutex
		seen := map[string]int{}
		for n := range 2 {
			err := e.Encode(moving(&s, 2*gop+n), n == 0, skip, func(tile, quality int, payload []byte) error {
				mu.Lock()
				defer mu.Unlock()
				seen[fmt.Sprint(tile, quality)]++
				if idr := payload[4]&0x1f == 5; idr != (n == 0) {
					t.Errorf("GoP %d, frame %d: IDR %v", gop, n, idr)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		want := 7
		if skip != nil {
			want = 5
		}
		rates := e.Rates()
		if len(seen) != want || (rates.Bytes[0][1] == nil) != (skip != nil) {
			t.Errorf("GoP %d: encoded %v, rates %v", gop, seen, rates.Bytes)
		}
	}
}

// TestBitrateIsBounded checks that a tile above its bound gets a coarser quantiser.
func TestBitrateIsBounded(t *testing.T) {
	s := sphere(catalog.StereoMono, 256, 128, 1, 1, 1)
	e, err := New(Config{Sphere: s, FPSNum: 30, FPSDen: 1, GOP: 30, Quantisers: []int{10}, MaxBitrate: 400_000})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var total int64
	noise := uint32(1)
	for n := range 90 {
		f := moving(&s, n)
		for i := range f.Eyes[0].Y {
			noise = noise*1664525 + 1013904223
			f.Eyes[0].Y[i] += byte(noise >> 28)
		}
		if err := e.Encode(f, n%30 == 0, nil, func(tile, _ int, payload []byte) error {
			if tile != Video && n >= 30 {
				total += int64(len(payload))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if rate := total * 8 / 2; rate > 2*e.Bitrate(0, 0) {
		t.Errorf("%d bit/s, bound %d, quantiser raised by %d", rate, e.Bitrate(0, 0), e.tiles[0].versions[0].raised)
	}
}

func TestConfigErrors(t *testing.T) {
	good := func() Config {
		return Config{Sphere: sphere(catalog.StereoMono, 64, 32, 2, 1, 2), FPSNum: 30, FPSDen: 1, GOP: 30}
	}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"absurd grid", func(c *Config) { c.Sphere.Columns = 400 }, "a grid of 400×1 tiles"},
		{"tiles too small", func(c *Config) { c.Sphere.Columns = 8 }, "smaller than 16×16"},
		{"odd size", func(c *Config) { c.Sphere.Width = 65 }, "65 is not an even number"},
		{"quantisers", func(c *Config) { c.Quantisers = []int{20, 30} }, "do not descend"},
		{"number of quantisers", func(c *Config) { c.Quantisers = []int{20} }, "1 quantisers for 2 qualities"},
		{"preset", func(c *Config) { c.Preset = "warp" }, `preset "warp"`},
		{"frame rate", func(c *Config) { c.FPSDen = 0 }, "frames per second"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := good()
			tt.change(&c)
			e, err := New(c)
			if err == nil {
				e.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, columns := range []int{1, 8} {
		s := sphere(catalog.StereoMono, 1920, 960, columns, (columns+1)/2, 3)
		b.Run(fmt.Sprintf("%dx%d", s.Columns, s.Rows), func(b *testing.B) {
			e, err := New(Config{Sphere: s, FPSNum: 30, FPSDen: 1, GOP: 30})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			var frames []*Frame
			for n := range 8 {
				frames = append(frames, moving(&s, n))
			}
			b.ResetTimer()
			for n := range b.N {
				if err := e.Encode(frames[n%8], n%30 == 0, nil,
					func(int, int, []byte) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
