//! Media Foundation's synchronous H.264 decoder (Windows and UWP), with samples in memory. Its functions are looked up
//! at run time: Windows N has none.

use std::ffi::c_void;
use std::mem::{transmute_copy, ManuallyDrop};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use windows::core::{s, w, Interface, GUID, HRESULT, PCSTR, PCWSTR};
use windows::Win32::Foundation::{E_FAIL, HMODULE};
use windows::Win32::Media::MediaFoundation::*;
use windows::Win32::System::LibraryLoader::{GetProcAddress, LoadLibraryExW, LOAD_LIBRARY_SEARCH_SYSTEM32};

use crate::planes::{self, Chroma, Layout};
use crate::{wrong, Config, Picture, VideoDecoder, VideoError};

/// Media Foundation of Windows 7 and newer (MF_VERSION).
const VERSION: u32 = 0x0002_0070;
/// Units of 100 ns between frames; only their order matters.
const FRAME: i64 = 333_333;

type Enumerate = unsafe extern "system" fn(
    GUID,
    MFT_ENUM_FLAG,
    *const MFT_REGISTER_TYPE_INFO,
    *const MFT_REGISTER_TYPE_INFO,
    *mut *mut Option<IMFActivate>,
    *mut u32,
) -> HRESULT;
type Create = unsafe extern "system" fn(*mut *mut c_void) -> HRESULT;
type CreateBuffer = unsafe extern "system" fn(u32, *mut *mut c_void) -> HRESULT;
type Startup = unsafe extern "system" fn(u32, u32) -> HRESULT;
type KeepMta = unsafe extern "system" fn(*mut usize) -> HRESULT;
type Free = unsafe extern "system" fn(*const c_void);

/// Functions of mfplat.dll and combase.dll.
#[derive(Clone, Copy)]
struct Functions {
    enumerate: Enumerate,
    create_type: Create,
    create_sample: Create,
    create_buffer: CreateBuffer,
    free: Free,
}

fn failed(what: &str) -> impl Fn(windows::core::Error) -> VideoError + '_ {
    move |e| VideoError(format!("Media Foundation: {what} failed ({:#010x})", e.code().0))
}

/// # Safety
/// F is the type of the function.
unsafe fn function<F: Copy>(library: HMODULE, name: PCSTR) -> Result<F, VideoError> {
    // SAFETY: the library is never unloaded, and the name is a C string.
    match unsafe { GetProcAddress(library, name) } {
        // SAFETY: guaranteed by the caller.
        Some(f) => Ok(unsafe { transmute_copy(&f) }),
        None => wrong("Media Foundation lacks a function"),
    }
}

fn library(name: PCWSTR) -> Result<HMODULE, VideoError> {
    // SAFETY: the name is a C string, and the library is part of Windows.
    unsafe { LoadLibraryExW(name, None, LOAD_LIBRARY_SEARCH_SYSTEM32) }
        .map_err(|_| VideoError("this Windows has no Media Foundation".into()))
}

impl Functions {
    /// Starts Media Foundation, for as long as the process lives.
    fn get() -> Result<Self, VideoError> {
        static FUNCTIONS: OnceLock<Result<Functions, VideoError>> = OnceLock::new();
        FUNCTIONS.get_or_init(Functions::start).clone()
    }

    fn start() -> Result<Self, VideoError> {
        let (platform, com) = (library(w!("mfplat.dll"))?, library(w!("combase.dll"))?);
        let mut cookie = 0;
        // SAFETY: the types are those of the functions; the result is a local variable.
        unsafe {
            let keep: KeepMta = function(com, s!("CoIncrementMTAUsage"))?;
            let startup: Startup = function(platform, s!("MFStartup"))?;
            // The decoding threads then need not initialize COM.
            keep(&mut cookie).ok().map_err(failed("COM"))?;
            startup(VERSION, MFSTARTUP_LITE).ok().map_err(failed("starting"))?;
            Ok(Functions {
                enumerate: function(platform, s!("MFTEnumEx"))?,
                create_type: function(platform, s!("MFCreateMediaType"))?,
                create_sample: function(platform, s!("MFCreateSample"))?,
                create_buffer: function(platform, s!("MFCreateMemoryBuffer"))?,
                free: function(com, s!("CoTaskMemFree"))?,
            })
        }
    }

