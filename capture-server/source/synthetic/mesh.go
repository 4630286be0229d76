package synthetic

// cell is the mesh's resolution in metres: about four pixels of a 720p image at the cameras'
// distance.
const cell = 0.012

// The volume in which a performer moves, in metres, and its division into blocks of samples.
const (
	blockSide = 8
	blocksX   = 18
	blocksY   = 23
	blocksZ   = 14
	nx        = blocksX * blockSide
	ny        = blocksY * blockSide
	nz        = blocksZ * blockSide
)

var corner = vec{-nx * cell / 2, -0.04, -nz * cell / 2}

// vertex is a point of the figure's surface.
type vertex struct {
	at     vec // in the studio, metres
	normal vec
	rest   vec // in the rest pose
}

// mesher converts figures to quads by surface nets (Gibson 1998, "Constrained Elastic Surface
// Nets"): one vertex in every cell that the surface crosses, at the mean of the crossings, and one
// quad per crossed grid edge. Buffers are reused.
type mesher struct {
	values []float32 // distance at each sample
	index  []int32   // each cell's vertex, valid if values change sign in the cell
	active []int     // blocks that the surface may cross
	solids [blocksX * blocksY * blocksZ][]int

	vertices []vertex
	quads    [][4]int32
}

func newMesher() *mesher {
	return &mesher{values: make([]float32, nx*ny*nz), index: make([]int32, nx*ny*nz)}
}

func sampleAt(x, y, z int) vec {
	return vec{corner[0] + float32(x)*cell, corner[1] + float32(y)*cell, corner[2] + float32(z)*cell}
}

func sampleIndex(x, y, z int) int { return (y*nz+z)*nx + x }

// mesh sets m.vertices and m.quads to f's surface. Quads are counter-clockwise seen from outside.
func (m *mesher) mesh(f *figure) {
	m.fill(f)
	m.vertices, m.quads = m.vertices[:0], m.quads[:0]
	for _, b := range m.active {
		m.blockVertices(f, b)
	}
	for _, b := range m.active {
		m.blockQuads(b)
	}
}

func blockOrigin(b int) (x, y, z int) {
	return b % blocksX * blockSide, b / (blocksX * blocksZ) * blockSide, b / blocksX % blocksZ * blockSide
}

// halfBlock and halfPart are the distances from the middle of a block, or of an eighth of one, to
// its corners. margin is added to them to find the solids that affect the surface there, since
// blends enlarge solids and an ellipsoid's distance is inexact.
const (
	halfBlock = blockSide * cell * 0.87
	halfPart  = halfBlock / 2
	margin    = 0.045

	// Values are exact within band of the surface, which includes all corners of the cells it
	// crosses. The samples of a 2×2×2 cube are within 0.87 cells of its middle.
	band     = 2 * cell
	pairBand = band + 0.87*cell
)

// fill computes exact distances where the surface may be; elsewhere only their sign matters.
func (m *mesher) fill(f *figure) {
	m.active = m.active[:0]
	all := make([]int, len(f.rest))
	for i := range all {
		all[i] = i
	}
	var part []int
	low, high := f.bounds()
	for b := range m.solids {
		x, y, z := blockOrigin(b)
		first, last := sampleAt(x, y, z), sampleAt(x+blockSide, y+blockSide, z+blockSide)
		if last[0] < low[0] || last[1] < low[1] || last[2] < low[2] || first[0] > high[0] || first[1] > high[1] ||
			first[2] > high[2] {
			m.fillConstant(x, y, z, blockSide, 1)
			continue
		}
		least, near := f.near(all, m.solids[b][:0], middle(x, y, z, blockSide), halfBlock+margin)
		m.solids[b] = near
		if abs(least) > halfBlock+margin {
			m.fillConstant(x, y, z, blockSide, least)
			continue
		}
		m.active = append(m.active, b)
		const side = blockSide / 2
		for k := range 8 {
			px, py, pz := x+k%2*side, y+k/2%2*side, z+k/4*side
			if least, part = f.near(near, part[:0], middle(px, py, pz, side),
				halfPart+margin); abs(least) > halfPart+margin {
				m.fillConstant(px, py, pz, side, least)
				continue
			}
			for pair := range 8 {
				x, y, z := px+pair%2*2, py+pair/2%2*2, pz+pair/4*2
				if d := f.union(part, middle(x, y, z, 2)); abs(d) > pairBand {
					m.fillConstant(x, y, z, 2, d)
					continue
				}
				for _, o := range cube {
					m.values[sampleIndex(x+o[0], y+o[1], z+o[2])] = f.union(part, sampleAt(x+o[0], y+o[1], z+o[2]))
				}
			}
		}
	}
}

