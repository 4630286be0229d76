//! Requests to the relay's HTTP server, on the TCP port with the same number as its UDP port.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{Failure, NetError};
use crate::eyeballs;
use crate::target::Target;

const TIMEOUT: Duration = Duration::from_secs(3);
const MOST: u64 = 4096;

/// Status code and body of a response.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Requests a path of the relay. Needs a `LocalSet`.
pub(crate) async fn get(t: &Target, path: &str) -> Result<Response, NetError> {
    let failed =
        |why: &str| NetError::new(Failure::Unreachable, format!("{} does not answer over HTTP: {why}", t.authority));
    let system = |e: std::io::Error| failed(&e.to_string());
    let ask = async {
        let dial = |a| async move {
            TcpStream::connect(a).await.map_err(|e| NetError::new(Failure::Unreachable, e.to_string()))
        };
        let mut s = eyeballs::connect(&t.host, t.port, dial).await.map_err(|e| failed(&e.text))?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", t.authority);
        s.write_all(request.as_bytes()).await.map_err(system)?;
        let mut answer = Vec::new();
        s.take(MOST).read_to_end(&mut answer).await.map_err(system)?;
        parse(&answer).ok_or_else(|| failed("another protocol answers"))
    };
    tokio::time::timeout(TIMEOUT, ask).await.map_err(|_| failed("nothing answers within three seconds"))?
}

fn parse(answer: &[u8]) -> Option<Response> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok().filter(|h| h.starts_with("HTTP/"))?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Response { status, body: answer[end + 4..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses() {
        let r = parse(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n\xff\r\n\r\n").unwrap();
        assert_eq!((r.status, &r.body[..]), (200, &b"\xff\r\n\r\n"[..]));
        for bad in [
            &b""[..],
            b"HTTP/1.0 200 OK\r\n",
            b"SSH-2.0\r\n\r\n",
            b"HTTP/1.0\r\n\r\n",
            b"HTTP/1.0 x\r\n\r\n",
            b"\xff\r\n\r\n",
        ] {
            assert!(parse(bad).is_none());
        }
    }
}
