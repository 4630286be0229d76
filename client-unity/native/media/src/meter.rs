//! Viewer statistics: frame rate, frame delay, jitter, lost and late frames, points and bit rate.
//! Same definitions as internal/qoe, with terms from Qian et al., "Enabling eBPF-based packet
//! duplication for robust volumetric video streaming".

use std::collections::{BTreeMap, VecDeque};

use moqt::Nanos;

const SECOND: Nanos = 1_000_000_000;
/// Window of the live frame and bit rates.
const RATE_WINDOW: Nanos = SECOND;
/// Window of the live percentiles.
const DELAY_WINDOW: Nanos = 5 * SECOND;
const MAX_RECENT: usize = 1 << 14;
/// Sequence numbers remembered to recognize late frames.
const HISTORY: i64 = 1024;
/// Upper bound on any camera's frames per second.
const MAX_RATE: i64 = 1000;
const BYTE_BUCKET: Nanos = 50_000_000;

/// A decoded frame.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Number of the camera.
    pub camera: u16,
    /// Sequence number from the frame header.
    pub sequence: u32,
    /// Local time of decoding.
    pub at: Nanos,
    /// Delay from capture to the end of decoding, on the session's clock.
    pub delay: Nanos,
    /// Number of points.
    pub points: u32,
    /// Decoding time.
    pub decode: Nanos,
}

/// Live values: rates over the last second, percentiles and means over the last five.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Live {
    pub cameras: u32,
    pub fps: f64,
    pub shown_fps: f64,
    /// 50th, 95th and 99th percentile, ms.
    pub delay_ms: [f64; 3],
    pub shown_ms: [f64; 3],
    pub jitter_ms: f64,
    pub mbit_per_s: f64,
    pub points: f64,
    pub decode_ms: f64,
}

/// Totals and means over the whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Run {
    pub fps: f64,
    pub delay_ms: [f64; 3],
    pub frames: u64,
    pub shown: u64,
    pub lost: u64,
    pub late: u64,
    pub duplicate: u64,
    pub restarts: u64,
    pub bytes: u64,
}

/// Statistics of a session or one of its cameras.
#[derive(Debug, Default)]
pub struct Meter {
    cameras: BTreeMap<u16, Camera>,
    /// Histogram by [`bin`], to bound memory over a long run.
    delays: BTreeMap<i64, u64>,
    frames: u64,
    recent: VecDeque<Seen>,
    shown: u64,
    first_shown: Option<Nanos>,
    recent_shown: VecDeque<(u16, Nanos, Nanos)>,
    bytes: u64,
    received: VecDeque<(Nanos, usize)>,
}

/// Tracks a camera's sequence numbers. A publisher restart begins a new epoch; numbers are
/// comparable only within an epoch.
#[derive(Debug)]
struct Camera {
    first_at: Nanos,
    frames: u64,
    lost: u64,
    late: u64,
    duplicate: u64,
    restarts: u64,
    first: u32,
    highest: u32,
    captured: Nanos,
    seen: [u64; HISTORY as usize / 64],
    last_delay: Nanos,
    jitter: f64,
}

impl Camera {
    fn begin(&mut self, f: &Seen) {
        (self.first, self.highest, self.captured) = (f.sequence, f.sequence, f.at - f.delay);
        self.seen = [0; HISTORY as usize / 64];
        self.mark(f.sequence, true);
    }

    fn mark(&mut self, s: u32, v: bool) {
        let (word, bit) = ((s as usize % HISTORY as usize) / 64, s % 64);
        self.seen[word] = self.seen[word] & !(1 << bit) | u64::from(v) << bit;
    }

    fn marked(&self, s: u32) -> bool {
        self.seen[(s as usize % HISTORY as usize) / 64] >> (s % 64) & 1 == 1
    }

    /// Places a frame in its camera's sequence. Returns false for a duplicate.
    fn follow(&mut self, f: &Seen) -> bool {
        let captured = f.at - f.delay;
        let later = captured - self.captured;
        let d = i64::from(f.sequence.wrapping_sub(self.highest) as i32);
        if d == 0 || d < 0 && d > -HISTORY && self.marked(f.sequence) {
            // A repeated number is a duplicate, unless captured so much later that the publisher
            // must have restarted.
            if later > HISTORY * SECOND / MAX_RATE {
                self.restart(f);
                return true;
            }
            self.duplicate += 1;
            return false;
        }
        if d < 0 && (d <= -HISTORY || later > 0) {
            self.restart(f); // lower number, but captured later
        } else if d < 0 {
            self.mark(f.sequence, true);
            self.late += 1;
            if f.sequence.wrapping_sub(self.first) as i32 > 0 {
                self.lost = self.lost.saturating_sub(1); // counted as lost when a later frame arrived
            }
        } else if d > 1 + HISTORY && d as f64 > MAX_RATE as f64 * later as f64 / SECOND as f64 {
            self.restart(f); // gap exceeds the frames any camera produces in that time
        } else {
            self.lost += (d - 1) as u64;
            for i in (d - HISTORY).max(1)..d {
                self.mark(self.highest.wrapping_add(i as u32), false);
            }
            self.mark(f.sequence, true);
            (self.highest, self.captured) = (f.sequence, captured);
        }
        true
    }

