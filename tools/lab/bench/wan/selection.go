package wan

import (
	"cmp"
	"context"
	"fmt"
	"image"
	"io"
	"math"
	"slices"

	images "holocast/tools/lab/bench/internal/picture"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
	"holocast/internal/qoe"
	"holocast/internal/ratecontrol"
	"holocast/internal/render"
	"holocast/internal/vec3"
	"holocast/internal/viewselect"
)

// Selection compares two divisions of a bit rate among four cameras: evenly, and by the viewer's
// pose (internal/viewselect).
type Selection struct {
	Mbps  float64 `json:"mbps_four"`
	Even  float64 `json:"mbps_even"` // sent when divided evenly
	Walks []Walk  `json:"walks"`
	Gain  float64 `json:"view_gain_db"` // mean over the walks
}

// Walk holds the PSNR of pictures along a walk.
type Walk struct {
	Name       string  `json:"name"`
	Even       float64 `json:"even_db"`
	Chosen     float64 `json:"chosen_db"`
	Lossless   float64 `json:"lossless_db"` // layout A at its full rate
	MbpsChosen float64 `json:"mbps_chosen"` // mean
	LeastGain  float64 `json:"least_gain_db"`
	EvenSSIM   float64 `json:"even_ssim"`
	ChosenSSIM float64 `json:"chosen_ssim"`
}

// selectionRate is the bit rate of four cameras in Mbit/s.
const selectionRate = 8

// The qualities of capture-server --high: quantizer offsets, and whether every second pixel in x and
// y is missing.
var qualities = []struct {
	coarser int
	half    bool
}{{0, false}, {2, false}, {6, false}, {8, true}}

// walks maps part t of a walk, 0 to 1, to the viewer's position in mm around the performer, who
// stands at the origin.
var walks = []struct {
	name string
	at   func(t float64) (azimuth, height, distance float64) // degrees, mm, mm
}{
	{"arc", func(t float64) (float64, float64, float64) { return -60 + 120*t, 1500, 1800 }},
	{"orbit", func(t float64) (float64, float64, float64) { return 360 * t, 1600, 2200 }},
	{"approach", func(t float64) (float64, float64, float64) { return 30 * math.Sin(5*t), 1500, 2600 - 1600*t }},
}

const (
	gazeHeight    = 1000 // mm
	surfaceStride = 8    // pixels between samples of a camera's surface
)

// eye returns the pose of a viewer who looks at the performer.
func eye(azimuth, height, distance float64) camera.Transform {
	s, c := math.Sincos(azimuth * math.Pi / 180)
	at := [3]float64{distance * s, height, distance * c}
	forward := vec3.Unit([3]float64{-at[0], gazeHeight - height, -at[2]})
	right := vec3.Unit([3]float64{-forward[2], 0, forward[0]})
	down := vec3.Cross(forward, right)
	m := camera.Transform{R: [9]float64{
		right[0], right[1], right[2], down[0], down[1], down[2], forward[0], forward[1], forward[2],
	}}
	t := m.Apply(at)
	m.T = [3]float64{-t[0], -t[1], -t[2]}
	return m
}

// offer is a camera's frame in all qualities.
type offer struct {
	rays          [2]camera.RayTable // full, half
	pose          camera.Transform
	exact, sensor []pointcloud.Grid // by shot
	even          []pointcloud.Grid
	quality       [][]pointcloud.Grid // by quality, shot
	evenRate      float64             // bit/s
	rates         []viewselect.Option
	surfaces      [][]viewselect.Sample // by shot
}

// selection measures the gain of choosing qualities by pose.
func selection(ctx context.Context, from []*sequence, x extent, log io.Writer) (*Selection, error) {
	r := &Selection{Mbps: selectionRate}
	offers := make([]*offer, len(from))
	for i, s := range from {
		var err error
		if offers[i], err = newOffer(ctx, s, uint64(i), x); err != nil {
			return nil, err
		}
		r.Even += offers[i].evenRate / 1e6
	}
	for _, w := range walks {
		walk := Walk{Name: w.name}
		if err := walk.measure(ctx, offers, x, w.at); err != nil {
			return nil, err
		}
		fmt.Fprintf(log, "walk %s: evenly %.1f dB, by pose %.1f dB at %.1f Mbit/s\n", w.name, walk.Even, walk.Chosen,
			walk.MbpsChosen)
		r.Walks = append(r.Walks, walk)
		r.Gain += (walk.Chosen - walk.Even) / float64(len(walks))
	}
	r.Even, r.Gain = qoe.Round(r.Even, 2), qoe.Round(r.Gain, 2)
	return r, nil
}

