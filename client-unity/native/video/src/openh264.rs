//! Cisco's OpenH264 decoder, compiled in.

use std::ptr::null_mut;

use openh264_sys2::source::APILoader;
use openh264_sys2::{
    dsErrorFree, ISVCDecoder, SBufferInfo, SDecodingParam, API, DECODER_OPTION_TRACE_LEVEL, ERROR_CON_DISABLE,
    VIDEO_BITSTREAM_AVC, WELS_LOG_QUIET,
};

use crate::avc::START;
use crate::profile::undelayed;
use crate::{wrong, Config, Picture, VideoDecoder, VideoError};

/// OpenH264 decoder. Creates no threads.
#[derive(Debug, Default)]
pub struct OpenH264 {
    instance: Option<Instance>,
    config: Option<Config>,
    /// Parameter sets as OpenH264 gets them, each preceded by a start code.
    sets: Vec<u8>,
    /// The next frame must be a key frame, and is preceded by the parameter sets.
    fresh: bool,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Instance(*mut ISVCDecoder);

// SAFETY: an instance has no threads and no thread-local state; &mut self serializes its use.
unsafe impl Send for Instance {}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the instance came from WelsCreateDecoder, and these are its last calls.
        unsafe {
            if let Some(uninitialize) = (**self.0).Uninitialize {
                uninitialize(self.0);
            }
            APILoader.WelsDestroyDecoder(self.0);
        }
    }
}

impl Instance {
    fn new() -> Result<Self, VideoError> {
        let mut decoder = null_mut();
        // SAFETY: the pointer refers to a local variable.
        let code = unsafe { APILoader.WelsCreateDecoder(&mut decoder) };
        if code != 0 || decoder.is_null() {
            return wrong("out of memory for a decoder");
        }
        let instance = Instance(decoder);
        let mut parameters =
            SDecodingParam { eEcActiveIdc: ERROR_CON_DISABLE, uiTargetDqLayer: u8::MAX, ..SDecodingParam::default() };
        parameters.sVideoProperty.eVideoBsType = VIDEO_BITSTREAM_AVC;
        let mut level = WELS_LOG_QUIET;
        // SAFETY: the decoder is alive, and the pointers stay valid during the calls.
        let code = unsafe {
            let (Some(set), Some(initialize)) = ((**decoder).SetOption, (**decoder).Initialize) else {
                return wrong("the decoder lacks a required function");
            };
            set(decoder, DECODER_OPTION_TRACE_LEVEL, std::ptr::from_mut(&mut level).cast());
            initialize(decoder, &parameters)
        };
        if code != 0 {
            return wrong(format!("the decoder failed to initialize (code {code})"));
        }
        Ok(instance)
    }

    /// Decodes the NAL units of a frame.
    fn decode(&mut self, bytes: &[u8], width: usize, height: usize, into: &mut Picture) -> Result<(), VideoError> {
        let Ok(length) = i32::try_from(bytes.len()) else { return wrong("a frame exceeds 2 GiB") };
        let mut planes = [null_mut(); 3];
        let mut info = SBufferInfo::default();
        // SAFETY: the decoder is alive, reads `length` bytes and writes the two results.
        let state = unsafe {
            let Some(decode) = (**self.0).DecodeFrameNoDelay else {
                return wrong("the decoder lacks a required function");
            };
            decode(self.0, bytes.as_ptr(), length, planes.as_mut_ptr(), &mut info)
        };
        if state != dsErrorFree {
            return wrong(format!("a frame is damaged (code {state})"));
        }
        if info.iBufferStatus != 1 || planes.iter().any(|p| p.is_null()) {
            return wrong("a frame yields no picture");
        }
        // SAFETY: a picture was returned, and the union has only this member.
        let buffer = unsafe { info.UsrData.sSystemBuffer };
        let size = |v: i32| usize::try_from(v).unwrap_or(0);
        let (w, h) = (size(buffer.iWidth), size(buffer.iHeight));
        if (w, h) != (width, height) {
            return wrong(format!("a picture is {w}×{h}, but the configuration says {width}×{height}"));
        }
        (into.width, into.height) = (w, h);
        for (i, (from, to)) in planes.iter().zip(&mut into.planes).enumerate() {
            let (w, h) = if i == 0 { (w, h) } else { (w.div_ceil(2), h.div_ceil(2)) };
            let stride = size(buffer.iStride[i.min(1)]);
            if stride < w {
                return wrong("the decoder's rows overlap");
            }
            to.clear();
            for row in 0..h {
                // SAFETY: the decoder keeps h rows of `stride` bytes until its next call.
                to.extend_from_slice(unsafe { std::slice::from_raw_parts(from.add(row * stride), w) });
            }
        }
        Ok(())
    }
}

impl VideoDecoder for OpenH264 {
    fn configure(&mut self, config: &Config) -> Result<(), VideoError> {
        // Create a new instance: the old one's buffers are sized for its pictures.
        self.instance = None;
        self.instance = Some(Instance::new()?);
        let (sps, pps) = config.sets.split_at(config.sps);
        self.sets.clear();
        self.sets.extend_from_slice(&START);
        self.sets.extend_from_slice(&undelayed(&sps[START.len()..])?);
        self.sets.extend_from_slice(pps);
        self.config = Some(config.clone());
        self.fresh = true;
        Ok(())
    }

    fn decode(&mut self, frame: &[u8], into: &mut Picture) -> Result<(), VideoError> {
        let (Some(instance), Some(config)) = (&mut self.instance, &self.config) else {
            return wrong("the decoder has no configuration");
        };
        self.bytes.clear();
        if self.fresh {
            self.bytes.extend_from_slice(&self.sets);
        }
        config.annex_b(frame, &mut self.bytes)?;
        let decoded = instance.decode(&self.bytes, config.width, config.height, into);
        // Send the parameter sets again after an error: the decoder may have dropped them.
        self.fresh = decoded.is_err();
        decoded
    }
}
