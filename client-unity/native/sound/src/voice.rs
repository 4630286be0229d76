//! Playback of one track: keeps the ring filled with the sound that is due. Same algorithm as
//! internal/jitter/voice.go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::decode::{DecodeError, Decoder};
use crate::jitter::{Buffer, Kind};
use crate::packet::Format;
use crate::ring::{Device, Ring};
use crate::splice::Splicer;
use crate::{Micros, Nanos, MS};

/// Sound in the ring beyond the device's next read, to last until the filling thread runs again;
/// grows when the ring runs dry.
const SLACK: Nanos = 15 * MS;
const MAX_SLACK: Nanos = 75 * MS;
const SLACK_STEP: Nanos = 10 * MS;
/// Irregularity of the device's reads.
const IRREGULAR: Nanos = 5 * MS;
/// Smaller changes to the lead are ignored.
const STEADY: Micros = 2_000;

/// The wanted delay from capture to playback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The least that the packets allow.
    Soonest,
    /// That of pictures, or up to `latest` if the packets require it. More only where over a tenth of
    /// the packets would be concealed.
    Pictures {
        /// Delay of the pictures.
        delay: Micros,
        /// The largest acceptable delay of sound.
        latest: Micros,
    },
    /// Exactly this.
    At(Micros),
    /// Silence; the packets wait.
    Paused,
}

/// State of playback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Sound is being played.
    pub playing: bool,
    /// Delay from capture to playback on the session's clock.
    pub delay: Option<Micros>,
    /// Sound that waits in the ring.
    pub ring: Nanos,
    /// Undecodable packets: over the run, and consecutive ones.
    pub damaged: u64,
    /// Consecutive undecodable packets.
    pub damaged_in_a_row: u64,
}

