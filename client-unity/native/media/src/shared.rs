//! State shared between the player's thread, the decoders and the application's threads.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cloud::{Decoder, Frame, FrameError, Layout, Limits};
use moqt::{BufferPool, Nanos};
use video::Picture;

use crate::catalog::{Sphere, Track};
use crate::clock::{Estimator, Rtt};
use crate::feed::{Acquired, Camera, Decoded, FrameInfo, Job, Source};
use crate::meter::{Live, Meter, Run, Seen};
use crate::mosaic::{compose, NextTile, Part, TileJob};
use crate::screen::{AcquiredPicture, Chunk, Next, PictureInfo, Screen, Shown, SphereDecoder};
use crate::sound::{Displayed, Sounds};

/// State of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Connecting for the first time.
    #[default]
    Connecting,
    /// The relay does not answer.
    Unreachable,
    /// The relay's certificate is not trusted.
    Certificate,
    /// The relay refused the session, or its content is unsupported.
    Refused,
    /// The connection was lost.
    Lost,
    /// No session was named; listing the relay's.
    Listing,
    /// The session has no publisher.
    Waiting,
    /// Frames arrive.
    Live,
    /// Published, but no frames arrive.
    Silent,
    /// The publisher ended the session or disconnected.
    Ended,
}

/// A catalog track, as the application sees it.
#[derive(Debug, Clone)]
pub struct TrackInfo {
    /// Track from the catalog, with the latest pose.
    pub track: Track,
    /// Changes with the ray table.
    pub version: u32,
    /// The track is subscribed.
    pub subscribed: bool,
    /// The recording contains the track.
    pub recorded: bool,
    pub(crate) rays: Arc<OnceLock<Vec<f32>>>,
}

/// State of a recording, as the application sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PlaybackInfo {
    /// Milliseconds; 0 if there is no recording.
    pub duration: f64,
    /// Milliseconds.
    pub position: f64,
    /// False while paused.
    pub playing: bool,
    /// Following the replay shared by all viewers.
    pub live: bool,
    /// Waiting for data.
    pub waiting: bool,
}

/// Status that the application polls.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct Status {
    pub phase: Phase,
    pub replayed: bool,
    pub tracks: Vec<TrackInfo>,
    pub has_catalog: bool,
    /// The session has 360° video.
    pub has_sphere: bool,
    /// No frame of the 360° video is decodable; `error` has the reason.
    pub sphere_undecodable: bool,
    /// A camera without decodable frames; `error` has the reason.
    pub undecodable: Option<u16>,
    /// Version counters of the fields they are named after.
    pub catalog_version: u32,
    pub sessions: Vec<String>,
    pub sessions_version: u32,
    /// The relay refused the full list; sessions are limited to [`crate::Config::named`].
    pub some_sessions: bool,
    pub error: String,
    pub error_version: u32,
    pub reconnects: u32,
    pub playback: PlaybackInfo,
}

impl Status {
    /// Number of cameras in the catalog.
    pub fn cameras(&self) -> usize {
        let mut list: Vec<_> = self.tracks.iter().map(|t| t.track.camera).collect();
        list.dedup();
        list.len()
    }
}

/// The viewer's subscription to a camera.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// None: the best quality.
    pub quality: Option<String>,
    /// Maximum descriptions; 0 = all.
    pub descriptions: u8,
}

/// A user's control of a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlaybackAction {
    /// Resume.
    Play,
    /// Pause.
    Pause,
    /// Seek to a position, ms.
    Seek(f64),
    /// Return to the replay shared by all viewers.
    Live,
}

/// A command from the application to the player.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Subscribe to one or all cameras.
    Subscribe(Option<u16>, Selection),
    /// Unsubscribe from one or all cameras.
    Unsubscribe(Option<u16>),
    /// Subscribe to or unsubscribe from 360° video.
    Sphere(bool),
    /// The viewer of the 360° video changed their gaze.
    Gaze {
        /// Direction in picture coordinates: right, up, forward.
        direction: [f64; 3],
        /// Horizontal and vertical field of view, radians.
        view: [f64; 2],
    },
    /// The viewer's eye moved; it chooses the cameras' qualities.
    View {
        /// Eye in studio space.
        view: viewselect::View,
        /// Maximum bit/s of all cameras; 0: by lost frames.
        budget: f64,
    },
    /// Control a recording.
    Playback(PlaybackAction),
    /// Request a key frame of a camera.
    Key(u16),
    /// Subscribe to or unsubscribe from a sound track, by number.
    Sound(u32, bool),
    /// Send the receipt of a shown frame.
    Receipt {
        /// Camera number.
        camera: u16,
        /// Sequence number.
        sequence: u32,
        /// Capture to shown.
        delay: Nanos,
    },
}

