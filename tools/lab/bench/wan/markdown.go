package wan

import (
	"fmt"
	"slices"
	"strings"
)

// Markdown returns the tables.
func (r Result) Markdown() string {
	return r.qualityMarkdown() + r.selectionMarkdown() + r.pathsMarkdown() + r.camerasMarkdown()
}

// about describes the scenes.
var about = map[string]string{
	sceneStill: "The synthetic performer stands still in a room.",
	sceneMoving: "The synthetic performer moves in the room. Moving points are those whose exact depth changes by more " +
		"than the jitter.",
	sceneRecorded: "One recorded frame of each real Azure Kinect (LiveScan3D's test data) counts as exact. " +
		"The views overlay the cameras' clouds, without their poses.",
}

func (r Result) qualityMarkdown() string {
	if len(r.Scenes) == 0 {
		return ""
	}
	var b strings.Builder
	if r.MbpsFour > 0 {
		fmt.Fprintf(&b, "Four cameras of a moving performer take %.1f Mbit/s in layout W and %.0f Mbit/s in lossless "+
			"layout A. Layout W's depth is off by %.2f mm on average, the sensor's own readings by %.2f mm; where the "+
			"performer moves, by %.2f and %.2f mm.\n\n",
			r.MbpsFour, r.LosslessFour, r.DepthMean, r.SensorMean, r.MovingMean, r.SensorMoving)
	}
	fmt.Fprintf(&b, "## Codecs\n\nThe scenes have known depth: NFOV unbinned (640 × 576), %d frames per second, with "+
		"an Azure Kinect's measured jitter, a standard deviation of %g mm + %g mm/m² · z², neighbors correlated by %g, "+
		"colour by %g of 255, and flickering edges. Errors are distances to the exact depth. Strays are points at least "+
		"%d mm off, or where there is no surface; the mean excludes them. Colour PSNR compares with the exact colour. "+
		"D1 and D2 are MPEG's point-to-point and point-to-plane PSNR of the cloud (peak %d mm). View PSNR and SSIM "+
		"compare pictures along a walk around the scene with pictures of the exact depth. Times are medians of one thread's CPU "+
		"time; Draco reports its own, of few frames. Layout W has a key frame every %d frames, the encoder's default "+
		"quantizers, and its smoothing over time.\n\n",
		fps, sigma0, sigma2, neighbors, sigmaColor, stray, peakGeometry, group)
	fmt.Fprintf(&b, "`%s` stacks three 8-bit planes (Pece et al., 2011) without smoothing; LiVo and others send 16-bit "+
		"depth through a video codec likewise. `%s` has colour of JPEG quality %d. `%s` is measured if its programs "+
		"are installed, with %s bits per coordinate.\n\n", folded, rvl, jpegQuality, draco, dracoBits)
	for _, s := range r.Scenes {
		b.WriteString(s.markdown())
	}
	if len(r.Curve) > 0 {
		fmt.Fprintf(&b, "### Quantizers\n\nLayout W at several quantizers, one camera of the moving performer.\n\n"+
			"![Depth error and colour over bit rate](%s)\n\n| depth / colour | Mbit/s | depth mean / p99 mm | colour dB "+
			"|\n| ---: | ---: | ---: | ---: |\n", curveFile)
		for _, p := range r.Curve {
			fmt.Fprintf(&b, "| %d / %d | %.2f | %s | %.1f |\n", p.DepthQP, p.ColorQP, p.Mbps, p.Depth.millimetres(), p.ColorPSNR)
		}
		b.WriteString("\n")
	}
	b.WriteString(r.ratesMarkdown())
	return b.String()
}

func (r Result) ratesMarkdown() string {
	if len(r.Rates) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("### Bit rates\n\nThe four cameras of the moving performer share a bit rate, as with `capture-server " +
		"--bitrate`: one quantizer for all pictures, their key frames staggered. Figures are of the frames after the first " +
		"second. The last rows give depth another quantizer than colour.\n\n")
	row(&b, []string{
		"target Mbit/s", "depth's quantizer", "sent Mbit/s", "depth mean / p99 mm", "moving mean / p99 mm", "colour dB",
		"view dB / SSIM",
	})
	row(&b, right(7))
	for _, p := range r.Rates {
		row(&b, []string{
			fmt.Sprintf("%g", p.Target), fmt.Sprintf("%+d", p.Apart), fmt.Sprintf("%.2f", p.Mbps), p.Depth.millimetres(),
			p.Moving.millimetres(), fmt.Sprintf("%.1f", p.ColorPSNR), fmt.Sprintf("%.1f / %.3f", p.ViewPSNR, p.ViewSSIM),
		})
	}
	b.WriteString("\n")
	return b.String()
}

func (r Result) selectionMarkdown() string {
	s := r.Selection
	if s == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Qualities by pose\n\n%g Mbit/s for the four cameras of the moving performer, divided evenly "+
		"(rate control for each camera, %.1f Mbit/s sent), or by choosing one of the qualities high, medium, fair and low "+
		"for each camera from the viewer's pose. Bit rates are of the frames after the first second. Pictures along walks "+
		"around the performer are compared with pictures of the exact depth and colour. By pose, they gain %.2f dB on "+
		"average. Layout A, without a limit, shows the sensor's noise.\n\n", s.Mbps, s.Even, s.Gain)
	row(&b, []string{
		"walk", "evenly dB / SSIM", "by pose dB / SSIM", "by pose Mbit/s", "smallest gain of a picture, dB", "layout A dB",
	})
	row(&b, append([]string{"---"}, right(5)...))
	for _, w := range s.Walks {
		row(&b, []string{
			w.Name, fmt.Sprintf("%.1f / %.3f", w.Even, w.EvenSSIM), fmt.Sprintf("%.1f / %.3f", w.Chosen, w.ChosenSSIM),
			fmt.Sprintf("%.1f", w.MbpsChosen), fmt.Sprintf("%.2f", w.LeastGain), fmt.Sprintf("%.1f", w.Lossless),
		})
	}
	b.WriteString("\n")
	return b.String()
}

