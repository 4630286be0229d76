//! The jitter buffer: decides, packet by packet, what sounds next. Same algorithm as
//! internal/jitter/buffer.go, with integers only.

use std::collections::VecDeque;

use crate::delay::Delay;
use crate::packet::Format;
use crate::Micros;

/// Maximum distance of a timestamp from the clock.
const FAR: Micros = 10_000_000;
/// Delay error up to which nothing is stretched, and delay error from which sound jumps.
const TOLERANCE: Micros = 5_000;
const JUMP: Micros = 200_000;
/// Duration of concealment until silence, and until playback ends if no packet waits.
const MAX_CONCEAL: Micros = 100_000;
const END_AFTER: Micros = 1_000_000;
/// A stretch by n samples is followed by at least SLOWEST · n samples without one.
const SLOWEST: i64 = 20;
/// The same while sound hurries, from a delay error of HURRY_FROM to one of HURRY_TO.
const HURRIED: i64 = 2;
const HURRY_FROM: Micros = 50_000;
const HURRY_TO: Micros = 20_000;
/// Maximum time that pictures wait for sound.
const MAX_POSTPONED: Micros = 80_000;
/// Sound is not waited for if it would be over this much later than the pictures that waited.
const MAX_BEHIND: Micros = 10_000;
const MISSED: usize = 64;
/// Consecutive packets, not in a burst, older than those played that show that the clock was set back.
const SET_BACK: u32 = 16;

/// A packet of sound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packet {
    /// Capture time of its first sample.
    pub timestamp: Micros,
    /// Bytes.
    pub data: Vec<u8>,
    /// Received as the copy carried by the next packet.
    pub repeated: bool,
}

/// Source of the next samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Decode the packet.
    Play(Packet),
    /// Decode the in-band error correction of this packet, the successor of the missing one.
    Correct(Packet),
    /// Extrapolate.
    Conceal,
    /// Silence.
    Silence,
}

/// The next samples of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Their content.
    pub kind: Kind,
    /// Their number per channel.
    pub samples: usize,
    /// The samples do not continue the previous ones.
    pub jump: bool,
    /// 1 asks for a splice that lengthens the packet, −1 for one that shortens it. The caller reports
    /// the result to [`Buffer::stretched`].
    pub stretch: i32,
}

/// Counters of packets and decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Counts {
    /// Packets, without copies.
    pub received: u64,
    /// Packets, including copies.
    pub played: u64,
    /// Packets played from the copy in the next one.
    pub repeated: u64,
    /// By in-band error correction, µs.
    pub corrected: Micros,
    /// µs.
    pub concealed: Micros,
    /// Packets that arrived too late.
    pub late: u64,
    /// Packets refused because their timestamp is over 10 s from the clock.
    pub far: u64,
    /// Packets dropped: too many waiting.
    pub overflowed: u64,
    /// Corrections of the delay without stretching.
    pub jumps: u64,
}

/// Orders the packets of one track.
#[derive(Debug)]
pub struct Buffer {
    packet: Micros,
    rate: u32,
    lead: Micros,
    most: usize,
    /// By timestamp.
    waiting: VecDeque<Packet>,
    /// Time of the newest arrival.
    arrived: Micros,
    /// It came together with the one before.
    bunched: bool,
    playing: bool,
    /// Timestamp of the next sample.
    next: Micros,
    /// Concealed since the last packet.
    run: Micros,
    /// Samples until the next splice.
    rest: i64,
    /// Sound is far too late.
    hurry: bool,
    /// Timestamps played without their packet.
    missed: VecDeque<Micros>,
    /// Consecutive packets older than those played.
    old: u32,
    delay: Delay,
    error: Micros,
    counts: Counts,
}

/// How long pictures wait for sound that is later.
pub fn postpone(pictures: Micros, own: Micros) -> Micros {
    (own - pictures).clamp(0, MAX_POSTPONED)
}

/// The largest delay of sound in step with pictures of this delay that wait for it.
pub fn latest(pictures: Micros) -> Micros {
    pictures + MAX_POSTPONED + MAX_BEHIND
}

