//! Sound shared between the player's thread, the thread that decodes, and the application.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use moqt::Nanos;
use sound::{check, latest, postpone, Buffer, Counts, Format, Micros, Packet, Reader, Report, Ring, Target, Voice};

use crate::catalog::SoundTrack;
use crate::shared::{lock, ClockSource, Command, Shared};

const MS: Nanos = 1_000_000;
/// Interval at which the rings are filled.
const INTERVAL: Duration = Duration::from_millis(5);
/// Maximum tracks played at a time.
const MAX_OPEN: usize = 16;
/// Maximum packets that wait: for live microphones the same as in internal/jitter, for other tracks
/// several seconds.
const LIVE: usize = 128;
const RECORDED: usize = 1024;
/// Lead of a buffer until the device first reads.
const LEAD: Micros = 60_000;
/// Replay timestamps that deviate by more than this belong to another run.
const OTHER_RUN: Nanos = 2_000 * MS;
/// Consecutive refused or undecodable packets until the user is notified.
const UNPLAYABLE: u64 = 10;
/// Number of recently shown frames that determine the delay of pictures, and how long they count.
const SHOWN: usize = 15;
const SHOWN_FOR: Nanos = 1_500 * MS;
/// 2200-01-01 in microseconds: later timestamps are invalid.
const MAX_TIME: u64 = 7_258_118_400 * 1_000_000;

/// The pictures that a track is synchronized with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reference {
    /// The displayed points, if there are any.
    #[default]
    Points,
    /// Sound plays at this local time minus its timestamp.
    At(Nanos),
    /// Playback is paused, or waits.
    Paused,
}

/// Local time of display minus capture time, for recent pictures.
#[derive(Debug, Default)]
pub(crate) struct Displayed {
    recent: VecDeque<(Nanos, Nanos)>,
}

impl Displayed {
    /// Notes a picture shown at a local time.
    pub fn note(&mut self, at: Nanos, captured: Nanos) {
        if self.recent.len() >= SHOWN {
            self.recent.pop_front();
        }
        self.recent.push_back((at, at.saturating_sub(captured)));
    }

    /// Median of the recent pictures.
    pub fn shift(&self, now: Nanos) -> Option<Nanos> {
        let mut recent: Vec<_> = self.recent.iter().filter(|(at, _)| now - at < SHOWN_FOR).map(|(_, s)| *s).collect();
        recent.sort_unstable();
        recent.get(recent.len() / 2).copied()
    }
}

/// A track as the application sees it.
#[derive(Debug, Clone)]
pub struct SoundInfo {
    /// Track from the catalog.
    pub track: SoundTrack,
    /// The application plays it.
    pub open: bool,
}

/// Statistics of a track.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct SoundStats {
    pub playing: bool,
    /// Delay from capture to playback, ms; in a recording, from arrival.
    pub delay_ms: Option<f64>,
    /// Sound received but not yet played, ms.
    pub buffer_ms: f64,
    pub concealed_ms: f64,
    /// Delay of sound minus that of pictures, ms.
    pub lip_offset_ms: Option<f64>,
    pub counts: Counts,
    pub refused: u64,
    pub damaged: u64,
    pub starved: u64,
}

#[derive(Debug, Default)]
struct Entry {
    track: Option<SoundTrack>,
    ring: Option<Arc<Ring>>,
    buffer: Option<Arc<Mutex<Buffer>>>,
    /// Changes with ring and format.
    version: u32,
    reference: Reference,
    /// Local time minus session time, where the relay's clock does not apply.
    base: Option<Nanos>,
    replayed: bool,
    refused: u64,
    refused_in_a_row: u64,
    report: Report,
    error: String,
}

impl Entry {
    fn format(&self) -> Option<&Format> {
        self.track.as_ref()?.format.as_ref().ok()
    }
}

/// The session's sound tracks, by number.
#[derive(Debug, Default)]
pub(crate) struct Sounds {
    entries: BTreeMap<u32, Entry>,
    over: bool,
}