/// The clock that delays refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClockSource {
    /// No timestamp yet.
    #[default]
    Unknown,
    /// The relay's, from its timestamps.
    Relay,
    /// The local clock, because the relay sends no timestamps.
    Local,
}

/// Reading of the session's clock.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct ClockInfo {
    pub source: ClockSource,
    pub local: Nanos,
    pub relay: Nanos,
    pub error: Nanos,
    pub rtt: Rtt,
    pub samples: usize,
    pub steps: u32,
}

/// Statistics.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Stats {
    pub live: Live,
    pub run: Run,
    pub density: f64,
    pub first_frame: Nanos,
    pub partial: u64,
    pub skipped: u64,
    pub damaged: u64,
    pub late: u64,
    pub reset: u64,
    pub receipts: u64,
    pub memory: usize,
    pub repaired: u64,
    pub abandoned: u64,
    pub parts_lost: u64,
    pub repairs: u64,
}

/// Maximum frames kept unmeasured until the clock is known.
const MAX_UNMEASURED: usize = 1024;
/// Older frames cannot be live: they come from a recording that does not identify itself.
const REPLAY_AGE: Nanos = 60_000_000_000;
/// Cap on measured delays: a fortnight.
const MAX_DELAY: Nanos = 14 * 86_400_000_000_000;
/// Maximum queued commands; receipts beyond are dropped.
const MAX_COMMANDS: usize = 1024;
/// After this many consecutive undecodable frames of a camera, the user is notified.
const UNDECODABLE: u64 = 10;
/// Interval between a camera's subject estimates; a view does not follow faster changes.
const SUBJECT_INTERVAL: Nanos = 250_000_000;

#[derive(Debug, Default)]
pub(crate) struct Measures {
    pub clock: Estimator,
    pub source: ClockSource,
    pub rtt: Rtt,
    all: Meter,
    cameras: BTreeMap<u16, Meter>,
    unmeasured: VecDeque<(Seen, FrameInfo, bool)>,
    first: Option<Nanos>,
    pub replayed: bool,
    pub receipts: u64,
    sphere: SphereMeter,
}

/// Statistics of the 360° video.
#[derive(Debug, Default)]
struct SphereMeter {
    meter: Meter,
    first: Option<Nanos>,
    /// Frame number derived from timestamps, as frames carry none.
    number: u32,
    captured: Nanos,
}

impl Measures {
    pub fn received(&mut self, camera: u16, n: usize, now: Nanos) {
        self.all.received(n, now);
        self.cameras.entry(camera).or_default().received(n, now);
    }

    /// Frames decoded and lost so far.
    pub fn frames(&self, now: Nanos) -> (u64, u64) {
        let run = self.all.run(now);
        (run.frames, run.lost)
    }

    /// Sets the clock source, and measures the frames that waited for it.
    pub fn set_clock(&mut self, source: ClockSource) {
        if source == self.source || source == ClockSource::Local && self.source == ClockSource::Relay {
            return;
        }
        self.source = source;
        for (mut seen, info, late) in std::mem::take(&mut self.unmeasured) {
            seen.delay = self.delay(&info);
            let replayed = self.replayed;
            self.count(seen, replayed, late);
        }
    }

    /// Time from capture to a local time on the relay's clock, capped at a fortnight since headers
    /// may be wrong.
    fn since_capture(&self, info: &FrameInfo, at: Nanos) -> Nanos {
        let captured = i64::try_from(info.header.capture_time).unwrap_or(i64::MAX).saturating_mul(1000);
        self.clock.at(at).saturating_sub(captured).clamp(-MAX_DELAY, MAX_DELAY)
    }

    fn since_picture(&self, info: &PictureInfo, at: Nanos) -> Nanos {
        let from = if info.replayed { info.arrived } else { info.captured };
        let at = if info.replayed { at } else { self.clock.at(at) };
        at.saturating_sub(from).clamp(-MAX_DELAY, MAX_DELAY)
    }

    /// Counts received bytes of 360° video.
    pub fn received_sphere(&mut self, n: usize, now: Nanos) {
        self.sphere.meter.received(n, now);
    }

    /// Counts a decoded picture. framerate: the track's.
    fn count_picture(&mut self, info: &PictureInfo, framerate: f64) {
        let delay = self.since_picture(info, info.decoded);
        let m = &mut self.sphere;
        m.first.get_or_insert(info.decoded);
        let later = (info.captured - m.captured) as f64 / 1e9 * framerate;
        // A step backwards or of over a minute is a jump, not loss.
        let step = if later > 0.0 && later < 60.0 * framerate { (later.round() as u32).max(1) } else { 1 };
        m.number = m.number.wrapping_add(step);
        m.captured = info.captured;
        m.meter.decoded(Seen {
            camera: 0,
            sequence: m.number,
            at: info.decoded,
            delay,
            points: 0,
            decode: info.decode,
        });
    }

