//! libholocast: a Holocast viewer without rendering, behind a C interface. `include/holocast.h` is
//! generated from this file; its introductory comment (cbindgen.toml) states the rules for callers.

#![allow(missing_docs)] // fields are named as in the header, which documents the ambiguous ones

mod client;
mod decode;
mod sound;
mod strings;

use std::ffi::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};

pub use client::HcClient;
pub use sound::{
    hc_sound_close, hc_sound_open, hc_sound_read, hc_sound_stats, hc_sounds, HcSound, HcSoundReader, HcSoundStats,
};

/// Returned by hc_abi_version. Changes with every change to a function or struct.
pub const HC_ABI_VERSION: u32 = 8;

/// Results. Negative values are errors; hc_error returns the message.
pub const HC_OK: i32 = 0;
/// Not available yet: no new frame, ray table still computing, or unknown camera.
pub const HC_EMPTY: i32 = 1;
/// Null or misaligned pointer, invalid UTF-8, or value out of range.
pub const HC_E_ARGUMENT: i32 = -1;
/// ABI version or struct size mismatch.
pub const HC_E_VERSION: i32 = -2;
/// Buffer too small; the required size is in `needed`, `count` or the frame's `points`.
pub const HC_E_BUFFER: i32 = -3;
/// Frame or picture already released or never acquired.
pub const HC_E_HANDLE: i32 = -4;
/// Two frames of the camera, or two pictures, are already acquired, or the sound is already open.
pub const HC_E_BUSY: i32 = -5;
/// Invalid URL.
pub const HC_E_URL: i32 = -6;
/// Not possible in this state: playback control without a recording.
pub const HC_E_STATE: i32 = -7;
/// The objects do not decode to a frame.
pub const HC_E_DECODE: i32 = -8;
/// The operating system refused a thread or a socket.
pub const HC_E_SYSTEM: i32 = -9;
/// A bug in the library; close the client.
pub const HC_E_PANIC: i32 = -99;

/// HcState.phase: connecting for the first time.
pub const HC_PHASE_CONNECTING: u32 = 0;
/// The relay does not answer; retrying.
pub const HC_PHASE_UNREACHABLE: u32 = 1;
/// The relay's certificate is not trusted; retrying.
pub const HC_PHASE_CERTIFICATE: u32 = 2;
/// The relay refused the session, or its content is unsupported; see hc_error.
pub const HC_PHASE_REFUSED: u32 = 3;
/// The connection was lost; retrying.
pub const HC_PHASE_LOST: u32 = 4;
/// The URL names no session; hc_sessions lists the relay's.
pub const HC_PHASE_LISTING: u32 = 5;
/// Connected, but the session has no publisher.
pub const HC_PHASE_WAITING: u32 = 6;
/// The catalog and frames have arrived.
pub const HC_PHASE_LIVE: u32 = 7;
/// Subscribed, but no frame for three seconds.
pub const HC_PHASE_SILENT: u32 = 8;
/// The publisher ended the session or disconnected. Resumes if it returns.
pub const HC_PHASE_ENDED: u32 = 9;

/// HcState.flags: frames come from a recording; their delays count from arrival.
pub const HC_STATE_REPLAYED: u32 = 1;
/// The recording supports seeking (hc_playback).
pub const HC_STATE_RECORDING: u32 = 2;
/// The catalog has no camera.
pub const HC_STATE_NO_CAMERA: u32 = 4;
/// The session has 360° video: hc_subscribe with HC_SPHERE.
pub const HC_STATE_SPHERE: u32 = 8;
/// The relay refused the full session list: hc_sessions returns only those named by the token and the URL.
pub const HC_STATE_SOME_SESSIONS: u32 = 16;
/// A camera or the 360° video has delivered only undecodable frames; see hc_error.
pub const HC_STATE_UNDECODABLE: u32 = 32;

/// HcConfig.flags: send no receipts.
pub const HC_NO_RECEIPTS: u32 = 1;
/// Fetch the certificate hash from the relay over plain HTTP. Loopback relays do not need this.
pub const HC_INSECURE: u32 = 2;
/// List the relay's sessions even if the URL names one.
pub const HC_LIST_SESSIONS: u32 = 4;
/// Decode 360° video with the platform's decoder (Media Foundation, MediaCodec). If that fails,
/// OpenH264 takes over, and hc_error says so.
pub const HC_PLATFORM_VIDEO: u32 = 8;

