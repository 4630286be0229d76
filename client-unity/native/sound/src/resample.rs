//! Resampling by windowed sinc, with a rate that may change from call to call without a step.

use std::f64::consts::PI;
use std::sync::OnceLock;

/// Samples that enter one output sample.
pub(crate) const TAPS: usize = 32;
/// Input before and after the output's position.
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

/// Filter for a step, in input samples per output sample. Computed at the first call for any.
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

/// Stretches a stream of interleaved samples.
#[derive(Debug)]
pub struct Resampler {
    channels: usize,
    input: Vec<f32>,
    /// Position of the next output in `input`, frames.
    at: u64,
}

impl Resampler {
    /// Creates a resampler of a number of channels.
    pub fn new(channels: usize) -> Self {
        let mut r = Resampler { channels, input: Vec::new(), at: 0 };
        r.clear();
        r
    }

    /// Forgets all input.
    pub fn clear(&mut self) {
        self.input.clear();
        self.input.resize(HALF * self.channels, 0.0);
        self.at = HALF as u64 * ONE;
    }

    /// Input to append to.
    pub fn input(&mut self) -> &mut Vec<f32> {
        &mut self.input
    }

    /// Input frames from the position of the next output on.
    pub fn left(&self) -> usize {
        self.input.len() / self.channels - (self.at / ONE) as usize
    }

    /// Fractional part of the position, in frames.
    pub fn fraction(&self) -> f64 {
        (self.at % ONE) as f64 / ONE as f64
    }

    /// Input frames needed for a number of output frames.
    pub fn need(&self, frames: usize, step: f64) -> usize {
        (frames as f64 * step.max(1.0)).ceil() as usize + HALF + 2
    }

    /// Drops input frames.
    pub fn drop_input(&mut self, frames: usize) {
        self.at += frames.min(self.left()) as u64 * ONE;
        self.trim();
    }

    /// Appends `frames` output frames; fewer if the input ends. A step of 1 returns the input itself,
    /// as soon as the position is a whole number.
    pub fn produce(&mut self, frames: usize, step: f64, out: &mut Vec<f32>) -> usize {
        let (channels, f) = (self.channels, filter(1.0));
        let exact = step == 1.0;
        // Towards a whole position by an inaudible stretch.
        let by = if exact { ONE + ONE / 512 } else { (step * ONE as f64) as u64 };
        for n in 0..frames {
            let (whole, fraction) = ((self.at / ONE) as usize, (self.at % ONE) as u32);
            if (whole + HALF + 1) * channels > self.input.len() {
                return n;
            }
            if exact && fraction == 0 {
                out.extend_from_slice(&self.input[whole * channels..(whole + 1) * channels]);
                self.at += ONE;
                continue;
            }
            for c in 0..channels {
                let at = |i: isize| self.input[whole.wrapping_add_signed(i) * channels + c];
                out.push(f.apply(fraction, at));
            }
            let next = self.at + by;
            let settled = exact && next % ONE < by % ONE;
            self.at = if settled { next / ONE * ONE } else { next };
        }
        self.trim();
        frames
    }

    fn trim(&mut self) {
        let used = ((self.at / ONE) as usize).saturating_sub(HALF);
        if used > 4096 {
            self.input.drain(..used * self.channels);
            self.at -= used as u64 * ONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(n: usize, step: f64) -> Vec<f32> {
        (0..n).map(|i| (2.0 * PI * 1000.0 * i as f64 * step / 48_000.0).sin() as f32).collect()
    }

    #[test]
    fn a_step_of_one_is_exact() {
        let mut r = Resampler::new(1);
        let input = tone(4800, 1.0);
        r.input().extend(&input);
        let mut out = Vec::new();
        assert_eq!(r.produce(4000, 1.0, &mut out), 4000);
        assert_eq!(out, input[..4000]);
    }

    #[test]
    fn stretches_without_distortion() {
        let mut r = Resampler::new(1);
        r.input().extend(tone(20_000, 1.0));
        let mut out = Vec::new();
        r.produce(10_000, 1.03, &mut out);
        let want = tone(10_000, 1.03);
        let noise: f64 = out.iter().zip(&want).skip(100).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let power: f64 = want.iter().skip(100).map(|a| f64::from(*a).powi(2)).sum();
        let snr = 10.0 * (power / noise).log10();
        assert!(snr > 70.0, "{snr} dB");
        // Back at a step of one the samples are the input's again.
        r.produce(2000, 1.0, &mut out);
        assert_eq!(r.fraction(), 0.0);
        let step = out.windows(2).map(|w| (w[1] - w[0]).abs()).fold(0f32, f32::max);
        assert!(step < 0.14, "a step of {step}");
    }

    #[test]
    fn ends_with_the_input() {
        let mut r = Resampler::new(2);
        r.input().extend(tone(200, 1.0));
        let mut out = Vec::new();
        let n = r.produce(1000, 1.0, &mut out);
        assert!(n < 100 && out.len() == 2 * n);
    }
}
