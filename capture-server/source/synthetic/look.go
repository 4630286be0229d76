package synthetic

import (
	"math"

	"holocast/internal/srgb"
)

// rgb is linear light, 0 to 1.
type rgb [3]float32

func (c rgb) scale(s float32) rgb { return rgb{c[0] * s, c[1] * s, c[2] * s} }

func blend(a, b rgb, t float32) rgb {
	return rgb{mix(a[0], b[0], t), mix(a[1], b[1], t), mix(a[2], b[2], t)}
}

// Colours, linear.
var (
	skin    = rgb{0.62, 0.34, 0.22}
	lips    = rgb{0.45, 0.13, 0.11}
	hair    = rgb{0.045, 0.026, 0.016}
	shirt   = rgb{0.78, 0.27, 0.055} // orange
	stripe  = rgb{0.85, 0.82, 0.75}
	jeans   = rgb{0.035, 0.075, 0.19}
	leather = rgb{0.75, 0.73, 0.70}
	sole    = rgb{0.30, 0.30, 0.32}
	tile    = rgb{0.20, 0.22, 0.25}
	joint   = rgb{0.075, 0.085, 0.10}
	accent  = rgb{0.06, 0.42, 0.52}
	plaster = rgb{0.55, 0.54, 0.50}
)

// noise is smooth value noise in [-1, 1] with a feature size of about 1.
func noise(x, y, z float32) float32 {
	fx, fy, fz := floor(x), floor(y), floor(z)
	ix, iy, iz := uint32(int32(fx)), uint32(int32(fy)), uint32(int32(fz))
	tx, ty, tz := ease(x-fx), ease(y-fy), ease(z-fz)
	return 2*mix(mix(mix(hash(ix, iy, iz), hash(ix+1, iy, iz), tx), mix(hash(ix, iy+1, iz), hash(ix+1, iy+1, iz), tx),
		ty), mix(mix(hash(ix, iy, iz+1), hash(ix+1, iy, iz+1), tx),
		mix(hash(ix, iy+1, iz+1), hash(ix+1, iy+1, iz+1), tx), ty), tz) - 1
}

func floor(x float32) float32 { return float32(math.Floor(float64(x))) }
func ease(t float32) float32  { return t * t * (3 - 2*t) }

func hash(x, y, z uint32) float32 {
	h := x*0x8da6b343 ^ y*0xd8163841 ^ z*0xcb1ab31f
	h ^= h >> 13
	h *= 0x5bd1e995
	h ^= h >> 15
	return float32(h>>8) / (1 << 24)
}

// surface returns the performer's colour at p, a point in the rest pose.
func surface(p vec) rgb {
	x, y, z := abs(p[0]), p[1], p[2]
	// Distances along the arm from the shoulder, and from the arm's axis.
	along := (x - shoulderJoint[0] + shoulderJoint[1] - y) * 0.70711
	across := (x - shoulderJoint[0] - shoulderJoint[1] + y) * 0.70711
	switch {
	case y > 1.5 && x < 0.12:
		return face(p)
	case along > 0.152 && abs(across) < 0.14 && y > 0.85 && x > 0.2:
		return skin.scale(1 + 0.06*noise(p[0]*60, y*60, z*60))
	case y > 1.47 && x*x+(z+0.012)*(z+0.012) < 0.0058:
		return skin
	case y > 0.985:
		return cloth(p, along)
	case y > 0.965:
		return rgb{0.05, 0.03, 0.02} // belt
	case y > 0.105:
		return denim(p)
	case y > 0.028:
		lace := float32(1)
		if z > 0.04 && z < 0.1 && y > 0.06 && math.Mod(float64(z+1), 0.02) < 0.007 {
			lace = 0.55
		}
		return leather.scale(lace * (1 + 0.05*noise(p[0]*80, y*80, z*80)))
	}
	return sole
}

func cloth(p vec, along float32) rgb {
	y := p[1]
	// Creases run down from the shoulders and around the waist.
	crease := 1 + 0.10*noise(p[0]*16, y*7, p[2]*16) + 0.06*noise(p[0]*40, y*26, p[2]*40)
	weave := 1 + 0.05*noise(p[0]*260, y*260, p[2]*260)
	c := shirt
	if y > 1.195 && y < 1.245 || y > 1.265 && y < 1.285 {
		c = stripe
	}
	if along > 0.138 && abs(p[0]) > 0.2 || y < 1.0 { // hems
		c = c.scale(0.7)
	}
	// A ring printed on the chest.
	if p[2] > 0 && y > 1.29 {
		r := sqrt(p[0]*p[0] + (y-1.365)*(y-1.365))
		if r < 0.048 && r > 0.03 || r < 0.014 {
			c = stripe
		}
	}
	return c.scale(crease * weave)
}