// newOffer codes a camera's frames. Like those of Rated, its bit rates exclude the first second.
func newOffer(ctx context.Context, s *sequence, seed uint64, x extent) (*offer, error) {
	lens := s.cal.Depth.Half()
	o := &offer{
		rays: [2]camera.RayTable{s.rays, lens.RayTable()}, pose: s.pose, quality: make([][]pointcloud.Grid, len(qualities)),
	}
	even, err := newVideoCoder(s.rays.Width, s.rays.Height, 0, 0)
	if err != nil {
		return nil, err
	}
	defer even.close()
	control := ratecontrol.New(selectionRate*1e6/cameras, fps, fps/group)
	split := &rated{
		sequence: s, coder: even.(*videoCoder), depth: control.Add(0), color: control.Add(0), group: staggered(int(seed)),
	}
	coders, err := o.coders()
	defer func() {
		for _, c := range coders {
			c.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	s.restart(seed)
	first := min(x.warmup, max(0, x.moving-group)) // a whole group is left
	bytes, evenBytes := make([]int, len(qualities)), 0
	for k := range x.moving {
		f, err := split.code(k, x.shots)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		if k >= first {
			evenBytes += f.bytes
		}
		if f.shot >= 0 {
			o.exact, o.even, o.sensor = append(o.exact, f.ideal), append(o.even, f.decoded), append(o.sensor, f.captured)
			o.surfaces = append(o.surfaces, viewselect.Surface(nil, &o.rays[0], f.ideal.Depth, &o.pose, surfaceStride))
		}
		for q, c := range coders {
			decoded, n, err := recode(c, &f.captured, qualities[q].half)
			if err != nil {
				return nil, err
			}
			if k >= first {
				bytes[q] += n
			}
			if f.shot >= 0 {
				o.quality[q] = append(o.quality[q], decoded)
			}
		}
	}
	perByte := 8 * fps / float64(x.moving-first)
	o.evenRate = perByte * float64(evenBytes)
	for q := range qualities {
		o.rates = append(o.rates, viewselect.Option{
			Rate: perByte * float64(bytes[q]), Error: viewselect.UnknownError(q),
		})
	}
	return o, nil
}

// coders returns a coder for each quality. After an error it returns those that it opened.
func (o *offer) coders() (list []coder, err error) {
	for _, q := range qualities {
		rays := &o.rays[0]
		if q.half {
			rays = &o.rays[1]
		}
		c, err := newVideoCoder(rays.Width, rays.Height, pointvideo.DefaultQP+q.coarser, pointvideo.DefaultQP+q.coarser)
		if err != nil {
			return list, err
		}
		list = append(list, c)
	}
	return list, nil
}

// recode returns a frame after coding, and its size in bytes.
func recode(c coder, g *pointcloud.Grid, half bool) (decoded pointcloud.Grid, size int, err error) {
	if half {
		var h pointcloud.Grid
		g.Halve(&h)
		g = &h
	}
	object, err := c.encode(nil, g)
	if err != nil {
		return decoded, 0, err
	}
	return decoded, len(object), c.decode(&decoded, object)
}

// A grid of a camera, and whether it has every second pixel only.
type gridOf func(camera int, o *offer) (g *pointcloud.Grid, half bool)

// measure compares pictures along a walk through each shot.
func (w *Walk) measure(
	ctx context.Context, offers []*offer, x extent, at func(t float64) (azimuth, height, distance float64),
) error {
	var errors, like [3][]float64 // even, chosen, lossless
	var gains, rates []float64
	var chooser viewselect.Chooser
	var scene viewselect.Scene
	var choice []int
	steps := 2 * x.views
	for i := range steps * len(x.shots) {
		k, v := i/steps, i%steps
		pose := eye(at(float64(v) / float64(max(1, steps-1))))
		var rate float64
		choice, rate = choose(&chooser, &scene, offers, k, pose, choice)
		rates = append(rates, rate/1e6)
		exact, err := see(offers, pose, func(_ int, o *offer) (*pointcloud.Grid, bool) { return &o.exact[k], false })
		if err != nil {
			return err
		}
		for j, grids := range [3]gridOf{
			func(_ int, o *offer) (*pointcloud.Grid, bool) { return &o.even[k], false },
			func(c int, o *offer) (*pointcloud.Grid, bool) {
				return &o.quality[choice[c]][k], qualities[choice[c]].half
			},
			func(_ int, o *offer) (*pointcloud.Grid, bool) { return &o.sensor[k], false },
		} {
			got, err := see(offers, pose, grids)
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
			errors[j] = append(errors[j], pictureError(exact, got))
			like[j] = append(like[j], images.SSIM(images.Luma(exact), images.Luma(got), viewWidth, viewHeight, nil))
		}
		gains = append(gains, 10*math.Log10(errors[0][i]/errors[1][i]))
	}
	const peak = 255 * 255
	w.Even, w.Chosen, w.Lossless = psnr(peak, mean(errors[0])), psnr(peak, mean(errors[1])), psnr(peak, mean(errors[2]))
	w.EvenSSIM, w.ChosenSSIM = qoe.Round(mean(like[0]), 4), qoe.Round(mean(like[1]), 4)
	w.LeastGain, w.MbpsChosen = qoe.Round(slices.Min(gains), 2), qoe.Round(mean(rates), 2)
	return nil
}

// choose returns each camera's quality and the total bit/s.
func choose(c *viewselect.Chooser, s *viewselect.Scene, offers []*offer, shot int, pose camera.Transform, current []int,
) (choice []int, rate float64) {
	worth := make([]float64, len(offers))
	var surfaces [][]viewselect.Sample
	var options [][]viewselect.Option
	for _, o := range offers {
		surfaces, options = append(surfaces, o.surfaces[shot]), append(options, o.rates)
	}
	view := viewselect.View{Eye: pose, TanX: render.TanHalfView * viewWidth / viewHeight, TanY: render.TanHalfView}
	s.Worth(worth, surfaces, view)
	choice = make([]int, len(offers))
	c.Choose(choice, worth, options, selectionRate*1e6, current)
	for i, q := range choice {
		choice[i] = max(q, 0)
		rate += options[i][choice[i]].Rate
	}
	return choice, rate
}

// see renders the cameras' grids as viewers do.
func see(offers []*offer, pose camera.Transform, grids gridOf) (*image.RGBA, error) {
	surfaces := make([]render.Surface, len(offers))
	for i, from := range offers {
		g, half := grids(i, from)
		rays := &from.rays[0]
		if half {
			rays = &from.rays[1]
		}
		surfaces[i] = render.Surface{Grid: g, Rays: rays, Pose: from.pose}
	}
	return render.Surfaces(render.Options{Width: viewWidth, Height: viewHeight, Eye: &pose}, surfaces...)
}