    fn restart(&mut self, f: &Seen) {
        self.restarts += 1;
        self.begin(f);
    }
}

/// Milliseconds, rounded down to 10 µs.
fn milliseconds(d: Nanos) -> f64 {
    d.div_euclid(10_000) as f64 / 100.0
}

/// Histogram bin of a delay, in units of 10 µs, with at least three digits: steps of 10 µs below 20
/// ms, 0.1 ms below 200 ms, 1 ms below 2 s, 10 ms up to a minute.
fn bin(delay: Nanos) -> i64 {
    let us10 = delay.clamp(-SECOND / 2, 60 * SECOND).div_euclid(10_000);
    let step = match us10.abs() {
        0..=1_999 => 1,
        2_000..=19_999 => 10,
        20_000..=199_999 => 100,
        _ => 1_000,
    };
    us10.div_euclid(step) * step
}

/// Nearest-rank index of a percentile.
fn rank(n: u64, p: u64) -> u64 {
    (n * p).div_ceil(100)
}

const PERCENTILES: [u64; 3] = [50, 95, 99];

fn nearest(mut delays: Vec<Nanos>) -> [f64; 3] {
    if delays.is_empty() {
        return [0.0; 3];
    }
    delays.sort_unstable();
    PERCENTILES.map(|p| milliseconds(delays[rank(delays.len() as u64, p) as usize - 1]))
}

fn per_second(n: f64, d: Nanos) -> f64 {
    if d > 0 {
        n * SECOND as f64 / d as f64
    } else {
        0.0
    }
}

impl Meter {
    /// Counts received media bytes.
    pub fn received(&mut self, n: usize, at: Nanos) {
        self.bytes += n as u64;
        match self.received.back_mut() {
            Some((from, bytes)) if at - *from < BYTE_BUCKET => *bytes += n,
            _ => self.received.push_back((at, n)),
        }
        while self.received.front().is_some_and(|(from, _)| at - from > RATE_WINDOW + BYTE_BUCKET) {
            self.received.pop_front();
        }
    }

    /// Counts a decoded frame. Ignores duplicates.
    pub fn decoded(&mut self, f: Seen) {
        let c = self.cameras.entry(f.camera).or_insert_with(|| {
            let mut c = Camera {
                first_at: f.at,
                frames: 0,
                lost: 0,
                late: 0,
                duplicate: 0,
                restarts: 0,
                first: 0,
                highest: 0,
                captured: 0,
                seen: [0; HISTORY as usize / 64],
                last_delay: f.delay,
                jitter: 0.0,
            };
            c.begin(&f);
            c
        });
        if c.frames > 0 && !c.follow(&f) {
            return;
        }
        c.frames += 1;
        // RFC 3550 §6.4.1, A.8: the difference of two transit times is that of their frame delays.
        c.jitter += ((f.delay - c.last_delay).abs() as f64 - c.jitter) / 16.0;
        c.last_delay = f.delay;
        self.frames += 1;
        *self.delays.entry(bin(f.delay)).or_default() += 1;
        while self.recent.len() >= MAX_RECENT || self.recent.front().is_some_and(|r| f.at - r.at > DELAY_WINDOW) {
            self.recent.pop_front();
        }
        self.recent.push_back(f);
    }

    /// Counts a shown frame and its delay to display.
    pub fn shown(&mut self, camera: u16, at: Nanos, delay: Nanos) {
        self.shown += 1;
        self.first_shown.get_or_insert(at);
        let list = &mut self.recent_shown;
        while list.len() >= MAX_RECENT || list.front().is_some_and(|r| at - r.1 > DELAY_WINDOW) {
            list.pop_front();
        }
        list.push_back((camera, at, delay));
    }

    /// Computes live values.
    pub fn live(&self, now: Nanos) -> Live {
        let mut l = Live { cameras: self.cameras.len() as u32, ..Live::default() };
        let recent: Vec<_> = self.recent.iter().filter(|f| now - f.at <= DELAY_WINDOW).collect();
        let mean = |of: &dyn Fn(&Seen) -> f64| match recent.len() {
            0 => 0.0,
            n => recent.iter().map(|f| of(f)).sum::<f64>() / n as f64,
        };
        l.points = mean(&|f| f64::from(f.points));
        l.decode_ms = mean(&|f| f.decode as f64 / 1e6);
        l.delay_ms = nearest(recent.iter().map(|f| f.delay).collect());
        let shown = || self.recent_shown.iter().filter(|f| now - f.1 <= DELAY_WINDOW);
        l.shown_ms = nearest(shown().map(|f| f.2).collect());
        let cameras = self.cameras.len().max(1) as f64;
        l.fps = recent.iter().filter(|f| now - f.at <= RATE_WINDOW).count() as f64 / cameras;
        let n = shown().filter(|f| now - f.1 <= RATE_WINDOW).count() as f64;
        // In the first second, the rate counts the frames after the first.
        l.shown_fps = match self.first_shown.map(|first| now - first) {
            Some(since) if since < RATE_WINDOW => per_second((n - cameras).max(0.0), since) / cameras,
            _ => n / cameras,
        };
        l.jitter_ms = self.cameras.values().map(|c| c.jitter / 1e6).sum::<f64>() / cameras;
        let bytes: usize = self.received.iter().filter(|r| now - r.0 <= RATE_WINDOW).map(|r| r.1).sum();
        l.mbit_per_s = bytes as f64 * 8.0 / 1e6;
        l
    }