/// Work on one track in an interval.
struct Turn {
    number: u32,
    version: u32,
    format: Format,
    ring: Arc<Ring>,
    buffer: Arc<Mutex<Buffer>>,
    reference: Reference,
    /// Local time minus session time in a recording, and where the relay sends no timestamps.
    base: Option<Nanos>,
    fallback: Option<Nanos>,
    film: bool,
    playing: bool,
}

/// Error: too many tracks are open, or this one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sound is open already, or 16 others are")]
pub struct SoundBusy;

/// A packet as it arrived.
pub(crate) struct Arrival {
    pub timestamp: Option<u64>,
    pub data: Vec<u8>,
    pub previous: Option<Vec<u8>>,
    /// Of a replay shared by all viewers.
    pub replayed: bool,
    /// Under this viewer's playback control.
    pub playback: bool,
    /// Added to the timestamp when a replay loops.
    pub added: Nanos,
}

impl Shared {
    /// Opens a track for the audio thread, whether or not it is in the catalog yet.
    pub fn open_sound(&self, number: u32) -> Result<Reader, SoundBusy> {
        let ring = Arc::new(Ring::default());
        {
            let mut s = self.sounds();
            let open = s.entries.values().filter(|e| e.ring.as_ref().is_some_and(|r| !r.closed())).count();
            let e = s.entries.entry(number).or_default();
            if open >= MAX_OPEN || e.ring.as_ref().is_some_and(|r| !r.closed()) {
                return Err(SoundBusy);
            }
            e.ring = Some(ring.clone());
            e.version = e.version.wrapping_add(1);
        }
        self.sounds_changed.notify_all();
        self.command(Command::Sound(number, true));
        Ok(Reader::new(ring, self.local))
    }

    /// The catalog's tracks.
    pub fn sound_list(&self) -> Vec<SoundInfo> {
        let info = |e: &Entry| Some(SoundInfo { track: e.track.clone()?, open: e.ring.is_some() });
        self.sounds().entries.values().filter_map(info).collect()
    }

    /// Statistics of a track, and a sentence that says why it cannot be played; None if it is
    /// neither open nor in the catalog.
    pub fn sound_stats(&self, number: u32) -> Option<(SoundStats, String)> {
        let now = self.now();
        let relay = self.relay_base(now);
        let s = self.sounds();
        let e = s.entries.get(&number)?;
        let film = e.track.as_ref().is_some_and(SoundTrack::film);
        let base = if e.replayed { e.base } else { relay.or(e.base) };
        let mut stats = SoundStats {
            playing: e.report.playing,
            refused: e.refused,
            damaged: e.report.damaged,
            starved: e.ring.as_ref().map_or(0, |r| r.starved()),
            ..SoundStats::default()
        };
        let mut least = 0;
        if let Some(b) = e.buffer.as_deref() {
            let b = lock(b);
            stats.counts = b.counts();
            stats.buffer_ms = b.fill() as f64 / 1e3 + e.report.ring as f64 / 1e6;
            stats.concealed_ms = (stats.counts.concealed + stats.counts.corrected) as f64 / 1e3;
            least = b.least().unwrap_or_default() - b.lead();
        }
        let from = if e.replayed { least } else { 0 };
        stats.delay_ms = e.report.delay.map(|d| (d - from) as f64 / 1e3);
        let text = e.error.clone();
        let delay = e.report.delay;
        drop(s);
        let shown = lock(if film { &self.pictures_shown } else { &self.points_shown }).shift(now);
        if let (Some(delay), Some(base), Some(shown)) = (delay, base, shown) {
            stats.lip_offset_ms = Some((delay * 1000 + base - shown) as f64 / 1e6);
        }
        Some((stats, text))
    }

    /// Local time minus relay time; None if the relay's clock is unknown.
    pub(crate) fn relay_base(&self, now: Nanos) -> Option<Nanos> {
        let m = self.measures();
        (m.source == ClockSource::Relay).then(|| now - m.clock.at(now))
    }

