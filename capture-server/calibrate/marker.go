package calibrate

import (
	"cmp"
	"image"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// A LiveScan3D marker is a black square of side 2 on white, extended downwards to 5/3 below its
// middle with a notch that reaches up to the square's lower edge. The square contains 3×3 cells of
// side 0.4, black or white. Row by row, the first four are the bits of the ID, highest first; the
// next four are their complements; the last is white if the ID has an even number of ones.
//
// outline lists the corners from the notch on, clockwise seen from the front, x right, y down, in
// units of half the square's side.
var outline = [5][2]float64{{0, 1}, {-1, 5. / 3}, {-1, -1}, {1, -1}, {1, 5. / 3}}

// marker is a marker found in an image.
type marker struct {
	id      int
	corners [5][2]float64 // pixels, in the order of outline
	area    float64       // pixels
}

// findMarkers returns the markers in a grey image, only the largest one for each ID. It tries
// several thresholds, as studios are unevenly lit.
func findMarkers(img *image.Gray) []marker {
	var found []marker
	for threshold := 50; threshold <= 170; threshold += 20 {
		for _, contour := range darkContours(img, uint8(threshold)) {
			corners, ok := fiveCorners(contour)
			if !ok {
				continue
			}
			if id, ok := readCode(img, corners, float64(threshold)); ok {
				found = append(found, marker{id: id, corners: corners, area: area(corners[:])})
			}
		}
	}
	slices.SortFunc(found, func(a, b marker) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(b.area, a.area))
	})
	return slices.CompactFunc(found, func(a, b marker) bool { return a.id == b.id })
}

const (
	minRegion = 200 // pixels; smaller markers are illegible
	maxShare  = 8   // regions larger than 1/8 of the image are not markers
)

// darkContours returns the clockwise outer contours of the 4-connected regions darker than
// threshold that do not touch the image border.
func darkContours(img *image.Gray, threshold uint8) [][][2]float64 {
	w, h := img.Rect.Dx(), img.Rect.Dy()
	seen := make([]bool, w*h)
	var contours [][][2]float64
	var stack []int
	for start := range seen {
		if seen[start] || img.Pix[start/w*img.Stride+start%w] >= threshold {
			continue
		}
		// Flood fill; start is the topmost, then leftmost pixel of the region.
		size, rim := 0, false
		seen[start] = true
		stack = append(stack[:0], start)
		for len(stack) > 0 {
			i := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			size++
			x, y := i%w, i/w
			if x == 0 || y == 0 || x == w-1 || y == h-1 {
				rim = true
				continue
			}
			for _, k := range [4]int{i - 1, i + 1, i - w, i + w} {
				if !seen[k] && img.Pix[k/w*img.Stride+k%w] < threshold {
					seen[k] = true
					stack = append(stack, k)
				}
			}
		}
		if rim || size < minRegion || size > w*h/maxShare {
			continue
		}
		contours = append(contours, trace(img, threshold, start%w, start/w))
	}
	return contours
}

// trace follows a region's outer contour clockwise (Moore neighbour tracing).
func trace(img *image.Gray, threshold uint8, x0, y0 int) [][2]float64 {
	ring := [8][2]int{{1, 0}, {1, 1}, {0, 1}, {-1, 1}, {-1, 0}, {-1, -1}, {0, -1}, {1, -1}}
	dark := func(x, y int) bool {
		return x >= 0 && y >= 0 && x < img.Rect.Dx() && y < img.Rect.Dy() && img.Pix[y*img.Stride+x] < threshold
	}
	contour := [][2]float64{{float64(x0), float64(y0)}}
	x, y, from := x0, y0, 6 // entered from above
	first := -1
	for range 4 * (img.Rect.Dx() + img.Rect.Dy()) {
		next := -1
		for k := 1; k <= 8; k++ {
			d := (from + k) % 8
			if dark(x+ring[d][0], y+ring[d][1]) {
				next = d
				break
			}
		}
		if next < 0 || x == x0 && y == y0 && next == first {
			break
		}
		if first < 0 {
			first = next
		}
		x, y = x+ring[next][0], y+ring[next][1]
		contour = append(contour, [2]float64{float64(x), float64(y)})
		from = (next + 4) % 8
	}
	return contour
}