/// HcSubscribe.camera and hc_stats: all cameras of the session.
pub const HC_ALL_CAMERAS: u32 = 0xffff_ffff;
/// HcSubscribe.camera, hc_unsubscribe and hc_stats: the 360° video, which HC_ALL_CAMERAS does not
/// include.
pub const HC_SPHERE: u32 = 0xffff_fffe;

/// HcPicture.matrix: ITU-R BT.709.
pub const HC_MATRIX_BT709: u32 = 0;
/// ITU-R BT.601.
pub const HC_MATRIX_BT601: u32 = 1;

/// HcPicture.flags: samples range from 0 to 255 instead of 16 to 235 (240 for chroma).
pub const HC_PICTURE_FULL_RANGE: u32 = 1;
/// The picture is stereoscopic: left eye in the top half, right eye in the bottom half.
pub const HC_PICTURE_STEREO: u32 = 2;
/// From a recording, see HC_STATE_REPLAYED.
pub const HC_PICTURE_REPLAYED: u32 = 4;

/// HcTrack.flags: subscribed.
pub const HC_TRACK_SUBSCRIBED: u32 = 1;
/// Part of the replayed recording.
pub const HC_TRACK_RECORDED: u32 = 2;

/// HcTrack.layout and HcFrame.layout: sensor grid.
pub const HC_LAYOUT_A: u32 = 1;
/// Unorganized points.
pub const HC_LAYOUT_B: u32 = 2;
/// LiveScan3D records.
pub const HC_LAYOUT_C: u32 = 3;
/// Sensor grid coded as video; decoded frames have the words of HC_LAYOUT_A.
pub const HC_LAYOUT_W: u32 = 4;

/// Rows and columns that hc_frame_grid adds on each side of the grid.
pub const HC_GRID_BORDER: u32 = 4;
const _: () = assert!(HC_GRID_BORDER as usize == cloud::BORDER);

/// shown_us of a frame that was not shown.
pub const HC_NOT_SHOWN: i64 = 0;
/// shown_us of a frame that is shown now.
pub const HC_SHOWN_NOW: i64 = -1;

/// HcFrame.flags: from a recording, see HC_STATE_REPLAYED.
pub const HC_FRAME_REPLAYED: u32 = 1;
/// `middle` and `floor` are set.
pub const HC_FRAME_SUBJECT: u32 = 2;
/// Some descriptions are missing.
pub const HC_FRAME_PARTIAL: u32 = 4;

/// HcClock.source: no relay timestamp yet.
pub const HC_CLOCK_UNKNOWN: u32 = 0;
/// Relay timestamps.
pub const HC_CLOCK_RELAY: u32 = 1;
/// The local clock, because the relay sends no timestamps.
pub const HC_CLOCK_LOCAL: u32 = 2;

/// hc_playback action: only query the state.
pub const HC_PLAYBACK_QUERY: u32 = 0;
/// Resume.
pub const HC_PLAYBACK_PLAY: u32 = 1;
/// Pause.
pub const HC_PLAYBACK_PAUSE: u32 = 2;
/// Seek to position_ms.
pub const HC_PLAYBACK_SEEK: u32 = 3;
/// Return to the replay shared by all viewers.
pub const HC_PLAYBACK_LIVE: u32 = 4;

/// HcPlayback.flags: the session replays a recording.
pub const HC_PLAYBACK_AVAILABLE: u32 = 1;
/// Playing, not paused.
pub const HC_PLAYBACK_PLAYING: u32 = 2;
/// Following the replay shared by all viewers.
pub const HC_PLAYBACK_IS_LIVE: u32 = 4;
/// Waiting for data.
pub const HC_PLAYBACK_WAITING: u32 = 8;

/// First HcSound.sound of the tracks that are not microphones: the sound of 360° video.
pub const HC_SOUND_FILM: u32 = 0x1_0000;

