//! The ring between the thread that decodes and the audio thread, which neither waits nor allocates.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{fence, AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::filter::{filter, HALF, ONE};
use crate::{Nanos, MS, SECOND};

/// Frames of two samples in the ring: 340 ms at 48 kHz.
const FRAMES: usize = 1 << 14;
/// Frames kept behind the reader for its filter.
const BEHIND: usize = 64;
/// Frames held back to fade out when the ring runs dry: 2 ms at 48 kHz.
const RESERVE: u64 = 96;
/// Output frames of a fade.
const FADE: usize = 96;
/// Sample rates of devices.
const RATES: std::ops::RangeInclusive<u32> = 8_000..=192_000;
/// Without a read for this long, the device is paused.
const PAUSED: Nanos = SECOND;

/// Local time: nanoseconds since 1970, monotonic.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
    began_at: Nanos,
}

impl Default for Clock {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { began: Instant::now(), began_at: since.as_nanos() as Nanos }
    }
}

impl Clock {
    /// The time now.
    pub fn now(&self) -> Nanos {
        self.began_at + self.began.elapsed().as_nanos() as Nanos
    }
}

/// A read as the decoding thread sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Read {
    /// Local time at which frame `frame` is heard.
    pub heard: Nanos,
    /// Time from the read until that frame is heard.
    pub latency: Nanos,
    pub frame: u64,
    /// Frames read at once.
    pub chunk: u64,
}

/// Stereo samples on their way to the audio thread.
#[derive(Debug)]
pub struct Ring {
    samples: Box<[AtomicU32]>,
    rate: AtomicU32,
    /// Frames written and read since the beginning.
    written: AtomicU64,
    read: AtomicU64,
    /// A sequence lock over the fields of the last read: odd while they change.
    sequence: AtomicU64,
    at: AtomicI64,
    latency: AtomicI64,
    frame: AtomicU64,
    chunk: AtomicU64,
    /// Times the ring ran dry.
    starved: AtomicU64,
    closed: AtomicBool,
}

impl Default for Ring {
    fn default() -> Self {
        filter(1.0); // not on the audio thread
        let samples = (0..2 * FRAMES).map(|_| AtomicU32::new(0)).collect();
        Ring {
            samples,
            rate: AtomicU32::new(48_000),
            written: AtomicU64::new(BEHIND as u64),
            read: AtomicU64::new(BEHIND as u64),
            sequence: AtomicU64::new(0),
            at: AtomicI64::new(0),
            latency: AtomicI64::new(0),
            frame: AtomicU64::new(0),
            chunk: AtomicU64::new(0),
            starved: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }
}

impl Ring {
    /// Sets the rate of the samples that follow.
    pub(crate) fn set_rate(&self, rate: u32) {
        self.rate.store(rate, Relaxed);
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Frames not read yet.
    pub(crate) fn filled(&self) -> u64 {
        self.written.load(Relaxed).saturating_sub(self.read.load(Acquire))
    }

    /// Appends interleaved samples of one or two channels; drops those without room.
    pub(crate) fn write(&self, samples: &[f32], channels: usize) {
        let written = self.written.load(Relaxed);
        let room = FRAMES as u64 - BEHIND as u64 - self.filled().min(FRAMES as u64 - BEHIND as u64);
        let frames = (samples.len() / channels).min(room as usize);
        for (i, f) in samples.chunks_exact(channels).take(frames).enumerate() {
            let at = 2 * ((written + i as u64) as usize % FRAMES);
            self.samples[at].store(f[0].to_bits(), Relaxed);
            self.samples[at + 1].store(f[channels - 1].to_bits(), Relaxed);
        }
        self.written.store(written + frames as u64, Release);
    }

    /// The last read; None if there is none, or the device is paused.
    pub(crate) fn last_read(&self, now: Nanos) -> Option<Read> {
        for _ in 0..8 {
            let before = self.sequence.load(Acquire);
            let (at, latency) = (self.at.load(Relaxed), self.latency.load(Relaxed));
            let (frame, chunk) = (self.frame.load(Relaxed), self.chunk.load(Relaxed));
            let read = Read { heard: at + latency, latency, frame, chunk };
            fence(Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Relaxed) == before {
                return (before > 0 && now - at < PAUSED).then_some(read);
            }
            std::hint::spin_loop();
        }
        None
    }

    fn note_read(&self, at: Nanos, latency: Nanos, frame: u64, chunk: u64) {
        self.sequence.fetch_add(1, AcqRel);
        self.at.store(at, Relaxed);
        self.latency.store(latency, Relaxed);
        self.frame.store(frame, Relaxed);
        self.chunk.store(chunk, Relaxed);
        self.sequence.fetch_add(1, Release);
    }

    /// Times the ring ran dry.
    pub fn starved(&self) -> u64 {
        self.starved.load(Relaxed)
    }

    /// The reader is gone.
    pub fn closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    fn frame(&self, at: u64) -> [f32; 2] {
        let at = 2 * (at as usize % FRAMES);
        [f32::from_bits(self.samples[at].load(Relaxed)), f32::from_bits(self.samples[at + 1].load(Relaxed))]
    }
}

/// State of the audio thread.
#[derive(Debug, Default)]
struct Position {
    /// Fractional part of the position.
    fraction: u64,
    /// Output frames since the start of the fade in; 0 = silent.
    audible: usize,
}

/// The audio thread's end of a ring. It may outlive the client.
#[derive(Debug)]
pub struct Reader {
    ring: Arc<Ring>,
    clock: Clock,
    /// Never waited for: if another thread holds the lock, a read returns silence.
    position: Mutex<Position>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ring.closed.store(true, Relaxed);
    }
}

impl Reader {
    /// Creates the reader of a ring.
    pub fn new(ring: Arc<Ring>, clock: Clock) -> Self {
        Reader { ring, clock, position: Mutex::default() }
    }