    /// Sets the catalog's tracks.
    pub(crate) fn set_sounds(&self, tracks: &[SoundTrack]) {
        let mut s = self.sounds();
        for e in s.entries.values_mut() {
            e.track = e.track.take().filter(|t| tracks.iter().any(|n| n.number == t.number));
        }
        for t in tracks {
            let e = s.entries.entry(t.number).or_default();
            if e.track.as_ref().is_none_or(|old| old.format != t.format || old.name != t.name) {
                e.version = e.version.wrapping_add(1);
                e.buffer = None;
                e.error = match &t.format {
                    Err(why) => format!("the sound of “{:.40}” cannot be played: {why}", t.label),
                    Ok(_) => String::new(),
                };
                (e.report, e.base) = (Report::default(), None);
            }
            e.track = Some(t.clone());
        }
        s.entries.retain(|_, e| e.track.is_some() || e.ring.is_some());
        drop(s);
        self.sounds_changed.notify_all();
    }

    /// Sets the pictures that a track is synchronized with. In a recording, they also set its clock.
    pub(crate) fn set_sound_reference(&self, number: u32, reference: Reference, recorded: bool) {
        let mut s = self.sounds();
        let Some(e) = s.entries.get_mut(&number) else { return };
        e.reference = reference;
        if let (Reference::At(shift), true) = (reference, recorded) {
            if e.base.is_none_or(|b| (b - shift).abs() > OTHER_RUN) {
                e.base = Some(shift);
            }
        }
    }

    /// Discards received sound: playback jumped on the timeline.
    pub(crate) fn jump_sound(&self, number: u32) {
        let mut s = self.sounds();
        let Some(e) = s.entries.get_mut(&number) else { return };
        e.base = None;
        if let Some(b) = e.buffer.as_deref() {
            lock(b).forget();
        }
    }

    /// Takes a packet.
    pub(crate) fn sound_arrived(&self, now: Nanos, number: u32, a: Arrival) {
        let relay = self.relay_base(now).filter(|_| !a.replayed && !a.playback);
        let mut s = self.sounds();
        let Some(e) = s.entries.get_mut(&number) else { return };
        let Some(format) = e.format().cloned() else { return };
        let checked = check(&a.data, &format).map_err(|e| e.to_string());
        let timestamp = a.timestamp.filter(|t| *t <= MAX_TIME).ok_or_else(|| "a packet has no time".to_owned());
        let (samples, timestamp) = match checked.and_then(|n| Ok((n, timestamp? as Micros + a.added / 1000))) {
            Ok(packet) => packet,
            Err(why) => {
                e.refused += 1;
                return self.note_refused(e, &why);
            }
        };
        e.replayed = a.replayed || a.playback;
        let packet = (samples as u64 * 1_000_000).div_ceil(u64::from(format.rate)) as Micros;
        let most = if format.packet.is_some() && !e.replayed { LIVE } else { RECORDED };
        let same = e.buffer.as_deref().is_some_and(|b| (lock(b).packet() - packet).abs() <= 1);
        if !same {
            e.buffer = Some(Arc::new(Mutex::new(Buffer::new(&format, packet, LEAD, most))));
            e.version = e.version.wrapping_add(1);
        }
        let Some(buffer) = e.buffer.as_deref() else { return };
        let base = match (relay, e.base) {
            (Some(base), _) => base,
            (None, Some(base)) if a.playback => base,
            (None, base) => {
                let measured = now - timestamp * 1000;
                let other = base.is_some_and(|b| (b - measured).abs() > OTHER_RUN);
                if other {
                    lock(buffer).forget();
                }
                let base = base.filter(|_| !other).map_or(measured, |b| b.min(measured));
                e.base = Some(base);
                base
            }
        };
        let previous = a.previous.filter(|p| check(p, &format).is_ok());
        let packet = Packet { timestamp, data: a.data, repeated: false };
        let now = (now - base) / 1000;
        let mut b = lock(buffer);
        let before = b.counts().far;
        b.add(now, packet, previous);
        let far = b.counts().far > before;
        drop(b);
        if far {
            let seconds = (timestamp - now).abs() / 1_000_000;
            self.note_refused(e, &format!("a packet's timestamp is {seconds} s from the session's clock"));
        } else if std::mem::take(&mut e.refused_in_a_row) >= UNPLAYABLE {
            e.error.clear();
        }
    }