/// HcSound.flags: open.
pub const HC_SOUND_OPEN: u32 = 1;
/// HcSound.flags: `position` is set.
pub const HC_SOUND_PLACED: u32 = 2;
/// HcSoundStats.flags: sound is being played.
pub const HC_SOUND_PLAYING: u32 = 4;
/// HcSoundStats.flags: `delay_ms` is set.
pub const HC_SOUND_DELAY: u32 = 8;
/// HcSoundStats.flags: `lip_offset_ms` is set.
pub const HC_SOUND_LIP_OFFSET: u32 = 16;

/// Maximum samples of one hc_sound_read.
const MAX_READ: usize = 1 << 20;

/// Arguments of hc_open. Strings are copied.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HcConfig {
    pub size: u32,
    /// The caller's HC_ABI_VERSION.
    pub abi_version: u32,
    /// moqt://host[:port]/session, or without a session to list the relay's. The default port is
    /// 443. The keys of an encrypted session follow as #e2e=ID.SECRET,…; they are not sent. With keys,
    /// sessions that are not encrypted are refused.
    pub url: *const c_char,
    /// SHA-256 of the relay's certificate, hex; null or "" uses the public CAs.
    pub certificate_hash: *const c_char,
    /// Name of the receipts track, receipts/<viewer>; null or "" selects unity-<random>.
    pub viewer: *const c_char,
    /// HC_NO_RECEIPTS, HC_INSECURE, HC_LIST_SESSIONS, HC_PLATFORM_VIDEO.
    pub flags: u32,
    /// Delivery timeout of objects, ms; 0 uses the catalog's.
    pub delivery_timeout_ms: u32,
    /// Decoder threads, at most 16, and as many again for 360° tiles; 0 selects the number of
    /// processors minus one, clamped to 1–4.
    pub decode_threads: u32,
    pub reserved: u32,
}

/// State of a client.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcState {
    pub size: u32,
    /// HC_PHASE_…
    pub phase: u32,
    /// HC_STATE_…
    pub flags: u32,
    /// Changes whenever the result of hc_catalog does, including its poses.
    pub catalog_version: u32,
    /// Changes whenever hc_sessions does.
    pub sessions_version: u32,
    /// Changes whenever hc_error does.
    pub error_version: u32,
    /// Cameras in the catalog.
    pub cameras: u32,
    /// Sessions in hc_sessions.
    pub sessions: u32,
    /// Number of reconnects.
    pub reconnects: u32,
    pub reserved: u32,
}

/// One quality of one camera.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HcTrack {
    pub size: u32,
    pub camera: u32,
    /// HC_LAYOUT_…
    pub layout: u32,
    /// 1 or 4.
    pub descriptions: u32,
    /// Grid size in pixels; 0 for layouts B and C.
    pub width: u32,
    pub height: u32,
    /// Maximum points per frame.
    pub max_points: u32,
    /// Milliseconds; 0 = none.
    pub delivery_timeout_ms: u32,
    /// Frames per second; 0 = unknown.
    pub framerate: f64,
    /// Maximum bits per second; 0 = unknown.
    pub bitrate: u64,
    /// Root mean square error that coding with loss adds to depth, millimetres; 0 = unknown. It changes
    /// over time.
    pub depth_error: f64,
    /// Intrinsics of the grid, pixels.
    pub fx: f64,
    pub fy: f64,
    pub cx: f64,
    pub cy: f64,
    /// Camera to studio rotation, row-major.
    pub rotation: [f64; 9],
    /// Camera to studio translation, millimetres.
    pub translation: [f64; 3],
    /// Depth range, millimetres.
    pub depth_min: u32,
    pub depth_max: u32,
    /// HC_TRACK_…
    pub flags: u32,
    /// Changes with the ray table; equals HcFrame.track_version.
    pub version: u32,
    pub quality: [c_char; 32],
    pub camera_name: [c_char; 64],
}

/// Arguments of hc_subscribe.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HcSubscribe {
    pub size: u32,
    /// Camera number, HC_ALL_CAMERAS or HC_SPHERE. HC_SPHERE ignores quality and descriptions.
    pub camera: u32,
    /// Quality by name. Null, "" or an unknown name selects the highest bit rate; null and "" also let
    /// hc_view choose.
    pub quality: *const c_char,
    /// Maximum descriptions to receive per frame; 0 = all.
    pub descriptions: u32,
    pub reserved: u32,
}

