package pointcloud

import "encoding/binary"

// This file implements the specification's planes in plain Go. The C kernels must agree byte for
// byte.

const (
	escape    = 15     // nibble of a residual stored as an escape
	maxCoord  = 0xffff // largest zigzag residual of a depth or coordinate
	maxGreen  = 0xff   // of G
	maxChroma = 1020   // of R−G and B−G, as residuals of differences of bytes
)

// planes holds a frame's planes during encoding or decoding. Nibble planes hold one nibble per byte
// until they are packed; chroma has R−G in the high nibble and B−G in the low one.
type planes struct {
	mask, chroma, escapes []byte
	coord                 [3][]byte // layout A uses the first, for depth
	green                 []byte
	broken                bool // an escape was missing or out of range
}

func (p *planes) appendTo(dst []byte) []byte {
	dst = append(dst, p.mask...)
	for _, plane := range [...][]byte{p.coord[0], p.coord[1], p.coord[2], p.green} {
		for len(plane) > 1 {
			dst = append(dst, plane[0]<<4|plane[1])
			plane = plane[2:]
		}
		if len(plane) == 1 {
			dst = append(dst, plane[0]<<4)
		}
	}
	return append(append(dst, p.chroma...), p.escapes...)
}

// split cuts raw into planes of n points with coords coordinates. It returns false if raw is too
// short.
func (p *planes) split(raw []byte, n, coords int) bool {
	packed := (n + 1) / 2
	if len(raw) < (coords+1)*packed+n {
		return false
	}
	unpack := func() []byte {
		plane := make([]byte, 0, n+1)
		for _, b := range raw[:packed] {
			plane = append(plane, b>>4, b&15)
		}
		raw = raw[packed:]
		return plane
	}
	for i := range coords {
		p.coord[i] = unpack()
	}
	p.green = unpack()
	p.chroma, p.escapes = raw[:n], raw[n:]
	return true
}

func zigzag(v int) int   { return v<<1 ^ v>>63 }
func unzigzag(z int) int { return z>>1 ^ -(z & 1) }

// put returns the nibble of a residual's zigzag z. If necessary it first writes the escape, the
// remainder as a little-endian base-128 varint.
func (p *planes) put(z int) byte {
	if z >= escape {
		p.escapes = binary.AppendUvarint(p.escapes, uint64(z-escape))
	}
	return byte(min(z, escape))
}

// take reverses put; most is the largest valid zigzag.
func (p *planes) take(nibble byte, most int) int {
	if nibble < escape {
		return unzigzag(int(nibble))
	}
	rest, n := binary.Uvarint(p.escapes)
	if n <= 0 || n > 3 || rest > uint64(most-escape) {
		p.broken = true
		return 0
	}
	p.escapes = p.escapes[n:]
	return unzigzag(int(rest) + escape)
}

// done reports whether all planes were consumed exactly.
func (p *planes) done() bool { return !p.broken && len(p.escapes) == 0 }

// putCoord writes a residual mod 2¹⁶ to plane i.
func (p *planes) putCoord(i, residual int) {
	p.coord[i] = append(p.coord[i], p.put(zigzag(int(int16(residual)))))
}

func (p *planes) takeCoord(i, k int) int { return p.take(p.coord[i][k], maxCoord) }

// putColor writes the residuals of R−G, G mod 2⁸ and B−G.
func (p *planes) putColor(rg, g, bg int) {
	high := p.put(zigzag(rg))
	p.green = append(p.green, p.put(zigzag(int(int8(g)))))
	p.chroma = append(p.chroma, high<<4|p.put(zigzag(bg)))
}

// takeColor reads the residuals of R−G, G and B−G of point k.
func (p *planes) takeColor(k int) (rg, g, bg int) {
	rg = p.take(p.chroma[k]>>4, maxChroma)
	g = p.take(p.green[k], maxGreen)
	return rg, g, p.take(p.chroma[k]&15, maxChroma)
}

// pixel is a pixel's value in the predictor: depth, R−G, G and B−G.
type pixel [4]int

