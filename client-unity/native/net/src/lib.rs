//! Drives MOQT sessions over QUIC: reaches a relay, says why where that fails, tries again with back-off, and moves
//! to another connection when the relay asks for it. Everything runs on the thread that calls [`run`].

mod conn;
mod error;
mod keep;
mod rtt;
mod target;
mod trust;

pub use error::{Failure, NetError};
pub use keep::{run, App, Handle, Options};
pub use rtt::Rtt;
pub use target::Target;
pub use trust::{parse_hash, Hash};
