package tile360

import "math"

// Viewport is a viewer's field of view: a rectilinear projection around the gaze.
type Viewport struct {
	Width, Height float64 // angles between opposite edges, radians, below π
}

// Degrees returns a viewport with angles in degrees.
func Degrees(width, height float64) Viewport {
	return Viewport{width * math.Pi / 180, height * math.Pi / 180}
}

// ray is the direction of a point of the viewport in eye space (z = 1), and the solid angle there
// relative to that at the centre.
type ray struct{ x, y, weight float64 }

// rays returns the centres of columns×rows cells of the viewport, row by row from the top
// left.
func (p Viewport) rays(columns, rows int) []ray {
	tx, ty := math.Tan(p.Width/2), math.Tan(p.Height/2)
	rays := make([]ray, 0, columns*rows)
	for r := range rows {
		y := ty * (1 - (2*float64(r)+1)/float64(rows))
		for c := range columns {
			x := tx * ((2*float64(c)+1)/float64(columns) - 1)
			d := 1 + x*x + y*y
			rays = append(rays, ray{x, y, 1 / (d * math.Sqrt(d))})
		}
	}
	return rays
}

// Each calls visit with the directions of columns×rows points of a viewport along gaze, row by row
// from the top left, and each point's share of the viewport's solid angle.
func (p Viewport) Each(gaze Vec, columns, rows int, visit func(v Vec, share float64)) {
	rays := p.rays(columns, rows)
	sum := 0.0
	for _, r := range rays {
		sum += r.weight
	}
	right, up := gaze.frame()
	for _, r := range rays {
		visit(Vec{
			gaze.X + r.x*right.X + r.y*up.X,
			gaze.Y + r.x*right.Y + r.y*up.Y,
			gaze.Z + r.x*right.Z + r.y*up.Z,
		}.Unit(), r.weight/sum)
	}
}

// View computes which tiles of a grid are visible in a viewport. It is not safe for concurrent use.
type View struct {
	Grid Grid
	rays []ray // weights sum to 1
	one  []float64
}

// NewView prepares a View. It samples the viewport at samples×samples points; 16 give shares
// accurate to about two percent of the viewport.
func NewView(g Grid, p Viewport, samples int) *View {
	v := &View{Grid: g, rays: p.rays(samples, samples), one: make([]float64, g.Tiles())}
	var sum float64
	for _, r := range v.rays {
		sum += r.weight
	}
	for i := range v.rays {
		v.rays[i].weight /= sum
	}
	return v
}

// Shares sets shares, one per tile, to the share of the viewport's solid angle that the tile fills
// along gaze. They sum to 1.
func (v *View) Shares(gaze Vec, shares []float64) {
	clear(shares)
	v.add(gaze, 1, shares)
}

func (v *View) add(gaze Vec, p float64, shares []float64) {
	right, up := gaze.frame()
	for _, r := range v.rays {
		d := Vec{
			gaze.X + r.x*right.X + r.y*up.X,
			gaze.Y + r.x*right.Y + r.y*up.Y,
			gaze.Z + r.x*right.Z + r.y*up.Z,
		}.Unit()
		shares[v.Grid.At(d.Equirect())] += p * r.weight
	}
}

// Look is a possible gaze and its probability.
type Look struct {
	Gaze Vec
	P    float64
}

// Expect computes the expected visibility for several possible gazes. It sets share, one per tile, to
// the expected share of the viewport, that is the probability that a point of the viewport lies in
// the tile. The shares sum to the total probability of looks, usually 1. It sets seen to the
// probability that any of the tile is visible. Either may be nil.
func (v *View) Expect(looks []Look, share, seen []float64) {
	clear(share)
	clear(seen)
	for _, l := range looks {
		clear(v.one)
		v.add(l.Gaze, 1, v.one)
		for t, s := range v.one {
			if share != nil {
				share[t] += l.P * s
			}
			if seen != nil && s > 0 {
				seen[t] += l.P
			}
		}
	}
}
