use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;

use media::{
    ClockSource, Command, Config, Link, Matrix, Phase, PlaybackAction, PlaybackInfo, Player, Selection, Shared, Stats,
    TooMany, TrackInfo,
};
use moqt::{Event, Nanos, Session};
use net::{App, Failure, Handle, NetError, Options, Rtt, Target};

use crate::strings::{field, optional};
use crate::*;

/// Stack of the network thread, which does not recurse.
const STACK: usize = 1 << 20;
/// Maximum length of a viewer's name, bytes.
const MAX_VIEWER: usize = 256;
/// Minimum interval between gaze updates, and between views.
const GAZE_EVERY: Nanos = 40_000_000;
const VIEW_EVERY: Nanos = 100_000_000;
/// Maximum bit rate that hc_view accepts, bit/s.
const MAX_BITRATE: f64 = 1e15;

/// A connection to a relay. Free it with hc_close.
pub struct HcClient {
    shared: Arc<Shared>,
    handle: Arc<Handle>,
    thread: Option<JoinHandle<()>>,
    /// Time of the last gaze update.
    last_gaze: AtomicI64,
    /// Time of the last view.
    last_view: AtomicI64,
}

/// Connects the player to the network loop.
struct PlayerApp {
    player: Player,
    shared: Arc<Shared>,
}

impl App for PlayerApp {
    fn now(&self) -> Nanos {
        self.shared.now()
    }
    fn connected(&mut self, now: Nanos, link: u64, s: &mut Session) {
        self.player.connected(now, Link(link), s);
    }
    fn event(&mut self, now: Nanos, link: u64, s: &mut Session, e: Event) {
        self.player.event(now, Link(link), s, e);
    }
    fn path(&mut self, link: u64, rtt: Rtt) {
        let nanos = |d: std::time::Duration| d.as_nanos() as Nanos;
        let rtt = media::clock::Rtt { min: nanos(rtt.min), smoothed: nanos(rtt.smoothed) };
        self.player.path(Link(link), rtt);
    }
    fn disconnected(&mut self, link: u64) {
        self.player.disconnected(Link(link));
    }
    fn connection_error(&mut self, why: &NetError) {
        let phase = match why.failure {
            Failure::Unreachable => Phase::Unreachable,
            Failure::Certificate => Phase::Certificate,
            Failure::Refused | Failure::System => Phase::Refused,
            Failure::Lost => Phase::Lost,
        };
        self.player.connection_error(phase, &why.text);
    }
    fn wake(&mut self, now: Nanos, s: Option<&mut Session>) {
        self.player.commands(now, s);
    }
    fn tick(&mut self, now: Nanos, s: Option<&mut Session>) {
        self.player.tick(now, s);
    }
    fn deadline(&self) -> Nanos {
        self.player.deadline()
    }
    fn superseded(&mut self) -> Option<u64> {
        self.player.take_superseded().map(|l| l.0)
    }
}

/// Converts a camera argument; None is HC_ALL_CAMERAS.
fn camera(n: u32) -> Result<Option<u16>, Fault> {
    if n == HC_ALL_CAMERAS {
        return Ok(None);
    }
    u16::try_from(n).map(Some).map_err(|_| Fault::argument("the camera number exceeds 65535"))
}

fn unknown_frame() -> Fault {
    Fault::new(HC_E_HANDLE, "unknown frame handle: the frame was already released or never acquired")
}

fn micros(t: Nanos) -> u64 {
    u64::try_from(t / 1000).unwrap_or(0)
}

/// A random viewer name with eight hex digits.
fn random_name() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("unity-{:08x}", RandomState::new().hash_one(std::process::id()) as u32)
}

/// Resolves a pairing link on this thread.
pub(crate) fn pair(link: &str) -> Result<String, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|e| Fault::new(HC_E_SYSTEM, format!("cannot create an event loop: {e}")))?;
    let address = runtime.block_on(net::resolve(link)).map_err(|e| Fault::new(HC_E_URL, e.text));
    runtime.shutdown_background();
    address
}

