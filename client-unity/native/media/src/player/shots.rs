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
const MOST: usize = 8;
/// Minimum tile bytes of a GoP for a throughput measurement.
const LEAST_MEASURED: usize = 20_000;

/// A recorded GoP.
#[derive(Debug)]
struct Shot {
    group: u64,
    start: Nanos,
    /// Its tiles have been chosen.
    chosen: bool,
    /// Requested tiles and their qualities.
    there: BTreeMap<usize, usize>,
    /// Earliest time to retry failed fetches.
    again: Nanos,
    began: Nanos,
    bytes: usize,
}

/// The GoPs whose tiles are fetched.
#[derive(Debug, Default)]
pub(super) struct Shots {
    /// In playback order.
    list: VecDeque<Shot>,
    rates: BTreeMap<u64, Rates>,
    /// Pending tile fetches: tile and group.
    fetching: HashMap<Request, (usize, u64)>,
    /// Pending fetches of rates; tiles are chosen when they complete.
    records: Vec<Request>,
}

impl Shots {
    fn get(&mut self, group: u64) -> Option<&mut Shot> {
        self.list.iter_mut().find(|s| s.group == group)
    }

    /// The connection was lost: choose pending tiles again.
    pub fn lost(&mut self) {
        self.records.clear();
        for (tile, group) in std::mem::take(&mut self.fetching).into_values() {
            if let Some(shot) = self.get(group) {
                shot.there.remove(&tile);
                shot.chosen = false;
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
        let shot = &self.shots.list[i];
        // While paused, the rest of the GoP does not matter.
        let start = if still { shot.start.max(place) } else { shot.start };
        let mut gop = self.gop(sphere, start, self.shots.rates.get(&shot.group).or(self.rates.as_ref()));
        gop.have = (0..self.planner.view.grid().tiles()).map(|n| shot.there.get(&n).copied()).collect();
        let plan = self.planner.plan(&[gop], sphere.gop / 1000.0, 0.0);
        plan.iter().filter(|r| !shot.there.contains_key(&r.tile)).map(|r| (r.tile, r.quality)).collect()
    }
}

impl Player {
    /// A GoP of the recording begins to arrive.
    pub(super) fn shot_begins(&mut self, group: u64, start: Nanos) {
        let Some(t) = self.film.as_mut().and_then(|f| f.tiles.as_mut()) else { return };
        self.shared.project(|screen| screen.receive_tiles(true));
        let list = &mut t.shots.list;
        if let Err(at) = list.binary_search_by_key(&group, |s| s.group) {
            list.insert(at, Shot { group, start, chosen: false, there: BTreeMap::new(), again: 0, began: 0, bytes: 0 });
        }
        while list.len() > MOST {
            list.pop_front();
        }
    }

    /// Fetches the rates of the GoPs being fetched.
    pub(super) fn fetch_rates(&mut self, now: Nanos, s: &mut Session, first: u64, last: u64) {
        let Some(name) = self.recording.as_ref().and_then(|r| r.rates.clone()) else { return };
        let track = self.recorded_track(&name);
        let (Some(t), Some(c)) = (self.film.as_mut().and_then(|f| f.tiles.as_mut()), &mut self.connection) else {
            return;
        };
        let (first, end) = (Location { group: first, object: 0 }, Location { group: last, object: 0 });
        let request = s.fetch(now, &track, first, end, Some(PRIORITY_CATALOG), MAX_SIZE);
        c.requests.insert(request, Purpose::RecordedRates);
        c.fetches.push((now + FETCH_TIMEOUT, request));
        t.shots.records.push(request);
    }

    /// Takes a record of a recorded GoP's rates.
    pub(super) fn recorded_rates(&mut self, group: u64, payload: &[u8]) {
        let Some(f) = &mut self.film else { return };
        let Some(t) = &mut f.tiles else { return };
        if let Some(r) = rates(payload, t.planner.view.grid().tiles(), f.sphere.qualities()) {
            t.shots.rates.insert(group, r);
            while t.shots.rates.len() > MOST {
                t.shots.rates.pop_first();
            }
        }
    }

    /// Fetches tiles for the current and the next GoP, and cancels fetches for past ones.
    pub(super) fn fetch_shots(&mut self, now: Nanos, s: &mut Session) {
        let (Some(p), Some(place)) = (&self.playback, self.recorded_place()) else { return };
        let still = !p.playing() || p.waiting();
        let (Some(f), Some(c)) = (&mut self.film, &mut self.connection) else { return };
        let Some(t) = &mut f.tiles else { return };
        let shown = t.shots.shown(place).unwrap_or(0);
        if shown > 0 {
            t.shots.list.drain(..shown);
            let first = t.shots.list.front().map_or(0, |s| s.group);
            let over: Vec<_> =
                t.shots.fetching.iter().filter(|(_, (_, group))| *group < first).map(|(r, _)| *r).collect();
            for request in over {
                t.shots.fetching.remove(&request);
                c.requests.remove(&request);
                c.fetches.retain(|(_, r)| *r != request);
                s.cancel(request);
            }
        }
        if !t.looked || !t.shots.records.is_empty() {
            return;
        }
        let mut wanted = Vec::new();
        for i in 0..t.shots.list.len().min(2) {
            if !std::mem::replace(&mut t.shots.list[i].chosen, true) {
                let group = t.shots.list[i].group;
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
    pub(super) fn turn_shots(&mut self, now: Nanos, s: &mut Session, share: &[f64]) {
        let (Some(p), Some(place)) = (&self.playback, self.recorded_place()) else { return };
        let still = !p.playing() || p.waiting();
        let Some(f) = &mut self.film else { return };
        let Some(t) = &mut f.tiles else { return };
        let ready = |shot: &Shot| shot.chosen && now >= shot.again;
        let Some(i) = t.shots.shown(place).filter(|i| ready(&t.shots.list[*i])) else { return };
        let group = t.shots.list[i].group;
        let missing: Vec<_> = in_view(share).filter(|n| !t.shots.list[i].there.contains_key(n)).collect();
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
        let Some(t) = self.film.as_ref().and_then(|f| f.tiles.as_ref()) else { return };
        let Some(track) = t.track(tile, quality).map(|track| self.recorded_track(&track.name)) else { return };
        let all = Location { group, object: 0 };
        let (Some(t), Some(c)) = (self.film.as_mut().and_then(|f| f.tiles.as_mut()), &mut self.connection) else {
            return;
        };
        let Some(shot) = t.shots.get(group) else { return };
        if shot.there.is_empty() {
            (shot.began, shot.bytes) = (now, 0);
        }
        shot.there.insert(tile, quality);
        let request = s.fetch(now, &track, all, all, Some(priority), MAX_FRAME);
        c.requests.insert(request, Purpose::Shot);
        c.fetches.push((now + FETCH_TIMEOUT, request));
        t.shots.fetching.insert(request, (tile, group));
    }

    /// Takes a frame of a recorded tile.
    pub(super) fn shot_object(&mut self, now: Nanos, o: Object) {
        let wanted = o.status == ObjectStatus::Normal && !o.payload.is_empty();
        let shots = self.film.as_mut().and_then(|f| f.tiles.as_mut()).map(|t| &mut t.shots).filter(|_| wanted);
        let of = shots.and_then(|s| Some((s.fetching.get(&o.request)?.0, s.get(o.group)?)));
        let (Some((tile, shot)), Some(timestamp)) = (of, stamp(&o)) else { return self.shared.pool.give(o.payload) };
        shot.bytes += o.payload.len();
        self.shared.measures().received_sphere(o.payload.len(), now);
        let (group, id, config, payload) = (o.group, o.id, o.properties.video_config, o.payload);
        let chunk = Chunk { group, id, timestamp, config, payload, arrived: now, replayed: true };
        self.shared.project(|screen| {
            if let Some(m) = &mut screen.mosaic {
                m.add(tile, chunk);
            }
        });
    }

    /// A fetch of a tile or of rates ended. Missing tiles in view are retried after a while, since
    /// a relay limits concurrent fetches.
    pub(super) fn shot_over(&mut self, now: Nanos, request: Request, came: bool) {
        if let Some(c) = &mut self.connection {
            c.requests.remove(&request);
            c.fetches.retain(|(_, r)| *r != request);
        }
        let Some(t) = self.film.as_mut().and_then(|f| f.tiles.as_mut()) else { return };
        t.shots.records.retain(|r| *r != request);
        let Some((tile, group)) = t.shots.fetching.remove(&request) else { return };
        if let (false, Some(shot)) = (came, t.shots.get(group)) {
            shot.there.remove(&tile);
            shot.again = now + RETRY;
        }
        if t.shots.fetching.values().any(|(_, g)| *g == group) {
            return;
        }
        if let Some(shot) = t.shots.get(group).filter(|s| s.bytes >= LEAST_MEASURED) {
            let rate = shot.bytes as f64 / ((now - shot.began).max(MS) as f64 / 1e9);
            t.planner.capacity.add(rate);
        }
    }
}
