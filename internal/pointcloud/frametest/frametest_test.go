package frametest

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"
)

func TestSynthetic(t *testing.T) {
	a, b, c := SyntheticCloud(320, 288, 1), SyntheticCloud(320, 288, 1), SyntheticCloud(320, 288, 2)
	if !slices.Equal(a.Grid.Depth, b.Grid.Depth) || !slices.Equal(a.Grid.Color, b.Grid.Color) {
		t.Error("the same seed gave another frame")
	}
	if slices.Equal(a.Grid.Depth, c.Grid.Depth) {
		t.Error("another seed gave the same frame")
	}
	checkCloud(t, &a)
}

// checkCloud compares a cloud's points with its grid.
func checkCloud(t *testing.T, c *Cloud) {
	t.Helper()
	var z []int16
	for _, d := range c.Grid.Depth {
		if d != 0 {
			z = append(z, int16(d))
		}
	}
	if n := len(c.Grid.Depth); len(z) < n/3 || len(z) == n {
		t.Errorf("%d of %d pixels have a point", len(z), n)
	}
	if len(c.Points.XYZ) != 3*len(z) || len(c.Points.RGB) != 3*len(z) {
		t.Fatalf("%d coordinates and %d colour bytes of %d points", len(c.Points.XYZ), len(c.Points.RGB), len(z))
	}
	for i, want := range z {
		if c.Points.XYZ[3*i+2] != want {
			t.Fatalf("point %d has z %d, want %d", i, c.Points.XYZ[3*i+2], want)
		}
	}
}

func TestLoadWithoutData(t *testing.T) {
	if _, err := Load(t.TempDir(), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want %v", err, fs.ErrNotExist)
	}
}

func TestLoad(t *testing.T) {
	dir := os.Getenv("HOLOCAST_DATA")
	if dir == "" {
		dir = "../../../../shared/data"
	}
	frames, err := Load(dir, 1)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(frames) != 4 {
		t.Errorf("%d frames, want one of each of 4 cameras", len(frames))
	}
	for i := range frames {
		checkCloud(t, &frames[i].NFOV)
		checkCloud(t, &frames[i].FHD)
	}
}