impl HcClient {
    /// # Safety
    /// The config's strings are null or NUL-terminated.
    pub(crate) unsafe fn open(c: &HcConfig) -> Result<HcClient, Fault> {
        if c.abi_version != HC_ABI_VERSION {
            let text = format!(
                "ABI version {}, but the library has {HC_ABI_VERSION}: install plugin and package from one release",
                c.abi_version
            );
            return Err(Fault::new(HC_E_VERSION, text));
        }
        // SAFETY: guaranteed by the caller.
        let (url, hash, viewer) = unsafe {
            (
                optional(c.url, "the URL")?,
                optional(c.certificate_hash, "the certificate hash")?,
                optional(c.viewer, "the viewer's name")?,
            )
        };
        let url =
            url.ok_or_else(|| Fault::new(HC_E_URL, "the URL is missing: use the form moqt://host:port/session"))?;
        let target = Target::parse(url).map_err(|e| Fault::new(HC_E_URL, e.text))?;
        let pinned = match hash {
            None => None,
            Some(h) => Some(
                net::parse_hash(h)
                    .ok_or_else(|| Fault::argument("the certificate hash is not 64 hex digits (SHA-256)"))?,
            ),
        };
        if viewer.is_some_and(|v| v.len() > MAX_VIEWER) {
            return Err(Fault::argument("the viewer's name is longer than 256 bytes"));
        }
        let viewer = match c.flags & HC_NO_RECEIPTS {
            0 => viewer.map_or_else(random_name, str::to_owned),
            _ => String::new(),
        };
        let shared = Arc::new(Shared::new());
        let of_token = target.token().map(media::token::sessions).unwrap_or_default();
        let mut named: Vec<_> = target.session.clone().into_iter().chain(of_token).collect();
        named.sort();
        named.dedup();
        let session = target.session.clone().filter(|_| c.flags & HC_LIST_SESSIONS == 0);
        let keys = match target.keys.as_deref() {
            None => HashMap::new(),
            Some(text) => media::encryption::parse_keys(text)
                .ok_or_else(|| Fault::new(HC_E_URL, "the key after #e2e= is damaged; copy the whole link"))?,
        };
        let sealing = if keys.is_empty() { 0 } else { media::encryption::SEALING };
        let config = Config { session, named, viewer, delivery_timeout_ms: c.delivery_timeout_ms, keys };
        let options = Options {
            target,
            pinned,
            insecure: c.flags & HC_INSECURE != 0,
            implementation: concat!("holocast-unity ", env!("CARGO_PKG_VERSION")).to_owned(),
            pool: shared.pool.clone(),
            sealing,
        };
        let handle = Arc::new(Handle::default());
        let waker = handle.clone();
        shared.on_command(move || waker.wake());
        let mut client = HcClient {
            shared: shared.clone(),
            handle: handle.clone(),
            thread: None,
            last_gaze: AtomicI64::new(0),
            last_view: AtomicI64::new(0),
        };
        let system = |e: std::io::Error| Fault::new(HC_E_SYSTEM, format!("cannot create a thread or event loop: {e}"));
        let threads = match c.decode_threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get() - 1).clamp(1, 4),
            n => n.clamp(1, 16) as usize,
        };
        shared.decoders(threads, c.flags & HC_PLATFORM_VIDEO != 0).map_err(system)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(system)?;
        let spawned = std::thread::Builder::new().name("holocast-net".into()).stack_size(STACK).spawn(move || {
            let shown = shared.clone();
            let app = PlayerApp { player: Player::new(config, shared.clone()), shared };
            // A panic ends the session, not the process.
            let run = AssertUnwindSafe(|| runtime.block_on(net::run(options, app, handle)));
            if catch_unwind(run).is_err() {
                shown.note_error("bug in libholocast: its network thread panicked");
            }
            runtime.shutdown_background();
        });
        client.thread = Some(spawned.map_err(system)?);
        Ok(client)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn note(&self, text: &str) {
        self.shared.note_error(text);
    }

    pub(crate) fn error(&self) -> String {
        self.shared.with_status(|s| s.error.clone())
    }

    pub(crate) fn poll(&self, state: &mut HcState) -> i32 {
        self.shared.with_status(|s| {
            let flag = |on: bool, f: u32| if on { f } else { 0 };
            *state = HcState {
                size: state.size,
                phase: match s.phase {
                    Phase::Connecting => HC_PHASE_CONNECTING,
                    Phase::Unreachable => HC_PHASE_UNREACHABLE,
                    Phase::Certificate => HC_PHASE_CERTIFICATE,
                    Phase::Refused => HC_PHASE_REFUSED,
                    Phase::Lost => HC_PHASE_LOST,
                    Phase::Listing => HC_PHASE_LISTING,
                    Phase::Waiting => HC_PHASE_WAITING,
                    Phase::Live => HC_PHASE_LIVE,
                    Phase::Silent => HC_PHASE_SILENT,
                    Phase::Ended => HC_PHASE_ENDED,
                },
                flags: flag(s.replayed, HC_STATE_REPLAYED)
                    | flag(s.playback.duration > 0.0, HC_STATE_RECORDING)
                    | flag(s.has_catalog && s.tracks.is_empty(), HC_STATE_NO_CAMERA)
                    | flag(s.has_sphere, HC_STATE_SPHERE)
                    | flag(s.undecodable.is_some() || s.sphere_undecodable, HC_STATE_UNDECODABLE)
                    | flag(s.some_sessions, HC_STATE_SOME_SESSIONS),
                catalog_version: s.catalog_version,
                sessions_version: s.sessions_version,
                error_version: s.error_version,
                cameras: s.cameras() as u32,
                sessions: s.sessions.len() as u32,
                reconnects: s.reconnects,
                reserved: 0,
            };
        });
        HC_OK
    }

    pub(crate) fn sessions(&self) -> String {
        self.shared.with_status(|s| s.sessions.iter().flat_map(|n| [n.as_str(), "\0"]).collect())
    }

    pub(crate) fn catalog(&self) -> Vec<HcTrack> {
        let track = |i: &TrackInfo| {
            let t = &i.track;
            HcTrack {
                size: size_of::<HcTrack>() as u32,
                camera: t.camera.into(),
                layout: t.layout as u32,
                descriptions: t.descriptions.into(),
                width: t.width.into(),
                height: t.height.into(),
                max_points: t.max_points,
                delivery_timeout_ms: t.delivery_timeout_ms,
                framerate: t.framerate,
                bitrate: t.bitrate,
                depth_error: t.depth_error.unwrap_or(0.0),
                fx: t.lens.f[0],
                fy: t.lens.f[1],
                cx: t.lens.c[0],
                cy: t.lens.c[1],
                rotation: t.pose.r,
                translation: t.pose.t,
                depth_min: t.depth[0].into(),
                depth_max: t.depth[1].into(),
                flags: if i.subscribed { HC_TRACK_SUBSCRIBED } else { 0 }
                    | if i.recorded { HC_TRACK_RECORDED } else { 0 },
                version: i.version,
                quality: field(&t.quality),
                camera_name: field(&t.camera_name),
            }
        };
        self.shared.with_status(|s| s.tracks.iter().map(track).collect())
    }

    pub(crate) fn rays<T>(&self, n: u32, version: u32, f: impl FnOnce(&[f32]) -> T) -> Option<T> {
        self.shared.rays(u16::try_from(n).ok()?, version, f)
    }

    pub(crate) fn subscribe(&self, n: u32, quality: Option<&str>, descriptions: u32) -> Call {
        if n == HC_SPHERE {
            self.shared.command(Command::Sphere(true));
            return Ok(HC_OK);
        }
        let selection = Selection { quality: quality.map(str::to_owned), descriptions: descriptions.min(4) as u8 };
        self.shared.command(Command::Subscribe(camera(n)?, selection));
        Ok(HC_OK)
    }

    pub(crate) fn unsubscribe(&self, n: u32) -> Call {
        self.shared.command(if n == HC_SPHERE { Command::Sphere(false) } else { Command::Unsubscribe(camera(n)?) });
        Ok(HC_OK)
    }

    pub(crate) fn acquire(&self, n: u32, frame: &mut HcFrame) -> Call {
        let Some(n) = camera(n)? else {
            return Err(Fault::argument("frames are acquired from one camera, not HC_ALL_CAMERAS"));
        };
        let a = match self.shared.acquire(n) {
            Ok(Some(a)) => a,
            Ok(None) => return Ok(HC_EMPTY),
            Err(TooMany) => {
                return Err(Fault::new(
                    HC_E_BUSY,
                    format!("two frames of camera {n} are already acquired: release one first"),
                ))
            }
        };
        let (i, h) = (&a.info, &a.info.header);
        let partial = i.descriptions < u32::from(h.descriptions);
        *frame = HcFrame {
            size: frame.size,
            camera: n.into(),
            handle: a.handle,
            sequence: h.sequence,
            layout: h.layout as u32,
            words_per_point: i.words_per_point,
            points: i.points,
            descriptions: i.descriptions,
            descriptions_total: h.descriptions.into(),
            width: h.width.into(),
            height: h.height.into(),
            bytes: i.bytes,
            decode_us: micros(i.decode) as u32,
            captured_us: h.capture_time,
            device_us: h.device_time,
            arrived_us: micros(i.arrived),
            decoded_us: micros(i.decoded),
            delay_us: i.delay / 1000,
            flags: if i.replayed { HC_FRAME_REPLAYED } else { 0 }
                | if i.subject.is_some() { HC_FRAME_SUBJECT } else { 0 }
                | if partial { HC_FRAME_PARTIAL } else { 0 },
            track_version: i.version,
            middle: i.subject.map(|s| s.middle).unwrap_or_default(),
            floor: i.subject.map(|s| s.floor).unwrap_or_default(),
        };
        Ok(HC_OK)
    }

    /// # Safety
    /// `words` is null or has room for `capacity` words.
    pub(crate) unsafe fn copy(
        &self, handle: u64, step: u32, words: *mut u32, capacity: usize, points: &mut u32,
    ) -> Call {
        if step == 0 {
            return Err(Fault::argument("step is 0"));
        }
        let copied = self.shared.words(handle, |info, from| {
            let (per, step) = (info.words_per_point as usize, step as usize);
            let n = (info.points as usize).div_ceil(step);
            *points = n as u32;
            if words.is_null() || n * per > capacity {
                return HC_E_BUFFER;
            }
            if step == 1 {
                // SAFETY: n points fit, as checked against the capacity, and `from` holds at least
                // the copied words.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), words, (n * per).min(from.len())) };
            } else {
                for (i, p) in from.chunks_exact(per).step_by(step).enumerate() {
                    // SAFETY: n points fit, as checked, and i < n.
                    unsafe { std::ptr::copy_nonoverlapping(p.as_ptr(), words.add(i * per), per) };
                }
            }
            HC_OK
        });
        copied.ok_or_else(unknown_frame)
    }

    /// # Safety
    /// `words` is null or has room for `capacity` words.
    pub(crate) unsafe fn grid(&self, handle: u64, words: *mut u32, capacity: usize, needed: &mut usize) -> Call {
        let written = self.shared.words(handle, |info, from| {
            if info.words_per_point != 2 {
                return Err(Fault::argument("the frame's layout has no grid"));
            }
            let (width, height) = (info.header.width.into(), info.header.height.into());
            let n = cloud::grid_words(width, height);
            *needed = n;
            if words.is_null() || n > capacity {
                return Ok(HC_E_BUFFER);
            }
            // SAFETY: n words fit, as checked against the capacity, and are initialized before the
            // slice exists.
            let grid = unsafe {
                std::ptr::write_bytes(words, 0, n);
                std::slice::from_raw_parts_mut(words, n)
            };
            cloud::scatter(from, width, height, grid);
            Ok(HC_OK)
        });
        written.unwrap_or_else(|| Err(unknown_frame()))
    }

    pub(crate) fn release(&self, handle: u64, shown_us: i64) -> Call {
        match self.shared.release(handle, self.shown(shown_us)?) {
            true => Ok(HC_OK),
            false => Err(unknown_frame()),
        }
    }

    /// Converts a shown_us argument to local time; None means not shown.
    fn shown(&self, us: i64) -> Result<Option<Nanos>, Fault> {
        match us {
            HC_NOT_SHOWN => Ok(None),
            HC_SHOWN_NOW => Ok(Some(self.shared.now())),
            us if us > 0 => Ok(Some(us.saturating_mul(1000))),
            _ => Err(Fault::argument("shown_us is before 1970")),
        }
    }

    pub(crate) fn gaze(&self, direction: [f32; 3], view: [f32; 2]) -> Call {
        if direction.iter().chain(&view).any(|v| !v.is_finite()) || view.iter().any(|v| *v <= 0.0 || *v >= 180.0) {
            return Err(Fault::argument("a gaze needs a finite direction and view angles between 0 and 180 degrees"));
        }
        let now = self.shared.now();
        let before = self.last_gaze.load(Relaxed);
        if now - before >= GAZE_EVERY || now < before {
            self.last_gaze.store(now, Relaxed);
            let (direction, view) = (direction.map(f64::from), view.map(|v| f64::from(v).to_radians()));
            self.shared.command(Command::Gaze { direction, view });
        }
        Ok(HC_OK)
    }

    pub(crate) fn view(&self, v: &HcView) -> Call {
        let finite = v.rotation.iter().chain(&v.translation).all(|x| x.is_finite());
        let angles = [v.width, v.height];
        if !finite || angles.iter().any(|a| !(*a > 0.0 && *a < 180.0)) {
            return Err(Fault::argument("a view needs a finite pose and view angles between 0 and 180 degrees"));
        }
        if !(0.0..=MAX_BITRATE).contains(&v.max_bitrate) {
            return Err(Fault::argument("max_bitrate is not in 0 to 1e15 bit/s"));
        }
        let now = self.shared.now();
        let before = self.last_view.load(Relaxed);
        if now - before >= VIEW_EVERY || now < before {
            self.last_view.store(now, Relaxed);
            let tan = angles.map(|a| (a.to_radians() / 2.0).tan());
            let eye = media::Transform { r: v.rotation, t: v.translation };
            self.shared.look(media::View { eye, tan }, v.max_bitrate);
        }
        Ok(HC_OK)
    }

    pub(crate) fn acquire_picture(&self, picture: &mut HcPicture) -> Call {
        let a = match self.shared.acquire_picture() {
            Ok(Some(a)) => a,
            Ok(None) => return Ok(HC_EMPTY),
            Err(TooMany) => return Err(Fault::new(HC_E_BUSY, "two pictures are already acquired: release one first")),
        };
        let i = &a.info;
        let flag = |on: bool, f: u32| if on { f } else { 0 };
        let [yaw, pitch, roll] = i.turned.map(|v| v as f32);
        *picture = HcPicture {
            size: picture.size,
            flags: flag(i.full_range, HC_PICTURE_FULL_RANGE)
                | flag(i.stereo, HC_PICTURE_STEREO)
                | flag(i.replayed, HC_PICTURE_REPLAYED),
            handle: a.handle,
            width: i.width,
            height: i.height,
            matrix: if i.matrix == Matrix::Bt601 { HC_MATRIX_BT601 } else { HC_MATRIX_BT709 },
            decode_us: micros(i.decode) as u32,
            captured_us: micros(i.captured),
            arrived_us: micros(i.arrived),
            decoded_us: micros(i.decoded),
            yaw,
            pitch,
            roll,
            reserved: 0,
        };
        Ok(HC_OK)
    }

    /// # Safety
    /// `bytes` is null or has room for `capacity` bytes.
    pub(crate) unsafe fn copy_plane(&self, handle: u64, plane: u32, bytes: *mut u8, capacity: usize) -> Call {
        let copied = self.shared.planes(handle, |planes| {
            let Some(from) = planes.get(plane as usize) else {
                return Err(Fault::argument("a picture has planes 0, 1 and 2"));
            };
            if bytes.is_null() || from.len() > capacity {
                return Ok(HC_E_BUFFER);
            }
            // SAFETY: the plane fits, as checked.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes, from.len()) };
            Ok(HC_OK)
        });
        copied.unwrap_or_else(|| {
            Err(Fault::new(HC_E_HANDLE, "unknown picture handle: the picture was already released or never acquired"))
        })
    }

    pub(crate) fn release_picture(&self, handle: u64, shown_us: i64) -> Call {
        match self.shared.release_picture(handle, self.shown(shown_us)?) {
            true => Ok(HC_OK),
            false => Err(Fault::new(
                HC_E_HANDLE,
                "unknown picture handle: the picture was already released or never acquired",
            )),
        }
    }

    pub(crate) fn clock(&self, clock: &mut HcClock) -> i32 {
        let c = self.shared.clock();
        *clock = HcClock {
            size: clock.size,
            source: match c.source {
                ClockSource::Unknown => HC_CLOCK_UNKNOWN,
                ClockSource::Relay => HC_CLOCK_RELAY,
                ClockSource::Local => HC_CLOCK_LOCAL,
            },
            local_us: micros(c.local),
            relay_us: micros(c.relay),
            error_us: micros(c.error),
            rtt_us: micros(c.rtt.smoothed),
            min_rtt_us: micros(c.rtt.min),
            samples: c.samples as u32,
            steps: c.steps,
        };
        HC_OK
    }

    pub(crate) fn stats(&self, n: u32, stats: &mut HcStats) -> Call {
        let of = if n == HC_SPHERE { self.shared.sphere_stats() } else { self.shared.stats(camera(n)?) };
        let Some(s) = of else { return Ok(HC_EMPTY) };
        let Stats { live: l, run: r, .. } = s;
        *stats = HcStats {
            size: stats.size,
            cameras: l.cameras,
            shown_fps: l.shown_fps,
            fps: l.fps,
            delay_p50_ms: l.delay_ms[0],
            delay_p95_ms: l.delay_ms[1],
            delay_p99_ms: l.delay_ms[2],
            shown_p50_ms: l.shown_ms[0],
            shown_p95_ms: l.shown_ms[1],
            shown_p99_ms: l.shown_ms[2],
            jitter_ms: l.jitter_ms,
            mbit_per_s: l.mbit_per_s,
            points_per_frame: l.points,
            decode_ms: l.decode_ms,
            density: s.density,
            first_frame_ms: s.first_frame as f64 / 1e6,
            run_fps: r.fps,
            run_p50_ms: r.delay_ms[0],
            run_p95_ms: r.delay_ms[1],
            run_p99_ms: r.delay_ms[2],
            frames: r.frames,
            frames_shown: r.shown,
            frames_lost: r.lost,
            frames_late: r.late,
            frames_duplicate: r.duplicate,
            frames_partial: s.partial,
            frames_skipped: s.skipped,
            frames_damaged: s.damaged,
            descriptions_late: s.late,
            subgroups_reset: s.reset,
            publisher_restarts: r.restarts,
            bytes: r.bytes,
            receipts: s.receipts,
            memory_bytes: s.memory as u64,
            frames_repaired: s.repaired,
            frames_abandoned: s.abandoned,
            parts_lost: s.parts_lost,
            repair_requests: s.repairs,
        };
        Ok(HC_OK)
    }

    pub(crate) fn playback(&self, action: u32, position_ms: f64, playback: &mut HcPlayback) -> Call {
        let action = match action {
            HC_PLAYBACK_QUERY => None,
            HC_PLAYBACK_PLAY => Some(PlaybackAction::Play),
            HC_PLAYBACK_PAUSE => Some(PlaybackAction::Pause),
            HC_PLAYBACK_SEEK if position_ms.is_finite() => Some(PlaybackAction::Seek(position_ms)),
            HC_PLAYBACK_LIVE => Some(PlaybackAction::Live),
            _ => return Err(Fault::argument("unknown playback action, or position_ms is not finite")),
        };
        let p: PlaybackInfo = self.shared.with_status(|s| s.playback);
        let flag = |on: bool, f: u32| if on { f } else { 0 };
        *playback = HcPlayback {
            size: playback.size,
            flags: flag(p.duration > 0.0, HC_PLAYBACK_AVAILABLE)
                | flag(p.playing, HC_PLAYBACK_PLAYING)
                | flag(p.live, HC_PLAYBACK_IS_LIVE)
                | flag(p.waiting, HC_PLAYBACK_WAITING),
            duration_ms: p.duration,
            position_ms: p.position,
        };
        match action {
            None => Ok(HC_OK),
            Some(_) if p.duration == 0.0 => Err(Fault::new(HC_E_STATE, "the session has no seekable recording")),
            Some(a) => {
                self.shared.command(Command::Playback(a));
                Ok(HC_OK)
            }
        }
    }
}

impl Drop for HcClient {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
        self.shared.stop();
    }
}
