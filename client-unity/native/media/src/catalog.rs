//! The MSF catalog (draft-ietf-moq-msf) of a session with Holocast's packaging "hcpf", as
//! internal/catalog writes it. Ignores unknown fields (MSF §5) and validates the ones it uses.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use base64::Engine;
use cloud::{Layout, Lens, Transform};
use serde_json::{Map, Value};

mod sound;
mod sphere;

pub use sound::{SoundTrack, FILM};
pub(crate) use sphere::rates;
pub use sphere::{Rates, Sphere, TileTrack};

/// Maximum size of a catalog object after decompression, bytes.
pub const MAX_SIZE: usize = 1 << 20;
/// Name of the pose track.
pub const POSE_TRACK: &str = "pose";
const POSE_EVENT: &str = "dev.holocast.pose/v1";
const RATES_EVENT: &str = "dev.holocast.tiles.rd/v1";
const MAX_TRACKS: usize = 4096;
const MAX_POINTS: u64 = 4096 * 3072;
const MAX_SIDE: u64 = 4096;
const MAX_CAMERAS: usize = 64;
const MAX_SOUNDS: usize = 64;

/// A catalog error, located by its JSON path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("catalog: {path}: {detail}")]
pub struct CatalogError {
    path: String,
    detail: String,
}

type Parsed<T> = Result<T, CatalogError>;

fn wrong<T>(path: &str, detail: impl Into<String>) -> Parsed<T> {
    Err(CatalogError { path: path.into(), detail: detail.into() })
}

/// One camera at one quality.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// Name of the track.
    pub name: String,
    /// Camera number in the session, as in the frame header.
    pub camera: u16,
    /// Display name.
    pub camera_name: String,
    /// Quality: the last component of the track's name.
    pub quality: String,
    /// Layout of its frames.
    pub layout: Layout,
    /// Subgroups per frame: 1 or 4.
    pub descriptions: u8,
    /// Width of the grid in pixels; 0 in layouts B and C.
    pub width: u16,
    /// Height of the grid in pixels; 0 in layouts B and C.
    pub height: u16,
    /// Maximum points per frame.
    pub max_points: u32,
    /// Milliseconds; 0 = none.
    pub delivery_timeout_ms: u32,
    /// Frames are delivered in datagrams (docs/spec/frames-in-datagrams.md).
    pub datagrams: bool,
    /// Frames per second; 0 = unknown.
    pub framerate: f64,
    /// Maximum bits per second; 0 = unknown.
    pub bitrate: u64,
    /// Mean squared error of a rendered picture against the best quality; None: unknown.
    pub error: Option<f64>,
    /// Root mean square error that coding with loss adds to depth, mm; None: unknown.
    pub depth_error: Option<f64>,
    /// Intrinsics of the grid.
    pub lens: Lens,
    /// Camera to studio transform, millimetres.
    pub pose: Transform,
    /// Minimum and maximum depth, millimetres.
    pub depth: [u16; 2],
    /// Length of a recorded track, ms; 0 = live or unknown.
    pub duration: f64,
    /// Media time of its groups, if linear.
    pub timeline: Option<Timeline>,
}

impl Track {
    /// Maximum size of an object of the track, bytes: the format's maximum for incompressible data.
    pub fn max_object(&self) -> usize {
        4096 + usize::from(self.width) * usize::from(self.height) + 20 * self.max_points as usize
    }
}

/// Linear mapping from groups to media time (MSF §7.4.1), ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timeline {
    /// Media time of `group`.
    pub media: f64,
    /// Media time per `group_step` groups.
    pub media_step: f64,
    /// Reference group.
    pub group: f64,
    /// Groups per step.
    pub group_step: f64,
    /// UNIX time of `group`.
    pub wallclock: f64,
}

/// The parts of a session's catalog that a viewer uses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Catalog {
    /// Sorted by camera, then by descending bit rate.
    pub tracks: Vec<Track>,
    /// The broadcast has ended.
    pub complete: bool,
    /// This is the unencrypted part of an encrypted session's catalog.
    pub encrypted: bool,
    /// The session has a pose track.
    pub has_poses: bool,
    /// 360° video (docs/spec/tiles.md).
    pub sphere: Option<Sphere>,
    /// The sphere's tiles that are currently encoded.
    pub tiles: Vec<TileTrack>,
    /// Name of the track with the tiles' rates and distortions.
    pub rates: Option<String>,
    /// Sound tracks (docs/spec/sound.md, docs/spec/tiles.md).
    pub sounds: Vec<SoundTrack>,
}

