package pointcloud

import "encoding/binary"

// This file is the specification's planes in plain Go. The C kernels must agree
// with it byte by byte.

const (
	escape  = 255 // depth or coordinate residual that goes to the escape planes
	nibble  = 15  // chroma residual that goes to the escape planes
	maxDiff = 510 // largest chroma residual: two differences of bytes
)

// planes is a frame's planes while they are made or undone.
type planes struct {
	mask           []byte
	coord          [3][]byte // layout A uses the first for depth
	green, chroma  []byte
	coordLo        []byte
	coordHi        []byte
	chromaLo       []byte
	chromaHi       []byte
	coordAt, escAt int // read positions in the escape planes
}

func (p *planes) appendTo(dst []byte) []byte {
	for _, s := range [...][]byte{p.mask, p.coord[0], p.coord[1], p.coord[2], p.green, p.chroma,
		p.coordLo, p.coordHi, p.chromaLo, p.chromaHi} {
		dst = append(dst, s...)
	}
	return dst
}

// split cuts raw into planes of n points, coords of them holding coordinates.
// It reports false where raw has any other length than its escapes ask for.
func (p *planes) split(raw []byte, n, coords int) bool {
	if len(raw) < (coords+2)*n {
		return false
	}
	take := func(n int) []byte {
		s := raw[:n]
		raw = raw[n:]
		return s
	}
	escapes := 0
	for i := range coords {
		p.coord[i] = take(n)
		for _, b := range p.coord[i] {
			if b == escape {
				escapes++
			}
		}
	}
	p.green, p.chroma = take(n), take(n)
	chromaEscapes := 0
	for _, b := range p.chroma {
		if b>>4 == nibble {
			chromaEscapes++
		}
		if b&15 == nibble {
			chromaEscapes++
		}
	}
	if len(raw) != 2*escapes+2*chromaEscapes {
		return false
	}
	p.coordLo, p.coordHi = take(escapes), take(escapes)
	p.chromaLo, p.chromaHi = take(chromaEscapes), take(chromaEscapes)
	return true
}

func zigzag(v int) int   { return v<<1 ^ v>>63 }
func unzigzag(v int) int { return v>>1 ^ -(v & 1) }

// putCoord writes a residual mod 2¹⁶ to plane i.
func (p *planes) putCoord(i, residual int) {
	z := zigzag(int(int16(residual)))
	p.coord[i] = append(p.coord[i], byte(min(z, escape)))
	if z >= escape {
		p.coordLo = append(p.coordLo, byte(z))
		p.coordHi = append(p.coordHi, byte(z>>8))
	}
}

func (p *planes) takeCoord(i, k int) int {
	z := int(p.coord[i][k])
	if z == escape {
		z = int(p.coordLo[p.coordAt]) | int(p.coordHi[p.coordAt])<<8
		p.coordAt++
	}
	return unzigzag(z)
}

// putColor writes the residuals of R−G, G and B−G.
func (p *planes) putColor(rg, g, bg int) {
	p.green = append(p.green, byte(zigzag(int(int8(g)))))
	zr, zb := zigzag(rg), zigzag(bg)
	p.chroma = append(p.chroma, byte(min(zr, nibble)<<4|min(zb, nibble)))
	for _, z := range [...]int{zr, zb} {
		if z >= nibble {
			p.chromaLo = append(p.chromaLo, byte(z-nibble))
			p.chromaHi = append(p.chromaHi, byte((z-nibble)>>8))
		}
	}
}

// takeColor reads the residuals of R−G, G and B−G of point k; it reports false
// where one is out of range.
func (p *planes) takeColor(k int) (rg, g, bg int, ok bool) {
	z := [2]int{int(p.chroma[k] >> 4), int(p.chroma[k] & 15)}
	for i := range z {
		if z[i] == nibble {
			z[i] += int(p.chromaLo[p.escAt]) | int(p.chromaHi[p.escAt])<<8
			p.escAt++
			if z[i] > 2*maxDiff {
				return 0, 0, 0, false
			}
		}
	}
	return unzigzag(z[0]), unzigzag(int(p.green[k])), unzigzag(z[1]), true
}

// pixel is what the predictor sees of a pixel: depth, R−G, G and B−G.
type pixel [4]int

// medianEdge is the LOCO-I predictor of each channel: the median of w, n and
// w+n−nw.
func medianEdge(w, n, nw pixel) pixel {
	var p pixel
	for i := range p {
		p[i] = max(min(w[i], n[i]), min(max(w[i], n[i]), w[i]+n[i]-nw[i]))
	}
	return p
}

// predictValid is medianEdge of one bit.
func predictValid(w, n, nw bool) bool {
	if n != nw {
		return n
	}
	return w
}

// rows walks a grid in raster order with the neighbours that the predictors
// need: outside the first row everything is 0, left of the first column stands
// the pixel above.
type rows struct {
	above, here   []pixel
	aboveV, hereV []bool
	x             int
}

func newRows(width int) *rows {
	return &rows{above: make([]pixel, width), here: make([]pixel, width),
		aboveV: make([]bool, width), hereV: make([]bool, width)}
}

func (r *rows) predict() (pixel, bool) {
	x := r.x
	n, nv := r.above[x], r.aboveV[x]
	w, nw, wv, nwv := n, n, nv, nv
	if x > 0 {
		w, nw, wv, nwv = r.here[x-1], r.above[x-1], r.hereV[x-1], r.aboveV[x-1]
	}
	return medianEdge(w, n, nw), predictValid(wv, nv, nwv)
}

func (r *rows) put(p pixel, valid bool) {
	r.here[r.x], r.hereV[r.x] = p, valid
	if r.x++; r.x == len(r.here) {
		r.x = 0
		r.above, r.here = r.here, r.above
		r.aboveV, r.hereV = r.hereV, r.aboveV
	}
}

