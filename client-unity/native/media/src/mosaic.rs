//! Tiles of 360° video. Tiles that arrived are decoded shortly before they are due and laid over
//! the base, which shows through wherever a tile is missing.

use std::collections::{BTreeMap, VecDeque};

use moqt::Nanos;
use tile360::Grid;
use video::Picture;

use crate::catalog::Sphere;
use crate::screen::{Chunk, Due, SphereDecoder, AHEAD, CLOSING};

/// Maximum bytes of tile frames waiting to be decoded.
const MAX_BYTES: usize = 32 << 20;
/// Maximum decoded pictures per tile waiting for the base's picture.
const MAX_PICTURES: usize = 16;
/// Maximum pictures kept for reuse.
const MAX_FREE: usize = 256;
/// Idle time after which a tile's decoder is freed.
const FORGOTTEN: Nanos = 3_000_000_000;
/// Weight of a picture in the moving average of the viewport share that tiles cover.
const RECENT: f64 = 1.0 / 30.0;

/// A decoded tile.
#[derive(Debug)]
pub(crate) struct Part {
    pub tile: usize,
    pub picture: Picture,
}

#[derive(Debug, Default)]
struct Tile {
    chunks: BTreeMap<(u64, u64), Chunk>,
    /// Group and ID of the last decoded frame.
    last: Option<(u64, u64)>,
    /// None while a thread uses it.
    decoder: Option<SphereDecoder>,
    pictures: VecDeque<(Nanos, Picture)>,
    /// Newest decoded timestamp.
    newest: Nanos,
}

/// A tile frame to decode.
#[derive(Debug)]
pub(crate) struct TileJob {
    pub tile: usize,
    pub chunk: Chunk,
    pub decoder: SphereDecoder,
    pub into: Picture,
    /// Size in pixels, both eyes included.
    pub size: (usize, usize),
}

/// Next step of a tile decoder thread.
pub(crate) enum NextTile {
    Decode(Box<TileJob>),
    /// Wait this long or until woken.
    Wait(Nanos),
    /// Wait until woken.
    Idle,
}

/// Tile state shared between threads.
#[derive(Debug)]
pub(crate) struct Mosaic {
    grid: Grid,
    /// Prefer the platform's video decoder.
    pub platform_video: bool,
    tiles: BTreeMap<usize, Tile>,
    bytes: usize,
    free: Vec<Picture>,
    /// Viewport share of each tile.
    view: Vec<f64>,
    /// Moving average of the viewport share that tiles cover; while paused, the current share.
    pub hits: f64,
    /// Tiles of the paused picture.
    still: Option<Vec<usize>>,
    pub damaged: u64,
}

impl Mosaic {
    pub fn new(grid: Grid, platform_video: bool) -> Self {
        Mosaic {
            grid,
            platform_video,
            tiles: BTreeMap::new(),
            bytes: 0,
            free: Vec::new(),
            view: Vec::new(),
            hits: 0.0,
            still: None,
            damaged: 0,
        }
    }

    /// Discards everything: playback jumped on the timeline.
    pub fn jump(&mut self) {
        for t in self.tiles.values_mut() {
            t.chunks.clear();
            t.last = None;
            self.free.extend(t.pictures.drain(..).map(|p| p.1));
        }
        self.bytes = 0;
        self.free.truncate(MAX_FREE);
    }

    /// Sets the viewport share of each tile.
    pub fn look(&mut self, view: Vec<f64>) {
        self.view = view;
        if let Some(tiles) = &self.still {
            self.hits = self.share(tiles.iter().copied());
        }
    }

    /// Viewport share of a set of tiles.
    fn share(&self, tiles: impl Iterator<Item = usize>) -> f64 {
        tiles.filter_map(|n| self.view.get(n)).fold(0.0, |sum, share| sum + share)
    }

    /// Takes a tile frame, in any order.
    pub fn add(&mut self, tile: usize, chunk: Chunk) {
        let t = self
            .tiles
            .entry(tile)
            .or_insert_with(|| Tile { decoder: Some(SphereDecoder::new(self.platform_video)), ..Tile::default() });
        let key = (chunk.group, chunk.id);
        if t.last.is_some_and(|l| key <= l)
            || t.chunks.contains_key(&key)
            || self.bytes + chunk.payload.len() > MAX_BYTES
        {
            return;
        }
        self.bytes += chunk.payload.len();
        t.chunks.insert(key, chunk);
    }

