package synthetic

import (
	"math"
	"math/rand/v2"

	"holocast/internal/camera"
)

// view renders the image of one lens. The static background is ray-cast once. The figure is drawn
// over it as triangles whose vertices go through the lens model; with triangles of a few pixels
// this equals ray casting.
type view struct {
	in     camera.Intrinsics
	toLens camera.Transform // from studio space, mm
	depth  []float32        // depth of the background, metres; 0 = no background
	facing []float32        // cosine of incidence on the background
	color  []byte           // background R G B; nil for a depth camera's view
	floor  []floorPixel
}

// floorPixel is a pixel of the floor that the performer may shadow.
type floorPixel struct {
	index int
	x, z  float32
}

// canvas holds one goroutine's drawing buffers.
type canvas struct {
	depth  []float32
	facing []float32
	rgb    []byte
	screen []screenVertex
}

type screenVertex struct {
	u, v, z float32 // u and v in pixels, z in metres; z is 0 if the lens does not see the vertex
	facing  float32
	light   rgb
}

func newView(in camera.Intrinsics, rays camera.RayTable, pose camera.Transform, room, color bool) *view {
	n := in.Width * in.Height
	v := &view{in: in, toLens: pose.Inverse(), depth: make([]float32, n), facing: make([]float32, n)}
	if color {
		v.color = make([]byte, 3*n)
	}
	eye := vec{float32(pose.T[0] / 1000), float32(pose.T[1] / 1000), float32(pose.T[2] / 1000)}
	turn := camera.Transform{R: pose.R}
	for i := range n {
		w := turn.Apply([3]float64{float64(rays.X[i]), float64(rays.Y[i]), 1})
		dir := vec{float32(w[0]), float32(w[1]), float32(w[2])}
		var c rgb
		v.depth[i], v.facing[i], c = cast(eye, dir, room)
		if !color {
			continue
		}
		for k := range 3 {
			v.color[3*i+k] = encode(c[k])
		}
		if p := eye.add(dir.scale(v.depth[i])); v.depth[i] > 0 && p[1] < 0.001 && p[0]*p[0]+p[2]*p[2] < 1.2*1.2 {
			v.floor = append(v.floor, floorPixel{i, p[0], p[2]})
		}
	}
	return v
}

// cast returns the distance to the background from eye along dir, the cosine of incidence and the
// background's colour. dir has length 1 along the lens's axis, so the distance is a depth.
func cast(eye, dir vec, room bool) (t, cos float32, c rgb) {
	const (
		side   = 2.6 // half a room's width
		height = 2.9
	)
	length := dir.length()
	if dir[1] < 0 {
		t = -eye[1] / dir[1]
		p := eye.add(dir.scale(t))
		if inRoom := room && abs(p[0]) < side && abs(p[2]) < side; inRoom ||
			p[0]*p[0]+p[2]*p[2] < stageRadius*stageRadius {
			return t, -dir[1] / length, floorColor(p[0], p[2]).scale(0.8 + 0.2*step(2.2, 0, sqrt(p[0]*p[0]+p[2]*p[2])))
		}
	}
	if !room {
		// A black curtain, without depth readings.
		up := clamp01(0.5 + 0.5*dir[1]/length)
		return 0, 0, rgb{0.012 + 0.02*up, 0.014 + 0.024*up, 0.02 + 0.034*up}
	}
	best, axis := float32(math.Inf(1)), 0
	for k, half := range []float32{side, height, side} {
		wall := half
		if dir[k] < 0 {
			wall = -half
			if k == 1 {
				wall = 0
			}
		}
		if d := (wall - eye[k]) / dir[k]; d > 0 && d < best {
			best, axis = d, k
		}
	}
	p := eye.add(dir.scale(best))
	c = plaster
	switch {
	case axis == 1:
		c = c.scale(1.1)
	case p[1] < 0.1:
		c = c.scale(0.4) // skirting board
	default:
		along := p[0] + p[2]
		if f := along/0.65 - floor(along/0.65); f < 0.012 {
			c = c.scale(0.6) // panels
		}
		c = blend(c, accent, step(1.02, 1.0, p[1])*0.25)
	}
	c = c.scale((0.55 + 0.35*clamp01(p[1]/height)) * (1 + 0.04*noise(p[0]*7, p[1]*7, p[2]*7)))
	return best, abs(dir[axis]) / length, c
}

