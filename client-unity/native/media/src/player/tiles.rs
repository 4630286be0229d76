//! Selects the tiles of 360° video to receive.

use std::collections::BTreeMap;

use moqt::{Filter, Nanos, Object, ObjectStatus, Request, Session, SubscribeOptions};
use tile360::{Gop, Look, Planner, Train, Vec3, View};

use super::recorded::RecordedTiles;
use super::sphere::MAX_FRAME;
use super::{Player, Purpose, MS, PRIORITY_CATALOG};
use crate::catalog::{rates, Catalog, Rates, Sphere, TileTrack, MAX_SIZE};
use crate::screen::Chunk;

/// Subscriber priority (§7) of the most important tile; the others follow.
const PRIORITY: u8 = 130;
const LAST_PRIORITY: u8 = 250;
/// A GoP's tiles are chosen this long before it begins, plus a round trip.
const AHEAD: Nanos = 80 * MS;
/// Time after a GoP's end in which frames of its tiles may still arrive.
const TAIL: Nanos = 150 * MS;
/// Viewport sampling points per edge.
const SAMPLES: usize = 12;
/// A tile with at least this viewport share is requested at once.
const IN_VIEW: f64 = 0.03;
/// Initial throughput estimate, bytes per second.
const FIRST_RATE: f64 = 250_000.0;
/// If a GoP's last object is later than this, it saturated the path.
const LATE: Nanos = 150 * MS;
/// Growth factor of the throughput estimate while all objects arrive in time.
const GROWTH: f64 = 1.5;

/// A tile's subscription.
#[derive(Debug, Clone, Copy)]
struct Following {
    request: Request,
    quality: usize,
}

/// The tiles being received.
#[derive(Debug)]
pub(super) struct Tiles {
    pub planner: Planner,
    /// Horizontal and vertical field of view, radians.
    view: [f64; 2],
    pub gaze_known: bool,
    tracks: Vec<TileTrack>,
    pub rates: Option<Rates>,
    following: BTreeMap<usize, Following>,
    /// Subscriptions to cancel after their last group, with the time.
    leaving: Vec<(Nanos, Request)>,
    /// Newest group of the base, and its first timestamp.
    newest: Option<(u64, Nanos)>,
    decide: Option<Nanos>,
    train: Train,
    came: f64,
    late: Nanos,
    /// Tiles of a recording.
    pub recorded: RecordedTiles,
}

/// Tiles with a viewport share large enough to be missed. share: viewport share of each tile.
pub(super) fn in_view(share: &[f64]) -> impl Iterator<Item = usize> + '_ {
    (0..share.len()).filter(|n| share[*n] > IN_VIEW)
}

/// Subscriber priority of a tile by its rank in a plan.
pub(super) fn priority(rank: usize) -> u8 {
    u8::try_from(usize::from(PRIORITY) + 3 * rank).unwrap_or(LAST_PRIORITY).min(LAST_PRIORITY)
}

impl Tiles {
    /// None if the video has no tiles.
    pub fn new(sphere: &Sphere, catalog: &Catalog) -> Option<Self> {
        let view = [std::f64::consts::FRAC_PI_2; 2];
        let mut planner = Planner::new(View::new(sphere.grid()?, view[0], view[1], SAMPLES), sphere.qualities(), 0.1);
        planner.capacity.guess(FIRST_RATE);
        Some(Tiles {
            planner,
            view,
            gaze_known: false,
            tracks: catalog.tiles.clone(),
            rates: None,
            following: BTreeMap::new(),
            leaving: Vec::new(),
            newest: None,
            decide: None,
            train: Train::default(),
            came: 0.0,
            late: 0,
            recorded: RecordedTiles::default(),
        })
    }

    /// Sets the tiles that the catalog lists as encoded.
    pub fn set_tracks(&mut self, tracks: &[TileTrack]) {
        self.tracks = tracks.to_vec();
    }

    pub fn track(&self, tile: usize, quality: usize) -> Option<&TileTrack> {
        self.tracks.iter().find(|t| t.tile == tile && t.quality == quality)
    }