impl Catalog {
    /// The camera's track of the given quality, or its best track if that quality does not exist.
    pub fn select(&self, camera: u16, quality: Option<&str>) -> Option<&Track> {
        let mut of = self.tracks.iter().filter(|t| t.camera == camera);
        let best = of.clone().next();
        quality.and_then(|q| of.find(|t| t.quality == q)).or(best)
    }

    /// Camera numbers.
    pub fn cameras(&self) -> Vec<u16> {
        let mut list: Vec<_> = self.tracks.iter().map(|t| t.camera).collect();
        list.dedup();
        list
    }
}

fn object<'a>(v: &'a Value, path: &str) -> Parsed<&'a Map<String, Value>> {
    v.as_object().map_or_else(|| wrong(path, "not an object"), Ok)
}

fn array<'a>(v: Option<&'a Value>, path: &str, limit: usize) -> Parsed<&'a [Value]> {
    match v {
        Some(Value::Array(a)) if a.len() <= limit => Ok(a),
        Some(Value::Array(a)) => wrong(path, format!("{} entries, more than {limit}", a.len())),
        Some(_) => wrong(path, "not an array"),
        None => wrong(path, "missing"),
    }
}

/// Fields of the JSON object at a path.
struct Fields<'a, 'p> {
    o: &'a Map<String, Value>,
    path: &'p str,
}

impl<'a> Fields<'a, '_> {
    fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }
    fn get(&self, field: &str) -> Option<&'a Value> {
        self.o.get(field)
    }
    fn text(&self, field: &str) -> Parsed<Option<&'a str>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(_) => wrong(&self.at(field), "not a string"),
        }
    }
    /// A number, or `or` if the field is missing.
    fn number(&self, field: &str, or: Option<f64>, least: f64, most: f64) -> Parsed<f64> {
        match (self.get(field), or) {
            (None, Some(v)) => Ok(v),
            (Some(v), _) => match v.as_f64() {
                Some(n) if (least..=most).contains(&n) => Ok(n),
                _ => wrong(&self.at(field), format!("not a number in {least}…{most}")),
            },
            (None, None) => wrong(&self.at(field), "missing"),
        }
    }
    fn integer(&self, field: &str, or: Option<u64>, least: u64, most: u64) -> Parsed<u64> {
        match (self.get(field), or) {
            (None, Some(v)) => Ok(v),
            (Some(v), _) => {
                match v.as_u64().or_else(|| v.as_f64().filter(|f| f.fract() == 0.0 && *f >= 0.0).map(|f| f as u64)) {
                    Some(n) if (least..=most).contains(&n) => Ok(n),
                    _ => wrong(&self.at(field), format!("not a whole number in {least}…{most}")),
                }
            }
            (None, None) => wrong(&self.at(field), "missing"),
        }
    }
    fn numbers<const N: usize>(&self, field: &str) -> Parsed<[f64; N]> {
        let path = self.at(field);
        let list = array(self.get(field), &path, N)?;
        let mut out = [0.0; N];
        if list.len() != N {
            return wrong(&path, format!("{} numbers, want {N}", list.len()));
        }
        for (o, v) in out.iter_mut().zip(list) {
            match v.as_f64() {
                Some(n) if n.is_finite() => *o = n,
                _ => return wrong(&path, "not a number"),
            }
        }
        Ok(out)
    }
}

fn transform(v: &Value, path: &str) -> Parsed<Transform> {
    let f = Fields { o: object(v, path)?, path };
    let (r, t) = (f.numbers::<9>("r")?, f.numbers::<3>("t")?);
    for i in 0..3 {
        for j in 0..3 {
            let dot: f64 = (0..3).map(|k| r[3 * i + k] * r[3 * j + k]).sum();
            if (dot - f64::from(u8::from(i == j))).abs() > 1e-3 {
                return wrong(path, "not a rotation");
            }
        }
    }
    let det =
        r[0] * (r[4] * r[8] - r[5] * r[7]) - r[1] * (r[3] * r[8] - r[5] * r[6]) + r[2] * (r[3] * r[7] - r[4] * r[6]);
    if det < 0.0 {
        return wrong(path, "the rotation is a reflection");
    }
    Ok(Transform { r, t })
}

