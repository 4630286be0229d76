//! Sound: live microphones and the sound of 360° video, and both in recordings.

use moqt::{Filter, Location, Nanos, Object, ObjectStatus, Request, Session, SubscribeOptions};

use super::{Player, Purpose, FETCH_TIMEOUT, RENDEZVOUS, RETRY};
use crate::catalog::SoundTrack;
use crate::sound::{Arrival, Reference};

/// Subscriber priority (§7): before frames and pictures, which are larger.
const PRIORITY: u8 = 32;
/// Delivery timeout of a microphone, ms.
const TIMEOUT: u64 = 500;
/// Maximum size of an object; larger than any packet, so that oversized ones are received and counted.
const MAX_OBJECT: usize = 64 << 10;
/// Recorded sound is fetched this far ahead, in windows, ms.
const AHEAD: f64 = 2000.0;
const WINDOW: f64 = 1000.0;
/// A position this far before the last is a jump, ms.
const BACK: f64 = 200.0;

/// A track that the application plays.
#[derive(Debug, Default)]
pub(super) struct SoundFeed {
    /// Name of the subscribed track.
    name: String,
    /// Everything before this media time has been requested, ms.
    until: Option<f64>,
    request: Option<Request>,
    retry_at: Nanos,
}

impl Player {
    fn sound_track(&self, number: u32) -> Option<&SoundTrack> {
        self.catalog.as_ref()?.sounds.iter().find(|t| t.number == number)
    }

    /// Track name and options for subscribing to a track.
    pub(super) fn sound_options(&self, number: u32) -> Option<(String, SubscribeOptions)> {
        let t = self.sound_track(number).filter(|t| t.format.is_ok())?;
        let film = self.catalog.as_ref()?.sphere.as_ref().filter(|_| t.film());
        let o = SubscribeOptions {
            filter: Some(Filter::LargestObject),
            priority: Some(PRIORITY),
            delivery_timeout_ms: film.map_or(TIMEOUT, |s| (s.latency + s.gop).ceil() as u64),
            rendezvous_ms: RENDEZVOUS,
            join: t.film(),
            max_object: MAX_OBJECT,
            ..SubscribeOptions::default()
        };
        Some((t.name.clone(), o))
    }

    /// Brings subscriptions in line with the catalog and the tracks that the application plays.
    pub(super) fn apply_sounds(&mut self, now: Nanos, s: &mut Session) {
        let tracks = self.catalog.as_ref().map(|c| c.sounds.clone()).unwrap_or_default();
        self.shared.set_sounds(&tracks);
        for number in self.sounds.keys().copied().collect::<Vec<_>>() {
            let track = tracks.iter().find(|t| t.number == number && t.format.is_ok());
            let same = self.sounds.get(&number).zip(track).is_some_and(|(f, t)| f.name == t.name);
            if !same {
                self.unsubscribe_sound(s, number);
            }
            if track.is_some() {
                self.subscribe_sound(now, s, number);
            }
        }
    }

    /// Plays or stops playing a track.
    pub(super) fn select_sound(&mut self, now: Nanos, s: Option<&mut Session>, number: u32, wanted: bool) {
        if wanted {
            self.sounds.entry(number).or_default();
            if let Some(s) = s {
                self.subscribe_sound(now, s, number);
            }
        } else {
            if let Some(s) = s {
                self.unsubscribe_sound(s, number);
            }
            self.sounds.remove(&number);
        }
    }

    fn subscribe_sound(&mut self, now: Nanos, s: &mut Session, number: u32) {
        let purpose = Purpose::Sound(number);
        let asked = self
            .connection
            .as_ref()
            .is_none_or(|c| c.of(purpose).is_some() || c.retries.iter().any(|r| r.1 == purpose));
        let name = self.sound_track(number).map(|t| t.name.clone()).unwrap_or_default();
        if let Some(f) = self.sounds.get_mut(&number) {
            f.name = name;
        }
        if !asked && self.playback.is_none() {
            self.begin(now, s, purpose);
        }
    }

    /// Cancels all requests for a track.
    fn unsubscribe_sound(&mut self, s: &mut Session, number: u32) {
        if let Some(f) = self.sounds.get_mut(&number) {
            (f.until, f.request) = (None, None);
        }
        let Some(c) = &mut self.connection else { return };
        c.retries.retain(|r| r.1 != Purpose::Sound(number));
        for purpose in [Purpose::Sound(number), Purpose::RecordedSound(number)] {
            if let Some(request) = c.of(purpose) {
                c.requests.remove(&request);
                c.fetches.retain(|(_, r)| *r != request);
                s.cancel(request);
            }
        }
    }

