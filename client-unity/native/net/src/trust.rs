//! Certificate verification: by a pinned hash, or by public CAs.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::error::{Failure, NetError};
use crate::http;
use crate::target::Target;

/// SHA-256 of a certificate.
pub type Hash = [u8; 32];

/// Parses a hash: 64 hex digits, colons allowed.
pub fn parse_hash(s: &str) -> Option<Hash> {
    let digits: Vec<u8> = s.trim().bytes().filter(|b| *b != b':').collect();
    let digit = |b: u8| char::from(b).to_digit(16);
    let mut hash = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (h, d) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *h = (digit(d[0])? << 4 | digit(d[1])?) as u8;
    }
    Some(hash)
}

fn hex(h: &[u8]) -> String {
    h.iter().map(|b| format!("{b:02x}")).collect()
}

pub(crate) fn tls(pinned: Option<Hash>) -> Result<ClientConfig, NetError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| NetError::new(Failure::System, e.to_string()))?;
    let mut config = match pinned {
        Some(hash) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { hash, provider }))
            .with_no_client_auth(),
        None => {
            let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    config.enable_early_data = true; // if the relay allows it
    config.alpn_protocols = moqt::Version::ALL.iter().map(|v| v.alpn().to_vec()).collect();
    Ok(config)
}

/// Trusts only the certificate with the given hash, within its validity period.
#[derive(Debug)]
struct Pinned {
    hash: Hash,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self, cert: &CertificateDer<'_>, _: &[CertificateDer<'_>], _: &ServerName<'_>, _: &[u8], now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let got = ::ring::digest::digest(&::ring::digest::SHA256, cert);
        if got.as_ref() != self.hash {
            return Err(refused(format!(
                "it has the hash {}, not the expected {}",
                hex(got.as_ref()),
                hex(&self.hash)
            )));
        }
        match validity(cert) {
            None => Err(Error::InvalidCertificate(CertificateError::BadEncoding)),
            Some((from, to)) if now.as_secs() < from || now.as_secs() > to => {
                let which = if now.as_secs() > to { "has expired" } else { "is not valid yet" };
                Err(refused(format!("it {which}")))
            }
            Some(_) => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[derive(thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

// rustls formats OtherError with Debug, so Debug prints just the reason.
impl std::fmt::Debug for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Extracts the reason from the error of rustls or [`Pinned`].
pub(crate) fn reason(error: &str) -> &str {
    let why = error.strip_prefix("invalid peer certificate: ").unwrap_or(error);
    match why {
        "UnknownIssuer" => "it is not signed by an authority that this device trusts",
        _ => why.strip_prefix("Other(OtherError(").and_then(|w| w.strip_suffix("))")).unwrap_or(why),
    }
}

fn refused(why: String) -> Error {
    Error::InvalidCertificate(CertificateError::Other(rustls::OtherError(Arc::new(Refusal(why)))))
}

/// Splits a DER element into its tag, its content, and the bytes after it.
fn element(b: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, b) = b.split_first()?;
    let (&first, mut b) = b.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let n = usize::from(first & 0x7f);
        if n > 3 {
            return None;
        }
        let (digits, rest) = b.split_at_checked(n)?;
        length = digits.iter().fold(0, |v, d| v << 8 | usize::from(*d));
        b = rest;
    }
    let (content, rest) = b.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Validity period of a certificate (RFC 5280 §4.1.2.5), seconds since 1970.
fn validity(certificate: &[u8]) -> Option<(u64, u64)> {
    let (_, certificate, _) = element(certificate)?;
    let (_, tbs, _) = element(certificate)?;
    let mut at = tbs;
    // Skip version (optional), serial number, signature and issuer.
    let version = usize::from(at.first() == Some(&0xa0));
    for _ in 0..3 + version {
        at = element(at)?.2;
    }
    let (_, validity, _) = element(at)?;
    let (from_tag, from, rest) = element(validity)?;
    let (to_tag, to, _) = element(rest)?;
    Some((time(from_tag, from)?, time(to_tag, to)?))
}

fn time(tag: u8, b: &[u8]) -> Option<u64> {
    const UTC_TIME: u8 = 0x17;
    let text = std::str::from_utf8(b).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = text.split_at_checked(if tag == UTC_TIME { 2 } else { 4 })?;
    let mut year: i64 = year.parse().ok()?;
    if tag == UTC_TIME {
        year += if year < 50 { 2000 } else { 1900 };
    }
    let field = |i: usize| rest.get(2 * i..2 * i + 2)?.parse::<i64>().ok();
    let (month, day) = (field(0)?, field(1)?);
    // Days since 1970 in the proleptic Gregorian calendar; years start in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    u64::try_from(86_400 * days + 3600 * field(2)? + 60 * field(3)? + field(4)?).ok()
}

/// Fetches /certificate.sha256 from the relay's HTTP server.
pub(crate) async fn ask_hash(t: &Target) -> Option<Hash> {
    let answer = http::get(t, "/certificate.sha256").await.ok().filter(|r| r.status == 200)?;
    parse_hash(std::str::from_utf8(&answer.body).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes() {
        let h = parse_hash(&"0aFf".repeat(16)).unwrap();
        assert_eq!(h[..2], [0x0a, 0xff]);
        assert_eq!(parse_hash(&["0a:ff"; 16].join(":")).unwrap(), h);
        assert_eq!(parse_hash("0aff"), None);
        assert_eq!(parse_hash(&"zz".repeat(32)), None);
    }

    #[test]
    fn reasons() {
        assert_eq!(reason(&refused("it has expired".into()).to_string()), "it has expired");
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(reason(&unknown.to_string()), "it is not signed by an authority that this device trusts");
    }

    #[test]
    fn validity_times() {
        assert_eq!(time(0x17, b"700101000000Z"), Some(0));
        assert_eq!(time(0x18, b"20251122143559Z"), Some(1_763_822_159));
        assert_eq!(time(0x17, b"240229120000Z"), Some(1_709_208_000));
        assert_eq!(time(0x17, b"2402291200Z"), None);
        assert_eq!(time(0x17, b"24022912000"), None);
    }

    #[test]
    fn damaged_certificates() {
        for n in 0..40 {
            let _ = validity(&vec![0x30; n]);
            let _ = validity(&vec![0xff; n]);
        }
        assert_eq!(validity(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
