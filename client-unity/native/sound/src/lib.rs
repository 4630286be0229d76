//! Plays a track of sound in time: decodes its packets, conceals lost ones, stretches time towards
//! the wanted delay, and hands samples to the audio thread without locks. No I/O.

mod decode;
mod jitter;
mod packet;
mod resample;
mod ring;
mod voice;

pub use decode::{DecodeError, Decoder};
pub use jitter::{Counts, Jitter, Next};
pub use packet::{check, opus_samples, Codec, Format, PacketError, MAX_FILM_PACKET, MAX_PACKET};
pub use resample::Resampler;
pub use ring::{Clock, Reader, Ring};
pub use voice::{Report, Target, Voice};

/// Time in nanoseconds; local times since 1970.
pub type Nanos = i64;

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;