/// Argument of hc_view: the viewer's eye.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcView {
    pub size: u32,
    pub reserved: u32,
    /// Studio space to eye space (x right, y down, z forward): rotation, row-major.
    pub rotation: [f64; 9],
    /// Its translation, millimetres.
    pub translation: [f64; 3],
    /// Field of view, degrees.
    pub width: f64,
    pub height: f64,
    /// Maximum bits per second of all cameras; 0 = as much as arrives.
    pub max_bitrate: f64,
}

/// A decoded frame. Points are words_per_point 32-bit words each:
///   layouts A and W, 2 words: X | Y << 12 | R << 24 of the pixel; depth mm | G << 16 | B << 24
///   B and C, 3 words:  X | Y << 16; Z | R << 16 | G << 24; B   (X, Y, Z: 16 bits, two's complement, mm)
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcFrame {
    pub size: u32,
    pub camera: u32,
    pub handle: u64,
    pub sequence: u32,
    /// HC_LAYOUT_…
    pub layout: u32,
    pub words_per_point: u32,
    pub points: u32,
    /// Descriptions received.
    pub descriptions: u32,
    /// Descriptions of the complete frame.
    pub descriptions_total: u32,
    pub width: u32,
    pub height: u32,
    /// Size of the received objects.
    pub bytes: u32,
    /// Decoding time.
    pub decode_us: u32,
    /// Middle of the exposure, relay clock.
    pub captured_us: u64,
    /// Sensor's own clock.
    pub device_us: u64,
    /// Arrival of the last byte of the first object, local clock.
    pub arrived_us: u64,
    /// End of decoding, local clock.
    pub decoded_us: u64,
    /// Delay from capture to the end of decoding, on the relay's clock; for a recording, from arrival.
    pub delay_us: i64,
    /// HC_FRAME_…
    pub flags: u32,
    /// HcTrack.version of the frame's track.
    pub track_version: u32,
    /// Mean of the nearer half of the points, camera coordinates, mm.
    pub middle: [f32; 3],
    /// Studio y coordinate of the floor, mm.
    pub floor: f32,
}

/// A decoded 360° picture: equirectangular, 4:2:0, top row first. The picture's centre is straight
/// ahead; longitude increases to the right.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcPicture {
    pub size: u32,
    /// HC_PICTURE_…
    pub flags: u32,
    pub handle: u64,
    /// Luma size in pixels, both eyes included. Chroma planes have half the width and height,
    /// rounded up.
    pub width: u32,
    pub height: u32,
    /// HC_MATRIX_…
    pub matrix: u32,
    /// Decoding time.
    pub decode_us: u32,
    /// Relay clock.
    pub captured_us: u64,
    /// Local clock.
    pub arrived_us: u64,
    /// Local clock.
    pub decoded_us: u64,
    /// Rotation of the sphere (Spherical Video V2, prhd), degrees.
    pub yaw: f32,
    pub pitch: f32,
    pub roll: f32,
    pub reserved: u32,
}

/// The session's clock.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcClock {
    pub size: u32,
    /// HC_CLOCK_…
    pub source: u32,
    pub local_us: u64,
    /// The same moment on the relay's clock; equals local_us until the relay's clock is known.
    pub relay_us: u64,
    /// Error bound of the estimate.
    pub error_us: u64,
    /// Smoothed round-trip time.
    pub rtt_us: u64,
    /// Minimum round-trip time.
    pub min_rtt_us: u64,
    /// Timestamps in use.
    pub samples: u32,
    /// Clock steps detected.
    pub steps: u32,
}