    /// The lowest available quality of a tile.
    pub fn least(&self, tile: usize) -> Option<usize> {
        self.tracks.iter().filter(|t| t.tile == tile).map(|t| t.quality).min()
    }

    /// Sizes and distortions of a GoP that begins at a timestamp; estimated from bit rates if there
    /// is no record.
    pub fn gop(&self, sphere: &Sphere, start: Nanos, rates: Option<&Rates>) -> Gop {
        let (tiles, qualities) = (self.planner.view.grid().tiles(), sphere.qualities());
        let mut g = Gop { start: start as f64 / 1e9, duration: sphere.gop / 1000.0, ..Gop::default() };
        for tile in 0..tiles {
            for q in 0..qualities {
                let i = tile * qualities + q;
                let nominal = |t: &TileTrack| if t.bitrate > 0.0 { t.bitrate } else { 300_000.0 } / 8.0 * g.duration;
                // Offer only qualities that are being encoded, regardless of the record.
                let bytes = self.track(tile, q).map(|t| rates.map_or_else(|| nominal(t), |r| r.bytes[i]));
                g.bytes.push(bytes.unwrap_or(0.0));
                g.distortion.push(rates.map_or(60.0 / f64::from(1u32 << q), |r| r.distortion[i]));
            }
        }
        g.miss = rates.map_or_else(|| vec![150.0; tiles], |r| r.missing.clone());
        g
    }

    /// Measures throughput over a GoP.
    fn measure(&mut self, group: u64, gop: f64) {
        let came = 1000.0 * std::mem::take(&mut self.came) / gop;
        if came == 0.0 {
            return;
        }
        let (carried, late, capacity) = (self.train.rate(group), self.late as f64 / 1e6, &mut self.planner.capacity);
        if carried > 0.0 {
            capacity.add(carried.max(came));
        } else if self.late > LATE {
            capacity.add(came * gop / (gop + late));
        } else {
            let rate = (GROWTH * came).max(capacity.mean());
            if !capacity.guess(rate) {
                capacity.add(rate);
            }
        }
    }

    /// Time at which `tick_tiles` must run next.
    pub fn deadline(&self) -> Option<Nanos> {
        self.leaving.iter().map(|l| l.0).chain(self.decide).min()
    }
}

impl Player {
    /// Sets the viewer's gaze.
    pub(super) fn gaze(&mut self, now: Nanos, mut s: Option<&mut Session>, direction: [f64; 3], view: [f64; 2]) {
        let Some(f) = &mut self.sphere_feed else { return };
        let (Some(t), Some(due)) = (&mut f.tiles, f.due) else { return };
        if (view[0] - t.view[0]).abs() + (view[1] - t.view[1]).abs() > 0.02 {
            t.planner.view = View::new(*t.planner.view.grid(), view[0], view[1], SAMPLES);
            t.view = view;
        }
        t.planner.gaze.add(due.at(now) as f64 / 1e9, Vec3(direction));
        t.gaze_known = true;
        let share = t.planner.view.expect(&[Look { gaze: t.planner.gaze.last().gaze, p: 1.0 }]).0;
        let missing: Vec<_> = in_view(&share).filter(|n| !t.following.contains_key(n)).collect();
        if let (Some(_), Some(s)) = (&self.playback, s.as_deref_mut()) {
            self.fetch_visible_recorded_tiles(now, s, &share);
        }
        self.shared.with_screen(|screen| {
            if let Some(m) = &mut screen.mosaic {
                m.look(share);
            }
        });
        let Some(f) = &mut self.sphere_feed else { return };
        let Some(t) = &mut f.tiles else { return };
        // Request newly visible tiles at once.
        let (Some((group, start)), Some(s), false) = (t.newest, s, missing.is_empty() || self.playback.is_some())
        else {
            return;
        };
        let mut gop = t.gop(&f.sphere, start, t.rates.as_ref());
        gop.have = (0..t.planner.view.grid().tiles()).map(|n| t.following.get(&n).map(|f| f.quality)).collect();
        let plan = t.planner.plan(&[gop], f.sphere.gop / 1000.0, 0.0);
        let quality = |tile| plan.iter().find(|r| r.tile == tile).map(|r| r.quality).or_else(|| t.least(tile));
        let wanted: Vec<_> = missing.into_iter().filter_map(|tile| Some((tile, quality(tile)?))).collect();
        for (tile, quality) in wanted {
            self.begin_tile(now, s, tile, quality, PRIORITY, group, true);
        }
    }