    /// The system's first H.264 decoder.
    fn decoder(&self) -> Result<IMFTransform, VideoError> {
        let input = MFT_REGISTER_TYPE_INFO { guidMajorType: MFMediaType_Video, guidSubtype: MFVideoFormat_H264 };
        let flags = MFT_ENUM_FLAG_SYNCMFT | MFT_ENUM_FLAG_LOCALMFT | MFT_ENUM_FLAG_SORTANDFILTER;
        let (mut list, mut count) = (null_mut(), 0);
        // SAFETY: the arguments outlive the call. It returns `count` references, which are taken out of the array
        // before that is freed.
        let found = unsafe {
            let found = (self.enumerate)(MFT_CATEGORY_VIDEO_DECODER, flags, &input, null(), &mut list, &mut count);
            found.ok().map_err(failed("listing decoders"))?;
            let all: Vec<_> = (0..count as usize).filter_map(|i| list.add(i).read()).collect();
            (self.free)(list.cast_const().cast());
            all
        };
        let Some(first) = found.first() else { return wrong("Media Foundation has no decoder for H.264") };
        // SAFETY: `first` is a valid COM object.
        unsafe { first.ActivateObject() }.map_err(failed("creating a decoder"))
    }

    /// # Safety
    /// A successful `f` stores a reference to a new T in its argument.
    unsafe fn create<T: Interface>(f: impl Fn(*mut *mut c_void) -> HRESULT) -> Result<T, VideoError> {
        let mut object = null_mut();
        f(&mut object).ok().map_err(failed("allocating"))?;
        if object.is_null() {
            return Err(failed("allocating")(E_FAIL.into()));
        }
        // SAFETY: guaranteed by the caller; the reference is ours.
        Ok(unsafe { T::from_raw(object) })
    }

    fn media_type(&self) -> Result<IMFMediaType, VideoError> {
        // SAFETY: the function creates an IMFMediaType.
        unsafe { Self::create(|p| (self.create_type)(p)) }
    }

    /// A sample with a buffer of `size` bytes.
    fn sample(&self, size: u32) -> Result<(IMFSample, IMFMediaBuffer), VideoError> {
        // SAFETY: each function creates an object of the requested type, and both are valid when
        // AddBuffer is called.
        unsafe {
            let sample: IMFSample = Self::create(|p| (self.create_sample)(p))?;
            let buffer: IMFMediaBuffer = Self::create(|p| (self.create_buffer)(size, p))?;
            sample.AddBuffer(&buffer).map_err(failed("allocating"))?;
            Ok((sample, buffer))
        }
    }
}

/// Runs a function on a buffer's bytes: with `Some(length)`, its first `length` bytes; otherwise its content.
fn with_bytes<T>(
    buffer: &IMFMediaBuffer, length: Option<u32>, f: impl FnOnce(&mut [u8]) -> Result<T, VideoError>,
) -> Result<T, VideoError> {
    let (mut at, mut size, mut content) = (null_mut(), 0, 0);
    // SAFETY: the results are local variables.
    unsafe { buffer.Lock(&mut at, Some(&mut size), Some(&mut content)) }.map_err(failed("reading a buffer"))?;
    let n = length.unwrap_or(content);
    let done = if at.is_null() || n > size {
        wrong("Media Foundation: a buffer is too small")
    } else {
        // SAFETY: the buffer has `size` bytes and stays locked during the call.
        f(unsafe { std::slice::from_raw_parts_mut(at, n as usize) })
    };
    // SAFETY: the buffer is locked.
    unsafe { buffer.Unlock() }.map_err(failed("reading a buffer"))?;
    done
}

