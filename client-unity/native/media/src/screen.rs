//! Shared state of the 360° video. Received frames wait here; a thread decodes each picture shortly
//! before it is due; the renderer takes the one that is due.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use moqt::Nanos;
use video::{BestDecoder, Config, Matrix, Picture, VideoDecoder, VideoError};

use crate::catalog::Sphere;
use crate::mosaic::{Mosaic, NextTile, Part, TileJob};

const MS: Nanos = 1_000_000;
/// A picture is decoded this long before it is due.
pub(crate) const AHEAD: Nanos = 150 * MS;
/// A picture is composed from the base and the decoded tiles this long before it is due.
const COMPOSE: Nanos = 50 * MS;
/// A frame with a missing predecessor in its group is skipped this long before it is due; until
/// then the gap may close.
pub(crate) const CLOSING: Nanos = 30 * MS;
/// Maximum pictures waiting until due.
const MAX_PICTURES: usize = 8;
/// Maximum pictures acquired at a time.
const MAX_ACQUIRED: usize = 2;
/// Maximum bytes of frames waiting for decoding.
const MAX_BYTES: usize = 16 << 20;
/// A group this far below the newest belongs to a restarted publisher; nearer ones are late.
const RESTART_GAP: u64 = 1000;

/// Maps local time to the timestamp due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Due {
    /// Local time minus timestamp.
    pub shift: Nanos,
    /// While paused, the timestamp on display.
    pub still: Option<Nanos>,
}

impl Due {
    /// Timestamp due at a local time.
    pub fn at(&self, local: Nanos) -> Nanos {
        self.still.unwrap_or_else(|| local.saturating_sub(self.shift))
    }
}

/// A frame waiting for decoding.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub group: u64,
    pub id: u64,
    pub timestamp: Nanos,
    /// avcC configuration, if the frame carries it.
    pub config: Option<Vec<u8>>,
    pub payload: Vec<u8>,
    pub arrived: Nanos,
    pub replayed: bool,
}

/// A picture's properties without its samples.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct PictureInfo {
    /// Width in pixels, both eyes included.
    pub width: u32,
    pub height: u32,
    /// Stereoscopic: left eye above right eye.
    pub stereo: bool,
    pub matrix: Matrix,
    pub full_range: bool,
    /// Yaw, pitch and roll of the sphere, degrees.
    pub turned: [f64; 3],
    /// Capture time: UNIX time on the relay's clock.
    pub captured: Nanos,
    /// Local times.
    pub arrived: Nanos,
    pub decoded: Nanos,
    /// Decoding time.
    pub decode: Nanos,
    pub replayed: bool,
}

/// A picture acquired by the renderer.
#[derive(Debug, Clone, Copy)]
pub struct AcquiredPicture {
    /// Identifies the picture in release.
    pub handle: u64,
    /// Description of the picture.
    pub info: PictureInfo,
}

#[derive(Debug)]
pub(crate) struct Shown {
    pub info: PictureInfo,
    pub picture: Picture,
}

/// Counters of discarded frames.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Not decoded because a later group was due.
    pub skipped: u64,
    /// Undecodable.
    pub damaged: u64,
    /// Consecutive undecodable frames.
    pub undecodable: u64,
}

/// Next step of the decoder thread.
pub(crate) enum Next {
    Decode(Chunk, Arc<Sphere>),
    /// Compose a picture from the base and tiles.
    Compose(Shown, Vec<Part>, Arc<Sphere>),
    /// Wait this long or until woken.
    Wait(Nanos),
    /// Wait until woken.
    Idle,
}

