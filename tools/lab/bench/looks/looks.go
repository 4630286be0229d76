// Package looks measures pictures of depth cameras' frames, as points and as surfaces: the view of a
// camera that is left out, drawn from the others, against its real picture.
package looks

import (
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holocast/internal/qoe"
	"holocast/internal/render"
	"holocast/tools/lab/bench/internal/picture"
)

// cameras is the number of cameras that capture the synthetic performer.
const cameras = 4

// Options configure Run.
type Options struct {
	Data  string    // recordings (HOLOCAST_DATA); "" measures the synthetic performer only
	Parts []string  // nil measures all
	Quick bool      // one view per scene
	Log   io.Writer // progress lines; nil discards them
}

const picturesPart, framesPart, unityPart = "pictures", "frames", "unity"

// Parts lists the parts.
func Parts() []string { return []string{picturesPart, framesPart, unityPart} }

func (o Options) has(part string) bool { return len(o.Parts) == 0 || slices.Contains(o.Parts, part) }

// Score compares pictures with a camera's, in the part that the other cameras see.
type Score struct {
	PSNR  float64 `json:"psnr"`  // dB, of red, green and blue
	SSIM  float64 `json:"ssim"`  // of luma
	Holes float64 `json:"holes"` // share of pixels that show the background
}

// Matched holds scores of pictures whose colors are matched between cameras.
type Matched struct {
	Points  Score `json:"points"`
	Surface Score `json:"surface"`
}

// Looks holds the scores of one view, or the means of a scene.
type Looks struct {
	View    string   `json:"view,omitempty"`
	Points  Score    `json:"points"`
	Surface Score    `json:"surface"`
	Matched *Matched `json:"matched,omitempty"` // with matched colors
	Share   float64  `json:"share"`             // of the picture that is compared
}

// Scene holds one scene's results.
type Scene struct {
	Looks
	Views []Looks `json:"views"`
}

// Result holds the measurements.
type Result struct {
	Holdout    *Scene      `json:"holdout,omitempty"` // real cameras, with matched colors if any differ
	Synthetic  *Scene      `json:"synthetic,omitempty"`
	Shapes     *Shapes     `json:"shapes,omitempty"`
	FrameTimes []FrameTime `json:"frame_ms,omitempty"`
	UnityTimes []UnityTime `json:"unity_ms,omitempty"`

	pictures []*image.RGBA
}

// With returns r, completed with the parts of an earlier result that r lacks.
func (r Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, fmt.Errorf("read earlier result: %w", err)
	}
	if r.Synthetic == nil {
		r.Holdout, r.Synthetic, r.Shapes = old.Holdout, old.Synthetic, old.Shapes
	}
	if r.FrameTimes == nil {
		r.FrameTimes = old.FrameTimes
	}
	if r.UnityTimes == nil {
		r.UnityTimes = old.UnityTimes
	}
	return r, nil
}

// Run measures the recorded studio, if there is one, and the synthetic performer.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.has(picturesPart) {
		if err := r.draw(ctx, o); err != nil {
			return r, err
		}
	}
	if o.has(framesPart) {
		fmt.Fprintln(o.Log, "timing frames in Chromium")
		if r.FrameTimes, err = frames(ctx); err != nil {
			return r, err
		}
	}
	if o.has(unityPart) {
		fmt.Fprintln(o.Log, "timing frames with Unity's shaders on lavapipe")
		r.UnityTimes, err = unity(ctx)
	}
	return r, err
}

