//! Android's MediaCodec through the NDK (API level 29), with buffers in memory.

use std::ffi::CStr;
use std::ptr::{null_mut, NonNull};
use std::time::{Duration, Instant};

use ndk_sys::*;

use crate::planes::{self, Chroma, Layout};
use crate::{wrong, Config, Picture, VideoDecoder, VideoError};

/// A decoder that needs longer for one frame is unusable, since pictures are decoded one at a time.
const PATIENCE: Duration = Duration::from_millis(500);
const MIME: &CStr = c"video/avc";
/// MediaCodecInfo.CodecCapabilities: COLOR_FormatYUV420Flexible, Planar and SemiPlanar.
const FLEXIBLE: i32 = 0x7f42_0888;
const PLANAR: i32 = 19;
const SEMI_PLANAR: i32 = 21;

/// The device's H.264 decoder.
#[derive(Debug, Default)]
pub(crate) struct MediaCodec {
    running: Option<Running>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Running {
    codec: NonNull<AMediaCodec>,
    config: Config,
    /// From the output format, which precedes the first picture.
    layout: Option<Layout>,
    /// Timestamp of the last frame, µs; serves only to identify it.
    time: u64,
}

// SAFETY: a codec may be used by any thread; &mut self serializes its use.
unsafe impl Send for Running {}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: the codec is alive, and these are its last calls.
        unsafe {
            AMediaCodec_stop(self.codec.as_ptr());
            AMediaCodec_delete(self.codec.as_ptr());
        }
    }
}

struct Format(NonNull<AMediaFormat>);

impl Drop for Format {
    fn drop(&mut self) {
        // SAFETY: the format is alive, and this is its last call.
        unsafe { AMediaFormat_delete(self.0.as_ptr()) };
    }
}

impl Format {
    fn new() -> Result<Self, VideoError> {
        // SAFETY: has no arguments.
        let format = NonNull::new(unsafe { AMediaFormat_new() });
        Ok(Format(format.ok_or_else(|| VideoError("out of memory for a format".into()))?))
    }

    fn set(&self, key: &CStr, value: i32) {
        // SAFETY: the format is alive, and the key is a C string.
        unsafe { AMediaFormat_setInt32(self.0.as_ptr(), key.as_ptr(), value) };
    }

    fn get(&self, key: &CStr) -> Option<usize> {
        let mut value = 0;
        // SAFETY: as above; the result is a local variable.
        let found = unsafe { AMediaFormat_getInt32(self.0.as_ptr(), key.as_ptr(), &mut value) };
        usize::try_from(value).ok().filter(|_| found)
    }
}

fn check(what: &str, status: media_status_t) -> Result<(), VideoError> {
    if status == media_status_t::AMEDIA_OK {
        return Ok(());
    }
    wrong(format!("MediaCodec: {what} failed (code {})", status.0))
}

impl Running {
    fn new(config: &Config) -> Result<Self, VideoError> {
        let format = Format::new()?;
        let (Ok(width), Ok(height)) = (i32::try_from(config.width), i32::try_from(config.height)) else {
            return wrong("the pictures are too large for MediaCodec");
        };
        format.set(c"width", width);
        format.set(c"height", height);
        format.set(c"color-format", FLEXIBLE);
        // Ignored before API level 30.
        format.set(c"low-latency", 1);
        // Real time.
        format.set(c"priority", 0);
        let (sps, pps) = config.sets.split_at(config.sps);
        // SAFETY: the strings are NUL-terminated, and the format copies the bytes. `Running` closes the codec
        // on drop.
        let codec = unsafe {
            AMediaFormat_setString(format.0.as_ptr(), c"mime".as_ptr(), MIME.as_ptr());
            AMediaFormat_setBuffer(format.0.as_ptr(), c"csd-0".as_ptr(), sps.as_ptr().cast(), sps.len());
            AMediaFormat_setBuffer(format.0.as_ptr(), c"csd-1".as_ptr(), pps.as_ptr().cast(), pps.len());
            AMediaCodec_createDecoderByType(MIME.as_ptr())
        };
        let Some(codec) = NonNull::new(codec) else { return wrong("MediaCodec: no decoder for H.264") };
        let running = Running { codec, config: config.clone(), layout: None, time: 0 };
        // SAFETY: codec and format are alive; there is neither surface nor DRM.
        unsafe {
            let configured = AMediaCodec_configure(codec.as_ptr(), format.0.as_ptr(), null_mut(), null_mut(), 0);
            check("configuring", configured)?;
            check("starting", AMediaCodec_start(codec.as_ptr()))?;
        }
        Ok(running)
    }

