//! Interpolation by windowed sinc, to resample to the device's rate.

use std::f64::consts::PI;
use std::sync::OnceLock;

/// Samples that enter one output sample.
pub(crate) const TAPS: usize = 32;
/// Input samples on either side of the output's position.
pub(crate) const HALF: usize = TAPS / 2;
const PHASES: usize = 256;
/// Fixed-point one: positions have 32 fractional bits.
pub(crate) const ONE: u64 = 1 << 32;
/// Upper bounds of the step, and the pass band of the filter for it, as shares of the input's Nyquist
/// frequency.
const FILTERS: [(f64, f64); 3] = [(1.1, 0.9), (2.1, 0.46), (6.1, 0.16)];

/// Filter coefficients by phase.
pub(crate) struct Filter {
    taps: Vec<[f32; TAPS]>,
}

/// Filter for a step, in input samples per output sample. The first call computes all filters.
pub(crate) fn filter(step: f64) -> &'static Filter {
    static ALL: OnceLock<Vec<Filter>> = OnceLock::new();
    let all = ALL.get_or_init(|| FILTERS.iter().map(|(_, band)| Filter::new(*band)).collect());
    let n = FILTERS.iter().position(|(most, _)| step <= *most).unwrap_or(FILTERS.len() - 1);
    &all[n]
}

impl Filter {
    fn new(band: f64) -> Self {
        let taps = (0..=PHASES).map(|phase| {
            let fraction = phase as f64 / PHASES as f64;
            let mut taps = [0f64; TAPS];
            for (i, t) in taps.iter_mut().enumerate() {
                let x = i as f64 - (HALF as f64 - 1.0) - fraction;
                let sinc = if x == 0.0 { band } else { (PI * band * x).sin() / (PI * x) };
                // Blackman-Harris window.
                let w = 2.0 * PI * (x / TAPS as f64 + 0.5);
                let window = 0.35875 - 0.48829 * w.cos() + 0.14128 * (2.0 * w).cos() - 0.01168 * (3.0 * w).cos();
                *t = sinc * window;
            }
            let sum: f64 = taps.iter().sum();
            taps.map(|t| (t / sum) as f32)
        });
        Filter { taps: taps.collect() }
    }

    /// The output at a fractional position. `at(i)` returns input sample i, relative to the position's
    /// integer part, from 1 − HALF to HALF.
    pub fn apply(&self, fraction: u32, at: impl Fn(isize) -> f32) -> f32 {
        let phase = fraction as usize >> 24;
        let between = (fraction & 0xff_ffff) as f32 / 16_777_216.0;
        let (a, b) = (&self.taps[phase], &self.taps[phase + 1]);
        let sample = |i: usize| at(i as isize + 1 - HALF as isize) * (a[i] + between * (b[i] - a[i]));
        (0..TAPS).map(sample).sum()
    }
}