// medianEdge is the LOCO-I predictor, per channel: the median of w, n and w+n−nw.
func medianEdge(w, n, nw pixel) pixel {
	var p pixel
	for i := range p {
		p[i] = max(min(w[i], n[i]), min(max(w[i], n[i]), w[i]+n[i]-nw[i]))
	}
	return p
}

// predictValid is medianEdge for one bit.
func predictValid(w, n, nw bool) bool {
	if n != nw {
		return n
	}
	return w
}

// rows iterates over a grid in raster order with the predictors' neighbours. Neighbours above the
// first row are 0; those left of the first column equal the pixel above.
type rows struct {
	above, here   []pixel
	aboveV, hereV []bool
	x             int
}

func newRows(width int) *rows {
	return &rows{
		above: make([]pixel, width), here: make([]pixel, width),
		aboveV: make([]bool, width), hereV: make([]bool, width),
	}
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

// planesToGrid reverses gridPlanes into ph's share of an empty g. It returns false unless raw holds
// the planes of exactly that many points.
func planesToGrid(raw []byte, points int, g *Grid, ph phase) bool {
	width, height := ph.size(g.Width, g.Height)
	wrong := make([]bool, width*height) // mispredicted validity
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
				v[0] = int(uint16(v[0] + p.takeCoord(0, k)))
				rg, green, bg := p.takeColor(k)
				v[1], v[2], v[3] = int(int16(v[1]+rg)), int(uint8(v[2]+green)), int(int16(v[3]+bg))
				k++
				i := (y*ph.step+ph.dy)*g.Width + x*ph.step + ph.dx
				g.Depth[i] = uint16(v[0])
				g.Color[3*i], g.Color[3*i+1], g.Color[3*i+2] = byte(v[1]+v[2]), byte(v[2]), byte(v[3]+v[2])
			}
			r.put(v, valid)
		}
	}
	return k == points && p.done()
}

// pointPlanes appends the layout B planes of ph's share of c to dst.
func pointPlanes(dst []byte, c *Points, ph phase) (raw []byte, points int) {
	var p planes
	var last [6]int
	for i := ph.index; i < len(c.XYZ)/3; i += ph.count {
		g := int(c.RGB[3*i+1])
		here := [6]int{
			int(c.XYZ[3*i]), int(c.XYZ[3*i+1]), int(c.XYZ[3*i+2]),
			int(c.RGB[3*i]) - g, g, int(c.RGB[3*i+2]) - g,
		}
		for axis := range 3 {
			p.putCoord(axis, here[axis]-last[axis])
		}
		p.putColor(here[3]-last[3], here[4]-last[4], here[5]-last[5])
		last = here
		points++
	}
	return p.appendTo(dst), points
}

// planesToPoints reverses pointPlanes; c has exactly the planes' points.
func planesToPoints(raw []byte, c *Points) bool {
	n := len(c.XYZ) / 3
	var p planes
	if !p.split(raw, n, 3) {
		return false
	}
	var v [6]int
	for i := range n {
		for axis := range 3 {
			v[axis] += p.takeCoord(axis, i)
			c.XYZ[3*i+axis] = int16(v[axis])
		}
		rg, g, bg := p.takeColor(i)
		v[3], v[4], v[5] = v[3]+rg, v[4]+g, v[5]+bg
		c.RGB[3*i], c.RGB[3*i+1], c.RGB[3*i+2] = byte(v[3]+v[4]), byte(v[4]), byte(v[5]+v[4])
	}
	return p.done()
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

// deinterleave reverses interleave; raw holds exactly c's points.
func deinterleave(raw []byte, c *Points) bool {
	le := binary.LittleEndian
	for i := range len(c.XYZ) / 3 {
		r := raw[9*i : 9*i+9]
		c.XYZ[3*i], c.XYZ[3*i+1], c.XYZ[3*i+2] = int16(le.Uint16(r)), int16(le.Uint16(r[2:])), int16(le.Uint16(r[4:]))
		copy(c.RGB[3*i:3*i+3], r[6:])
	}
	return true
}
