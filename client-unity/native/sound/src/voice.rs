//! Playback of one track: keeps the ring filled with the sound that is due.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::decode::{DecodeError, Decoder};
use crate::jitter::{Jitter, Next};
use crate::packet::Format;
use crate::resample::Resampler;
use crate::ring::{Device, Ring};
use crate::{Nanos, MS, SECOND};

/// Blocks per second.
const BLOCKS: u32 = 100;
const BLOCK: Nanos = 10 * MS;
/// Samples in the ring beyond the device's next read, until the thread that fills it runs again.
const SLACK: Nanos = 15 * MS;
const MAX_SLACK: Nanos = 75 * MS;
/// Deviations from the due time: where stretching begins and ends, and where playback jumps.
const BEGIN: Nanos = 8 * MS;
const END: Nanos = MS;
const JUMP: Nanos = 300 * MS;
/// Maximum stretch, and the time in which a smaller one corrects a deviation, seconds.
const STRETCH: f64 = 0.05;
const CORRECTION: f64 = 2.0;
const LEAST_STRETCH: f64 = 0.002;
/// Maximum sound concealed in a row.
const CONCEAL: Nanos = 60 * MS;
/// Frames of a fade in.
const FADE: usize = 240;

/// The time at which sound is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// As soon as the packets allow.
    Soonest,
    /// At a local time minus capture time, or later if the packets require it.
    NotBefore(Nanos),
    /// At a local time minus capture time.
    At(Nanos),
    /// Silence.
    Paused,
}

/// State of playback.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Report {
    /// Sound is being played.
    pub playing: bool,
    /// Local time at which sound is heard minus its capture time.
    pub shift: Option<Nanos>,
    /// The least shift that packets and device allow.
    pub needed: Option<Nanos>,
    /// Sound that waits in the ring.
    pub ring: Nanos,
    /// Concealed sound over the run.
    pub concealed: Nanos,
    /// Undecodable packets.
    pub damaged: u64,
    /// Jumps of playback after the first start.
    pub restarts: u64,
    /// Output per input minus one, in the last block.
    pub stretch: f64,
}

