//! 360° video (docs/spec/tiles.md): the low-resolution base, live or recorded.

use std::sync::Arc;

use moqt::{Event, Nanos, Object, ObjectStatus, Session, SubscribeOptions};

use super::tiles::Tiles;
use super::{Player, Purpose, MS, RENDEZVOUS, SILENCE};
use crate::catalog::Sphere;
use crate::screen::{Chunk, Due};
use crate::shared::ClockSource;

/// Subscriber priority of the base (§7): ahead of point-cloud frames.
const PRIORITY: u8 = 64;
/// Maximum size of a frame, bytes.
pub(super) const MAX_FRAME: usize = 8 << 20;
/// A replay has restarted if its timestamps go back by more than this.
const LOOP_GAP: Nanos = 500 * MS;
/// Smaller changes to the presentation time are ignored.
const STEADY: Nanos = 5 * MS;
/// 2200-01-01 in microseconds: later capture times are invalid.
const MAX_TIME: u64 = 7_258_118_400 * 1_000_000;

/// The 360° video being received.
#[derive(Debug)]
pub(super) struct SphereFeed {
    pub sphere: Arc<Sphere>,
    pub tiles: Option<Tiles>,
    /// Minimum of local time minus timestamp over all frames: a replay's clock.
    pub quickest: Option<Nanos>,
    /// Highest timestamp of a replay.
    stamp: Nanos,
    again: LoopOffset,
    /// Newest timestamp.
    pub captured: Nanos,
    pub arrived: Nanos,
    pub due: Option<Due>,
}

/// Timestamp correction for a replay that loops.
#[derive(Debug, Default)]
struct LoopOffset {
    /// First group since the restart.
    group: u64,
    /// Offsets added to timestamps since the restart, and before it.
    added: [Nanos; 2],
}

impl SphereFeed {
    pub fn sphere(&self) -> &Sphere {
        &self.sphere
    }

    fn new(sphere: Arc<Sphere>, tiles: Option<Tiles>, now: Nanos) -> Self {
        SphereFeed {
            sphere,
            tiles,
            quickest: None,
            stamp: 0,
            again: LoopOffset::default(),
            captured: 0,
            arrived: now,
            due: None,
        }
    }

    fn jump(&mut self) {
        (self.quickest, self.stamp, self.again, self.due) = (None, 0, LoopOffset::default(), None);
    }

    /// Offset added to timestamps of a group of a replay that loops.
    pub fn added(&self, group: u64) -> Nanos {
        self.again.added[usize::from(group < self.again.group)]
    }

    /// Maps the timestamp of a replayed frame to one that increases across restarts: the last
    /// frames before a restart have arrived but are not due yet. Fetched objects of the current
    /// group may be older than received ones.
    pub fn continuous_timestamp(&mut self, now: Nanos, group: u64, timestamp: Nanos, fetched: bool) -> Nanos {
        let a = &mut self.again;
        if group < a.group {
            return timestamp + a.added[1];
        }
        let back = timestamp + a.added[0] < self.stamp - LOOP_GAP;
        if let (true, false, Some(quickest)) = (back, fetched, self.quickest) {
            *a = LoopOffset { group, added: [now - quickest - timestamp, a.added[0]] };
        }
        timestamp + a.added[0]
    }
}

/// Timestamp of a frame; None if invalid.
pub(super) fn stamp(o: &Object) -> Option<Nanos> {
    o.properties.timestamp.filter(|t| *t <= MAX_TIME).map(|t| t as Nanos * 1000)
}