    fn note_refused(&self, e: &mut Entry, why: &str) {
        e.refused_in_a_row += 1;
        if e.refused_in_a_row == UNPLAYABLE {
            self.note_sound(e, why);
        }
    }

    fn note_sound(&self, e: &mut Entry, why: &str) {
        let label = e.track.as_ref().map_or("", |t| t.label.as_str());
        e.error = format!("the sound of “{label:.40}” cannot be played: {why}");
        self.note_error(&e.error);
    }

    /// Thread that fills the rings.
    pub(crate) fn run_sounds(&self) {
        let mut voices: BTreeMap<u32, (u32, Voice)> = BTreeMap::new();
        loop {
            let mut s = self.sounds();
            if s.over {
                return;
            }
            let closed: Vec<_> = s
                .entries
                .iter()
                .filter(|(_, e)| e.ring.as_ref().is_some_and(|r| r.closed()))
                .map(|(n, _)| *n)
                .collect();
            for number in &closed {
                if let Some(e) = s.entries.get_mut(number) {
                    (e.ring, e.buffer, e.report) = (None, None, Report::default());
                }
            }
            let turns: Vec<_> = s.entries.iter().filter_map(|(number, e)| turn(*number, e)).collect();
            let idle = s.entries.values().all(|e| e.ring.is_none());
            drop(s);
            for number in closed {
                self.command(Command::Sound(number, false));
            }
            voices.retain(|n, _| turns.iter().any(|t| t.number == *n));
            self.set_points_due(&turns);
            for t in &turns {
                self.fill(t, &mut voices);
            }
            let s = self.sounds();
            if s.over {
                return;
            }
            drop(if idle {
                self.sounds_changed.wait(s).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.sounds_changed.wait_timeout(s, INTERVAL).unwrap_or_else(PoisonError::into_inner).0
            });
        }
    }

    fn fill(&self, t: &Turn, voices: &mut BTreeMap<u32, (u32, Voice)>) {
        let now = self.now();
        let Some(base) = t.base.or_else(|| self.relay_base(now)).or(t.fallback) else { return };
        if voices.get(&t.number).is_none_or(|(version, _)| *version != t.version) {
            match Voice::new(&t.format, t.ring.clone()) {
                Ok(v) => voices.insert(t.number, (t.version, v)),
                Err(why) => {
                    if let Some(e) = self.sounds().entries.get_mut(&t.number).filter(|e| e.error.is_empty()) {
                        self.note_sound(e, &why.to_string());
                    }
                    return;
                }
            };
        }
        let Some((_, voice)) = voices.get_mut(&t.number) else { return };
        let before = voice.report();
        let target = match t.reference {
            Reference::Paused => Target::Paused,
            Reference::At(shift) => Target::At((shift - base) / 1000),
            Reference::Points if t.film => Target::Soonest,
            Reference::Points => match lock(&self.points_shown).shift(now) {
                Some(shift) => {
                    let decoded = lock(&self.points_decoded).shift(now).unwrap_or(shift);
                    Target::Pictures { delay: (shift - base) / 1000, latest: latest((decoded - base) / 1000) }
                }
                None => Target::Soonest,
            },
        };
        voice.run(now, base, target, &t.buffer);
        let report = voice.report();
        let mut s = self.sounds();
        let Some(e) = s.entries.get_mut(&t.number).filter(|e| e.version == t.version) else { return };
        e.report = report;
        if report.damaged_in_a_row >= UNPLAYABLE && before.damaged_in_a_row < UNPLAYABLE {
            let why = voice.error().map(ToString::to_string).unwrap_or_default();
            self.note_sound(e, &why);
        } else if report.damaged_in_a_row == 0 && before.damaged_in_a_row >= UNPLAYABLE {
            e.error.clear();
        }
    }