/// State of the 360° video shared between threads.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    sphere: Option<Arc<Sphere>>,
    due: Option<Due>,
    chunks: BTreeMap<(u64, u64), Chunk>,
    bytes: usize,
    /// Group and ID of the last decoded frame.
    last: Option<(u64, u64)>,
    /// Incremented by every jump; results of earlier runs are discarded.
    run: u64,
    pictures: VecDeque<Shown>,
    /// Base pictures waiting for their tiles.
    low: VecDeque<Shown>,
    /// Sources of recent and upcoming pictures: while paused, tiles can be added to them.
    made: VecDeque<(Shown, Vec<Part>)>,
    /// Tiles, if received.
    pub mosaic: Option<Mosaic>,
    /// Prefer the platform's video decoder.
    platform_video: bool,
    free: Vec<Picture>,
    handles: u64,
    acquired: Vec<(u64, Shown)>,
    pub counters: Counters,
    pub over: bool,
}

impl Screen {
    /// Sets the video to show; None stops.
    pub fn show(&mut self, sphere: Option<Arc<Sphere>>) {
        self.jump();
        if sphere.is_none() {
            self.free.clear();
        }
        self.counters.undecodable = 0;
        self.mosaic = None;
        self.sphere = sphere;
        self.due = None;
    }

    pub fn platform_video(&self) -> bool {
        self.platform_video
    }

    /// Sets whether decoders created from now on prefer the platform's.
    pub fn set_platform_video(&mut self, on: bool) {
        self.platform_video = on;
        if let Some(m) = &mut self.mosaic {
            m.platform_video = on;
        }
    }

    /// Discards everything: playback jumped on the timeline.
    pub fn jump(&mut self) {
        self.run += 1;
        self.chunks.clear();
        self.bytes = 0;
        self.last = None;
        while let Some(p) = self.pictures.pop_front().or_else(|| self.low.pop_front()) {
            self.give_back(p.picture);
        }
        while self.forget() {}
        if let Some(m) = &mut self.mosaic {
            m.jump();
        }
    }

    /// Recycles the sources of the oldest picture; returns false if there are none.
    fn forget(&mut self) -> bool {
        let Some((low, parts)) = self.made.pop_front() else { return false };
        self.give_back(low.picture);
        if let Some(m) = &mut self.mosaic {
            m.give_back(parts);
        }
        true
    }

    /// Turns tiles on or off.
    pub fn receive_tiles(&mut self, on: bool) {
        let grid = self.sphere.as_ref().and_then(|s| s.grid());
        match (on, grid) {
            (true, Some(g)) if self.mosaic.is_none() => self.mosaic = Some(Mosaic::new(g, self.platform_video)),
            (false, _) => {
                while self.forget() {}
                self.mosaic = None;
            }
            _ => {}
        }
    }

    pub fn set_due(&mut self, due: Due) {
        self.due = Some(due);
    }

    /// Timestamp due.
    pub fn due(&self, now: Nanos) -> Option<Nanos> {
        self.due.map(|d| d.at(now))
    }

    /// Takes a frame, in any order.
    pub fn add(&mut self, chunk: Chunk) {
        let key = (chunk.group, chunk.id);
        if self.last.is_some_and(|(g, _)| chunk.group < g && g - chunk.group > RESTART_GAP) {
            self.jump();
        }
        if self.sphere.is_none() || self.last.is_some_and(|l| key <= l) || self.chunks.contains_key(&key) {
            return;
        }
        self.bytes += chunk.payload.len();
        self.chunks.insert(key, chunk);
        while self.bytes > MAX_BYTES {
            self.drop_first();
            self.counters.skipped += 1;
        }
    }

    fn drop_first(&mut self) -> Option<Chunk> {
        let (_, c) = self.chunks.pop_first()?;
        self.bytes -= c.payload.len();
        Some(c)
    }

    fn give_back(&mut self, picture: Picture) {
        if self.free.len() < MAX_PICTURES {
            self.free.push(picture);
        }
    }

    /// Drops pictures superseded by a later one that is due.
    fn overtake(&mut self, due: Nanos) {
        while self.pictures.get(1).is_some_and(|p| p.info.captured <= due) {
            if let Some(p) = self.pictures.pop_front() {
                self.give_back(p.picture);
            }
        }
    }