fn lens(v: &Value, path: &str) -> Parsed<Lens> {
    let f = Fields { o: object(v, path)?, path };
    let any = |field| f.number(field, None, f64::MIN, f64::MAX);
    let positive = |field| f.number(field, None, f64::MIN_POSITIVE, f64::MAX);
    Ok(Lens {
        width: f.integer("width", None, 1, MAX_SIDE)? as usize,
        height: f.integer("height", None, 1, MAX_SIDE)? as usize,
        f: [positive("fx")?, positive("fy")?],
        c: [any("cx")?, any("cy")?],
        k: f.numbers("k")?,
        p: f.numbers("p")?,
        max_radius: f.number("maxRadius", Some(0.0), 0.0, f64::MAX)?,
    })
}

fn timeline(v: Option<&Value>, path: &str) -> Parsed<Option<Timeline>> {
    if v.is_none() {
        return Ok(None);
    }
    let list = array(v, path, 6)?;
    let number = |v: Option<&Value>| match v.and_then(Value::as_f64) {
        Some(n) if (0.0..=9e15).contains(&n) => Ok(n),
        _ => wrong(path, "not a template"),
    };
    let first = |v: Option<&Value>| number(v.and_then(|v| v.get(0)));
    if list.len() != 6 {
        return wrong(path, format!("{} values, want 6", list.len()));
    }
    let t = Timeline {
        media: number(list.first())?,
        media_step: number(list.get(1))?,
        group: first(list.get(2))?,
        group_step: first(list.get(3))?,
        wallclock: number(list.get(4))?,
    };
    Ok((t.media_step > 0.0 && t.group_step > 0.0).then_some(t))
}

fn points_track(f: &Fields<'_, '_>, inits: &HashMap<&str, &str>) -> Parsed<Track> {
    let path = f.at("hcpf");
    let Some(p) = f.get("hcpf") else { return wrong(&path, "missing") };
    let p = Fields { o: object(p, &path)?, path: &path };
    let layout = match p.text("layout")? {
        Some("A") => Layout::A,
        Some("B") => Layout::B,
        Some("C") => Layout::C,
        Some("W") => Layout::W,
        _ => return wrong(&p.at("layout"), "none of A, B, C, W"),
    };
    let descriptions = p.integer("descriptions", None, 1, 4)? as u8;
    let grid = matches!(layout, Layout::A | Layout::W);
    if layout == Layout::W && descriptions != 1 {
        return wrong(&p.at("descriptions"), "not 1, as layout W has");
    }
    if descriptions != 1 && descriptions != 4 {
        return wrong(&p.at("descriptions"), "neither 1 nor 4");
    }
    let mut t = Track {
        name: f.text("name")?.unwrap_or_default().to_owned(),
        camera: p.integer("camera", None, 0, 65535)? as u16,
        camera_name: p.text("cameraName")?.unwrap_or_default().to_owned(),
        quality: p.text("quality")?.unwrap_or_default().to_owned(),
        layout,
        descriptions,
        width: 0,
        height: 0,
        max_points: p.integer("maxPoints", None, 1, MAX_POINTS)? as u32,
        datagrams: match p.text("delivery")? {
            None | Some("" | "stream") => false,
            Some("datagram") if layout == Layout::W => {
                return wrong(&p.at("delivery"), "datagram, but layout W is delivered on streams")
            }
            Some("datagram") => true,
            Some(_) => return wrong(&p.at("delivery"), "neither stream nor datagram"),
        },
        delivery_timeout_ms: p.integer("deliveryTimeout", Some(0), 0, i32::MAX as u64)? as u32,
        framerate: f.number("framerate", Some(0.0), 0.0, 1e6)?,
        bitrate: f.number("bitrate", Some(0.0), 0.0, 1e15)? as u64,
        error: p.get("error").map(|_| p.number("error", None, 0.0, 65025.0)).transpose()?,
        depth_error: p.get("depthError").map(|_| p.number("depthError", None, 0.0, 65535.0)).transpose()?,
        lens: Lens::default(),
        pose: Transform::IDENTITY,
        depth: [0, 0],
        duration: f.number("trackDuration", Some(0.0), 0.0, 1e15)?,
        timeline: timeline(f.get("template"), &f.at("template"))?,
    };
    if t.name.is_empty() || t.name.len() > 4096 {
        return wrong(&f.at("name"), "missing or too long");
    }
    let reference = f.text("initRef")?.unwrap_or_default();
    if reference.is_empty() && !grid {
        return Ok(t);
    }
    let path = f.at("initRef");
    let Some(data) = inits.get(reference) else { return wrong(&path, "no inline initialization data with this id") };
    let json = base64::engine::general_purpose::STANDARD.decode(data).ok();
    let Some(init) = json.and_then(|b| serde_json::from_slice::<Value>(&b).ok()) else {
        return wrong(&path, "not base64-encoded JSON");
    };
    let init = Fields { o: object(&init, &path)?, path: &path };
    let Some(intrinsics) = init.get("grid") else { return wrong(&init.at("grid"), "missing") };
    t.lens = lens(intrinsics, &init.at("grid"))?;
    let Some(pose) = init.get("pose") else { return wrong(&init.at("pose"), "missing") };
    t.pose = transform(pose, &init.at("pose"))?;
    for (d, field) in t.depth.iter_mut().zip(["depthMin", "depthMax"]) {
        *d = init.integer(field, Some(0), 0, 65535)? as u16;
    }
    if grid {
        (t.width, t.height) = (t.lens.width as u16, t.lens.height as u16);
        if f.integer("width", None, 1, 65535)? != u64::from(t.width)
            || f.integer("height", None, 1, 65535)? != u64::from(t.height)
        {
            return wrong(&f.at("width"), "differs from the grid's intrinsics");
        }
    }
    Ok(t)
}

