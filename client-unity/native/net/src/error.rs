/// Kind of a connection error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Nothing answers.
    Unreachable,
    /// The relay's certificate is not trusted.
    Certificate,
    /// The peer refused the connection, or speaks another protocol.
    Refused,
    /// The connection was lost.
    Lost,
    /// The operating system refused a socket or thread.
    System,
}

/// A connection error with a message for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct NetError {
    /// Kind of error.
    pub failure: Failure,
    /// Message, one sentence.
    pub text: String,
}

impl NetError {
    pub(crate) fn new(failure: Failure, text: impl Into<String>) -> Self {
        NetError { failure, text: text.into() }
    }
}

/// TLS alerts concerning certificates (RFC 8446 §6.2).
const CERTIFICATE_ALERTS: std::ops::RangeInclusive<u64> = 42..=46;
const UNKNOWN_CA: u64 = 48;
const NO_APPLICATION_PROTOCOL: u64 = 120;

/// Describes for the user why a connection failed. `open` is true if it had been established.
pub(crate) fn explain(e: &quinn::ConnectionError, authority: &str, open: bool) -> NetError {
    use quinn::ConnectionError::*;
    let broke = |text: String| NetError::new(if open { Failure::Lost } else { Failure::Refused }, text);
    match e {
        TransportError(t) => {
            let code = u64::from(t.code);
            let alert = (0x100..0x200).contains(&code).then_some(code & 0xff);
            match alert {
                Some(a) if CERTIFICATE_ALERTS.contains(&a) || a == UNKNOWN_CA => {
                    let why = crate::trust::reason(&t.reason);
                    NetError::new(Failure::Certificate, format!("the certificate of {authority} is not trusted: {why}"))
                }
                Some(NO_APPLICATION_PROTOCOL) => {
                    broke(format!("{authority} does not speak moqt-22, moqt-20 or moqt-18"))
                }
                _ => broke(format!("the connection to {authority} failed: {t}")),
            }
        }
        ConnectionClosed(c) => match u64::from(c.error_code) {
            code if code == 0x100 + NO_APPLICATION_PROTOCOL => {
                broke(format!("{authority} does not speak moqt-22, moqt-20 or moqt-18"))
            }
            _ => broke(format!("{authority} closed the connection: {c}")),
        },
        ApplicationClosed(c) => {
            let code = moqt::code::session_name(c.error_code.into_inner());
            let reason = String::from_utf8_lossy(&c.reason);
            let colon = if reason.is_empty() { "" } else { ": " };
            broke(format!("{authority} closed the session: {code}{colon}{reason}"))
        }
        TimedOut if open => NetError::new(Failure::Lost, format!("{authority} no longer answers")),
        TimedOut => NetError::new(
            Failure::Unreachable,
            format!("nothing answers at {authority}: is the relay running, and does UDP reach it?"),
        ),
        VersionMismatch => broke(format!("{authority} does not speak QUIC version 1")),
        e => broke(format!("the connection to {authority} ended: {e}")),
    }
}
