//! libholocast: a Holocast viewer without a picture, behind a C interface. `include/holocast.h` is generated from
//! this file; what is said there binds it.

#![allow(missing_docs)] // what the names say, and the header

mod client;
mod decode;
mod strings;

use std::ffi::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};

pub use client::HcClient;

/// What hc_abi_version returns. It changes with every change to a function or struct.
pub const HC_ABI_VERSION: u32 = 5;

/// Results: 0 and above are no errors. hc_error has a sentence for those below.
pub const HC_OK: i32 = 0;
/// Nothing is there (yet): no new frame, a ray table that is being computed, no such camera so far.
pub const HC_EMPTY: i32 = 1;
/// A null pointer, a string that is no UTF-8, a value out of its range.
pub const HC_E_ARGUMENT: i32 = -1;
/// The struct's size or the ABI version is another than the library's.
pub const HC_E_VERSION: i32 = -2;
/// The buffer is too small; what it takes is in `needed`, `count` or the frame's `points`.
pub const HC_E_BUFFER: i32 = -3;
/// A frame or picture that was released, or never was.
pub const HC_E_HANDLE: i32 = -4;
/// Two frames of the camera, or two pictures, are acquired already.
pub const HC_E_BUSY: i32 = -5;
/// The URL cannot be used.
pub const HC_E_URL: i32 = -6;
/// Not possible now: playback without a recording.
pub const HC_E_STATE: i32 = -7;
/// The objects are no frame.
pub const HC_E_DECODE: i32 = -8;
/// The system refused a thread or a socket.
pub const HC_E_SYSTEM: i32 = -9;
/// A defect of the library; the client should be closed.
pub const HC_E_PANIC: i32 = -99;

/// Where a client stands (HcState.phase).
pub const HC_PHASE_CONNECTING: u32 = 0;
/// The relay does not answer; it is being tried again.
pub const HC_PHASE_UNREACHABLE: u32 = 1;
/// The relay's certificate is not trusted; it is being tried again.
pub const HC_PHASE_CERTIFICATE: u32 = 2;
/// The relay or the session's content refuses; hc_error says what.
pub const HC_PHASE_REFUSED: u32 = 3;
/// The connection broke; it is being tried again.
pub const HC_PHASE_LOST: u32 = 4;
/// The URL names no session: hc_sessions has the relay's.
pub const HC_PHASE_LISTING: u32 = 5;
/// Connected, but nobody publishes the session.
pub const HC_PHASE_WAITING: u32 = 6;
/// The catalog is here and frames come.
pub const HC_PHASE_LIVE: u32 = 7;
/// Published and subscribed to, but for three seconds no frame came.
pub const HC_PHASE_SILENT: u32 = 8;
/// The publisher ended the session or went away; one that returns is followed again.
pub const HC_PHASE_ENDED: u32 = 9;

/// HcState.flags: frames come from a replayed recording, and their delays are counted from their arrival.
pub const HC_STATE_REPLAYED: u32 = 1;
/// The recording can be moved about in (hc_playback).
pub const HC_STATE_RECORDING: u32 = 2;
/// The catalog has no camera.
pub const HC_STATE_NO_CAMERA: u32 = 4;
/// The session has 360° video: hc_subscribe with HC_SPHERE.
pub const HC_STATE_SPHERE: u32 = 8;
/// The relay does not list all of its sessions to this viewer: hc_sessions has those that the token names, and the URL's.
pub const HC_STATE_SOME_SESSIONS: u32 = 16;
/// No frame of a camera, or of the 360° video, can be decoded: hc_error says why.
pub const HC_STATE_UNDECODABLE: u32 = 32;

/// HcConfig.flags: send no receipts.
pub const HC_NO_RECEIPTS: u32 = 1;
/// Take the certificate's hash from the relay itself, over plain HTTP. Loopback relays are asked without it.
pub const HC_INSECURE: u32 = 2;
/// List the relay's sessions, also where the URL names one.
pub const HC_LIST_SESSIONS: u32 = 4;

/// HcSubscribe.camera and hc_stats: every camera of the session.
pub const HC_ALL_CAMERAS: u32 = 0xffff_ffff;
/// HcSubscribe.camera, hc_unsubscribe and hc_stats: the session's 360° video, which is not among all cameras.
pub const HC_SPHERE: u32 = 0xffff_fffe;

/// HcPicture.matrix: ITU-R BT.709.
pub const HC_MATRIX_BT709: u32 = 0;
/// ITU-R BT.601.
pub const HC_MATRIX_BT601: u32 = 1;

