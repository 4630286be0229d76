package calibrate

import (
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"holocast/internal/camera"
)

// draw projects all views' points along an axis of studio space onto an image with pixels of at
// most 4 mm, one colour per camera, nearest points on top.
func draw(
	t *testing.T,
	path string,
	views []View,
	poses []camera.Transform,
	right, up, towards int,
	flip bool,
	center [3]float64,
	mm float64,
) {
	t.Helper()
	const size = 1000
	img := image.NewRGBA(image.Rect(0, 0, size, size))
	zbuf := make([]float64, size*size)
	for i := range zbuf {
		zbuf[i] = math.Inf(-1)
		img.SetRGBA(i%size, i/size, color.RGBA{10, 10, 14, 255})
	}
	tints := []color.RGBA{{255, 90, 80, 255}, {90, 220, 90, 255}, {90, 140, 255, 255}, {250, 210, 60, 255}}
	for c := range views {
		v := &views[c]
		rays := v.Calibration.Depth.RayTable()
		for i, z := range v.Depth {
			if z == 0 || z > farthest {
				continue
			}
			d := float64(z)
			p := poses[c].Apply([3]float64{float64(rays.X[i]) * d, float64(rays.Y[i]) * d, d})
			for k := range p {
				p[k] -= center[k]
			}
			x, depth := p[right], p[towards]
			if flip {
				x, depth = -x, -depth
			}
			px, py := int(size/2+x/mm), int(size/2-p[up]/mm)
			if depth > 1500 || px < 0 || py < 0 || px >= size || py >= size || depth < zbuf[py*size+px] {
				continue
			}
			zbuf[py*size+px] = depth
			img.SetRGBA(px, py, tints[c%len(tints)])
		}
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := png.Encode(f, img); err != nil {
		t.Fatal(err)
	}
}

// TestPictures draws the real studio's merged cloud from above, the front and the side:
//
//	go test -run Pictures -artifacts -outputdir DIR
func TestPictures(t *testing.T) {
	dir := t.ArtifactDir()
	views, err := firstViews(t.Context(), studio(t))
	if err != nil {
		t.Fatal(err)
	}
	poses, residual, err := Solve(t.Context(), views, Box(boxWidth))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", residual)
	const x, y, z = 0, 1, 2
	draw(t, filepath.Join(dir, "top.png"), views, poses, x, z, y, false, [3]float64{0, -700, 0}, 5)
	draw(t, filepath.Join(dir, "front.png"), views, poses, x, y, z, false, [3]float64{}, 5)
	draw(t, filepath.Join(dir, "side.png"), views, poses, z, y, x, true, [3]float64{}, 5)
	draw(t, filepath.Join(dir, "box-top.png"), views, poses, x, z, y, false, [3]float64{}, 0.6)
	draw(t, filepath.Join(dir, "box-front.png"), views, poses, x, y, z, false, [3]float64{}, 0.6)
}
