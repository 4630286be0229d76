package camera

// Intrinsics describe one lens at one image size.
type Intrinsics struct {
	Width  int `json:"width"`  // pixels
	Height int `json:"height"` // pixels

	// Focal lengths and principal point in pixels. (0,0) is the centre of the top-left pixel.
	Fx float64 `json:"fx"`
	Fy float64 `json:"fy"`
	Cx float64 `json:"cx"`
	Cy float64 `json:"cy"`

	// Radial coefficients: (1+k1r²+k2r⁴+k3r⁶)/(1+k4r²+k5r⁴+k6r⁶).
	K [6]float64 `json:"k"`
	// Tangential coefficients p1, p2.
	P [2]float64 `json:"p"`

	// MaxRadius is the largest normalised radius at which the model is valid. A pixel beyond it has
	// no ray. 0 means no limit.
	MaxRadius float64 `json:"maxRadius,omitempty"`
}

// Stopping rule of Unproject, as in the Azure Kinect Sensor SDK 1.4
// (transformation_iterative_unproject). Errors are squared distances in pixels².
const (
	unprojectPasses   = 20
	unprojectStop     = 1e-22
	unprojectAccepted = 1e-6
)

// Project maps a point in camera space (x right, y down, z forward; any unit) to a pixel, which may
// be outside the image. ok is false for a point behind the camera or beyond MaxRadius.
func (in *Intrinsics) Project(p [3]float64) (u, v float64, ok bool) {
	if !(p[2] > 0) {
		return 0, 0, false
	}
	d := in.distort(p[0]/p[2], p[1]/p[2])
	return d.u, d.v, d.ok
}

// distorted is a distorted point and the derivative of the distortion.
type distorted struct {
	u, v                   float64
	dudx, dudy, dvdx, dvdy float64
	ok                     bool
}

// distort applies the lens model and computes its derivative; see Unproject for the formulas. The
// conversions to float64 prevent fused multiply-add, so that results are equal on all processors
// and in all languages.
func (in *Intrinsics) distort(x, y float64) distorted {
	k, p1, p2 := &in.K, in.P[0], in.P[1]
	xx, yy, xy := float64(x*x), float64(y*y), float64(x*y)
	rs := xx + yy
	if in.MaxRadius > 0 && rs > float64(in.MaxRadius*in.MaxRadius) {
		return distorted{}
	}
	rss := float64(rs * rs)
	rsc := float64(rss * rs)
	a := 1 + float64(k[0]*rs) + float64(k[1]*rss) + float64(k[2]*rsc)
	b := 1 + float64(k[3]*rs) + float64(k[4]*rss) + float64(k[5]*rsc)
	bi := 1.0
	if b != 0 {
		bi = 1 / b
	}
	d := float64(a * bi)

	xd := float64(x*d) + float64((rs+2*xx)*p2) + float64(2*xy*p1)
	yd := float64(y*d) + float64((rs+2*yy)*p1) + float64(2*xy*p2)

	// ∂d/∂(r²), doubled: ∂(r²)/∂x = 2x.
	da := k[0] + float64(2*k[1]*rs) + float64(3*k[2]*rss)
	db := k[3] + float64(2*k[4]*rs) + float64(3*k[5]*rss)
	dd := 2 * float64((float64(da*b)-float64(a*db))*float64(bi*bi))
	cross := float64(xy*dd) + float64(2*x*p1) + float64(2*y*p2)

	return distorted{
		u:    float64(xd*in.Fx) + in.Cx,
		v:    float64(yd*in.Fy) + in.Cy,
		dudx: in.Fx * (d + float64(xx*dd) + float64(6*x*p2) + float64(2*y*p1)),
		dudy: in.Fx * cross,
		dvdx: in.Fy * cross,
		dvdy: in.Fy * (d + float64(yy*dd) + float64(6*y*p1) + float64(2*x*p2)),
		ok:   true,
	}
}