/// HcPicture.flags: samples go from 0 to 255, and not from 16 to 235 (240).
pub const HC_PICTURE_FULL_RANGE: u32 = 1;
/// The right eye's picture is below the left one's, each of half the height.
pub const HC_PICTURE_STEREO: u32 = 2;
/// Of a recording, see HC_STATE_REPLAYED.
pub const HC_PICTURE_REPLAYED: u32 = 4;

/// HcTrack.flags: subscribed to.
pub const HC_TRACK_SUBSCRIBED: u32 = 1;
/// The recording of the replay has it.
pub const HC_TRACK_RECORDED: u32 = 2;

/// HcTrack.layout, HcFrame.layout: a sensor's grid.
pub const HC_LAYOUT_A: u32 = 1;
/// Unorganised points.
pub const HC_LAYOUT_B: u32 = 2;
/// LiveScan3D's records.
pub const HC_LAYOUT_C: u32 = 3;

/// hc_frame_release's shown_us: the frame was not shown.
pub const HC_NOT_SHOWN: i64 = 0;
/// It is shown now.
pub const HC_SHOWN_NOW: i64 = -1;

/// HcFrame.flags: of a recording, see HC_STATE_REPLAYED.
pub const HC_FRAME_REPLAYED: u32 = 1;
/// `middle` and `floor` are set.
pub const HC_FRAME_SUBJECT: u32 = 2;
/// Some descriptions did not arrive.
pub const HC_FRAME_PARTIAL: u32 = 4;

/// HcClock.source: no stamp so far.
pub const HC_CLOCK_UNKNOWN: u32 = 0;
/// The relay's stamps.
pub const HC_CLOCK_RELAY: u32 = 1;
/// The local clock, as the relay sends no stamps.
pub const HC_CLOCK_LOCAL: u32 = 2;

/// hc_playback's action: none.
pub const HC_PLAYBACK_QUERY: u32 = 0;
/// Move on.
pub const HC_PLAYBACK_PLAY: u32 = 1;
/// Stand still.
pub const HC_PLAYBACK_PAUSE: u32 = 2;
/// Go to position_ms.
pub const HC_PLAYBACK_SEEK: u32 = 3;
/// Return to the replay that all see.
pub const HC_PLAYBACK_LIVE: u32 = 4;

/// HcPlayback.flags: there is a recording.
pub const HC_PLAYBACK_AVAILABLE: u32 = 1;
/// It plays.
pub const HC_PLAYBACK_PLAYING: u32 = 2;
/// What is watched is the replay that all see.
pub const HC_PLAYBACK_IS_LIVE: u32 = 4;
/// What is due has not arrived.
pub const HC_PLAYBACK_WAITING: u32 = 8;

/// What hc_open takes; strings need not outlive the call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HcConfig {
    pub size: u32,
    /// HC_ABI_VERSION of the caller.
    pub abi_version: u32,
    /// moqt://host[:port]/session, or without a session to list the relay's; the port defaults to 443.
    pub url: *const c_char,
    /// SHA-256 of the relay's certificate, hex; null or "" = the public authorities'.
    pub certificate_hash: *const c_char,
    /// Names the receipts track receipts/<viewer>; null or "" = unity-<random>.
    pub viewer: *const c_char,
    /// HC_NO_RECEIPTS, HC_INSECURE, HC_LIST_SESSIONS.
    pub flags: u32,
    /// Age at which an object is not worth sending any more, ms; 0 = the catalog's.
    pub delivery_timeout_ms: u32,
    /// Threads that decode, and as many for tiles of 360° video; 0 = as many as there are processors less one, at most four.
    pub decode_threads: u32,
    pub reserved: u32,
}