    pub fn next(&mut self, now: Nanos) -> Next {
        let (Some(due), Some(sphere)) = (self.due, self.sphere.clone()) else { return Next::Idle };
        let at = due.at(now);
        self.overtake(at);
        // Once a group's first frame is due, earlier groups are skipped.
        let begun = self.chunks.values().rev().find(|c| c.id == 0 && c.timestamp <= at).map(|c| (c.group, 0));
        while begun.is_some_and(|b| self.chunks.first_key_value().is_some_and(|(k, _)| *k < b)) {
            self.drop_first();
            self.counters.skipped += 1;
        }
        let wait = |until: Nanos| if due.still.is_some() { Next::Idle } else { Next::Wait((until - at).max(MS)) };
        // Of the base pictures waiting for tiles, use the last that is due.
        while self.low.get(1).is_some_and(|p| p.info.captured <= at) {
            if let Some(p) = self.low.pop_front() {
                self.give_back(p.picture);
            }
        }
        while self.made.get(1).is_some_and(|(p, _)| p.info.captured <= at) {
            self.forget();
        }
        let still = due.still.is_some();
        // While paused, compose only the picture that is due, once its frame is decoded.
        let closer = still && self.chunks.first_key_value().is_some_and(|(_, c)| c.timestamp <= at);
        let mut compose = Nanos::MAX;
        if let Some(p) = self.low.front().filter(|_| !closer) {
            compose = p.info.captured - if still { 0 } else { COMPOSE };
            if compose <= at || self.mosaic.is_none() {
                let Some(p) = self.low.pop_front() else { return Next::Idle };
                return self.compose(p, Vec::new(), still, sphere);
            }
        }
        let more = |(p, _): &(Shown, Vec<Part>)| {
            self.mosaic.as_ref().is_some_and(|m| p.info.captured <= at && m.has(p.info.captured))
        };
        if still && self.made.front().is_some_and(more) {
            let Some((p, parts)) = self.made.pop_front() else { return Next::Idle };
            return self.compose(p, parts, still, sphere);
        }
        let wait = |until: Nanos| wait(until.min(compose));
        if let (true, Some(p)) = (self.pictures.len() + self.low.len() >= MAX_PICTURES, self.pictures.get(1)) {
            return wait(p.info.captured);
        }
        while let Some((key, c)) = self.chunks.first_key_value() {
            let ready = c.timestamp - at;
            if ready > AHEAD {
                return wait(c.timestamp - AHEAD);
            }
            let follows = key.1 == 0 || self.last == Some((key.0, key.1 - 1));
            if !follows && ready > CLOSING && due.still.is_none() {
                return wait(c.timestamp - CLOSING);
            }
            let key = *key;
            let Some(c) = self.drop_first() else { break };
            if follows {
                self.last = Some(key);
                return Next::Decode(c, sphere);
            }
            self.counters.skipped += 1;
        }
        if compose < Nanos::MAX {
            return wait(compose);
        }
        Next::Idle
    }

    /// Composes a picture from the base and from decoded tiles, old and new.
    fn compose(&mut self, low: Shown, mut parts: Vec<Part>, still: bool, sphere: Arc<Sphere>) -> Next {
        if let Some(m) = &mut self.mosaic {
            m.take(low.info.captured, &mut parts);
            m.count(&parts, still);
        }
        Next::Compose(low, parts, sphere)
    }

    /// The tile frame to decode next.
    pub fn next_tile(&mut self, now: Nanos) -> NextTile {
        let (Some(due), Some(sphere), Some(m)) = (self.due, &self.sphere, &mut self.mosaic) else {
            return NextTile::Idle;
        };
        m.next(due, due.at(now), sphere.eyes())
    }

