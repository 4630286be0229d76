//! Error codes, and the error types that carry them.

/// Session termination codes (§15.10.1).
#[allow(missing_docs)]
pub mod session {
    pub const NO_ERROR: u64 = 0x0;
    pub const INTERNAL_ERROR: u64 = 0x1;
    pub const UNAUTHORIZED: u64 = 0x2;
    pub const PROTOCOL_VIOLATION: u64 = 0x3;
    pub const INVALID_REQUEST_ID: u64 = 0x4;
    pub const DUPLICATE_TRACK_ALIAS: u64 = 0x5;
    pub const KEY_VALUE_FORMATTING_ERROR: u64 = 0x6;
    pub const INVALID_PATH: u64 = 0x8;
    pub const GOAWAY_TIMEOUT: u64 = 0x10;
    pub const CONTROL_MESSAGE_TIMEOUT: u64 = 0x11;
    pub const INVALID_AUTHORITY: u64 = 0x19;
}

/// REQUEST_ERROR codes (§15.10.2).
#[allow(missing_docs)]
pub mod request {
    pub const INTERNAL_ERROR: u64 = 0x0;
    pub const UNAUTHORIZED: u64 = 0x1;
    pub const TIMEOUT: u64 = 0x2;
    pub const NOT_SUPPORTED: u64 = 0x3;
    pub const GOING_AWAY: u64 = 0x6;
    pub const EXCESSIVE_LOAD: u64 = 0x9;
    pub const DOES_NOT_EXIST: u64 = 0x10;
    pub const INVALID_RANGE: u64 = 0x11;
    pub const MALFORMED_TRACK: u64 = 0x12;
    pub const DUPLICATE_SUBSCRIPTION: u64 = 0x19;
    pub const UNINTERESTED: u64 = 0x20;
    pub const INVALID_JOINING_REQUEST_ID: u64 = 0x32;
    pub const UNSUPPORTED_EXTENSION: u64 = 0x33;
    pub const REDIRECT: u64 = 0x34;
}

/// PUBLISH_DONE codes (§15.10.3).
#[allow(missing_docs)]
pub mod done {
    pub const INTERNAL_ERROR: u64 = 0x0;
    pub const UNAUTHORIZED: u64 = 0x1;
    pub const TRACK_ENDED: u64 = 0x2;
    pub const SUBSCRIPTION_ENDED: u64 = 0x3;
    pub const GOING_AWAY: u64 = 0x4;
    pub const TOO_FAR_BEHIND: u64 = 0x5;
    pub const EXPIRED: u64 = 0x6;
    pub const UPDATE_FAILED: u64 = 0x8;
    pub const EXCESSIVE_LOAD: u64 = 0x9;
    pub const MALFORMED_TRACK: u64 = 0x12;
}

/// Stream reset codes (§15.10.4).
#[allow(missing_docs)]
pub mod stream {
    pub const INTERNAL_ERROR: u64 = 0x0;
    pub const CANCELLED: u64 = 0x1;
    pub const TOO_FAR_BEHIND: u64 = 0x5;
    pub const EXCESSIVE_LOAD: u64 = 0x9;
    pub const MALFORMED_TRACK: u64 = 0x12;
}

fn name(names: &[(u64, &'static str)], code: u64) -> String {
    let known = names.iter().find(|(c, _)| *c == code);
    known.map_or_else(|| format!("code {code:#x}"), |(_, n)| (*n).to_owned())
}

/// Registered name of a session termination code.
pub fn session_name(code: u64) -> String {
    use session::*;
    name(
        &[
            (NO_ERROR, "NO_ERROR"),
            (INTERNAL_ERROR, "INTERNAL_ERROR"),
            (UNAUTHORIZED, "UNAUTHORIZED"),
            (PROTOCOL_VIOLATION, "PROTOCOL_VIOLATION"),
            (INVALID_REQUEST_ID, "INVALID_REQUEST_ID"),
            (DUPLICATE_TRACK_ALIAS, "DUPLICATE_TRACK_ALIAS"),
            (KEY_VALUE_FORMATTING_ERROR, "KEY_VALUE_FORMATTING_ERROR"),
            (INVALID_PATH, "INVALID_PATH"),
            (0x9, "MALFORMED_PATH"),
            (GOAWAY_TIMEOUT, "GOAWAY_TIMEOUT"),
            (CONTROL_MESSAGE_TIMEOUT, "CONTROL_MESSAGE_TIMEOUT"),
            (0x12, "DATA_STREAM_TIMEOUT"),
            (0x15, "VERSION_NEGOTIATION_FAILED"),
            (INVALID_AUTHORITY, "INVALID_AUTHORITY"),
            (0x1a, "MALFORMED_AUTHORITY"),
        ],
        code,
    )
}

/// Registered name of a REQUEST_ERROR code.
pub fn request_name(code: u64) -> String {
    use request::*;
    name(
        &[
            (INTERNAL_ERROR, "INTERNAL_ERROR"),
            (UNAUTHORIZED, "UNAUTHORIZED"),
            (TIMEOUT, "TIMEOUT"),
            (NOT_SUPPORTED, "NOT_SUPPORTED"),
            (GOING_AWAY, "GOING_AWAY"),
            (EXCESSIVE_LOAD, "EXCESSIVE_LOAD"),
            (DOES_NOT_EXIST, "DOES_NOT_EXIST"),
            (INVALID_RANGE, "INVALID_RANGE"),
            (MALFORMED_TRACK, "MALFORMED_TRACK"),
            (DUPLICATE_SUBSCRIPTION, "DUPLICATE_SUBSCRIPTION"),
            (UNINTERESTED, "UNINTERESTED"),
            (INVALID_JOINING_REQUEST_ID, "INVALID_JOINING_REQUEST_ID"),
            (UNSUPPORTED_EXTENSION, "UNSUPPORTED_EXTENSION"),
            (REDIRECT, "REDIRECT"),
        ],
        code,
    )
}

/// Registered name of a PUBLISH_DONE code.
pub fn done_name(code: u64) -> String {
    use done::*;
    name(
        &[
            (INTERNAL_ERROR, "INTERNAL_ERROR"),
            (UNAUTHORIZED, "UNAUTHORIZED"),
            (TRACK_ENDED, "TRACK_ENDED"),
            (SUBSCRIPTION_ENDED, "SUBSCRIPTION_ENDED"),
            (GOING_AWAY, "GOING_AWAY"),
            (TOO_FAR_BEHIND, "TOO_FAR_BEHIND"),
            (EXPIRED, "EXPIRED"),
            (UPDATE_FAILED, "UPDATE_FAILED"),
            (EXCESSIVE_LOAD, "EXCESSIVE_LOAD"),
            (MALFORMED_TRACK, "MALFORMED_TRACK"),
        ],
        code,
    )
}

/// A violation of the wire format. The session closes with this code (§3.5).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", session_name(*code))]
pub struct WireError {
    /// Session termination code.
    pub code: u64,
    /// Description of the violation.
    pub reason: String,
}

/// A PROTOCOL_VIOLATION.
pub fn violation(reason: impl Into<String>) -> WireError {
    WireError { code: session::PROTOCOL_VIOLATION, reason: reason.into() }
}

/// A request was rejected (§10.6) or timed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{reason}", request_name(*code), if reason.is_empty() { "" } else { ": " })]
pub struct RequestError {
    /// REQUEST_ERROR code.
    pub code: u64,
    /// The peer's reason phrase.
    pub reason: String,
}