/// The decoder, software or, at its own choice, hardware.
#[derive(Debug)]
pub(crate) struct MediaFoundation {
    running: Option<Running>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Running {
    transform: IMFTransform,
    config: Config,
    layout: Layout,
    /// Bytes of a picture; 0: the decoder allocates its own samples.
    size: u32,
    /// Frames so far.
    frames: i64,
    /// The next frame is preceded by the parameter sets.
    fresh: bool,
}

// SAFETY: Media Foundation's objects belong to the multithreaded apartment, as do all threads without an apartment of
// their own; &mut self serializes their use.
unsafe impl Send for Running {}

impl MediaFoundation {
    pub fn new() -> Result<Self, VideoError> {
        Functions::get()?;
        Ok(MediaFoundation { running: None, bytes: Vec::new() })
    }
}

impl Running {
    fn new(config: &Config) -> Result<Self, VideoError> {
        let functions = Functions::get()?;
        let transform = functions.decoder()?;
        let input = functions.media_type()?;
        let size = (config.width as u64) << 32 | config.height as u64;
        let progressive = MFVideoInterlace_Progressive.0 as u32;
        // SAFETY: the COM objects are valid, and the arguments outlive the calls.
        unsafe {
            // Without it the decoder keeps pictures until more frames arrive.
            let attributes = transform.GetAttributes().map_err(failed("low latency"))?;
            attributes.SetUINT32(&MF_LOW_LATENCY, 1).map_err(failed("low latency"))?;
            input
                .SetGUID(&MF_MT_MAJOR_TYPE, &MFMediaType_Video)
                .and_then(|()| input.SetGUID(&MF_MT_SUBTYPE, &MFVideoFormat_H264))
                .and_then(|()| input.SetUINT64(&MF_MT_FRAME_SIZE, size))
                .and_then(|()| input.SetUINT32(&MF_MT_INTERLACE_MODE, progressive))
                .and_then(|()| transform.SetInputType(0, &input, 0))
                .map_err(failed("configuring"))?;
        }
        let layout = Layout { chroma: Chroma::Interleaved, stride: 0, rows: 0, crop: (0, 0) };
        let mut running = Running { transform, config: config.clone(), layout, size: 0, frames: 0, fresh: true };
        running.choose_output()?;
        // SAFETY: the COM object is valid.
        unsafe {
            running
                .transform
                .ProcessMessage(MFT_MESSAGE_NOTIFY_BEGIN_STREAMING, 0)
                .and_then(|()| running.transform.ProcessMessage(MFT_MESSAGE_NOTIFY_START_OF_STREAM, 0))
                .map_err(failed("starting a decoder"))?;
        }
        Ok(running)
    }

    /// Selects NV12, and remembers its layout.
    fn choose_output(&mut self) -> Result<(), VideoError> {
        let t = &self.transform;
        // SAFETY: the COM objects are valid, and the arguments outlive the calls.
        unsafe {
            let mut n = 0;
            let output = loop {
                let output = t.GetOutputAvailableType(0, n).map_err(failed("choosing NV12"))?;
                if output.GetGUID(&MF_MT_SUBTYPE).is_ok_and(|s| s == MFVideoFormat_NV12) {
                    break output;
                }
                n += 1;
            };
            t.SetOutputType(0, &output, 0).map_err(failed("choosing NV12"))?;
            let size = output.GetUINT64(&MF_MT_FRAME_SIZE).map_err(failed("choosing NV12"))?;
            // A signed number; negative means bottom-up, which NV12 is not.
            let stride = output.GetUINT32(&MF_MT_DEFAULT_STRIDE).ok().filter(|s| *s > 0 && *s < 1 << 31);
            self.layout.stride = stride.map_or((size >> 32) as usize, |s| s as usize);
            self.layout.rows = (size & 0xffff_ffff) as usize;
            self.layout.crop = Self::crop(&output);
            let info = t.GetOutputStreamInfo(0).map_err(failed("choosing NV12"))?;
            let own = (MFT_OUTPUT_STREAM_PROVIDES_SAMPLES.0 | MFT_OUTPUT_STREAM_CAN_PROVIDE_SAMPLES.0) as u32;
            self.size = if info.dwFlags & own != 0 { 0 } else { info.cbSize };
        }
        Ok(())
    }

