//! 360° video (docs/spec/tiles.md): the whole sphere, live or of a recording.

use std::sync::Arc;

use moqt::{Event, Nanos, Object, ObjectStatus, Session, SubscribeOptions};

use super::{Player, Purpose, MS, RENDEZVOUS, SILENCE};
use crate::catalog::Sphere;
use crate::screen::{Chunk, Due};
use crate::shared::ClockSource;

/// Subscriber priority of the whole sphere (§7): before frames.
const PRIORITY: u8 = 64;
/// Bytes of one frame.
pub(super) const MAX_FRAME: usize = 8 << 20;
/// A replay whose timestamps go back by so much has begun again.
const ANEW: Nanos = 500 * MS;
/// Smaller changes of when media is due show nothing.
const STEADY: Nanos = 5 * MS;
/// 2200-01-01, microseconds: later is no capture but damage.
const MAX_TIME: u64 = 7_258_118_400 * 1_000_000;

/// 360° video that is received.
#[derive(Debug)]
pub(super) struct Film {
    sphere: Arc<Sphere>,
    /// Local time less timestamp of the quickest frame: a replay's clock.
    quickest: Option<Nanos>,
    /// The greatest timestamp of a replay.
    stamp: Nanos,
    /// Newest timestamp.
    pub captured: Nanos,
    pub arrived: Nanos,
    due: Option<Due>,
}

impl Film {
    pub fn sphere(&self) -> &Sphere {
        &self.sphere
    }

    fn jump(&mut self) {
        (self.quickest, self.stamp, self.due) = (None, 0, None);
    }
}

impl Player {
    /// The options of a subscription to the sphere.
    pub(super) fn sphere_options(&mut self, now: Nanos) -> Option<(String, SubscribeOptions)> {
        let migrating = self.previous.is_some();
        let f = self.film.as_mut()?;
        if !migrating {
            f.arrived = now;
        }
        // Frames that follow a late one may be in time, and need it to be decoded.
        let timeout = (f.sphere.latency + f.sphere.gop).ceil() as u64;
        let o = SubscribeOptions {
            filter: Some(moqt::Filter::LargestObject),
            priority: Some(PRIORITY),
            delivery_timeout_ms: timeout,
            rendezvous_ms: RENDEZVOUS,
            join: true,
            max_object: MAX_FRAME,
            ..SubscribeOptions::default()
        };
        Some((f.sphere.name.clone(), o))
    }

    /// Makes what is received of 360° video that of the catalog and the wish.
    pub(super) fn watch_sphere(&mut self, now: Nanos, s: &mut Session) {
        let wanted = self.catalog.as_ref().and_then(|c| c.sphere.as_ref()).filter(|_| self.wish_sphere);
        let same = match (&self.film, wanted) {
            (None, None) => return,
            (Some(f), Some(w)) => *f.sphere == *w,
            _ => false,
        };
        if !same {
            let wanted = wanted.cloned().map(Arc::new);
            self.leave_sphere(s);
            self.shared.status().sphere_undecodable = false;
            let playable = wanted.filter(|w| {
                let avc = w.codec.starts_with("avc1");
                if !avc {
                    self.shared.note_sphere(&format_args!("its codec is {:.40}, and this client knows avc1", w.codec));
                }
                avc
            });
            self.shared.project(|screen| screen.show(playable.clone()));
            self.film = playable.map(|sphere| Film { sphere, quickest: None, stamp: 0, captured: 0, arrived: now, due: None });
            if let Some(p) = &mut self.playback {
                let place = p.position();
                p.seek(now, place);
            }
        }
        self.follow_sphere(now, s);
    }

    /// Receives the sphere as it is published.
    pub(super) fn follow_sphere(&mut self, now: Nanos, s: &mut Session) {
        let purpose = Purpose::Sphere;
        let asked = self.connection.as_ref().is_none_or(|c| c.of(purpose).is_some() || c.retries.iter().any(|r| r.1 == purpose));
        if !asked && self.film.is_some() && self.playback.is_none() {
            self.begin(now, s, purpose);
        }
    }

