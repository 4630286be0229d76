//! Runs MOQT sessions over QUIC: connects to a relay, reports errors, reconnects with back-off, migrates on
//! GOAWAY, and continues at another relay of a cluster when its relay is silent or lost. Everything runs on
//! the thread that calls [`run`].

mod conn;
mod error;
mod eyeballs;
mod failover;
mod http;
mod pair;
mod reconnect;
mod roster;
mod rtt;
mod target;
mod trust;

pub use error::{Failure, NetError};
pub use pair::resolve;
pub use reconnect::{run, App, Handle, Options};
pub use rtt::Rtt;
pub use target::Target;
pub use trust::{parse_hash, Hash};