// Unproject maps a pixel to the point (x, y, 1) on its ray. ok is false if the lens model has no
// inverse there: beyond MaxRadius, or if the iteration does not converge.
//
// An implementation in any language that follows these steps in IEEE 754 binary64, operators from
// left to right and each product rounded before it is summed (no fused multiply-add), gets the same
// bits.
//
// The model, at a normalised point (x, y):
//
//	xx = x*x    yy = y*y    xy = x*y    s = xx + yy    ss = s*s    sss = ss*s
//	beyond MaxRadius if MaxRadius > 0 and s > MaxRadius*MaxRadius
//	a = 1 + k1*s + k2*ss + k3*sss
//	b = 1 + k4*s + k5*ss + k6*sss
//	d = a * (1/b)                                    (1/b is 1 where b = 0)
//	u = (x*d + (s + 2*xx)*p2 + 2*xy*p1)*fx + cx
//	v = (y*d + (s + 2*yy)*p1 + 2*xy*p2)*fy + cy
//
// and its Jacobian there:
//
//	a' = k1 + 2*k2*s + 3*k3*ss    b' = k4 + 2*k5*s + 3*k6*ss
//	d' = 2*((a'*b - a*b') * ((1/b)*(1/b)))
//	c  = xy*d' + 2*x*p1 + 2*y*p2
//	ux = fx*(d + xx*d' + 6*x*p2 + 2*y*p1)    uy = fx*c
//	vx = fy*c    vy = fy*(d + yy*d' + 6*y*p1 + 2*x*p2)
//
// The inverse, for a pixel (u, v):
//
//  1. Start: xd = (u-cx)/fx, yd = (v-cy)/fy, a and b as above at s = xd*xd + yd*yd,
//     q = (1/a)*b (1/a is 1 where a = 0), x0 = xd*q, y0 = yd*q,
//     x = x0 - ((y0*y0 + 3*(x0*x0))*p2 + 2*x0*y0*p1),
//     y = y0 - ((x0*x0 + 3*(y0*y0))*p1 + 2*x0*y0*p2).
//  2. At most 20 times: apply the model to (x, y); if it is beyond MaxRadius there is no
//     ray. Let eu, ev be (u, v) minus the model's, e = eu*eu + ev*ev. If e is not below the
//     smallest e so far, go back to its (x, y) and stop. Stop if e < 1e-22 or if this is
//     the twentieth time. Otherwise, with i = 1/(ux*vy - uy*vx):
//     x = x + (i*vy*eu + (-i)*uy*ev), y = y + ((-i)*vx*eu + i*ux*ev).
//  3. There is a ray if the smallest e is at most 1e-6.
func (in *Intrinsics) Unproject(u, v float64) (x, y float64, ok bool) {
	k, p1, p2 := &in.K, in.P[0], in.P[1]
	xd, yd := (u-in.Cx)/in.Fx, (v-in.Cy)/in.Fy
	rs := float64(xd*xd) + float64(yd*yd)
	rss := float64(rs * rs)
	rsc := float64(rss * rs)
	a := 1 + float64(k[0]*rs) + float64(k[1]*rss) + float64(k[2]*rsc)
	b := 1 + float64(k[3]*rs) + float64(k[4]*rss) + float64(k[5]*rsc)
	ai := 1.0
	if a != 0 {
		ai = 1 / a
	}
	q := float64(ai * b)
	x, y = float64(xd*q), float64(yd*q)
	xx, yy, xy2 := float64(x*x), float64(y*y), float64(2*x*y)
	x -= float64((yy+float64(3*xx))*p2) + float64(xy2*p1)
	y -= float64((xx+float64(3*yy))*p1) + float64(xy2*p2)

	var best, bestX, bestY float64
	for pass := range unprojectPasses {
		d := in.distort(x, y)
		if !d.ok {
			return 0, 0, false
		}
		eu, ev := u-d.u, v-d.v
		e := float64(eu*eu) + float64(ev*ev)
		if pass > 0 && !(e < best) {
			x, y = bestX, bestY
			break
		}
		best, bestX, bestY = e, x, y
		if e < unprojectStop || pass == unprojectPasses-1 {
			break
		}
		inv := 1 / (float64(d.dudx*d.dvdy) - float64(d.dudy*d.dvdx))
		x += float64(float64(inv*d.dvdy)*eu) + float64(float64(-inv*d.dudy)*ev)
		y += float64(float64(-inv*d.dvdx)*eu) + float64(float64(inv*d.dudx)*ev)
	}
	if !(best <= unprojectAccepted) {
		return 0, 0, false
	}
	return x, y, true
}
