//! Chooses the quality of each depth camera by its share of a viewer's picture, like
//! internal/viewselect, whose test vectors it shares. Lengths are in millimetres, in studio space
//! unless noted. No I/O.

mod choose;
mod level;
mod surface;
mod worth;

pub use choose::{budget, choose, choose_within, unknown_error, Choice, Quality};
pub use level::{Cost, Counts, Level};
pub use surface::{patches, surface, Sample};
pub use worth::{ahead, worth, View};

type V = [f64; 3];

fn sub(a: V, b: V) -> V {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn scale(a: V, f: f64) -> V {
    [a[0] * f, a[1] * f, a[2] * f]
}

fn dot(a: V, b: V) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn length(a: V) -> f64 {
    dot(a, a).sqrt()
}

fn cross(a: V, b: V) -> V {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// Applies the rotation of a transform.
fn rotate(m: &cloud::Transform, p: V) -> V {
    let r = &m.r;
    [
        r[0] * p[0] + r[1] * p[1] + r[2] * p[2],
        r[3] * p[0] + r[4] * p[1] + r[5] * p[2],
        r[6] * p[0] + r[7] * p[1] + r[8] * p[2],
    ]
}

fn apply(m: &cloud::Transform, p: V) -> V {
    let q = rotate(m, p);
    [q[0] + m.t[0], q[1] + m.t[1], q[2] + m.t[2]]
}