    /// Delays points whose sound arrives later than they do.
    fn set_points_due(&self, turns: &[Turn]) {
        let now = self.now();
        let decoded = lock(&self.points_decoded).shift(now);
        let relay = self.relay_base(now);
        let due = decoded.and_then(|decoded| {
            let wait = |t: &Turn| {
                let base = t.base.or(relay).or(t.fallback)?;
                let own = lock(&t.buffer).own();
                Some(1000 * postpone((decoded - base) / 1000, own))
            };
            let live = turns.iter().filter(|t| t.playing && !t.film && t.reference == Reference::Points);
            live.filter_map(wait).max().filter(|w| *w > 0).map(|w| decoded + w)
        });
        self.points_due.store(due.unwrap_or(Nanos::MIN), std::sync::atomic::Ordering::Relaxed);
    }

    /// Stops the thread.
    pub(crate) fn stop_sounds(&self) {
        self.sounds().over = true;
        self.sounds_changed.notify_all();
    }
}

fn turn(number: u32, e: &Entry) -> Option<Turn> {
    Some(Turn {
        number,
        version: e.version,
        format: e.format()?.clone(),
        ring: e.ring.clone()?,
        buffer: e.buffer.clone()?,
        reference: e.reference,
        base: e.base.filter(|_| e.replayed),
        fallback: e.base,
        film: e.track.as_ref()?.film(),
        playing: e.report.playing,
    })
}

#[cfg(test)]
mod tests {
    use sound::Codec;

    use super::*;

    const NOW: Nanos = 1_790_000_000_000 * MS;

    fn track(number: u32, packet: Option<Nanos>) -> SoundTrack {
        let format = Format { codec: Codec::Opus, channels: 1, rate: 48_000, config: None, packet };
        let label = if packet.is_some() { "Yeti" } else { "audio" };
        SoundTrack {
            name: label.into(),
            number,
            label: label.into(),
            position: None,
            format: Ok(format),
            group: 10.0,
            timeline: None,
        }
    }

    fn packet(timestamp: Option<u64>, data: Vec<u8>) -> Arrival {
        Arrival { timestamp, data, previous: None, replayed: false, playback: false, added: 0 }
    }

    #[test]
    fn hostile_packets_are_counted_and_bounded() {
        let shared = Shared::new();
        shared.set_sounds(&[track(0, Some(10 * MS))]);
        shared.measures().clock.observe(NOW, NOW, crate::clock::Rtt::default());
        shared.measures().set_clock(ClockSource::Relay);
        let time = Some(NOW as u64 / 1000);
        let hostile: [(Option<u64>, Vec<u8>); 6] = [
            (time, vec![0xf0; 60_000]),
            (time, vec![0xf3]),
            (time, vec![]),
            (time, vec![0xf8; 100]),
            (time, b"not Opus but text".to_vec()),
            (None, vec![0xf0; 100]),
        ];
        for i in 0..60 {
            let (timestamp, data) = hostile[i % hostile.len()].clone();
            shared.sound_arrived(NOW, 0, packet(timestamp, data));
        }
        let (stats, error) = shared.sound_stats(0).unwrap_or_default();
        assert_eq!((stats.refused, stats.counts.received), (60, 0));
        assert!(error.starts_with("the sound of “Yeti” cannot be played: a packet "), "{error}");
        // 10,000 packets a second, and as many far from the clock.
        for i in 0..10_000 {
            shared.sound_arrived(NOW, 0, packet(Some(NOW as u64 / 1000 + i * 100), vec![0xf0; 200]));
            shared.sound_arrived(NOW, 0, packet(Some(NOW as u64 / 1000 + 20_000_000 + i), vec![0xf0; 200]));
        }
        let (stats, error) = shared.sound_stats(0).unwrap_or_default();
        assert!(stats.buffer_ms <= 1300.0 && stats.counts.far >= 9_000, "{stats:?}");
        assert_eq!(error, "");
        for _ in 0..UNPLAYABLE {
            shared.sound_arrived(NOW, 0, packet(Some(NOW as u64 / 1000 + 20_000_000), vec![0xf0; 200]));
        }
        let (_, error) = shared.sound_stats(0).unwrap_or_default();
        let why = "a packet's timestamp is 20 s from the session's clock";
        assert_eq!(error, format!("the sound of “Yeti” cannot be played: {why}"));
    }