func denim(p vec) rgb {
	fold := 1 + 0.16*noise(p[0]*18, p[1]*11, p[2]*18) + 0.10*noise(p[0]*50, p[1]*36, p[2]*50)
	thread := 1 + 0.12*noise(p[0]*300, p[1]*120, p[2]*300)
	worn := step(0.75, 0.66, abs(p[1]-0.6)+0.1) * step(0.0, 0.06, p[2]) // lighter at the front of the legs
	c := blend(jeans, jeans.scale(2.2), 0.45*worn)
	if abs(abs(p[0])-0.172) < 0.004 && p[1] > 0.2 { // side seam
		c = c.scale(0.7)
	}
	return c.scale(fold * thread)
}

func face(p vec) rgb {
	x, y, z := abs(p[0]), p[1], p[2]
	line := 0.6*(z-0.03) - 0.8*(y-1.715) + 0.008*noise(p[0]*70, y*70, z*70)
	back := 0.96*(1.627-y) + 0.28*(z+0.06)
	if line < 0.004 && back < 0.002 && (x > 0.03 || y > 1.6) {
		return hair.scale(1 + 0.5*noise(p[0]*220, y*25, z*120))
	}
	c := skin.scale(1 + 0.05*noise(p[0]*45, y*45, z*45))
	if z > 0.03 {
		cheek := step(0.035, 0.0, sqrt((x-0.042)*(x-0.042)+(y-1.63)*(y-1.63)))
		c = blend(c, rgb{0.66, 0.26, 0.19}, 0.45*cheek)
		ex, ey := x-0.031, y-1.674
		switch eye := ex*ex/(0.0145*0.0145) + ey*ey/(0.0075*0.0075); {
		case ex*ex+ey*ey < 0.0033*0.0033 && eye < 1:
			c = rgb{0.01, 0.01, 0.01}
		case ex*ex+ey*ey < 0.0068*0.0068 && eye < 1:
			c = rgb{0.08, 0.19, 0.22}
		case eye < 1:
			c = rgb{0.80, 0.79, 0.77}
		case eye < 1.6 && ey > 0:
			c = rgb{0.05, 0.03, 0.02}
		}
		if brow := y - 1.695 + 2.2*(x-0.032)*(x-0.032)*8; abs(brow) < 0.0042 && x > 0.013 && x < 0.051 {
			c = hair
		}
		if my := y - 1.597 - 0.9*x*x*6; x < 0.025 && z > 0.06 && abs(my) < 0.0075*(1-x*x/(0.026*0.026)) {
			c = lips
			if abs(my) < 0.0013 {
				c = lips.scale(0.35)
			}
		}
		if x > 0.003 && x < 0.010 && y > 1.632 && y < 1.637 && z > 0.1 {
			c = c.scale(0.35) // nostrils
		}
	}
	// Stubble, and a shadow below the chin.
	beard := step(1.625, 1.59, y) * step(-0.01, 0.04, z)
	return blend(c, c.scale(0.72), 0.5*beard)
}

// light returns the brightness of a white surface with the given normal. The light consists of a
// key light from the upper left front, a cool fill light from the right, a rim light from behind
// and a sky that darkens towards the floor.
func light(normal, at vec) rgb {
	key := max(0, normal.dot(vec{0.45, 0.66, 0.60}))
	fill := max(0, normal.dot(vec{-0.78, 0.25, 0.57}))
	rim := max(0, normal.dot(vec{-0.25, 0.45, -0.86}))
	sky := 0.5 + 0.5*normal[1]
	near := 0.72 + 0.28*step(0, 0.5, at[1])
	return rgb{
		near * (0.20*sky + 0.07 + 0.92*key + 0.16*fill + 0.34*rim),
		near * (0.21*sky + 0.07 + 0.88*key + 0.19*fill + 0.35*rim),
		near * (0.24*sky + 0.08 + 0.80*key + 0.25*fill + 0.38*rim),
	}
}

// stageRadius is the radius of the round floor in metres.
const stageRadius = 1.5

// floorColor returns the floor's colour at (x, z).
func floorColor(x, z float32) rgb {
	r := sqrt(x*x + z*z)
	c := tile
	gx, gz := abs(x/0.25-floor(x/0.25+0.5)), abs(z/0.25-floor(z/0.25+0.5))
	if min(gx, gz) < 0.018 {
		c = joint
	}
	if abs(r-0.62) < 0.012 || abs(r-stageRadius+0.04) < 0.02 {
		c = accent
	}
	if r > 0.62 && r < 0.70 { // a dial around the performer
		if a := math.Mod(math.Atan2(float64(z), float64(x))+2*math.Pi, math.Pi/12); min(a,
			math.Pi/12-a) < 0.012/float64(
			r,
		) {
			c = accent
		}
	}
	return c.scale(1 + 0.07*noise(x*9, 0, z*9) + 0.06*noise(x*60, 5, z*60))
}

// gamma tabulates the conversion of linear light to 8-bit sRGB.
var gamma = func() (t [4097]uint8) {
	for i := range t {
		t[i] = uint8(255*srgb.Encode(float64(i)/4096) + 0.5)
	}
	return t
}()

func encode(c float32) uint8 { return gamma[int(clamp01(c)*4096)] }
