package tile360

import (
	"fmt"
	"math"
)

// Layout says how the eyes are packed into a picture.
type Layout uint8

// The layouts, as the catalog and spherical metadata (st3d) name them. The left eye is on
// top, or on the left.
const (
	Mono Layout = iota
	TopBottom
	SideBySide
)

var layoutNames = [...]string{"mono", "top-bottom", "side-by-side"}

func (l Layout) String() string {
	if int(l) < len(layoutNames) {
		return layoutNames[l]
	}
	return fmt.Sprintf("layout %d", uint8(l))
}

// ParseLayout is the inverse of String.
func ParseLayout(s string) (Layout, error) {
	for i, name := range layoutNames {
		if s == name {
			return Layout(i), nil
		}
	}
	return 0, fmt.Errorf("stereo layout %q is unknown; mono, top-bottom and side-by-side are known", s)
}

// Eyes returns how many eyes a picture holds.
func (l Layout) Eyes() int {
	if l == Mono {
		return 1
	}
	return 2
}

// Rect is a part of a picture: shares of its width and height from the top left.
type Rect struct{ X0, Y0, X1, Y1 float64 }

// Eye returns the part of the picture that holds an eye: 0 = left, 1 = right. Both are the
// whole picture in mono.
func (l Layout) Eye(eye int) Rect {
	switch {
	case l == TopBottom && eye == 0:
		return Rect{0, 0, 1, 0.5}
	case l == TopBottom:
		return Rect{0, 0.5, 1, 1}
	case l == SideBySide && eye == 0:
		return Rect{0, 0, 0.5, 1}
	case l == SideBySide:
		return Rect{0.5, 0, 1, 1}
	}
	return Rect{0, 0, 1, 1}
}

// MaxTiles is the number of tiles a grid may have.
const MaxTiles = 4096

// Grid cuts a picture into equal tiles. It cuts the packed picture: with two eyes in it a
// tile may show one eye or, where the eyes meet inside a tile, both.
type Grid struct {
	Columns, Rows int
	Layout        Layout
}

// Check returns an error that names what is wrong with the grid.
func (g Grid) Check() error {
	switch {
	case g.Columns < 1 || g.Rows < 1:
		return fmt.Errorf("a grid of %d×%d tiles is empty", g.Columns, g.Rows)
	case g.Columns > MaxTiles || g.Rows > MaxTiles || g.Columns*g.Rows > MaxTiles:
		return fmt.Errorf("a grid of %d×%d tiles has more than %d", g.Columns, g.Rows, MaxTiles)
	case int(g.Layout) >= len(layoutNames):
		return fmt.Errorf("%v is unknown", g.Layout)
	}
	return nil
}

// Tiles returns the number of tiles.
func (g Grid) Tiles() int { return g.Columns * g.Rows }

// Rect returns where a tile lies in the picture.
func (g Grid) Rect(tile int) Rect {
	c, r := tile%g.Columns, tile/g.Columns
	return Rect{
		float64(c) / float64(g.Columns), float64(r) / float64(g.Rows),
		float64(c+1) / float64(g.Columns), float64(r+1) / float64(g.Rows),
	}
}

// At returns the tile at a point of the picture, given in shares of its width and height.
func (g Grid) At(x, y float64) int {
	c := max(0, min(g.Columns-1, int(x*float64(g.Columns))))
	r := max(0, min(g.Rows-1, int(y*float64(g.Rows))))
	return r*g.Columns + c
}

// Tile returns the tile that shows a direction to an eye.
func (g Grid) Tile(v Vec, eye int) int {
	x, y := v.equirect()
	e := g.Layout.Eye(eye)
	return g.At(e.X0+x*(e.X1-e.X0), e.Y0+y*(e.Y1-e.Y0))
}

// SolidAngle returns what a tile covers of the sphere, steradians; of both spheres, where it
// shows two eyes. All tiles together cover 4π for each eye.
func (g Grid) SolidAngle(tile int) float64 {
	t := g.Rect(tile)
	var sum float64
	for eye := range g.Layout.Eyes() {
		e := g.Layout.Eye(eye)
		// The part of the eye that the tile shows, in shares of the eye.
		w, h := e.X1-e.X0, e.Y1-e.Y0
		x0, x1 := (max(t.X0, e.X0)-e.X0)/w, (min(t.X1, e.X1)-e.X0)/w
		y0, y1 := (max(t.Y0, e.Y0)-e.Y0)/h, (min(t.Y1, e.Y1)-e.Y0)/h
		if x1 > x0 && y1 > y0 {
			sum += 2 * math.Pi * (x1 - x0) * (math.Cos(math.Pi*y0) - math.Cos(math.Pi*y1))
		}
	}
	return sum
}

// RowWeight returns the WS-PSNR weight of a row of pixels of an eye's picture: the cosine of
// its latitude. It is proportional to the solid angle of a pixel.
func RowWeight(row, height int) float64 {
	return math.Cos((float64(row) + 0.5 - float64(height)/2) * math.Pi / float64(height))
}