/// Plays one track into a ring.
#[derive(Debug)]
pub struct Voice {
    ring: Arc<Ring>,
    format: Format,
    decoder: Decoder,
    device: Device,
    splicer: Splicer,
    /// The newest output was silence.
    quiet: bool,
    slack: Nanos,
    starved: u64,
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
            splicer: Splicer::new(format.channels),
            quiet: true,
            slack: SLACK,
            out: Vec::new(),
            report: Report::default(),
            last_error: None,
        })
    }

    /// State of playback.
    pub fn report(&self) -> Report {
        self.report
    }

    /// The reason why the last packet was undecodable.
    pub fn error(&self) -> Option<&DecodeError> {
        self.last_error.as_ref()
    }

    /// Fills the ring up to the device's next read. Call this every few milliseconds. `base`: local
    /// time minus session time.
    pub fn run(&mut self, now: Nanos, base: Nanos, target: Target, buffer: &Mutex<Buffer>) {
        let Some(read) = self.ring.last_read(now) else {
            self.report.playing = false;
            return;
        };
        let starved = self.ring.starved();
        if starved > self.starved {
            self.slack = (self.slack + SLACK_STEP).min(MAX_SLACK);
        }
        self.starved = starved;
        let full = read.chunk + self.format.samples(self.slack) as u64;
        let lead = (read.latency + self.format.duration(full as usize) + IRREGULAR) / 1000;
        {
            let mut b = lock(buffer);
            if (lead - b.lead()).abs() > STEADY {
                b.set_lead(lead);
            }
        }
        let mut filled = self.ring.filled();
        self.report.ring = self.format.duration(filled as usize);
        while filled < full {
            let heard = self.device.heard(read, self.ring.written(), self.format.rate);
            self.more(heard.saturating_sub(base) / 1000, target, buffer);
            self.ring.write(&self.out, self.format.channels);
            let now_filled = self.ring.filled();
            if now_filled <= filled {
                return; // no room
            }
            filled = now_filled;
        }
    }

    /// Writes the next samples to `out`. `at`: the session time at which they are heard.
    fn more(&mut self, at: Micros, target: Target, buffer: &Mutex<Buffer>) {
        let mut b = lock(buffer);
        let target = match target {
            Target::Paused => {
                let samples = self.format.samples(b.packet() * 1000);
                drop(b);
                (self.report.playing, self.report.delay) = (false, None);
                return self.silence(samples);
            }
            Target::Soonest => b.target(None),
            Target::Pictures { delay, latest } => b.limit(b.target(Some(delay)), latest.max(delay)),
            Target::At(delay) => delay,
        };
        let d = b.next(at, target);
        self.report.playing = b.playing();
        self.report.delay = b.playing().then(|| target + b.error());
        drop(b);
        if d.kind == Kind::Silence {
            return self.silence(d.samples);
        }
        self.decode(d.kind, d.samples, buffer);
        self.out.resize(d.samples * self.format.channels, 0.0);
        if d.jump || self.quiet {
            self.splicer.join(&mut self.out);
        }
        self.quiet = false;
        let n = match d.stretch {
            0 => 0,
            s if s > 0 => self.splicer.lengthen(&mut self.out),
            _ => self.splicer.shorten(&mut self.out),
        };
        if n > 0 {
            lock(buffer).stretched(n);
        }
        self.splicer.note(&self.out);
    }

    fn silence(&mut self, samples: usize) {
        self.out.clear();
        self.out.resize(samples.max(1) * self.format.channels, 0.0);
        if !self.quiet {
            self.splicer.join(&mut self.out);
        }
        self.quiet = true;
        self.splicer.note(&self.out);
    }

    fn decode(&mut self, kind: Kind, samples: usize, buffer: &Mutex<Buffer>) {
        match kind {
            Kind::Play(packet) => match self.decoder.decode(&packet.data, &mut self.out) {
                Ok(()) => {
                    self.report.damaged_in_a_row = 0;
                    return;
                }
                Err(e) => {
                    self.report.damaged += 1;
                    self.report.damaged_in_a_row += 1;
                    self.last_error = Some(e);
                    lock(buffer).undecodable();
                }
            },
            Kind::Correct(next) => return self.decoder.conceal(samples, Some(&next.data), &mut self.out),
            Kind::Conceal | Kind::Silence => {}
        }
        self.decoder.conceal(samples, None, &mut self.out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::Packet;
    use crate::packet::Codec;
    use crate::ring::{Clock, Reader};

    const FORMAT: Format =
        Format { codec: Codec::Opus, channels: 1, rate: 48_000, config: None, packet: Some(10_000_000) };
    /// Capture time of the first packet.
    const ORIGIN: Nanos = 1_790_000_000_000 * MS;
    const BLOCK: Nanos = 10 * MS;

    /// Plays a 400 Hz tone through a network, on a device that reads 512 frames at a time, in
    /// simulated time.
    struct Stage {
        packets: Vec<Vec<u8>>,
        buffer: Mutex<Buffer>,
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
                buffer: Mutex::new(Buffer::new(&FORMAT, 10_000, 60_000, 128)),
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

        /// Runs for `ms` milliseconds. `path` returns a packet's network delay; None: lost.
        fn run(&mut self, ms: i64, path: impl Fn(usize) -> Option<Nanos>) {
            for _ in 0..ms {
                self.now += MS;
                while let Some(p) = self.packets.get(self.sent) {
                    let n = self.sent as Nanos;
                    // A packet is encoded once its last sample has been captured.
                    let delay = path(self.sent);
                    if ORIGIN + (n + 1) * BLOCK + delay.unwrap_or_default() > self.now {
                        break;
                    }
                    if delay.is_some() {
                        let packet =
                            Packet { timestamp: (ORIGIN + n * BLOCK) / 1000, data: p.clone(), repeated: false };
                        lock(&self.buffer).add(self.now / 1000, packet, None);
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
                    self.voice.run(self.now, 0, self.target, &self.buffer);
                }
            }
        }

        /// The steepest step between two samples: 0.026 in a tone of 400 Hz.
        fn steepest(&self) -> f32 {
            self.heard.windows(2).map(|w| (w[1] - w[0]).abs()).fold(0.0, f32::max)
        }

        fn assert_delay(&self, want_ms: i64, within_ms: i64) {
            let delay = self.voice.report().delay.unwrap_or_default();
            assert!((delay - 1000 * want_ms).abs() <= 1000 * within_ms, "{delay} instead of {want_ms} ms");
        }

        fn counts(&self) -> crate::Counts {
            lock(&self.buffer).counts()
        }
    }

    #[test]
    fn plays_when_due() {
        let mut s = Stage::new(5, Target::At(150_000));
        s.run(4000, |_| Some(20 * MS));
        s.assert_delay(150, 6);
        let c = s.counts();
        assert_eq!((c.concealed, c.jumps, s.voice.report().damaged), (0, 0, 0));
        assert!(s.steepest() < 0.04, "{}", s.steepest());
    }

    #[test]
    fn finds_its_own_delay() {
        let mut s = Stage::new(20, Target::Soonest);
        s.run(15_000, |n| Some(20 * MS + (n % 7) as Nanos * MS));
        let delay = s.voice.report().delay.unwrap_or_default();
        // 36 ms on the network, including the packet's own 10; 11 for a read, 20 in the device, 20
        // to fill.
        assert!((70_000..110_000).contains(&delay), "{delay}");
        assert!(s.counts().late <= 15, "{:?}", s.counts());
    }

    #[test]
    fn stretches_to_another_delay() {
        let mut s = Stage::new(25, Target::Pictures { delay: 40_000, latest: Micros::MAX });
        s.run(5000, |_| Some(60 * MS));
        assert!(s.voice.report().delay.unwrap_or_default() > 100_000);
        s.target = Target::Pictures { delay: 250_000, latest: Micros::MAX };
        s.run(15_000, |_| Some(60 * MS));
        s.assert_delay(250, 6);
        assert_eq!(s.counts().jumps, 0);
        assert!(s.steepest() < 0.04, "{}", s.steepest());
    }

    #[test]
    fn does_not_wait_for_few_late_packets() {
        let target = Target::Pictures { delay: 40_000, latest: 130_000 };
        let mut s = Stage::new(15, target);
        s.run(14_000, |n| Some(if n % 100 == 0 { 110 } else { 10 } * MS)); // the following ones wait for it
        s.assert_delay(130, 7);
        let c = s.counts();
        assert!((200_000..1_200_000).contains(&c.concealed), "{c:?}");
        // Where all are late, sound is late, too.
        let mut s = Stage::new(15, target);
        s.run(14_000, |_| Some(150 * MS));
        let c = s.counts();
        assert!(c.concealed < 300_000 && s.voice.report().delay.unwrap_or_default() > 180_000, "{c:?}");
    }

    #[test]
    fn follows_a_device_with_another_clock() {
        let mut s = Stage::new(60, Target::At(150_000));
        s.pace = 48_000.0 * 1.0005;
        s.run(59_000, |_| Some(20 * MS));
        s.assert_delay(150, 7);
        let c = s.counts();
        assert_eq!((c.concealed, c.jumps), (0, 0));
    }

    #[test]
    fn conceals_lost_packets_without_a_click() {
        let mut s = Stage::new(10, Target::At(150_000));
        s.run(9000, |n| (n % 20 != 11).then_some(20 * MS));
        let c = s.counts();
        assert!((400_000..460_000).contains(&(c.concealed + c.corrected)), "{c:?}");
        assert!(s.steepest() < 0.06, "{}", s.steepest());
    }

    #[test]
    fn resumes_after_an_interruption_and_pauses() {
        let mut s = Stage::new(10, Target::At(150_000));
        s.run(9000, |n| (!(200..500).contains(&n)).then_some(20 * MS));
        s.assert_delay(150, 7);
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
            let timestamp = s.now / 1000 + (i * 7919 % 20_000 - 10_000) * 1000;
            lock(&s.buffer).add(s.now / 1000, Packet { timestamp, data, repeated: i % 2 == 0 }, None);
        }
        s.run(1000, |_| Some(0));
        assert!(lock(&s.buffer).fill() <= 128 * 10_000);
        assert!(s.heard.iter().all(|s| s.abs() <= 8.0));
    }
}