    /// The decodable frame that is due first.
    pub fn next(&mut self, due: Due, at: Nanos, eyes: usize) -> NextTile {
        let (mut wait, mut best) = (Nanos::MAX, None);
        for (n, t) in self.tiles.iter_mut().filter(|(_, t)| t.decoder.is_some()) {
            // Once a group's first frame is due, earlier groups are skipped.
            let begun = t.chunks.values().rev().find(|c| c.id == 0 && c.timestamp <= at).map(|c| (c.group, 0));
            while let Some((key, c)) = t.chunks.first_key_value() {
                let ready = c.timestamp - at;
                let follows = key.1 == 0 || t.last == Some((key.0, key.1 - 1));
                let over = begun.is_some_and(|b| *key < b);
                if !over && ready > AHEAD {
                    wait = wait.min(ready - AHEAD);
                    break;
                }
                if !over && follows {
                    if best.is_none_or(|(_, timestamp)| c.timestamp < timestamp) {
                        best = Some((*n, c.timestamp));
                    }
                    break;
                }
                if !over && ready > CLOSING && due.still.is_none() {
                    wait = wait.min(ready - CLOSING);
                    break;
                }
                self.bytes -= c.payload.len();
                t.chunks.pop_first();
            }
        }
        let job = best.and_then(|(n, _)| {
            let t = self.tiles.get_mut(&n)?;
            let (key, chunk) = t.chunks.pop_first()?;
            self.bytes -= chunk.payload.len();
            t.last = Some(key);
            let [_, _, w, h] = self.grid.rect(n);
            let into = self.free.pop().unwrap_or_default();
            Some(Box::new(TileJob { tile: n, chunk, decoder: t.decoder.take()?, into, size: (w, h * eyes) }))
        });
        match (job, due.still) {
            (Some(job), _) => NextTile::Decode(job),
            (None, None) if wait < Nanos::MAX => NextTile::Wait(wait.max(1_000_000)),
            _ => NextTile::Idle,
        }
    }

    /// Takes back a decoding job.
    pub fn ready(&mut self, job: TileJob, decoded: bool) {
        let Some(t) = self.tiles.get_mut(&job.tile) else { return };
        t.decoder = Some(job.decoder);
        t.newest = job.chunk.timestamp;
        if !decoded {
            t.last = None;
            self.damaged += 1;
            return self.keep(job.into);
        }
        t.pictures.push_back((job.chunk.timestamp, job.into));
        let over = if t.pictures.len() > MAX_PICTURES { t.pictures.pop_front() } else { None };
        if let Some((_, p)) = over {
            self.keep(p);
        }
    }

    fn keep(&mut self, p: Picture) {
        if self.free.len() < MAX_FREE {
            self.free.push(p);
        }
    }

    /// True if a tile picture with this timestamp is waiting.
    pub fn has(&self, timestamp: Nanos) -> bool {
        self.tiles.values().any(|t| t.pictures.iter().any(|p| p.0 == timestamp))
    }

    /// Adds the tile pictures of a timestamp to `parts`; drops earlier ones.
    pub fn take(&mut self, timestamp: Nanos, parts: &mut Vec<Part>) {
        for (n, t) in &mut self.tiles {
            while let Some((at, _)) = t.pictures.front().filter(|p| p.0 <= timestamp) {
                let same = *at == timestamp;
                let Some((_, picture)) = t.pictures.pop_front() else { break };
                if same {
                    parts.push(Part { tile: *n, picture });
                } else if self.free.len() < MAX_FREE {
                    self.free.push(picture);
                }
            }
        }
        let used = |t: &Tile| t.decoder.is_none() || !t.chunks.is_empty() || (timestamp - t.newest).abs() < FORGOTTEN;
        self.tiles.retain(|_, t| used(t));
    }

    /// Records the viewport share that the tiles of a picture cover. still: the picture is paused.
    pub fn count(&mut self, parts: &[Part], still: bool) {
        let hits = self.share(parts.iter().map(|p| p.tile));
        self.still = still.then(|| parts.iter().map(|p| p.tile).collect());
        if still || !self.view.is_empty() {
            self.hits += if still { 1.0 } else { RECENT } * (hits - self.hits);
        }
    }

    /// Recycles the parts of a picture.
    pub fn give_back(&mut self, parts: Vec<Part>) {
        parts.into_iter().for_each(|p| self.keep(p.picture));
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        let pictures = self.tiles.values().flat_map(|t| &t.pictures).map(|p| &p.1);
        self.bytes + pictures.chain(&self.free).map(Picture::bytes).sum::<usize>()
    }
}

/// Source position of sample i of n when a line of `of` samples is resized: the two neighbouring
/// source samples, and the second one's weight in 1/256. If `around` is set, the line wraps.
fn between(i: usize, n: usize, of: usize, around: bool) -> (usize, usize, u32) {
    let at = ((2 * i + 1) * of) as f64 / (2 * n) as f64 - 0.5;
    let (floor, f) = (at.floor(), ((at - at.floor()) * 256.0) as u32);
    let place = |v: f64| match around {
        true => v.rem_euclid(of as f64) as usize,
        false => v.clamp(0.0, (of - 1) as f64) as usize,
    };
    (place(floor), place(floor + 1.0), f)
}