    /// Receives nothing more of the sphere.
    pub(super) fn leave_sphere(&mut self, s: &mut Session) {
        let Some(c) = &mut self.connection else { return };
        c.retries.retain(|r| r.1 != Purpose::Sphere);
        if let Some(request) = c.of(Purpose::Sphere) {
            c.requests.remove(&request);
            s.cancel(request);
        }
    }

    /// What is there belongs to another place of the timeline.
    pub(super) fn jump_sphere(&mut self) {
        if let Some(f) = &mut self.film {
            f.jump();
            self.shared.project(|screen| screen.jump());
        }
    }

    /// Takes a frame.
    pub(super) fn sphere_object(&mut self, now: Nanos, o: Object, playback: bool) {
        let replayed = self.connection.as_ref().and_then(|c| c.replayed.get(&o.request)).copied().unwrap_or(false);
        let Some(f) = self.film.as_mut().filter(|_| o.status == ObjectStatus::Normal && !o.payload.is_empty()) else {
            return self.shared.pool.give(o.payload);
        };
        self.shared.measures().received_sphere(o.payload.len(), now);
        f.arrived = now;
        let Some(timestamp) = o.properties.timestamp.filter(|t| *t <= MAX_TIME) else {
            return self.shared.pool.give(o.payload);
        };
        let timestamp = timestamp as Nanos * 1000;
        f.captured = timestamp;
        if !playback {
            // A replay that begins again goes back in its timestamps. What is fetched of the group under way may be older.
            if replayed && !o.fetched && timestamp < f.stamp - ANEW {
                self.jump_sphere();
            }
            self.set_due(now, timestamp, replayed);
        }
        let (group, id, config, payload) = (o.group, o.id, o.properties.video_config, o.payload);
        let chunk = Chunk { group, id, timestamp, config, payload, arrived: now, replayed: replayed || playback };
        self.shared.project(|screen| screen.add(chunk));
    }

    /// Learns from a frame that arrived when media is due.
    fn set_due(&mut self, now: Nanos, timestamp: Nanos, replayed: bool) {
        let Some(f) = &mut self.film else { return };
        f.stamp = f.stamp.max(timestamp);
        let quickest = f.quickest.map_or(now - timestamp, |q| q.min(now - timestamp));
        f.quickest = Some(quickest);
        let m = self.shared.measures();
        let offset = match m.source {
            // Of a replay, whose frames are of the past, the quickest arrival is the clock; so it is without the relay's.
            ClockSource::Relay if !replayed => now - m.clock.at(now),
            ClockSource::Unknown if !replayed => return,
            _ => quickest,
        };
        drop(m);
        let shift = offset + (f.sphere.latency * 1e6) as Nanos;
        if f.due.is_none_or(|d| d.still.is_some() || (d.shift - shift).abs() >= STEADY) {
            let due = Due { shift, still: None };
            f.due = Some(due);
            self.shared.project(|screen| screen.set_due(due));
        }
    }

    /// Makes the picture that is due the one of the playback's place.
    pub(super) fn place_sphere(&mut self, now: Nanos) {
        let recorded = self.recording.as_ref().and_then(|r| r.sphere.as_ref()?.timeline);
        let (Some(f), Some(p), Some(t)) = (&mut self.film, &self.playback, recorded) else { return };
        let timestamp = ((t.wallclock + p.position() - t.media) * 1e6) as Nanos;
        let still = (!p.playing() || p.waiting()).then_some(timestamp);
        let due = Due { shift: now - timestamp, still };
        let near = |d: Due| d.still == due.still && (due.still.is_some() || (d.shift - due.shift).abs() < STEADY);
        if !f.due.is_some_and(near) {
            f.due = Some(due);
            self.shared.project(|screen| screen.set_due(due));
        }
    }

    /// An event of the connection that is being left.
    pub(super) fn old_sphere_event(&mut self, now: Nanos, e: Event) {
        if let Event::Object(o) = e {
            self.sphere_object(now, o, false);
        }
    }

    /// Whether nothing came of the sphere for long; nothing where none is received.
    pub(super) fn sphere_silent(&self, now: Nanos) -> Option<bool> {
        self.film.as_ref().map(|f| now - f.arrived >= SILENCE)
    }
}
