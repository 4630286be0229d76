//! Estimates the relay's clock, which is the session clock: a one-way minimum filter over the
//! timestamps that the relay sends ten times a second, like NTP's clock filter (RFC 5905 §10). Same
//! algorithm as internal/clock.

use std::collections::VecDeque;

use moqt::Nanos;

/// Namespace and name of the relay's clock track.
pub const TRACK: (&str, &str) = (".relay", "clock");

const SECOND: Nanos = 1_000_000_000;
const WINDOW: Nanos = 10 * SECOND;
/// Maximum drift between two clocks: a poor quartz drifts by 50 ppm.
const MAX_DRIFT: f64 = 50e-6;
/// A timestamp off by this much more than the known queueing delay suggests a clock step.
const STEP_MARGIN: Nanos = 20_000_000;
/// Consecutive suspicious timestamps needed to accept a clock step.
const STEP_STAMPS: usize = 5;
const MAX_SAMPLES: usize = 1024;
/// 2200-01-01 in microseconds: later timestamps are invalid.
const MAX_TIME: u64 = 7_258_118_400 * 1_000_000;

/// Parses a timestamp into nanoseconds since 1970; None if invalid.
pub fn parse_stamp(b: &[u8]) -> Option<Nanos> {
    let us = u64::from_le_bytes(b.get(8..16)?.try_into().ok()?);
    (b[0] == 1 && us <= MAX_TIME).then(|| us as Nanos * 1000)
}

/// Round-trip time as measured by QUIC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rtt {
    /// Minimum.
    pub min: Nanos,
    /// Smoothed.
    pub smoothed: Nanos,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    at: Nanos,
    /// Timestamp minus `at`.
    offset: Nanos,
}

/// Estimates the relay's clock.
#[derive(Debug, Default)]
pub struct Estimator {
    samples: VecDeque<Sample>,
    suspects: Vec<Sample>,
    best: Sample,
    rtt_min: Nanos,
    latest: Nanos,
    steps: u32,
}

impl Estimator {
    /// Adds a timestamp that arrived at the given local time.
    pub fn observe(&mut self, stamp: Nanos, arrived: Nanos, rtt: Rtt) {
        self.rtt_min = rtt.min.max(0);
        self.latest = if self.samples.is_empty() { arrived } else { self.latest.max(arrived) };
        let n = Sample { at: arrived, offset: stamp - arrived };
        if !self.samples.is_empty() && self.suspect(n, rtt) {
            self.suspects.push(n);
            if self.suspects.len() < STEP_STAMPS {
                return;
            }
            // Neither queueing nor a single stray packet: a clock was stepped, or the path changed.
            self.samples = self.suspects.drain(..).collect();
            self.steps += 1;
        } else {
            self.samples.push_back(n);
            self.suspects.clear();
        }
        while self.samples.len() > 1 && (self.latest - self.samples[0].at > WINDOW || self.samples.len() > MAX_SAMPLES)
        {
            self.samples.pop_front();
        }
        // Least delay, plus the possible clock drift since.
        let first = self.samples[0].offset;
        let mut best = f64::NEG_INFINITY;
        for s in &self.samples {
            let score = (s.offset - first) as f64 - MAX_DRIFT * (self.latest - s.at) as f64;
            if score >= best {
                (best, self.best) = (score, *s);
            }
        }
    }

    fn suspect(&self, n: Sample, rtt: Rtt) -> bool {
        let drift = (MAX_DRIFT * (n.at - self.best.at).abs() as f64) as Nanos;
        let queue = (rtt.smoothed - rtt.min).max(0);
        (n.offset - self.best.offset).abs() > STEP_MARGIN + drift + queue
    }

    /// Relay time at a local time; the local time itself before the first timestamp.
    pub fn at(&self, local: Nanos) -> Nanos {
        if self.samples.is_empty() {
            local
        } else {
            local + self.best.offset + self.rtt_min / 2
        }
    }

    /// Error bound of the estimate at a local time: half the minimum round-trip time, plus drift.
    pub fn error(&self, local: Nanos) -> Nanos {
        if self.samples.is_empty() {
            return 0;
        }
        self.rtt_min / 2 + (MAX_DRIFT * (local - self.best.at).abs() as f64) as Nanos
    }

    /// Number of timestamps in use.
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    /// Number of detected clock steps.
    pub fn steps(&self) -> u32 {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const EPOCH: Nanos = 1_763_665_200 * SECOND;

    #[test]
    fn timestamps() {
        let mut b = [0u8; 16];
        b[0] = 1;
        b[8..].copy_from_slice(&1_763_665_200_000_000u64.to_le_bytes());
        assert_eq!(parse_stamp(&b), Some(EPOCH));
        assert_eq!(parse_stamp(&b[..15]), None);
        assert_eq!(parse_stamp(&[2; 16]), None);
        b[15] = 0xff;
        assert_eq!(parse_stamp(&b), None);
    }

    /// The relay's clock is 3 s ahead; the path has 10 ms delay each way and a queue that drains
    /// now and then.
    #[test]
    fn finds_the_offset_behind_a_queue() {
        let mut e = Estimator::default();
        assert_eq!(e.at(5), 5);
        let rtt = Rtt { min: 20 * MS, smoothed: 45 * MS };
        for i in 0..100 {
            let sent = EPOCH + i * 100 * MS;
            let queue = if i % 7 == 3 { 0 } else { (i * 13 % 40) * MS };
            e.observe(sent + 3 * SECOND, sent + 10 * MS + queue, rtt);
        }
        let now = EPOCH + 10 * SECOND;
        assert!((e.at(now) - now - 3 * SECOND).abs() < MS, "{}", e.at(now) - now);
        assert!(e.error(now) < 11 * MS);
        assert_eq!(e.steps(), 0);
    }

    #[test]
    fn follows_a_clock_step() {
        let mut e = Estimator::default();
        let rtt = Rtt { min: 0, smoothed: 0 };
        for i in 0..50 {
            let at = EPOCH + i * 100 * MS;
            let step = if i >= 30 { -SECOND } else { 0 };
            e.observe(at + step, at, rtt);
            if i == 31 {
                e.observe(at + 7 * SECOND, at, rtt); // one stray
            }
        }
        let now = EPOCH + 5 * SECOND;
        assert_eq!(e.at(now) - now, -SECOND);
        assert!(e.steps() >= 1);
    }
}