// gridPlanes appends the planes of ph's share of g to dst.
func gridPlanes(dst []byte, g *Grid, ph phase) (raw []byte, points int) {
	width, height := ph.size(g.Width, g.Height)
	var p planes
	r := newRows(width)
	gap := 0
	flush := func() {
		for ; gap >= 255; gap -= 255 {
			p.mask = append(p.mask, 255)
		}
		p.mask = append(p.mask, byte(gap))
		gap = 0
	}
	for y := range height {
		for x := range width {
			i := (y*ph.step+ph.dy)*g.Width + x*ph.step + ph.dx
			pred, predValid := r.predict()
			valid := g.Depth[i] != 0
			if valid == predValid {
				gap++
			} else {
				flush()
			}
			v := pred
			if valid {
				points++
				green := int(g.Color[3*i+1])
				v = pixel{int(g.Depth[i]), int(g.Color[3*i]) - green, green, int(g.Color[3*i+2]) - green}
				p.putCoord(0, v[0]-pred[0])
				p.putColor(v[1]-pred[1], v[2]-pred[2], v[3]-pred[3])
			}
			r.put(v, valid)
		}
	}
	flush()
	return p.appendTo(dst), points
}

// planesToGrid undoes gridPlanes into ph's share of g, which is empty before. It
// reports false where raw is not the planes of so many points.
func planesToGrid(raw []byte, points int, g *Grid, ph phase) bool {
	width, height := ph.size(g.Width, g.Height)
	wrong := make([]bool, width*height) // where the validity was mispredicted
	at := 0
	for pos := 0; ; {
		if at == len(raw) {
			return false
		}
		b := int(raw[at])
		at++
		if pos += b; pos > width*height {
			return false
		}
		if b == 255 {
			continue
		}
		if pos == width*height {
			break
		}
		wrong[pos] = true
		pos++
	}
	var p planes
	if !p.split(raw[at:], points, 1) {
		return false
	}
	r := newRows(width)
	k := 0
	for y := range height {
		for x := range width {
			v, valid := r.predict()
			if wrong[y*width+x] {
				valid = !valid
			}
			if valid {
				if k == points {
					return false
				}
				rg, green, bg, ok := p.takeColor(k)
				if !ok {
					return false
				}
				v[0] = int(uint16(v[0] + p.takeCoord(0, k)))
				v[1], v[2], v[3] = v[1]+rg, int(uint8(v[2]+green)), v[3]+bg
				k++
				i := (y*ph.step+ph.dy)*g.Width + x*ph.step + ph.dx
				g.Depth[i] = uint16(v[0])
				g.Color[3*i], g.Color[3*i+1], g.Color[3*i+2] = byte(v[1]+v[2]), byte(v[2]), byte(v[3]+v[2])
			}
			r.put(v, valid)
		}
	}
	return k == points
}

// pointPlanes appends the layout B planes of ph's share of c to dst.
func pointPlanes(dst []byte, c *Points, ph phase) (raw []byte, points int) {
	var p planes
	var last [6]int
	for axis := range 3 { // one axis after the other, as their escapes are stored
		for i := ph.index; i < len(c.XYZ)/3; i += ph.count {
			v := int(c.XYZ[3*i+axis])
			p.putCoord(axis, v-last[axis])
			last[axis] = v
		}
	}
	for i := ph.index; i < len(c.XYZ)/3; i += ph.count {
		g := int(c.RGB[3*i+1])
		rg, bg := int(c.RGB[3*i])-g, int(c.RGB[3*i+2])-g
		p.putColor(rg-last[3], g-last[4], bg-last[5])
		last[3], last[4], last[5] = rg, g, bg
		points++
	}
	return p.appendTo(dst), points
}

// planesToPoints undoes pointPlanes; c has room for exactly the planes' points.
func planesToPoints(raw []byte, c *Points) bool {
	n := len(c.XYZ) / 3
	var p planes
	if !p.split(raw, n, 3) {
		return false
	}
	for axis := range 3 {
		v := 0
		for i := range n {
			v += p.takeCoord(axis, i)
			c.XYZ[3*i+axis] = int16(v)
		}
	}
	var rg, g, bg int
	for i := range n {
		drg, dg, dbg, ok := p.takeColor(i)
		if !ok {
			return false
		}
		rg, g, bg = rg+drg, g+dg, bg+dbg
		c.RGB[3*i], c.RGB[3*i+1], c.RGB[3*i+2] = byte(rg+g), byte(g), byte(bg+g)
	}
	return true
}

// interleave appends the layout C records of ph's share of c to dst.
func interleave(dst []byte, c *Points, ph phase) (raw []byte, points int) {
	le := binary.LittleEndian
	for i := ph.index; i < len(c.XYZ)/3; i += ph.count {
		dst = le.AppendUint16(dst, uint16(c.XYZ[3*i]))
		dst = le.AppendUint16(dst, uint16(c.XYZ[3*i+1]))
		dst = le.AppendUint16(dst, uint16(c.XYZ[3*i+2]))
		dst = append(dst, c.RGB[3*i:3*i+3]...)
		points++
	}
	return dst, points
}

// deinterleave undoes interleave; raw holds exactly c's points.
func deinterleave(raw []byte, c *Points) {
	le := binary.LittleEndian
	for i := range len(c.XYZ) / 3 {
		r := raw[9*i : 9*i+9]
		c.XYZ[3*i], c.XYZ[3*i+1], c.XYZ[3*i+2] = int16(le.Uint16(r)), int16(le.Uint16(r[2:])), int16(le.Uint16(r[4:]))
		copy(c.RGB[3*i:3*i+3], r[6:])
	}
}
