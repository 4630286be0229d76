package synthetic

// cell is the mesh's resolution, metres: about four pixels of a 720p image at the
// distance the cameras stand.
const cell = 0.012

// The volume a performer moves in, metres, and its division into blocks of samples.
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
	rest   vec // where it is in the rest pose: what it is made of
}

// mesher turns figures into triangles by surface nets (Gibson 1998, "Constrained
// Elastic Surface Nets"): one vertex in every cell the surface crosses, at the mean
// of the crossings; one quad for every grid edge it crosses. Buffers are reused.
type mesher struct {
	values []float32 // distance at each sample
	index  []int32   // vertex of each cell, valid where values change sign
	active []int     // blocks the surface may cross
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

// mesh leaves f's surface in m.vertices and m.quads, the latter counter-clockwise
// seen from outside.
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

// fill computes distances where the surface may be; elsewhere only their sign
// matters.
func (m *mesher) fill(f *figure) {
	const (
		half  = blockSide * cell * 0.87 // from a block's centre to its corner
		reach = half*1.4 + 0.07         // distances are not exact, blends add to shapes
	)
	m.active = m.active[:0]
	for b := range m.solids {
		bx, by, bz := blockOrigin(b)
		center := sampleAt(bx, by, bz).add(vec{cell * 3.5, cell * 3.5, cell * 3.5})
		near := m.solids[b][:0]
		least := float32(1e9)
		for i := range f.rest {
			d := f.distance(i, center)
			least = min(least, d)
			if d < reach {
				near = append(near, i)
			}
		}
		m.solids[b] = near
		if least > reach || least < -half*1.4 {
			m.fillBlock(bx, by, bz, func(vec) float32 { return least })
			continue
		}
		m.active = append(m.active, b)
		m.fillBlock(bx, by, bz, func(p vec) float32 { return f.union(near, p) })
	}
}

func (m *mesher) fillBlock(bx, by, bz int, value func(vec) float32) {
	for y := by; y < by+blockSide; y++ {
		for z := bz; z < bz+blockSide; z++ {
			row := sampleIndex(bx, y, z)
			for x := range blockSide {
				m.values[row+x] = value(sampleAt(bx+x, y, z))
			}
		}
	}
}

// cube lists a cell's corners as offsets; edges pairs of them.
var (
	cube  = [8][3]int{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 1, 0}, {0, 0, 1}, {1, 0, 1}, {0, 1, 1}, {1, 1, 1}}
	edges = [12][2]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {0, 4}, {1, 5}, {2, 6}, {3, 7}}
)

func (m *mesher) blockVertices(f *figure, b int) {
	bx, by, bz := blockOrigin(b)
	for y := by; y < min(by+blockSide, ny-1); y++ {
		for z := bz; z < min(bz+blockSide, nz-1); z++ {
			for x := bx; x < min(bx+blockSide, nx-1); x++ {
				var v [8]float32
				inside := 0
				for c, o := range cube {
					v[c] = m.values[sampleIndex(x+o[0], y+o[1], z+o[2])]
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
				m.index[sampleIndex(x, y, z)] = int32(len(m.vertices))
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
					// The four cells around the edge.
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