/// Statistics. Rates cover the last second, percentiles and means the last five seconds, counts the
/// whole run.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcStats {
    pub size: u32,
    /// Cameras that have delivered a frame.
    pub cameras: u32,
    /// Distinct frames shown per second, averaged over cameras.
    pub shown_fps: f64,
    /// Distinct frames decoded per second, averaged over cameras.
    pub fps: f64,
    /// Capture-to-decode delay, ms.
    pub delay_p50_ms: f64,
    pub delay_p95_ms: f64,
    pub delay_p99_ms: f64,
    /// Capture-to-display delay, ms.
    pub shown_p50_ms: f64,
    pub shown_p95_ms: f64,
    pub shown_p99_ms: f64,
    /// Jitter of the capture-to-decode delay, ms (RFC 3550).
    pub jitter_ms: f64,
    pub mbit_per_s: f64,
    pub points_per_frame: f64,
    pub decode_ms: f64,
    /// Fraction of descriptions received, over the run. HC_SPHERE: fraction of the viewport covered
    /// by tiles, last second.
    pub density: f64,
    /// Time from hc_open to the first decoded frame; 0 = none yet.
    pub first_frame_ms: f64,
    /// Over the run: distinct frames decoded per second since the first, and their delay.
    pub run_fps: f64,
    pub run_p50_ms: f64,
    pub run_p95_ms: f64,
    pub run_p99_ms: f64,
    /// Distinct frames decoded.
    pub frames: u64,
    /// Frames released as shown.
    pub frames_shown: u64,
    /// Gaps in the sequence numbers.
    pub frames_lost: u64,
    /// Frames after a later one.
    pub frames_late: u64,
    /// Frames received twice.
    pub frames_duplicate: u64,
    /// Frames with missing descriptions.
    pub frames_partial: u64,
    /// Frames skipped because decoding fell behind.
    pub frames_skipped: u64,
    /// Undecodable frames.
    pub frames_damaged: u64,
    /// Descriptions that arrived after their frame was decoded.
    pub descriptions_late: u64,
    /// Subgroups reset by the relay or publisher.
    pub subgroups_reset: u64,
    pub publisher_restarts: u64,
    /// Media bytes received.
    pub bytes: u64,
    pub receipts: u64,
    /// Memory currently held by frames and objects.
    pub memory_bytes: u64,
    /// Datagram delivery: frames completed by fetching missing parts.
    pub frames_repaired: u64,
    /// Frames dropped as incomplete, and their missing parts.
    pub frames_abandoned: u64,
    pub parts_lost: u64,
    /// Fetch requests for missing parts.
    pub repair_requests: u64,
}

/// State of a replayed recording.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcPlayback {
    pub size: u32,
    /// HC_PLAYBACK_…
    pub flags: u32,
    /// Length of the recording, ms; 0 if there is none.
    pub duration_ms: f64,
    pub position_ms: f64,
}

/// An error result with its message for hc_error.
struct Fault(i32, String);

impl Fault {
    fn new(code: i32, text: impl Into<String>) -> Self {
        Fault(code, text.into())
    }

    fn argument(text: &str) -> Self {
        Fault::new(HC_E_ARGUMENT, text)
    }
}

type Call = Result<i32, Fault>;

/// Runs a call. Catches panics, and stores the message of an error for hc_error.
fn guard(client: Option<&HcClient>, f: impl FnOnce() -> Call) -> i32 {
    // A panic may leave counts or buffers inconsistent, but cannot cause invalid memory access.
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|p| {
        let text = p.downcast_ref::<&str>().copied().or_else(|| p.downcast_ref::<String>().map(String::as_str));
        Err(Fault::new(HC_E_PANIC, format!("bug in libholocast: {}", text.unwrap_or("panic"))))
    });
    match result {
        Ok(code) => code,
        Err(Fault(code, text)) => {
            strings::note(client, text);
            code
        }
    }
}

/// Checks the size of a caller's struct.
///
/// # Safety
/// `p` is null or points to a struct that begins with its own size in bytes and is valid for the
/// call.
unsafe fn sized<'a, T>(p: *mut T) -> Result<&'a mut T, Fault> {
    if p.is_null() || !p.is_aligned() {
        return Err(Fault::argument("a pointer is null or misaligned"));
    }
    // SAFETY: every struct of the interface begins with a u32.
    let size = unsafe { p.cast::<u32>().read() };
    let want = size_of::<T>();
    if size as usize != want {
        let text = format!(
            "a struct has {size} bytes, but the library expects {want}: install plugin and package from one release"
        );
        return Err(Fault::new(HC_E_VERSION, text));
    }
    // SAFETY: guaranteed by the caller; the size was checked.
    Ok(unsafe { &mut *p })
}

/// Like `sized`, for a struct that is only read.
///
/// # Safety
/// See `sized`.
unsafe fn sized_input<'a, T>(p: *const T) -> Result<&'a T, Fault> {
    // SAFETY: same contract as `sized`; nothing is written through the result.
    unsafe { sized(p.cast_mut()) }.map(|r| &*r)
}

