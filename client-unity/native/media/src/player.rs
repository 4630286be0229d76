//! The player: follows a session across connections.

mod recorded;
mod sound;
mod sphere;
mod tiles;
mod view;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use cloud::Layout;
use moqt::code::request;
use moqt::{
    Ended, Event, Filter, Location, Namespace, Nanos, Object, ObjectStatus, Properties, Request, Session,
    SubscribeOptions, TrackName,
};

use crate::catalog::{parse_poses, Catalog, CatalogReader, Timeline, Track, MAX_SIZE, POSE_TRACK};
use crate::clock::{self, Rtt};
use crate::encryption::{Encryption, NO_KEY};
use crate::feed::{Feed, FeedOutput, Job, Source};
use crate::parts;
use crate::playback::{Action, Part, Playback};
use crate::receipt;
use crate::shared::{ClockSource, Command, Phase, PlaybackAction, PlaybackInfo, Selection, Shared, TrackInfo};
use crate::ROOT;

const MS: Nanos = 1_000_000;
/// Rendezvous timeout of a subscription, ms: how long the relay waits for a publisher.
const RENDEZVOUS: u64 = 20_000;
/// Report Phase::Waiting if no catalog arrives within this time.
const WAITING_AFTER: Nanos = 1500 * MS;
/// Without a relay timestamp for this long, delays use the local clock.
const CLOCK_TIMEOUT: Nanos = 2000 * MS;
/// A publisher counts as silent after this time without a frame, or this many frame intervals if
/// that is longer.
const SILENCE: Nanos = 3000 * MS;
const SILENT_FRAMES: f64 = 5.0;
/// Maximum interval between ticks.
const MAX_TICK_INTERVAL: Nanos = 250 * MS;
/// Tick interval during playback of a recording.
const TICK: Nanos = 8 * MS;
/// Longest group of layout W that playback expects, ms.
const VIDEO_GOP: f64 = 1500.0;
const RETRY: Nanos = 1000 * MS;
const FETCH_TIMEOUT: Nanos = 20_000 * MS;
/// Subscriber priorities (§7): clock before catalog before frames.
const PRIORITY_CLOCK: u8 = 0;
const PRIORITY_CATALOG: u8 = 16;
/// More urgent than frames: a frame waiting for missing parts is older than those being sent.
const PRIORITY_REPAIR: u8 = 64;
/// Maximum concurrent repair requests per track.
const MAX_REPAIRS: usize = 8;
/// Minimum wait for missing parts. If the wait ends late by more than this, the thread was busy and
/// received parts may still be queued, so it waits again.
const MIN_WAIT: Nanos = 2 * MS;
const RECORDING: &str = "recording";
/// Maximum size of a clock object; later versions may append fields.
const MAX_STAMP: usize = 1024;

/// Maximum number of the catalog's objects that wait for the answer to its subscription.
const MAX_UNOPENED: usize = 16;

/// Settings of a player.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Session to follow; None lists the relay's sessions.
    pub session: Option<String>,
    /// Sessions to query individually if the relay refuses the full list.
    pub named: Vec<String>,
    /// Name of the receipts track; "" sends no receipts.
    pub viewer: String,
    /// Delivery timeout of objects, ms; 0 uses the catalog's.
    pub delivery_timeout_ms: u32,
    /// Secrets of an encrypted session by the ID of their key ([`crate::encryption::parse_keys`]). With
    /// keys, the player refuses sessions that are not encrypted.
    pub keys: HashMap<u32, Vec<u8>>,
}

/// Identifies a connection between driver and player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(pub u64);

/// The purpose of one of our requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Clock,
    Sessions,
    /// A session by index in [`Config::named`].
    Session(usize),
    Catalog,
    Poses,
    Points(u16),
    /// Base of the 360° video.
    Sphere,
    /// A live tile, by index.
    Tile(u16),
    /// Rates and distortions of the tiles.
    Rates,
    /// A tile of a recorded GoP.
    RecordedTile,
    /// Rates and distortions of recorded GoPs.
    RecordedRates,
    /// A sound track, by number.
    Sound(u32),
    /// Recorded sound.
    RecordedSound(u32),
    /// Missing parts of a camera's frames.
    Repair(u16),
    Recording,
    /// Past objects of the catalog, or of the recording's catalog.
    Past {
        recording: bool,
    },
    /// A playback fetch, by ID.
    PlaybackFetch(u64),
    Receipts,
}

/// State of one connection.
#[derive(Debug)]
struct Connection {
    link: Link,
    requests: HashMap<Request, Purpose>,
    catalog: CatalogReader,
    poses: CatalogOrder,
    recording: CatalogReader,
    compression: HashMap<Request, u64>,
    replayed: HashMap<Request, bool>,
    /// Encrypted objects of the catalog that arrived before the answer to its subscription.
    unopened: Vec<Object>,
    /// Subscriptions whose publisher begins groups on request.
    dynamic: HashSet<Request>,
    retries: Vec<(Nanos, Purpose)>,
    fetches: Vec<(Nanos, Request)>,
    rtt: Rtt,
}

/// Position of the newest object of a track, to ignore older ones.
#[derive(Debug, Default)]
struct CatalogOrder(Option<(u64, u64)>);

impl CatalogOrder {
    fn newer(&mut self, group: u64, id: u64) -> bool {
        let new = self.0.is_none_or(|l| (group, id) > l);
        if new {
            self.0 = Some((group, id));
        }
        new
    }
}

impl Connection {
    fn of(&self, purpose: Purpose) -> Option<Request> {
        self.requests.iter().find(|(_, p)| **p == purpose).map(|(r, _)| *r)
    }
}

/// Follows a session.
#[derive(Debug)]
pub struct Player {
    config: Config,
    shared: Arc<Shared>,
    connection: Option<Connection>,
    /// The connection being left after GOAWAY. Used until frames arrive over the new one.
    previous: Option<Connection>,
    superseded: Option<Link>,
    connections: u32,
    clock_until: Option<Nanos>,
    waiting_from: Option<Nanos>,
    last_tick: Nanos,
    catalog: Option<Catalog>,
    recording: Option<Catalog>,
    sources: BTreeMap<(u16, String), Arc<Source>>,
    versions: u32,
    poses: HashMap<u16, cloud::Transform>,
    selections: BTreeMap<u16, Selection>,
    select_all: Option<Selection>,
    deselected: Vec<u16>,
    feeds: BTreeMap<u16, Feed>,
    sphere_selected: bool,
    sphere_feed: Option<sphere::SphereFeed>,
    sounds: BTreeMap<u32, sound::SoundFeed>,
    /// Playback position of the recorded sound, ms.
    sound_position: f64,
    playback: Option<Playback>,
    /// Playback fetches by ID: request and part.
    playback_fetches: HashMap<u64, (Request, Part)>,
    view: view::ViewSelection,
    receipts: u64,
    receipts_track: TrackName,
    encryption: Option<Encryption>,
}

