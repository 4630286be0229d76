//! Tiles of recorded 360° video (docs/spec/tiles.md, Recorded content): fetches the tiles of the
//! GoP on display and of the next one, most important first.

use std::collections::{BTreeMap, HashMap, VecDeque};

use moqt::{Location, Nanos, Object, ObjectStatus, Request, Session};

use super::sphere::{stamp, MAX_FRAME};
use super::tiles::{in_view, priority, Tiles};
use super::{Player, Purpose, FETCH_TIMEOUT, MS, PRIORITY_CATALOG, RETRY};
use crate::catalog::{rates, Rates, MAX_SIZE};
use crate::screen::Chunk;

/// Maximum GoPs tracked at a time.
const MAX_GOPS: usize = 8;
/// Minimum tile bytes of a GoP for a throughput measurement.
const MIN_MEASURED: usize = 20_000;

/// A recorded GoP.
#[derive(Debug)]
struct RecordedGop {
    group: u64,
    start: Nanos,
    /// Its tiles have been chosen.
    chosen: bool,
    /// Requested tiles and their qualities.
    requested: BTreeMap<usize, usize>,
    /// Earliest time to retry failed fetches.
    retry_at: Nanos,
    began: Nanos,
    bytes: usize,
}

/// The GoPs whose tiles are fetched.
#[derive(Debug, Default)]
pub(super) struct RecordedTiles {
    /// In playback order.
    list: VecDeque<RecordedGop>,
    rates: BTreeMap<u64, Rates>,
    /// Pending tile fetches: tile and group.
    fetching: HashMap<Request, (usize, u64)>,
    /// Pending fetches of rates; tiles are chosen when they complete.
    records: Vec<Request>,
}

impl RecordedTiles {
    fn get(&mut self, group: u64) -> Option<&mut RecordedGop> {
        self.list.iter_mut().find(|s| s.group == group)
    }

    /// The connection was lost: choose pending tiles again.
    pub fn lost(&mut self) {
        self.records.clear();
        for (tile, group) in std::mem::take(&mut self.fetching).into_values() {
            if let Some(gop) = self.get(group) {
                gop.requested.remove(&tile);
                gop.chosen = false;
            }
        }
    }

    /// Index of the GoP on display at a position.
    fn shown(&self, place: Nanos) -> Option<usize> {
        self.list.iter().rposition(|s| s.start <= place)
    }
}

impl Tiles {
    /// The tiles to fetch for a GoP at a playback position. still: playback is paused there.
    fn choose(&mut self, sphere: &crate::catalog::Sphere, i: usize, place: Nanos, still: bool) -> Vec<(usize, usize)> {
        let at = place as f64 / 1e9;
        let last = self.planner.gaze.last();
        if last.t != at {
            self.planner.gaze.add(at, last.gaze); // playback may have jumped
        }
        let gop = &self.recorded.list[i];
        // While paused, the rest of the GoP does not matter.
        let start = if still { gop.start.max(place) } else { gop.start };
        let mut tiles = self.gop(sphere, start, self.recorded.rates.get(&gop.group).or(self.rates.as_ref()));
        tiles.have = (0..self.planner.view.grid().tiles()).map(|n| gop.requested.get(&n).copied()).collect();
        let plan = self.planner.plan(&[tiles], sphere.gop / 1000.0, 0.0);
        plan.iter().filter(|r| !gop.requested.contains_key(&r.tile)).map(|r| (r.tile, r.quality)).collect()
    }
}

impl Player {
    /// A GoP of the recording begins to arrive.
    pub(super) fn recorded_gop_begins(&mut self, group: u64, start: Nanos) {
        let Some(t) = self.sphere_feed.as_mut().and_then(|f| f.tiles.as_mut()) else { return };
        self.shared.with_screen(|screen| screen.receive_tiles(true));
        let list = &mut t.recorded.list;
        if let Err(at) = list.binary_search_by_key(&group, |s| s.group) {
            list.insert(
                at,
                RecordedGop {
                    group,
                    start,
                    chosen: false,
                    requested: BTreeMap::new(),
                    retry_at: 0,
                    began: 0,
                    bytes: 0,
                },
            );
        }
        while list.len() > MAX_GOPS {
            list.pop_front();
        }
    }