// fiveCorners reduces a contour to five corners with one notch, in outline's order.
func fiveCorners(contour [][2]float64) (corners [5][2]float64, ok bool) {
	size := math.Sqrt(math.Abs(area(contour)))
	polygon := simplify(contour, 0.08*size)
	if len(polygon) != 5 {
		return corners, false
	}
	notch := -1
	for i := range polygon {
		a, b, c := polygon[(i+4)%5], polygon[i], polygon[(i+1)%5]
		if cross(a, b, c) < 0 { // a left turn in a clockwise polygon
			if notch >= 0 {
				return corners, false
			}
			notch = i
		}
	}
	if notch < 0 {
		return corners, false
	}
	for i := range corners {
		corners[i] = polygon[(notch+i)%5]
	}
	return corners, true
}

func cross(a, b, c [2]float64) float64 {
	return (b[0]-a[0])*(c[1]-b[1]) - (b[1]-a[1])*(c[0]-b[0])
}

// area returns a polygon's area, positive if clockwise in the image.
func area(p [][2]float64) float64 {
	var sum float64
	for i := range p {
		q := p[(i+1)%len(p)]
		sum += p[i][0]*q[1] - p[i][1]*q[0]
	}
	return sum / 2
}

// simplify reduces a closed contour to a polygon within tolerance pixels of it (Douglas–Peucker). It
// returns nil for a contour of fewer than 8 points.
func simplify(contour [][2]float64, tolerance float64) [][2]float64 {
	if len(contour) < 8 {
		return nil
	}
	// Split at two far-apart points, which are corners of any polygon around them.
	far := func(from [2]float64) int {
		best, at := -1.0, 0
		for i, p := range contour {
			if d := math.Hypot(p[0]-from[0], p[1]-from[1]); d > best {
				best, at = d, i
			}
		}
		return at
	}
	a := far(contour[0])
	b := far(contour[a])
	if a > b {
		a, b = b, a
	}
	var polygon [][2]float64
	var reduce func(part [][2]float64)
	reduce = func(part [][2]float64) { // appends all points but the last
		p, q := part[0], part[len(part)-1]
		length := math.Hypot(q[0]-p[0], q[1]-p[1])
		best, at := 0.0, 0
		for i := 1; i < len(part)-1; i++ {
			d := math.Abs((q[0]-p[0])*(part[i][1]-p[1])-(q[1]-p[1])*(part[i][0]-p[0])) / max(length, 1e-9)
			if d > best {
				best, at = d, i
			}
		}
		if best <= tolerance {
			polygon = append(polygon, p)
			return
		}
		reduce(part[:at+1])
		reduce(part[at:])
	}
	reduce(contour[a : b+1])
	reduce(append(append([][2]float64{}, contour[b:]...), contour[:a+1]...))
	return polygon
}

// readCode reads the cells of a marker.
func readCode(img *image.Gray, corners [5][2]float64, threshold float64) (id int, ok bool) {
	toImage, ok := homography(outline[:], corners[:])
	if !ok {
		return 0, false
	}
	var white [9]bool
	for cell := range white {
		cx, cy := 0.4*float64(cell%3-1), 0.4*float64(cell/3-1)
		var sum float64
		for _, dy := range [3]float64{-0.1, 0, 0.1} {
			for _, dx := range [3]float64{-0.1, 0, 0.1} {
				v, ok := bilinear(img, toImage.apply(cx+dx, cy+dy))
				if !ok {
					return 0, false
				}
				sum += v
			}
		}
		white[cell] = sum/9 >= threshold
	}
	even := true
	for i := range 4 {
		if white[i] == white[i+4] {
			return 0, false
		}
		if id *= 2; white[i] {
			id++
			even = !even
		}
	}
	return id, white[8] == even
}

func bilinear(img *image.Gray, p [2]float64) (float64, bool) {
	x, y := math.Floor(p[0]), math.Floor(p[1])
	if !(x >= 0 && y >= 0 && x < float64(img.Rect.Dx()-1) && y < float64(img.Rect.Dy()-1)) {
		return 0, false
	}
	i, fx, fy := int(y)*img.Stride+int(x), p[0]-x, p[1]-y
	top := float64(img.Pix[i])*(1-fx) + float64(img.Pix[i+1])*fx
	low := float64(img.Pix[i+img.Stride])*(1-fx) + float64(img.Pix[i+img.Stride+1])*fx
	return top*(1-fy) + low*fy, true
}

