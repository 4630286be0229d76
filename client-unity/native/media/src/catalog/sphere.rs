//! 360° video in a catalog (docs/spec/tiles.md).

use std::collections::HashMap;

use base64::Engine;
use serde_json::Value;
use video::Matrix;

use super::{object, timeline, wrong, Fields, Parsed, Timeline};

const MAX_TILES: u64 = 256;
const MAX_QUALITIES: u64 = 8;
const MAX_SIZE: u64 = 16384;
const MIN_TILE: u64 = 16;
/// Maximum pixels of a picture of the whole sphere.
const MAX_PIXELS: u64 = 4096 * 4096;
/// Defaults: GoP duration and target latency, ms.
const GOP: f64 = 1000.0;
const LATENCY: f64 = 1000.0;

/// The low-resolution base of a 360° video.
#[derive(Debug, Clone, PartialEq)]
pub struct Sphere {
    /// Name of its track.
    pub name: String,
    /// Codec string as in WebCodecs.
    pub codec: String,
    /// avcC configuration; None if each group carries it.
    pub config: Option<Vec<u8>>,
    /// Width of its pictures in pixels, both eyes included.
    pub width: u32,
    /// Height of its pictures in pixels, both eyes included.
    pub height: u32,
    /// Stereoscopic: left eye above right eye.
    pub stereo: bool,
    /// Yaw, pitch and roll of the sphere, degrees.
    pub turned: [f64; 3],
    /// None: as signalled in the stream.
    pub matrix: Option<Matrix>,
    /// None: as signalled in the stream.
    pub full_range: Option<bool>,
    /// Frames per second.
    pub framerate: f64,
    /// GoP duration, ms.
    pub gop: f64,
    /// Target latency from capture to display, ms.
    pub latency: f64,
    /// Length of a recorded track, ms; 0 = live or unknown.
    pub duration: f64,
    /// Media time of its groups, if linear.
    pub timeline: Option<Timeline>,
    grid: Grid,
}

/// Tile layout of the sphere.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Grid {
    columns: u64,
    rows: u64,
    qualities: u64,
    width: u64,
    height: u64,
}

impl Grid {
    /// Start of tile i of n along `size` pixels: the even number nearest to i·size/n.
    fn edge(i: u64, n: u64, size: u64) -> u64 {
        2 * ((i * size + n) / (2 * n))
    }

    /// x, y, width and height of a tile.
    fn rect(&self, tile: u64) -> [u64; 4] {
        let (c, r) = (tile % self.columns, tile / self.columns);
        let (x, y) = (Self::edge(c, self.columns, self.width), Self::edge(r, self.rows, self.height));
        [x, y, Self::edge(c + 1, self.columns, self.width) - x, Self::edge(r + 1, self.rows, self.height) - y]
    }
}

impl Sphere {
    /// The tile grid; None if there are no tiles.
    pub fn grid(&self) -> Option<tile360::Grid> {
        let g = &self.grid;
        let side = |v: u64| v as usize;
        (g.columns > 0).then(|| tile360::Grid {
            columns: side(g.columns),
            rows: side(g.rows),
            width: side(g.width),
            height: side(g.height),
        })
    }

    /// Qualities per tile.
    pub fn qualities(&self) -> usize {
        self.grid.qualities as usize
    }

    /// Number of eyes, stacked vertically in the picture.
    pub fn eyes(&self) -> usize {
        1 + usize::from(self.stereo)
    }
}

/// One tile at one quality.
#[derive(Debug, Clone, PartialEq)]
pub struct TileTrack {
    /// Name of its track.
    pub name: String,
    /// Tile index, row by row from the top left.
    pub tile: usize,
    /// Quality index; 0 is the lowest.
    pub quality: usize,
    /// Maximum bits per second; 0 = unknown.
    pub bitrate: f64,
}