func (s Scene) markdown() string {
	var b strings.Builder
	moves := s.Moving.Points > 0
	fmt.Fprintf(&b, "### %s%s\n\n%s %d frames of each camera (%d), %.0f points per frame.\n\n", strings.ToUpper(s.Name[:1]),
		s.Name[1:], about[s.Name], s.Frames, s.Cameras, s.Points)
	fmt.Fprintf(&b, "![Lossless layout A, then layout W](%s)\n\n", pictureFile(s.Name))
	head := []string{"", "Mbit/s per camera", "bytes per point", "depth mean / p99 mm", "strays"}
	if moves {
		fmt.Fprintf(&b, "![kB per frame](%s)\n\n", framesFile)
		head = append(head, "moving mean / p99 mm")
	}
	head = append(head, "colour dB", "D1 / D2 dB", "view dB / SSIM", "encode / decode ms")
	row(&b, head)
	row(&b, append([]string{"---"}, right(len(head)-1)...))
	cells := []string{"sensor", "", "", s.Sensor.millimetres(), s.Sensor.strays()}
	if moves {
		cells = append(cells, s.Moving.millimetres())
	}
	row(&b, append(cells, fmt.Sprintf("%.1f", s.Color), s.clouds(), s.views(), ""))
	for _, c := range s.Coded {
		row(&b, c.cells(moves))
	}
	b.WriteString("\n")
	return b.String()
}

func (c Coded) cells(moves bool) []string {
	name := c.Name
	if name == layoutW {
		name = "**" + name + "**"
	}
	color := fmt.Sprintf("%.1f", c.ColorPSNR)
	if c.ColorPSNR == 0 {
		color = ""
	}
	cells := []string{
		name, fmt.Sprintf("%.2f", c.Mbps), fmt.Sprintf("%.3f", c.BytesPerPoint), c.Depth.millimetres(), c.Depth.strays(),
	}
	if moves {
		cells = append(cells, c.Moving.millimetres())
	}
	return append(cells, color, c.clouds(), c.views(), fmt.Sprintf("%.1f / %.1f", c.EncodeMs, c.DecodeMs))
}

func (e Errors) millimetres() string {
	if e.Points == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f / %.1f", e.MeanMm, e.P99Mm)
}

func (e Errors) strays() string {
	if e.Points == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f %%", e.Stray)
}

func (a Appearance) clouds() string { return fmt.Sprintf("%.1f / %.1f", a.D1, a.D2) }

func (a Appearance) views() string {
	if a.ViewSSIM == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f / %.3f", a.ViewPSNR, a.ViewSSIM)
}

func (r Result) pathsMarkdown() string {
	if len(r.Paths) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Paths\n\nA publisher sends the four cameras' frames, encoded beforehand, through the relay and an "+
		"emulated path of %d ms one way with a queue of %d ms to one viewer. The 5G paths follow recorded throughput "+
		"(5Gophers), scaled to a mean of %d Mbit/s. Layout W has the finest quantizers within %g %% of %d Mbit/s, the "+
		"same throughout: neither its rate nor its key frames adapt to the path. Groups are subgroups of %d frames with "+
		"the capture server's delivery timeout of %d ms. The key frames of all cameras coincide, as when one viewer joins, "+
		"or are staggered. Frames/s is the mean of the cameras. Delays are from capture to the last byte of frames that "+
		"can be decoded. Freezes are over all cameras, of %.0f s. Recovery is the time from the fall of the rate to the "+
		"first second in which every camera shows 9 of 10 frames within 200 ms. Rows marked \\* had a late emulator, on a "+
		"busy machine.\n\n![Frame delays](%s)\n\n", homeDelay, homeQueue, homeRate, 100*share, homeRate, group,
		deliveryTimeout.Milliseconds(), r.Paths[0].Seconds, pathsFile)
	b.WriteString(r.pathTable())
	return b.String()
}

func (r Result) pathTable() string {
	var b strings.Builder
	row(&b, []string{
		"path", "", "Mbit/s sent", "frames/s", "delay p50 / p95 ms", "freezes ≥ 200 / 300 ms", "longest ms", "recovery s",
	})
	row(&b, append([]string{"---", "---"}, right(6)...))
	for _, run := range r.Paths {
		mark, recovered := "", ""
		if len(run.Failures) > 0 {
			mark = "*"
		}
		switch {
		case run.RecoveryS < 0:
			recovered = "none"
		case run.Path == halvedPath:
			recovered = fmt.Sprintf("%.1f", run.RecoveryS)
		}
		row(&b, []string{
			run.Path + mark, run.Contender, fmt.Sprintf("%.1f", run.Mbps), fmt.Sprintf("%.1f", run.FPS),
			fmt.Sprintf("%.0f / %.0f", run.DelayP50, run.DelayP95), fmt.Sprintf("%d / %d", run.Freezes200, run.Freezes300),
			fmt.Sprintf("%.0f", run.LongestMs), recovered,
		})
	}
	return b.String()
}

// row writes a table's row.
func row(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// right returns the rule of n right-aligned columns.
func right(n int) []string { return slices.Repeat([]string{"---:"}, n) }