    fn delay(&mut self, info: &FrameInfo) -> Nanos {
        let delay = self.since_capture(info, info.decoded);
        self.replayed = info.replayed || delay > REPLAY_AGE;
        if self.replayed {
            info.decoded - info.arrived
        } else {
            delay
        }
    }

    fn count(&mut self, seen: Seen, replayed: bool, late: bool) {
        if replayed && late {
            return; // without a capture time it would look like a publisher restart
        }
        self.all.decoded(seen);
        self.cameras.entry(seen.camera).or_default().decoded(seen);
    }

    /// Counts a decoded frame and sets its delay.
    fn decoded(&mut self, info: &mut FrameInfo, late: bool) {
        self.first.get_or_insert(info.decoded);
        let mut seen = Seen {
            camera: info.header.camera,
            sequence: info.header.sequence,
            at: info.decoded,
            delay: 0,
            points: info.points,
            decode: info.decode,
        };
        info.delay = self.delay(info);
        info.replayed = self.replayed;
        if late && info.header.layout == Layout::W {
            return; // an old frame, only decoded for the next ones
        }
        if self.source == ClockSource::Unknown && self.unmeasured.len() < MAX_UNMEASURED {
            self.unmeasured.push_back((seen, *info, late));
            return;
        }
        seen.delay = info.delay;
        self.count(seen, info.replayed, late);
    }
}

/// Error: too many frames of a camera are acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many frames of the camera are acquired already")]
pub struct TooMany;

#[derive(Debug, Default)]
struct Work {
    /// Round-robin queue of cameras with frames to decode.
    cameras: VecDeque<u16>,
    /// Tracks whose ray tables to compute when idle.
    rays: VecDeque<Arc<Source>>,
    over: bool,
}

type Wake = Box<dyn Fn() + Send + Sync>;

/// State shared between threads.
pub struct Shared {
    pub(crate) local: sound::Clock,
    began_at: Nanos,
    /// Buffers for objects.
    pub pool: Arc<BufferPool>,
    status: Mutex<Status>,
    measures: Mutex<Measures>,
    cameras: Mutex<BTreeMap<u16, Camera>>,
    screen: Mutex<Screen>,
    /// Signals changes of `screen`.
    screen_changed: Condvar,
    handles: Mutex<(u64, BTreeMap<u64, u16>)>,
    work: Mutex<Work>,
    ready: Condvar,
    commands: Mutex<VecDeque<Command>>,
    wake: Mutex<Option<Wake>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    sounds: Mutex<Sounds>,
    pub(crate) sounds_changed: Condvar,
    /// Delays of points as shown and as decoded, and of 360° pictures.
    pub(crate) points_shown: Mutex<Displayed>,
    pub(crate) points_decoded: Mutex<Displayed>,
    pub(crate) pictures_shown: Mutex<Displayed>,
    /// Points are shown no earlier than their capture time plus this, because their sound arrives
    /// later; i64::MIN: no limit.
    pub(crate) points_due: AtomicI64,
    /// The application reports the viewer's eye, so surface patches are needed.
    viewed: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

/// Locks a mutex, ignoring poisoning: a panic leaves at worst an inaccurate count.
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Starts the local clock.
    pub fn new() -> Self {
        let local = sound::Clock::default();
        Shared {
            local,
            began_at: local.now(),
            pool: Arc::default(),
            status: Mutex::default(),
            measures: Mutex::default(),
            cameras: Mutex::default(),
            screen: Mutex::default(),
            screen_changed: Condvar::new(),
            handles: Mutex::default(),
            work: Mutex::default(),
            ready: Condvar::new(),
            commands: Mutex::default(),
            wake: Mutex::default(),
            threads: Mutex::default(),
            sounds: Mutex::default(),
            sounds_changed: Condvar::new(),
            points_shown: Mutex::default(),
            points_decoded: Mutex::default(),
            pictures_shown: Mutex::default(),
            points_due: AtomicI64::new(Nanos::MIN),
            viewed: AtomicBool::new(false),
        }
    }

    /// Local time: nanoseconds since 1970, taken from the system clock at creation and monotonic
    /// from then on.
    pub fn now(&self) -> Nanos {
        self.local.now()
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        lock(&self.status)
    }