/// Composes a picture of the sphere: the base enlarged, overlaid with the tiles.
pub(crate) fn compose(sphere: &Sphere, low: &Picture, parts: &[Part], into: &mut Picture) {
    let Some(grid) = sphere.grid() else { return };
    let eyes = sphere.eyes();
    (into.width, into.height) = (grid.width, grid.height * eyes);
    let mut there = vec![None; grid.tiles()];
    for p in parts {
        there[p.tile] = Some(&p.picture);
    }
    for plane in 0..3 {
        let half = |v: usize| if plane == 0 { v } else { v / 2 };
        let (w, h) = (half(grid.width), half(grid.height));
        let (from_w, from_h) = if plane == 0 {
            (low.width, low.height / eyes)
        } else {
            (low.width.div_ceil(2), low.height.div_ceil(2) / eyes)
        };
        let columns: Vec<_> = (0..w).map(|x| between(x, w, from_w, true)).collect();
        let out = &mut into.planes[plane];
        out.resize(w * h * eyes, 0);
        for eye in 0..eyes {
            for row in 0..grid.rows {
                let [_, top, _, height] = grid.rect(row * grid.columns).map(half);
                for y in top..top + height {
                    let (above, below, fy) = between(y, h, from_h, false);
                    let line = |v: usize| &low.planes[plane][(eye * from_h + v) * from_w..][..from_w];
                    let (above, below) = (line(above), line(below));
                    let to = &mut out[(eye * h + y) * w..][..w];
                    for c in 0..grid.columns {
                        let tile = row * grid.columns + c;
                        let [x, _, width, _] = grid.rect(tile).map(half);
                        if let Some(p) = there[tile] {
                            to[x..x + width]
                                .copy_from_slice(&p.planes[plane][(eye * height + y - top) * width..][..width]);
                            continue;
                        }
                        for (v, (l, r, fx)) in to[x..x + width].iter_mut().zip(&columns[x..x + width]) {
                            let mix = |line: &[u8]| u32::from(line[*l]) * (256 - fx) + u32::from(line[*r]) * fx;
                            *v = ((mix(above) * (256 - fy) + mix(below) * fy + (1 << 15)) >> 16) as u8;
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const MS: Nanos = 1_000_000;
    const FRAME: Nanos = 40 * MS;

    fn sphere(stereo: &str) -> Arc<Sphere> {
        let text = format!(
            r#"{{"version":"draft-01","tracks":[{{"name":"video","packaging":"loc","codec":"avc1.42c01e","width":16,
              "height":{},
            "hcsphere":{{"projection":"equirectangular","stereo":"{stereo}","width":64,"height":32,"columns":4,
              "rows":2,"qualities":1}}}}]}}"#,
            if stereo == "mono" { 8 } else { 16 }
        );
        let catalog = crate::catalog::CatalogReader::default().add(0, 0, text.into_bytes(), 0);
        Arc::new(catalog.unwrap_or_default().unwrap_or_default().sphere.unwrap_or_else(|| panic!("no sphere")))
    }

    fn picture(width: usize, height: usize, f: impl Fn(usize, usize) -> u8) -> Picture {
        let plane = |w: usize, h: usize| (0..w * h).map(|i| f(i % w, i / w)).collect();
        Picture {
            width,
            height,
            planes: [plane(width, height), plane(width / 2, height / 2), plane(width / 2, height / 2)],
        }
    }

    #[test]
    fn composes_tiles_over_the_base() {
        for stereo in ["mono", "top-bottom"] {
            let s = sphere(stereo);
            let eyes = s.eyes();
            // Left eye: base 100, tiles 200. Right eye: base 50, tiles 150.
            let of_eyes = |height, left, right| {
                let p = picture(16, height * eyes, |_, _| left);
                let planes =
                    [0, 1, 2].map(|i| if eyes == 1 { p.planes[i].clone() } else { halves(&p.planes[i], left, right) });
                Picture { planes, ..p }
            };
            let low = of_eyes(8, 100, 50);
            let part = |tile| Part { tile, picture: of_eyes(16, 200, 150) };
            let mut out = Picture::default();
            compose(&s, &low, &[part(1), part(6)], &mut out);
            assert_eq!((out.width, out.height), (64, 32 * eyes));
            for plane in 0..3 {
                let (w, h) = if plane == 0 { (64, 32) } else { (32, 16) };
                for eye in 0..eyes {
                    for y in 0..h {
                        for x in 0..w {
                            let tile = y / (h / 2) * 4 + x / (w / 4);
                            let there = tile == 1 || tile == 6;
                            let want = if there { 200 } else { 100 } - 50 * eye as u8;
                            assert_eq!(
                                out.planes[plane][(eye * h + y) * w + x],
                                want,
                                "{stereo}: plane {plane}, eye {eye}, {x}, {y}"
                            );
                        }
                    }
                }
            }
        }
    }

    fn halves(of: &[u8], above: u8, below: u8) -> Vec<u8> {
        (0..of.len()).map(|i| if i < of.len() / 2 { above } else { below }).collect()
    }

    #[test]
    fn base_wraps_when_enlarged() {
        let s = sphere("mono");
        let low = picture(16, 8, |x, _| (16 * x) as u8);
        let mut out = Picture::default();
        compose(&s, &low, &[], &mut out);
        let row = &out.planes[0][..64];
        // Between samples 0 and 16, pixels 2 and 3 lie at 1/8 and 3/8; the first pixel is between
        // 240 and 0.
        assert_eq!((row[2], row[3], row[32], row[0]), (2, 6, 122, 90));
    }

    fn chunk(group: u64, id: u64) -> Chunk {
        let timestamp = (25 * group as Nanos + id as Nanos) * FRAME;
        Chunk { group, id, timestamp, config: None, payload: vec![0; 10], arrived: 0, replayed: false }
    }

    /// Decodes everything decodable at the given timestamp.
    fn decode(m: &mut Mosaic, at: Nanos) -> Vec<(usize, u64, u64)> {
        let mut list = Vec::new();
        while let NextTile::Decode(job) = m.next(Due { shift: 0, still: None }, at, 1) {
            list.push((job.tile, job.chunk.group, job.chunk.id));
            m.ready(*job, true);
        }
        list
    }

    fn take(m: &mut Mosaic, timestamp: Nanos) -> Vec<Part> {
        let mut parts = Vec::new();
        m.take(timestamp, &mut parts);
        parts
    }

    fn mosaic() -> Mosaic {
        Mosaic::new(Grid { columns: 4, rows: 2, width: 64, height: 32 }, false)
    }

    #[test]
    fn tiles_are_decoded_in_order() {
        let mut m = mosaic();
        m.look(vec![0.0, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0]);
        for id in [2, 0, 1] {
            m.add(1, chunk(0, id));
        }
        m.add(2, chunk(0, 1)); // the group's first frame is missing
        assert_eq!(decode(&mut m, 0), [(1, 0, 0), (1, 0, 1), (1, 0, 2)]);
        assert!(m.has(0) && !m.has(3 * FRAME));
        let parts = take(&mut m, 0);
        assert_eq!(parts.iter().map(|p| p.tile).collect::<Vec<_>>(), [1]);
        m.count(&parts, false);
        assert!((m.hits - 0.5 * RECENT).abs() < 1e-9);
        m.count(&parts, true);
        assert!((m.hits - 0.5).abs() < 1e-9);
        // The picture is paused while the viewport turns.
        m.look(vec![0.0, 0.75, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!((m.hits - 0.75).abs() < 1e-9);
        m.count(&parts, false);
        let before = m.hits;
        m.look(vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!((m.hits - before).abs() < 1e-9);
        assert_eq!(take(&mut m, 2 * FRAME).len(), 1);
        assert!(take(&mut m, 3 * FRAME).is_empty());
        m.add(2, chunk(1, 0));
        assert_eq!(decode(&mut m, 25 * FRAME), [(2, 1, 0)]);
    }

    #[test]
    fn damaged_tile_waits_for_the_next_group() {
        let mut m = mosaic();
        (0..3).for_each(|id| m.add(1, chunk(0, id)));
        let NextTile::Decode(job) = m.next(Due { shift: 0, still: None }, 0, 1) else { panic!("nothing to decode") };
        m.ready(*job, false);
        assert_eq!(decode(&mut m, 2 * FRAME), []);
        m.add(1, chunk(1, 0));
        assert_eq!(decode(&mut m, 25 * FRAME), [(1, 1, 0)]);
    }

    #[test]
    fn idle_decoder_is_freed() {
        let mut m = mosaic();
        m.add(1, chunk(0, 0));
        assert_eq!(decode(&mut m, 0), [(1, 0, 0)]);
        assert_eq!((take(&mut m, FRAME).len(), m.tiles.len()), (0, 1));
        assert_eq!((take(&mut m, FORGOTTEN).len(), m.tiles.len()), (0, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut m = mosaic();
        for id in 0..100 {
            m.add(1, Chunk { payload: vec![0; 1 << 20], ..chunk(9, id) });
        }
        assert!(m.held() <= MAX_BYTES);
    }
}