/// Checks a pointer to an output value.
///
/// # Safety
/// `p` is null or writable for the duration of the call.
unsafe fn out<'a, T>(p: *mut T) -> Result<&'a mut T, Fault> {
    if p.is_null() || !p.is_aligned() {
        return Err(Fault::argument("a pointer is null or misaligned"));
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { &mut *p })
}

/// Returns the library's HC_ABI_VERSION. Call this first.
#[no_mangle]
pub extern "C" fn hc_abi_version() -> u32 {
    HC_ABI_VERSION
}

/// Starts connecting and returns immediately. Sets *client to null unless the result is HC_OK.
///
/// # Safety
/// Pointers are null or valid as documented in the struct.
#[no_mangle]
pub unsafe extern "C" fn hc_open(config: *const HcConfig, client: *mut *mut HcClient) -> i32 {
    guard(None, || {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out(client) }?;
        *place = std::ptr::null_mut();
        // SAFETY: guaranteed by the caller.
        let config = unsafe { sized_input(config) }?;
        // SAFETY: guaranteed by the caller.
        let opened = unsafe { HcClient::open(config) }?;
        *place = Box::into_raw(Box::new(opened));
        Ok(HC_OK)
    })
}

/// Converts a caller's handle.
///
/// # Safety
/// `client` is null or came from hc_open and is not closed.
unsafe fn client<'a>(client: *mut HcClient) -> Option<&'a HcClient> {
    // SAFETY: guaranteed by the caller; threads share the client and never mutate it through the
    // pointer.
    unsafe { client.as_ref() }
}

/// Runs a call of a client.
///
/// # Safety
/// See `client`.
unsafe fn with(c: *mut HcClient, f: impl FnOnce(&HcClient) -> Call) -> i32 {
    // SAFETY: guaranteed by the caller.
    let c = unsafe { client(c) };
    guard(c, || match c {
        Some(c) => f(c),
        None => Err(Fault::argument("the client is null")),
    })
}

/// Disconnects and frees the client with all its frames. Accepts null.
///
/// # Safety
/// `client` is null or came from hc_open and is not closed; no other call is running.
#[no_mangle]
pub unsafe extern "C" fn hc_close(client: *mut HcClient) {
    if !client.is_null() {
        // SAFETY: guaranteed by the caller.
        let client = unsafe { Box::from_raw(client) };
        guard(None, || {
            drop(client);
            Ok(HC_OK)
        });
    }
}

/// Reads the client's state. Call this once per rendered picture.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_poll(client: *mut HcClient, state: *mut HcState) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| Ok(c.poll(sized(state)?))) }
}

/// Returns the client's latest error message, or "". With a null client, returns the message of the
/// calling thread's last failed hc_open, hc_decode or hc_pair.
///
/// # Safety
/// Pointers are null or valid; `buffer` has room for `capacity` bytes.
#[no_mangle]
pub unsafe extern "C" fn hc_error(
    client: *mut HcClient, buffer: *mut c_char, capacity: usize, needed: *mut usize,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    let c = unsafe { crate::client(client) };
    guard(c, || {
        let text = strings::latest(c);
        // SAFETY: guaranteed by the caller.
        unsafe { strings::copy(text.as_bytes(), buffer, capacity, needed) }
    })
}

/// Returns the relay's session names, sorted, each NUL-terminated. HcState.sessions has their
/// number.
///
/// # Safety
/// Pointers are null or valid; `buffer` has room for `capacity` bytes.
#[no_mangle]
pub unsafe extern "C" fn hc_sessions(
    client: *mut HcClient, buffer: *mut c_char, capacity: usize, needed: *mut usize,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| strings::copy(c.sessions().as_bytes(), buffer, capacity, needed)) }
}

