//! The relay's clock, which is the session's: a one-way minimum filter over the stamps that the relay sends ten
//! times a second, in the manner of NTP's clock filter (RFC 5905 §10). As internal/clock.

use std::collections::VecDeque;

use moqt::Nanos;

/// Namespace and name of the relay's clock track.
pub const TRACK: (&str, &str) = (".relay", "clock");

const SECOND: Nanos = 1_000_000_000;
const WINDOW: Nanos = 10 * SECOND;
/// How fast two clocks may part: 50 ppm is a poor quartz.
const MAX_DRIFT: f64 = 50e-6;
/// How far beyond known queueing a stamp has to be off to be suspected of coming from a clock that was set.
const STEP_MARGIN: Nanos = 20_000_000;
/// Suspects in a row that it takes to believe it.
const STEP_STAMPS: usize = 5;
const MAX_SAMPLES: usize = 1024;
/// 2200-01-01, microseconds: later is no clock but damage.
const MAX_TIME: u64 = 7_258_118_400 * 1_000_000;

/// The time in a stamp, nanoseconds since 1970; nothing where it is none.
pub fn parse_stamp(b: &[u8]) -> Option<Nanos> {
    let us = u64::from_le_bytes(b.get(8..16)?.try_into().ok()?);
    (b[0] == 1 && us <= MAX_TIME).then(|| us as Nanos * 1000)
}

/// Round-trip time, as QUIC knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rtt {
    /// Least.
    pub min: Nanos,
    /// Smoothed.
    pub smoothed: Nanos,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    at: Nanos,
    /// The stamp's time less `at`.
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
    /// Takes a stamp that arrived at a local time.
    pub fn observe(&mut self, stamp: Nanos, arrived: Nanos, rtt: Rtt) {
        self.rtt_min = rtt.min.max(0);
        self.latest = if self.samples.is_empty() { arrived } else { self.latest.max(arrived) };
        let n = Sample { at: arrived, offset: stamp - arrived };
        if !self.samples.is_empty() && self.suspect(n, rtt) {
            self.suspects.push(n);
            if self.suspects.len() < STEP_STAMPS {
                return;
            }
            // Not queueing, not one stray packet: one of the clocks was set, or the path is another one.
            self.samples = self.suspects.drain(..).collect();
            self.steps += 1;
        } else {
            self.samples.push_back(n);
            self.suspects.clear();
        }
        while self.samples.len() > 1 && (self.latest - self.samples[0].at > WINDOW || self.samples.len() > MAX_SAMPLES) {
            self.samples.pop_front();
        }
        // The least delay, plus what the clocks may have drifted since.
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

    /// The relay's time at a local time; before the first stamp, the local time itself.
    pub fn at(&self, local: Nanos) -> Nanos {
        if self.samples.is_empty() {
            local
        } else {
            local + self.best.offset + self.rtt_min / 2
        }
    }

    /// Bounds the estimate's error at a local time: half the least round trip, and the drift since.
    pub fn error(&self, local: Nanos) -> Nanos {
        if self.samples.is_empty() {
            return 0;
        }
        self.rtt_min / 2 + (MAX_DRIFT * (local - self.best.at).abs() as f64) as Nanos
    }

    /// Stamps in use.
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    /// Times that a clock was found to have been set.
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
    fn stamps() {
        let mut b = [0u8; 16];
        b[0] = 1;
        b[8..].copy_from_slice(&1_763_665_200_000_000u64.to_le_bytes());
        assert_eq!(parse_stamp(&b), Some(EPOCH));
        assert_eq!(parse_stamp(&b[..15]), None);
        assert_eq!(parse_stamp(&[2; 16]), None);
        b[15] = 0xff;
        assert_eq!(parse_stamp(&b), None);
    }

    /// A relay 3 s ahead behind a path of 10 ms each way and a queue that is empty now and then.
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
    fn follows_a_clock_that_was_set() {
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