impl Player {
    /// Creates a player without a connection.
    pub fn new(config: Config, shared: Arc<Shared>) -> Self {
        let mut p = Player {
            shared,
            connection: None,
            previous: None,
            superseded: None,
            connections: 0,
            clock_until: None,
            waiting_from: None,
            last_tick: 0,
            catalog: None,
            recording: None,
            sources: BTreeMap::new(),
            versions: 0,
            poses: HashMap::new(),
            selections: BTreeMap::new(),
            select_all: None,
            deselected: Vec::new(),
            feeds: BTreeMap::new(),
            sphere_selected: false,
            sphere_feed: None,
            sounds: BTreeMap::new(),
            sound_position: 0.0,
            playback: None,
            playback_fetches: HashMap::new(),
            view: view::ViewSelection::default(),
            receipts: 0,
            receipts_track: TrackName::default(),
            encryption: None,
            config,
        };
        if !p.config.keys.is_empty() && p.config.session.is_some() {
            p.encryption = Some(Encryption::new(p.namespace(), p.config.keys.clone()));
        }
        p.receipts_track = p.track(&format!("receipts/{}", p.config.viewer));
        p
    }

    fn namespace(&self) -> Namespace {
        Namespace::new(std::iter::once(ROOT).chain(self.config.session.as_deref()))
    }

    fn track(&self, name: &str) -> TrackName {
        TrackName::new(self.namespace(), name)
    }

    fn recorded_track(&self, name: &str) -> TrackName {
        let mut ns = self.namespace();
        ns.0.push(RECORDING.as_bytes().to_vec());
        TrackName::new(ns, name)
    }

    fn enter(&mut self, phase: Phase) {
        self.shared.status().phase = phase;
    }

    /// Reports that connecting failed or the connection was lost. The driver retries.
    pub fn connection_error(&mut self, phase: Phase, why: &str) {
        if self.connection.is_none() {
            self.enter(phase);
        }
        self.shared.note_error(why);
    }

    /// A session is open and becomes the current one. A previous one that is still open is used
    /// until frames arrive over the new one.
    pub fn connected(&mut self, now: Nanos, link: Link, s: &mut Session) {
        self.connections += 1;
        self.shared.status().reconnects = self.connections - 1;
        self.previous = self.connection.take();
        self.unsubscribe_tiles(None);
        self.connection = Some(Connection {
            link,
            requests: HashMap::new(),
            catalog: CatalogReader::default(),
            poses: CatalogOrder::default(),
            recording: CatalogReader::default(),
            compression: HashMap::new(),
            replayed: HashMap::new(),
            unopened: Vec::new(),
            dynamic: HashSet::new(),
            retries: Vec::new(),
            fetches: Vec::new(),
            rtt: Rtt::default(),
        });
        if self.shared.measures().source == ClockSource::Unknown {
            self.clock_until = Some(now + CLOCK_TIMEOUT);
        }
        self.begin(now, s, Purpose::Clock);
        if self.config.session.is_none() {
            self.enter(Phase::Listing);
            self.begin(now, s, Purpose::Sessions);
            return self.supersede();
        }
        self.waiting_from = Some(now + WAITING_AFTER);
        self.begin(now, s, Purpose::Catalog);
        if !self.config.viewer.is_empty() {
            self.begin(now, s, Purpose::Receipts);
        }
        // Subscribe from the previous catalog, without waiting for the new one.
        if self.catalog.is_some() {
            self.apply_catalog(now, s);
        }
    }

    /// Sends the request for a purpose.
    fn begin(&mut self, now: Nanos, s: &mut Session, purpose: Purpose) {
        let small = SubscribeOptions {
            filter: Some(Filter::LargestObject),
            priority: Some(PRIORITY_CATALOG),
            join: true,
            max_object: MAX_SIZE,
            ..SubscribeOptions::default()
        };
        let patient = SubscribeOptions { rendezvous_ms: RENDEZVOUS, ..small };
        let request = match purpose {
            Purpose::Clock => {
                let (ns, name) = clock::TRACK;
                let o = SubscribeOptions {
                    priority: Some(PRIORITY_CLOCK),
                    max_object: MAX_STAMP,
                    ..SubscribeOptions::default()
                };
                s.subscribe(now, &TrackName::new(Namespace::new([ns]), name), o)
            }
            Purpose::Sessions => {
                let mut status = self.shared.status();
                if !status.sessions.is_empty() {
                    status.sessions.clear();
                    status.sessions_version = status.sessions_version.wrapping_add(1);
                }
                status.some_sessions = false;
                s.subscribe_namespace(now, &Namespace::new([ROOT]))
            }
            Purpose::Session(i) => s.subscribe_namespace(now, &Namespace::new([ROOT, self.config.named[i].as_str()])),
            Purpose::Catalog => s.subscribe(now, &self.track("catalog"), patient),
            Purpose::Poses => s.subscribe(now, &self.track(POSE_TRACK), patient),
            Purpose::Recording => s.subscribe(now, &self.recorded_track("catalog"), small),
            Purpose::Receipts => s.publish(now, &self.receipts_track, self.receipts),
            Purpose::Points(camera) => {
                let migrating = self.previous.is_some();
                let Some(f) = self.feeds.get_mut(&camera) else { return };
                if !migrating {
                    f.restart(now);
                }
                let t = &f.source.track;
                let timeout_ms = match self.config.delivery_timeout_ms {
                    0 => t.delivery_timeout_ms,
                    ms => ms,
                };
                f.parts.set_limits(t.max_object(), Nanos::from(timeout_ms) * MS);
                let o = SubscribeOptions {
                    filter: Some(Filter::LargestObject),
                    delivery_timeout_ms: timeout_ms.into(),
                    rendezvous_ms: RENDEZVOUS,
                    join: true,
                    max_object: t.max_object(),
                    subgroups: f.wanted.into(),
                    ..SubscribeOptions::default()
                };
                let name = t.name.clone();
                s.subscribe(now, &self.track(&name), o)
            }
            Purpose::Sphere => {
                let Some((name, o)) = self.sphere_options(now) else { return };
                s.subscribe(now, &self.track(&name), o)
            }
            Purpose::Sound(number) => {
                let Some((name, o)) = self.sound_options(number) else { return };
                s.subscribe(now, &self.track(&name), o)
            }
            Purpose::PlaybackFetch(_)
            | Purpose::RecordedSound(_)
            | Purpose::Past { .. }
            | Purpose::Repair(_)
            | Purpose::Tile(_)
            | Purpose::Rates => return,
            Purpose::RecordedTile | Purpose::RecordedRates => return,
        };
        if let Some(c) = &mut self.connection {
            c.requests.insert(request, purpose);
        }
    }

    /// Returns a connection that the driver should close because a new one replaced it.
    pub fn take_superseded(&mut self) -> Option<Link> {
        self.superseded.take()
    }

    /// Marks the previous connection for closing.
    fn supersede(&mut self) {
        if let Some(p) = self.previous.take() {
            self.superseded = Some(p.link);
        }
    }

    fn current(&self, link: Link) -> bool {
        self.connection.as_ref().is_some_and(|c| c.link == link)
    }

    /// Updates the path's round-trip time.
    pub fn path(&mut self, link: Link, rtt: Rtt) {
        if let Some(c) = self.connection.as_mut().filter(|c| c.link == link) {
            c.rtt = rtt;
        }
    }