/// Size and distortion of a GoP's tiles.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// Size at [tile·qualities + quality]; 0 = not encoded.
    pub bytes: Vec<f64>,
    /// Distortion, indexed like bytes.
    pub distortion: Vec<f64>,
    /// Per tile, the distortion if only the base is shown.
    pub missing: Vec<f64>,
}

/// Parses a record of a GoP's rates and distortions; None if invalid.
pub(crate) fn rates(payload: &[u8], tiles: usize, qualities: usize) -> Option<Rates> {
    let v: Value = serde_json::from_slice(payload).ok()?;
    let data = v.get(0)?.get("data")?;
    let list = |v: &Value, n: usize| v.as_array().filter(|l| l.len() == n).cloned();
    let number = |v: &Value| v.as_f64().filter(|n| *n >= 0.0);
    let figures = |field, missing: f64| {
        let mut all = Vec::new();
        for of in list(data.get(field)?, tiles)? {
            for v in list(&of, qualities)? {
                all.push(if v.is_null() { missing } else { number(&v)? });
            }
        }
        Some(all)
    };
    let missing = list(data.get("missing")?, tiles)?.iter().map(number).collect::<Option<_>>()?;
    Some(Rates { bytes: figures("bytes", 0.0)?, distortion: figures("mse", f64::INFINITY)?, missing })
}

/// Parses a track with `hcsphere`.
pub(super) fn sphere(f: &Fields<'_, '_>, inits: &HashMap<&str, &str>) -> Parsed<Sphere> {
    let path = f.at("hcsphere");
    let s = Fields { o: object(f.get("hcsphere").unwrap_or(&Value::Null), &path)?, path: &path };
    if s.text("projection")? != Some("equirectangular") {
        return wrong(&s.at("projection"), "not equirectangular");
    }
    let stereo = match s.text("stereo")? {
        Some("mono") => false,
        Some("top-bottom") => true,
        _ => return wrong(&s.at("stereo"), "none of mono, top-bottom"),
    };
    let even = |field| match s.integer(field, None, 2, MAX_SIZE)? {
        n if n % 2 == 0 => Ok(n),
        _ => wrong(&s.at(field), "not even"),
    };
    let grid = Grid {
        columns: s.integer("columns", Some(0), 0, MAX_TILES)?,
        rows: s.integer("rows", Some(0), 0, MAX_TILES)?,
        qualities: s.integer("qualities", Some(0), 0, MAX_QUALITIES)?,
        width: even("width")?,
        height: even("height")?,
    };
    if grid.columns + grid.rows + grid.qualities > 0 {
        if grid.columns * grid.rows == 0 || grid.columns * grid.rows > MAX_TILES {
            return wrong(&s.at("columns"), format!("a grid of {}×{} tiles", grid.columns, grid.rows));
        }
        if grid.width / grid.columns < MIN_TILE || grid.height / grid.rows < MIN_TILE {
            return wrong(&s.at("columns"), "tiles are too small");
        }
        if grid.qualities == 0 {
            return wrong(&s.at("qualities"), "none");
        }
    }
    let degrees = |field| s.number(field, Some(0.0), -360.0, 360.0);
    let (matrix, full_range) = color(&s)?;
    let name = f.text("name")?.unwrap_or_default().to_owned();
    if name.is_empty() || name.len() > 4096 {
        return wrong(&f.at("name"), "missing or too long");
    }
    let (width, height) = (f.integer("width", None, 2, MAX_SIZE)?, f.integer("height", None, 2, 2 * MAX_SIZE)?);
    if width * height > MAX_PIXELS {
        return wrong(&f.at("width"), format!("pictures of {width}×{height}"));
    }
    // Missing or non-positive values get the default.
    let figure = |field, or| match f.get(field).and_then(Value::as_f64) {
        Some(v) if v > 0.0 => v.min(60_000.0),
        _ => or,
    };
    Ok(Sphere {
        name,
        codec: f.text("codec")?.unwrap_or_default().to_owned(),
        config: config(f, inits)?,
        width: width as u32,
        height: height as u32,
        stereo,
        turned: [degrees("yaw")?, degrees("pitch")?, degrees("roll")?],
        matrix,
        full_range,
        framerate: figure("framerate", 30.0),
        gop: figure("maxGopDuration", GOP),
        latency: figure("targetLatency", LATENCY),
        duration: f.number("trackDuration", Some(0.0), 0.0, 1e15)?,
        timeline: timeline(f.get("template"), &f.at("template"))?,
        grid,
    })
}

