use crate::Frame;

/// A rigid transform p' = R·p + T.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transform {
    /// Rotation, row-major.
    pub r: [f64; 9],
    /// Translation, millimetres.
    pub t: [f64; 3],
}

impl Transform {
    /// The identity transform.
    pub const IDENTITY: Transform = Transform { r: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], t: [0.0; 3] };
}

/// Position of a frame's subject.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Subject {
    /// Mean of the nearer half of the points, camera coordinates, millimetres. Cameras point at
    /// their subject, and the farther half is mostly background.
    pub middle: [f32; 3],
    /// Studio y coordinate of the floor, millimetres: nearly all points are above it.
    pub floor: f32,
}

const SAMPLES: usize = 2048;

/// Estimates the subject from a sample of the points; None if there are none. `rays` is the ray
/// table, which only layout A uses.
pub fn subject(f: &Frame, words: &[u32], rays: &[f32], pose: &Transform) -> Option<Subject> {
    let per = f.words_per_point();
    let step = f.points.div_ceil(SAMPLES).max(1);
    let mut points: Vec<[f32; 3]> = Vec::with_capacity(SAMPLES);
    for p in words.chunks_exact(per).step_by(step) {
        points.push(if per == 2 {
            let z = (p[1] & 0xffff) as f32;
            let at = 2 * ((p[0] >> 12 & 0xfff) as usize * usize::from(f.header.width) + (p[0] & 0xfff) as usize);
            match rays.get(at..at + 2) {
                Some(&[x, y]) if !x.is_nan() => [x * z, y * z, z],
                _ => continue,
            }
        } else {
            [f32::from(p[0] as i16), f32::from((p[0] >> 16) as i16), f32::from(p[1] as i16)]
        });
    }
    let n = points.len();
    if n == 0 {
        return None;
    }
    points.sort_unstable_by(|a, b| a[2].total_cmp(&b[2]));
    let far = points[n / 2][2];
    let near = points.partition_point(|p| p[2] <= far);
    let mut sum = [0f64; 3];
    for p in &points[..near] {
        for (s, v) in sum.iter_mut().zip(p) {
            *s += f64::from(*v);
        }
    }
    let r = &pose.r;
    let height =
        |p: &[f32; 3]| (r[3] * f64::from(p[0]) + r[4] * f64::from(p[1]) + r[5] * f64::from(p[2]) + pose.t[1]) as f32;
    let mut heights: Vec<f32> = points.iter().map(height).collect();
    heights.sort_unstable_by(f32::total_cmp);
    // A camera's y axis points down. If it points along +y in the studio, the studio's y axis
    // points down too.
    let part = if r[4] < 0.0 { 0.03 } else { 0.97 };
    let floor = heights[((part * n as f64) as usize).min(n - 1)];
    Some(Subject { middle: sum.map(|s| (s / near as f64) as f32), floor })
}
