//! Connects to hosts with several addresses (Happy Eyeballs version 2, RFC 8305).

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep_until, Instant};

use crate::error::{Failure, NetError};

/// Connection Attempt Delay (§5): time after which the next address is tried too.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Resolution Delay (§3): how long IPv4 addresses wait for IPv6 ones.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V6,
    V4,
}

impl Family {
    fn other(self) -> Self {
        match self {
            Family::V6 => Family::V4,
            Family::V4 => Family::V6,
        }
    }
}

/// Resolves a host and returns the first connection that `dial` opens. Tries IPv6 and IPv4 addresses
/// alternately, the next one after [`ATTEMPT_DELAY`] or a failure. Drops the other attempts. Needs a
/// `LocalSet`.
pub(crate) async fn connect<C, F>(host: &str, port: u16, dial: impl Fn(SocketAddr) -> F) -> Result<C, NetError>
where
    C: 'static,
    F: Future<Output = Result<C, NetError>> + 'static,
{
    if let Ok(ip) = host.parse() {
        return dial(SocketAddr::new(ip, port)).await;
    }
    let resolve = |family| {
        let host = host.to_owned();
        // A name server may take long to answer, and the system's resolver cannot be interrupted.
        let task = tokio::task::spawn_blocking(move || resolve(&host, family));
        async move { task.await.map_err(io::Error::other)? }
    };
    race(host, resolve, |ip| dial(SocketAddr::new(ip, port))).await
}

/// Asks the system's resolver for addresses of one family.
fn resolve(host: &str, family: Family) -> io::Result<Vec<IpAddr>> {
    let (family, ours): (_, fn(&IpAddr) -> bool) = match family {
        Family::V6 => (socket2::Domain::IPV6, IpAddr::is_ipv6),
        Family::V4 => (socket2::Domain::IPV4, IpAddr::is_ipv4),
    };
    let hints = dns_lookup::AddrInfoHints {
        socktype: socket2::Type::DGRAM.into(),
        address: family.into(),
        ..Default::default()
    };
    let found = dns_lookup::getaddrinfo(Some(host), None, Some(hints))?;
    Ok(found.flatten().map(|a| a.sockaddr.ip()).filter(ours).collect())
}

async fn race<C, R, F>(host: &str, resolve: impl Fn(Family) -> R, dial: impl Fn(IpAddr) -> F) -> Result<C, NetError>
where
    C: 'static,
    R: Future<Output = io::Result<Vec<IpAddr>>> + 'static,
    F: Future<Output = Result<C, NetError>> + 'static,
{
    let mut lookups = JoinSet::new();
    for family in [Family::V6, Family::V4] {
        let found = resolve(family);
        lookups.spawn_local(async move { (family, found.await) });
    }
    let mut untried = [VecDeque::new(), VecDeque::new()];
    let mut attempts = JoinSet::new();
    // A closed UDP port does not refuse QUIC, so a wrong first address costs time. Programs on
    // loopback often serve only IPv4.
    let mut next = if host == "localhost" { Family::V4 } else { Family::V6 };
    let mut pause = None; // ends when the next attempt may start
    let mut failures = Vec::new();
    let mut unknown = None;
    loop {
        if pause.is_none() {
            let family = if untried[next as usize].is_empty() { next.other() } else { next };
            if let Some(ip) = untried[family as usize].pop_front() {
                next = family.other();
                attempts.spawn_local(dial(ip));
                pause = Some(Instant::now() + ATTEMPT_DELAY);
            } else if lookups.is_empty() && attempts.is_empty() {
                return Err(failure(failures, host, unknown));
            }
        }
        tokio::select! {
            Some(found) = lookups.join_next() => {
                let Ok((family, found)) = found else { continue };
                let found = found.unwrap_or_else(|e| {
                    unknown = Some(e);
                    Vec::new()
                });
                if attempts.is_empty() && failures.is_empty() {
                    let wait = !lookups.is_empty() && next != family && !found.is_empty();
                    pause = wait.then(|| Instant::now() + RESOLUTION_DELAY);
                }
                untried[family as usize] = found.into();
            }
            Some(attempt) = attempts.join_next() => {
                match attempt {
                    Ok(Ok(connection)) => return Ok(connection),
                    Ok(Err(e)) => failures.push(e),
                    Err(e) => failures.push(NetError::new(Failure::System, e.to_string())),
                }
                pause = None;
            }
            () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => pause = None,
        }
    }
}

