//! Directions on the sphere, the tile grid, and the tiles in a viewport.

use std::f64::consts::{FRAC_PI_2, PI};

/// A unit vector: right, up, forward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vec3(pub [f64; 3]);

/// Straight ahead.
pub const FORWARD: Vec3 = Vec3([0.0, 0.0, 1.0]);

impl Vec3 {
    /// Yaw in (−π, π], positive to the right, and pitch in [−π/2, π/2], positive upwards. Yaw is 0
    /// at the poles.
    pub fn angles(self) -> (f64, f64) {
        let [x, y, z] = self.0;
        if x == 0.0 && z == 0.0 {
            return (0.0, FRAC_PI_2.copysign(y));
        }
        (x.atan2(z), y.clamp(-1.0, 1.0).asin())
    }

    /// Cosine of the angle between two directions.
    pub fn dot(self, o: Vec3) -> f64 {
        self.0[0] * o.0[0] + self.0[1] * o.0[1] + self.0[2] * o.0[2]
    }

    fn cross(self, o: Vec3) -> Vec3 {
        let ([a, b, c], [x, y, z]) = (self.0, o.0);
        Vec3([b * z - c * y, c * x - a * z, a * y - b * x])
    }

    /// Angle between two directions; accurate for small angles too.
    pub fn angle(self, o: Vec3) -> f64 {
        let c = self.cross(o);
        c.dot(c).sqrt().atan2(self.dot(o))
    }

    /// Normalized to length 1; forward for a zero vector.
    pub fn unit(self) -> Vec3 {
        let n = self.dot(self).sqrt();
        if !(n > 1e-12 && n.is_finite()) {
            return FORWARD;
        }
        Vec3(self.0.map(|v| v / n))
    }

    /// The right and up vectors of a viewer who looks in this direction with a level head.
    fn frame(self) -> (Vec3, Vec3) {
        let (s, c) = self.angles().0.sin_cos();
        let right = Vec3([c, 0.0, -s]);
        (right, self.cross(right))
    }

    /// Linear combination of this and two other vectors.
    fn plus(self, x: f64, a: Vec3, y: f64, b: Vec3) -> Vec3 {
        Vec3([0, 1, 2].map(|i| self.0[i] + x * a.0[i] + y * b.0[i]))
    }

    /// Offset of another direction from this one: radians to the right and up along the great
    /// circle.
    pub(crate) fn offset(self, o: Vec3) -> [f64; 2] {
        let (r, u) = self.frame();
        let (x, y) = (o.dot(r), o.dot(u));
        let n = (x * x + y * y).sqrt();
        if n < 1e-12 {
            return [0.0; 2];
        }
        let a = self.angle(o) / n;
        [a * x, a * y]
    }

    /// The inverse of `offset`.
    pub(crate) fn moved(self, [right, up]: [f64; 2]) -> Vec3 {
        let a = (right * right + up * up).sqrt();
        if a < 1e-12 {
            return self;
        }
        let (r, u) = self.frame();
        let (s, c) = a.sin_cos();
        Vec3(self.0.map(|v| c * v)).plus(s * right / a, r, s * up / a, u).unit()
    }

    /// Position in one eye's picture, as fractions of the width from the left, in [0, 1), and of
    /// the height from the top.
    pub fn equirect(self) -> [f64; 2] {
        let (yaw, pitch) = self.angles();
        let x = yaw / (2.0 * PI) + 0.5;
        [if x >= 1.0 { x - 1.0 } else { x }, 0.5 - pitch / PI]
    }
}

/// Tile grid of one eye's picture. Tiles are numbered row by row from the top left, with edges at
/// even pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Number of columns, at least 1.
    pub columns: usize,
    /// Number of rows, at least 1.
    pub rows: usize,
    /// Width of the picture, pixels.
    pub width: usize,
    /// Height of the picture, pixels.
    pub height: usize,
}

/// Start of tile i of n along `size` pixels: the even number nearest to i·size/n.
fn edge(i: usize, n: usize, size: usize) -> usize {
    2 * ((i * size + n) / (2 * n))
}

/// Index of the tile that contains a point, of n tiles along `size` pixels.
fn place(at: f64, n: usize, size: usize) -> usize {
    let i = ((at * n as f64).floor().max(0.0) as usize).min(n - 1);
    let pixel = at * size as f64;
    if i > 0 && pixel < edge(i, n, size) as f64 {
        i - 1
    } else if i < n - 1 && pixel >= edge(i + 1, n, size) as f64 {
        i + 1
    } else {
        i
    }
}

impl Grid {
    /// Number of tiles.
    pub fn tiles(&self) -> usize {
        self.columns * self.rows
    }

    /// x, y, width and height of a tile, pixels.
    pub fn rect(&self, tile: usize) -> [usize; 4] {
        let (c, r) = (tile % self.columns, tile / self.columns);
        let (x, y) = (edge(c, self.columns, self.width), edge(r, self.rows, self.height));
        [x, y, edge(c + 1, self.columns, self.width) - x, edge(r + 1, self.rows, self.height) - y]
    }

    /// The tile at a point of one eye's picture, given as fractions of its width and height.
    pub fn at(&self, [x, y]: [f64; 2]) -> usize {
        place(y, self.rows, self.height) * self.columns + place(x, self.columns, self.width)
    }
}

/// A possible gaze direction with its probability.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Look {
    pub gaze: Vec3,
    pub p: f64,
}

/// Computes which tiles of a grid a viewport shows.
#[derive(Debug, Clone)]
pub struct View {
    grid: Grid,
    /// Offsets of the viewport's sampling points at distance one, and their share of its solid
    /// angle.
    rays: Vec<[f64; 3]>,
}

impl View {
    /// `width` and `height` are the field of view in radians, below π. The viewport is sampled at
    /// `samples` × `samples` points.
    pub fn new(grid: Grid, width: f64, height: f64, samples: usize) -> Self {
        let (tx, ty) = ((width / 2.0).tan(), (height / 2.0).tan());
        let mut rays = Vec::with_capacity(samples * samples);
        let n = samples as f64;
        for r in 0..samples {
            let y = ty * (1.0 - (2.0 * r as f64 + 1.0) / n);
            for c in 0..samples {
                let x = tx * ((2.0 * c as f64 + 1.0) / n - 1.0);
                let d = 1.0 + x * x + y * y;
                rays.push([x, y, 1.0 / (d * d.sqrt())]);
            }
        }
        let sum: f64 = rays.iter().map(|r| r[2]).sum();
        rays.iter_mut().for_each(|r| r[2] /= sum);
        View { grid, rays }
    }

    /// The tile grid.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// For each tile, the expected share of the viewport and the probability of being visible,
    /// given possible gaze directions.
    pub fn expect(&self, looks: &[Look]) -> (Vec<f64>, Vec<f64>) {
        let n = self.grid.tiles();
        let (mut share, mut seen, mut one) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        for l in looks {
            one.fill(0.0);
            let (right, up) = l.gaze.frame();
            for [x, y, weight] in &self.rays {
                one[self.grid.at(l.gaze.plus(*x, right, *y, up).unit().equirect())] += weight;
            }
            for (t, s) in one.iter().enumerate() {
                share[t] += l.p * s;
                if *s > 0.0 {
                    seen[t] += l.p;
                }
            }
        }
        (share, seen)
    }
}