fn read(doc: &Map<String, Value>) -> Parsed<Catalog> {
    let version = doc.get("version").and_then(Value::as_str);
    if !matches!(version, Some("draft-01" | "1")) {
        return wrong("$.version", "not supported");
    }
    let mut inits = HashMap::new();
    if let list @ Some(_) = doc.get("initDataList") {
        for (i, v) in array(list, "$.initDataList", MAX_TRACKS)?.iter().enumerate() {
            let path = format!("$.initDataList[{i}]");
            let f = Fields { o: object(v, &path)?, path: &path };
            if let (Some("inline"), Some(id), Some(data)) = (f.text("type")?, f.text("id")?, f.text("data")?) {
                inits.insert(id, data);
            }
        }
    }
    let mut cameras: BTreeMap<u16, Vec<Track>> = BTreeMap::new();
    let complete = doc.get("isComplete") == Some(&Value::Bool(true));
    let encrypted = doc.get("hcsealed").is_some_and(|v| !v.is_null());
    let mut c = Catalog { complete, encrypted, ..Catalog::default() };
    if encrypted {
        return Ok(c); // it does not describe the tracks
    }
    for (i, v) in array(doc.get("tracks"), "$.tracks", MAX_TRACKS)?.iter().enumerate() {
        let path = format!("$.tracks[{i}]");
        let f = Fields { o: object(v, &path)?, path: &path };
        let packaging = f.text("packaging")?;
        if packaging == Some("eventtimeline")
            && f.text("eventType")? == Some(POSE_EVENT)
            && f.text("name")? == Some(POSE_TRACK)
        {
            c.has_poses = true;
        }
        if packaging == Some("eventtimeline") && f.text("eventType")? == Some(RATES_EVENT) {
            c.rates = f.text("name")?.map(str::to_owned).filter(|n| n.len() <= 4096);
        }
        // Ignore tracks of other namespaces.
        if !f.text("namespace")?.unwrap_or_default().is_empty() {
            continue;
        }
        if f.get("hcsphere").is_some() {
            if c.sphere.is_some() {
                return wrong(&f.at("hcsphere"), "an earlier track has one too");
            }
            c.sphere = Some(sphere::sphere(&f, &inits)?);
        }
        if packaging == Some("loc") && f.text("role")? == Some("audio") && c.sounds.len() < MAX_SOUNDS {
            c.sounds.extend(sound::sound(&f, &inits, &c.sounds));
        }
        if packaging != Some("hcpf") {
            continue;
        }
        let t = points_track(&f, &inits)?;
        cameras.entry(t.camera).or_default().push(t);
        if cameras.len() > MAX_CAMERAS {
            return wrong("$.tracks", format!("more than {MAX_CAMERAS} cameras"));
        }
    }
    for (i, v) in array(doc.get("tracks"), "$.tracks", MAX_TRACKS)?.iter().enumerate() {
        let path = format!("$.tracks[{i}]");
        let f = Fields { o: object(v, &path)?, path: &path };
        let own = f.text("namespace")?.unwrap_or_default().is_empty();
        if own && (f.text("role")? == Some("tile") || f.get("hctile").is_some()) {
            let t = sphere::tile(&f, c.sphere.as_ref())?;
            c.tiles.push(t);
        }
    }
    for mut tracks in cameras.into_values() {
        tracks.sort_by_key(|t| std::cmp::Reverse(t.bitrate));
        c.tracks.append(&mut tracks);
    }
    Ok(c)
}

