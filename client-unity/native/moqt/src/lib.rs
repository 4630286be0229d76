//! A subscriber of Media over QUIC Transport, draft-ietf-moq-transport-18, as a state machine without I/O.
//!
//! [`Session`] takes what arrives on streams and as datagrams, and the time; it gives back what is to be done
//! ([`Output`]) and what happened ([`Event`]). Whoever drives it owns the transport. It knows no media.
//!
//! Whatever the peer sends, memory is bounded: an object's by [`SubscribeOptions::max_object`], those of a
//! session by [`Limits`], and it grows with the bytes that came, never with their announcement.

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
pub use session::{Config, Counters, Ended, Event, Limits, Nanos, Object, Output, Request, Session, StreamKey, SubscribeOptions};

/// The protocol identifier of the draft (§3.1).
pub const ALPN: &[u8] = b"moqt-18";