func (r *Result) draw(ctx context.Context, o Options) error {
	if o.Data != "" {
		views, err := recorded(ctx, o.Data)
		if err != nil {
			return err
		}
		if len(views) > 0 {
			if r.Holdout, err = r.measure(ctx, o, views, func(int) bool { return true }); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(o.Log, "rendering the synthetic performer")
	views, err := performer(ctx)
	if err != nil {
		return err
	}
	if r.Synthetic, err = r.measure(ctx, o, views, func(i int) bool { return i%2 == 1 }); err != nil {
		return err
	}
	fmt.Fprintln(o.Log, "comparing shapes")
	r.Shapes, err = shapes(ctx)
	return err
}

// measure draws the views that are held out from all cameras that are not, or from all others if all are.
func (r *Result) measure(ctx context.Context, o Options, views []*view, held func(int) bool) (*Scene, error) {
	var s Scene
	for i, v := range views {
		if !held(i) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var others []*view
		for j, other := range views {
			if j != i && (held(0) || !held(j)) {
				others = append(others, other)
			}
		}
		l, err := r.compare(v, others)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(o.Log, "%s: points %.2f dB, surface %.2f dB\n", l.View, l.Points.PSNR, l.best().PSNR)
		s.Views = append(s.Views, l)
		if o.Quick {
			break
		}
	}
	s.average()
	return &s, nil
}

func (l *Looks) best() Score {
	if l.Matched != nil {
		return l.Matched.Surface
	}
	return l.Surface
}

func (s *Scene) average() {
	mean := func(of func(Looks) Score) (m Score) {
		for _, l := range s.Views {
			v := of(l)
			m.PSNR, m.SSIM, m.Holes = m.PSNR+v.PSNR, m.SSIM+v.SSIM, m.Holes+v.Holes
		}
		n := float64(len(s.Views))
		return Score{qoe.Round(m.PSNR/n, 2), qoe.Round(m.SSIM/n, 4), qoe.Round(m.Holes/n, 5)}
	}
	s.Points = mean(func(l Looks) Score { return l.Points })
	s.Surface = mean(func(l Looks) Score { return l.Surface })
	for _, l := range s.Views {
		s.Share += l.Share / float64(len(s.Views))
	}
	s.Share = qoe.Round(s.Share, 2)
	if s.Views[0].Matched != nil {
		s.Matched = &Matched{
			Points:  mean(func(l Looks) Score { return l.Matched.Points }),
			Surface: mean(func(l Looks) Score { return l.Matched.Surface }),
		}
	}
}

// target is the picture to compare with.
type target struct {
	width, height int
	opts          render.Options
	rgb           []byte
	compared      []bool
	depth         []float32 // of the camera's own surface, samples
	count         int
}

func newTarget(v *view, others []*view) (*target, error) {
	t := &target{width: v.width / 2, height: v.height / 2}
	eye, lens := v.eye(), v.lens()
	t.opts = render.Options{Width: t.width, Height: t.height, Eye: &eye, Lens: &lens, Depth: &t.depth}
	if _, err := render.Surfaces(t.opts, v.surface(nil)); err != nil {
		return nil, err
	}
	var covered []bool
	t.rgb, covered = v.truth()
	t.compared = make([]bool, len(covered))
	for y := range v.grid.Height {
		for x := range v.grid.Width {
			p, ok := v.point(x, y)
			normal, smooth := v.normal(x, y)
			if !ok || !smooth {
				continue
			}
			at, ok := t.pixel(eye.Apply(p))
			seen := func(o *view) bool { return o.sees(p, normal) }
			if ok && covered[at] && !t.compared[at] && slices.ContainsFunc(others, seen) {
				t.compared[at] = true
				t.count++
			}
		}
	}
	return t, nil
}

// pixel returns the pixel that shows a point of the eye's space, unless the camera's surface hides it.
func (t *target) pixel(p [3]float64) (at int, ok bool) {
	l := t.opts.Lens
	x, y := int(p[0]/p[2]*l.Focal+l.X), int(p[1]/p[2]*l.Focal+l.Y)
	if p[2] <= 0 || x < 0 || y < 0 || x >= t.width || y >= t.height {
		return 0, false
	}
	const hidden = 20 // mm
	return y*t.width + x, math.Abs(float64(t.sample(t.depth, x, y))-p[2]) <= hidden
}

func (t *target) sample(depth []float32, x, y int) float32 {
	return depth[(y*t.width*render.Supersample+x)*render.Supersample]
}

// score compares a picture and the depth of its samples.
func (t *target) score(img *image.RGBA, depth []float32) Score {
	sum, holes := 0.0, 0
	want := image.NewRGBA(img.Rect)
	for at := range t.compared {
		copy(want.Pix[4*at:], []byte{img.Pix[4*at], img.Pix[4*at+1], img.Pix[4*at+2], 255})
		if !t.compared[at] {
			continue
		}
		copy(want.Pix[4*at:], t.rgb[3*at:3*at+3])
		for k := range 3 {
			d := float64(img.Pix[4*at+k]) - float64(t.rgb[3*at+k])
			sum += d * d
		}
		const behind, behindAtLeast = 1.03, 30 // mm
		if x, y := at%t.width, at/t.width; t.sample(depth, x, y) > t.sample(t.depth, x, y)*behind+behindAtLeast {
			holes++
		}
	}
	n := float64(max(1, t.count))
	return Score{
		PSNR: qoe.Round(10*math.Log10(255*255*3*n/sum), 2), Holes: qoe.Round(float64(holes)/n, 5),
		SSIM: picture.SSIM(picture.Luma(img), picture.Luma(want), t.width, t.height, t.compared),
	}
}

// compare draws v's view from the others.
func (r *Result) compare(v *view, others []*view) (Looks, error) {
	t, err := newTarget(v, others)
	if err != nil {
		return Looks{}, err
	}
	l := Looks{View: v.name, Share: qoe.Round(float64(t.count)/float64(len(t.compared)), 2)}
	plain, matched := make([]render.Surface, len(others)), make([]render.Surface, len(others))
	differ := false
	for i, o := range others {
		plain[i], matched[i] = o.surface(nil), o.surface(&v.gain)
		differ = differ || o.gain != v.gain
	}
	draw := func(look look, s []render.Surface) (Score, error) {
		opts, depth := t.opts, []float32(nil)
		opts.Depth = &depth
		img, err := look(opts, s...)
		if err != nil {
			return Score{}, err
		}
		r.pictures = append(r.pictures, img)
		return t.score(img, depth), nil
	}
	r.pictures = append(r.pictures, t.picture())
	if l.Points, err = draw(render.Squares, plain); err != nil {
		return Looks{}, err
	}
	if l.Surface, err = draw(render.Surfaces, plain); err != nil || !differ {
		return l, err
	}
	r.pictures = r.pictures[:len(r.pictures)-2]
	l.Matched = new(Matched)
	if l.Matched.Points, err = draw(render.Squares, matched); err != nil {
		return Looks{}, err
	}
	l.Matched.Surface, err = draw(render.Surfaces, matched)
	return l, err
}

// picture returns the camera's picture.
func (t *target) picture() *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, t.width, t.height))
	for at := range t.compared {
		copy(img.Pix[4*at:], []byte{t.rgb[3*at], t.rgb[3*at+1], t.rgb[3*at+2], 255})
	}
	return img
}