fn parse_object(b: &[u8]) -> Parsed<Map<String, Value>> {
    if b.len() > MAX_SIZE {
        return wrong("$", format!("{} bytes, more than {MAX_SIZE}", b.len()));
    }
    match serde_json::from_slice(b) {
        Ok(Value::Object(o)) => Ok(o),
        Ok(_) => wrong("$", "not an object"),
        Err(e) => wrong("$", e.to_string()),
    }
}

/// Applies a delta update (MSF §5.1.6, §5.3).
fn apply(doc: &mut Map<String, Value>, delta: &Map<String, Value>) -> Parsed<()> {
    let operations = array(delta.get("deltaUpdate"), "$.deltaUpdate", MAX_TRACKS)?;
    if operations.is_empty() {
        return wrong("$.deltaUpdate", "empty");
    }
    let Some(generated @ Value::Number(_)) = delta.get("generatedAt") else {
        return wrong("$.generatedAt", "missing or not a number");
    };
    if let Some(field) = ["version", "tracks"].into_iter().find(|f| delta.contains_key(*f)) {
        return wrong(&format!("$.{field}"), "not allowed in a delta update");
    }
    let mut tracks = array(doc.get("tracks"), "$.tracks", MAX_TRACKS)?.to_vec();
    for (i, v) in operations.iter().enumerate() {
        let path = format!("$.deltaUpdate[{i}]");
        let f = Fields { o: object(v, &path)?, path: &path };
        let op = f.text("op")?.unwrap_or_default();
        for (j, t) in array(f.get("tracks"), &f.at("tracks"), MAX_TRACKS)?.iter().enumerate() {
            let path = format!("{path}.tracks[{j}]");
            apply_one(&mut tracks, op, object(t, &path)?, &path)?;
            if tracks.len() > MAX_TRACKS {
                return wrong(&path, format!("more than {MAX_TRACKS} tracks"));
            }
        }
    }
    match delta.get("isComplete") {
        None => {}
        Some(complete @ Value::Bool(_)) => {
            doc.insert("isComplete".into(), complete.clone());
        }
        Some(_) => return wrong("$.isComplete", "neither true nor false"),
    }
    doc.insert("generatedAt".into(), generated.clone());
    doc.insert("tracks".into(), Value::Array(tracks));
    Ok(())
}

/// "update" is of MSF's next version. Its text puts the target in parentName, its example in name: accept either.
fn apply_one(tracks: &mut Vec<Value>, op: &str, t: &Map<String, Value>, path: &str) -> Parsed<()> {
    let f = Fields { o: t, path };
    let by_name = op == "remove" || op == "update" && f.get("parentName").is_none();
    let (name, namespace) = if by_name { ("name", "namespace") } else { ("parentName", "parentNamespace") };
    let (name, namespace) = (f.text(name)?, f.text(namespace)?.unwrap_or_default());
    let text = |v: &Value, field: &str| v.get(field).and_then(Value::as_str).map(str::to_owned);
    let find = |tracks: &[Value], name: Option<&str>, namespace: &str| {
        let same =
            |t: &Value| text(t, "name").as_deref() == name && text(t, "namespace").unwrap_or_default() == namespace;
        tracks.iter().position(same)
    };
    let at = find(tracks, name, namespace);
    let changed = |at: usize| {
        let mut o = tracks[at].as_object().cloned().unwrap_or_default();
        let own = t.iter().filter(|(k, _)| *k != "parentName" && *k != "parentNamespace");
        o.extend(own.map(|(k, v)| (k.clone(), v.clone())));
        Value::Object(o)
    };
    let new = match (op, at) {
        ("add", _) => Value::Object(t.clone()),
        (_, None) => return wrong(path, format!("no track {:?} to {op:.20}", name.unwrap_or_default())),
        ("remove", Some(at)) => {
            tracks.remove(at);
            return Ok(());
        }
        ("update", Some(at)) => {
            tracks[at] = changed(at);
            return Ok(());
        }
        ("clone", Some(at)) if f.text("name")?.is_some_and(|n| !n.is_empty()) => changed(at),
        ("clone", Some(_)) => return wrong(&f.at("name"), "missing; a clone needs a new name"),
        _ => return wrong(path, format!("unknown operation {op:.20?}; want add, remove, clone or update")),
    };
    if find(tracks, text(&new, "name").as_deref(), &text(&new, "namespace").unwrap_or_default()).is_some() {
        return wrong(&f.at("name"), "taken by another track");
    }
    tracks.push(new);
    Ok(())
}

