package wan

import (
	"fmt"
	"strings"
)

// Markdown returns the tables.
func (r Result) Markdown() string { return r.qualityMarkdown() }

func (r Result) qualityMarkdown() string {
	var b strings.Builder
	for _, s := range r.Scenes {
		fmt.Fprintf(&b, "## %s\n\n%d × %d frames\n\n", s.Name, s.Cameras, s.Frames)
		fmt.Fprintf(&b, "| | Mbit/s | bytes per point | depth mean / p99 mm | strays | moving mean / p99 mm | colour dB "+
			"| D1 / D2 dB | view dB / SSIM | encode / decode ms |\n|%s\n", strings.Repeat(" --- |", 10))
		fmt.Fprintf(&b, "| sensor | | | %s | %s | | %s |\n", s.Sensor.cells(), s.Moving.cells(), s.cells())
		for _, c := range s.Coded {
			fmt.Fprintf(&b, "| %s | %.2f | %.3f | %s | %s | %.1f | %s | %.1f / %.1f |\n", c.Name, c.Mbps, c.BytesPerPoint,
				c.Depth.cells(), c.Moving.cells(), c.ColorPSNR, c.cells(), c.EncodeMs, c.DecodeMs)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

func (e Errors) cells() string {
	return fmt.Sprintf("%.2f / %.1f | %.2f %%", e.MeanMm, e.P99Mm, e.Stray)
}

func (a Appearance) cells() string {
	return fmt.Sprintf("%.1f / %.1f | %.1f / %.3f", a.D1, a.D2, a.ViewPSNR, a.ViewSSIM)
}