    /// Fetches the rates of the GoPs being fetched.
    pub(super) fn fetch_rates(&mut self, now: Nanos, s: &mut Session, first: u64, last: u64) {
        let Some(name) = self.recording.as_ref().and_then(|r| r.rates.clone()) else { return };
        let track = self.recorded_track(&name);
        let (Some(t), Some(c)) = (self.sphere_feed.as_mut().and_then(|f| f.tiles.as_mut()), &mut self.connection)
        else {
            return;
        };
        let (first, end) = (Location { group: first, object: 0 }, Location { group: last, object: 0 });
        let request = s.fetch(now, &track, first, end, Some(PRIORITY_CATALOG), MAX_SIZE);
        c.requests.insert(request, Purpose::RecordedRates);
        c.fetches.push((now + FETCH_TIMEOUT, request));
        t.recorded.records.push(request);
    }

    /// Takes a record of a recorded GoP's rates.
    pub(super) fn recorded_rates(&mut self, group: u64, payload: &[u8]) {
        let Some(f) = &mut self.sphere_feed else { return };
        let Some(t) = &mut f.tiles else { return };
        if let Some(r) = rates(payload, t.planner.view.grid().tiles(), f.sphere.qualities()) {
            t.recorded.rates.insert(group, r);
            while t.recorded.rates.len() > MAX_GOPS {
                t.recorded.rates.pop_first();
            }
        }
    }

    /// Fetches tiles for the current and the next GoP, and cancels fetches for past ones.
    pub(super) fn fetch_recorded_tiles(&mut self, now: Nanos, s: &mut Session) {
        let (Some(p), Some(place)) = (&self.playback, self.recorded_position()) else { return };
        let still = !p.playing() || p.waiting();
        let (Some(f), Some(c)) = (&mut self.sphere_feed, &mut self.connection) else { return };
        let Some(t) = &mut f.tiles else { return };
        let shown = t.recorded.shown(place).unwrap_or(0);
        if shown > 0 {
            t.recorded.list.drain(..shown);
            let first = t.recorded.list.front().map_or(0, |s| s.group);
            let over: Vec<_> =
                t.recorded.fetching.iter().filter(|(_, (_, group))| *group < first).map(|(r, _)| *r).collect();
            for request in over {
                t.recorded.fetching.remove(&request);
                c.requests.remove(&request);
                c.fetches.retain(|(_, r)| *r != request);
                s.cancel(request);
            }
        }
        if !t.gaze_known || !t.recorded.records.is_empty() {
            return;
        }
        let mut wanted = Vec::new();
        for i in 0..t.recorded.list.len().min(2) {
            if !std::mem::replace(&mut t.recorded.list[i].chosen, true) {
                let group = t.recorded.list[i].group;
                wanted.extend(
                    t.choose(&f.sphere, i, place, still)
                        .into_iter()
                        .enumerate()
                        .map(|(rank, tile)| (group, rank, tile)),
                );
            }
        }
        for (group, rank, (tile, quality)) in wanted {
            self.fetch_tile(now, s, group, tile, quality, priority(rank));
        }
    }