/// Parses a tile's track, and rejects one that is inconsistent with its sphere.
pub(super) fn tile(f: &Fields<'_, '_>, sphere: Option<&Sphere>) -> Parsed<TileTrack> {
    let path = f.at("hctile");
    let Some(v) = f.get("hctile") else { return wrong(&path, "missing, but the role is “tile”") };
    let Some(sphere) = sphere else { return wrong(&path, "no track has hcsphere") };
    let (t, g) = (Fields { o: object(v, &path)?, path: &path }, &sphere.grid);
    let tile = t.integer("tile", Some(0), 0, MAX_TILES)?;
    if tile >= g.columns * g.rows {
        return wrong(&t.at("tile"), format!("{tile} of {}", g.columns * g.rows));
    }
    let quality = t.integer("quality", Some(0), 0, MAX_QUALITIES)?;
    if quality >= g.qualities {
        return wrong(&t.at("quality"), format!("{quality} of {}", g.qualities));
    }
    let rect = g.rect(tile);
    for (field, want) in ["x", "y", "width", "height"].into_iter().zip(rect) {
        if t.integer(field, Some(0), 0, MAX_SIZE)? != want {
            return wrong(&t.at(field), format!("differs from that of tile {tile}"));
        }
    }
    let eyes = if sphere.stereo { 2 } else { 1 };
    if f.integer("width", None, 1, MAX_SIZE)? != rect[2]
        || f.integer("height", None, 1, 2 * MAX_SIZE)? != rect[3] * eyes
    {
        return wrong(&f.at("width"), "differs from the tile's rectangle");
    }
    let name = f.text("name")?.unwrap_or_default().to_owned();
    if name.len() > 4096 {
        return wrong(&f.at("name"), "too long");
    }
    let bitrate = f.get("bitrate").and_then(Value::as_f64).unwrap_or(0.0);
    Ok(TileTrack { name, tile: tile as usize, quality: quality as usize, bitrate })
}

/// Color matrix, and whether samples use the full range.
fn color(s: &Fields<'_, '_>) -> Parsed<(Option<Matrix>, Option<bool>)> {
    let path = s.at("color");
    let Some(v) = s.get("color") else { return Ok((None, None)) };
    let c = Fields { o: object(v, &path)?, path: &path };
    let known = |field, names: [&str; 3]| match c.text(field)? {
        Some(n) if !names.contains(&n) => wrong(&c.at(field), "not known"),
        n => Ok(n),
    };
    known("primaries", ["bt709", "bt470bg", "smpte170m"])?;
    known("transfer", ["bt709", "smpte170m", "iec61966-2-1"])?;
    let matrix = match known("matrix", ["bt709", "bt470bg", "smpte170m"])? {
        Some("bt709") => Some(Matrix::Bt709),
        Some(_) => Some(Matrix::Bt601),
        None => None,
    };
    match c.get("fullRange") {
        None => Ok((matrix, Some(false))),
        Some(Value::Bool(b)) => Ok((matrix, Some(*b))),
        Some(_) => wrong(&c.at("fullRange"), "neither true nor false"),
    }
}