/// Plays one track into a ring.
#[derive(Debug)]
pub struct Voice {
    ring: Arc<Ring>,
    format: Format,
    decoder: Decoder,
    device: Device,
    stretcher: Resampler,
    /// Capture time at the end of the stretcher's input.
    end: Nanos,
    playing: bool,
    stretching: bool,
    /// Frames since playback began, up to the fade's end.
    faded: usize,
    in_a_row: Nanos,
    slack: Nanos,
    starved: u64,
    decoded: Vec<f32>,
    out: Vec<f32>,
    report: Report,
    last_error: Option<DecodeError>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Voice {
    /// Opens the track's decoder.
    pub fn new(format: &Format, ring: Arc<Ring>) -> Result<Self, DecodeError> {
        let decoder = Decoder::new(format)?;
        ring.set_rate(format.rate);
        Ok(Voice {
            starved: ring.starved(),
            ring,
            format: format.clone(),
            decoder,
            device: Device::default(),
            stretcher: Resampler::new(format.channels),
            end: 0,
            playing: false,
            stretching: false,
            faded: 0,
            in_a_row: 0,
            slack: SLACK,
            decoded: Vec::new(),
            out: Vec::new(),
            report: Report::default(),
            last_error: None,
        })
    }

    /// State of playback.
    pub fn report(&self) -> Report {
        self.report
    }

    /// The last packet's error.
    pub fn error(&self) -> Option<&DecodeError> {
        self.last_error.as_ref()
    }

    /// Fills the ring up to what the device reads next. Call this every few milliseconds.
    pub fn run(&mut self, now: Nanos, target: Target, jitter: &Mutex<Jitter>) {
        let Some(read) = self.ring.last_read(now) else {
            self.report.playing = false;
            return;
        };
        let starved = self.ring.starved();
        if starved > self.starved {
            self.slack = (self.slack + BLOCK).min(MAX_SLACK);
        }
        self.starved = starved;
        let lead = read.chunk + self.format.samples(self.slack) as u64;
        let mut filled = self.ring.filled();
        self.report.ring = self.format.duration(filled as usize);
        while filled < lead {
            let heard = self.device.heard(read, self.ring.written(), self.format.rate);
            let ahead = heard - now - self.format.duration(filled as usize) + self.format.duration(lead as usize);
            let needed = lock(jitter).needed().map(|n| n + ahead.max(0) + BLOCK);
            self.report.needed = needed;
            self.block(heard, self.shift(target, needed), jitter);
            self.ring.write(&self.out, self.format.channels);
            if self.ring.filled() <= filled {
                return; // no room
            }
            filled = self.ring.filled();
        }
    }

    fn shift(&self, target: Target, needed: Option<Nanos>) -> Option<Nanos> {
        match target {
            Target::Soonest => needed,
            Target::NotBefore(shift) => needed.map(|n| n.max(shift)),
            Target::At(shift) => Some(shift),
            Target::Paused => None,
        }
    }

    /// Capture time of the next sample to be output.
    fn position(&self) -> Nanos {
        let left = self.stretcher.left() as f64 - self.stretcher.fraction();
        self.end - (left * SECOND as f64 / f64::from(self.format.rate)) as Nanos
    }

    /// Writes the block heard at a local time to `out`.
    fn block(&mut self, heard: Nanos, shift: Option<Nanos>, jitter: &Mutex<Jitter>) {
        let frames = (self.format.rate / BLOCKS) as usize;
        self.out.clear();
        let due = shift.map(|s| heard.saturating_sub(s));
        let error = due.map(|d| d - self.position());
        if self.playing {
            let step = error.filter(|e| e.abs() <= JUMP).map(|e| self.step(e));
            let enough = self.supply(frames, step.unwrap_or(1.0), jitter);
            self.stretcher.produce(frames, step.unwrap_or(1.0), &mut self.out);
            self.report.shift = Some(heard - (due.unwrap_or_default() - error.unwrap_or_default()));
            if step.is_none() || !enough {
                self.fade_out(frames);
                self.report.restarts += 1;
            } else {
                self.fade_in(0);
            }
        } else if let Some(due) = due {
            self.begin(due, frames, jitter);
        }
        self.out.resize(frames * self.format.channels, 0.0);
        self.report.playing = self.playing;
    }

    /// Input samples per output sample that correct a deviation; positive where playback is late.
    fn step(&mut self, error: Nanos) -> f64 {
        let most = if self.stretching { END } else { BEGIN };
        self.stretching = error.abs() > most;
        let stretch = match error as f64 / SECOND as f64 / CORRECTION {
            _ if !self.stretching => 0.0,
            s if s > 0.0 => s.clamp(LEAST_STRETCH, STRETCH),
            s => s.clamp(-STRETCH, -LEAST_STRETCH),
        };
        self.report.stretch = stretch;
        1.0 + stretch
    }

    /// Decodes until the stretcher has input for a block. False where sound is missing for too long.
    fn supply(&mut self, frames: usize, step: f64, jitter: &Mutex<Jitter>) -> bool {
        while self.stretcher.left() < self.stretcher.need(frames, step) {
            let next = lock(jitter).take();
            match next {
                Next::Packet { time, samples, data } => self.decode(time, samples, &data),
                Next::Missing(..) | Next::Empty if self.in_a_row >= CONCEAL => {
                    self.conceal(BLOCK, None);
                    return false;
                }
                Next::Missing(gap, following) => {
                    let duration = gap.clamp(MS, BLOCK);
                    self.conceal(duration, following.as_deref());
                    lock(jitter).skip(duration);
                }
                Next::Empty => {
                    self.conceal(BLOCK, None);
                    lock(jitter).skip(BLOCK);
                }
            }
        }
        true
    }

    fn decode(&mut self, time: Nanos, samples: usize, data: &[u8]) {
        match self.decoder.decode(data, &mut self.decoded) {
            Ok(()) => {
                self.in_a_row = 0;
                self.last_error = None;
                self.stretcher.input().extend_from_slice(&self.decoded);
                self.end = time + self.format.duration(self.decoded.len() / self.format.channels);
            }
            Err(e) => {
                self.report.damaged += 1;
                self.last_error = Some(e);
                self.end = time;
                self.conceal(self.format.duration(samples), None);
            }
        }
    }

    fn conceal(&mut self, duration: Nanos, following: Option<&[u8]>) {
        self.decoder.conceal(self.format.samples(duration).max(1), following, &mut self.decoded);
        self.stretcher.input().extend_from_slice(&self.decoded);
        self.end += duration;
        self.in_a_row += duration;
        self.report.concealed += duration;
    }

    /// Begins with the packet that is due in a block, if there is one.
    fn begin(&mut self, due: Nanos, frames: usize, jitter: &Mutex<Jitter>) {
        let mut j = lock(jitter);
        let Some(first) = j.begin(due).filter(|t| *t < due + BLOCK) else { return };
        let Next::Packet { time, samples, data } = j.take() else { return };
        drop(j);
        self.stretcher.clear();
        self.in_a_row = 0;
        self.end = time;
        self.decode(time, samples, &data);
        if self.last_error.is_some() {
            self.stretcher.clear();
            return;
        }
        let silent = self.format.samples(first - due).min(frames);
        self.stretcher.drop_input(self.format.samples(due - first));
        self.out.resize(silent * self.format.channels, 0.0);
        (self.playing, self.stretching, self.faded) = (true, false, 0);
        let enough = self.supply(frames - silent, 1.0, jitter);
        self.stretcher.produce(frames - silent, 1.0, &mut self.out);
        self.fade_in(silent);
        if !enough {
            self.fade_out(frames);
        }
    }

    fn fade_in(&mut self, from: usize) {
        for frame in self.out.chunks_exact_mut(self.format.channels).skip(from) {
            if self.faded >= FADE {
                return;
            }
            let gain = self.faded as f32 / FADE as f32;
            frame.iter_mut().for_each(|s| *s *= gain);
            self.faded += 1;
        }
    }

    /// Ends playback with this block.
    fn fade_out(&mut self, frames: usize) {
        let from = self.faded.min(FADE) as f32 / FADE as f32;
        let n = (self.out.len() / self.format.channels).min(frames).max(1);
        for (i, frame) in self.out.chunks_exact_mut(self.format.channels).enumerate() {
            let gain = from * (1.0 - (i + 1) as f32 / n as f32);
            frame.iter_mut().for_each(|s| *s *= gain);
        }
        self.playing = false;
        self.report.shift = None;
        self.report.stretch = 0.0;
        self.stretcher.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Codec;
    use crate::ring::{Clock, Reader};

    const FORMAT: Format =
        Format { codec: Codec::Opus, channels: 1, rate: 48_000, config: None, packet: Some(10_000_000) };
    /// Time of capture of the first packet.
    const ORIGIN: Nanos = 1_790_000_000 * SECOND;

    /// Plays a tone of 400 Hz through a network, on a device that reads 512 frames at a time, in fake
    /// time.
    struct Stage {
        packets: Vec<Vec<u8>>,
        jitter: Mutex<Jitter>,
        voice: Voice,
        reader: Reader,
        heard: Vec<f32>,
        target: Target,
        /// Device frames per second.
        pace: f64,
        now: Nanos,
        sent: usize,
        reads: u64,
    }

    impl Stage {
        fn new(seconds: usize, target: Target) -> Self {
            let mut e = opus_rs::OpusEncoder::new(48_000, 1, opus_rs::Application::Audio).unwrap();
            e.bitrate_bps = 64_000;
            let mut b = [0u8; 1275];
            let packets = (0..100 * seconds).map(|n| {
                let tone = |i| (std::f32::consts::TAU * 400.0 * (480 * n + i) as f32 / 48_000.0).sin() * 0.5;
                let len = e.encode(&(0..480).map(tone).collect::<Vec<_>>(), 480, &mut b).unwrap();
                b[..len].to_vec()
            });
            let ring = Arc::new(Ring::default());
            Stage {
                packets: packets.collect(),
                jitter: Mutex::default(),
                voice: Voice::new(&FORMAT, ring.clone()).unwrap(),
                reader: Reader::new(ring, Clock::default()),
                heard: Vec::new(),
                target,
                pace: 48_000.0,
                now: ORIGIN,
                sent: 0,
                reads: 0,
            }
        }

        /// Runs for a time. `path` returns a packet's delay on the network, None: lost.
        fn run(&mut self, ms: i64, path: impl Fn(usize) -> Option<Nanos>) {
            for _ in 0..ms {
                self.now += MS;
                while let Some(p) = self.packets.get(self.sent) {
                    let n = self.sent as Nanos;
                    // Encoded when its last sample was captured.
                    let delay = path(self.sent);
                    if ORIGIN + (n + 1) * BLOCK + delay.unwrap_or_default() > self.now {
                        break;
                    }
                    if delay.is_some() {
                        lock(&self.jitter).add(self.now, ORIGIN + n * BLOCK, 480, BLOCK, p.clone(), false);
                    }
                    self.sent += 1;
                }
                if ((self.now - ORIGIN) as f64 / 1e9 * self.pace / 512.0) as u64 > self.reads {
                    self.reads += 1;
                    let mut out = [0f32; 512];
                    self.reader.read_at(self.now, &mut out, 1, 48_000, 20 * MS);
                    self.heard.extend(out);
                }
                if self.now % (5 * MS) == 0 {
                    self.voice.run(self.now, self.target, &self.jitter);
                }
            }
        }

        /// The steepest step between two samples: 0.026 in a tone of 400 Hz.
        fn steepest(&self) -> f32 {
            self.heard.windows(2).map(|w| (w[1] - w[0]).abs()).fold(0.0, f32::max)
        }

        fn assert_shift(&self, want: Nanos, within: Nanos) {
            let shift = self.voice.report().shift.unwrap_or_default();
            assert!((shift - want).abs() <= within, "{shift} instead of {want}");
        }
    }

    #[test]
    fn plays_when_due() {
        let mut s = Stage::new(5, Target::At(150 * MS));
        s.run(4000, |_| Some(20 * MS));
        s.assert_shift(150 * MS, 9 * MS);
        let r = s.voice.report();
        assert_eq!((r.concealed, r.restarts, r.damaged), (0, 0, 0));
        assert!(s.steepest() < 0.04, "{}", s.steepest());
        assert_eq!(s.reader.read_at(s.now, &mut [0.0; 64], 1, 48_000, 0), 64);
    }

    #[test]
    fn finds_its_own_delay() {
        let mut s = Stage::new(20, Target::Soonest);
        s.run(15_000, |n| Some(20 * MS + (n % 7) as Nanos * MS));
        let shift = s.voice.report().shift.unwrap_or_default();
        // 36 ms on the network with the packet's own 10, 11 for a read, 20 in the device, 25 to fill.
        assert!((70 * MS..110 * MS).contains(&shift), "{shift}");
        assert!(s.voice.report().concealed < 50 * MS, "{:?}", s.voice.report());
    }

    #[test]
    fn later_sound_and_a_changed_delay_stretch() {
        let mut s = Stage::new(25, Target::NotBefore(40 * MS));
        s.run(5000, |_| Some(60 * MS));
        assert!(s.voice.report().shift.unwrap_or_default() > 100 * MS);
        s.target = Target::NotBefore(250 * MS);
        s.run(15_000, |_| Some(60 * MS));
        s.assert_shift(250 * MS, 9 * MS);
        assert_eq!(s.voice.report().restarts, 0);
        assert!(s.steepest() < 0.04, "{}", s.steepest());
    }

    #[test]
    fn follows_a_device_with_another_clock() {
        let mut s = Stage::new(60, Target::At(150 * MS));
        s.pace = 48_000.0 * 1.0005;
        s.run(59_000, |_| Some(20 * MS));
        s.assert_shift(150 * MS, 10 * MS);
        let r = s.voice.report();
        assert_eq!((r.concealed, r.restarts), (0, 0));
    }

    #[test]
    fn conceals_lost_packets_without_a_click() {
        let mut s = Stage::new(10, Target::At(150 * MS));
        s.run(9000, |n| (n % 20 != 11).then_some(20 * MS));
        let r = s.voice.report();
        assert!((400 * MS..460 * MS).contains(&r.concealed), "{r:?}");
        assert!(s.steepest() < 0.06, "{}", s.steepest());
    }

    #[test]
    fn resumes_after_an_interruption() {
        let mut s = Stage::new(10, Target::At(150 * MS));
        s.run(9000, |n| (!(200..500).contains(&n)).then_some(20 * MS));
        s.assert_shift(150 * MS, 9 * MS);
        let r = s.voice.report();
        assert!(r.concealed < 100 * MS && r.restarts == 1, "{r:?}");
        assert!(s.steepest() < 0.06, "{}", s.steepest());
        s.target = Target::Paused;
        s.run(500, |_| Some(20 * MS));
        assert!(!s.voice.report().playing);
        assert!(s.heard[s.heard.len() - 4800..].iter().all(|s| *s == 0.0));
        assert!(s.steepest() < 0.06, "{}", s.steepest());
    }

    #[test]
    fn hostile_packets() {
        let mut s = Stage::new(1, Target::Soonest);
        s.run(500, |_| Some(0));
        for i in 0..10_000i64 {
            let data = vec![0xf0 | (i % 4) as u8; 1 + i as usize % 1275];
            let time = s.now + (i * 7919 % 20_000 - 10_000) * MS;
            lock(&s.jitter).add(s.now, time, 480, BLOCK, data, i % 2 == 0);
        }
        s.run(1000, |_| Some(0));
        assert!(lock(&s.jitter).waiting() <= 1024 * BLOCK);
        assert!(s.heard.iter().all(|s| s.abs() <= 4.0));
    }
}
