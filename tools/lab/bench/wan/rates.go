package wan

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	images "holocast/tools/lab/bench/internal/picture"

	"holocast/internal/pointcloud"
	"holocast/internal/qoe"
	"holocast/internal/ratecontrol"
)

// Rated is layout W at a bit rate that four cameras share, as capture-server --bitrate divides it.
type Rated struct {
	Target float64 `json:"target_mbps"` // four cameras
	Mbps   float64 `json:"mbps_four"`
	// Apart is the depth pictures' quantizer minus the colour pictures'.
	Apart     int     `json:"depth_qp_minus_color_qp"`
	ColorQP   float64 `json:"color_qp"` // mean
	Depth     Errors  `json:"depth"`
	Moving    Errors  `json:"moving"`
	ColorPSNR float64 `json:"color_psnr"`
	ViewPSNR  float64 `json:"view_psnr"`
	ViewSSIM  float64 `json:"view_ssim"`
}

const homeTarget = 16 // Mbit/s

// rates measures several bit rates, and at one of them several divisions between depth and colour.
func rates(ctx context.Context, moving []*sequence, x extent, log io.Writer) (list []Rated, err error) {
	cases := []Rated{{Target: homeTarget}}
	if !x.quick {
		cases = []Rated{
			{Target: 8},
			{Target: 12},
			{Target: homeTarget},
			{Target: 24},
			{Target: 12, Apart: -6},
			{Target: 12, Apart: -3},
			{Target: 12, Apart: 3},
			{Target: 12, Apart: 6},
		}
	}
	for _, r := range cases {
		if err := r.measure(ctx, moving, x); err != nil {
			return nil, err
		}
		fmt.Fprintf(log, "%g Mbit/s, depth's quantizer %+d: %.2f Mbit/s, depth %.2f mm, moving %.2f mm, colour %.1f dB, view "+
			"%.1f dB\n", r.Target, r.Apart, r.Mbps, r.Depth.MeanMm, r.Moving.MeanMm, r.ColorPSNR, r.ViewPSNR)
		list = append(list, r)
	}
	return list, nil
}

// rated is a camera whose pictures share a bit rate with others'.
type rated struct {
	*sequence
	coder        *videoCoder
	depth, color *ratecontrol.Stream
	group        int // frames until its first key frame after frame 0
	previous     []uint16
}

func (r *Rated) measure(ctx context.Context, moving []*sequence, x extent) error {
	control := ratecontrol.New(1e6*r.Target, fps, fps/group)
	list := make([]*rated, len(moving))
	for i, s := range moving {
		c, err := newVideoCoder(s.rays.Width, s.rays.Height, 0, 0)
		if err != nil {
			return err
		}
		defer c.close()
		s.restart(uint64(i))
		list[i] = &rated{
			sequence: s, coder: c.(*videoCoder), depth: control.Add(float64(r.Apart)), color: control.Add(0),
			group: staggered(i),
		}
	}
	var t totals
	exact := make([]shot, len(x.shots))
	t.shots = make([]shot, len(x.shots))
	qps, first := 0, x.warmup // the controller knows no sizes at first
	for k := range x.moving {
		for _, c := range list {
			if err := ctx.Err(); err != nil {
				return err
			}
			f, err := c.code(k, x.shots)
			if err != nil {
				return err
			}
			if f.shot >= 0 {
				exact[f.shot].grids = append(exact[f.shot].grids, f.ideal)
			}
			qps += f.colorQP
			if k < first {
				continue
			}
			t.bytes += f.bytes
			t.add(f.frame, &f.ideal, &f.decoded)
		}
	}
	r.Mbps = mbps(t.bytes, x.moving-first)
	r.ColorQP = qoe.Round(float64(qps)/float64(x.moving*len(list)), 1)
	r.Depth, r.Moving, r.ColorPSNR = t.depth.summary(), t.moving.summary(), t.color.psnr()
	return r.look(ctx, moving, x, exact, t.shots)
}

// coded is a frame before and after coding.
type coded struct {
	frame
	captured, ideal, decoded pointcloud.Grid

	bytes, colorQP int
}

func (c *rated) code(k int, shots []int) (f coded, err error) {
	exact, err := c.capture(k, &f.captured)
	if err != nil {
		return f, err
	}
	if err := c.ideal(k, &f.ideal); err != nil {
		return f, err
	}
	f.frame = frame{k: k, exact: exact, shot: slices.Index(shots, k)}
	if c.previous != nil {
		f.moving = moving(exact, c.previous)
	}
	c.previous = exact
	now := time.Duration(k) * time.Second / fps
	key := k == 0 || k%group == c.group
	depth, color := c.depth.QP(now, key), c.color.QP(now, key)
	c.coder.encoder.SetQP(depth, color)
	object, err := c.coder.encoder.Encode(nil, pointcloud.Header{}, &f.captured, key)
	if err != nil {
		return f, err
	}
	sizes := c.coder.encoder.Sizes()
	c.depth.Sent(now, key, depth, 8*sizes[1], 8*sizes[0])
	c.color.Sent(now, key, color, 8*sizes[2], 0)
	f.bytes, f.colorQP = len(object), color
	return f, c.coder.decode(&f.decoded, object)
}

// staggered returns the frame at which a camera's key frames recur.
func staggered(camera int) int { return camera * group / cameras }

// look compares pictures along the walk with pictures of the exact depth and colour.
func (r *Rated) look(ctx context.Context, from []*sequence, x extent, exact, shots []shot) error {
	var mse, like []float64
	for k := range exact {
		fit, _ := exact[k].clouds(from)
		for v := range x.views {
			if err := ctx.Err(); err != nil {
				return err
			}
			at := (float64(k) + float64(v)/float64(x.views)) / float64(len(shots))
			want, err := exact[k].view(from, fit, at)
			if err != nil {
				return err
			}
			got, err := shots[k].view(from, fit, at)
			if err != nil {
				return err
			}
			mse = append(mse, pictureError(want, got))
			like = append(like, images.SSIM(images.Luma(want), images.Luma(got), viewWidth, viewHeight, nil))
		}
	}
	r.ViewPSNR, r.ViewSSIM = psnr(255*255, mean(mse)), qoe.Round(mean(like), 4)
	return nil
}