/// Decompresses a payload according to its MSF_COMPRESSION property (MSF §12.1): 0 none, 1 gzip.
fn decompress(payload: Vec<u8>, compression: u64) -> Parsed<Vec<u8>> {
    match compression {
        0 => Ok(payload),
        1 => {
            let mut out = Vec::new();
            let mut z = flate2::read::GzDecoder::new(payload.as_slice()).take(MAX_SIZE as u64 + 1);
            match z.read_to_end(&mut out) {
                Ok(_) if out.len() <= MAX_SIZE => Ok(out),
                Ok(_) => wrong("$", format!("more than {MAX_SIZE} bytes")),
                Err(e) => wrong("$", format!("gzip: {e}")),
            }
        }
        v => wrong("$", format!("MSF_COMPRESSION {v} is not supported")),
    }
}

/// A group this far below the newest belongs to a restarted publisher; nearer ones are late.
const RESTART_GAP: u64 = 1000;
/// Limits of delta updates held until their predecessors arrive: number and bytes.
const MAX_WAITING: usize = 64;

/// Assembles the objects of a catalog track: object 0 of a group is a full catalog, the following
/// are delta updates.
#[derive(Debug, Default)]
pub struct CatalogReader {
    group: Option<u64>,
    next: u64,
    doc: Map<String, Value>,
    waiting: BTreeMap<u64, Vec<u8>>,
}

impl CatalogReader {
    /// Takes an object, in any order. Returns the catalog if it changed.
    pub fn add(&mut self, group: u64, id: u64, payload: Vec<u8>, compression: u64) -> Parsed<Option<Catalog>> {
        if self.group.is_some_and(|g| group < g && g - group < RESTART_GAP) {
            return Ok(None);
        }
        if self.group != Some(group) {
            self.group = Some(group);
            self.next = 0;
            self.waiting.clear();
        }
        if id < self.next || self.waiting.len() >= MAX_WAITING {
            return Ok(None);
        }
        self.waiting.insert(id, decompress(payload, compression)?);
        let mut changed = false;
        while let Some(b) = self.waiting.remove(&self.next) {
            let o = parse_object(&b)?;
            match o.contains_key("deltaUpdate") {
                true if self.next > 0 => apply(&mut self.doc, &o)?,
                true => return wrong("$", "a delta update, not an independent catalog"),
                false => self.doc = o,
            }
            self.next += 1;
            changed = true;
        }
        if changed {
            read(&self.doc).map(Some)
        } else {
            Ok(None)
        }
    }
}