/// Where a client stands.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcState {
    pub size: u32,
    /// HC_PHASE_…
    pub phase: u32,
    /// HC_STATE_…
    pub flags: u32,
    /// Changes when hc_catalog has something new, be it a pose.
    pub catalog_version: u32,
    /// Changes when hc_sessions has something new.
    pub sessions_version: u32,
    /// Changes when hc_error has something new.
    pub error_version: u32,
    /// In the catalog.
    pub cameras: u32,
    /// In hc_sessions.
    pub sessions: u32,
    /// Connections after the first.
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
    /// Pixels of the grid; 0 in layouts B and C.
    pub width: u32,
    pub height: u32,
    /// Most points of a frame.
    pub max_points: u32,
    /// Milliseconds; 0 = none.
    pub delivery_timeout_ms: u32,
    /// Frames per second; 0 = unknown.
    pub framerate: f64,
    /// At most, bits per second; 0 = unknown.
    pub bitrate: u64,
    /// Lens of the grid, pixels.
    pub fx: f64,
    pub fy: f64,
    pub cx: f64,
    pub cy: f64,
    /// Camera to studio: row-major rotation.
    pub rotation: [f64; 9],
    /// Millimetres.
    pub translation: [f64; 3],
    /// Millimetres.
    pub depth_min: u32,
    pub depth_max: u32,
    /// HC_TRACK_…
    pub flags: u32,
    /// Another number means another ray table; HcFrame.track_version is the same.
    pub version: u32,
    pub quality: [c_char; 32],
    pub camera_name: [c_char; 64],
}

/// What hc_subscribe takes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HcSubscribe {
    pub size: u32,
    /// Or HC_ALL_CAMERAS, or HC_SPHERE, of which quality and descriptions are not looked at.
    pub camera: u32,
    /// Null, "", or one that the camera has not: that of the highest bit rate.
    pub quality: *const c_char,
    /// Most descriptions to receive of a frame; 0 = all.
    pub descriptions: u32,
    pub reserved: u32,
}

/// A decoded frame. Its points are words of 32 bits, words_per_point each:
///   layout A, 2 words: X | Y << 12 | R << 24 of the pixel; depth mm | G << 16 | B << 24
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
    /// That arrived.
    pub descriptions: u32,
    /// That the frame has.
    pub descriptions_total: u32,
    pub width: u32,
    pub height: u32,
    /// Of its objects.
    pub bytes: u32,
    /// Time taken to decode.
    pub decode_us: u32,
    /// Relay's clock: middle of the exposure.
    pub captured_us: u64,
    /// Sensor's own clock.
    pub device_us: u64,
    /// Local clock: last byte of the first object.
    pub arrived_us: u64,
    /// Local clock.
    pub decoded_us: u64,
    /// Decoded less captured, both on the relay's clock; of a recording, less arrived.
    pub delay_us: i64,
    /// HC_FRAME_…
    pub flags: u32,
    /// HcTrack.version of its track.
    pub track_version: u32,
    /// Mean of the nearer half of the points, camera's coordinates, mm.
    pub middle: [f32; 3],
    /// Studio's y, mm, below which nearly nothing is.
    pub floor: f32,
}

/// A picture of the whole sphere, equirectangular, 4:2:0. Row 0 is the top; the middle of the picture is straight
/// ahead, and to the right of it is to the right.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcPicture {
    pub size: u32,
    /// HC_PICTURE_…
    pub flags: u32,
    pub handle: u64,
    /// Pixels of luma, of both eyes; planes of colour have half of either, rounded up.
    pub width: u32,
    pub height: u32,
    /// HC_MATRIX_…
    pub matrix: u32,
    /// Time taken to decode.
    pub decode_us: u32,
    /// Relay's clock.
    pub captured_us: u64,
    /// Local clock.
    pub arrived_us: u64,
    /// Local clock.
    pub decoded_us: u64,
    /// How the sphere is turned (Spherical Video V2, prhd), degrees.
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
    /// The same moment on the relay's clock; the local time while that is unknown.
    pub relay_us: u64,
    /// Bound of the estimate's error.
    pub error_us: u64,
    /// Round-trip time, smoothed.
    pub rtt_us: u64,
    /// The least.
    pub min_rtt_us: u64,
    /// Stamps in use.
    pub samples: u32,
    /// Times that a clock was found to have been set.
    pub steps: u32,
}

