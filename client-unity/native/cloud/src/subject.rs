use crate::Frame;

/// A rigid motion p' = R·p + T.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transform {
    /// Rotation, row-major.
    pub r: [f64; 9],
    /// Millimetres.
    pub t: [f64; 3],
}

impl Transform {
    /// Moves nothing.
    pub const IDENTITY: Transform = Transform { r: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], t: [0.0; 3] };
}

/// Where a frame's subject is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Subject {
    /// Mean of the nearer half of the points, camera's coordinates, millimetres: a camera looks at its subject,
    /// and behind it is the room.
    pub middle: [f32; 3],
    /// The studio's y, millimetres, below which nearly nothing is.
    pub floor: f32,
}

const SAMPLES: usize = 2048;

/// Where a frame's subject is, by a sample of its points; nothing without points. rays: of layout A.
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
    let height = |p: &[f32; 3]| (r[3] * f64::from(p[0]) + r[4] * f64::from(p[1]) + r[5] * f64::from(p[2]) + pose.t[1]) as f32;
    let mut heights: Vec<f32> = points.iter().map(height).collect();
    heights.sort_unstable_by(f32::total_cmp);
    // A camera's own y axis points down, so where it points down in the studio too, down is up.
    let part = if r[4] < 0.0 { 0.03 } else { 0.97 };
    let floor = heights[((part * n as f64) as usize).min(n - 1)];
    Some(Subject { middle: sum.map(|s| (s / near as f64) as f32), floor })
}