/// Parses an object of the pose track into camera numbers and poses.
pub fn parse_poses(b: &[u8]) -> Parsed<Vec<(u16, Transform)>> {
    let v: Value = match serde_json::from_slice(b) {
        Ok(v) if b.len() <= MAX_SIZE => v,
        Ok(_) => return wrong("poses", "too long"),
        Err(e) => return wrong("poses", e.to_string()),
    };
    let mut out = Vec::new();
    if v.is_null() {
        return Ok(out); // earlier publishers end the track with null
    }
    for (i, v) in array(Some(&v), "poses", MAX_TRACKS)?.iter().enumerate() {
        let path = format!("poses[{i}].data");
        let Some(data) = v.get("data") else { return wrong(&path, "missing") };
        let f = Fields { o: object(data, &path)?, path: &path };
        let Some(pose) = f.get("pose") else { return wrong(&f.at("pose"), "missing") };
        out.push((f.integer("camera", None, 0, 65535)? as u16, transform(pose, &f.at("pose"))?));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn init() -> String {
        let v = json!({
            "grid": {"width": 64, "height": 48, "fx": 60.0, "fy": 60.0, "cx": 31.5, "cy": 23.5, "k": [0,0,0,0,0,0],
              "p": [0,0]},
            "pose": {"r": [1,0,0,0,1,0,0,0,1], "t": [1,2,3]}, "depthMin": 500, "depthMax": 5000,
        });
        base64::engine::general_purpose::STANDARD.encode(v.to_string())
    }

    fn track(camera: u16, quality: &str, bitrate: u64) -> Value {
        json!({"name": format!("points/{camera}/{quality}"), "packaging": "hcpf", "isLive": true, "initRef": "a",
          "width": 64, "height": 48,
            "framerate": 30, "bitrate": bitrate,
            "hcpf": {"camera": camera, "cameraName": "x", "quality": quality, "layout": "A", "descriptions": 1,
              "maxPoints": 3072, "deliveryTimeout": 500}})
    }

    fn doc(tracks: Vec<Value>) -> Value {
        json!({"version": "draft-01", "tracks": tracks, "initDataList": [{"id": "a", "type": "inline",
          "data": init()}]})
    }

    fn parse(v: &Value) -> Parsed<Option<Catalog>> {
        CatalogReader::default().add(1, 0, v.to_string().into_bytes(), 0)
    }

    #[test]
    fn tracks_by_camera_best_first() {
        let c = parse(&doc(vec![track(1, "low", 1), track(0, "full", 9), track(1, "full", 9)])).unwrap().unwrap();
        let names: Vec<_> = c.tracks.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["points/0/full", "points/1/full", "points/1/low"]);
        assert_eq!(c.cameras(), [0, 1]);
        assert_eq!(c.select(1, Some("low")).unwrap().quality, "low");
        assert_eq!(c.select(1, Some("none")).unwrap().quality, "full");
        assert_eq!(c.select(2, None), None);
        assert_eq!(
            (c.tracks[0].lens.f, c.tracks[0].pose.t, c.tracks[0].depth),
            ([60.0; 2], [1.0, 2.0, 3.0], [500, 5000])
        );
        let mut video = track(0, "high", 5);
        video["hcpf"]["layout"] = json!("W");
        let c = parse(&doc(vec![video, track(0, "full", 9)])).unwrap().unwrap();
        let high = c.select(0, Some("high")).unwrap();
        assert_eq!((high.layout, high.width, high.height), (Layout::W, 64, 48));
    }

    #[test]
    fn errors_name_the_json_path() {
        let change = |f: &dyn Fn(&mut Value)| {
            let mut d = doc(vec![track(0, "full", 9)]);
            f(&mut d);
            parse(&d).unwrap_err().to_string()
        };
        for (want, f) in [
            ("catalog: $.version: not supported", &(|d: &mut Value| d["version"] = json!("9")) as &dyn Fn(&mut Value)),
            ("catalog: $.tracks: not an array", &|d| d["tracks"] = json!(3)),
            ("catalog: $.tracks[0].hcpf.layout: none of A, B, C, W", &|d| {
                d["tracks"][0]["hcpf"]["layout"] = json!("D")
            }),
            ("catalog: $.tracks[0].hcpf.descriptions: neither 1 nor 4", &|d| {
                d["tracks"][0]["hcpf"]["descriptions"] = json!(2)
            }),
            ("catalog: $.tracks[0].hcpf.delivery: neither stream nor datagram", &|d| {
                d["tracks"][0]["hcpf"]["delivery"] = json!("post");
            }),
            ("catalog: $.tracks[0].hcpf.delivery: datagram, but layout W is delivered on streams", &|d| {
                (d["tracks"][0]["hcpf"]["layout"], d["tracks"][0]["hcpf"]["delivery"]) =
                    (json!("W"), json!("datagram"));
            }),
            ("catalog: $.tracks[0].hcpf.descriptions: not 1, as layout W has", &|d| {
                (d["tracks"][0]["hcpf"]["layout"], d["tracks"][0]["hcpf"]["descriptions"]) = (json!("W"), json!(4));
            }),
            ("catalog: $.tracks[0].hcpf.maxPoints: not a whole number in 1…12582912", &|d| {
                d["tracks"][0]["hcpf"]["maxPoints"] = json!(0)
            }),
            ("catalog: $.tracks[0].hcpf.depthError: not a number in 0…65535", &|d| {
                d["tracks"][0]["hcpf"]["depthError"] = json!(-1)
            }),
            ("catalog: $.tracks[0].width: differs from the grid's intrinsics", &|d| {
                d["tracks"][0]["width"] = json!(65)
            }),
            ("catalog: $.tracks[0].initRef: no inline initialization data with this id", &|d| {
                d["tracks"][0]["initRef"] = json!("b")
            }),
            ("catalog: $.tracks[0].initRef: not base64-encoded JSON", &|d| d["initDataList"][0]["data"] = json!("!")),
        ] {
            assert_eq!(change(f), want);
        }
    }

    #[test]
    fn delta_updates_in_any_order() {
        let mut r = CatalogReader::default();
        let delta = |op: Value| json!({"generatedAt": 1, "deltaUpdate": [op]}).to_string().into_bytes();
        let add = delta(json!({"op": "add", "tracks": [track(1, "full", 9)]}));
        let clone = delta(
            json!({"op": "clone", "tracks": [{"parentName": "points/1/full", "name": "points/1/low", "bitrate": 1}]}),
        );
        let remove = delta(json!({"op": "remove", "tracks": [{"name": "points/0/full"}]}));
        assert_eq!(r.add(5, 1, add, 0).unwrap(), None);
        assert_eq!(
            r.add(5, 0, doc(vec![track(0, "full", 9)]).to_string().into_bytes(), 0).unwrap().unwrap().tracks.len(),
            2
        );
        assert_eq!(r.add(5, 2, clone, 0).unwrap().unwrap().tracks.len(), 3);
        assert_eq!(r.add(5, 3, remove, 0).unwrap().unwrap().cameras(), [1]);
        assert_eq!(r.add(4, 0, b"late".to_vec(), 0), Ok(None));
        let gone = delta(json!({"op": "update", "tracks": [{"name": "points/7/full"}]}));
        assert!(r.add(5, 4, gone, 0).unwrap_err().to_string().contains("no track"));
    }

    /// Vectors of internal/catalog on delta updates. This reader checks only the fields that it uses.
    #[test]
    fn delta_vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../internal/catalog/testdata/vectors.json");
        let vectors: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let read = |v: &Value| {
            let (mut r, mut last, mut group, mut id) = (CatalogReader::default(), Catalog::default(), 0, 0);
            for o in v["objects"].as_array().unwrap() {
                if o.get("deltaUpdate").is_none() {
                    (group, id) = (group + 1, 0);
                }
                last = r.add(group, id, o.to_string().into(), 0)?.unwrap();
                id += 1;
            }
            let names: Vec<_> = r.doc["tracks"].as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
            Parsed::Ok((last, names))
        };
        let of = |kind: &str| -> Vec<Value> {
            let delta = |v: &&Value| v["name"].as_str().unwrap().starts_with("delta: ");
            vectors[kind].as_array().unwrap().iter().filter(delta).cloned().collect()
        };
        for v in of("valid") {
            let (c, names) = read(&v).unwrap_or_else(|e| panic!("{}: {e}", v["name"]));
            let want = &v["want"];
            assert_eq!((json!(names), json!(c.complete)), (want["tracks"].clone(), want["complete"].clone()));
            let list = |v: &Value| v.as_array().unwrap().clone();
            let cameras: Vec<_> = list(&want["cameras"]).iter().flat_map(list).collect();
            assert_eq!(c.tracks.len(), cameras.len(), "{}", v["name"]);
            for (t, want) in c.tracks.iter().zip(cameras) {
                assert_eq!((json!(t.name), json!(t.bitrate)), (want["track"].clone(), want["bitrate"].clone()));
            }
        }
        for v in of("invalid") {
            let want = v["error"].as_str().unwrap();
            // Fields of tracks that this reader does not use.
            if want.ends_with(".codec") || want.ends_with(".packaging") {
                continue;
            }
            let e = read(&v).expect_err(v["name"].as_str().unwrap());
            assert!(e.path.starts_with(want), "{}: {e}, want {want}", v["name"]);
        }
    }

    #[test]
    fn gzip() {
        use std::io::Write;
        let mut z = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        z.write_all(doc(vec![]).to_string().as_bytes()).unwrap();
        let b = z.finish().unwrap();
        assert!(CatalogReader::default().add(1, 0, b.clone(), 1).unwrap().is_some());
        assert!(CatalogReader::default().add(1, 0, b, 2).is_err());
        let mut z = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        z.write_all(&vec![b' '; MAX_SIZE + 1]).unwrap();
        assert!(CatalogReader::default().add(1, 0, z.finish().unwrap(), 1).is_err());
    }

    #[test]
    fn poses() {
        for none in ["[]", " null\n"] {
            assert_eq!(parse_poses(none.as_bytes()).unwrap().len(), 0);
        }
        let v = json!([{"T": 1, "data": {"camera": 3, "pose": {"r": [1,0,0,0,1,0,0,0,1], "t": [1,2,3]}}}]);
        assert_eq!(parse_poses(v.to_string().as_bytes()).unwrap()[0].0, 3);
        for bad in ["[", "{}", "[null]", "[{}]"] {
            assert!(parse_poses(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(b: Vec<u8>, s in "[\\[\\]{}:,\"a-z0-9]{0,200}") {
            let _ = CatalogReader::default().add(1, 0, b.clone(), 0);
            let _ = CatalogReader::default().add(1, 0, b, 1);
            let _ = CatalogReader::default().add(1, 0, s.clone().into_bytes(), 0);
            let _ = parse_poses(s.as_bytes());
        }
    }
}
