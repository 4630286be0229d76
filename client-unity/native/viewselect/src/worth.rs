use cloud::Transform;

use crate::{apply, dot, length, rotate, scale, sub, Sample, V};

/// An eye: x right, y down, z forward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// From studio space to eye space.
    pub eye: Transform,
    /// Tangents of half the horizontal and vertical field of view.
    pub tan: [f64; 2],
}

/// Screen cells. A few hundred suffice for shares of a picture.
const COLUMNS: usize = 48;
const ROWS: usize = 36;
const CELLS: usize = COLUMNS * ROWS;
/// Least distance at which surfaces are visible.
const NEAREST: f64 = 50.0;
/// Depth difference, relative to depth, within which two cameras see the same surface.
const THICKNESS: f64 = 0.03;
/// Maximum cells that one patch covers in each direction.
const LARGEST_PATCH: f64 = 8.0;
/// Weight of a camera that sees a surface from the other side.
const LEAST_WEIGHT: f64 = 1e-6;

/// A visible sample on the screen: ranges of cells, depth and weight.
struct Patch {
    camera: usize,
    x: (usize, usize),
    y: (usize, usize),
    depth: f64,
    weight: f64,
}

impl Patch {
    fn cells(&self) -> impl Iterator<Item = usize> + '_ {
        (self.y.0..self.y.1).flat_map(|y| (self.x.0..self.x.1).map(move |x| y * COLUMNS + x))
    }
}

/// Each camera's share of the picture, averaged over views: 1 if all of it comes from that camera.
/// Surfaces that several cameras see are divided as they are drawn (docs/spec/surface.md): in
/// proportion to the area of the samples on the screen, facing² and similar⁸. Hidden surfaces do not
/// count.
pub fn worth<S: AsRef<[Sample]>>(cameras: &[S], views: &[View]) -> Vec<f64> {
    let mut sum = vec![0.0; cameras.len()];
    for v in views {
        v.add(&mut sum, cameras);
    }
    sum.iter().map(|w| w / views.len().max(1) as f64).collect()
}

impl View {
    fn add<S: AsRef<[Sample]>>(&self, sum: &mut [f64], cameras: &[S]) {
        let mut nearest = vec![f64::INFINITY; CELLS];
        let mut patches = Vec::new();
        for (camera, samples) in cameras.iter().enumerate() {
            for p in samples.as_ref().iter().filter_map(|s| self.project(s, camera)) {
                p.cells().for_each(|c| nearest[c] = nearest[c].min(p.depth));
                patches.push(p);
            }
        }
        let mut weight = vec![0.0; CELLS * cameras.len()];
        for p in &patches {
            for c in p.cells().filter(|c| p.depth <= nearest[*c] * (1.0 + THICKNESS)) {
                weight[p.camera * CELLS + c] += p.weight;
            }
        }
        for c in 0..CELLS {
            let of = |camera: usize| weight[camera * CELLS + c];
            let total: f64 = (0..cameras.len()).map(of).sum();
            if total > 0.0 {
                sum.iter_mut().enumerate().for_each(|(i, s)| *s += of(i) / total / CELLS as f64);
            }
        }
    }

    /// The cells that a sample covers; None if it lies outside the picture or faces away.
    fn project(&self, s: &Sample, camera: usize) -> Option<Patch> {
        let e = apply(&self.eye, s.point.map(f64::from));
        if e[2] < NEAREST {
            return None;
        }
        let facing = -dot(rotate(&self.eye, s.normal.map(f64::from)), e) / length(e);
        if facing <= 0.0 {
            return None;
        }
        // Cells per mm at this depth, and the patch's side in mm.
        let per = [COLUMNS as f64 / (2.0 * self.tan[0] * e[2]), ROWS as f64 / (2.0 * self.tan[1] * e[2])];
        let side = (f64::from(s.area) * facing).sqrt();
        let x = span(COLUMNS as f64 / 2.0 + e[0] * per[0], side * per[0], COLUMNS)?;
        let y = span(ROWS as f64 / 2.0 + e[1] * per[1], side * per[1], ROWS)?;
        let covered = ((x.1 - x.0) * (y.1 - y.0)) as f64;
        let weight = side * per[0] * side * per[1] / covered * s.weight(&self.eye, e);
        Some(Patch { camera, x, y, depth: e[2], weight })
    }
}

impl Sample {
    /// The camera's share where several cameras see the surface. `e` is the sample in eye space.
    fn weight(&self, eye: &Transform, e: V) -> f64 {
        let sensor = sub(apply(eye, self.sensor.map(f64::from)), e);
        let similar = (-dot(sensor, e) / (length(sensor) * length(e)).max(1e-9)).max(0.0);
        f64::from(self.facing * self.facing) * similar.powi(8) + LEAST_WEIGHT
    }
}

/// The cells from x − size/2 to x + size/2, at least the cell that contains x; None outside.
fn span(x: f64, size: f64, cells: usize) -> Option<(usize, usize)> {
    let half = size.min(LARGEST_PATCH) / 2.0;
    let (mut a, mut b) = ((x - half + 0.5).floor(), (x + half - 0.5).ceil());
    if b <= a {
        a = x.floor();
        b = a + 1.0;
    }
    let (a, b) = (a.max(0.0), b.min(cells as f64));
    (a < b).then_some((a as usize, b as usize))
}

/// The range of views that an eye may have after some seconds, moving at `velocity` (mm/s):
/// straight ahead, and turned left and right at `turn` rad/s.
pub fn ahead(v: &View, velocity: V, turn: f64, seconds: f64) -> [View; 3] {
    let moved = Transform {
        r: v.eye.r,
        t: sub(v.eye.t, rotate(&Transform { t: [0.0; 3], ..v.eye }, scale(velocity, seconds))),
    };
    let turned = |angle: f64| {
        let (sin, cos) = angle.sin_cos();
        let yaw = Transform { r: [cos, 0.0, sin, 0.0, 1.0, 0.0, -sin, 0.0, cos], t: [0.0; 3] };
        let mut eye = Transform { r: [0.0; 9], t: rotate(&yaw, moved.t) };
        for c in 0..3 {
            let column = rotate(&yaw, [moved.r[c], moved.r[3 + c], moved.r[6 + c]]);
            (eye.r[c], eye.r[3 + c], eye.r[6 + c]) = (column[0], column[1], column[2]);
        }
        View { eye, ..*v }
    };
    [View { eye: moved, ..*v }, turned(turn * seconds), turned(-turn * seconds)]
}
