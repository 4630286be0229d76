package wan

import (
	"os"
	"path/filepath"

	"holocast/internal/netlab/chart"
)

// The plots.
const (
	curveFile  = "wan-curve.svg"
	framesFile = "wan-frames.svg"
)

// SavePlots writes the plots and pictures of the measured parts into dir.
func (r Result) SavePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range r.pictures {
		if err := p.save(dir); err != nil {
			return err
		}
	}
	if len(r.Curve) > 0 {
		if err := chart.Save(filepath.Join(dir, curveFile), r.curvePanels()); err != nil {
			return err
		}
		if err := chart.Save(filepath.Join(dir, framesFile), r.framePanels()); err != nil {
			return err
		}
	}
	if len(r.Paths) > 0 {
		return chart.Save(filepath.Join(dir, pathsFile), r.pathPanels())
	}
	return nil
}

func (r Result) curvePanels() []chart.Panel {
	depth := chart.Panel{Title: "Mean depth error, mm"}
	color := chart.Panel{Title: "Colour PSNR, dB", X: "Mbit/s of one camera"}
	ours, tint := chart.Series{Name: layoutW}, chart.Series{Name: layoutW}
	sensor := chart.Series{Name: "sensor"}
	for _, p := range r.Curve {
		ours.T, ours.Y = append(ours.T, p.Mbps), append(ours.Y, p.Depth.MeanMm)
		tint.T, tint.Y = append(tint.T, p.Mbps), append(tint.Y, p.ColorPSNR)
		for _, s := range r.Scenes {
			if s.Name == sceneMoving {
				sensor.T, sensor.Y = append(sensor.T, p.Mbps), append(sensor.Y, s.Sensor.MeanMm)
			}
		}
	}
	depth.Series, color.Series = []chart.Series{ours, sensor}, []chart.Series{tint}
	return []chart.Panel{depth, color}
}

// framePanels shows the bit rate frame by frame.
func (r Result) framePanels() (panels []chart.Panel) {
	for _, s := range r.Scenes {
		if s.Name != sceneMoving {
			continue
		}
		small := chart.Panel{Title: "Layout W: kB per frame of one camera, moving performer"}
		large := chart.Panel{Title: "Others: kB per frame of one camera"}
		for _, c := range s.Coded {
			line := chart.Series{Name: c.Name}
			for k, n := range c.Bytes {
				line.T = append(line.T, float64(k)/fps)
				line.Y = append(line.Y, float64(n)/float64(s.Cameras)/1e3)
			}
			switch {
			case len(c.Bytes) == 0:
			case c.Name == layoutW:
				small.Series = append(small.Series, line)
			default:
				large.Series = append(large.Series, line)
			}
		}
		panels = append(panels, small, large)
	}
	return panels
}