    /// Fetches newly visible tiles at once. share: viewport share of each tile.
    pub(super) fn fetch_visible_recorded_tiles(&mut self, now: Nanos, s: &mut Session, share: &[f64]) {
        let (Some(p), Some(place)) = (&self.playback, self.recorded_position()) else { return };
        let still = !p.playing() || p.waiting();
        let Some(f) = &mut self.sphere_feed else { return };
        let Some(t) = &mut f.tiles else { return };
        let ready = |gop: &RecordedGop| gop.chosen && now >= gop.retry_at;
        let Some(i) = t.recorded.shown(place).filter(|i| ready(&t.recorded.list[*i])) else { return };
        let group = t.recorded.list[i].group;
        let missing: Vec<_> = in_view(share).filter(|n| !t.recorded.list[i].requested.contains_key(n)).collect();
        if missing.is_empty() {
            return;
        }
        let plan = t.choose(&f.sphere, i, place, still);
        let quality = |tile| plan.iter().find(|r| r.0 == tile).map(|r| r.1).or_else(|| t.least(tile));
        let wanted: Vec<_> = missing.into_iter().filter_map(|tile| Some((tile, quality(tile)?))).collect();
        for (tile, quality) in wanted {
            self.fetch_tile(now, s, group, tile, quality, priority(0));
        }
    }

    fn fetch_tile(&mut self, now: Nanos, s: &mut Session, group: u64, tile: usize, quality: usize, priority: u8) {
        let Some(t) = self.sphere_feed.as_ref().and_then(|f| f.tiles.as_ref()) else { return };
        let Some(track) = t.track(tile, quality).map(|track| self.recorded_track(&track.name)) else { return };
        let all = Location { group, object: 0 };
        let (Some(t), Some(c)) = (self.sphere_feed.as_mut().and_then(|f| f.tiles.as_mut()), &mut self.connection)
        else {
            return;
        };
        let Some(gop) = t.recorded.get(group) else { return };
        if gop.requested.is_empty() {
            (gop.began, gop.bytes) = (now, 0);
        }
        gop.requested.insert(tile, quality);
        let request = s.fetch(now, &track, all, all, Some(priority), MAX_FRAME);
        c.requests.insert(request, Purpose::RecordedTile);
        c.fetches.push((now + FETCH_TIMEOUT, request));
        t.recorded.fetching.insert(request, (tile, group));
    }

    /// Takes a frame of a recorded tile.
    pub(super) fn recorded_tile_object(&mut self, now: Nanos, o: Object) {
        let wanted = o.status == ObjectStatus::Normal && !o.payload.is_empty();
        let recorded =
            self.sphere_feed.as_mut().and_then(|f| f.tiles.as_mut()).map(|t| &mut t.recorded).filter(|_| wanted);
        let of = recorded.and_then(|s| Some((s.fetching.get(&o.request)?.0, s.get(o.group)?)));
        let (Some((tile, gop)), Some(timestamp)) = (of, stamp(&o)) else { return self.shared.pool.give(o.payload) };
        gop.bytes += o.payload.len();
        self.shared.measures().received_sphere(o.payload.len(), now);
        let (group, id, config, payload) = (o.group, o.id, o.properties.video_config, o.payload);
        let chunk = Chunk { group, id, timestamp, config, payload, arrived: now, replayed: true };
        self.shared.with_screen(|screen| {
            if let Some(m) = &mut screen.mosaic {
                m.add(tile, chunk);
            }
        });
    }

    /// A fetch of a tile or of rates ended. Missing tiles in view are retried after a while, since
    /// a relay limits concurrent fetches.
    pub(super) fn recorded_fetch_over(&mut self, now: Nanos, request: Request, came: bool) {
        if let Some(c) = &mut self.connection {
            c.requests.remove(&request);
            c.fetches.retain(|(_, r)| *r != request);
        }
        let Some(t) = self.sphere_feed.as_mut().and_then(|f| f.tiles.as_mut()) else { return };
        t.recorded.records.retain(|r| *r != request);
        let Some((tile, group)) = t.recorded.fetching.remove(&request) else { return };
        if let (false, Some(gop)) = (came, t.recorded.get(group)) {
            gop.requested.remove(&tile);
            gop.retry_at = now + RETRY;
        }
        if t.recorded.fetching.values().any(|(_, g)| *g == group) {
            return;
        }
        if let Some(gop) = t.recorded.get(group).filter(|s| s.bytes >= MIN_MEASURED) {
            let rate = gop.bytes as f64 / ((now - gop.began).max(MS) as f64 / 1e9);
            t.planner.capacity.add(rate);
        }
    }
}