// pictureFile shows the first view of each scene, one per row.
const pictureFile = "looks.jpg"

// columns are the camera's picture, points and surface.
const columns = 3

// SavePlots writes the pictures to dir.
func (r Result) SavePlots(dir string) (err error) {
	if len(r.pictures) == 0 {
		return nil
	}
	rows := []int{0}
	if r.Holdout != nil {
		rows = append(rows, columns*len(r.Holdout.Views))
	}
	size := r.pictures[0].Rect
	all := image.NewRGBA(image.Rect(0, 0, columns*size.Dx(), len(rows)*size.Dy()))
	for y, first := range rows {
		for x := range columns {
			at := size.Add(image.Pt(x*size.Dx(), y*size.Dy()))
			draw.Draw(all, at, r.pictures[first+x], image.Point{}, draw.Src)
		}
	}
	f, err := os.Create(filepath.Join(dir, pictureFile))
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	return jpeg.Encode(f, all, &jpeg.Options{Quality: 85})
}

// Markdown returns the tables.
func (r Result) Markdown() string {
	var b strings.Builder
	b.WriteString("The view of a camera that is left out is drawn from the others and compared with its picture, where one of " +
		"them measured the same surface (same place and direction, at least 8 pixels from its edge). Points are squares " +
		"of 1.4 times their distance, as viewers draw them; surfaces follow [surface.md](../spec/surface.md), with " +
		"colors as captured and matched between cameras. Holes are pixels that show the background.\n\n")
	scene := func(title, about string, s *Scene) {
		if s == nil {
			return
		}
		fmt.Fprintf(&b, "## %s\n\n%s\n\n| view | compared | look | PSNR dB | SSIM | holes | matched: PSNR dB | SSIM |\n"+
			"| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n", title, about)
		for _, l := range append(slices.Clone(s.Views), s.Looks) {
			name := l.View
			if name == "" {
				name = "**mean**"
			}
			line := func(look string, s Score, matched func(*Matched) Score) {
				fmt.Fprintf(&b, "| %s | %.0f %% | %s | %.2f | %.3f | %.2f %% ", name, 100*l.Share, look, s.PSNR, s.SSIM,
					100*s.Holes)
				if l.Matched == nil {
					b.WriteString("| | |\n")
					return
				}
				m := matched(l.Matched)
				fmt.Fprintf(&b, "| %.2f | %.3f |\n", m.PSNR, m.SSIM)
			}
			line("points", l.Points, func(m *Matched) Score { return m.Points })
			line("surface", l.Surface, func(m *Matched) Score { return m.Surface })
		}
		b.WriteString("\n")
	}
	scene("Real cameras", "Four Azure Kinects around a box (LiveScan3D's test data); the view of each from the other three.",
		r.Holdout)
	scene("Synthetic performer", "A performer in a room; views halfway between four cameras, from all four.", r.Synthetic)
	if r.Shapes != nil {
		b.WriteString("The performer's shape without a room, seen by depth cameras that are left out: pixels of both silhouettes " +
			"to pixels of either, error of depth, angle to the exact normal.\n\n" +
			"| look | silhouette | depth p50 mm | normal p50 | p95 |\n| --- | ---: | ---: | ---: | ---: |\n")
		for _, l := range []struct {
			name string
			Shape
		}{{"points", r.Shapes.Points}, {"surface", r.Shapes.Surface}} {
			fmt.Fprintf(&b, "| %s | %.1f %% | %.1f | %.0f° | %.0f° |\n", l.name, 100*l.Silhouette, l.DepthP50, l.NormalP50,
				l.NormalP95)
		}
		b.WriteString("\n")
	}
	if r.Synthetic != nil {
		fmt.Fprintf(&b, "![Camera, points and surface](%s)\n\nFrom left to right: the camera's picture, points, surface.\n",
			pictureFile)
	}
	if r.FrameTimes != nil {
		b.WriteString("\n## Time per frame\n\nMedian time in ms to draw a picture of 960×640 pixels in Chromium: of the same frame " +
			"again, and of a new one, from upload to the last pixel. A viewer that takes longer than 60 ms draws fewer points of a " +
			"surface.\n\n| grid | points, same | new | surface, same | new |\n| ---: | ---: | ---: | ---: | ---: |\n")
		for _, t := range r.FrameTimes {
			fmt.Fprintf(&b, "| %d | %.1f | %.1f | %.1f | %.1f |\n", t.Grid, t.Points.Same, t.Points.New, t.Surface.Same,
				t.Surface.New)
		}
	}
	if r.UnityTimes != nil {
		b.WriteString("\nWith the Unity client's shaders on lavapipe: processor time in ms, over all threads, of a picture of 960×640 " +
			"pixels per eye, and in addition of the quads of each new frame.\n\n" +
			"| points | eyes | points | surface | quads | surface, several cameras | quads |\n" +
			"| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
		for _, t := range r.UnityTimes {
			fmt.Fprintf(&b, "| %d | %d | %.0f | %.0f | %.0f | %.0f | %.0f |\n", t.Points, t.Eyes, t.Picture.Points,
				t.Picture.Surface, t.Frame.Surface, t.Picture.Several, t.Frame.Several)
		}
	}
	return b.String()
}