    /// Subscribes to a tile, starting at a group. at_once: include its objects already published.
    #[allow(clippy::too_many_arguments)]
    fn begin_tile(
        &mut self, now: Nanos, s: &mut Session, tile: usize, quality: usize, priority: u8, from: u64, at_once: bool,
    ) {
        let Some(f) = &self.sphere_feed else { return };
        let Some(track) = f.tiles.as_ref().and_then(|t| t.track(tile, quality)) else { return };
        let o = SubscribeOptions {
            filter: Some(if at_once { Filter::LargestObject } else { Filter::From(from) }),
            priority: Some(priority),
            delivery_timeout_ms: f.sphere.latency.ceil() as u64,
            join: at_once,
            max_object: MAX_FRAME,
            ..SubscribeOptions::default()
        };
        let name = self.track(&track.name);
        let request = s.subscribe(now, &name, o);
        let (Some(c), Some(t)) = (&mut self.connection, self.sphere_feed.as_mut().and_then(|f| f.tiles.as_mut()))
        else {
            return;
        };
        c.requests.insert(request, Purpose::Tile(tile as u16));
        t.following.insert(tile, Following { request, quality });
    }

    /// Takes a record of rates and distortions.
    pub(super) fn tile_rates(&mut self, payload: &[u8]) {
        if let Some(f) = &mut self.sphere_feed {
            if let Some(t) = &mut f.tiles {
                // Keep the previous record if this one is invalid.
                t.rates = rates(payload, t.planner.view.grid().tiles(), f.sphere.qualities()).or(t.rates.take());
            }
        }
    }

    /// Takes a tile's frame.
    pub(super) fn tile_object(&mut self, now: Nanos, tile: u16, o: Object) {
        let Some(f) = self.sphere_feed.as_mut().filter(|_| o.status == ObjectStatus::Normal && !o.payload.is_empty())
        else {
            return self.shared.pool.give(o.payload);
        };
        let replayed = self.connection.as_ref().and_then(|c| c.replayed.get(&o.request)).copied().unwrap_or(false);
        self.shared.measures().received_sphere(o.payload.len(), now);
        let Some(mut timestamp) = super::sphere::stamp(&o) else { return self.shared.pool.give(o.payload) };
        if replayed {
            timestamp = f.continuous_timestamp(now, o.group, timestamp, o.fetched);
        }
        let Some(t) = &mut f.tiles else { return self.shared.pool.give(o.payload) };
        t.train.add(now as f64 / 1e9, o.payload.len(), o.group, o.id == 0 && !o.fetched);
        t.came += o.payload.len() as f64;
        t.late = now - timestamp - f.quickest.unwrap_or(now - timestamp);
        let (group, id, config, payload) = (o.group, o.id, o.properties.video_config, o.payload);
        let chunk = Chunk { group, id, timestamp, config, payload, arrived: now, replayed };
        self.shared.with_screen(|screen| {
            if let Some(m) = &mut screen.mosaic {
                m.add(tile.into(), chunk);
            }
        });
    }

    /// A group of the base begins: measure the previous one, and schedule choosing the next one's
    /// tiles.
    pub(super) fn tiles_begin(&mut self, group: u64, start: Nanos, offset: Nanos) {
        let rtt = self.connection.as_ref().map_or(0, |c| c.rtt.smoothed);
        let Some(f) = &mut self.sphere_feed else { return };
        let Some(t) = &mut f.tiles else { return };
        let before = t.newest.map(|n| n.0);
        if before.is_some_and(|b| group <= b && b - group < 1000) {
            return;
        }
        t.newest = Some((group, start));
        if let Some(b) = before {
            t.measure(b, f.sphere.gop);
        }
        t.planner.latency = rtt as f64 / 1e9 + 0.1;
        t.decide = Some(start + (f.sphere.gop * 1e6) as Nanos + offset - AHEAD - rtt * 3 / 2);
    }

