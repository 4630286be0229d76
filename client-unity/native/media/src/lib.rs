//! A Holocast session as a viewer has it: catalog, clock, frames, measurements, playback. It does no I/O:
//! [`Player`] is driven with the events of [`moqt::Session`]s and with the time, and what any thread may look at or
//! ask for is in [`Shared`]. Threads of [`Shared::decoders`] decode.

pub mod catalog;
pub mod clock;
mod feed;
pub mod meter;
mod mosaic;
mod parts;
mod playback;
mod player;
mod receipt;
mod screen;
mod shared;
pub mod token;

pub use feed::{Acquired, FrameInfo};
pub use player::{Config, Link, Player};
pub use screen::{AcquiredPicture, PictureInfo};
pub use shared::{ClockInfo, ClockSource, Command, Phase, PlaybackAction, PlaybackInfo, Shared, Stats, Status, TooMany, TrackInfo, Wish};
pub use video::Matrix;

/// First field of the namespace of all sessions.
pub const ROOT: &str = "holocast";