// projective is a plane homography; its ninth element is 1.
type projective [8]float64

func (h *projective) apply(x, y float64) [2]float64 {
	w := h[6]*x + h[7]*y + 1
	return [2]float64{(h[0]*x + h[1]*y + h[2]) / w, (h[3]*x + h[4]*y + h[5]) / w}
}

// homography returns the least-squares plane homography from the points in from to those in to.
func homography(from, to [][2]float64) (h projective, ok bool) {
	a, b := mat.NewDense(2*len(from), 8, nil), mat.NewVecDense(2*len(from), nil)
	for i, p := range from {
		x, y, u, v := p[0], p[1], to[i][0], to[i][1]
		a.SetRow(2*i, []float64{x, y, 1, 0, 0, 0, -u * x, -u * y})
		a.SetRow(2*i+1, []float64{0, 0, 0, x, y, 1, -v * x, -v * y})
		b.SetVec(2*i, u)
		b.SetVec(2*i+1, v)
	}
	var x mat.VecDense
	if err := x.SolveVec(a, b); err != nil {
		return h, false
	}
	copy(h[:], x.RawVector().Data)
	return h, true
}

// edgeLines returns the lines of the marker's five sides, from each corner to the next, as a·x +
// b·y = c in the coordinates of undistort (normalised lens coordinates, in which straight sides are
// straight). It looks for the steepest change of brightness across each side.
func edgeLines(
	img *image.Gray,
	m marker,
	undistort func(u, v float64) (x, y float64, ok bool),
) (lines [5][3]float64, ok bool) {
	const (
		samples = 40
		reach   = 3.0 // pixels on each side of an edge
		grain   = 0.25
	)
	for side := range lines {
		p, q := m.corners[side], m.corners[(side+1)%5]
		length := math.Hypot(q[0]-p[0], q[1]-p[1])
		nx, ny := (q[1]-p[1])/length, -(q[0]-p[0])/length
		var points [][2]float64
		for s := range samples {
			t := 0.12 + 0.76*float64(s)/(samples-1) // skip the rounded corners
			x, y := p[0]+t*(q[0]-p[0]), p[1]+t*(q[1]-p[1])
			var weight, sum float64
			for o := -reach; o <= reach; o += grain {
				in, ok1 := bilinear(img, [2]float64{x + (o-0.5)*nx, y + (o-0.5)*ny})
				out, ok2 := bilinear(img, [2]float64{x + (o+0.5)*nx, y + (o+0.5)*ny})
				if !ok1 || !ok2 {
					return lines, false
				}
				step := math.Abs(out - in)
				weight += step * step
				sum += step * step * o
			}
			if weight == 0 {
				continue
			}
			o := sum / weight
			if a, b, ok := undistort(x+o*nx, y+o*ny); ok {
				points = append(points, [2]float64{a, b})
			}
		}
		if len(points) < samples/2 {
			return lines, false
		}
		lines[side] = fitLine(points)
	}
	return lines, true
}

// fitLine fits a line by total least squares, then fits it again without the farthest fifth of the
// points.
func fitLine(points [][2]float64) (line [3]float64) {
	for range 2 {
		var mx, my, xx, xy, yy float64
		n := float64(len(points))
		for _, p := range points {
			mx, my = mx+p[0]/n, my+p[1]/n
		}
		for _, p := range points {
			dx, dy := p[0]-mx, p[1]-my
			xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
		}
		angle := 0.5 * math.Atan2(2*xy, xx-yy) // direction of the line
		a, b := -math.Sin(angle), math.Cos(angle)
		line = [3]float64{a, b, a*mx + b*my}
		slices.SortFunc(points, func(p, q [2]float64) int {
			return cmp.Compare(math.Abs(a*p[0]+b*p[1]-line[2]), math.Abs(a*q[0]+b*q[1]-line[2]))
		})
		points = points[:len(points)*4/5]
	}
	return line
}

// meet returns the intersection of two lines.
func meet(l, m [3]float64) (p [2]float64, ok bool) {
	det := l[0]*m[1] - l[1]*m[0]
	if math.Abs(det) < 1e-6 {
		return p, false
	}
	return [2]float64{(l[2]*m[1] - l[1]*m[2]) / det, (l[0]*m[2] - l[2]*m[0]) / det}, true
}