    /// A connection ended. Returns true if it was the current one.
    pub fn disconnected(&mut self, link: Link) -> bool {
        if self.previous.as_ref().is_some_and(|c| c.link == link) {
            self.previous = None;
            return false;
        }
        if !self.current(link) {
            return false;
        }
        self.connection = None;
        self.unsubscribe_tiles(None);
        self.drop_sounds(None);
        for camera in self.feeds.keys().copied().collect::<Vec<_>>() {
            self.drop_parts(camera);
        }
        for (id, _) in self.playback_fetches.drain() {
            if let Some(p) = &mut self.playback {
                p.failed(0, id, false);
            }
        }
        true
    }

    /// Handles an event of a session.
    pub fn event(&mut self, now: Nanos, link: Link, s: &mut Session, mut e: Event) {
        if let Event::Object(o) = &mut e {
            if !self.open(link, s, o) {
                return;
            }
        }
        let old = !self.current(link);
        let connection = if old { self.previous.as_mut().filter(|c| c.link == link) } else { self.connection.as_mut() };
        let Some(c) = connection else { return };
        let request = match &e {
            Event::Subscribed { request, .. }
            | Event::Cut { request, .. }
            | Event::Fetched { request }
            | Event::Failed { request, .. }
            | Event::Ended { request, .. }
            | Event::Published { request }
            | Event::Namespace { request, .. } => *request,
            Event::Object(o) => o.request,
            Event::Ready { .. } | Event::Goaway { .. } | Event::Closed { .. } => return,
        };
        let Some(&purpose) = c.requests.get(&request) else { return };
        if matches!(e, Event::Failed { .. } | Event::Ended { .. }) {
            c.requests.remove(&request);
            c.compression.remove(&request);
            c.replayed.remove(&request);
            c.dynamic.remove(&request);
        }
        if old {
            // Use only frames from the previous connection.
            match (purpose, e) {
                (Purpose::Points(camera) | Purpose::Repair(camera), Event::Object(o)) if o.datagram => {
                    self.part(now, camera, o);
                }
                (Purpose::Points(camera), Event::Object(o)) => self.points(now, camera, o, false),
                (Purpose::Points(camera), Event::Cut { group, remote, .. }) => self.cut(now, camera, group, remote),
                (Purpose::Sphere, e) => self.old_sphere_event(now, e),
                (Purpose::Sound(number), Event::Object(o)) => self.sound_object(now, number, o, false),
                _ => {}
            }
            return;
        }
        match e {
            Event::Subscribed { largest, properties, .. } => {
                self.subscribed(now, s, request, purpose, largest, &properties);
                if purpose == Purpose::Catalog {
                    let unopened = self.connection.as_mut().map(|c| std::mem::take(&mut c.unopened));
                    for o in unopened.unwrap_or_default() {
                        self.event(now, link, s, Event::Object(o));
                    }
                }
            }
            Event::Object(o) => self.object(now, s, purpose, o),
            Event::Cut { group, remote, .. } => {
                if let Purpose::Points(camera) = purpose {
                    self.cut(now, camera, group, remote);
                }
            }
            Event::Fetched { .. } => match purpose {
                Purpose::PlaybackFetch(id) => {
                    self.end_playback_fetch(request, id);
                    if let Some(p) = &mut self.playback {
                        p.fetched(id);
                    }
                    self.play(now, s);
                }
                Purpose::Repair(camera) => self.repaired(now, s, request, camera),
                Purpose::RecordedTile | Purpose::RecordedRates => self.recorded_fetch_over(now, request, true),
                Purpose::RecordedSound(number) => self.recorded_sound_over(now, request, number, true),
                Purpose::Past { .. } => {
                    if let Some(c) = &mut self.connection {
                        c.requests.remove(&request);
                        c.compression.remove(&request);
                    }
                }
                _ => {}
            },
            Event::Failed { error, .. } => self.failed(now, s, request, purpose, &error),
            Event::Ended { .. } if matches!(purpose, Purpose::Tile(_)) => self.tile_gone(request),
            Event::Ended { why, .. } => self.ended(now, s, purpose, &why),
            Event::Namespace { added, suffix, .. } => self.session_listed(purpose, added, &suffix),
            Event::Published { .. } | Event::Ready { .. } | Event::Goaway { .. } | Event::Closed { .. } => {}
        }
    }

    /// Decrypts an object in place. Returns false if it is refused or must wait.
    fn open(&mut self, link: Link, s: &Session, o: &mut Object) -> bool {
        let Some(encryption) = &mut self.encryption else { return true };
        let connection = self.connection.iter_mut().chain(&mut self.previous).find(|c| c.link == link);
        let (Some((track, priority)), Some(c)) = (s.track(o.request), connection) else { return false };
        let catalog = c.requests.get(&o.request) == Some(&Purpose::Catalog);
        let replayed = c.replayed.get(&o.request).copied();
        if catalog && replayed.is_none() {
            // The joining FETCH or the fill may be answered before the SUBSCRIBE.
            if c.unopened.len() < MAX_UNOPENED {
                c.unopened.push(o.clone());
            }
            return false;
        }
        let replayed = replayed.unwrap_or(self.shared.with_status(|s| s.replayed));
        match encryption.open(link.0, track, priority, replayed, o) {
            Ok(()) => true,
            Err(why) => {
                self.shared.pool.give(std::mem::take(&mut o.payload));
                if let Some(why) = why {
                    if catalog {
                        self.waiting_from = None;
                        self.enter(Phase::Refused);
                    }
                    self.shared.note_error(&why);
                }
                false
            }
        }
    }

    fn end_playback_fetch(&mut self, request: Request, id: u64) {
        self.playback_fetches.remove(&id);
        if let Some(c) = &mut self.connection {
            c.requests.remove(&request);
            c.fetches.retain(|(_, r)| *r != request);
        }
    }

    fn subscribed(
        &mut self, now: Nanos, s: &mut Session, request: Request, purpose: Purpose, largest: Option<Location>,
        p: &Properties,
    ) {
        let small = matches!(purpose, Purpose::Catalog | Purpose::Recording);
        let name = match purpose {
            Purpose::Recording => self.recorded_track("catalog"),
            _ => self.track("catalog"),
        };
        let Some(c) = &mut self.connection else { return };
        c.compression.insert(request, p.compression.unwrap_or(0));
        c.replayed.insert(request, p.replayed);
        if p.dynamic_groups {
            c.dynamic.insert(request);
        }
        // The relay may answer a track's first SUBSCRIBE before the publisher has, and so not know
        // the newest group. In that case fetch everything that the publisher has.
        if small && largest.is_none() {
            let (first, end) = (Location::default(), Location { group: 1 << 60, object: 0 });
            let id = s.fetch(now, &name, first, end, Some(PRIORITY_CATALOG), MAX_SIZE);
            c.requests.insert(id, Purpose::Past { recording: purpose == Purpose::Recording });
            c.compression.insert(id, p.compression.unwrap_or(0));
        }
        if let Purpose::Points(camera) = purpose {
            // The group's objects so far are being fetched by the join.
            let f = self.feeds.get_mut(&camera).filter(|f| f.source.track.datagrams);
            if let (Some(f), Some(l)) = (f, largest) {
                f.parts.expect(l.group, l.object, now);
                self.request_missing(now, s, camera);
            }
        }
        if purpose == Purpose::Catalog {
            self.shared.status().replayed = p.replayed;
            if p.replayed {
                self.begin(now, s, Purpose::Recording);
            } else {
                self.set_recording(now, s, None);
            }
        }
    }

