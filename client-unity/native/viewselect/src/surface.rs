use cloud::{Frame, Transform};

use crate::{apply, cross, dot, length, rotate, scale, sub, V};

/// A patch of a surface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Position.
    pub point: [f32; 3],
    /// Unit vector, towards the camera's side.
    pub normal: [f32; 3],
    /// mm².
    pub area: f32,
    /// Cosine between the normal and the camera's ray.
    pub facing: f32,
    /// The camera's position.
    pub sensor: [f32; 3],
}

impl Sample {
    /// The patch after a transform.
    pub fn moved(&self, pose: &Transform) -> Sample {
        let at = |p: [f32; 3]| single(apply(pose, p.map(f64::from)));
        let normal = single(rotate(pose, self.normal.map(f64::from)));
        Sample { point: at(self.point), normal, sensor: at(self.sensor), ..*self }
    }
}

/// Depth difference between neighbouring samples, relative to depth, that separates surfaces.
const EDGE_STEP: f64 = 0.08;
/// Bounds the area of a patch seen at a grazing angle.
const LEAST_FACING: f64 = 0.1;
/// Patches of a whole frame.
const PATCHES: f64 = 1600.0;

fn single(a: V) -> [f32; 3] {
    [a[0] as f32, a[1] as f32, a[2] as f32]
}

/// The surface patches of a camera's frame, one per `stride` pixels in x and y. `rays` is the ray
/// table, `depth` returns a pixel's depth, or 0 if it has no point, and `pose` maps the grid
/// camera's space to studio space.
pub fn surface(
    rays: &[f32], width: usize, depth: impl Fn(usize) -> u16, pose: &Transform, stride: usize,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    let (stride, height) = (stride.max(1), rays.len() / 2 / width.max(1));
    let ray = |i: usize| [f64::from(rays[2 * i]), f64::from(rays[2 * i + 1])];
    let point = |i: usize| -> Option<V> {
        let (z, [x, y]) = (f64::from(depth(i)), ray(i));
        (z > 0.0 && !x.is_nan()).then_some([x * z, y * z, z])
    };
    let near = |p: V, q: V| (p[2] - q[2]).abs() <= EDGE_STEP * p[2].min(q[2]);
    for y in (0..height.saturating_sub(stride)).step_by(stride) {
        for x in (0..width.saturating_sub(stride)).step_by(stride) {
            let i = y * width + x;
            let Some(p) = point(i) else { continue };
            let to_camera = scale(p, -1.0 / length(p));
            let (mut normal, mut facing) = (to_camera, 1.0);
            if let (Some(right), Some(below)) = (point(i + stride), point(i + stride * width)) {
                let n = cross(sub(below, p), sub(right, p));
                let l = length(n);
                if near(p, right) && near(p, below) && l > 0.0 {
                    normal = scale(n, 1.0 / l);
                    facing = dot(normal, to_camera);
                    if facing < 0.0 {
                        (normal, facing) = (scale(normal, -1.0), -facing);
                    }
                }
            }
            facing = facing.max(LEAST_FACING);
            let (dx, dy) = (ray(i + stride)[0] - ray(i)[0], ray(i + stride * width)[1] - ray(i)[1]);
            let area = if dx.is_nan() || dy.is_nan() { 0.0 } else { (dx * dy).abs() * p[2] * p[2] };
            samples.push(Sample {
                point: single(apply(pose, p)),
                normal: single(rotate(pose, normal)),
                area: (area / facing) as f32,
                facing: facing as f32,
                sensor: single(pose.t),
            });
        }
    }
    samples
}

/// The surface patches of a frame in layout A or W with these words. None if the ray table does not
/// fit the frame.
pub fn patches(f: &Frame, words: &[u32], rays: &[f32], pose: &Transform) -> Option<Vec<Sample>> {
    let (width, height) = (usize::from(f.header.width), usize::from(f.header.height));
    if f.words_per_point() != 2 || width == 0 || rays.len() != 2 * width * height {
        return None;
    }
    let stride = (((width * height) as f64 / PATCHES).sqrt().round() as usize).max(1);
    let columns = width.div_ceil(stride);
    let mut depths = vec![0; columns * height.div_ceil(stride)];
    for p in words.chunks_exact(2).take(f.points) {
        let (x, y) = (p[0] as usize & 0xfff, (p[0] >> 12) as usize & 0xfff);
        if x % stride == 0 && y % stride == 0 && x < width && y < height {
            depths[y / stride * columns + x / stride] = p[1] as u16;
        }
    }
    let depth = |i: usize| depths[i / width / stride * columns + i % width / stride];
    Some(surface(rays, width, depth, pose, stride))
}
