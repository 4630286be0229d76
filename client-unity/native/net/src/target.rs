use crate::error::{Failure, NetError};

/// A relay, and the session that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name or address, without brackets.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// Host and port as the URL has them.
    pub authority: String,
    /// Path as the URL has it, with its query.
    pub path: String,
    /// The path without slashes around it; nothing where it is empty.
    pub session: Option<String>,
}

const DEFAULT_PORT: u16 = 443;

impl Target {
    /// Reads `moqt://host[:port][/session]`.
    pub fn parse(url: &str) -> Result<Target, NetError> {
        let bad = |why: &str| NetError::new(Failure::Refused, format!("the URL “{url}” {why}"));
        let Some((scheme, rest)) = url.trim().split_once("://") else {
            return Err(bad("is not of the form moqt://host:port/session"));
        };
        if !scheme.eq_ignore_ascii_case("moqt") {
            return Err(bad("must begin with moqt://"));
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        if authority.contains('@') {
            return Err(bad("must not name a user"));
        }
        if path.chars().any(|c| c.is_ascii_control() || c == ' ') {
            return Err(bad("has a space or a control character in its path"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, after) = v6.split_once(']').ok_or_else(|| bad("has an address without its ]"))?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| bad("has no valid address between its brackets"))?;
                (host, after.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(bad("names no host"));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(p) => p.parse().ok().filter(|p| *p != 0).ok_or_else(|| bad("has no valid port"))?,
        };
        let session = path.split('?').next().unwrap_or_default().trim_matches('/');
        Ok(Target {
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            // A query needs a path before it, be it the root.
            path: if path.starts_with('?') { format!("/{path}") } else { path.to_owned() },
            session: (!session.is_empty()).then(|| unescape(session)),
        })
    }

    /// The token that the URL's query has.
    pub fn token(&self) -> Option<&str> {
        let (_, query) = self.path.split_once('?')?;
        query.split('&').find_map(|v| v.strip_prefix("token="))
    }

    /// Whether the relay is on this machine.
    pub fn loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<std::net::IpAddr>().is_ok_and(|a| a.is_loopback())
    }
}

/// Undoes percent-encoding; what is none stays.
fn unescape(s: &str) -> String {
    let b = s.as_bytes();
    let digit = |i: usize| b.get(i).and_then(|c| char::from(*c).to_digit(16));
    let mut out = Vec::with_capacity(b.len());
    let mut i = 0;
    while i < b.len() {
        match (b[i], digit(i + 1), digit(i + 2)) {
            (b'%', Some(hi), Some(lo)) => {
                out.push((hi << 4 | lo) as u8);
                i += 3;
            }
            (c, ..) => {
                out.push(c);
                i += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| s.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (url, host, port, path, session) in [
            ("moqt://localhost:4443/demo", "localhost", 4443, "/demo", Some("demo")),
            ("moqt://relay.example/a/b/", "relay.example", 443, "/a/b/", Some("a/b")),
            ("MOQT://[::1]:5000", "::1", 5000, "", None),
            ("moqt://10.0.0.1:1/", "10.0.0.1", 1, "/", None),
            ("moqt://h/b%C3%BChne?x=1", "h", 443, "/b%C3%BChne?x=1", Some("bühne")),
            ("moqt://h?token=a.b", "h", 443, "/?token=a.b", None),
            (" moqt://h/s#there ", "h", 443, "/s", Some("s")),
        ] {
            let t = Target::parse(url).unwrap();
            assert_eq!((t.host.as_str(), t.port, t.path.as_str(), t.session.as_deref()), (host, port, path, session), "{url}");
        }
    }

    #[test]
    fn tokens() {
        for (url, token) in [
            ("moqt://h/s", None),
            ("moqt://h/s?token=a.b-c_", Some("a.b-c_")),
            ("moqt://h?x=token=1&token=a", Some("a")),
            ("moqt://h/token=a", None),
        ] {
            assert_eq!(Target::parse(url).unwrap().token(), token, "{url}");
        }
    }

    #[test]
    fn refused() {
        for (url, why) in [
            ("relay:4443", "is not of the form"),
            ("https://relay/demo", "must begin with moqt://"),
            ("moqt:///demo", "names no host"),
            ("moqt://relay:0/x", "has no valid port"),
            ("moqt://relay:99999/x", "has no valid port"),
            ("moqt://[::1/x", "without its ]"),
            ("moqt://[relay]/x", "no valid address"),
            ("moqt://me@relay/x", "must not name a user"),
            ("moqt://relay/a b", "space"),
        ] {
            assert!(Target::parse(url).unwrap_err().text.contains(why), "{url}: {:?}", Target::parse(url));
        }
    }
}