    fn object(&mut self, now: Nanos, s: &mut Session, purpose: Purpose, o: Object) {
        let normal = o.status == ObjectStatus::Normal && !o.payload.is_empty();
        match purpose {
            Purpose::Points(camera) | Purpose::Repair(camera) if o.datagram => {
                let fetched = o.fetched;
                let whole = self.part(now, camera, o);
                self.request_missing(now, s, camera);
                if whole && !fetched {
                    self.supersede();
                }
            }
            Purpose::Points(camera) => {
                let fetched = o.fetched;
                self.points(now, camera, o, fetched);
                // Frames arrive over the new connection: close the previous one.
                if !fetched {
                    self.supersede();
                }
            }
            Purpose::Sphere => {
                let fetched = o.fetched;
                self.sphere_object(now, o, false);
                if !fetched {
                    self.supersede();
                }
            }
            Purpose::Sound(number) => self.sound_object(now, number, o, false),
            Purpose::RecordedSound(number) => self.sound_object(now, number, o, true),
            Purpose::Tile(tile) => self.tile_object(now, tile, o),
            Purpose::Rates if normal => self.tile_rates(&o.payload),
            Purpose::RecordedTile => self.recorded_tile_object(now, o),
            Purpose::RecordedRates if normal => self.recorded_rates(o.group, &o.payload),
            Purpose::PlaybackFetch(id) if normal => {
                match self.playback_fetches.get(&id).map(|(_, part)| *part) {
                    Some(Part::Camera(camera)) => {
                        self.shared.measures().received(camera, o.payload.len(), now);
                        if let Some(p) = &mut self.playback {
                            p.object(id, o.group, o.payload);
                        }
                    }
                    Some(Part::Sphere) => {
                        if let Some(p) = &mut self.playback {
                            p.streamed(id, o.group);
                        }
                        self.sphere_object(now, o, true);
                    }
                    None => self.shared.pool.give(o.payload),
                }
                self.play(now, s);
            }
            Purpose::Catalog | Purpose::Past { recording: false } if normal => self.take_catalog(now, s, false, o),
            Purpose::Recording | Purpose::Past { recording: true } if normal => self.take_catalog(now, s, true, o),
            Purpose::Poses if normal => {
                let newer = self.connection.as_mut().is_some_and(|c| c.poses.newer(o.group, o.id));
                // Ignore invalid poses.
                for (camera, pose) in parse_poses(&o.payload).ok().into_iter().flatten().filter(|_| newer) {
                    self.poses.insert(camera, pose);
                    let mut status = self.shared.status();
                    for t in status.tracks.iter_mut().filter(|t| t.track.camera == camera) {
                        t.track.pose = pose;
                    }
                    status.catalog_version = status.catalog_version.wrapping_add(1);
                }
            }
            Purpose::Clock if normal => self.stamp(now, &o.payload),
            _ => {}
        }
    }

    fn stamp(&mut self, now: Nanos, payload: &[u8]) {
        let Some(stamp) = clock::parse_stamp(payload) else { return };
        let rtt = self.connection.as_ref().map(|c| c.rtt).unwrap_or_default();
        let mut m = self.shared.measures();
        m.clock.observe(stamp, now, rtt);
        m.rtt = rtt;
        m.set_clock(ClockSource::Relay);
        self.clock_until = None;
    }

    fn points(&mut self, now: Nanos, camera: u16, o: Object, fetched: bool) {
        let Some(f) = self.feeds.get_mut(&camera) else { return };
        if o.status != ObjectStatus::Normal || o.payload.is_empty() {
            self.shared.pool.give(o.payload);
            return;
        }
        self.shared.measures().received(camera, o.payload.len(), now);
        let replayed = self.connection.as_ref().and_then(|c| c.replayed.get(&o.request)).copied().unwrap_or(false);
        let mut out = Vec::new();
        if f.source.track.layout == Layout::W {
            f.add_video(o, now, replayed, &mut out);
        } else {
            f.add(o.group, o.payload, now, replayed, fetched, &mut out);
        }
        self.forward(camera, out);
    }

    /// Takes a datagram part. Returns true if it completed a description.
    fn part(&mut self, now: Nanos, camera: u16, o: Object) -> bool {
        let points = self.connection.as_ref().and_then(|c| c.replayed.get(&c.of(Purpose::Points(camera))?));
        let replayed = points.copied().unwrap_or(false);
        let Some(f) = self.feeds.get_mut(&camera).filter(|_| o.status == ObjectStatus::Normal) else { return false };
        let mut out = Vec::new();
        let whole = f.add_part(o, now, replayed, &mut out);
        // For a part from the previous connection: request its missing parts over the new one.
        f.check_at.get_or_insert(now + MIN_WAIT);
        if let Some(n) = whole {
            self.shared.measures().received(camera, n, now);
        }
        self.forward(camera, out);
        while self.feeds.values().map(|f| f.parts.bytes()).sum::<usize>() > parts::MAX_ROOM {
            let Some(largest) = self.feeds.values_mut().max_by_key(|f| f.parts.bytes()) else { break };
            largest.parts.drop_oldest();
        }
        whole.is_some()
    }

    /// Requests missing parts of a camera's frames.
    fn request_missing(&mut self, now: Nanos, s: &mut Session, camera: u16) {
        let (Some(f), Some(c)) = (self.feeds.get_mut(&camera), &mut self.connection) else { return };
        let (rtt, purpose) = (c.rtt.smoothed, Purpose::Repair(camera));
        let under_way = c.requests.values().filter(|p| **p == purpose).count();
        let missing = f.parts.due(now, rtt, MAX_REPAIRS.saturating_sub(under_way));
        f.check_at = f.parts.next(rtt).map(|at| at.max(now + MIN_WAIT));
        if !missing.is_empty() {
            let (name, until) = (f.source.track.name.clone(), now + f.parts.timeout());
            let track = self.track(&name);
            for m in missing {
                let first = Location { group: m.group, object: m.first };
                let end = Location { group: m.group, object: m.last + 1 };
                let request = s.fetch(now, &track, first, end, Some(PRIORITY_REPAIR), parts::MAX_PART);
                if let Some(c) = &mut self.connection {
                    c.requests.insert(request, purpose);
                    c.fetches.push((until, request));
                }
            }
        }
        self.count(camera);
    }

    /// A repair request completed: parts not received are lost.
    fn repaired(&mut self, now: Nanos, s: &mut Session, request: Request, camera: u16) {
        if let Some(c) = &mut self.connection {
            c.requests.remove(&request);
            c.fetches.retain(|(_, r)| *r != request);
        }
        self.request_missing(now, s, camera);
    }

    /// Requests a key frame of layout W if it is time.
    fn request_key(&mut self, now: Nanos, s: &mut Session, camera: u16) {
        let Some(group) = self.feeds.get_mut(&camera).and_then(|f| f.key_due(now)) else { return };
        let request = self.connection.as_ref().and_then(|c| Some((c, c.of(Purpose::Points(camera))?)));
        if let Some((_, request)) = request.filter(|(c, r)| c.dynamic.contains(r)) {
            s.new_group(request, group);
        }
    }

