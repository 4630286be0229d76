use crate::error::{Failure, NetError};

/// A parsed URL: relay address and session name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Host name or IP address without brackets.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// Host and port as in the URL.
    pub authority: String,
    /// Path and query as in the URL.
    pub path: String,
    /// Path without surrounding slashes; None if empty.
    pub session: Option<String>,
    /// `e2e` of the URL's fragment, the keys of an encrypted session. Never sent.
    pub keys: Option<String>,
}

const DEFAULT_PORT: u16 = 443;

impl Target {
    /// Parses `moqt://host[:port][/session]`.
    pub fn parse(url: &str) -> Result<Target, NetError> {
        let bad = |why: &str| NetError::new(Failure::Refused, format!("the URL “{url}” {why}"));
        let Some((scheme, rest)) = url.trim().split_once("://") else {
            return Err(bad("does not have the form moqt://host:port/session"));
        };
        if !scheme.eq_ignore_ascii_case("moqt") {
            return Err(bad("must begin with moqt://"));
        }
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let keys = fragment.split('&').find_map(|v| v.strip_prefix("e2e=")).map(str::to_owned);
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        if authority.contains('@') {
            return Err(bad("must not name a user"));
        }
        if path.chars().any(|c| c.is_ascii_control() || c == ' ') {
            return Err(bad("contains a space or control character in its path"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, after) = v6.split_once(']').ok_or_else(|| bad("lacks the ] after its address"))?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| bad("has an invalid address in brackets"))?;
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
            Some(p) => p.parse().ok().filter(|p| *p != 0).ok_or_else(|| bad("has an invalid port"))?,
        };
        let session = path.split('?').next().unwrap_or_default().trim_matches('/');
        Ok(Target {
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            // A query needs a path before it.
            path: if path.starts_with('?') { format!("/{path}") } else { path.to_owned() },
            session: (!session.is_empty()).then(|| unescape(session)),
            keys,
        })
    }

    /// This target with the path of `other` if it has none, as after a GOAWAY that names only a relay.
    pub fn with_path_of(mut self, other: &Target) -> Target {
        if matches!(self.path.as_str(), "" | "/") {
            self.path.clone_from(&other.path);
            self.session.clone_from(&other.session);
        }
        self
    }

    /// The `token` of the URL's query.
    pub fn token(&self) -> Option<&str> {
        let (_, query) = self.path.split_once('?')?;
        query.split('&').find_map(|v| v.strip_prefix("token="))
    }

    /// True if the relay is on this machine.
    pub fn loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<std::net::IpAddr>().is_ok_and(|a| a.is_loopback())
    }
}

/// Decodes percent-encoding; invalid sequences are kept.
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
            assert_eq!(
                (t.host.as_str(), t.port, t.path.as_str(), t.session.as_deref()),
                (host, port, path, session),
                "{url}"
            );
        }
    }

    #[test]
    fn path_of_another_target() {
        let home = Target::parse("moqt://a:1/demo?token=t").unwrap();
        for (to, path, session) in [
            ("moqt://b:2", "/demo?token=t", Some("demo")),
            ("moqt://b:2/", "/demo?token=t", Some("demo")),
            ("moqt://b:2/other", "/other", Some("other")),
        ] {
            let t = Target::parse(to).unwrap().with_path_of(&home);
            assert_eq!((t.host.as_str(), t.path.as_str(), t.session.as_deref()), ("b", path, session), "{to}");
        }
    }

    #[test]
    fn keys() {
        let t = Target::parse("moqt://h/s?token=a#e2e=1.AAECAwQFBgcICQoLDA0ODw").unwrap();
        assert_eq!((t.path.as_str(), t.keys.as_deref()), ("/s?token=a", Some("1.AAECAwQFBgcICQoLDA0ODw")));
        assert_eq!(Target::parse("moqt://h/s#00ff").unwrap().keys, None);
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
    fn invalid_urls() {
        for (url, why) in [
            ("relay:4443", "does not have the form"),
            ("https://relay/demo", "must begin with moqt://"),
            ("moqt:///demo", "names no host"),
            ("moqt://relay:0/x", "has an invalid port"),
            ("moqt://relay:99999/x", "has an invalid port"),
            ("moqt://[::1/x", "lacks the ]"),
            ("moqt://[relay]/x", "invalid address"),
            ("moqt://me@relay/x", "must not name a user"),
            ("moqt://relay/a b", "space"),
        ] {
            assert!(Target::parse(url).unwrap_err().text.contains(why), "{url}: {:?}", Target::parse(url));
        }
    }
}
