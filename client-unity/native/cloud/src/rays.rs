/// Intrinsics at one image size: Brown–Conrady with six radial and two tangential coefficients.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Lens {
    /// Image width, pixels.
    pub width: usize,
    /// Image height, pixels.
    pub height: usize,
    /// Focal lengths, pixels.
    pub f: [f64; 2],
    /// Principal point, pixels; (0, 0) is the centre of the first pixel.
    pub c: [f64; 2],
    /// Radial coefficients: (1 + k1 r² + k2 r⁴ + k3 r⁶) / (1 + k4 r² + k5 r⁴ + k6 r⁶).
    pub k: [f64; 6],
    /// Tangential coefficients.
    pub p: [f64; 2],
    /// Largest normalized radius at which the model is valid; 0 = no limit.
    pub max_radius: f64,
}

const PASSES: usize = 20;
const STOP: f64 = 1e-22;
const ACCEPTED: f64 = 1e-6;

/// X and Y of each pixel's ray at z = 1, interleaved, row-major; NaN and 0 for pixels without a
/// ray. Performs the same IEEE 754 binary64 operations as internal/camera, without fused
/// multiply-add, so that results match bit for bit.
pub fn ray_table(lens: &Lens) -> Vec<f32> {
    let mut table = Vec::with_capacity(2 * lens.width * lens.height);
    for v in 0..lens.height {
        for u in 0..lens.width {
            let (x, y) = lens.unproject(u as f64, v as f64).unwrap_or((f64::NAN, 0.0));
            table.push(x as f32);
            table.push(y as f32);
        }
    }
    table
}

impl Lens {
    /// The ray of a pixel at z = 1, by Newton's method from an approximate start.
    fn unproject(&self, u: f64, v: f64) -> Option<(f64, f64)> {
        let ([fx, fy], [cx, cy], [k1, k2, k3, k4, k5, k6], [p1, p2]) = (self.f, self.c, self.k, self.p);
        let limit = if self.max_radius > 0.0 { self.max_radius * self.max_radius } else { f64::INFINITY };
        let (xd, yd) = ((u - cx) / fx, (v - cy) / fy);
        let s0 = xd * xd + yd * yd;
        let ss0 = s0 * s0;
        let sss0 = ss0 * s0;
        let a0 = 1.0 + k1 * s0 + k2 * ss0 + k3 * sss0;
        let b0 = 1.0 + k4 * s0 + k5 * ss0 + k6 * sss0;
        let q = (if a0 != 0.0 { 1.0 / a0 } else { 1.0 }) * b0;
        let (x0, y0) = (xd * q, yd * q);
        let (xx0, yy0, xy0) = (x0 * x0, y0 * y0, 2.0 * x0 * y0);
        let mut x = x0 - ((yy0 + 3.0 * xx0) * p2 + xy0 * p1);
        let mut y = y0 - ((xx0 + 3.0 * yy0) * p1 + xy0 * p2);
        let (mut best, mut best_x, mut best_y) = (f64::INFINITY, 0.0, 0.0);
        for pass in 0..PASSES {
            let (xx, yy, xy) = (x * x, y * y, x * y);
            let s = xx + yy;
            if s > limit {
                return None;
            }
            let ss = s * s;
            let sss = ss * s;
            let a = 1.0 + k1 * s + k2 * ss + k3 * sss;
            let b = 1.0 + k4 * s + k5 * ss + k6 * sss;
            let bi = if b != 0.0 { 1.0 / b } else { 1.0 };
            let d = a * bi;
            let eu = u - ((x * d + (s + 2.0 * xx) * p2 + 2.0 * xy * p1) * fx + cx);
            let ev = v - ((y * d + (s + 2.0 * yy) * p1 + 2.0 * xy * p2) * fy + cy);
            let e = eu * eu + ev * ev;
            if pass > 0 && (e >= best || e.is_nan()) {
                (x, y) = (best_x, best_y);
                break;
            }
            (best, best_x, best_y) = (e, x, y);
            if e < STOP || pass == PASSES - 1 {
                break;
            }
            let da = k1 + 2.0 * k2 * s + 3.0 * k3 * ss;
            let db = k4 + 2.0 * k5 * s + 3.0 * k6 * ss;
            let dd = 2.0 * ((da * b - a * db) * (bi * bi));
            let c = xy * dd + 2.0 * x * p1 + 2.0 * y * p2;
            let ux = fx * (d + xx * dd + 6.0 * x * p2 + 2.0 * y * p1);
            let uy = fx * c;
            let vx = fy * c;
            let vy = fy * (d + yy * dd + 6.0 * y * p1 + 2.0 * x * p2);
            let inv = 1.0 / (ux * vy - uy * vx);
            x += inv * vy * eu + -inv * uy * ev;
            y += -inv * vx * eu + inv * ux * ev;
        }
        (best <= ACCEPTED).then_some((x, y))
    }
}
