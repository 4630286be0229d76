//! Gaze prediction.

use crate::sphere::{Look, Vec3, FORWARD};
use std::collections::VecDeque;
use std::f64::consts::{FRAC_PI_2, PI};

/// A gaze direction at media time `t`, in seconds.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Sample {
    pub t: f64,
    pub gaze: Vec3,
}

/// Length of the regression's history, seconds.
const HISTORY: f64 = 0.5;
const MAX_SAMPLES: usize = 64;
const RING_LOOKS: usize = 8;
/// A crowd viewer's weight is exp(FOCUS · (cos a − 1)), where a is the angle between the two gazes.
const FOCUS: f64 = 4.0;

// Fitted to recorded head movements: internal/tile360/model_data.go.
const HORIZONS: [f64; 7] = [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0];
const SPEEDS: [f64; 2] = [0.1, 0.4];
/// Prediction weights by horizon, each to the right and up: with a crowd, of the regression and of
/// the crowd; without one, of the regression.
const BLENDS: [[f64; 6]; 7] = [
    [0.0; 6],
    [0.668, 0.451, 0.036, 0.016, 0.663, 0.447],
    [0.558, 0.331, 0.084, 0.033, 0.552, 0.327],
    [0.447, 0.189, 0.162, 0.041, 0.439, 0.186],
    [0.373, 0.113, 0.202, 0.042, 0.363, 0.11],
    [0.301, 0.061, 0.22, 0.057, 0.29, 0.057],
    [0.168, 0.0, 0.217, 0.085, 0.157, -0.003],
];
/// Prediction errors to the right and up and the crowd's weight, without and with a crowd, by speed
/// class and horizon.
#[rustfmt::skip]
const SPREADS: [[[[f64; 3]; 7]; 3]; 2] = [
    [
        [[0., 0., 0.], [0.036, 0.013, 0.], [0.093, 0.028, 0.], [0.218, 0.06, 0.],
         [0.336, 0.092, 0.], [0.436, 0.122, 0.], [0.584, 0.183, 0.]],
        [[0., 0., 0.], [0.078, 0.027, 0.], [0.174, 0.054, 0.], [0.355, 0.104, 0.],
         [0.509, 0.15, 0.], [0.637, 0.194, 0.], [0.809, 0.275, 0.]],
        [[0., 0., 0.], [0.122, 0.038, 0.], [0.242, 0.07, 0.], [0.464, 0.128, 0.],
         [0.661, 0.186, 0.], [0.814, 0.245, 0.], [1.007, 0.353, 0.]],
    ],
    [
        [[0., 0., 0.], [0.038, 0.013, 0.], [0.097, 0.029, 0.], [0.225, 0.061, 0.1],
         [0.343, 0.093, 0.1], [0.438, 0.124, 0.2], [0.581, 0.182, 0.2]],
        [[0., 0., 0.], [0.078, 0.027, 0.], [0.173, 0.055, 0.], [0.351, 0.103, 0.],
         [0.499, 0.149, 0.2], [0.62, 0.192, 0.3], [0.789, 0.267, 0.4]],
        [[0., 0., 0.], [0.122, 0.038, 0.], [0.241, 0.071, 0.], [0.46, 0.128, 0.1],
         [0.649, 0.186, 0.2], [0.794, 0.242, 0.3], [0.978, 0.343, 0.4]],
    ],
];
/// Radii, in standard deviations, that divide the error distribution into equally probable rings.
const RINGS: [f64; 6] = [0.195, 0.489, 0.836, 1.306, 2.051, 3.871];

/// Interpolates a table over the horizons.
fn at<const N: usize>(table: &[[f64; N]; 7], ahead: f64) -> [f64; N] {
    let Some(k) = (1..HORIZONS.len()).find(|k| ahead < HORIZONS[*k]) else { return table[6] };
    let f = ((ahead - HORIZONS[k - 1]) / (HORIZONS[k] - HORIZONS[k - 1])).max(0.0);
    std::array::from_fn(|i| table[k - 1][i] + f * (table[k][i] - table[k - 1][i]))
}

fn limited([x, y]: [f64; 2], most: f64) -> [f64; 2] {
    let n = (x * x + y * y).sqrt();
    if n > most {
        [x * most / n, y * most / n]
    } else {
        [x, y]
    }
}

/// Gaze of several viewers of a video, sampled at a fixed rate from its start.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Crowd {
    pub rate: f64,
    pub viewers: Vec<Vec<Vec3>>,
}

impl Crowd {
    /// The viewers' directions at media time `t`, weighted by how close their gaze was to `now`.
    fn weighted<'a>(&'a self, now: &'a Sample, t: f64) -> impl Iterator<Item = Look> + 'a {
        let index = |t: f64| (t * self.rate + 0.5).floor();
        let (then, later) = (index(now.t), index(t));
        let of = |v: &'a Vec<Vec3>, i: f64| (i >= 0.0).then(|| v.get(i as usize).copied()).flatten();
        let looks = self.viewers.iter().filter_map(move |v| {
            let (then, gaze) = (of(v, then)?, of(v, later)?);
            Some(Look { gaze, p: (FOCUS * (then.dot(now.gaze) - 1.0)).exp() })
        });
        looks.filter(|l| l.p > 0.0)
    }