/// The failure of the address that came closest to a session: one that answered, if any, otherwise
/// the last.
fn failure(mut failures: Vec<NetError>, host: &str, unknown: Option<io::Error>) -> NetError {
    let answered = |e: &NetError| !matches!(e.failure, Failure::Unreachable | Failure::System);
    if let Some(i) = failures.iter().position(answered) {
        return failures.swap_remove(i);
    }
    failures.pop().unwrap_or_else(|| {
        let why = unknown.map_or_else(|| "it has no address".to_owned(), |e| e.to_string());
        NetError::new(Failure::Unreachable, format!("cannot resolve the host name {host}: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;
    use tokio::task::LocalSet;

    const DEAD: u64 = u64::MAX;

    /// Addresses and the milliseconds until the name server answers.
    type Answer<'a> = (&'a [&'a str], u64);

    /// Races the addresses; `peers` connect or fail after some milliseconds, others after 10.
    /// Returns the connected address or the error, the attempts, and the duration in milliseconds.
    async fn run(
        host: &str, v6: Answer<'_>, v4: Answer<'_>, peers: &[(&str, u64, Option<Failure>)],
    ) -> (Result<String, Failure>, Vec<String>, u128) {
        let began = Instant::now();
        let tried = Rc::new(RefCell::new(Vec::new()));
        let answer = |(addresses, ms): Answer<'_>| {
            let list: Vec<IpAddr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
            (list, Duration::from_millis(ms))
        };
        let answers = [answer(v6), answer(v4)];
        let resolve = |family: Family| {
            let (list, after) = answers[family as usize].clone();
            async move {
                tokio::time::sleep(after).await;
                if list.is_empty() {
                    return Err(io::Error::other("unknown"));
                }
                Ok(list)
            }
        };
        let dial = |ip: IpAddr| {
            tried.borrow_mut().push(format!("{ip} {}", began.elapsed().as_millis()));
            let known = peers.iter().find(|p| p.0 == ip.to_string());
            let (ms, why) = known.map_or((10, None), |p| (p.1, p.2));
            async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                why.map_or(Ok(ip.to_string()), |f| Err(NetError::new(f, "failed")))
            }
        };
        let result = LocalSet::new().run_until(race(host, resolve, dial)).await;
        (result.map_err(|e| e.failure), tried.take(), began.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn addresses() {
        let (six, four, other) = ("2001:db8::1", "192.0.2.1", "192.0.2.2");
        let unreachable = Some(Failure::Unreachable);
        type Case<'a> = (
            &'a str, // title
            Answer<'a>,
            Answer<'a>,
            &'a [(&'a str, u64, Option<Failure>)],
            Result<&'a str, Failure>,
            &'a [&'a str],
            u128,
        );
        let cases: &[Case<'_>] = &[
            ("both", (&[six], 5), (&[four], 5), &[], Ok(six), &["2001:db8::1 5"], 15),
            ("IPv4 alone", (&[], 5), (&[four], 5), &[], Ok(four), &["192.0.2.1 5"], 15),
            (
                "dead IPv6",
                (&[six], 5),
                (&[four], 5),
                &[(six, DEAD, None)],
                Ok(four),
                &["2001:db8::1 5", "192.0.2.1 255"],
                265,
            ),
            (
                "no route to IPv6",
                (&[six], 5),
                (&[four], 5),
                &[(six, 0, unreachable)],
                Ok(four),
                &["2001:db8::1 5", "192.0.2.1 5"],
                15,
            ),
            (
                "first of two dead",
                (&[], 5),
                (&[four, other], 5),
                &[(four, DEAD, None)],
                Ok(other),
                &["192.0.2.1 5", "192.0.2.2 255"],
                265,
            ),
            ("AAAA unanswered", (&[], DEAD), (&[four], 5), &[], Ok(four), &["192.0.2.1 55"], 65),
            ("A unanswered", (&[six], 5), (&[], DEAD), &[], Ok(six), &["2001:db8::1 5"], 15),
            (
                "late AAAA",
                (&[six], 100),
                (&[four], 5),
                &[(four, DEAD, None)],
                Ok(six),
                &["192.0.2.1 55", "2001:db8::1 305"],
                315,
            ),
            (
                "an untrusted certificate says more than silence",
                (&[six], 5),
                (&[four], 5),
                &[(six, 10, Some(Failure::Certificate)), (four, 10, unreachable)],
                Err(Failure::Certificate),
                &["2001:db8::1 5", "192.0.2.1 15"],
                25,
            ),
            ("unknown name", (&[], 5), (&[], 8), &[], Err(Failure::Unreachable), &[], 8),
        ];
        for (title, v6, v4, peers, want, tried, took) in cases {
            let got = run("relay.example", *v6, *v4, peers).await;
            let tried: Vec<String> = tried.iter().map(|s| (*s).to_owned()).collect();
            assert_eq!(got, (want.map(str::to_owned), tried, *took), "{title}");
        }
        let got = run("localhost", (&["::1"], 0), (&["127.0.0.1"], 1), &[]).await;
        assert_eq!(got.0, Ok("127.0.0.1".to_owned()));
    }

    #[tokio::test]
    async fn names() {
        assert!(resolve("127.0.0.1", Family::V4).is_ok_and(|l| l == [IpAddr::from([127, 0, 0, 1])]));
        assert!(!resolve("localhost", Family::V4).is_ok_and(|l| l.iter().any(IpAddr::is_ipv6)));
        let literal = connect("::1", 443, |a| async move { Ok(a) }).await;
        assert_eq!(literal.map_err(|e| e.text), Ok("[::1]:443".parse().unwrap()));
    }
}