    /// Takes back a tile decoding job of a run.
    pub fn tile_ready(&mut self, run: u64, job: TileJob, decoded: bool) {
        let run = run == self.run;
        if let Some(m) = &mut self.mosaic {
            m.ready(job, decoded && run);
        }
    }

    pub fn run(&self) -> u64 {
        self.run
    }

    pub fn buffer(&mut self) -> Picture {
        self.free.pop().unwrap_or_default()
    }

    /// Takes a decoded base picture of a run.
    pub fn ready(&mut self, run: u64, info: PictureInfo, picture: Picture) {
        if run != self.run {
            return self.give_back(picture);
        }
        self.counters.undecodable = 0;
        let list = if self.mosaic.is_some() { &mut self.low } else { &mut self.pictures };
        list.push_back(Shown { info, picture });
    }

    /// Takes a composed picture together with its sources.
    pub fn composed(&mut self, run: u64, info: PictureInfo, picture: Picture, low: Shown, parts: Vec<Part>) {
        let at = self.made.iter().position(|(p, _)| p.info.captured > info.captured).unwrap_or(self.made.len());
        self.made.insert(at, (low, parts));
        if run == self.run {
            let at = self.pictures.iter().position(|p| p.info.captured > info.captured).unwrap_or(self.pictures.len());
            self.pictures.insert(at, Shown { info, picture });
        } else {
            while self.forget() {}
        }
    }

    /// A frame was undecodable, and with it the rest of its group.
    pub fn damaged(&mut self, run: u64, picture: Picture) -> u64 {
        self.give_back(picture);
        if run == self.run {
            self.last = None;
        }
        self.counters.damaged += 1;
        self.counters.undecodable += 1;
        self.counters.undecodable
    }

    /// The picture that is due, unless acquired before. Fails if too many are acquired.
    pub fn acquire(&mut self, now: Nanos) -> Result<Option<AcquiredPicture>, crate::TooMany> {
        let Some(due) = self.due(now) else { return Ok(None) };
        self.overtake(due);
        if self.pictures.front().is_none_or(|p| p.info.captured > due) {
            return Ok(None);
        }
        if self.acquired.len() >= MAX_ACQUIRED {
            return Err(crate::TooMany);
        }
        let Some(p) = self.pictures.pop_front() else { return Ok(None) };
        self.handles += 1;
        let acquired = AcquiredPicture { handle: self.handles, info: p.info };
        self.acquired.push((self.handles, p));
        Ok(Some(acquired))
    }

    /// Runs a function on an acquired picture.
    pub fn look<T>(&self, handle: u64, f: impl FnOnce(&Picture) -> T) -> Option<T> {
        self.acquired.iter().find(|(h, _)| *h == handle).map(|(_, p)| f(&p.picture))
    }

    pub fn release(&mut self, handle: u64) -> Option<PictureInfo> {
        let at = self.acquired.iter().position(|(h, _)| *h == handle)?;
        let (_, p) = self.acquired.swap_remove(at);
        self.give_back(p.picture);
        Some(p.info)
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        let shown = self.pictures.iter().chain(self.acquired.iter().map(|(_, p)| p)).map(|p| &p.picture);
        let low = self.low.iter().chain(self.made.iter().map(|(p, _)| p)).map(|p| &p.picture);
        let shown =
            shown.chain(&self.free).chain(low).chain(self.made.iter().flat_map(|(_, parts)| parts).map(|p| &p.picture));
        self.bytes + shown.map(Picture::bytes).sum::<usize>() + self.mosaic.as_ref().map_or(0, Mosaic::held)
    }
}

/// Decoder of a [`Screen`]'s frames, in order.
#[derive(Debug)]
pub(crate) struct SphereDecoder {
    decoder: BestDecoder,
    config: Option<(Vec<u8>, Config)>,
}

impl SphereDecoder {
    /// platform: prefer the platform's video decoder.
    pub fn new(platform: bool) -> Self {
        SphereDecoder { decoder: BestDecoder::new(platform), config: None }
    }