func middle(x, y, z, side int) vec {
	h := float32(side-1) / 2 * cell
	return sampleAt(x, y, z).add(vec{h, h, h})
}

func (m *mesher) fillConstant(x0, y0, z0, side int, value float32) {
	for y := y0; y < y0+side; y++ {
		for z := z0; z < z0+side; z++ {
			row := m.values[sampleIndex(x0, y, z):]
			for x := range side {
				row[x] = value
			}
		}
	}
}

// cube lists a cell's corners as offsets, and offsets as distances between samples; edges lists pairs of them.
var (
	offsets = [8]int{0, 1, nz * nx, nz*nx + 1, nx, nx + 1, nz*nx + nx, nz*nx + nx + 1}
	cube    = [8][3]int{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 1, 0}, {0, 0, 1}, {1, 0, 1}, {0, 1, 1}, {1, 1, 1}}
	edges   = [12][2]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {0, 4}, {1, 5}, {2, 6}, {3, 7}}
)

func (m *mesher) blockVertices(f *figure, b int) {
	bx, by, bz := blockOrigin(b)
	for y := by; y < min(by+blockSide, ny-1); y++ {
		for z := bz; z < min(bz+blockSide, nz-1); z++ {
			for x := bx; x < min(bx+blockSide, nx-1); x++ {
				i := sampleIndex(x, y, z)
				if abs(m.values[i]) > band {
					continue
				}
				var v [8]float32
				inside := 0
				for c, o := range offsets {
					v[c] = m.values[i+o]
					if v[c] < 0 {
						inside++
					}
				}
				if inside == 0 || inside == 8 {
					continue
				}
				var at vec
				n := float32(0)
				for _, e := range edges {
					d0, d1 := v[e[0]], v[e[1]]
					if (d0 < 0) == (d1 < 0) {
						continue
					}
					t := d0 / (d0 - d1)
					for k := range 3 {
						at[k] += mix(float32(cube[e[0]][k]), float32(cube[e[1]][k]), t)
					}
					n++
				}
				p := sampleAt(x, y, z).add(at.scale(cell / n))
				// The gradient of the cell's trilinear field at its middle.
				g := vec{
					v[1] + v[3] + v[5] + v[7] - v[0] - v[2] - v[4] - v[6],
					v[2] + v[3] + v[6] + v[7] - v[0] - v[1] - v[4] - v[5],
					v[4] + v[5] + v[6] + v[7] - v[0] - v[1] - v[2] - v[3],
				}
				m.index[i] = int32(len(m.vertices))
				m.vertices = append(m.vertices, vertex{
					at:     p,
					normal: g.scale(1 / max(g.length(), 1e-9)),
					rest:   f.material(m.solids[b], p),
				})
			}
		}
	}
}

func (m *mesher) blockQuads(b int) {
	bx, by, bz := blockOrigin(b)
	stride := [3]int{1, nz * nx, nx} // of x, y, z
	for y := max(by, 1); y < min(by+blockSide, ny-1); y++ {
		for z := max(bz, 1); z < min(bz+blockSide, nz-1); z++ {
			for x := max(bx, 1); x < min(bx+blockSide, nx-1); x++ {
				i := sampleIndex(x, y, z)
				out := m.values[i] >= 0
				for axis := range 3 {
					if out == (m.values[i+stride[axis]] >= 0) {
						continue
					}
					// The four cells that share the edge.
					s, t := stride[(axis+1)%3], stride[(axis+2)%3]
					q := [4]int32{m.index[i-s-t], m.index[i-t], m.index[i], m.index[i-s]}
					if out {
						q[1], q[3] = q[3], q[1]
					}
					m.quads = append(m.quads, q)
				}
			}
		}
	}
}
