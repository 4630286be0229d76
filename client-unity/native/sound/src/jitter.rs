//! The jitter buffer: packets in the order of their capture times, and the delay that they need.

use std::collections::{BTreeMap, VecDeque};

use crate::{Nanos, MS, SECOND};

/// Timestamps of consecutive packets differ from their durations by less than this.
const TOLERANCE: Nanos = 5 * MS;
/// Bounds on waiting packets.
const MAX_PACKETS: usize = 1024;
const MAX_BYTES: usize = 1 << 20;
/// Packets whose delays determine the delay of playback, and the share of them that may come late.
const WINDOW: usize = 500;
const LATE_SHARE: usize = 100;
/// Packets needed before playback begins.
const FIRST: usize = 3;
/// A delay that differs by more than this belongs to another clock: a replay restarted.
const OTHER_CLOCK: Nanos = SECOND;
/// Consecutive packets on another clock until that is the clock.
const SUSPECTS: usize = 5;

/// Counters over the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets received, without repetitions.
    pub packets: u64,
    /// Packets after their time.
    pub late: u64,
    /// Missing packets played from their repetition.
    pub repaired: u64,
    /// Packets dropped because too many wait.
    pub dropped: u64,
}

/// What follows the packet taken last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The next packet.
    Packet {
        /// Capture time of its first sample.
        time: Nanos,
        /// Samples per channel.
        samples: usize,
        /// Bytes.
        data: Vec<u8>,
    },
    /// Missing sound of a duration, and the packet behind if only one is missing.
    Missing(Nanos, Option<Vec<u8>>),
    /// No later packet has arrived.
    Empty,
}

#[derive(Debug)]
struct Held {
    samples: usize,
    length: Nanos,
    data: Vec<u8>,
    repeated: bool,
}

/// Packets of one track that wait for their time.
#[derive(Debug, Default)]
pub struct Jitter {
    packets: BTreeMap<Nanos, Held>,
    bytes: usize,
    /// Capture time at which the next packet begins.
    next: Option<Nanos>,
    /// Local arrival minus capture of the latest packets.
    delays: VecDeque<Nanos>,
    suspects: Vec<Nanos>,
    counts: Counts,
}

impl Jitter {
    /// Adds a packet that arrived at a local time. `repeated`: in the properties of the packet behind.
    pub fn add(&mut self, now: Nanos, time: Nanos, samples: usize, length: Nanos, data: Vec<u8>, repeated: bool) {
        if !repeated {
            self.counts.packets += 1;
            self.observe(now.saturating_sub(time));
        }
        let near = TOLERANCE.min(length / 2);
        if self.next.is_some_and(|n| time < n - near) {
            self.counts.late += u64::from(!repeated);
            return;
        }
        if self.packets.range(time - near..=time + near).next().is_some() {
            return;
        }
        self.bytes += data.len();
        self.packets.insert(time, Held { samples, length, data, repeated });
        while self.packets.len() > MAX_PACKETS || self.bytes > MAX_BYTES {
            self.counts.dropped += 1;
            self.pop();
        }
    }

    fn observe(&mut self, delay: Nanos) {
        let other = self.delays.back().is_some_and(|d| (delay - d).abs() > OTHER_CLOCK);
        if other {
            self.suspects.push(delay);
            if self.suspects.len() < SUSPECTS {
                return;
            }
            self.delays.clear();
            self.delays.extend(self.suspects.drain(..));
            return;
        }
        self.suspects.clear();
        self.delays.push_back(delay);
        if self.delays.len() > WINDOW {
            self.delays.pop_front();
        }
    }

    fn pop(&mut self) -> Option<(Nanos, Held)> {
        let (time, held) = self.packets.pop_first()?;
        self.bytes -= held.data.len();
        Some((time, held))
    }

