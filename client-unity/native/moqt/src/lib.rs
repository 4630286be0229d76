//! A Media over QUIC Transport subscriber (draft-ietf-moq-transport-18, -20 and -22) as a state
//! machine without I/O. Section numbers are draft-18's unless noted.
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

/// A draft of the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// draft-ietf-moq-transport-18
    #[default]
    Draft18,
    /// draft-ietf-moq-transport-20
    Draft20,
    /// draft-ietf-moq-transport-22
    Draft22,
}

impl Version {
    /// The supported drafts, preferred first.
    pub const ALL: [Version; 3] = [Version::Draft22, Version::Draft20, Version::Draft18];

    /// ALPN protocol identifier (§3.1).
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Version::Draft18 => b"moqt-18",
            Version::Draft20 => b"moqt-20",
            Version::Draft22 => b"moqt-22",
        }
    }

    /// The draft of an ALPN protocol identifier.
    pub fn of(alpn: &[u8]) -> Option<Version> {
        Version::ALL.into_iter().find(|v| v.alpn() == alpn)
    }
}