    fn decode(&mut self, bytes: &[u8], into: &mut Picture) -> Result<(), VideoError> {
        let until = Instant::now() + PATIENCE;
        self.time += 1;
        self.send(bytes, until)?;
        loop {
            let mut info = AMediaCodecBufferInfo { offset: 0, size: 0, presentationTimeUs: 0, flags: 0 };
            // SAFETY: the codec is alive; the result is a local variable.
            let n = unsafe { AMediaCodec_dequeueOutputBuffer(self.codec.as_ptr(), &mut info, wait(until)) };
            if let Ok(index) = usize::try_from(n) {
                let current = u64::try_from(info.presentationTimeUs) == Ok(self.time) && info.size > 0;
                let copied = if current { self.copy(index, &info, into) } else { Ok(()) };
                // SAFETY: the buffer is the one just received, and is not used afterwards.
                let released = unsafe { AMediaCodec_releaseOutputBuffer(self.codec.as_ptr(), index, false) };
                copied?;
                check("returning a buffer", released)?;
                if current {
                    return Ok(());
                }
            } else if n == AMEDIACODEC_INFO_OUTPUT_FORMAT_CHANGED as isize {
                self.layout = Some(self.format()?);
            } else if n == AMEDIACODEC_INFO_TRY_AGAIN_LATER as isize && Instant::now() >= until {
                return wrong("MediaCodec: no picture for a frame within half a second");
            } else if n != AMEDIACODEC_INFO_TRY_AGAIN_LATER as isize
                && n != AMEDIACODEC_INFO_OUTPUT_BUFFERS_CHANGED as isize
            {
                return wrong(format!("MediaCodec: decoding failed (code {n})"));
            }
        }
    }

    /// Queues a frame.
    fn send(&mut self, bytes: &[u8], until: Instant) -> Result<(), VideoError> {
        // SAFETY: the codec is alive.
        let n = unsafe { AMediaCodec_dequeueInputBuffer(self.codec.as_ptr(), wait(until)) };
        let Ok(index) = usize::try_from(n) else {
            return wrong(format!("MediaCodec: no buffer for a frame (code {n})"));
        };
        let mut size = 0;
        // SAFETY: the buffer is the one just received; it has `size` bytes and is ours until it is queued.
        let buffer = unsafe {
            let at = AMediaCodec_getInputBuffer(self.codec.as_ptr(), index, &mut size);
            if at.is_null() {
                return wrong("MediaCodec: a buffer is missing");
            }
            std::slice::from_raw_parts_mut(at, size)
        };
        let Some(to) = buffer.get_mut(..bytes.len()) else {
            return wrong(format!("MediaCodec: its buffer of {size} bytes is too small for {} bytes", bytes.len()));
        };
        to.copy_from_slice(bytes);
        // SAFETY: as above.
        let queued = unsafe { AMediaCodec_queueInputBuffer(self.codec.as_ptr(), index, 0, bytes.len(), self.time, 0) };
        check("queuing a frame", queued)
    }

    /// Layout of the following pictures.
    fn format(&self) -> Result<Layout, VideoError> {
        // SAFETY: the codec is alive; Format deletes the result.
        let format = NonNull::new(unsafe { AMediaCodec_getOutputFormat(self.codec.as_ptr()) });
        let Some(format) = format.map(Format) else { return wrong("MediaCodec: no output format") };
        let color = format.get(c"color-format").and_then(|v| i32::try_from(v).ok());
        let chroma = match color {
            Some(SEMI_PLANAR) => Chroma::Interleaved,
            Some(PLANAR) => Chroma::Planar,
            other => return wrong(format!("MediaCodec: unsupported color format {}", other.unwrap_or(0))),
        };
        let (width, height) = (format.get(c"width").unwrap_or(0), format.get(c"height").unwrap_or(0));
        // Some decoders announce 0 for "as large as the picture".
        let or = |key, size| format.get(key).filter(|v| *v > 0).unwrap_or(size);
        let crop = (format.get(c"crop-left").unwrap_or(0), format.get(c"crop-top").unwrap_or(0));
        let end = |key, size: usize| format.get(key).map_or(size, |v| v + 1);
        let visible =
            (end(c"crop-right", width).saturating_sub(crop.0), end(c"crop-bottom", height).saturating_sub(crop.1));
        if visible != (self.config.width, self.config.height) {
            return wrong(format!(
                "a picture is {}×{}, but the configuration says {}×{}",
                visible.0, visible.1, self.config.width, self.config.height
            ));
        }
        Ok(Layout { chroma, stride: or(c"stride", width), rows: or(c"slice-height", height), crop })
    }

    fn copy(&self, index: usize, info: &AMediaCodecBufferInfo, into: &mut Picture) -> Result<(), VideoError> {
        let Some(layout) = &self.layout else { return wrong("MediaCodec: a picture without format") };
        let mut size = 0;
        // SAFETY: the caller has received the buffer, which has `size` bytes until it is released.
        let buffer = unsafe {
            let at = AMediaCodec_getOutputBuffer(self.codec.as_ptr(), index, &mut size);
            if at.is_null() {
                return wrong("MediaCodec: a picture is missing");
            }
            std::slice::from_raw_parts(at, size)
        };
        let (from, n) = (usize::try_from(info.offset).unwrap_or(0), usize::try_from(info.size).unwrap_or(0));
        let Some(bytes) = buffer.get(from..from.saturating_add(n)) else {
            return wrong("MediaCodec: a picture exceeds its buffer");
        };
        planes::copy(bytes, layout, self.config.width, self.config.height, into)
    }
}

/// Time left, µs.
fn wait(until: Instant) -> i64 {
    until.saturating_duration_since(Instant::now()).as_micros() as i64
}

impl VideoDecoder for MediaCodec {
    fn configure(&mut self, config: &Config) -> Result<(), VideoError> {
        self.running = None;
        self.running = Some(Running::new(config)?);
        Ok(())
    }

    fn decode(&mut self, frame: &[u8], into: &mut Picture) -> Result<(), VideoError> {
        let Some(running) = &mut self.running else { return wrong("the decoder has no configuration") };
        self.bytes.clear();
        running.config.annex_b(frame, &mut self.bytes)?;
        running.decode(&self.bytes, into)
    }
}
