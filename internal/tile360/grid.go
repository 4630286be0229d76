package tile360

import (
	"fmt"
	"image"
	"math"
)

// Layout is the arrangement of the eyes in a picture.
type Layout uint8

// Layouts, named as in the catalog and in spherical metadata (st3d). The left eye is on top or on
// the left.
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
	return 0, fmt.Errorf("unknown stereo layout %q: want mono, top-bottom or side-by-side", s)
}

// Eyes returns the number of eyes in a picture.
func (l Layout) Eyes() int {
	if l == Mono {
		return 1
	}
	return 2
}

// Rect is a part of a picture, in fractions of its width and height from the top left.
type Rect struct{ X0, Y0, X1, Y1 float64 }

// Eye returns an eye's part of the picture: 0 = left, 1 = right. In mono both are the entire
// picture.
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

// MaxTiles is the maximum number of tiles in a grid.
const MaxTiles = 4096

// Grid divides the picture of one eye, Width×Height pixels, into Columns×Rows tiles. In stereo a
// tile contains the same rectangle of both eyes. Edges are even, so tiles may differ in size by two
// pixels (docs/spec/tiles.md).
type Grid struct{ Columns, Rows, Width, Height int }

// Check returns an error if the grid is invalid.
func (g Grid) Check() error {
	switch {
	case g.Columns < 1 || g.Rows < 1:
		return fmt.Errorf("a grid of %d×%d tiles is empty", g.Columns, g.Rows)
	case g.Columns > MaxTiles || g.Rows > MaxTiles || g.Columns*g.Rows > MaxTiles:
		return fmt.Errorf("a grid of %d×%d tiles exceeds the limit of %d tiles", g.Columns, g.Rows, MaxTiles)
	case g.Width > 1<<16 || g.Height > 1<<16 || g.Width < 2*g.Columns || g.Height < 2*g.Rows:
		return fmt.Errorf("a picture of %d×%d pixels cannot be cut into %d×%d tiles", g.Width, g.Height, g.Columns,
			g.Rows)
	}
	return nil
}

// Tiles returns the number of tiles.
func (g Grid) Tiles() int { return g.Columns * g.Rows }

// edge returns the start of tile i of n along size pixels: the even number nearest to i·size/n.
func edge(i, n, size int) int { return 2 * ((i*size + n) / (2 * n)) }

// Rect returns a tile's rectangle in the picture of one eye, in pixels.
func (g Grid) Rect(tile int) image.Rectangle {
	c, r := tile%g.Columns, tile/g.Columns
	return image.Rect(edge(c, g.Columns, g.Width), edge(r, g.Rows, g.Height), edge(c+1, g.Columns, g.Width),
		edge(r+1, g.Rows, g.Height))
}

// At returns the tile at a point of one eye's picture, in fractions of its width and height.
func (g Grid) At(x, y float64) int {
	return place(y, g.Rows, g.Height)*g.Columns + place(x, g.Columns, g.Width)
}

// place returns which of the n parts of size pixels contains the point at the given fraction of size.
func place(at float64, n, size int) int {
	i := max(0, min(n-1, int(at*float64(n))))
	switch px := at * float64(size); {
	case i > 0 && px < float64(edge(i, n, size)):
		return i - 1
	case i < n-1 && px >= float64(edge(i+1, n, size)):
		return i + 1
	}
	return i
}

// Tile returns the tile that shows a direction.
func (g Grid) Tile(v Vec) int { return g.At(v.Equirect()) }

// SolidAngle returns a tile's solid angle in steradians. The solid angles of all tiles sum to 4π.
func (g Grid) SolidAngle(tile int) float64 {
	r := g.Rect(tile)
	top, bottom := math.Pi*float64(r.Min.Y)/float64(g.Height), math.Pi*float64(r.Max.Y)/float64(g.Height)
	return 2 * math.Pi * float64(r.Dx()) / float64(g.Width) * (math.Cos(top) - math.Cos(bottom))
}

// RowWeight returns the WS-PSNR weight of a pixel row of one eye's picture: the cosine of its
// latitude, which is proportional to the solid angle of a pixel.
func RowWeight(row, height int) float64 {
	return math.Cos((float64(row) + 0.5 - float64(height)/2) * math.Pi / float64(height))
}
