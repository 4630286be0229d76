//! A Media over QUIC Transport subscriber (draft-ietf-moq-transport-18) as a state machine without
//! I/O.
//!
//! [`Session`] consumes stream data, datagrams and time, and produces instructions for the transport ([`Output`]) and
//! [`Event`]s for the application. The caller owns the transport. Independent of the media.
//!
//! Memory is bounded for any input: per object by [`SubscribeOptions::max_object`], per
//! session by [`Limits`]. It grows with bytes received, never with announced lengths.

pub mod bytes;
pub mod code;
pub mod data;
pub mod message;
mod pool;
mod session;

pub use code::{RequestError, WireError};
pub use data::{Datagram, Location, ObjectStatus};
pub use message::{Filter, Namespace, Properties, TrackName};
pub use pool::BufferPool;
pub use session::{
    Config, Counters, Ended, Event, Limits, Nanos, Object, Output, Request, Session, StreamKey, SubscribeOptions,
};

/// ALPN protocol identifier of the draft (§3.1).
pub const ALPN: &[u8] = b"moqt-18";