    /// Left and top of the visible part.
    fn crop(output: &IMFMediaType) -> (usize, usize) {
        let mut area = [0; size_of::<MFVideoArea>()];
        // SAFETY: the method writes no more than the array holds.
        if unsafe { output.GetBlob(&MF_MT_MINIMUM_DISPLAY_APERTURE, &mut area, None) }.is_err() {
            return (0, 0);
        }
        // Two MFOffset values, each a fraction followed by a signed integer.
        let offset = |at: usize| usize::try_from(i16::from_le_bytes([area[at + 2], area[at + 3]])).unwrap_or(0);
        (offset(0), offset(4))
    }

    fn decode(&mut self, bytes: &[u8], into: &mut Picture) -> Result<(), VideoError> {
        let functions = Functions::get()?;
        let Ok(n) = u32::try_from(bytes.len()) else { return wrong("a frame exceeds 4 GiB") };
        let (sample, buffer) = functions.sample(n)?;
        with_bytes(&buffer, Some(n), |to| {
            to.copy_from_slice(bytes);
            Ok(())
        })?;
        // SAFETY: the COM objects are valid, and the arguments outlive the calls.
        unsafe {
            buffer
                .SetCurrentLength(n)
                .and_then(|()| sample.SetSampleTime(self.frames * FRAME))
                .and_then(|()| sample.SetSampleDuration(FRAME))
                .and_then(|()| self.transform.ProcessInput(0, &sample, 0))
                .map_err(failed("taking a frame"))?;
        }
        self.frames += 1;
        let mut changes = 0;
        loop {
            match self.output(&functions)? {
                Ok(picture) => return self.copy(&picture, into),
                // The stream's parameter sets differ from the placeholder of the first output type.
                Err(code) if code == MF_E_TRANSFORM_STREAM_CHANGE && changes < 2 => {
                    changes += 1;
                    self.choose_output()?;
                }
                Err(code) if code == MF_E_TRANSFORM_NEED_MORE_INPUT => {
                    return wrong("Media Foundation: a frame yields no picture");
                }
                Err(code) => return Err(failed("decoding")(code.into())),
            }
        }
    }

    /// A decoded sample, or the decoder's error code.
    fn output(&self, functions: &Functions) -> Result<Result<IMFSample, HRESULT>, VideoError> {
        let sample = match self.size {
            0 => None,
            n => Some(functions.sample(n)?.0),
        };
        let mut output = [MFT_OUTPUT_DATA_BUFFER { pSample: ManuallyDrop::new(sample), ..Default::default() }];
        let mut status = 0;
        // SAFETY: the arguments outlive the call.
        let result = unsafe { self.transform.ProcessOutput(0, &mut output, &mut status) };
        let [MFT_OUTPUT_DATA_BUFFER { pSample, pEvents, .. }] = output;
        drop(ManuallyDrop::into_inner(pEvents));
        match (result, ManuallyDrop::into_inner(pSample)) {
            (Ok(()), Some(sample)) => Ok(Ok(sample)),
            (Ok(()), None) => wrong("Media Foundation: a picture is missing"),
            (Err(e), _) => Ok(Err(e.code())),
        }
    }

    fn copy(&self, picture: &IMFSample, into: &mut Picture) -> Result<(), VideoError> {
        // SAFETY: `picture` is a valid COM object.
        let buffer = unsafe { picture.ConvertToContiguousBuffer() }.map_err(failed("reading a picture"))?;
        let (w, h) = (self.config.width, self.config.height);
        with_bytes(&buffer, None, |bytes| planes::copy(bytes, &self.layout, w, h, into))
    }
}

impl VideoDecoder for MediaFoundation {
    fn configure(&mut self, config: &Config) -> Result<(), VideoError> {
        self.running = None;
        self.running = Some(Running::new(config)?);
        Ok(())
    }

    fn decode(&mut self, frame: &[u8], into: &mut Picture) -> Result<(), VideoError> {
        let Some(running) = &mut self.running else { return wrong("the decoder has no configuration") };
        self.bytes.clear();
        if std::mem::take(&mut running.fresh) {
            self.bytes.extend_from_slice(&running.config.sets);
        }
        running.config.annex_b(frame, &mut self.bytes)?;
        running.decode(&self.bytes, into)
    }
}