    /// Local time minus capture time at which all but one percent of the packets have arrived; None
    /// until enough have.
    pub fn needed(&self) -> Option<Nanos> {
        if self.delays.len() < FIRST {
            return None;
        }
        let mut sorted: Vec<_> = self.delays.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() - 1 - sorted.len() / LATE_SHARE).copied()
    }

    /// Least local time minus capture time of the latest packets.
    pub fn least(&self) -> Option<Nanos> {
        self.delays.iter().min().copied()
    }

    /// Takes the packet that follows the last.
    pub fn take(&mut self) -> Next {
        let Some((&time, held)) = self.packets.first_key_value() else { return Next::Empty };
        let near = TOLERANCE.min(held.length / 2);
        match self.next {
            Some(next) if time > next + near => {
                let one = time - next <= held.length + near;
                Next::Missing(time - next, one.then(|| held.data.clone()))
            }
            _ => {
                let Some((time, held)) = self.pop() else { return Next::Empty };
                self.counts.repaired += u64::from(held.repeated);
                self.next = Some(time + held.length);
                Next::Packet { time, samples: held.samples, data: held.data }
            }
        }
    }

    /// Continues without the next sound of a duration.
    pub fn skip(&mut self, duration: Nanos) {
        if let Some(next) = &mut self.next {
            *next += duration;
        }
    }

    /// Drops packets that end by a capture time. Returns the capture time of the first one left.
    pub fn begin(&mut self, time: Nanos) -> Option<Nanos> {
        self.next = None;
        while self.packets.first_key_value().is_some_and(|(t, h)| t + h.length <= time) {
            self.pop();
        }
        self.packets.keys().next().copied()
    }

    /// Duration of the sound that waits.
    pub fn waiting(&self) -> Nanos {
        self.packets.values().map(|h| h.length).sum()
    }

    /// Drops everything: playback jumped.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.delays.clear();
        self.suspects.clear();
        (self.bytes, self.next) = (0, None);
    }

    /// Counters over the run.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Nanos = 10 * MS;

    fn add(j: &mut Jitter, now: Nanos, n: i64, repeated: bool) {
        j.add(now, n * LENGTH, 480, LENGTH, vec![n as u8], repeated);
    }

    fn taken(j: &mut Jitter) -> Option<u8> {
        match j.take() {
            Next::Packet { data, .. } => data.first().copied(),
            _ => None,
        }
    }

    #[test]
    fn reorders_and_ignores_duplicates() {
        let mut j = Jitter::default();
        for n in [1, 0, 1, 3, 2] {
            add(&mut j, 100 * MS, n, false);
        }
        assert_eq!((0..4).map_while(|_| taken(&mut j)).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(j.take(), Next::Empty);
        add(&mut j, 100 * MS, 2, false);
        assert_eq!((j.take(), j.counts().late), (Next::Empty, 1));
    }

    #[test]
    fn a_repetition_fills_its_place() {
        let mut j = Jitter::default();
        add(&mut j, 0, 0, false);
        add(&mut j, 0, 1, true);
        add(&mut j, 0, 2, false);
        assert_eq!((0..3).map_while(|_| taken(&mut j)).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(j.counts(), Counts { packets: 2, repaired: 1, ..Counts::default() });
    }

    #[test]
    fn reports_missing_packets() {
        let mut j = Jitter::default();
        add(&mut j, 0, 0, false);
        add(&mut j, 0, 2, false);
        add(&mut j, 0, 9, false);
        assert_eq!(taken(&mut j), Some(0));
        assert_eq!(j.take(), Next::Missing(LENGTH, Some(vec![2])));
        j.skip(LENGTH);
        assert_eq!(taken(&mut j), Some(2));
        assert_eq!(j.take(), Next::Missing(6 * LENGTH, None));
        assert_eq!(j.begin(85 * MS), Some(90 * MS));
        assert_eq!(taken(&mut j), Some(9));
    }

    #[test]
    fn timestamps_may_deviate() {
        let mut j = Jitter::default();
        for n in 0..100 {
            let jitter = [0, 900_000, -700_000][n as usize % 3];
            j.add(0, n * LENGTH + jitter, 480, LENGTH, vec![n as u8], false);
        }
        assert_eq!((0..100).map_while(|_| taken(&mut j)).count(), 100);
    }

    #[test]
    fn delay_that_loses_a_percent() {
        let mut j = Jitter::default();
        assert_eq!(j.needed(), None);
        for n in 0..1000 {
            let late = if n % 200 == 7 { 80 } else { n % 10 };
            add(&mut j, n * LENGTH + late * MS, n, false);
            taken(&mut j);
        }
        assert_eq!(j.needed(), Some(9 * MS));
        assert_eq!(j.least(), Some(0));
        // The recording restarts an hour earlier: a single stray packet does not count.
        add(&mut j, 3_600_000 * MS, 2000, false);
        assert_eq!(j.needed(), Some(9 * MS));
        for n in 0..20 {
            add(&mut j, 3_600_000 * MS + n * LENGTH, n, false);
        }
        assert_eq!(j.needed(), Some(3_600_000 * MS));
    }

    proptest::proptest! {
        #[test]
        fn memory_is_bounded(times: Vec<i32>, size in 1usize..8191) {
            let mut j = Jitter::default();
            for (i, t) in times.iter().cycle().take(20 * times.len().min(200)).enumerate() {
                j.add(i as Nanos, Nanos::from(*t) * i as Nanos, 480, LENGTH, vec![0; size], i % 3 == 0);
                if i % 7 == 0 { let _ = j.take(); }
                if i % 50 == 0 { j.begin(Nanos::from(*t)); }
            }
            assert!(j.packets.len() <= MAX_PACKETS && j.bytes <= MAX_BYTES);
            assert_eq!(j.bytes, j.packets.values().map(|h| h.data.len()).sum::<usize>());
            let _ = (j.needed(), j.waiting());
        }
    }
}