    /// Fills `out` with interleaved frames of `channels` samples at `rate`, heard `latency` later.
    /// Returns the number of frames with sound; the rest is silent. Neither waits nor allocates.
    pub fn read(&self, out: &mut [f32], channels: usize, rate: u32, latency: Nanos) -> usize {
        self.read_at(self.clock.now(), out, channels, rate, latency)
    }

    pub(crate) fn read_at(&self, now: Nanos, out: &mut [f32], channels: usize, rate: u32, latency: Nanos) -> usize {
        out.fill(0.0);
        if channels == 0 || !RATES.contains(&rate) {
            return 0;
        }
        let Ok(mut p) = self.position.try_lock() else { return 0 };
        let ring = &*self.ring;
        let wanted = out.len() / channels;
        let of_ring = ring.rate.load(Relaxed);
        let step = if of_ring == rate { ONE } else { u64::from(of_ring) * ONE / u64::from(rate) };
        let begin = ring.read.load(Relaxed);
        let chunk = (wanted as u64 * step).div_ceil(ONE);
        ring.note_read(now, latency.clamp(0, 10 * SECOND), begin, chunk);
        if step == ONE {
            p.fraction = 0;
        }
        let ahead = if step == ONE { 0 } else { HALF as u64 + 1 };
        let filled = ring.written.load(Acquire).saturating_sub(begin).saturating_sub(ahead);
        let possible = (filled * ONE).saturating_sub(p.fraction) / step;
        let dry = filled < chunk + RESERVE;
        let frames = if dry { possible.min(wanted as u64) as usize } else { wanted };
        if p.audible == 0 && dry {
            return 0; // begin when there is enough
        }
        let f = filter(step as f64 / ONE as f64);
        let mut at = begin * ONE + p.fraction;
        for (n, to) in out.chunks_exact_mut(channels).take(frames).enumerate() {
            let (whole, fraction) = (at / ONE, (at % ONE) as u32);
            let [left, right] = if fraction == 0 && step == ONE {
                ring.frame(whole)
            } else {
                [0, 1].map(|c| f.apply(fraction, |i| ring.frame(whole.wrapping_add_signed(i as i64))[c]))
            };
            at += step;
            let fade_in = if p.audible < FADE { p.audible as f32 / FADE as f32 } else { 1.0 };
            let fade_out = if dry { ((frames - 1 - n) as f32 / FADE as f32).min(1.0) } else { 1.0 };
            p.audible = (p.audible + 1).min(FADE);
            place(to, left * fade_in * fade_out, right * fade_in * fade_out);
        }
        if dry {
            p.audible = 0;
            ring.starved.fetch_add(1, Relaxed);
        }
        p.fraction = at % ONE;
        ring.read.store(at / ONE, Release);
        frames
    }
}

/// Writes a stereo frame to a device's channels.
fn place(to: &mut [f32], left: f32, right: f32) {
    match to {
        [mono] => *mono = 0.5 * (left + right),
        [l, r, ..] => (*l, *r) = (left, right),
        [] => {}
    }
}

/// Smooths the times of the device's reads, which come in irregular bursts.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// Local time minus duration of the frames read before; None before the first read.
    offset: Option<f64>,
    frame: u64,
}