/// Rates are of the last second, percentiles and means of the last five, counts of the whole run.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcStats {
    pub size: u32,
    /// Cameras that had a frame.
    pub cameras: u32,
    /// Distinct frames released as shown, per second; mean of the cameras.
    pub shown_fps: f64,
    /// Distinct frames decoded, per second; mean of the cameras.
    pub fps: f64,
    /// Frame delay to decoded, ms.
    pub delay_p50_ms: f64,
    pub delay_p95_ms: f64,
    pub delay_p99_ms: f64,
    /// Frame delay to shown, ms.
    pub shown_p50_ms: f64,
    pub shown_p95_ms: f64,
    pub shown_p99_ms: f64,
    /// Of the delay to decoded (RFC 3550).
    pub jitter_ms: f64,
    pub mbit_per_s: f64,
    pub points_per_frame: f64,
    pub decode_ms: f64,
    /// Part of the frames' descriptions that was there; of the run. Of HC_SPHERE: the share of the view that tiles show, of the last second.
    pub density: f64,
    /// From hc_open to the first decoded frame; 0 = none so far.
    pub first_frame_ms: f64,
    /// Of the run: distinct frames decoded per second since the first, and their delay.
    pub run_fps: f64,
    pub run_p50_ms: f64,
    pub run_p95_ms: f64,
    pub run_p99_ms: f64,
    /// Distinct frames decoded.
    pub frames: u64,
    /// Released as shown.
    pub frames_shown: u64,
    /// Gaps in the sequence numbers.
    pub frames_lost: u64,
    /// After a later frame.
    pub frames_late: u64,
    /// A second time.
    pub frames_duplicate: u64,
    /// Without all descriptions.
    pub frames_partial: u64,
    /// Not decoded because the decoder was behind.
    pub frames_skipped: u64,
    /// Not decodable.
    pub frames_damaged: u64,
    /// After their frame.
    pub descriptions_late: u64,
    /// Given up by the relay or the publisher.
    pub subgroups_reset: u64,
    pub publisher_restarts: u64,
    /// Of media.
    pub bytes: u64,
    pub receipts: u64,
    /// Held by frames and objects now.
    pub memory_bytes: u64,
    /// Of frames in datagrams: those that parts asked for made whole.
    pub frames_repaired: u64,
    /// Those given up, and their parts that had not come.
    pub frames_abandoned: u64,
    pub parts_lost: u64,
    /// Requests for missing parts.
    pub repair_requests: u64,
}

/// A recording.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct HcPlayback {
    pub size: u32,
    /// HC_PLAYBACK_…
    pub flags: u32,
    /// Of the recording, ms; 0 without one.
    pub duration_ms: f64,
    pub position_ms: f64,
}

/// What a call fails with; the sentence is for hc_error.
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

/// Runs a call: no panic leaves the library, and a fault is kept for hc_error.
fn guard(client: Option<&HcClient>, f: impl FnOnce() -> Call) -> i32 {
    // What a panic left half done is a count or a buffer, never memory that is not there.
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|p| {
        let text = p.downcast_ref::<&str>().copied().or_else(|| p.downcast_ref::<String>().map(String::as_str));
        Err(Fault::new(HC_E_PANIC, format!("libholocast is defective: {}", text.unwrap_or("panic"))))
    });
    match result {
        Ok(code) => code,
        Err(Fault(code, text)) => {
            strings::note(client, text);
            code
        }
    }
}

/// The struct that a caller gave, whose size must be the library's.
///
/// # Safety
/// `p` is null or points to a struct that begins with its size, of that many bytes, for the call.
unsafe fn sized<'a, T>(p: *mut T) -> Result<&'a mut T, Fault> {
    if p.is_null() || !p.is_aligned() {
        return Err(Fault::argument("a pointer is null or not aligned"));
    }
    // SAFETY: every struct of the interface begins with a u32.
    let size = unsafe { p.cast::<u32>().read() };
    let want = size_of::<T>();
    if size as usize != want {
        let text = format!("a struct of {size} bytes where the library has {want}: the plugin and the package do not match");
        return Err(Fault::new(HC_E_VERSION, text));
    }
    // SAFETY: the caller's, of the size that was checked.
    Ok(unsafe { &mut *p })
}

/// As `sized`, of a struct that is only read.
///
/// # Safety
/// As `sized`.
unsafe fn sized_input<'a, T>(p: *const T) -> Result<&'a T, Fault> {
    // SAFETY: the same contract; nothing is written through the result.
    unsafe { sized(p.cast_mut()) }.map(|r| &*r)
}

/// Where a caller wants a value.
///
/// # Safety
/// `p` is null or may be written for the call.
unsafe fn out<'a, T>(p: *mut T) -> Result<&'a mut T, Fault> {
    if p.is_null() || !p.is_aligned() {
        return Err(Fault::argument("a pointer is null or not aligned"));
    }
    // SAFETY: the caller's.
    Ok(unsafe { &mut *p })
}

/// HC_ABI_VERSION of the library. To be called first.
#[no_mangle]
pub extern "C" fn hc_abi_version() -> u32 {
    HC_ABI_VERSION
}