    /// Ends subscriptions whose last group has passed, and chooses the tiles of the next group when
    /// it is time.
    pub(super) fn tick_tiles(&mut self, now: Nanos, s: &mut Session) {
        let Some(f) = &mut self.sphere_feed else { return };
        let Some(t) = &mut f.tiles else { return };
        let over: Vec<_> = t.leaving.iter().filter(|l| now >= l.0).map(|l| l.1).collect();
        t.leaving.retain(|l| now < l.0);
        let (mut from, mut begin) = (0, Vec::new());
        let mut cancel = over;
        if let (Some((group, start)), true) = (t.newest, t.decide.is_some_and(|d| now >= d)) {
            t.decide = None;
            from = group + 1;
            if t.gaze_known && self.playback.is_none() {
                let next = start + (f.sphere.gop * 1e6) as Nanos;
                let gop = t.gop(&f.sphere, next, t.rates.as_ref());
                let plan = t.planner.plan(&[gop], f.sphere.gop / 1000.0, 0.0);
                let mut wanted: BTreeMap<_, _> =
                    plan.iter().enumerate().map(|(rank, r)| (r.tile, (r.quality, rank))).collect();
                let ends = now + AHEAD + TAIL;
                t.following.retain(|tile, f| {
                    let stays = wanted.get(tile).is_some_and(|w| w.0 == f.quality);
                    if stays {
                        wanted.remove(tile);
                    } else {
                        t.leaving.push((ends, f.request));
                    }
                    stays
                });
                begin.extend(wanted);
            }
        }
        if let Some(c) = &mut self.connection {
            cancel.retain(|r| c.requests.remove(r).is_some());
        }
        cancel.into_iter().for_each(|r| s.cancel(r));
        for (tile, (quality, rank)) in begin {
            self.begin_tile(now, s, tile, quality, priority(rank), from, false);
        }
    }

    /// A tile's subscription ended.
    pub(super) fn tile_gone(&mut self, request: Request) {
        if let Some(t) = self.sphere_feed.as_mut().and_then(|f| f.tiles.as_mut()) {
            t.following.retain(|_, f| f.request != request);
            t.leaving.retain(|l| l.1 != request);
        }
    }

    /// Subscribes to the tiles' rates; the tiles follow.
    pub(super) fn subscribe_rates(&mut self, now: Nanos, s: &mut Session) {
        let asked = self.connection.as_ref().is_none_or(|c| c.of(Purpose::Rates).is_some());
        let named = self.catalog.as_ref().and_then(|c| c.rates.clone());
        let (Some(name), false, Some(_)) = (named, asked, self.sphere_feed.as_ref().and_then(|f| f.tiles.as_ref()))
        else {
            return;
        };
        let o = SubscribeOptions {
            filter: Some(Filter::LargestObject),
            priority: Some(PRIORITY_CATALOG),
            join: true,
            max_object: MAX_SIZE,
            ..SubscribeOptions::default()
        };
        let request = s.subscribe(now, &self.track(&name), o);
        if let Some(c) = &mut self.connection {
            c.requests.insert(request, Purpose::Rates);
        }
    }

    /// Unsubscribes from all tiles. None: the connection is gone.
    pub(super) fn unsubscribe_tiles(&mut self, s: Option<&mut Session>) {
        if let Some(t) = self.sphere_feed.as_mut().and_then(|f| f.tiles.as_mut()) {
            t.following.clear();
            t.leaving.clear();
            (t.newest, t.decide) = (None, None);
            match s {
                Some(_) => t.recorded = RecordedTiles::default(),
                None => t.recorded.lost(),
            }
        }
        let (Some(c), Some(s)) = (&mut self.connection, s) else { return };
        let of: Vec<_> = c
            .requests
            .iter()
            .filter(|(_, p)| {
                matches!(p, Purpose::Tile(_) | Purpose::Rates | Purpose::RecordedTile | Purpose::RecordedRates)
            })
            .map(|(r, _)| *r)
            .collect();
        for request in of {
            c.requests.remove(&request);
            c.fetches.retain(|(_, r)| *r != request);
            s.cancel(request);
        }
    }
}