impl Buffer {
    /// Creates a buffer for packets of the given duration. `lead`: the longest time from a call of
    /// `next` until its first sample is heard; `most`: maximum packets that wait.
    pub fn new(format: &Format, packet: Micros, lead: Micros, most: usize) -> Self {
        Buffer {
            packet: packet.max(1),
            rate: format.rate,
            lead,
            most,
            waiting: VecDeque::new(),
            arrived: 0,
            bunched: false,
            playing: false,
            next: 0,
            run: 0,
            rest: 0,
            hurry: false,
            missed: VecDeque::new(),
            old: 0,
            delay: Delay::default(),
            error: 0,
            counts: Counts::default(),
        }
    }

    /// Duration of a packet.
    pub fn packet(&self) -> Micros {
        self.packet
    }

    /// Changes the lead.
    pub fn set_lead(&mut self, lead: Micros) {
        self.delay.shift(lead - self.lead);
        self.lead = lead;
    }

    /// The longest time from a call of `next` until its first sample is heard.
    pub fn lead(&self) -> Micros {
        self.lead
    }

    /// Adds a packet that arrived at `now`. `previous` is the copy of its predecessor that it carries.
    pub fn add(&mut self, now: Micros, packet: Packet, previous: Option<Vec<u8>>) {
        if (packet.timestamp.saturating_sub(now)).saturating_abs() > FAR {
            self.counts.far += 1;
            return;
        }
        self.counts.received += 1;
        self.bunched = now.saturating_sub(self.arrived) < self.packet / 2;
        self.arrived = now;
        if let Some(data) = previous {
            let timestamp = packet.timestamp - self.packet;
            self.insert(now, Packet { timestamp, data, repeated: true });
        }
        self.insert(now, packet);
    }

    fn insert(&mut self, now: Micros, packet: Packet) {
        if self.playing && packet.timestamp < self.next - self.packet / 2 {
            self.old += u32::from(!self.bunched);
            if self.old < SET_BACK || packet.repeated {
                return self.late(now, packet.timestamp);
            }
            self.forget();
        }
        self.old = 0;
        let at = self.waiting.partition_point(|w| w.timestamp <= packet.timestamp);
        let same = |w: Option<&Packet>| w.is_some_and(|w| self.same(w.timestamp, packet.timestamp));
        if at > 0 && same(self.waiting.get(at - 1)) || same(self.waiting.get(at)) {
            return;
        }
        if self.waiting.len() == self.most {
            self.counts.overflowed += 1;
            if at == self.most {
                return;
            }
            self.waiting.pop_back();
        }
        self.delay.observe(now - packet.timestamp + self.lead, self.bunched);
        self.waiting.insert(at, packet);
    }

    /// Counts a packet older than those played, unless it is a duplicate.
    fn late(&mut self, now: Micros, timestamp: Micros) {
        let Some(at) = self.missed.iter().position(|m| self.same(*m, timestamp)) else { return };
        self.missed.remove(at);
        self.counts.late += 1;
        self.delay.observe(now - timestamp + self.lead, self.bunched);
    }

    /// True if two timestamps belong to one packet.
    fn same(&self, x: Micros, y: Micros) -> bool {
        2 * (x - y).abs() < self.packet
    }

    /// The smallest delay from capture to playback that loses at most 1 % of the packets.
    pub fn own(&self) -> Micros {
        self.delay.target
    }

    /// The smallest delay from capture to playback of the recent packets.
    pub fn least(&self) -> Option<Micros> {
        self.delay.least()
    }

    /// The delay from capture to playback, given that of pictures.
    pub fn target(&self, pictures: Option<Micros>) -> Micros {
        pictures.map_or(self.delay.target, |p| p.max(self.delay.target))
    }

    /// Lowers a target to `latest`, but not so far that over a tenth of the packets would be concealed.
    pub fn limit(&self, target: Micros, latest: Micros) -> Micros {
        target.min(latest.max(self.delay.usual()))
    }

    /// Delay of the newest decision minus its target.
    pub fn error(&self) -> Micros {
        self.error
    }

    /// Duration of the waiting packets.
    pub fn fill(&self) -> Micros {
        self.waiting.len() as Micros * self.packet
    }

    /// Counters over the run.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// True while packets are played or concealed.
    pub fn playing(&self) -> bool {
        self.playing
    }

    /// Discards the waiting packets and starts again with the next one. Keeps the measured delay.
    pub fn reset(&mut self) {
        self.waiting.clear();
        self.missed.clear();
        (self.old, self.playing) = (0, false);
    }

    /// Resets, and discards the measured delay: packets come from another clock or path.
    pub fn forget(&mut self) {
        self.reset();
        self.delay = Delay::default();
    }