/// Begins to connect, and returns at once. *client is null unless the result is HC_OK.
///
/// # Safety
/// Pointers are null or valid as the struct says.
#[no_mangle]
pub unsafe extern "C" fn hc_open(config: *const HcConfig, client: *mut *mut HcClient) -> i32 {
    guard(None, || {
        // SAFETY: as this function's.
        let place = unsafe { out(client) }?;
        *place = std::ptr::null_mut();
        // SAFETY: as this function's.
        let config = unsafe { sized_input(config) }?;
        // SAFETY: as this function's.
        let opened = unsafe { HcClient::open(config) }?;
        *place = Box::into_raw(Box::new(opened));
        Ok(HC_OK)
    })
}

/// The client of a handle.
///
/// # Safety
/// `client` is null or came from hc_open and was not closed.
unsafe fn client<'a>(client: *mut HcClient) -> Option<&'a HcClient> {
    // SAFETY: as this function's; clients are shared by threads, never changed through the pointer.
    unsafe { client.as_ref() }
}

/// Runs a call of a client.
///
/// # Safety
/// As `client`.
unsafe fn with(c: *mut HcClient, f: impl FnOnce(&HcClient) -> Call) -> i32 {
    // SAFETY: as this function's.
    let c = unsafe { client(c) };
    guard(c, || match c {
        Some(c) => f(c),
        None => Err(Fault::argument("the client is null")),
    })
}

/// Ends a client and frees it, its frames too. Null is allowed.
///
/// # Safety
/// `client` is null or came from hc_open and was not closed; no other call runs.
#[no_mangle]
pub unsafe extern "C" fn hc_close(client: *mut HcClient) {
    if !client.is_null() {
        // SAFETY: as this function's.
        let client = unsafe { Box::from_raw(client) };
        guard(None, || {
            drop(client);
            Ok(HC_OK)
        });
    }
}

/// Where the client stands. To be called once a picture.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_poll(client: *mut HcClient, state: *mut HcState) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| Ok(c.poll(sized(state)?))) }
}

/// The latest error of the client in a sentence, or "". A null client asks for the calling thread's last failed
/// call that had no client: hc_open, hc_decode.
///
/// # Safety
/// Pointers are null or valid; `buffer` has room for `capacity` bytes.
#[no_mangle]
pub unsafe extern "C" fn hc_error(client: *mut HcClient, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> i32 {
    // SAFETY: as this function's.
    let c = unsafe { crate::client(client) };
    guard(c, || {
        let text = strings::latest(c);
        // SAFETY: as this function's.
        unsafe { strings::copy(text.as_bytes(), buffer, capacity, needed) }
    })
}

/// The relay's sessions, in order, each followed by NUL (the count is in HcState).
///
/// # Safety
/// Pointers are null or valid; `buffer` has room for `capacity` bytes.
#[no_mangle]
pub unsafe extern "C" fn hc_sessions(client: *mut HcClient, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| strings::copy(c.sessions().as_bytes(), buffer, capacity, needed)) }
}

/// The catalog's point-cloud tracks by camera, a camera's best first. The caller sets tracks[0].size; tracks may be
/// null with a capacity of 0 to ask for the count.
///
/// # Safety
/// Pointers are null or valid; `tracks` has room for `capacity` of them.
#[no_mangle]
pub unsafe extern "C" fn hc_catalog(client: *mut HcClient, tracks: *mut HcTrack, capacity: u32, count: *mut u32) -> i32 {
    // SAFETY: as this function's.
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

/// X and Y of each pixel's ray at z = 1, interleaved, row-major: 2 × width × height floats; NaN where a pixel has
/// none. version: HcTrack.version. The tables of subscribed tracks are computed in the background; HC_EMPTY until
/// then, and where no track has that version.
///
/// # Safety
/// Pointers are null or valid; `rays` has room for `capacity` floats.
#[no_mangle]
pub unsafe extern "C" fn hc_rays(
    client: *mut HcClient, camera: u32, version: u32, rays: *mut f32, capacity: usize, needed: *mut usize,
) -> i32 {
    // SAFETY: as this function's.
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

/// Asks for a camera's frames, also one that is not in the catalog so far, and until hc_unsubscribe whatever
/// happens to publisher, relay and connection. Again: with another quality or density.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_subscribe(client: *mut HcClient, subscribe: *const HcSubscribe) -> i32 {
    // SAFETY: as this function's.
    unsafe {
        with(client, |c| {
            let s = sized_input(subscribe)?;
            c.subscribe(s.camera, strings::optional(s.quality, "the quality")?, s.descriptions)
        })
    }
}

/// A camera, HC_ALL_CAMERAS or HC_SPHERE.
///
/// # Safety
/// `client` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_unsubscribe(client: *mut HcClient, camera: u32) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| c.unsubscribe(camera)) }
}