    /// Vectors of internal/loc.
    #[test]
    fn accepts_and_refuses_packets_as_go_does() {
        #[derive(serde::Deserialize)]
        struct Document {
            cases: Vec<Case>,
        }
        #[derive(serde::Deserialize)]
        struct Case {
            name: String,
            channels: usize,
            begin: String,
            bytes: usize,
            ahead: Nanos,
            accepted: bool,
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../internal/loc/testdata/opus-packets.json");
        let doc: Document = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert!(!doc.cases.is_empty());
        for c in doc.cases {
            let shared = Shared::new();
            let mut t = track(0, Some(10 * MS));
            t.format.as_mut().unwrap().channels = c.channels;
            shared.set_sounds(&[t]);
            shared.measures().clock.observe(NOW, NOW, crate::clock::Rtt::default());
            shared.measures().set_clock(ClockSource::Relay);
            let begin = c.begin.as_bytes().chunks(2);
            let mut data: Vec<u8> =
                begin.map(|b| u8::from_str_radix(std::str::from_utf8(b).unwrap(), 16).unwrap()).collect();
            data.resize(c.bytes, 0);
            let timestamp = (NOW + c.ahead * MS) as u64 / 1000;
            shared.sound_arrived(NOW, 0, packet(Some(timestamp), data));
            let (stats, _) = shared.sound_stats(0).unwrap();
            let got = (stats.counts.received, stats.refused + stats.counts.far);
            assert_eq!(got, if c.accepted { (1, 0) } else { (0, 1) }, "{}: {stats:?}", c.name);
        }
    }

    #[test]
    fn a_track_has_one_reader() {
        let shared = Arc::new(Shared::new());
        let first = shared.open_sound(0);
        assert!(first.is_ok());
        assert_eq!(shared.open_sound(0).err(), Some(SoundBusy));
        drop(first);
        assert!(shared.open_sound(0).is_ok());
        let readers: Vec<_> = (1..=MAX_OPEN as u32).map(|n| shared.open_sound(n)).collect();
        assert_eq!(readers.iter().filter(|r| r.is_ok()).count(), MAX_OPEN);
    }

    #[test]
    fn says_why_a_track_cannot_be_played() {
        let shared = Shared::new();
        let why = "its codec is vorbis, but this client plays only Opus and AAC-LC";
        shared.set_sounds(&[SoundTrack { format: Err(why.into()), ..track(3, None) }]);
        let (_, error) = shared.sound_stats(3).unwrap_or_default();
        assert_eq!(error, format!("the sound of “audio” cannot be played: {why}"));
        assert!(shared.sound_stats(4).is_none());
    }

    #[test]
    fn delay_of_pictures_is_the_median_of_the_recent() {
        let mut d = Displayed::default();
        assert_eq!(d.shift(NOW), None);
        for i in 0..40 {
            let delay = if i % 5 == 0 { 90 } else { 30 };
            d.note(NOW + i * 33 * MS, NOW + (i * 33 - delay) * MS);
        }
        assert_eq!(d.shift(NOW + 1300 * MS), Some(30 * MS));
        assert_eq!(d.shift(NOW + 5000 * MS), None);
    }
}
