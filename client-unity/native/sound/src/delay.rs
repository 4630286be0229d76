//! The delay within which packets arrive. Same algorithm as internal/jitter/delay.go.

use std::collections::VecDeque;

use crate::Micros;

/// Arrivals that determine the delay.
const WINDOW: usize = 512;
const MAX_TARGET: Micros = 1_000_000;
/// Added to the percentile of arrivals.
const HEADROOM: Micros = 5_000;
/// Added while fewer than FIRST packets have arrived.
const EARLY: Micros = 20_000;
const FIRST: usize = 32;
/// A packet that needs over SURPLUS more than the target was delayed by a stall. Stalls are over
/// APART arrivals apart, and recur within RECURRENCE.
const SURPLUS: Micros = 50_000;
const APART: usize = 100;
const RECURRENCE: usize = 1000;

/// Finds the delay within which 99 % of the recent packets arrive. Ignores a stall of the network,
/// after which packets arrive in a burst, unless stalls recur.
#[derive(Debug, Default)]
pub(crate) struct Delay {
    /// Delays from capture to the earliest possible playback: in order of arrival, and sorted.
    recent: VecDeque<Micros>,
    sorted: Vec<Micros>,
    count: usize,
    pub target: Micros,
    /// Count at the newest packet that a stall delayed.
    stall: usize,
    /// Another stall preceded it by less than RECURRENCE.
    recurs: bool,
    /// The newest packets arrived together after a stall.
    burst: bool,
}

impl Delay {
    /// Adds a packet. `bunched`: it arrived together with the one before.
    pub fn observe(&mut self, delay: Micros, bunched: bool) {
        self.count += 1;
        if self.stalled(delay, bunched) {
            return;
        }
        if self.recent.len() == WINDOW {
            if let Some(at) = self.recent.pop_front().and_then(|old| self.sorted.binary_search(&old).ok()) {
                self.sorted.remove(at);
            }
        }
        self.recent.push_back(delay);
        let at = self.sorted.partition_point(|v| *v < delay);
        self.sorted.insert(at, delay);
        let mut wanted = self.sorted[(99 * self.sorted.len()).div_ceil(100) - 1] + HEADROOM;
        if self.count < FIRST {
            wanted += EARLY;
        }
        wanted = wanted.min(MAX_TARGET);
        // Each change is audible as a stretch, so small reductions wait.
        if self.count <= FIRST || wanted > self.target || wanted < self.target - 2 * HEADROOM {
            self.target = wanted;
        }
    }

    /// True if a packet belongs to the burst after a stall that does not recur.
    fn stalled(&mut self, delay: Micros, bunched: bool) -> bool {
        self.burst &= bunched;
        if self.count > FIRST && delay > self.target + SURPLUS {
            let since = self.count - self.stall;
            if since > APART {
                self.recurs = self.stall > 0 && since < RECURRENCE;
            }
            (self.stall, self.burst) = (self.count, true);
        }
        self.burst && bunched && !self.recurs && delay > self.target
    }

    /// The delay within which 90 % of the recent packets arrive.
    pub fn usual(&self) -> Micros {
        let at = (90 * self.sorted.len()).div_ceil(100).saturating_sub(1);
        self.sorted.get(at).map_or(0, |v| (v + HEADROOM).min(MAX_TARGET))
    }

    /// Least delay of the recent packets.
    pub fn least(&self) -> Option<Micros> {
        self.sorted.first().copied()
    }

    /// Adds `by` to all delays, because the path to the loudspeaker has changed.
    pub fn shift(&mut self, by: Micros) {
        self.recent.iter_mut().chain(&mut self.sorted).for_each(|v| *v += by);
        if self.count > 0 {
            self.target = (self.target + by).min(MAX_TARGET);
        }
    }
}