    /// Drops a camera's incomplete datagram frames.
    fn drop_parts(&mut self, camera: u16) {
        if let Some(f) = self.feeds.get_mut(&camera) {
            f.parts.close();
            f.check_at = None;
        }
        self.count(camera);
    }

    fn cut(&mut self, now: Nanos, camera: u16, group: u64, remote: bool) {
        let Some(f) = self.feeds.get_mut(&camera) else { return };
        let mut out = Vec::new();
        f.cut(group, remote, now, &mut out);
        self.forward(camera, out);
    }

    /// Forwards a feed's output to the decoders.
    fn forward(&mut self, camera: u16, out: Vec<FeedOutput>) {
        let Some(f) = self.feeds.get_mut(&camera) else { return };
        for h in out {
            match h {
                FeedOutput::Frame { objects, arrived, replayed, late } => {
                    let source = f.source.clone();
                    self.shared.queue(camera, Job { source, objects, arrived, replayed, late, playback: false });
                }
                FeedOutput::Unused(b) => self.shared.pool.give(b),
            }
        }
        self.count(camera);
    }

    /// Adds a feed's counters to the statistics.
    fn count(&mut self, camera: u16) {
        let Some(f) = self.feeds.get_mut(&camera) else { return };
        let (late, reset, damaged) =
            (std::mem::take(&mut f.late), std::mem::take(&mut f.reset), std::mem::take(&mut f.damaged));
        let p = f.parts.take_counts();
        let mut undecodable = 0;
        if late + reset + damaged + p.repaired + p.abandoned + p.requests > 0 {
            let mut cameras = self.shared.cameras();
            let c = cameras.entry(camera).or_default();
            if damaged > 0 {
                c.undecodable += damaged;
                undecodable = c.undecodable;
            }
            let k = &mut c.counters;
            k.late += late;
            k.reset += reset;
            k.damaged += damaged;
            k.repaired += p.repaired;
            k.abandoned += p.abandoned;
            k.parts_lost += p.parts_lost;
            k.repairs += p.requests;
        }
        self.shared.note_undecodable(
            camera,
            undecodable,
            &"its objects are not point-cloud frames as announced in the catalog",
        );
    }

    fn take_catalog(&mut self, now: Nanos, s: &mut Session, recording: bool, o: Object) {
        let Some(c) = &mut self.connection else { return };
        let of_track = c.compression.get(&o.request).copied().unwrap_or(0);
        let compression = o.properties.compression.unwrap_or(of_track);
        let reader = if recording { &mut c.recording } else { &mut c.catalog };
        let catalog = match reader.add(o.group, o.id, o.payload, compression) {
            Ok(Some(c)) => c,
            Ok(None) => return,
            // Without a valid catalog the recording is not seekable; show the shared replay.
            Err(_) if recording => return,
            Err(e) => {
                self.enter(Phase::Refused);
                self.shared.note_error(&e.to_string());
                return;
            }
        };
        if recording {
            return self.set_recording(now, s, Some(catalog));
        }
        self.waiting_from = None;
        if catalog.encrypted {
            self.enter(Phase::Refused);
            self.shared.note_error(NO_KEY);
            return;
        }
        if catalog.complete {
            self.set_recording(now, s, None);
            self.drop_feeds(s);
            self.enter(Phase::Ended);
            return;
        }
        if catalog.has_poses && self.connection.as_ref().is_some_and(|c| c.of(Purpose::Poses).is_none()) {
            self.begin(now, s, Purpose::Poses);
        }
        let empty = catalog.tracks.is_empty() && catalog.sphere.is_none();
        self.catalog = Some(catalog);
        self.apply_catalog(now, s);
        if self.feeds.is_empty() && self.sphere_feed.is_none() {
            self.supersede();
        }
        self.enter(if empty { Phase::Waiting } else { Phase::Live });
    }

    /// The viewer's subscription for a camera, if any.
    fn selection(&self, camera: u16) -> Option<&Selection> {
        let all = self.select_all.as_ref().filter(|_| !self.deselected.contains(&camera));
        self.selections.get(&camera).or(all)
    }

    /// Brings subscriptions and the published status in line with the catalog and the viewer's
    /// subscriptions.
    fn apply_catalog(&mut self, now: Nanos, s: &mut Session) {
        let Some(catalog) = self.catalog.clone() else { return };
        // A track keeps its version, and with it the ray table, if its geometry is unchanged.
        let mut sources = BTreeMap::new();
        for t in &catalog.tracks {
            let key = (t.camera, t.quality.clone());
            let same =
                |o: &&Arc<Source>| o.track.lens == t.lens && (o.track.width, o.track.layout) == (t.width, t.layout);
            let old = self.sources.get(&key);
            let (version, rays) = old.filter(same).map_or_else(
                || {
                    self.versions += 1;
                    (self.versions, Arc::default())
                },
                |o| (o.version, o.rays.clone()),
            );
            let source = match old {
                Some(o) if o.track == *t => o.clone(),
                _ => Arc::new(Source { track: t.clone(), version, rays }),
            };
            sources.insert(key, source);
        }
        self.sources = sources;
        let mut selected = BTreeMap::new();
        for camera in catalog.cameras() {
            let Some(w) = self.selection(camera) else { continue };
            let quality = w.quality.as_ref().or(self.view.chosen.get(&camera));
            let Some(t) = catalog.select(camera, quality.map(String::as_str)) else { continue };
            if let Some(source) = self.sources.get(&(camera, t.quality.clone())) {
                let wanted = if w.descriptions == 0 { t.descriptions } else { w.descriptions.min(t.descriptions) };
                selected.insert(camera, (source.clone(), wanted));
            }
        }
        let gone: Vec<_> = self.feeds.keys().filter(|c| !selected.contains_key(c)).copied().collect();
        for camera in gone {
            self.unsubscribe_camera(s, camera);
            self.feeds.remove(&camera);
            if let Some(c) = self.shared.cameras().get_mut(&camera) {
                c.clear();
            }
        }
        for (camera, (source, wanted)) in &selected {
            self.shared.queue_rays(source);
            match self.feeds.get_mut(camera) {
                Some(f) if f.source.track.name == source.track.name && f.wanted == *wanted => f.source = source.clone(),
                _ => {
                    self.unsubscribe_camera(s, *camera);
                    self.feeds.insert(*camera, Feed::new(source.clone(), *wanted, self.shared.pool.clone(), now));
                    if let Some(p) = &mut self.playback {
                        let place = p.position();
                        p.seek(now, place); // the buffered data belongs to another track
                    }
                }
            }
            self.subscribe_camera(now, s, *camera);
        }
        self.apply_sphere(now, s);
        self.apply_sounds(now, s);
        self.update_track_status(&catalog, &selected);
        self.set_playback_parts();
        self.play(now, s);
    }

