//! Decodes H.264 (ISO/IEC 14496-10) without delay: 360° video with a decoder configuration record (avcC, ISO/IEC
//! 14496-15) and frames of length-prefixed NAL units, and the byte streams (Annex B) of point clouds in video.
//! [`OpenH264`] is compiled in and works everywhere; [`BestDecoder`] prefers the platform's [`VideoDecoder`] on
//! request.

mod avc;
mod best;
mod bytestream;
#[cfg(target_os = "android")]
mod media_codec;
#[cfg(windows)]
mod media_foundation;
mod openh264;
#[cfg_attr(not(any(windows, target_os = "android")), allow(dead_code))]
mod planes;
mod profile;

pub use avc::{Config, Matrix};
pub use best::BestDecoder;
pub use openh264::OpenH264;

/// Why a stream cannot be decoded: a sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VideoError(pub String);

pub(crate) fn wrong<T>(text: impl Into<String>) -> Result<T, VideoError> {
    Err(VideoError(text.into()))
}

/// A decoded 4:2:0 picture without padding: luma of width × height bytes, chroma of half the width
/// and height, rounded up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    /// Width, pixels.
    pub width: usize,
    /// Height, pixels.
    pub height: usize,
    /// Y, Cb, Cr, top row first.
    pub planes: [Vec<u8>; 3],
}

impl Picture {
    /// Size of its planes, bytes.
    pub fn bytes(&self) -> usize {
        self.planes.iter().map(Vec::len).sum()
    }
}

/// A video decoder.
pub trait VideoDecoder: std::fmt::Debug {
    /// Sets the stream's configuration, whose picture size the caller has checked. The next frame
    /// must be a key frame.
    fn configure(&mut self, config: &Config) -> Result<(), VideoError>;

    /// Decodes a frame into a picture, reusing its buffers: length-prefixed NAL units after
    /// [`Config::parse`], a byte stream after [`Config::of_key_frame`]. After an error, only a key frame
    /// can be decoded.
    fn decode(&mut self, frame: &[u8], into: &mut Picture) -> Result<(), VideoError>;
}