/// Returns the catalog's point-cloud tracks by camera, each camera's best track first. Set
/// tracks[0].size. To query the count, pass null tracks with capacity 0.
///
/// # Safety
/// Pointers are null or valid; `tracks` has room for `capacity` of them.
#[no_mangle]
pub unsafe extern "C" fn hc_catalog(
    client: *mut HcClient, tracks: *mut HcTrack, capacity: u32, count: *mut u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with(client, |c| {
            let list = c.catalog();
            let n = list.len();
            *out(count)? = n as u32;
            if n > capacity as usize {
                return Ok(HC_E_BUFFER);
            }
            if capacity > 0 {
                sized(tracks)?;
            }
            for (i, t) in list.into_iter().enumerate() {
                tracks.add(i).write(t);
            }
            Ok(HC_OK)
        })
    }
}

/// Returns X and Y of each pixel's ray at z = 1, interleaved, row-major: 2 × width × height floats.
/// Pixels without a ray have NaN and 0. `version` is that of HcTrack. The tables of subscribed tracks
/// are computed in the background; returns HC_EMPTY until then, or if no track has that version.
///
/// # Safety
/// Pointers are null or valid; `rays` has room for `capacity` floats.
#[no_mangle]
pub unsafe extern "C" fn hc_rays(
    client: *mut HcClient, camera: u32, version: u32, rays: *mut f32, capacity: usize, needed: *mut usize,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with(client, |c| {
            let needed = out(needed)?;
            *needed = 0;
            let copied = c.rays(camera, version, |table| {
                *needed = table.len();
                if rays.is_null() || table.len() > capacity {
                    return HC_E_BUFFER;
                }
                std::ptr::copy_nonoverlapping(table.as_ptr(), rays, table.len());
                HC_OK
            });
            Ok(copied.unwrap_or(HC_EMPTY))
        })
    }
}

/// Subscribes to a camera, whether or not it is in the catalog yet. The subscription persists
/// across restarts of publisher, relay and connection until hc_unsubscribe. Call again to change
/// quality or descriptions.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_subscribe(client: *mut HcClient, subscribe: *const HcSubscribe) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with(client, |c| {
            let s = sized_input(subscribe)?;
            c.subscribe(s.camera, strings::optional(s.quality, "the quality")?, s.descriptions)
        })
    }
}

/// Unsubscribes from a camera, HC_ALL_CAMERAS or HC_SPHERE.
///
/// # Safety
/// `client` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_unsubscribe(client: *mut HcClient, camera: u32) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.unsubscribe(camera)) }
}

/// Reports the viewport in the 360° video, which selects the tiles to fetch in high resolution: the
/// gaze direction (right, up, forward) in picture coordinates, before the sphere's rotation, and
/// the field of view in degrees. Call this once per rendered picture. Without it only the
/// low-resolution base is received.
///
/// # Safety
/// `client` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_gaze(
    client: *mut HcClient, right: f32, up: f32, forward: f32, width: f32, height: f32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.gaze([right, up, forward], [width, height])) }
}

/// Reports the viewer's eye, which chooses the quality of each camera that hc_subscribe subscribed to
/// without one: those in view get the better ones, within `max_bitrate` or, if that is 0, once frames
/// are lost. Call this once per rendered picture. HC_TRACK_SUBSCRIBED marks the chosen tracks.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_view(client: *mut HcClient, view: *const HcView) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.view(sized_input(view)?)) }
}

/// Acquires the camera's newest frame, or returns HC_EMPTY if there is no new one. Release it with
/// hc_frame_release.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_frame_acquire(client: *mut HcClient, camera: u32, frame: *mut HcFrame) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.acquire(camera, sized(frame)?)) }
}

/// Copies every step-th point (1 = all) of an acquired frame. `capacity` is the size of `words`, in
/// words. `*points` receives the number of points copied or, on HC_E_BUFFER, the number that would
/// be.
///
/// # Safety
/// Pointers are null or valid; `words` has room for `capacity` words.
#[no_mangle]
pub unsafe extern "C" fn hc_frame_copy(
    client: *mut HcClient, handle: u64, step: u32, words: *mut u32, capacity: usize, points: *mut u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.copy(handle, step, words, capacity, out(points)?)) }
}

/// Writes the points of an acquired frame of layout A or W at their pixels, two words each as in
/// HcFrame. The grid has HC_GRID_BORDER more rows and columns on each side; the border and pixels
/// without a point are 0. `capacity` is the size of `words`; `*needed` receives the size of the grid,
/// in words.
///
/// # Safety
/// Pointers are null or valid; `words` has room for `capacity` words.
#[no_mangle]
pub unsafe extern "C" fn hc_frame_grid(
    client: *mut HcClient, handle: u64, words: *mut u32, capacity: usize, needed: *mut usize,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.grid(handle, words, capacity, out(needed)?)) }
}