    /// Decides what to play at time `at`. `target` is the delay returned by [`Buffer::target`].
    pub fn next(&mut self, at: Micros, target: Micros) -> Decision {
        self.error = at - self.next - target;
        if self.playing && self.error.abs() > JUMP {
            self.playing = false;
            self.counts.jumps += 1;
        }
        let jump = !self.playing;
        if jump {
            let samples = self.start(at, target);
            if samples > 0 {
                return Decision { kind: Kind::Silence, samples, jump, stretch: 0 };
            }
        }
        if self.error > HURRY_FROM {
            self.hurry = true;
        } else if self.error <= HURRY_TO {
            self.hurry = false;
        }
        let kind = self.decide();
        let samples = self.samples(self.packet);
        self.rest -= samples as i64;
        let free = matches!(kind, Kind::Play(_)) && !jump && self.rest <= 0;
        let stretch = match self.error {
            e if free && e > TOLERANCE => -1,
            e if free && e < -TOLERANCE => 1,
            _ => 0,
        };
        Decision { kind, samples, jump, stretch }
    }

    fn samples(&self, duration: Micros) -> usize {
        (duration.max(0) * Micros::from(self.rate) / 1_000_000) as usize
    }

    /// Samples until the first waiting packet plays, at most one packet's worth. Starts playing if
    /// that is 0.
    fn start(&mut self, at: Micros, target: Micros) -> usize {
        while self.waiting.len() > 1 && self.waiting[0].timestamp + self.packet + target <= at {
            self.waiting.pop_front();
        }
        let first = self.waiting.front().map(|w| w.timestamp);
        let silence = first.map_or(self.packet, |t| (t + target - at).min(self.packet));
        let (samples, Some(first)) = (self.samples(silence), first) else { return self.samples(self.packet) };
        if samples == 0 {
            (self.playing, self.next, self.run, self.rest) = (true, first, 0, 0);
            self.missed.clear();
            self.error = at - first - target;
        }
        samples
    }

    /// Decides on the packet at `next` and advances `next`.
    fn decide(&mut self) -> Kind {
        let expected = self.next;
        self.next += self.packet;
        let ahead = self.waiting.front().map(|w| (w.timestamp - expected).max(0));
        let kind = match ahead {
            Some(a) if 2 * a < self.packet => {
                let packet = self.waiting.pop_front().unwrap_or_default();
                self.next = packet.timestamp + self.packet;
                self.run = 0;
                self.counts.played += 1;
                self.counts.repeated += u64::from(packet.repeated);
                return Kind::Play(packet);
            }
            Some(a) if 2 * a < 3 * self.packet => {
                self.counts.corrected += self.packet;
                Kind::Correct(self.waiting.front().cloned().unwrap_or_default())
            }
            _ => {
                self.run += self.packet;
                self.counts.concealed += self.packet;
                if self.run >= END_AFTER && ahead.is_none() {
                    self.playing = false;
                }
                if self.run > MAX_CONCEAL {
                    Kind::Silence
                } else {
                    Kind::Conceal
                }
            }
        };
        if self.missed.len() == MISSED {
            self.missed.pop_front();
        }
        self.missed.push_back(expected);
        kind
    }

    /// Reports that the samples of the newest decision were lengthened or shortened by `n` samples.
    pub fn stretched(&mut self, n: usize) {
        self.rest = if self.hurry { HURRIED } else { SLOWEST } * n as i64;
    }

    /// Reports that the newest packet was undecodable.
    pub(crate) fn undecodable(&mut self) {
        self.counts.concealed += self.packet;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Codec;

    proptest::proptest! {
        #[test]
        fn memory_is_bounded(times: Vec<i32>, size in 1usize..8191) {
            let f = Format { codec: Codec::Opus, channels: 1, rate: 48_000, config: None, packet: None };
            let mut b = Buffer::new(&f, 10_000, 50_000, 128);
            for (i, t) in times.iter().cycle().take(20 * times.len().min(200)).enumerate() {
                let (i, t) = (i as Micros, Micros::from(*t));
                b.add(i * 100, Packet { timestamp: t * i, data: vec![0; size], repeated: false }, Some(vec![0]));
                if i % 7 == 0 {
                    let _ = b.next(i * 100, b.target(Some(t)));
                }
            }
            assert!(b.waiting.len() <= 128 && b.missed.len() <= MISSED);
        }
    }
}