// project projects the mesh's vertices into the image.
func (v *view) project(c *canvas, vertices []vertex) {
	c.screen = c.screen[:0]
	eye := v.toLens.Inverse().T
	for i := range vertices {
		p := &vertices[i]
		q := v.toLens.Apply([3]float64{1000 * float64(p.at[0]), 1000 * float64(p.at[1]), 1000 * float64(p.at[2])})
		px, py, ok := v.in.Project(q)
		s := screenVertex{u: float32(px), v: float32(py)}
		if ok {
			s.z = float32(q[2] / 1000)
			toEye := vec{float32(eye[0]/1000) - p.at[0], float32(eye[1]/1000) - p.at[1], float32(eye[2]/1000) - p.at[2]}
			s.facing = p.normal.dot(toEye) / toEye.length()
			if v.color != nil {
				s.light = light(p.normal, p.at)
			}
		}
		c.screen = append(c.screen, s)
	}
}

// draw renders the mesh over the background.
func (v *view) draw(c *canvas, m *mesher) {
	n := v.in.Width * v.in.Height
	if cap(c.depth) < n {
		c.depth, c.facing = make([]float32, n), make([]float32, n)
	}
	c.depth, c.facing = c.depth[:n], c.facing[:n]
	copy(c.depth, v.depth)
	copy(c.facing, v.facing)
	if v.color != nil {
		c.rgb = append(c.rgb[:0], v.color...)
		v.shade(c, m)
	}
	v.project(c, m.vertices)
	for _, q := range m.quads {
		v.triangle(c, m, q[0], q[2], q[1])
		v.triangle(c, m, q[0], q[3], q[2])
	}
}

// shade draws the performer's shadow on the floor.
func (v *view) shade(c *canvas, m *mesher) {
	const low = 0.12
	var feet [2]vec
	var count [2]float32
	var trunk vec
	var all float32
	for i := range m.vertices {
		p := m.vertices[i].at
		trunk, all = trunk.add(p), all+1
		if p[1] < low {
			side := 0
			if m.vertices[i].rest[0] > 0 {
				side = 1
			}
			feet[side], count[side] = feet[side].add(p), count[side]+1
		}
	}
	if all == 0 {
		return
	}
	for side := range feet {
		feet[side] = feet[side].scale(1 / max(count[side], 1))
	}
	body := trunk.scale(1 / all)
	for _, p := range v.floor {
		lit := float32(1)
		for side, f := range feet {
			if count[side] == 0 {
				continue
			}
			dx, dz := (p.x-f[0])/0.10, (p.z-f[2])/0.15
			d := 1 + dx*dx + dz*dz
			lit *= 1 - 0.62/(d*d)
		}
		// The key light comes from the front left, so the trunk's shadow falls behind the
		// performer.
		dx, dz := (p.x-body[0]+0.16)/0.36, (p.z-body[2]+0.22)/0.36
		d := 1 + dx*dx + dz*dz
		lit *= 1 - 0.42/(d*d)
		for k := range 3 {
			// Skylight remains.
			c.rgb[3*p.index+k] = byte(float32(c.rgb[3*p.index+k]) * (0.36 + 0.45*lit + 0.19*lit*lit*lit))
		}
	}
}

