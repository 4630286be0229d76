package chart

import (
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

var panels = []Panel{
	{Title: "Throughput, Mbit/s", Series: []Series{
		{Name: "path1", T: []float64{0, 1, 2, 3}, Y: []float64{1, 4, math.NaN(), 9}},
		{Name: "path2", T: []float64{0, 1}, Y: []float64{math.NaN(), math.NaN()}},
	}},
	{Title: "Drops"},
}

func TestSavePNG(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.PNG")
	if err := Save(path, panels); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	image, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if size := image.Bounds().Size(); size.X < 800 || size.Y < 500 {
		t.Errorf("size %v", size)
	}
}

func TestSaveSVG(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.svg")
	if err := Save(path, panels); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Throughput, Mbit/s", "Drops", "path1", "seconds"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the drawing", want)
		}
	}
	for decoder := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := decoder.Token(); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
	}
}

func TestSaveErrors(t *testing.T) {
	for _, path := range []string{"run.pdf", filepath.Join(t.TempDir(), "no", "run.png")} {
		if err := Save(path, panels); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestRuns(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name string
		y    []float64
		want []plotter.XYs
	}{
		{"nothing", nil, nil},
		{"gaps only", []float64{nan, nan}, nil},
		{"a gap", []float64{nan, 1, 2, nan, 3}, []plotter.XYs{{{X: 1, Y: 1}, {X: 2, Y: 2}}, {{X: 4, Y: 3}}}},
		{"fewer values than times", []float64{5}, []plotter.XYs{{{X: 0, Y: 5}}}},
	} {
		if got := (Series{T: []float64{0, 1, 2, 3, 4}, Y: c.y}).runs(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
}