/// Where a viewer of the 360° video looks, for the tiles that make it sharp there: a direction (right, up, forward, as the
/// picture has it, the sphere's turn undone), and how much is seen at once, degrees. To be called at every picture; without it the whole
/// sphere is received at low resolution alone.
///
/// # Safety
/// `client` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_gaze(client: *mut HcClient, right: f32, up: f32, forward: f32, width: f32, height: f32) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| c.gaze([right, up, forward], [width, height])) }
}

/// The camera's newest frame, if it was not acquired before; else HC_EMPTY.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_frame_acquire(client: *mut HcClient, camera: u32, frame: *mut HcFrame) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| c.acquire(camera, sized(frame)?)) }
}

/// Copies every step-th point (1 = all) of an acquired frame. capacity: words; points: those copied.
///
/// # Safety
/// Pointers are null or valid; `words` has room for `capacity` words.
#[no_mangle]
pub unsafe extern "C" fn hc_frame_copy(
    client: *mut HcClient, handle: u64, step: u32, words: *mut u32, capacity: usize, points: *mut u32,
) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| c.copy(handle, step, words, capacity, out(points)?)) }
}

/// Gives a frame back. shown_us: local time when it was shown, HC_SHOWN_NOW or HC_NOT_SHOWN; the receipt of a shown
/// frame goes out.
///
/// # Safety
/// `client` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_frame_release(client: *mut HcClient, handle: u64, shown_us: i64) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| c.release(handle, shown_us)) }
}

/// The picture of the 360° video that is due, if it was not acquired before; else HC_EMPTY. A picture is due the
/// catalog's targetLatency after its capture; of a recording under hc_playback, at its place.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_picture_acquire(client: *mut HcClient, picture: *mut HcPicture) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| c.acquire_picture(sized(picture)?)) }
}

/// Copies a plane of an acquired picture, without padding between rows. plane: 0 = Y, 1 = Cb, 2 = Cr. capacity: bytes.
///
/// # Safety
/// Pointers are null or valid; `bytes` has room for `capacity` bytes.
#[no_mangle]
pub unsafe extern "C" fn hc_picture_copy(client: *mut HcClient, handle: u64, plane: u32, bytes: *mut u8, capacity: usize) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| c.copy_plane(handle, plane, bytes, capacity)) }
}

/// Gives a picture back. shown_us: local time when it was shown, HC_SHOWN_NOW or HC_NOT_SHOWN.
///
/// # Safety
/// `client` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_picture_release(client: *mut HcClient, handle: u64, shown_us: i64) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| c.release_picture(handle, shown_us)) }
}

/// The session's clock now.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_clock(client: *mut HcClient, clock: *mut HcClock) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| Ok(c.clock(sized(clock)?))) }
}

/// A camera's, HC_ALL_CAMERAS or HC_SPHERE. HC_EMPTY for what had no frame so far.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_stats(client: *mut HcClient, camera: u32, stats: *mut HcStats) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| c.stats(camera, sized(stats)?)) }
}

/// Controls a recording and says how it stands; what was asked for shows a moment later. position_ms is of
/// HC_PLAYBACK_SEEK alone.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_playback(client: *mut HcClient, action: u32, position_ms: f64, playback: *mut HcPlayback) -> i32 {
    // SAFETY: as this function's.
    unsafe { with(client, |c| c.playback(action, position_ms, sized(playback)?)) }
}

/// Decodes objects (one frame's descriptions in any order) without a client. words may be null to ask for
/// HcFrame.points and words_per_point. capacity: words.
///
/// # Safety
/// Pointers are null or valid; `objects` and `lengths` have `count` entries, each object that of bytes, and `words`
/// has room for `capacity` words.
#[no_mangle]
pub unsafe extern "C" fn hc_decode(
    objects: *const *const u8, lengths: *const usize, count: u32, max_points: u32, words: *mut u32, capacity: usize, frame: *mut HcFrame,
) -> i32 {
    guard(None, || {
        // SAFETY: as this function's.
        unsafe { decode::decode(objects, lengths, count, max_points, words, capacity, sized(frame)?) }
    })
}
