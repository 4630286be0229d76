//! Decodes H.264 (ISO/IEC 14496-10) as 360° video has it: one decoder configuration record (avcC, ISO/IEC 14496-15)
//! and frames of NAL units with their lengths before them, each returned at once. [`Decoder`] is what a platform's own
//! decoder would implement; [`OpenH264`] is compiled in and works everywhere.

mod avc;
mod openh264;

pub use avc::{Config, Matrix};
pub use openh264::OpenH264;

/// Why a stream cannot be decoded, in a sentence without its full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VideoError(pub String);

pub(crate) fn wrong<T>(text: impl Into<String>) -> Result<T, VideoError> {
    Err(VideoError(text.into()))
}

/// A decoded picture, 4:2:0: luma of width × height bytes, and two planes of half of either, rounded up; no padding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    /// Pixels.
    pub width: usize,
    /// Pixels.
    pub height: usize,
    /// Y, Cb, Cr, row 0 at the top.
    pub planes: [Vec<u8>; 3],
}

impl Picture {
    /// Bytes of its planes.
    pub fn bytes(&self) -> usize {
        self.planes.iter().map(Vec::len).sum()
    }
}

/// Decodes a stream.
pub trait Decoder {
    /// Takes the stream's configuration, whose pictures the caller found to be of a size it wants. The next frame
    /// decoded is a key frame.
    fn configure(&mut self, config: &Config) -> Result<(), VideoError>;

    /// Decodes a frame, as an EncodedVideoChunk of the format "avc" holds it, into a picture whose buffers are used
    /// again. After an error only a key frame can be decoded.
    fn decode(&mut self, frame: &[u8], into: &mut Picture) -> Result<(), VideoError>;
}
