//! Plays a sound track in time: decodes its packets, conceals lost ones, splices sound to reach the
//! wanted delay, and hands samples to the audio thread without locks. No I/O. Decisions are those of
//! internal/jitter, tested with its vectors.

mod decode;
mod delay;
mod filter;
mod jitter;
mod packet;
mod ring;
mod splice;
mod voice;

pub use decode::{DecodeError, Decoder};
pub use jitter::{latest, postpone, Buffer, Counts, Decision, Kind, Packet};
pub use packet::{check, opus_samples, Codec, Format, PacketError, MAX_FILM_PACKET, MAX_PACKET};
pub use ring::{Clock, Reader, Ring};
pub use voice::{Report, Target, Voice};

/// Time in nanoseconds; local times since 1970.
pub type Nanos = i64;
/// Time in microseconds.
pub type Micros = i64;

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;
