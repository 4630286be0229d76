package export

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/internal/render"
)

var small = View{Look: render.Surfaced, Width: 96, Height: 64}

func decodePNG(t *testing.T, path string) image.Image {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestPNG(t *testing.T) {
	path := record(t, 1, 1, "A", -1)
	var seen []string
	for _, tt := range []struct {
		name string
		view func(v *View)
	}{
		{"default", func(*View) {}},
		{"points", func(v *View) { v.Look = render.Dotted }},
		{"from the right", func(v *View) { v.Azimuth = 30 }},
		{"from above", func(v *View) { v.Elevation = 40 }},
		{"far away", func(v *View) { v.Distance = 20000 }},
		{"another target", func(v *View) { v.Target = &[3]float64{500, 0, 1000} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := small
			tt.view(&v)
			out := filepath.Join(t.TempDir(), "a.png")
			still, err := PNG(t.Context(), path, out, -1, v, quiet)
			if err != nil || still.Cameras != 1 || still.At != 0 {
				t.Fatalf("%+v, %v", still, err)
			}
			img := decodePNG(t, out).(*image.RGBA)
			if img.Bounds() != image.Rect(0, 0, 96, 64) || slices.Contains(seen, string(img.Pix)) {
				t.Errorf("a picture of %v, or equal to an earlier one", img.Bounds())
			}
			seen = append(seen, string(img.Pix))
		})
	}
}

// TestStillTime checks which frame is chosen.
func TestStillTime(t *testing.T) {
	late := take{
		cameras: 2, frames: 10, descriptions: 1, layout: "A", drop: -1,
		missing: func(f, n int) bool { return n == 1 && f < 3 },
	}.record(t)
	const period = 33333 * time.Microsecond
	for _, tt := range []struct {
		name    string
		at      time.Duration
		want    time.Duration
		cameras int
		err     string
	}{
		{"first with all cameras", -1, 3 * period, 2, ""},
		{"first", 0, 0, 1, ""},
		{"between two", 140 * time.Millisecond, 5 * period, 2, ""},
		{"last", 9 * period, 9 * period, 2, ""},
		{"after the end", time.Second, 0, 0, "no frame at 1s; the last one is at 299.997ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "a.glb")
			still, err := GLB(t.Context(), late, out, tt.at, quiet)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				if _, err := os.Stat(out); err == nil {
					t.Error("a file was written")
				}
				return
			}
			if err != nil || still.At != tt.want || still.Cameras != tt.cameras {
				t.Fatalf("%+v, %v; want %v", still, err, tt.want)
			}
			if n := glbNodes(t, out); n != tt.cameras {
				t.Errorf("%d meshes of %d cameras", n, tt.cameras)
			}
		})
	}
}

func glbNodes(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Nodes []any }
	if err := json.Unmarshal(b[20:20+binary.LittleEndian.Uint32(b[12:])], &doc); err != nil {
		t.Fatal(err)
	}
	return len(doc.Nodes)
}

func TestFaces(t *testing.T) {
	cfg := quiet
	cfg.Faces = true
	r, err := PLY(t.Context(), record(t, 2, 1, "A", -1), t.TempDir(), true, cfg)
	if err != nil || len(r.Files) != frames {
		t.Fatalf("%+v, %v", r, err)
	}
	b, err := os.ReadFile(r.Files[0])
	if err != nil || !bytes.Contains(b[:500], []byte("element face ")) {
		t.Errorf("%q, %v", b[:min(500, len(b))], err)
	}
	// Every seventh pixel of the test image is missing; the surface has it.
	if got, least := len(readPLY(t, r.Files[0]).XYZ)/3, 2*lens.Width*lens.Height*9/10; got < least {
		t.Errorf("%d vertices, want at least %d", got, least)
	}
}

// TestNoSurface checks the errors of recordings without a surface or frame.
func TestNoSurface(t *testing.T) {
	points := record(t, 1, 1, "B", -1)
	const want = "camera 0 has layout B: only layouts A and W have surfaces"
	dir := t.TempDir()
	if _, err := GLB(t.Context(), points, filepath.Join(dir, "a.glb"), -1, quiet); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("GLB: %v", err)
	}
	cfg := quiet
	cfg.Faces = true
	if _, err := PLY(t.Context(), points, dir, true, cfg); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("PLY: %v", err)
	}
	if _, err := PNG(t.Context(), points, filepath.Join(dir, "a.png"), -1, small, quiet); err != nil {
		t.Errorf("points as a picture: %v", err)
	}
	none := take{
		cameras: 1, frames: 3, descriptions: 1, layout: "A", drop: -1, missing: func(int, int) bool { return true },
	}.record(t)
	for name, f := range map[string]func() error{
		"PNG": func() error {
			_, err := PNG(t.Context(), none, filepath.Join(dir, "b.png"), -1, small, quiet)
			return err
		},
		"film": func() error {
			_, err := Turntable(t.Context(), none, filepath.Join(dir, "b.mp4"), Turn{View: small}, quiet)
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), none+": it has no intact frame") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v are left, %v", list, err)
	}
}