    fn mean(&self, now: &Sample, t: f64) -> Option<Vec3> {
        let mut sum = [0.0; 3];
        for l in self.weighted(now, t) {
            for (s, v) in sum.iter_mut().zip(l.gaze.0) {
                *s += l.p * v;
            }
        }
        let sum = Vec3(sum);
        (sum.dot(sum) >= 1e-18).then(|| sum.unit())
    }
}

/// Predicts the gaze of one viewer.
#[derive(Debug, Clone, Default)]
pub struct Gaze {
    /// Gaze of other viewers, if known.
    pub crowd: Option<Crowd>,
    samples: VecDeque<Sample>,
}

impl Gaze {
    /// Adds a sample. A time that is not later than the last restarts the history, as after a seek.
    pub fn add(&mut self, t: f64, gaze: Vec3) {
        if self.samples.back().is_some_and(|l| t.is_nan() || t <= l.t) {
            self.samples.clear();
        }
        while self.samples.front().is_some_and(|s| s.t < t - HISTORY - 1e-9 || self.samples.len() >= MAX_SAMPLES) {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { t, gaze: gaze.unit() });
    }

    /// The latest sample; forward if there is none.
    pub fn last(&self) -> Sample {
        self.samples.back().copied().unwrap_or(Sample { t: 0.0, gaze: FORWARD })
    }

    /// Angular velocity to the right and up, radians per second, by regression over the history.
    fn velocity(&self) -> [f64; 2] {
        let (last, n) = (self.last(), self.samples.len() as f64);
        if n < 2.0 {
            return [0.0; 2];
        }
        let [mut t, mut x, mut y, mut tt, mut tx, mut ty] = [0.0; 6];
        for s in &self.samples {
            let [a, b] = last.gaze.offset(s.gaze);
            let d = s.t - last.t;
            t += d;
            x += a;
            y += b;
            tt += d * d;
            tx += d * a;
            ty += d * b;
        }
        let spread = tt - t * t / n;
        if spread < 1e-9 {
            return [0.0; 2];
        }
        [(tx - t * x / n) / spread, (ty - t * y / n) / spread]
    }

    fn ahead(&self, seconds: f64) -> [f64; 2] {
        limited(self.velocity().map(|v| v * seconds), FRAC_PI_2)
    }

    /// Prediction by regression alone, for a time in seconds after the last sample.
    pub fn linear(&self, seconds: f64) -> Vec3 {
        self.last().gaze.moved(self.ahead(seconds))
    }

    /// Prediction from regression and crowd, with the weights fitted to recorded head movements.
    pub fn predict(&self, seconds: f64) -> Vec3 {
        let ([right, up], last) = (self.ahead(seconds), self.last());
        let [own_x, own_y, crowd_x, crowd_y, alone_x, alone_y] = at(&BLENDS, seconds);
        match self.crowd.as_ref().and_then(|c| c.mean(&last, last.t + seconds)) {
            None => last.gaze.moved([alone_x * right, alone_y * up]),
            Some(c) => {
                let [x, y] = last.gaze.offset(c);
                last.gaze.moved([own_x * right + crowd_x * x, own_y * up + crowd_y * y])
            }
        }
    }

    /// Adds possible gaze directions at a time in seconds after the last sample, with probabilities
    /// that sum to p.
    pub fn looks(&self, seconds: f64, mut p: f64, looks: &mut Vec<Look>) {
        let centre = self.predict(seconds);
        let [right, up] = self.velocity();
        let speed = (right * right + up * up).sqrt();
        let class = SPEEDS.iter().take_while(|s| speed > **s).count();
        let [ex, ey, share] = at(&SPREADS[usize::from(self.crowd.is_some())][class], seconds);
        if let Some(c) = &self.crowd {
            let (last, from) = (self.last(), looks.len());
            looks.extend(c.weighted(&last, last.t + seconds));
            let sum: f64 = looks[from..].iter().map(|l| l.p).sum();
            looks[from..].iter_mut().for_each(|l| l.p *= p * share / sum);
            if looks.len() > from {
                p -= p * share;
            }
        }
        let per = p / (RINGS.len() * RING_LOOKS) as f64;
        for (i, radius) in RINGS.iter().enumerate() {
            for k in 0..RING_LOOKS {
                let (s, c) = (2.0 * PI * (k as f64 + 0.5 * (i % 2) as f64) / RING_LOOKS as f64).sin_cos();
                let offset = limited([radius * ex * c, radius * ey * s], PI);
                looks.push(Look { gaze: centre.moved(offset), p: per });
            }
        }
    }
}