    fn update_track_status(&mut self, catalog: &Catalog, selected: &BTreeMap<u16, (Arc<Source>, u8)>) {
        let recorded =
            |name: &str| self.recording.iter().flat_map(|r| &r.tracks).any(|t| t.name == name && t.timeline.is_some());
        let tracks = catalog.tracks.iter().filter_map(|t| {
            let source = self.sources.get(&(t.camera, t.quality.clone()))?;
            let mut track = t.clone();
            if let Some(pose) = self.poses.get(&t.camera) {
                track.pose = *pose;
            }
            Some(TrackInfo {
                version: source.version,
                subscribed: selected.get(&t.camera).is_some_and(|(s, _)| s.track.name == t.name),
                recorded: recorded(&t.name),
                rays: source.rays.clone(),
                track,
            })
        });
        let tracks = tracks.collect();
        let mut status = self.shared.status();
        status.tracks = tracks;
        status.has_catalog = true;
        status.has_sphere = catalog.sphere.is_some();
        status.undecodable = None;
        status.catalog_version = status.catalog_version.wrapping_add(1);
    }

    /// Subscribes to a camera's live frames.
    fn subscribe_camera(&mut self, now: Nanos, s: &mut Session, camera: u16) {
        let purpose = Purpose::Points(camera);
        let asked = self
            .connection
            .as_ref()
            .is_none_or(|c| c.of(purpose).is_some() || c.retries.iter().any(|r| r.1 == purpose));
        if !asked && self.playback.is_none() {
            self.begin(now, s, purpose);
        }
    }

    /// Cancels all requests for a camera's frames.
    fn unsubscribe_camera(&mut self, s: &mut Session, camera: u16) {
        self.drop_parts(camera);
        let purpose = Purpose::Points(camera);
        let Some(c) = &mut self.connection else { return };
        c.retries.retain(|r| r.1 != purpose);
        let over = |p: &Purpose| *p == purpose || *p == Purpose::Repair(camera);
        let requests: Vec<_> = c.requests.iter().filter(|(_, p)| over(p)).map(|(r, _)| *r).collect();
        for request in requests {
            c.requests.remove(&request);
            c.fetches.retain(|(_, r)| *r != request);
            s.cancel(request);
        }
    }

    fn drop_feeds(&mut self, s: &mut Session) {
        for camera in self.feeds.keys().copied().collect::<Vec<_>>() {
            // Show the received part of the last frame.
            let mut out = Vec::new();
            if let Some(f) = self.feeds.get_mut(&camera) {
                f.emit(&mut out);
            }
            self.forward(camera, out);
            self.unsubscribe_camera(s, camera);
        }
        self.feeds.clear();
        // Keep showing the last picture. If the publisher returns, start over.
        self.unsubscribe_sphere(s);
        self.drop_sounds(Some(s));
        self.sphere_feed = None;
        self.catalog = None;
    }

    fn retry(&mut self, at: Nanos, purpose: Purpose) {
        if let Some(c) = &mut self.connection {
            if c.of(purpose).is_none() && !c.retries.iter().any(|r| r.1 == purpose) {
                c.retries.push((at, purpose));
            }
        }
    }

    fn failed(&mut self, now: Nanos, s: &mut Session, request: Request, purpose: Purpose, e: &moqt::RequestError) {
        let absent = matches!(e.code, request::DOES_NOT_EXIST | request::TIMEOUT | request::GOING_AWAY);
        match purpose {
            Purpose::Clock => {
                if !absent || e.code == request::DOES_NOT_EXIST {
                    self.shared.measures().set_clock(ClockSource::Local);
                }
                self.retry(now + 10 * RETRY, purpose);
            }
            Purpose::Catalog => {
                if !absent {
                    self.enter(Phase::Refused);
                    self.shared.note_error(&e.to_string());
                } else if e.code == request::DOES_NOT_EXIST {
                    let had = self.shared.with_status(|s| s.has_catalog);
                    self.enter(if had { Phase::Ended } else { Phase::Waiting });
                }
                self.retry(now + RETRY, purpose);
            }
            // The token may be limited to some sessions: query those it names.
            Purpose::Sessions if e.code == request::UNAUTHORIZED && !self.config.named.is_empty() => {
                self.shared.status().some_sessions = true;
                for i in 0..self.config.named.len() {
                    self.begin(now, s, Purpose::Session(i));
                }
            }
            Purpose::Session(_)
                if self.connection.iter().any(|c| c.requests.values().any(|p| matches!(p, Purpose::Session(_)))) => {}
            Purpose::Sessions | Purpose::Session(_) => {
                self.shared.status().some_sessions = false;
                self.enter(Phase::Refused);
                self.shared.note_error(&e.to_string());
                self.retry(now + 5 * RETRY, Purpose::Sessions);
            }
            // A publisher without a recording rejects the track.
            Purpose::Recording if e.code == request::DOES_NOT_EXIST => {}
            Purpose::Poses | Purpose::Points(_) | Purpose::Sphere | Purpose::Sound(_) | Purpose::Recording => {
                self.retry(now + RETRY / 2, purpose)
            }
            Purpose::PlaybackFetch(id) => {
                self.end_playback_fetch(request, id);
                if let Some(p) = &mut self.playback {
                    p.failed(now, id, e.code == request::INVALID_RANGE);
                }
            }
            Purpose::Repair(camera) => self.repaired(now, s, request, camera),
            Purpose::Tile(_) => self.tile_gone(request),
            Purpose::RecordedTile | Purpose::RecordedRates => self.recorded_fetch_over(now, request, false),
            Purpose::RecordedSound(number) => self.recorded_sound_over(now, request, number, false),
            // Optional: the viewer works without them.
            Purpose::Receipts | Purpose::Past { .. } | Purpose::Rates => {}
        }
    }

    fn ended(&mut self, now: Nanos, s: &mut Session, purpose: Purpose, why: &Ended) {
        match purpose {
            Purpose::Catalog => {
                self.set_recording(now, s, None);
                self.drop_feeds(s);
                self.enter(Phase::Ended);
                if !why.over() {
                    self.shared.note_error(&format!("the publisher disconnected: {why}"));
                }
                if let Some(c) = &mut self.connection {
                    c.catalog = CatalogReader::default();
                }
                self.retry(now + RETRY / 2, purpose);
            }
            Purpose::Points(camera) => {
                let mut out = Vec::new();
                if let Some(f) = self.feeds.get_mut(&camera) {
                    f.emit(&mut out);
                }
                self.forward(camera, out);
                self.retry(now + RETRY / 2, purpose);
            }
            Purpose::Sphere | Purpose::Sound(_) => self.retry(now + RETRY / 2, purpose),
            Purpose::Clock | Purpose::Poses | Purpose::Recording => self.retry(now + RETRY, purpose),
            _ => {}
        }
    }

    fn session_listed(&mut self, purpose: Purpose, added: bool, suffix: &Namespace) {
        let name = match (purpose, suffix.0.as_slice()) {
            (Purpose::Sessions, [name]) => String::from_utf8_lossy(name).into_owned(),
            (Purpose::Session(i), []) => self.config.named[i].clone(),
            _ => return,
        };
        if name.contains('\0') {
            return;
        }
        let mut s = self.shared.status();
        s.phase = Phase::Listing;
        match (s.sessions.binary_search(&name), added) {
            (Err(at), true) => s.sessions.insert(at, name),
            (Ok(at), false) => {
                s.sessions.remove(at);
            }
            _ => return,
        }
        s.sessions_version = s.sessions_version.wrapping_add(1);
    }

    // Recordings.

