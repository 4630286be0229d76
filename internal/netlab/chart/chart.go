// Package chart draws line charts to PNG or SVG: panels stacked vertically over a shared horizontal
// axis, usually time.
package chart

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width       = 24 * vg.Centimeter
	panelHeight = 7 * vg.Centimeter
	dpi         = 110
)

// A Panel is one diagram. All panels of a chart share the horizontal axis.
type Panel struct {
	Title  string // including the unit
	X      string // the horizontal axis; "" = seconds
	Series []Series
}

// A Series is one line of a panel.
type Series struct {
	Name string
	T, Y []float64 // T in the unit of Panel.X, Y in that of Panel.Title; NaN leaves a gap
}

// Save draws the panels to a .png or .svg file.
func Save(path string, panels []Panel) (err error) {
	kind := strings.ToLower(filepath.Ext(path))
	if kind != ".png" && kind != ".svg" {
		return fmt.Errorf("chart %s: unknown file type: use .png or .svg", path)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	if err := write(f, kind, panels); err != nil {
		return fmt.Errorf("chart %s: %w", path, err)
	}
	return nil
}

func write(w io.Writer, kind string, panels []Panel) error {
	rows := make([][]*plot.Plot, len(panels))
	for i, panel := range panels {
		p, err := panel.plot(i == len(panels)-1)
		if err != nil {
			return err
		}
		rows[i] = []*plot.Plot{p}
	}
	// All panels span the same time range, regardless of gaps in their series.
	first, last := math.Inf(1), math.Inf(-1)
	for _, row := range rows {
		first, last = min(first, row[0].X.Min), max(last, row[0].X.Max)
	}
	for _, row := range rows {
		row[0].X.Min, row[0].X.Max = first, last
	}
	height := panelHeight * font.Length(max(1, len(panels)))
	var canvas vg.CanvasSizer
	var to io.WriterTo
	if kind == ".svg" {
		c := vgsvg.New(width, height)
		canvas, to = c, c
	} else {
		c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
		canvas, to = c, vgimg.PngCanvas{Canvas: c}
	}
	if len(panels) > 0 {
		tiles := draw.Tiles{
			Rows: len(panels), Cols: 1, PadY: 3 * vg.Millimeter, PadTop: 2 * vg.Millimeter,
			PadBottom: 2 * vg.Millimeter, PadLeft: 2 * vg.Millimeter, PadRight: 2 * vg.Millimeter,
		}
		for i, row := range plot.Align(rows, tiles, draw.New(canvas)) {
			rows[i][0].Draw(row[0])
		}
	}
	_, err := to.WriteTo(w)
	return err
}

func (panel Panel) plot(last bool) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = panel.Title
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	if last {
		p.X.Label.Text = cmp.Or(panel.X, "seconds")
	}
	for i, s := range panel.Series {
		for k, run := range s.runs() {
			line, err := plotter.NewLine(run)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", panel.Title, s.Name, err)
			}
			line.Color = plotutil.Color(i)
			line.Dashes = plotutil.Dashes(i / len(plotutil.DefaultColors))
			p.Add(line)
			if k == 0 {
				p.Legend.Add(s.Name, line)
			}
		}
	}
	return p, nil
}

// runs splits a series at its gaps.
func (s Series) runs() []plotter.XYs {
	var runs []plotter.XYs
	open := false
	for i := range min(len(s.T), len(s.Y)) {
		if math.IsNaN(s.Y[i]) || math.IsInf(s.Y[i], 0) {
			open = false
			continue
		}
		if !open {
			runs = append(runs, nil)
			open = true
		}
		last := &runs[len(runs)-1]
		*last = append(*last, plotter.XY{X: s.T[i], Y: s.Y[i]})
	}
	return runs
}
