//! A viewer's side of a Holocast session: catalog, clock, frames, statistics, playback. Does no
//! I/O: [`Player`] is driven by the events of [`moqt::Session`]s and by time; [`Shared`] is the
//! thread-safe state and command queue. The threads of [`Shared::decoders`] decode.

pub mod catalog;
pub mod clock;
pub mod encryption;
mod feed;
pub mod meter;
mod mosaic;
mod order;
mod parts;
mod playback;
mod player;
mod receipt;
mod screen;
mod shared;
mod sound;
pub mod token;

pub use cloud::Transform;
pub use feed::{Acquired, FrameInfo};
pub use player::{Config, Link, Player};
pub use screen::{AcquiredPicture, PictureInfo};
pub use shared::{
    ClockInfo, ClockSource, Command, Phase, PlaybackAction, PlaybackInfo, Selection, Shared, Stats, Status, TooMany,
    TrackInfo,
};
pub use sound::{SoundBusy, SoundInfo, SoundStats};
pub use video::Matrix;
pub use viewselect::View;

/// First namespace field of all sessions.
pub const ROOT: &str = "holocast";