    pub(crate) fn measures(&self) -> MutexGuard<'_, Measures> {
        lock(&self.measures)
    }

    pub(crate) fn cameras(&self) -> MutexGuard<'_, BTreeMap<u16, Camera>> {
        lock(&self.cameras)
    }

    pub(crate) fn sounds(&self) -> MutexGuard<'_, Sounds> {
        lock(&self.sounds)
    }

    pub(crate) fn screen(&self) -> MutexGuard<'_, Screen> {
        lock(&self.screen)
    }

    /// Runs a function on the screen and wakes its decoders.
    pub(crate) fn with_screen<T>(&self, f: impl FnOnce(&mut Screen) -> T) -> T {
        let out = f(&mut self.screen());
        self.screen_changed.notify_all();
        out
    }

    /// Reports the viewer's eye. Frames decoded from now on have surface patches.
    pub fn look(&self, view: viewselect::View, budget: f64) {
        self.viewed.store(true, Relaxed);
        self.command(Command::View { view, budget });
    }

    /// Runs a function on the status.
    pub fn with_status<T>(&self, f: impl FnOnce(&Status) -> T) -> T {
        f(&self.status())
    }

    /// Sets the error message.
    pub fn note_error(&self, text: &str) {
        let mut s = self.status();
        if s.error != text {
            s.error = text.to_owned();
            s.error_version = s.error_version.wrapping_add(1);
        }
    }

    /// Reports undecodable objects of a camera, `in_a_row` consecutive ones so far.
    pub(crate) fn note_undecodable(&self, camera: u16, in_a_row: u64, why: &dyn std::fmt::Display) {
        if in_a_row >= UNDECODABLE {
            self.note_error(&format!("no frame of camera {camera} can be decoded: {why}"));
            self.status().undecodable = Some(camera);
        }
    }

    /// Sets the function that wakes the player for a command.
    pub fn on_command(&self, wake: impl Fn() + Send + Sync + 'static) {
        *lock(&self.wake) = Some(Box::new(wake));
    }

    /// Queues a command for the player.
    pub fn command(&self, c: Command) {
        {
            let mut list = lock(&self.commands);
            if list.len() >= MAX_COMMANDS {
                return;
            }
            list.push_back(c);
        }
        if let Some(wake) = &*lock(&self.wake) {
            wake();
        }
    }

    pub(crate) fn take_command(&self) -> Option<Command> {
        lock(&self.commands).pop_front()
    }

    /// Acquires a camera's newest frame, unless acquired before. Fails if too many of the camera
    /// are acquired.
    pub fn acquire(&self, camera: u16) -> Result<Option<Acquired>, TooMany> {
        let mut cameras = self.cameras();
        let Some(c) = cameras.get_mut(&camera) else { return Ok(None) };
        c.release_due(self.now(), self.points_due.load(Relaxed));
        if c.newest.is_none() {
            return Ok(None);
        }
        if c.full() {
            return Err(TooMany);
        }
        let Some(d) = c.newest.take() else { return Ok(None) };
        let info = d.info;
        let mut handles = lock(&self.handles);
        handles.0 += 1;
        let handle = handles.0;
        handles.1.insert(handle, camera);
        c.acquired.push((handle, d));
        Ok(Some(Acquired { handle, info }))
    }

    /// Runs a function on the words of an acquired frame.
    pub fn words<T>(&self, handle: u64, f: impl FnOnce(&FrameInfo, &[u32]) -> T) -> Option<T> {
        let camera = *lock(&self.handles).1.get(&handle)?;
        // Take the frame out of the list, so that no thread waits for the copy.
        let d = {
            let mut cameras = self.cameras();
            let c = cameras.get_mut(&camera)?;
            let at = c.acquired.iter().position(|(h, _)| *h == handle)?;
            let empty = Decoded { info: c.acquired[at].1.info, words: Vec::new() };
            std::mem::replace(&mut c.acquired[at].1, empty)
        };
        let n = d.info.points as usize * d.info.words_per_point as usize;
        let out = f(&d.info, d.words.get(..n).unwrap_or_default());
        let mut cameras = self.cameras();
        match cameras.get_mut(&camera).and_then(|c| c.acquired.iter_mut().find(|(h, _)| *h == handle)) {
            Some((_, place)) => *place = d,
            None => drop(d),
        }
        Some(out)
    }

    /// Releases a frame. shown: local time of display. Returns false for an unknown handle.
    pub fn release(&self, handle: u64, shown: Option<Nanos>) -> bool {
        let Some(camera) = lock(&self.handles).1.remove(&handle) else { return false };
        let info = {
            let mut cameras = self.cameras();
            let Some(c) = cameras.get_mut(&camera) else { return false };
            let Some(at) = c.acquired.iter().position(|(h, _)| *h == handle) else { return false };
            let (_, d) = c.acquired.swap_remove(at);
            c.give_back(d.words);
            d.info
        };
        if let Some(at) = shown {
            let delay = {
                let at = at.clamp(0, info.decoded.saturating_add(MAX_DELAY));
                lock(&self.points_shown).note(at, info.captured());
                let mut m = self.measures();
                let delay = if info.replayed { at - info.arrived } else { m.since_capture(&info, at) };
                m.all.shown(camera, at, delay);
                m.cameras.entry(camera).or_default().shown(camera, at, delay);
                delay
            };
            if !info.playback {
                self.command(Command::Receipt { camera, sequence: info.header.sequence, delay });
            }
        }
        true
    }

    /// Acquires the 360° picture that is due, unless acquired before. Fails if too many are
    /// acquired.
    pub fn acquire_picture(&self) -> Result<Option<AcquiredPicture>, TooMany> {
        self.with_screen(|s| s.acquire(self.now()))
    }

    /// Runs a function on the planes of an acquired picture: Y, Cb, Cr.
    pub fn planes<T>(&self, handle: u64, f: impl FnOnce(&[Vec<u8>; 3]) -> T) -> Option<T> {
        self.screen().look(handle, |p| f(&p.planes))
    }

    /// Releases a picture. shown: local time of display. Returns false for an unknown handle.
    pub fn release_picture(&self, handle: u64, shown: Option<Nanos>) -> bool {
        let Some(info) = self.screen().release(handle) else { return false };
        if let Some(at) = shown {
            let at = at.clamp(0, info.decoded.saturating_add(MAX_DELAY));
            lock(&self.pictures_shown).note(at, info.captured);
            let mut m = self.measures();
            let delay = m.since_picture(&info, at);
            m.sphere.meter.shown(0, at, delay);
        }
        true
    }

    /// Statistics of the 360° video; None before the first picture.
    pub fn sphere_stats(&self) -> Option<Stats> {
        let now = self.now();
        let mut s = Stats::default();
        {
            let m = self.measures();
            s.first_frame = m.sphere.first? - self.began_at;
            (s.live, s.run) = (m.sphere.meter.live(now), m.sphere.meter.run(now));
        }
        let screen = self.screen();
        (s.skipped, s.damaged, s.memory) = (screen.counters.skipped, screen.counters.damaged, screen.held());
        s.density = screen.mosaic.as_ref().map_or(0.0, |m| m.hits);
        Some(s)
    }

    /// Reads the session's clock.
    pub fn clock(&self) -> ClockInfo {
        let m = self.measures();
        let local = self.now();
        ClockInfo {
            source: m.source,
            local,
            relay: m.clock.at(local),
            error: m.clock.error(local),
            rtt: m.rtt,
            samples: m.clock.samples(),
            steps: m.clock.steps(),
        }
    }

    /// Statistics of one or all cameras; None before the camera's first frame.
    pub fn stats(&self, camera: Option<u16>) -> Option<Stats> {
        let now = self.now();
        let mut s = Stats::default();
        {
            let m = self.measures();
            let meter = match camera {
                Some(n) => m.cameras.get(&n)?,
                None => &m.all,
            };
            s.live = meter.live(now);
            s.run = meter.run(now);
            s.first_frame = m.first.map_or(0, |f| f - self.began_at);
            s.receipts = m.receipts;
        }
        let (mut shown, mut whole) = (0, 0);
        for (_, c) in self.cameras().iter().filter(|(n, _)| camera.is_none_or(|c| c == **n)) {
            let k = &c.counters;
            s.partial += k.partial;
            s.skipped += k.skipped;
            s.damaged += k.damaged;
            s.late += k.late;
            s.reset += k.reset;
            s.repaired += k.repaired;
            s.abandoned += k.abandoned;
            s.parts_lost += k.parts_lost;
            s.repairs += k.repairs;
            shown += k.shown;
            whole += k.whole;
            s.memory += c.bytes();
        }
        s.density = if whole > 0 { shown as f64 / whole as f64 } else { 0.0 };
        s.memory += self.pool.bytes();
        Some(s)
    }

    /// The ray table of a version, if known and computed.
    pub fn rays<T>(&self, camera: u16, version: u32, f: impl FnOnce(&[f32]) -> T) -> Option<T> {
        let of = |t: &&TrackInfo| t.track.camera == camera && t.version == version;
        let rays = self.status().tracks.iter().find(of)?.rays.clone();
        rays.get().map(|r| f(r))
    }

    pub(crate) fn queue_rays(&self, source: &Arc<Source>) {
        let mut w = lock(&self.work);
        let same = |s: &Arc<Source>| s.version == source.version;
        if source.track.width > 0 && source.rays.get().is_none() && !w.rays.iter().any(same) {
            w.rays.push_back(source.clone());
            self.ready.notify_one();
        }
    }

    /// Queues a frame for the decoders.
    pub(crate) fn queue(&self, camera: u16, job: Job) {
        let (unused, broke) = {
            let mut cameras = self.cameras();
            let c = cameras.entry(camera).or_default();
            let broken = c.broken;
            let unused = c.push(job);
            if !std::mem::replace(&mut c.decoding, true) {
                lock(&self.work).cameras.push_back(camera);
                self.ready.notify_one();
            }
            (unused, c.broken && !broken)
        };
        self.recycle(unused);
        if broke {
            self.command(Command::Key(camera));
        }
    }

    /// Returns buffers to the pool.
    fn recycle(&self, jobs: Vec<Job>) {
        for b in jobs.into_iter().flat_map(|j| j.objects) {
            self.pool.give(b);
        }
    }

    /// Starts n frame decoder threads, and those for 360° video. platform_video: prefer the platform's
    /// video decoder.
    pub fn decoders(self: &Arc<Self>, n: usize, platform_video: bool) -> std::io::Result<()> {
        self.screen().set_platform_video(platform_video);
        for i in 0..n.max(1) {
            let shared = self.clone();
            let t = std::thread::Builder::new().name(format!("holocast-decode-{i}")).spawn(move || shared.decode())?;
            lock(&self.threads).push(t);
        }
        let shared = self.clone();
        let t = std::thread::Builder::new().name("holocast-video".into()).spawn(move || shared.run_screen())?;
        lock(&self.threads).push(t);
        for i in 0..n.max(1) {
            let shared = self.clone();
            let t =
                std::thread::Builder::new().name(format!("holocast-tiles-{i}")).spawn(move || shared.run_tiles())?;
            lock(&self.threads).push(t);
        }
        let shared = self.clone();
        let t = std::thread::Builder::new().name("holocast-sound".into()).spawn(move || shared.run_sounds())?;
        lock(&self.threads).push(t);
        Ok(())
    }

    /// Stops the decoders.
    pub fn stop(&self) {
        self.stop_sounds();
        lock(&self.work).over = true;
        self.ready.notify_all();
        self.with_screen(|s| s.over = true);
        for t in std::mem::take(&mut *lock(&self.threads)) {
            let _ = t.join();
        }
    }

    /// Decoder thread of the 360° base.
    fn run_screen(&self) {
        let mut sphere_decoder = SphereDecoder::new(self.screen().platform_video());
        loop {
            let mut screen = self.screen();
            let (next, sphere) = loop {
                if screen.over {
                    return;
                }
                screen = match screen.next(self.now()) {
                    Next::Decode(c, sphere) => break (Ok(c), sphere),
                    Next::Compose(low, parts, sphere) => break (Err((low, parts)), sphere),
                    Next::Wait(n) => {
                        let wait = Duration::from_nanos(n.unsigned_abs());
                        self.screen_changed.wait_timeout(screen, wait).unwrap_or_else(PoisonError::into_inner).0
                    }
                    Next::Idle => self.screen_changed.wait(screen).unwrap_or_else(PoisonError::into_inner),
                };
            };
            let (run, buffer) = (screen.run(), screen.buffer());
            drop(screen);
            // A panic costs a frame, not the thread.
            let work = AssertUnwindSafe(|| match next {
                Ok(chunk) => self.decode_picture(&mut sphere_decoder, chunk, &sphere, run, buffer),
                Err((low, parts)) => self.compose_picture(low, parts, &sphere, run, buffer),
            });
            if catch_unwind(work).is_err() {
                self.note_error("bug in libholocast: panic while decoding a picture");
                sphere_decoder = SphereDecoder::new(false);
            }
        }
    }

    /// Composes a picture from the base and tiles.
    fn compose_picture(&self, low: Shown, parts: Vec<Part>, sphere: &Sphere, run: u64, mut picture: Picture) {
        compose(sphere, &low.picture, &parts, &mut picture);
        let info = PictureInfo { width: picture.width as u32, height: picture.height as u32, ..low.info };
        self.screen().composed(run, info, picture, low, parts);
    }

    /// Decoder thread of tiles.
    fn run_tiles(&self) {
        loop {
            let mut screen = self.screen();
            let (mut job, run) = loop {
                if screen.over {
                    return;
                }
                screen = match screen.next_tile(self.now()) {
                    NextTile::Decode(job) => break (*job, screen.run()),
                    NextTile::Wait(n) => {
                        let wait = Duration::from_nanos(n.unsigned_abs());
                        self.screen_changed.wait_timeout(screen, wait).unwrap_or_else(PoisonError::into_inner).0
                    }
                    NextTile::Idle => self.screen_changed.wait(screen).unwrap_or_else(PoisonError::into_inner),
                };
            };
            drop(screen);
            // A panic costs a frame, not the thread.
            let decode = |j: &mut TileJob| j.decoder.decode_sized(j.size, None, &j.chunk, &mut j.into).is_ok();
            let decoded = catch_unwind(AssertUnwindSafe(|| decode(&mut job))).unwrap_or_else(|_| {
                self.note_error("bug in libholocast: panic while decoding a tile");
                job.decoder = SphereDecoder::new(false);
                false
            });
            self.note_decoder(&mut job.decoder);
            self.pool.give(std::mem::take(&mut job.chunk.payload));
            self.with_screen(|s| s.tile_ready(run, job, decoded));
        }
    }

    /// Reports that OpenH264 has replaced the platform's decoder.
    fn note_decoder(&self, decoder: &mut SphereDecoder) {
        if let Some(note) = decoder.take_note() {
            self.note_error(&note);
            // Create the other tiles' decoders without trying the platform's.
            self.screen().set_platform_video(false);
        }
    }

    /// Decodes a frame of the 360° base.
    fn decode_picture(
        &self, sphere_decoder: &mut SphereDecoder, chunk: Chunk, sphere: &Sphere, run: u64, mut picture: Picture,
    ) {
        let began = self.now();
        let decoded = sphere_decoder.decode(sphere, &chunk, &mut picture);
        let now = self.now();
        self.note_decoder(sphere_decoder);
        let in_a_row = match &decoded {
            Ok(()) => {
                let (matrix, full_range) = sphere_decoder.color(sphere);
                let info = PictureInfo {
                    width: picture.width as u32,
                    height: picture.height as u32,
                    stereo: sphere.stereo,
                    matrix,
                    full_range,
                    turned: sphere.turned,
                    captured: chunk.timestamp,
                    arrived: chunk.arrived,
                    decoded: now,
                    decode: now - began,
                    replayed: chunk.replayed,
                };
                self.measures().count_picture(&info, sphere.framerate);
                self.screen().ready(run, info, picture);
                0
            }
            Err(_) => self.screen().damaged(run, picture),
        };
        self.pool.give(chunk.payload);
        match decoded {
            Err(why) if in_a_row >= UNDECODABLE => self.note_sphere(&why),
            Err(_) => {}
            Ok(()) => self.status().sphere_undecodable = false,
        }
    }

    /// Reports that the 360° video is undecodable.
    pub(crate) fn note_sphere(&self, why: &dyn std::fmt::Display) {
        self.note_error(&format!("the 360° video cannot be decoded: {why}"));
        self.status().sphere_undecodable = true;
    }

    fn decode(&self) {
        let mut decoder = Decoder::new();
        loop {
            let mut w = lock(&self.work);
            let (camera, source) = loop {
                if w.over {
                    return;
                }
                if let Some(c) = w.cameras.pop_front() {
                    break (Some(c), None);
                }
                if let Some(s) = w.rays.pop_front() {
                    break (None, Some(s));
                }
                w = self.ready.wait(w).unwrap_or_else(PoisonError::into_inner);
            };
            drop(w);
            if let Some(s) = source {
                s.rays.get_or_init(|| cloud::ray_table(&s.track.lens));
            }
            let Some(camera) = camera else { continue };
            // A panic costs a frame, not the thread.
            if catch_unwind(AssertUnwindSafe(|| self.decode_one(camera, &mut decoder))).is_err() {
                self.note_error("bug in libholocast: panic while decoding a frame");
                decoder = Decoder::new();
                if let Some(c) = self.cameras().get_mut(&camera) {
                    (c.decoding, c.broken) = (false, true);
                }
            }
        }
    }

    /// Decodes objects of layout W in order; the last one remains in `words`.
    fn decode_video(
        &self, decoder: &mut Option<Box<pointvideo::Decoder>>, objects: &[Vec<u8>], limits: &Limits,
        words: &mut Vec<u32>,
    ) -> Result<Frame, FrameError> {
        let decoder = decoder.get_or_insert_with(|| Box::new(pointvideo::Decoder::new(self.screen().platform_video())));
        let mut frame = Err(FrameError::new("length", "no object"));
        for o in objects {
            frame = decoder.decode(o, limits, words);
            if frame.is_err() {
                break;
            }
        }
        if let Some(note) = decoder.take_note() {
            self.note_error(&note);
            self.screen().set_platform_video(false);
        }
        frame
    }

    /// Decodes a camera's next frame.
    fn decode_one(&self, camera: u16, decoder: &mut Decoder) {
        let (job, mut words, look, mut video) = {
            let mut cameras = self.cameras();
            let Some(c) = cameras.get_mut(&camera) else { return };
            let Some(job) = c.queue.pop_front() else {
                c.decoding = false;
                return;
            };
            let video = c.video.take().filter(|_| job.source.track.layout == Layout::W);
            (job, c.free.pop().unwrap_or_default(), self.now() - c.looked >= SUBJECT_INTERVAL, video)
        };
        let track = &job.source.track;
        let grid = (track.width > 0).then_some((track.width, track.height));
        let limits = Limits { max_points: track.max_points as usize, grid };
        let began = self.now();
        let decoded = match track.layout {
            Layout::W => self.decode_video(&mut video, &job.objects, &limits, &mut words),
            _ => decoder.decode(&job.objects, &limits, &mut words),
        };
        let decoded = decoded.and_then(|f| {
            let of_track = f.header.camera == camera && f.header.layout == track.layout;
            of_track.then_some(f).ok_or_else(|| FrameError { field: "camera", detail: "frame of another track".into() })
        });
        let now = self.now();
        let decoded = decoded.map(|f| {
            let rays = job.source.rays.get();
            let patches = match rays {
                Some(r) if look && self.viewed.load(Relaxed) => {
                    viewselect::patches(&f, &words, r, &cloud::Transform::IDENTITY)
                }
                _ => None,
            };
            let subject = match rays {
                Some(r) if look => cloud::subject(&f, &words, r, &track.pose),
                None if look && grid.is_none() => cloud::subject(&f, &words, &[], &track.pose),
                _ => None,
            };
            let mut info = FrameInfo {
                header: f.header,
                points: f.points as u32,
                words_per_point: f.words_per_point() as u32,
                descriptions: f.descriptions as u32,
                bytes: job.objects.iter().map(Vec::len).sum::<usize>() as u32,
                version: job.source.version,
                decode: now - began,
                arrived: job.arrived,
                decoded: now,
                delay: 0,
                replayed: job.replayed,
                playback: job.playback,
                subject,
            };
            self.measures().decoded(&mut info, job.late);
            lock(&self.points_decoded).note(now, info.captured());
            (info, patches)
        });
        let layout = track.layout;
        let mut dropped = Vec::new();
        let (failed, broken) = {
            let mut cameras = self.cameras();
            let Some(c) = cameras.get_mut(&camera) else { return };
            c.video = video;
            let failed = match decoded {
                Ok((mut info, patches)) => {
                    c.undecodable = 0;
                    c.patches = patches.or(c.patches.take());
                    if info.subject.is_some() {
                        (c.subject, c.looked) = (info.subject, now);
                    }
                    info.subject = c.subject;
                    c.counters.shown += u64::from(info.descriptions);
                    c.counters.whole += u64::from(info.header.descriptions);
                    c.counters.partial += u64::from(info.descriptions < u32::from(info.header.descriptions));
                    if job.late && layout != Layout::W {
                        c.give_back(words);
                    } else {
                        c.keep(Decoded { info, words }, self.points_due.load(Relaxed));
                    }
                    None
                }
                Err(why) => {
                    c.counters.damaged += 1;
                    c.undecodable += 1;
                    c.give_back(words);
                    if layout == Layout::W {
                        dropped = c.resynchronize();
                    }
                    Some((c.undecodable, why))
                }
            };
            if c.queue.is_empty() {
                c.decoding = false;
            } else {
                lock(&self.work).cameras.push_back(camera);
                self.ready.notify_one();
            }
            (failed, c.broken)
        };
        self.recycle(dropped);
        if failed.is_some() && broken {
            self.command(Command::Key(camera));
        }
        match failed {
            Some((in_a_row, why)) => {
                self.note_undecodable(camera, in_a_row, &format_args!("{}: {}", why.field, why.detail))
            }
            None => {
                let mut s = self.status();
                s.undecodable = s.undecodable.filter(|c| *c != camera);
            }
        }
        for b in job.objects {
            self.pool.give(b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the platform has no decoder, OpenH264 takes over, hc_error says so, and later decoders
    /// do not try the platform's.
    #[test]
    #[cfg(not(any(windows, target_os = "android")))]
    fn openh264_replaces_the_platforms_decoder() {
        let ramp = include_bytes!("../../video/tests/data/ramp.bin");
        let item = |at: usize| {
            let n = usize::from(ramp[at]) | usize::from(ramp[at + 1]) << 8;
            ramp[at + 4..at + 4 + n].to_vec()
        };
        let config = item(0);
        let payload = item(4 + config.len());
        let shared = Shared::new();
        shared.screen().set_platform_video(true);
        let mut decoder = SphereDecoder::new(true);
        let c = Chunk { group: 0, id: 0, timestamp: 0, config: Some(config), payload, arrived: 0, replayed: false };
        let mut picture = Picture::default();
        assert!(decoder.decode_sized((64, 64), None, &c, &mut picture).is_ok());
        assert_eq!(picture.bytes(), 64 * 64 * 3 / 2);
        shared.note_decoder(&mut decoder);
        assert!(shared.with_status(|s| s.error.contains("OpenH264 decodes the video, since")));
        assert!(!shared.screen().platform_video());
    }
}