    /// Sets or clears the replay's recording.
    fn set_recording(&mut self, now: Nanos, s: &mut Session, recording: Option<Catalog>) {
        self.recording = recording;
        if self.recording.is_none() {
            self.return_to_live(now, s);
        } else if self.catalog.is_some() {
            self.apply_catalog(now, s);
        }
        self.update_playback_status();
    }

    /// Length of the recording, ms; 0 if there is none.
    fn duration(&self) -> f64 {
        let Some(r) = &self.recording else { return 0.0 };
        let points = r.tracks.iter().filter(|t| t.timeline.is_some()).map(|t| t.duration);
        let sphere = r.sphere.iter().filter(|s| s.timeline.is_some()).map(|s| s.duration);
        points.chain(sphere).fold(0.0, f64::max)
    }

    /// The recorded parts that the viewer receives.
    fn parts(&self) -> BTreeMap<Part, (Timeline, Option<f64>)> {
        let recorded = |name: &str| self.recording.iter().flat_map(|r| &r.tracks).find(|t| t.name == name)?.timeline;
        let gop = |t: &Track| (t.layout == Layout::W).then_some(VIDEO_GOP);
        let cameras = self.feeds.iter().filter_map(|(n, f)| {
            let t = &f.source.track;
            Some((Part::Camera(*n), (recorded(&t.name)?, gop(t))))
        });
        let sphere = self.recording.as_ref().and_then(|r| r.sphere.as_ref()).filter(|_| self.sphere_feed.is_some());
        // An overloaded publisher's GoPs last longer than announced, so the GoP at a position may
        // begin earlier.
        let sphere = sphere.and_then(|s| Some((Part::Sphere, (s.timeline?, Some(1.5 * s.gop)))));
        cameras.chain(sphere).collect()
    }

    fn set_playback_parts(&mut self) {
        let parts = self.parts();
        if let Some(p) = &mut self.playback {
            p.set_parts(&parts);
        }
    }

    /// Position in the recording of the current picture, ms.
    fn place(&self) -> f64 {
        if let Some(p) = &self.playback {
            return p.position();
        }
        let Some(r) = &self.recording else { return 0.0 };
        let origin = r.tracks.iter().find_map(|t| t.timeline).or(r.sphere.as_ref().and_then(|s| s.timeline));
        let points = self.feeds.values().next().map(|f| f.captured as f64 / 1e3);
        let captured = points.or(self.sphere_feed.as_ref().map(|f| f.captured as f64 / 1e6));
        match (captured, origin) {
            (Some(ms), Some(o)) if ms > 0.0 => (ms - o.wallclock).clamp(0.0, self.duration()),
            _ => 0.0,
        }
    }

    fn control(&mut self, now: Nanos, s: &mut Session, action: PlaybackAction) {
        if self.duration() == 0.0 {
            return;
        }
        if action == PlaybackAction::Live {
            self.return_to_live(now, s);
            return self.update_playback_status();
        }
        let place = if let PlaybackAction::Seek(ms) = action { ms } else { self.place() };
        let begun = self.playback.is_some();
        if !begun {
            // Leave the shared replay and start own playback.
            for camera in self.feeds.keys().copied().collect::<Vec<_>>() {
                self.unsubscribe_camera(s, camera);
            }
            self.unsubscribe_sphere(s);
            let mut p = Playback::new(self.duration());
            p.seek(now, place);
            self.playback = Some(p);
            self.set_playback_parts();
            self.list_tiles();
            self.jump_sphere();
            self.jump_sounds(now, s);
        } else if let PlaybackAction::Seek(_) = action {
            self.unsubscribe_tiles(Some(s));
            self.jump_sphere();
            self.jump_sounds(now, s);
        }
        let Some(p) = &mut self.playback else { return };
        match action {
            PlaybackAction::Pause => p.pause(),
            PlaybackAction::Play => p.play(now),
            PlaybackAction::Seek(ms) if begun => p.seek(now, ms),
            // Play after a first seek, since the shared replay was playing; only Pause stops.
            PlaybackAction::Seek(_) => p.play(now),
            PlaybackAction::Live => {}
        }
        self.play(now, s);
        self.update_playback_status();
    }

    fn return_to_live(&mut self, now: Nanos, s: &mut Session) {
        let Some(mut p) = self.playback.take() else { return };
        p.stop();
        for id in self.playback_fetches.keys().copied().collect::<Vec<_>>() {
            self.cancel_playback_fetch(s, id);
        }
        for camera in self.feeds.keys().copied().collect::<Vec<_>>() {
            if let Some(f) = self.feeds.get_mut(&camera) {
                f.restart(now);
            }
            self.subscribe_camera(now, s, camera);
        }
        self.unsubscribe_tiles(Some(s));
        self.list_tiles();
        self.jump_sphere();
        self.jump_sounds(now, s);
        self.subscribe_sphere(now, s);
    }

    fn cancel_playback_fetch(&mut self, s: &mut Session, id: u64) {
        if let Some((request, _)) = self.playback_fetches.get(&id).copied() {
            self.end_playback_fetch(request, id);
            s.cancel(request);
        }
    }

    /// Advances playback and performs its actions.
    fn play(&mut self, now: Nanos, s: &mut Session) {
        let Some(p) = &mut self.playback else { return };
        p.tick(now);
        for a in p.take() {
            match a {
                Action::Fetch { part, id, first, last } => {
                    let of = match part {
                        Part::Camera(n) => {
                            self.feeds.get(&n).map(|f| (f.source.track.name.clone(), f.source.track.max_object()))
                        }
                        Part::Sphere => self.sphere_feed.as_ref().map(|f| (f.sphere().name.clone(), sphere::MAX_FRAME)),
                    };
                    let (Some((name, most)), true) = (of, self.connection.is_some()) else {
                        if let Some(p) = &mut self.playback {
                            p.failed(now, id, false);
                        }
                        continue;
                    };
                    if part == Part::Sphere {
                        self.fetch_rates(now, s, first, last);
                    }
                    let (first, end) = (Location { group: first, object: 0 }, Location { group: last, object: 0 });
                    let request = s.fetch(now, &self.recorded_track(&name), first, end, None, most);
                    if let Some(c) = &mut self.connection {
                        c.requests.insert(request, Purpose::PlaybackFetch(id));
                        c.fetches.push((now + FETCH_TIMEOUT, request));
                    }
                    self.playback_fetches.insert(id, (request, part));
                }
                Action::Cancel(id) => self.cancel_playback_fetch(s, id),
                Action::Show { camera, objects, .. } => {
                    let Some(f) = self.feeds.get_mut(&camera) else { continue };
                    f.arrived = now;
                    let source = f.source.clone();
                    let job = Job { source, objects, arrived: now, replayed: true, late: false, playback: true };
                    self.shared.queue(camera, job);
                }
                Action::Skip(objects) => {
                    for b in objects {
                        self.shared.pool.give(b);
                    }
                }
            }
        }
        self.set_sphere_position(now);
        self.fetch_recorded_tiles(now, s);
        self.play_sounds(now, s);
    }

    fn update_playback_status(&mut self) {
        let info = PlaybackInfo {
            duration: self.duration(),
            position: self.place(),
            playing: self.playback.as_ref().is_none_or(Playback::playing),
            live: self.playback.is_none(),
            waiting: self.playback.as_ref().is_some_and(Playback::waiting),
        };
        self.shared.status().playback = info;
    }