    /// Cancels the requests for all tracks: the catalog or the connection is gone.
    pub(super) fn drop_sounds(&mut self, s: Option<&mut Session>) {
        match s {
            Some(s) => {
                for number in self.sounds.keys().copied().collect::<Vec<_>>() {
                    self.unsubscribe_sound(s, number);
                }
                self.shared.set_sounds(&[]);
            }
            None => self.sounds.values_mut().for_each(|f| (f.until, f.request) = (None, None)),
        }
    }

    /// Discards received sound: playback jumped on the timeline, or between live and recorded.
    pub(super) fn jump_sounds(&mut self, now: Nanos, s: &mut Session) {
        for number in self.sounds.keys().copied().collect::<Vec<_>>() {
            self.unsubscribe_sound(s, number);
            self.shared.jump_sound(number);
            self.subscribe_sound(now, s, number);
        }
    }

    /// Takes a packet. `playback`: of a recording under this viewer's control.
    pub(super) fn sound_object(&mut self, now: Nanos, number: u32, o: Object, playback: bool) {
        if o.status != ObjectStatus::Normal || playback != self.playback.is_some() {
            return self.shared.pool.give(o.payload);
        }
        let replayed = self.connection.as_ref().and_then(|c| c.replayed.get(&o.request)).copied().unwrap_or(false);
        let film = self.sound_track(number).is_some_and(SoundTrack::film);
        let mut added = 0;
        if !playback {
            let sphere = self.sphere_feed.as_ref().filter(|_| film);
            added = sphere.map_or(0, |f| f.added(o.group));
            let due = sphere.and_then(|f| f.due);
            let reference = due.map_or(Reference::Points, |d| Reference::At(d.shift));
            self.shared.set_sound_reference(number, reference, false);
        }
        let a = Arrival {
            timestamp: o.properties.timestamp,
            data: o.payload.clone(),
            previous: o.properties.previous,
            replayed,
            playback,
            added,
        };
        self.shared.sound_arrived(now, number, a);
        self.shared.pool.give(o.payload);
    }

    /// Fetches recorded sound ahead of the position, and keeps playback in step with the position.
    pub(super) fn play_sounds(&mut self, now: Nanos, s: &mut Session) {
        let Some(p) = &self.playback else { return };
        let (position, still) = (p.position(), !p.playing() || p.waiting());
        if position + BACK < std::mem::replace(&mut self.sound_position, position) {
            self.jump_sounds(now, s);
        }
        for number in self.sounds.keys().copied().collect::<Vec<_>>() {
            let recorded = self.recording.as_ref().and_then(|r| r.sounds.iter().find(|t| t.number == number));
            let Some((name, line, group)) = recorded.and_then(|t| Some((t.name.clone(), t.timeline?, t.group))) else {
                continue;
            };
            let timestamp = ((line.wallclock + position - line.media) * 1e6) as Nanos;
            let reference = if still { Reference::Paused } else { Reference::At(now - timestamp) };
            self.shared.set_sound_reference(number, reference, true);
            let Some(f) = self.sounds.get_mut(&number) else { continue };
            // The group at the position may begin earlier; an overloaded publisher's groups last
            // longer.
            let from = f.until.unwrap_or_else(|| (position - 1.5 * group).max(0.0));
            if f.request.is_some() || now < f.retry_at || from > position + AHEAD || self.connection.is_none() {
                continue;
            }
            let until = from + WINDOW.max(group + 1.0);
            let (first, last) = (line.group_at(from), line.group_at(until).saturating_sub(1));
            f.until = Some(until);
            if last < first {
                continue;
            }
            let (first, end) = (Location { group: first, object: 0 }, Location { group: last, object: 0 });
            let request = s.fetch(now, &self.recorded_track(&name), first, end, Some(PRIORITY), MAX_OBJECT);
            if let Some(f) = self.sounds.get_mut(&number) {
                f.request = Some(request);
            }
            if let Some(c) = &mut self.connection {
                c.requests.insert(request, Purpose::RecordedSound(number));
                c.fetches.push((now + FETCH_TIMEOUT, request));
            }
        }
    }

    /// A fetch of recorded sound ended. Sound that did not arrive is not requested again.
    pub(super) fn recorded_sound_over(&mut self, now: Nanos, request: Request, number: u32, complete: bool) {
        if let Some(c) = &mut self.connection {
            c.requests.remove(&request);
            c.fetches.retain(|(_, r)| *r != request);
        }
        if let Some(f) = self.sounds.get_mut(&number).filter(|f| f.request == Some(request)) {
            f.request = None;
            if !complete {
                f.retry_at = now + RETRY;
            }
        }
    }
}