// triangle draws a triangle. Front faces are clockwise in the image.
func (v *view) triangle(c *canvas, m *mesher, ia, ib, ic int32) {
	a, b, d := &c.screen[ia], &c.screen[ib], &c.screen[ic]
	if a.z == 0 || b.z == 0 || d.z == 0 {
		return
	}
	area := (b.u-a.u)*(d.v-a.v) - (b.v-a.v)*(d.u-a.u)
	if area <= 1e-9 {
		return
	}
	w, h := v.in.Width, v.in.Height
	u0, u1 := max(0, int(math.Ceil(float64(min(a.u, b.u, d.u))))), min(w-1, int(max(a.u, b.u, d.u)))
	v0, v1 := max(0, int(math.Ceil(float64(min(a.v, b.v, d.v))))), min(h-1, int(max(a.v, b.v, d.v)))
	inv := 1 / area
	for y := v0; y <= v1; y++ {
		for x := u0; x <= u1; x++ {
			px, py := float32(x)-a.u, float32(y)-a.v
			wb := (px*(d.v-a.v) - py*(d.u-a.u)) * inv
			wd := ((b.u-a.u)*py - (b.v-a.v)*px) * inv
			wa := 1 - wb - wd
			if wa < 0 || wb < 0 || wd < 0 {
				continue
			}
			z := wa*a.z + wb*b.z + wd*d.z
			i := y*w + x
			if was := c.depth[i]; was > 0 && was <= z {
				continue
			}
			c.depth[i] = z
			c.facing[i] = wa*a.facing + wb*b.facing + wd*d.facing
			if v.color == nil {
				continue
			}
			ra, rb, rd := &m.vertices[ia].rest, &m.vertices[ib].rest, &m.vertices[ic].rest
			rest := vec{wa*ra[0] + wb*rb[0] + wd*rd[0], wa*ra[1] + wb*rb[1] + wd*rd[1], wa*ra[2] + wb*rb[2] + wd*rd[2]}
			col := surface(rest)
			for k := range 3 {
				c.rgb[3*i+k] = encode(col[k] * (wa*a.light[k] + wb*b.light[k] + wd*d.light[k]))
			}
		}
	}
}

// sense converts exact depth to a time-of-flight camera's readings in millimetres.
//
// Noise grows with the square of the distance and with the angle of incidence: about 0.7 mm at 1 m
// and 2 mm at 2 m for a perpendicular surface, as measured for NFOV by Tölgyessy et al. (Sensors
// 2021, 21(2), 413); Microsoft specifies at most 17 mm. Readings at grazing incidence (below 6°)
// fail, readings at the edge of a nearer surface fail or mix both distances, and a few fail
// anywhere.
func (v *view) sense(c *canvas, rng *rand.PCG, depth []uint16) {
	const (
		grazing = 0.105
		edge    = 0.05        // metres between neighbours
		bell    = 1.0 / 147.8 // standard deviation of the sum of four bytes
	)
	w := v.in.Width
	for i, z := range c.depth {
		depth[i] = 0
		bits := rng.Uint64()
		cos := c.facing[i]
		if z < 0.25 || z > 5.46 || cos < grazing || bits>>32&0xfff == 0 {
			continue
		}
		if x := i % w; x > 0 && x < w-1 && i >= w && i+w < len(c.depth) {
			far := z
			near := z
			for _, k := range [4]int{i - 1, i + 1, i - w, i + w} {
				o := c.depth[k]
				if o == 0 {
					o = 9
				}
				far, near = max(far, o), min(near, o)
			}
			if far-near > edge {
				switch r := bits >> 44 & 0xff; {
				case r < 150:
					continue
				case r < 175 && far < 9:
					z = mix(near, far, float32(bits>>52&0xff)/255)
				}
			}
		}
		sum := int(bits&0xff) + int(bits>>8&0xff) + int(bits>>16&0xff) + int(bits>>24&0xff)
		sigma := (0.25 + 0.42*z*z) / sqrt(max(cos, 0.2))
		depth[i] = uint16(max(0, 1000*z+sigma*bell*float32(sum-510)+0.5))
	}
}