    /// Returns why the platform's decoder was given up, only once.
    pub fn take_note(&mut self) -> Option<String> {
        self.decoder.take_note()
    }

    /// Color matrix and full-range flag: from the catalog, or else from the stream's configuration.
    pub fn color(&self, sphere: &Sphere) -> (Matrix, bool) {
        let of = self.config.as_ref().map(|(_, c)| c);
        let matrix = sphere.matrix.or(of.and_then(|c| c.matrix)).unwrap_or_default();
        (matrix, sphere.full_range.unwrap_or(of.is_some_and(|c| c.full_range)))
    }

    /// Decodes a frame of the base.
    pub fn decode(&mut self, sphere: &Sphere, c: &Chunk, into: &mut Picture) -> Result<(), VideoError> {
        let size = (sphere.width as usize, sphere.height as usize);
        self.decode_sized(size, sphere.config.as_ref(), c, into)
    }

    /// Decodes a frame. config: fallback for groups without one.
    pub fn decode_sized(
        &mut self, (w, h): (usize, usize), config: Option<&Vec<u8>>, c: &Chunk, into: &mut Picture,
    ) -> Result<(), VideoError> {
        if c.id == 0 {
            let avcc = c.config.as_ref().or(config);
            let avcc = avcc.ok_or_else(|| VideoError("no decoder configuration in catalog or stream".into()))?;
            if self.config.as_ref().is_none_or(|(of, _)| of != avcc) {
                self.config = None;
                let config = Config::parse(avcc)?;
                if (config.width, config.height) != (w, h) {
                    return Err(VideoError(format!(
                        "its pictures are {}×{}, but the catalog says {w}×{h}",
                        config.width, config.height
                    )));
                }
                self.decoder.configure(&config)?;
                self.config = Some((avcc.clone(), config));
            }
        }
        if self.config.is_none() {
            return Err(VideoError("no decoder configuration in catalog or stream".into()));
        }
        self.decoder.decode(&c.payload, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Nanos = 40 * MS;

    fn sphere() -> Arc<Sphere> {
        let text = br#"{"version":"draft-01","tracks":[{"name":"video","packaging":"loc","codec":"avc1.42c01e",
          "width":64,"height":32,
            "hcsphere":{"projection":"equirectangular","stereo":"mono","width":64,"height":32}}]}"#;
        let mut reader = crate::catalog::CatalogReader::default();
        let catalog = reader.add(0, 0, text.to_vec(), 0).unwrap_or_default().unwrap_or_default();
        Arc::new(catalog.sphere.unwrap_or_else(|| panic!("no sphere")))
    }

    fn chunk(group: u64, id: u64) -> Chunk {
        let timestamp = (25 * group as Nanos + id as Nanos) * FRAME;
        Chunk { group, id, timestamp, config: None, payload: vec![0; 10], arrived: 0, replayed: false }
    }

    fn screen() -> Screen {
        let mut s = Screen::default();
        s.show(Some(sphere()));
        s.set_due(Due { shift: 0, still: None });
        s
    }

    /// Takes a frame as if decoded at the given local time.
    fn take(s: &mut Screen, c: &Chunk, sphere: &Sphere, now: Nanos) {
        let info = PictureInfo {
            width: sphere.width,
            height: sphere.height,
            stereo: false,
            matrix: Matrix::Bt709,
            full_range: false,
            turned: [0.0; 3],
            captured: c.timestamp,
            arrived: 0,
            decoded: now,
            decode: 0,
            replayed: false,
        };
        let (run, buffer) = (s.run(), s.buffer());
        s.ready(run, info, buffer);
    }

    /// Decodes everything decodable at the given local time; returns the frames.
    fn decode(s: &mut Screen, now: Nanos) -> Vec<(u64, u64)> {
        let mut list = Vec::new();
        while let Next::Decode(c, sphere) = s.next(now) {
            list.push((c.group, c.id));
            take(s, &c, &sphere, now);
        }
        list
    }

    fn shown(s: &mut Screen, now: Nanos) -> Option<Nanos> {
        let a = s.acquire(now).unwrap_or_default()?;
        s.release(a.handle);
        Some(a.info.captured)
    }

    #[test]
    fn decodes_ahead_and_shows_the_picture_due() {
        let mut s = screen();
        (0..25).for_each(|id| s.add(chunk(0, id)));
        assert_eq!(decode(&mut s, 0), [(0, 0), (0, 1), (0, 2), (0, 3)]); // frames within the next 150 ms
        assert_eq!(shown(&mut s, 0), Some(0));
        assert_eq!(shown(&mut s, FRAME - 1), None);
        assert_eq!(shown(&mut s, 2 * FRAME + 1), Some(2 * FRAME));
        assert!(matches!(s.next(0), Next::Wait(n) if n == 4 * FRAME - AHEAD));
    }

    #[test]
    fn accepts_reordered_and_duplicate_frames() {
        let mut s = screen();
        for id in [2, 0, 1, 1, 0] {
            s.add(chunk(0, id));
        }
        assert_eq!(decode(&mut s, 0), [(0, 0), (0, 1), (0, 2)]);
        s.add(chunk(0, 1));
        assert_eq!(decode(&mut s, 0), []);
    }

    #[test]
    fn gap_closes_or_skips_to_the_next_group() {
        let mut s = screen();
        [0, 1, 3, 4].iter().for_each(|id| s.add(chunk(0, *id)));
        s.add(chunk(1, 0));
        assert_eq!(decode(&mut s, 0), [(0, 0), (0, 1)]);
        s.add(chunk(0, 2));
        assert_eq!(decode(&mut s, FRAME), [(0, 2), (0, 3), (0, 4)]);
        [6, 7].iter().for_each(|id| s.add(chunk(0, *id)));
        assert_eq!(decode(&mut s, 7 * FRAME), []);
        assert_eq!(decode(&mut s, 22 * FRAME), [(1, 0)]);
    }

    #[test]
    fn due_group_skips_earlier_ones() {
        let mut s = screen();
        for g in 0..3 {
            (0..25).for_each(|id| s.add(chunk(g, id)));
        }
        assert_eq!(decode(&mut s, 51 * FRAME).first(), Some(&(2, 0)));
        assert_eq!(s.counters.skipped, 50);
        assert_eq!(shown(&mut s, 51 * FRAME), Some(51 * FRAME));
    }

    #[test]
    fn pause_and_jump() {
        let mut s = screen();
        s.set_due(Due { shift: 0, still: Some(10 * FRAME) });
        (0..25).for_each(|id| s.add(chunk(0, id)));
        let decoded = decode(&mut s, 0);
        assert_eq!((decoded.first(), decoded.last()), (Some(&(0, 0)), Some(&(0, 13))));
        assert_eq!(shown(&mut s, 99 * FRAME), Some(10 * FRAME));
        assert_eq!(shown(&mut s, 99 * FRAME), None);
        s.jump();
        assert_eq!(decode(&mut s, 0), []);
        (0..3).for_each(|id| s.add(chunk(0, id)));
        assert_eq!(decode(&mut s, 0), [(0, 0), (0, 1), (0, 2)]);
    }

    /// A screen paused at a timestamp, with tiles of 32×32.
    fn still(at: Nanos) -> Screen {
        let text = br#"{"version":"draft-01","tracks":[{"name":"video","packaging":"loc","codec":"avc1.42c01e",
          "width":16,"height":8,
            "hcsphere":{"projection":"equirectangular","stereo":"mono","width":64,"height":32,"columns":2,"rows":1,
              "qualities":1}}]}"#;
        let catalog = crate::catalog::CatalogReader::default()
            .add(0, 0, text.to_vec(), 0)
            .unwrap_or_default()
            .unwrap_or_default();
        let mut s = Screen::default();
        s.show(catalog.sphere.map(Arc::new));
        s.receive_tiles(true);
        s.set_due(Due { shift: 0, still: Some(at) });
        s
    }

    /// Decodes and composes everything possible at the given local time; returns the pictures'
    /// frames and tiles.
    fn make(s: &mut Screen, now: Nanos) -> Vec<(Nanos, Vec<usize>)> {
        let mut list = Vec::new();
        loop {
            while let NextTile::Decode(job) = s.next_tile(now) {
                let run = s.run();
                s.tile_ready(run, *job, true);
            }
            match s.next(now) {
                Next::Decode(c, sphere) => take(s, &c, &sphere, now),
                Next::Compose(low, parts, _) => {
                    list.push((low.info.captured, parts.iter().map(|p| p.tile).collect()));
                    let (run, info, buffer) = (s.run(), low.info, s.buffer());
                    s.composed(run, info, buffer, low, parts);
                }
                Next::Wait(_) | Next::Idle => return list,
            }
        }
    }

    #[test]
    fn late_tiles_are_added_while_paused() {
        let mut s = still(10 * FRAME);
        (0..25).for_each(|id| s.add(chunk(0, id)));
        let tile = |s: &mut Screen, n| (0..25).for_each(|id| s.mosaic.iter_mut().for_each(|m| m.add(n, chunk(0, id))));
        // Neither earlier nor later frames are composed.
        assert_eq!(make(&mut s, 0), [(10 * FRAME, vec![])]);
        assert_eq!((shown(&mut s, 0), shown(&mut s, 0)), (Some(10 * FRAME), None));
        tile(&mut s, 1);
        assert_eq!(make(&mut s, 0), [(10 * FRAME, vec![1])]);
        assert_eq!((shown(&mut s, 0), shown(&mut s, 0)), (Some(10 * FRAME), None));
        tile(&mut s, 0);
        assert_eq!(make(&mut s, 0), [(10 * FRAME, vec![1, 0])]);
        assert_eq!(shown(&mut s, 0), Some(10 * FRAME));
        // Playback resumes, with the tile frames decoded in the meantime.
        s.set_due(Due { shift: -11 * FRAME, still: None });
        assert_eq!(make(&mut s, 0).first(), Some(&(11 * FRAME, vec![0, 1])));
        assert_eq!(shown(&mut s, 0), Some(11 * FRAME));
        // Paused again, at a picture composed before later ones.
        s.set_due(Due { shift: 0, still: Some(11 * FRAME) });
        assert_eq!(make(&mut s, 0), []);
        s.jump();
        assert_eq!((make(&mut s, 0), s.made.len()), (vec![], 0));
    }

    #[test]
    fn publisher_restart() {
        let mut s = screen();
        s.add(chunk(5000, 0));
        assert_eq!(decode(&mut s, 125_000 * FRAME), [(5000, 0)]);
        s.add(chunk(0, 0));
        s.set_due(Due { shift: 125_000 * FRAME, still: None });
        assert_eq!(decode(&mut s, 125_000 * FRAME), [(0, 0)]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut s = screen();
        for id in 0..100 {
            s.add(Chunk { payload: vec![0; 1 << 20], ..chunk(9, id) });
        }
        assert!(s.held() <= MAX_BYTES);
    }

    #[test]
    fn acquire_limit() {
        let mut s = screen();
        (0..4).for_each(|id| s.add(chunk(0, id)));
        decode(&mut s, 0);
        for i in 0..2 {
            assert!(s.acquire(i * FRAME).is_ok_and(|a| a.is_some()));
        }
        assert!(s.acquire(2 * FRAME).is_err());
        assert!(s.release(1).is_some() && s.release(1).is_none());
        assert!(s.acquire(2 * FRAME).is_ok_and(|a| a.is_some()));
    }
}