impl Player {
    /// Track name and options for subscribing to the base.
    pub(super) fn sphere_options(&mut self, now: Nanos) -> Option<(String, SubscribeOptions)> {
        let migrating = self.previous.is_some();
        let f = self.sphere_feed.as_mut()?;
        if !migrating {
            f.arrived = now;
        }
        // Frames after a late one may be in time, but need it for decoding.
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

    /// Brings the 360° subscription in line with the catalog and the viewer's request.
    pub(super) fn apply_sphere(&mut self, now: Nanos, s: &mut Session) {
        let wanted = self.catalog.as_ref().and_then(|c| c.sphere.as_ref()).filter(|_| self.sphere_selected);
        let same = match (&self.sphere_feed, wanted) {
            (None, None) => return,
            (Some(f), Some(w)) => *f.sphere == *w,
            _ => false,
        };
        if !same {
            let wanted = wanted.cloned().map(Arc::new);
            self.unsubscribe_sphere(s);
            self.shared.status().sphere_undecodable = false;
            let playable = wanted.filter(|w| {
                let avc = w.codec.starts_with("avc1");
                if !avc {
                    self.shared
                        .note_sphere(&format_args!("its codec is {:.40}, but this client supports only avc1", w.codec));
                }
                avc
            });
            self.shared.with_screen(|screen| screen.show(playable.clone()));
            let catalog = self.catalog.as_ref();
            let tiles = |sphere: &Sphere| catalog.and_then(|c| Tiles::new(sphere, c));
            self.sphere_feed = playable.map(|sphere| SphereFeed::new(sphere.clone(), tiles(&sphere), now));
            if let Some(p) = &mut self.playback {
                let place = p.position();
                p.seek(now, place);
            }
        }
        self.list_tiles();
        self.subscribe_sphere(now, s);
    }

    /// Updates the available tiles: the recording's under playback control, otherwise the live
    /// ones.
    pub(super) fn list_tiles(&mut self) {
        let catalog = if self.playback.is_some() { &self.recording } else { &self.catalog };
        if let (Some(c), Some(t)) = (catalog, self.sphere_feed.as_mut().and_then(|f| f.tiles.as_mut())) {
            t.set_tracks(&c.tiles);
        }
    }

    /// Subscribes to the live base.
    pub(super) fn subscribe_sphere(&mut self, now: Nanos, s: &mut Session) {
        let purpose = Purpose::Sphere;
        let asked = self
            .connection
            .as_ref()
            .is_none_or(|c| c.of(purpose).is_some() || c.retries.iter().any(|r| r.1 == purpose));
        if !asked && self.sphere_feed.is_some() && self.playback.is_none() {
            self.begin(now, s, purpose);
        }
        if self.sphere_feed.is_some() && self.playback.is_none() {
            self.shared.with_screen(|screen| screen.receive_tiles(true));
            self.subscribe_rates(now, s);
        }
    }

    /// Cancels all requests for 360° video.
    pub(super) fn unsubscribe_sphere(&mut self, s: &mut Session) {
        self.unsubscribe_tiles(Some(s));
        self.shared.with_screen(|screen| screen.receive_tiles(false));
        let Some(c) = &mut self.connection else { return };
        c.retries.retain(|r| r.1 != Purpose::Sphere);
        if let Some(request) = c.of(Purpose::Sphere) {
            c.requests.remove(&request);
            s.cancel(request);
        }
    }

    /// Discards buffered pictures: playback jumped on the timeline.
    pub(super) fn jump_sphere(&mut self) {
        if let Some(f) = &mut self.sphere_feed {
            f.jump();
            self.shared.with_screen(|screen| screen.jump());
        }
    }

    /// Takes a frame of the base.
    pub(super) fn sphere_object(&mut self, now: Nanos, o: Object, playback: bool) {
        let replayed = self.connection.as_ref().and_then(|c| c.replayed.get(&o.request)).copied().unwrap_or(false);
        let Some(f) = self.sphere_feed.as_mut().filter(|_| o.status == ObjectStatus::Normal && !o.payload.is_empty())
        else {
            return self.shared.pool.give(o.payload);
        };
        self.shared.measures().received_sphere(o.payload.len(), now);
        f.arrived = now;
        let Some(mut timestamp) = stamp(&o) else { return self.shared.pool.give(o.payload) };
        f.captured = timestamp;
        if !playback {
            if replayed {
                timestamp = f.continuous_timestamp(now, o.group, timestamp, o.fetched);
            }
            let offset = self.set_due(now, timestamp, replayed);
            if let (0, Some(offset)) = (o.id, offset) {
                self.tiles_begin(o.group, timestamp, offset);
            }
        }
        if playback && o.id == 0 {
            self.recorded_gop_begins(o.group, timestamp);
        }
        let (group, id, config, payload) = (o.group, o.id, o.properties.video_config, o.payload);
        let chunk = Chunk { group, id, timestamp, config, payload, arrived: now, replayed: replayed || playback };
        self.shared.with_screen(|screen| screen.add(chunk));
    }

    /// Updates the presentation time from an arriving frame. Returns local time minus timestamp, if
    /// known.
    fn set_due(&mut self, now: Nanos, timestamp: Nanos, replayed: bool) -> Option<Nanos> {
        let f = self.sphere_feed.as_mut()?;
        f.stamp = f.stamp.max(timestamp);
        let quickest = f.quickest.map_or(now - timestamp, |q| q.min(now - timestamp));
        f.quickest = Some(quickest);
        let m = self.shared.measures();
        let offset = match m.source {
            // For a replay, or without the relay's clock, the fastest arrival defines the clock.
            ClockSource::Relay if !replayed => now - m.clock.at(now),
            ClockSource::Unknown if !replayed => return None,
            _ => quickest,
        };
        drop(m);
        let shift = offset + (f.sphere.latency * 1e6) as Nanos;
        if f.due.is_none_or(|d| d.still.is_some() || (d.shift - shift).abs() >= STEADY) {
            let due = Due { shift, still: None };
            f.due = Some(due);
            self.shared.with_screen(|screen| screen.set_due(due));
        }
        Some(offset)
    }

    /// Timestamp at the playback position.
    pub(super) fn recorded_position(&self) -> Option<Nanos> {
        let t = self.recording.as_ref().and_then(|r| r.sphere.as_ref()?.timeline)?;
        Some(((t.wallclock + self.playback.as_ref()?.position() - t.media) * 1e6) as Nanos)
    }

    /// Makes the picture at the playback position due.
    pub(super) fn set_sphere_position(&mut self, now: Nanos) {
        let recorded = self.recorded_position();
        let (Some(f), Some(p), Some(timestamp)) = (&mut self.sphere_feed, &self.playback, recorded) else { return };
        let still = (!p.playing() || p.waiting()).then_some(timestamp);
        let due = Due { shift: now - timestamp, still };
        let near = |d: Due| d.still == due.still && (due.still.is_some() || (d.shift - due.shift).abs() < STEADY);
        if !f.due.is_some_and(near) {
            f.due = Some(due);
            self.shared.with_screen(|screen| screen.set_due(due));
        }
    }

    /// Handles an event from the previous connection.
    pub(super) fn old_sphere_event(&mut self, now: Nanos, e: Event) {
        if let Event::Object(o) = e {
            self.sphere_object(now, o, false);
        }
    }

    /// True if no frame of the base has arrived for SILENCE; None if the base is not received.
    pub(super) fn sphere_silent(&self, now: Nanos) -> Option<bool> {
        self.sphere_feed.as_ref().map(|f| now - f.arrived >= SILENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Nanos = 100 * MS;

    #[test]
    fn replay_loop_keeps_timestamps_increasing() {
        let text = br#"{"version":"draft-01","tracks":[{"name":"video","packaging":"loc","codec":"avc1.42c01e",
          "width":64,"height":32,
            "hcsphere":{"projection":"equirectangular","stereo":"mono","width":64,"height":32}}]}"#;
        let catalog = crate::catalog::CatalogReader::default().add(0, 0, text.to_vec(), 0);
        let sphere = catalog.unwrap_or_default().unwrap_or_default().sphere.unwrap_or_else(|| panic!("no sphere"));
        let mut f = SphereFeed::new(Arc::new(sphere), None, 0);
        // Groups of ten frames from group 5 on, three per loop. Feeds the frame of a group and ID
        // with the given delay.
        let mut arrives = |group: u64, id: i64, late: Nanos| {
            let (run, n) = ((group - 5) / 3, (group - 5) % 3);
            let sent = (10 * (group - 5) as Nanos + id) * FRAME;
            let now = 1_000_000 * MS + sent + late;
            let recorded = 5_000 * MS + (10 * n as Nanos + id) * FRAME;
            let timestamp = f.continuous_timestamp(now, group, recorded, false);
            f.stamp = f.stamp.max(timestamp);
            let quickest = f.quickest.map_or(now - timestamp, |q| q.min(now - timestamp));
            f.quickest = Some(quickest);
            (run, timestamp - 5_000 * MS - sent)
        };
        assert_eq!(arrives(5, 0, 7 * MS), (0, 0));
        assert_eq!(arrives(7, 9, 7 * MS), (0, 0));
        assert_eq!(arrives(8, 0, 9 * MS), (1, 2 * MS)); // its own delay
        assert_eq!(arrives(7, 8, 200 * MS), (0, 0)); // from the previous loop
        assert_eq!(arrives(8, 1, 7 * MS), (1, 2 * MS));
        assert_eq!(arrives(10, 9, 7 * MS), (1, 2 * MS));
        assert_eq!(arrives(11, 0, 7 * MS), (2, 2 * MS));
        assert_eq!(arrives(12, 0, 7 * MS), (2, 2 * MS));
    }
}
