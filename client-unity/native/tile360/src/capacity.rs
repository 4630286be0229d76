//! Prediction and measurement of network throughput.

use std::collections::VecDeque;

const MEAN_OF: usize = 3;
const RATIOS: usize = 40;
const MAX_RATIO: f64 = 10.0;
/// Midpoints of the deciles of the ratio between successive seconds' throughput in 5G networks;
/// used until enough has been measured.
const PRIOR: [f64; 10] = [0.2, 0.54, 0.84, 0.93, 0.99, 1.04, 1.11, 1.2, 1.51, 4.07];
/// Minimum size of a packet train to measure, in bytes, and lower limit on its measured duration, in
/// seconds.
const MIN_TRAIN: f64 = 3000.0;
const MIN_TRAIN_TIME: f64 = 0.005;

/// Predicts the network's throughput from past throughput, bytes per second.
#[derive(Debug, Clone, Default)]
pub struct Capacity {
    recent: VecDeque<f64>,
    ratios: VecDeque<f64>,
    sorted: Vec<f64>,
    guess: bool,
}

impl Capacity {
    /// Sets a provisional rate. Returns false if a rate has been measured.
    pub fn guess(&mut self, rate: f64) -> bool {
        if !self.recent.is_empty() && !self.guess {
            return false;
        }
        self.recent = VecDeque::from([rate.max(1.0)]);
        self.guess = true;
        self.sorted = PRIOR.to_vec();
        true
    }

    /// Adds a rate measured while the network was busy.
    pub fn add(&mut self, rate: f64) {
        let rate = if rate >= 1.0 { rate } else { 1.0 };
        if self.ratios.is_empty() {
            self.ratios.extend(PRIOR);
        }
        if std::mem::take(&mut self.guess) {
            self.recent.clear();
        }
        let mean = self.mean();
        if mean > 0.0 {
            if self.ratios.len() == RATIOS {
                self.ratios.pop_front();
            }
            self.ratios.push_back((rate / mean).min(MAX_RATIO));
        }
        if self.recent.len() == MEAN_OF {
            self.recent.pop_front();
        }
        self.recent.push_back(rate);
        self.sorted = self.ratios.iter().copied().collect();
        self.sorted.sort_by(f64::total_cmp);
    }

    /// Harmonic mean of the latest rates; 0 if there are none.
    pub fn mean(&self) -> f64 {
        if self.recent.is_empty() {
            return 0.0;
        }
        self.recent.len() as f64 / self.recent.iter().map(|r| 1.0 / r).sum::<f64>()
    }

    /// The rate exceeded with a probability of 100 − p percent; 0 if there are no rates.
    pub fn percentile(&self, p: f64) -> f64 {
        let n = self.sorted.len();
        if n == 0 {
            return 0.0;
        }
        // Interpolate: each sample stands for the midpoint of its share.
        let at = (p / 100.0 * n as f64 - 0.5).min((n - 1) as f64).max(0.0);
        let i = at.floor() as usize;
        let mut r = self.sorted[i];
        if let Some(next) = self.sorted.get(i + 1) {
            r += (at - i as f64) * (next - r);
        }
        self.mean() * r
    }

    /// Distribution of the bytes deliverable in the given time: equally probable values in
    /// ascending order.
    pub fn distribution(&self, seconds: f64) -> Vec<f64> {
        let mean = self.mean();
        self.sorted.iter().map(|r| mean * r * seconds).collect()
    }
}

/// Measures throughput by the first frames of a GoP. All tiles' first frames are sent back to back,
/// so they arrive at the network's rate even if the requested rate is low.
#[derive(Debug, Clone, Default)]
pub struct Train {
    group: Option<u64>,
    bytes: f64,
    times: [f64; 2],
    counts: [f64; 2],
}

impl Train {
    /// Adds an object of any track, with its arrival time in seconds. `begins` is true for the first
    /// object of a tile's GoP.
    pub fn add(&mut self, at: f64, bytes: usize, group: u64, begins: bool) {
        self.bytes += bytes as f64;
        if !begins || self.group.is_some_and(|g| group < g) {
            return;
        }
        if self.group != Some(group) {
            self.group = Some(group);
            (self.times, self.counts) = ([at; 2], [self.bytes; 2]);
        } else if at >= self.times[1] {
            (self.times[1], self.counts[1]) = (at, self.bytes);
        }
    }

    /// Bytes per second while the GoP's first frames arrived; 0 if there were too few.
    pub fn rate(&self, group: u64) -> f64 {
        let bytes = self.counts[1] - self.counts[0];
        if self.group != Some(group) || bytes < MIN_TRAIN {
            return 0.0;
        }
        bytes / (self.times[1] - self.times[0]).max(MIN_TRAIN_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_rate_replaces_the_guess() {
        let mut c = Capacity::default();
        assert!(c.guess(100.0) && c.guess(200.0) && c.percentile(10.0) > 0.0);
        assert_eq!(c.mean(), 200.0);
        c.add(900.0);
        assert!(!c.guess(100.0) && c.mean() == 900.0);
    }

    #[test]
    fn rate_of_the_first_frames() {
        let mut t = Train::default();
        for i in 0..=10 {
            t.add(1.0 + 0.01 * f64::from(i), 900, 5, true);
            t.add(1.005 + 0.01 * f64::from(i), 100, 5, false);
        }
        t.add(1.2, 1000, 5, false);
        t.add(1.3, 1000, 4, true); // late
        assert!((t.rate(5) - 100_000.0).abs() < 1e-3);
        assert_eq!((t.rate(4), t.rate(6)), (0.0, 0.0));
    }
}