    // Time and commands.

    /// Executes queued commands. `s` is the current session.
    pub fn commands(&mut self, now: Nanos, mut s: Option<&mut Session>) {
        let mut changed = false;
        while let Some(c) = self.shared.take_command() {
            match c {
                Command::Subscribe(camera, selection) => {
                    changed = true;
                    match camera {
                        Some(n) => {
                            self.deselected.retain(|c| *c != n);
                            self.selections.insert(n, selection);
                        }
                        None => {
                            self.deselected.clear();
                            self.selections.clear();
                            self.select_all = Some(selection);
                        }
                    }
                }
                Command::Unsubscribe(camera) => {
                    changed = true;
                    match camera {
                        Some(n) => {
                            self.selections.remove(&n);
                            if self.select_all.is_some() && !self.deselected.contains(&n) {
                                self.deselected.push(n);
                            }
                        }
                        None => {
                            self.selections.clear();
                            self.select_all = None;
                            self.deselected.clear();
                        }
                    }
                }
                Command::Sphere(wanted) => {
                    changed = true;
                    self.sphere_selected = wanted;
                }
                Command::Sound(number, wanted) => self.select_sound(now, s.as_deref_mut(), number, wanted),
                Command::View { view, budget } => self.view.look(now, view, budget),
                Command::Gaze { direction, view } => self.gaze(now, s.as_deref_mut(), direction, view),
                Command::Playback(action) => {
                    if let Some(s) = s.as_deref_mut() {
                        self.control(now, s, action);
                    }
                }
                Command::Key(camera) => {
                    if let Some(f) = self.feeds.get_mut(&camera) {
                        f.want_key(now);
                    }
                    if let Some(s) = s.as_deref_mut() {
                        self.request_key(now, s, camera);
                    }
                }
                Command::Receipt { camera, sequence, delay } => {
                    let track = self.connection.as_ref().and_then(|c| c.of(Purpose::Receipts));
                    if let (Some(s), Some(track)) = (s.as_deref_mut(), track) {
                        if s.send_datagram(track, self.receipts, 128, &receipt::encode(camera, sequence, delay)) {
                            self.receipts += 1;
                            self.shared.measures().receipts += 1;
                        }
                    }
                }
            }
        }
        if let (true, Some(s)) = (changed, s) {
            self.apply_catalog(now, s);
        }
    }

    /// Latest time for the next call of `tick`.
    pub fn deadline(&self) -> Nanos {
        let tick = self.playback.as_ref().map(|_| self.last_tick.max(0) + TICK);
        let retries = self.connection.iter().flat_map(|c| c.retries.iter().map(|r| r.0));
        let looks = self.feeds.values().filter(|_| self.connection.is_some()).flat_map(|f| [f.check_at, f.key_at]);
        let tiles =
            self.sphere_feed.as_ref().filter(|_| self.connection.is_some()).and_then(|f| f.tiles.as_ref()?.deadline());
        let all =
            retries.chain(tiles).chain(self.clock_until).chain(self.waiting_from).chain(tick).chain(looks.flatten());
        all.min().map_or(self.last_tick + MAX_TICK_INTERVAL, |t| t.min(self.last_tick + MAX_TICK_INTERVAL))
    }

    /// Handles the passage of time. `s` is the current session.
    pub fn tick(&mut self, now: Nanos, s: Option<&mut Session>) {
        self.last_tick = now;
        if self.clock_until.is_some_and(|t| now >= t) {
            self.clock_until = None;
            self.shared.measures().set_clock(ClockSource::Local);
        }
        if self.waiting_from.is_some_and(|t| now >= t) {
            self.waiting_from = None;
            if !self.shared.with_status(|s| s.has_catalog) && self.connection.is_some() {
                self.enter(Phase::Waiting);
            }
        }
        let Some(s) = s else { return };
        let mut due = Vec::new();
        let mut late = Vec::new();
        if let Some(c) = &mut self.connection {
            c.retries.retain(|(at, p)| {
                let wait = now < *at;
                if !wait {
                    due.push(*p);
                }
                wait
            });
            late.extend(c.fetches.iter().filter(|(t, _)| now >= *t).filter_map(|(_, r)| match c.requests.get(r) {
                Some(
                    p @ (Purpose::PlaybackFetch(_)
                    | Purpose::Repair(_)
                    | Purpose::RecordedTile
                    | Purpose::RecordedSound(_)
                    | Purpose::RecordedRates),
                ) => Some((*r, *p)),
                _ => None,
            }));
        }
        for (request, purpose) in late {
            match purpose {
                Purpose::PlaybackFetch(id) => {
                    self.cancel_playback_fetch(s, id);
                    if let Some(p) = &mut self.playback {
                        p.failed(now, id, false);
                    }
                }
                Purpose::Repair(camera) => {
                    s.cancel(request);
                    self.repaired(now, s, request, camera);
                }
                Purpose::RecordedSound(number) => {
                    s.cancel(request);
                    self.recorded_sound_over(now, request, number, false);
                }
                _ => {
                    s.cancel(request);
                    self.recorded_fetch_over(now, request, false);
                }
            }
        }
        let to_check: Vec<_> =
            self.feeds.iter().filter_map(|(n, f)| Some((*n, f.check_at.filter(|at| now >= *at)?))).collect();
        for (camera, at) in to_check {
            match self.feeds.get_mut(&camera) {
                Some(f) if now - at > MIN_WAIT => f.check_at = Some(now + MIN_WAIT),
                _ => self.request_missing(now, s, camera),
            }
        }
        for camera in self.feeds.keys().copied().collect::<Vec<_>>() {
            self.request_key(now, s, camera);
        }
        for purpose in due {
            match purpose {
                Purpose::Sphere if self.playback.is_some() || self.sphere_feed.is_none() => {}
                Purpose::Sound(number) if self.playback.is_some() || !self.sounds.contains_key(&number) => {}
                Purpose::Points(camera) if self.playback.is_some() || !self.feeds.contains_key(&camera) => {}
                Purpose::Recording if !self.shared.with_status(|s| s.replayed) => {}
                p => self.begin(now, s, p),
            }
        }
        self.tick_tiles(now, s);
        self.select_by_view(now, s);
        self.play(now, s);
        if self.duration() > 0.0 {
            self.update_playback_status();
        }
        self.update_silence(now);
    }

    /// Switches between Live and Silent, to tell a stalled publisher from a still scene.
    fn update_silence(&mut self, now: Nanos) {
        let phase = self.shared.with_status(|s| s.phase);
        if !matches!(phase, Phase::Live | Phase::Silent) {
            return;
        }
        let silent_after = |f: &Feed| match f.source.track.framerate {
            r if r > 0.0 => SILENCE.max((SILENT_FRAMES * 1e9 / r) as Nanos),
            _ => SILENCE,
        };
        let sphere = self.sphere_silent(now);
        let any = sphere.is_some() || !self.feeds.is_empty();
        let silent = self.playback.is_none()
            && any
            && sphere != Some(false)
            && self.feeds.values().all(|f| now - f.arrived >= silent_after(f));
        self.enter(if silent { Phase::Silent } else { Phase::Live });
    }
}
