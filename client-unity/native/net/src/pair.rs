//! Pairing links, `http://HOST:PORT/pair/CODE#KEY`, as internal/pairing makes them.

use base64::prelude::{Engine, BASE64_URL_SAFE_NO_PAD};
use ring::aead;
use tokio::task::LocalSet;

use crate::error::{Failure, NetError};
use crate::http;
use crate::target::Target;

/// Returns the address that the relay keeps under the link's code, decrypted with the link's key.
pub async fn resolve(link: &str) -> Result<String, NetError> {
    let (target, key) = parse(link)?;
    let answer = LocalSet::new().run_until(http::get(&target, &target.path)).await?;
    match answer.status {
        200 => open(&key, answer.body),
        404 => Err(refused("the pairing code is unknown or has expired: ask for a new one")),
        429 => Err(refused("the relay has had too many requests for pairing codes: try again in a minute")),
        code => Err(refused(&format!("{} answered {code} for the pairing code", target.authority))),
    }
}

fn refused(text: &str) -> NetError {
    NetError::new(Failure::Refused, text)
}

fn parse(link: &str) -> Result<(Target, String), NetError> {
    let none = || refused("a pairing link has the form http://host:port/pair/code#key");
    let (page, key) = link.trim().split_once('#').ok_or_else(none)?;
    let page = page.strip_prefix("http://").ok_or_else(none)?;
    let target = Target::parse(&format!("moqt://{page}"))?;
    let code = target.path.strip_prefix("/pair/").unwrap_or_default();
    if code.is_empty() || !code.bytes().all(|c| c.is_ascii_alphanumeric()) {
        return Err(none());
    }
    Ok((target, key.to_owned()))
}

/// AES-128-GCM with a zero nonce, since each key encrypts only one address.
fn open(key: &str, mut sealed: Vec<u8>) -> Result<String, NetError> {
    let key = BASE64_URL_SAFE_NO_PAD.decode(key).unwrap_or_default();
    let key = aead::UnboundKey::new(&aead::AES_128_GCM, &key)
        .map_err(|_| refused("the pairing link has no valid key after its #"))?;
    let nonce = aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN]);
    let address = aead::LessSafeKey::new(key)
        .open_in_place(nonce, aead::Aad::empty(), &mut sealed)
        .map_err(|_| refused("the pairing link's key does not fit its code"))?;
    String::from_utf8(address.to_vec()).map_err(|_| refused("the address behind the pairing code is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// The vector of internal/pairing.
    const KEY: &str = "AAECAwQFBgcICQoLDA0ODw";
    const ADDRESS: &str = "moqt://192.168.1.7:4443/demo?token=abc#0011";
    const SEALED: &str = "24b9f627a3b489bddabb545956b99eac979a111a005ef11734385b31a3c3933d550d8bbe684ff880b5\
        23605bd36e4bd306b5f0b2de27e10b974bbc";

    fn sealed() -> Vec<u8> {
        (0..SEALED.len() / 2).map(|i| u8::from_str_radix(&SEALED[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn vector() {
        assert_eq!(open(KEY, sealed()).unwrap(), ADDRESS);
    }

    #[test]
    fn damaged() {
        let mut altered = sealed();
        altered[0] ^= 1;
        for (key, sealed) in [
            ("BAECAwQFBgcICQoLDA0ODw", sealed()),
            ("AAECAwQFBgc", sealed()),
            ("", sealed()),
            ("!", sealed()),
            (KEY, altered),
            (KEY, sealed()[..15].to_vec()),
            (KEY, Vec::new()),
        ] {
            assert!(open(key, sealed).is_err());
        }
    }

    /// Answers one request with `response`; returns the link and the request.
    async fn relay(host: &str, response: Vec<u8>) -> (Result<String, NetError>, String) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let link = format!("http://{host}:{}/pair/ABCD2345#{KEY}", listener.local_addr().unwrap().port());
        let serve = async {
            let (mut s, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1024];
            let n = s.read(&mut request).await.unwrap();
            s.write_all(&response).await.unwrap();
            String::from_utf8(request[..n].to_vec()).unwrap()
        };
        tokio::join!(resolve(&link), serve)
    }

    #[tokio::test]
    async fn answers() {
        let ok = [b"HTTP/1.0 200 OK\r\n\r\n".to_vec(), sealed()].concat();
        for host in ["127.0.0.1", "localhost"] {
            let (address, request) = relay(host, ok.clone()).await;
            assert_eq!(address.as_deref(), Ok(ADDRESS));
            assert!(request.starts_with("GET /pair/ABCD2345 HTTP/1.0\r\n") && !request.contains(KEY), "{request}");
        }
        for (response, why) in [
            ("HTTP/1.1 404 Not Found\r\n\r\n", "unknown or has expired"),
            ("HTTP/1.1 429 Too Many Requests\r\n\r\n", "too many requests"),
            ("HTTP/1.1 500 Internal Server Error\r\n\r\n", "answered 500"),
            ("HTTP/1.1 200 OK\r\n\r\n", "does not fit its code"),
            ("SSH-2.0-x\r\n", "another protocol"),
            ("", "another protocol"),
        ] {
            let (address, _) = relay("127.0.0.1", response.into()).await;
            assert!(address.as_ref().is_err_and(|e| e.text.contains(why)), "{why}: {address:?}");
        }
    }

    #[test]
    fn links() {
        let (t, key) = parse(" http://[::1]:4443/pair/ABCD2345#k\n").unwrap();
        assert_eq!((t.host.as_str(), t.port, t.path.as_str(), key.as_str()), ("::1", 4443, "/pair/ABCD2345", "k"));
        for bad in [
            "",
            "http://h/pair/A",
            "https://h/pair/A#k",
            "http://h/#k",
            "http://h/pair/#k",
            "http://h/pair/../x#k",
            "http://h/pair/A?x#k",
            "http://u@h/pair/A#k",
            "http://h:0/pair/A#k",
            "http:///pair/A#k",
            "http://h/pair/A\r\nX: y#k",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