/// Inline initialization data of a track.
pub(super) fn config(f: &Fields<'_, '_>, inits: &HashMap<&str, &str>) -> Parsed<Option<Vec<u8>>> {
    let Some(data) = f.text("initRef")?.and_then(|r| inits.get(r)) else { return Ok(None) };
    match base64::engine::general_purpose::STANDARD.decode(data) {
        Ok(b) => Ok(Some(b)),
        Err(_) => wrong(&f.at("initRef"), "not base64"),
    }
}

#[cfg(test)]
mod tests {
    use crate::catalog::{Catalog, CatalogReader};
    use video::Matrix;

    const SPHERE: &str = r#"{"projection":"equirectangular","stereo":"mono","width":640,"height":320,"columns":4,
      "rows":2,"qualities":3,
        "color":{"primaries":"bt709","transfer":"bt709","matrix":"smpte170m"}}"#;
    const TILE: &str = r#"{"tile":5,"quality":2,"x":160,"y":160,"width":160,"height":160}"#;

    fn read(video: &str, tile: &str) -> Result<Catalog, String> {
        let text = format!(
            r#"{{"version":"draft-01","initDataList":[{{"id":"avc-0","type":"inline","data":"AQID"}}],"tracks":[
            {{"name":"video","packaging":"loc","role":"video","initRef":"avc-0","codec":"avc1.42c01e","width":480,
              "height":240,"framerate":25,
              "targetLatency":700,"hcsphere":{video}}},
            {{"name":"tiles/5/2","packaging":"loc","role":"tile","width":160,"height":160,"hctile":{tile}}}]}}"#
        );
        let catalog = CatalogReader::default().add(0, 0, text.into_bytes(), 0);
        catalog.map(Option::unwrap_or_default).map_err(|e| e.to_string())
    }

    #[test]
    fn parses_a_sphere() {
        let Ok(Catalog { sphere: Some(s), .. }) = read(SPHERE, TILE) else { panic!("no sphere") };
        assert_eq!((s.name.as_str(), s.width, s.height, s.stereo), ("video", 480, 240, false));
        assert_eq!((s.framerate, s.gop, s.latency), (25.0, 1000.0, 700.0));
        assert_eq!((s.matrix, s.full_range, s.config), (Some(Matrix::Bt601), Some(false), Some(vec![1, 2, 3])));
    }

    #[test]
    fn rejects_invalid_spheres() {
        let cases = [
            (SPHERE.replace("equirectangular", "cubemap"), TILE.to_owned(), "hcsphere.projection: not equirectangular"),
            (SPHERE.replace("mono", "left-right"), TILE.to_owned(), "hcsphere.stereo: none of mono, top-bottom"),
            (SPHERE.replace("640", "641"), TILE.to_owned(), "hcsphere.width: not even"),
            (
                SPHERE.replace("\"columns\":4", "\"columns\":200"),
                TILE.to_owned(),
                "hcsphere.columns: a grid of 200×2 tiles",
            ),
            (
                SPHERE.replace("\"columns\":4", "\"columns\":64"),
                TILE.to_owned(),
                "hcsphere.columns: tiles are too small",
            ),
            (SPHERE.replace("\"qualities\":3", "\"qualities\":0"), TILE.to_owned(), "hcsphere.qualities: none"),
            (SPHERE.replace("smpte170m", "bt2020"), TILE.to_owned(), "hcsphere.color.matrix: not known"),
            (SPHERE.to_owned(), TILE.replace("\"tile\":5", "\"tile\":8"), "hctile.tile: 8 of 8"),
            (SPHERE.to_owned(), TILE.replace("\"quality\":2", "\"quality\":3"), "hctile.quality: 3 of 3"),
            (SPHERE.to_owned(), TILE.replace("\"x\":160", "\"x\":162"), "hctile.x: differs from that of tile 5"),
            ("null".to_owned(), TILE.to_owned(), "hcsphere: not an object"),
        ];
        for (video, tile, why) in cases {
            let e = read(&video, &tile).err().unwrap_or_default();
            assert!(e.ends_with(why), "{e:?} does not end with {why:?}");
        }
    }
}