/// A read that deviates by more than this is a jump rather than noise.
const JUMP: f64 = 50.0 * MS as f64;

impl Device {
    /// Local time at which a frame of the ring is heard.
    pub fn heard(&mut self, read: Read, frame: u64, rate: u32) -> Nanos {
        let per_frame = SECOND as f64 / f64::from(rate.max(1));
        let measured = read.heard as f64 - read.frame as f64 * per_frame;
        let offset = match self.offset {
            Some(o) if (measured - o).abs() > JUMP => measured,
            Some(o) if read.frame != self.frame => o + (measured - o) / 16.0,
            Some(o) => o,
            None => measured,
        };
        (self.offset, self.frame) = (Some(offset), read.frame);
        (offset + frame as f64 * per_frame) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(n: usize) -> Vec<f32> {
        (0..n).map(|i| (0.02 * i as f32).sin()).collect()
    }

    #[test]
    fn hands_over_samples() {
        let ring = Arc::new(Ring::default());
        let reader = Reader::new(ring.clone(), Clock::default());
        let mut out = [1.0; 512];
        assert_eq!(reader.read(&mut out, 2, 48_000, 0), 0);
        assert_eq!(out, [0.0; 512]);
        let samples = ramp(4800);
        ring.write(&samples, 1);
        assert_eq!(reader.read(&mut out, 2, 48_000, 0), 256);
        assert_eq!(reader.read(&mut out, 2, 48_000, 0), 256);
        assert_eq!(out[0], samples[256]);
        assert_eq!(out[511], samples[511]);
        let mut mono = [0.0; 100];
        assert_eq!(reader.read(&mut mono, 1, 48_000, 0), 100);
        assert_eq!(mono, samples[512..612]);
        assert_eq!(ring.starved(), 0);
    }

    #[test]
    fn runs_dry_without_a_click() {
        let ring = Arc::new(Ring::default());
        let reader = Reader::new(ring.clone(), Clock::default());
        let mut all = Vec::new();
        let samples = ramp(48_000);
        let mut rest = &samples[..];
        for i in 0..200 {
            if i % 40 < 20 {
                let (now, later) = rest.split_at(rest.len().min(300));
                ring.write(now, 1);
                rest = later;
            }
            let mut out = [0.0; 240];
            reader.read(&mut out, 1, [48_000, 44_100][i % 2], 0);
            all.extend(out);
        }
        assert!(ring.starved() > 0);
        let step = all.windows(2).map(|w| (w[1] - w[0]).abs()).fold(0f32, f32::max);
        assert!(step < 0.05, "a step of {step}");
        assert!(all.iter().any(|s| *s > 0.9));
    }

    #[test]
    fn resamples_to_the_device() {
        for rate in [44_100, 96_000, 24_000, 16_000] {
            let ring = Arc::new(Ring::default());
            let reader = Reader::new(ring.clone(), Clock::default());
            ring.write(&ramp(12_000), 1);
            let mut out = vec![0.0; rate / 10];
            assert_eq!(reader.read(&mut out, 1, rate as u32, 0), out.len());
            let per = 48_000.0 / rate as f32;
            for (i, s) in out.iter().enumerate().skip(FADE + HALF) {
                assert!((s - (0.02 * i as f32 * per).sin()).abs() < 1e-3, "{rate}: {i}");
            }
        }
    }

    #[test]
    fn refuses_devices_that_do_not_exist() {
        let reader = Reader::new(Arc::default(), Clock::default());
        for (channels, rate) in [(0, 48_000), (2, 0), (2, u32::MAX)] {
            assert_eq!(reader.read(&mut [0.0; 64], channels, rate, i64::MAX), 0);
        }
        assert_eq!(reader.read(&mut [], 2, 48_000, 0), 0);
    }

    #[test]
    fn smooths_reads() {
        let mut d = Device::default();
        let mut worst = 0;
        for i in 0..1000u64 {
            let noise = [0, 3, 1, 4][i as usize % 4] * MS;
            let read = Read { heard: i as Nanos * 20 * MS + noise, latency: 0, frame: i * 960, chunk: 960 };
            let heard = d.heard(read, i * 960 + 480, 48_000);
            if i > 200 {
                worst = worst.max((heard - (i as Nanos * 20 + 12) * MS).abs());
            }
        }
        assert!(worst < MS, "{worst}");
    }
}