    /// Computes totals of the run.
    pub fn run(&self, now: Nanos) -> Run {
        let mut r = Run { frames: self.frames, shown: self.shown, bytes: self.bytes, ..Run::default() };
        for c in self.cameras.values() {
            // The rate starts at the first frame, and includes a stall at the end.
            r.fps += per_second(c.frames as f64 - 1.0, now - c.first_at) / self.cameras.len() as f64;
            r.lost += c.lost;
            r.late += c.late;
            r.duplicate += c.duplicate;
            r.restarts += c.restarts;
        }
        for (of, p) in r.delay_ms.iter_mut().zip(PERCENTILES) {
            let (mut below, want) = (0, rank(self.frames, p));
            for (bin, n) in &self.delays {
                below += n;
                if below >= want {
                    *of = *bin as f64 / 100.0;
                    break;
                }
            }
        }
        r
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_accurate() {
        let mut all = std::collections::BTreeSet::new();
        for us10 in -60_000..6_100_000i64 {
            let b = bin(us10 * 10_000);
            all.insert(b);
            assert!(
                !(-50_000..=6_000_000).contains(&us10) || b <= us10 && us10 - b <= us10.abs() / 200,
                "{us10} in {b}"
            );
        }
        assert!(all.len() < 16_000, "{}", all.len());
    }

    const MS: Nanos = 1_000_000;
    const START: Nanos = 1_763_665_200 * SECOND;

    fn seen(sequence: u32, at: Nanos, delay: Nanos) -> Seen {
        Seen { camera: 0, sequence, at: START + at, delay, points: 100, decode: 2 * MS }
    }

    #[test]
    fn thirty_frames_a_second() {
        let mut m = Meter::default();
        for i in 0..300 {
            m.decoded(seen(i, i64::from(i) * SECOND / 30, (20 + i64::from(i % 10)) * MS));
            m.received(1000, START + i64::from(i) * SECOND / 30);
        }
        let now = START + 299 * SECOND / 30;
        let l = m.live(now);
        assert!((l.fps - 30.0).abs() <= 1.0 && (l.mbit_per_s - 0.24).abs() < 0.02, "{l:?}");
        assert_eq!((l.delay_ms, l.points, l.decode_ms), ([25.0, 29.0, 29.0], 100.0, 2.0)); // of 151 frames
        let r = m.run(now);
        assert!((r.fps - 30.0).abs() < 1e-6);
        assert_eq!((r.frames, r.lost, r.delay_ms, r.bytes), (300, 0, [24.0, 29.0, 29.0], 300_000));
    }

    #[test]
    fn rate_in_the_first_second() {
        let mut m = Meter::default();
        let mut rate = |frames: std::ops::Range<i64>| {
            frames.clone().for_each(|i| m.shown(0, START + i * 100 * MS, 20 * MS));
            m.live(START + (frames.end - 1) * 100 * MS).shown_fps
        };
        assert_eq!([rate(0..1), rate(1..2), rate(2..7), rate(7..40)], [0.0, 10.0, 10.0, 11.0]);
    }

    #[test]
    fn loss_reordering_duplicates_and_restart() {
        let mut m = Meter::default();
        let counts = |m: &Meter| {
            let r = m.run(START + SECOND);
            (r.frames, r.lost, r.late, r.duplicate, r.restarts)
        };
        for (i, (n, want)) in [
            (10, (1, 0, 0, 0, 0)),
            (13, (2, 2, 0, 0, 0)),
            (13, (2, 2, 0, 1, 0)),
            (11, (3, 1, 1, 1, 0)), // late: 11 of 11, 12
            (14, (4, 1, 1, 1, 0)),
            (3, (5, 1, 1, 1, 1)), // captured after 14: publisher restarted
        ]
        .into_iter()
        .enumerate()
        {
            let i = i as i64;
            // The late frame is older than the newest; the others are newer.
            let delay = if n == 11 { 500 * MS } else { 20 * MS };
            m.decoded(seen(n, i * 33 * MS, delay));
            assert_eq!(counts(&m), want, "frame {n}");
        }
    }

    #[test]
    fn sequence_wraps() {
        let mut m = Meter::default();
        for i in 0..10u32 {
            m.decoded(seen((u32::MAX - 4).wrapping_add(i), i64::from(i) * 33 * MS, 0));
        }
        let r = m.run(START + SECOND);
        assert_eq!((r.frames, r.lost, r.restarts), (10, 0, 0));
    }
}