/// Releases a frame, and sends its receipt if it was shown. `shown_us` is the local time at which it
/// was shown, HC_SHOWN_NOW or HC_NOT_SHOWN.
///
/// # Safety
/// `client` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_frame_release(client: *mut HcClient, handle: u64, shown_us: i64) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.release(handle, shown_us)) }
}

/// Acquires the 360° picture that is due, or returns HC_EMPTY if there is no new one. A picture is
/// due the catalog's targetLatency after its capture or, under hc_playback, at its position in the
/// recording. Release it with hc_picture_release.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_picture_acquire(client: *mut HcClient, picture: *mut HcPicture) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.acquire_picture(sized(picture)?)) }
}

/// Copies a plane of an acquired picture, without row padding. `plane` is 0 for Y, 1 for Cb and 2 for
/// Cr. `capacity` is the size of `bytes`.
///
/// # Safety
/// Pointers are null or valid; `bytes` has room for `capacity` bytes.
#[no_mangle]
pub unsafe extern "C" fn hc_picture_copy(
    client: *mut HcClient, handle: u64, plane: u32, bytes: *mut u8, capacity: usize,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.copy_plane(handle, plane, bytes, capacity)) }
}

/// Releases a picture. `shown_us` is the local time at which it was shown, HC_SHOWN_NOW or
/// HC_NOT_SHOWN.
///
/// # Safety
/// `client` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_picture_release(client: *mut HcClient, handle: u64, shown_us: i64) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.release_picture(handle, shown_us)) }
}

/// Reads the session's clock.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_clock(client: *mut HcClient, clock: *mut HcClock) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| Ok(c.clock(sized(clock)?))) }
}

/// Returns the statistics of a camera, HC_ALL_CAMERAS or HC_SPHERE. The result is HC_EMPTY until the
/// first frame.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_stats(client: *mut HcClient, camera: u32, stats: *mut HcStats) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.stats(camera, sized(stats)?)) }
}

/// Controls a recording and returns its state. Actions take effect asynchronously. Only
/// HC_PLAYBACK_SEEK uses position_ms.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_playback(
    client: *mut HcClient, action: u32, position_ms: f64, playback: *mut HcPlayback,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.playback(action, position_ms, sized(playback)?)) }
}

/// Decodes the objects of one frame (its descriptions in any order) in layout A, B or C without a client. To query
/// HcFrame.points and words_per_point, pass null words. `capacity` is the size of `words`, in words.
///
/// # Safety
/// Pointers are null or valid; `objects` and `lengths` have `count` entries, each object has the
/// given number of bytes, and `words` has room for `capacity` words.
#[no_mangle]
pub unsafe extern "C" fn hc_decode(
    objects: *const *const u8, lengths: *const usize, count: u32, max_points: u32, words: *mut u32, capacity: usize,
    frame: *mut HcFrame,
) -> i32 {
    guard(None, || {
        // SAFETY: guaranteed by the caller.
        unsafe { decode::decode(objects, lengths, count, max_points, words, capacity, sized(frame)?) }
    })
}

/// Returns the address behind a pairing link, `http://host:port/pair/code#key`, as `holocast pair`
/// prints it. The address is moqt://host:port/session?token=…#hash; pass the part before # to hc_open
/// as the URL, and the hash as the certificate hash. Waits up to three seconds for the relay: call it
/// on a separate thread.
///
/// # Safety
/// Pointers are null or valid; `link` is NUL-terminated; `buffer` has room for `capacity` bytes.
#[no_mangle]
pub unsafe extern "C" fn hc_pair(link: *const c_char, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> i32 {
    guard(None, || {
        // SAFETY: guaranteed by the caller.
        let link = unsafe { strings::optional(link, "link") }?.ok_or_else(|| Fault::argument("the link is missing"))?;
        let address = client::pair(link)?;
        // SAFETY: guaranteed by the caller.
        unsafe { strings::copy(address.as_bytes(), buffer, capacity, needed) }
    })
}
