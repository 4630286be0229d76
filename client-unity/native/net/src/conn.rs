//! One connection: a MOQT session and its QUIC streams.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moqt::{Output, Request, Session, StreamKey};
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig};
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream, TransportConfig, VarInt, ZeroRttAccepted};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{spawn_local, JoinSet};

use crate::error::{explain, Failure, NetError};
use crate::eyeballs;
use crate::failover::STAGGER;
use crate::reconnect::{App, Driver};
use crate::roster::Place;
use crate::rtt::{Observed, Rtt};
use crate::target::Target;
use crate::trust::{self, Hash};

/// Handshake timeout.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Requested socket receive buffer: several frames, since they arrive in bursts.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Maximum chunks read from a stream at a time.
const CHUNKS: usize = 32;

/// Commands for the task that writes a stream.
enum Write {
    Bytes(Vec<u8>),
    Finish,
    Reset(u64),
}

/// A connection that completed its handshake, or carries early data.
pub(crate) struct Dialled {
    endpoint: Endpoint,
    connection: Connection,
    observed: Arc<Observed>,
    tls: Arc<QuicClientConfig>,
    /// Whether the relay accepts the early data, and the draft that they assume.
    early: Option<(ZeroRttAccepted, moqt::Version)>,
}

impl Dialled {
    /// The negotiated draft.
    pub(crate) fn version(&self) -> moqt::Version {
        negotiated(&self.connection).or(self.early.as_ref().map(|(_, v)| *v)).unwrap_or_default()
    }
}

/// The negotiated draft; None before the handshake completes.
fn negotiated(c: &Connection) -> Option<moqt::Version> {
    let data = c.handshake_data()?.downcast::<HandshakeData>().ok()?;
    moqt::Version::of(&data.protocol?)
}

/// A relay with which a session can be resumed.
pub(crate) struct Resumable {
    place: Place,
    /// Holds the tickets.
    tls: Arc<QuicClientConfig>,
    address: SocketAddr,
    version: moqt::Version,
}

impl Resumable {
    pub(crate) fn is(&self, p: &Place) -> bool {
        self.place.target.authority == p.target.authority && self.place.certificate == p.certificate
    }

    /// Opens a connection whose first packets carry data (0-RTT, RFC 9001 §4.6). Sessions send SETUP alone before
    /// they are ready, so a replay is harmless. None if the relay gave no ticket for early data.
    pub(crate) fn dial(&self) -> Option<Dialled> {
        let (config, observed) = config(&self.tls).ok()?;
        let endpoint = endpoint(self.address).ok()?;
        let connecting = endpoint.connect_with(config, self.address, &self.place.target.host).ok()?;
        let (connection, accepted) = connecting.into_0rtt().ok()?;
        let early = Some((accepted, self.version));
        Some(Dialled { endpoint, connection, observed, tls: self.tls.clone(), early })
    }
}

fn transport(observed: Arc<Observed>) -> Result<TransportConfig, NetError> {
    let mut t = TransportConfig::default();
    let idle = Duration::from_secs(5).try_into().map_err(|_| NetError::new(Failure::System, "invalid idle timeout"))?;
    t.max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(Duration::from_millis(1500)))
        // Viewers serve no requests, but receive many subgroups at a time.
        .max_concurrent_bidi_streams(16u32.into())
        .max_concurrent_uni_streams(1024u32.into())
        // The stream window fits several frames, the connection window a queue of them.
        .stream_receive_window((4u32 << 20).into())
        .receive_window((32u32 << 20).into())
        .datagram_receive_buffer_size(Some(1 << 20))
        .congestion_controller_factory(observed);
    Ok(t)
}

/// Configuration and observations of a connection.
fn config(tls: &Arc<QuicClientConfig>) -> Result<(quinn::ClientConfig, Arc<Observed>), NetError> {
    let observed = Arc::new(Observed::new());
    let mut config = quinn::ClientConfig::new(tls.clone());
    config.transport_config(Arc::new(transport(observed.clone())?));
    Ok((config, observed))
}

/// Connects to a relay. If set, `pinned` is the hash of the only trusted certificate.
pub(crate) async fn dial(target: &Target, pinned: Option<Hash>, insecure: bool) -> Result<Dialled, NetError> {
    let authority = &target.authority;
    let pinned = match pinned {
        Some(h) => Some(h),
        None if insecure || target.loopback() => trust::ask_hash(target).await,
        None => None,
    };
    if insecure && pinned.is_none() {
        let text =
            format!("{authority} serves no certificate hash over HTTP: is the relay running with --http enabled?");
        return Err(NetError::new(Failure::Unreachable, text));
    }
    let tls = trust::tls(pinned)?;
    let tls = Arc::new(QuicClientConfig::try_from(tls).map_err(|e| NetError::new(Failure::System, e.to_string()))?);
    let (config, observed) = config(&tls)?;
    let (endpoint, connection) =
        eyeballs::connect(&target.host, target.port, |address| handshake(address, config.clone(), target.clone()))
            .await?;
    Ok(Dialled { endpoint, connection, observed, tls, early: None })
}

/// Dials the relays in order, each [`STAGGER`] after the previous one, or at once after a failure. Returns
/// the first connection, or the first relay's error if all fail. Drops the other attempts. Needs a
/// `LocalSet`.
pub(crate) async fn dial_any(places: Vec<Place>, insecure: bool) -> Result<(Place, Dialled), NetError> {
    let mut attempts = JoinSet::new();
    let mut untried = places.into_iter().enumerate();
    let mut first = None;
    loop {
        if let Some((i, p)) = untried.next() {
            attempts.spawn_local(async move {
                let dialled = dial(&p.target, p.certificate, insecure).await;
                (i, p, dialled)
            });
        } else if attempts.is_empty() {
            return Err(first.unwrap_or_else(|| NetError::new(Failure::System, "there is no relay to connect to")));
        }
        let pause = tokio::time::sleep(STAGGER);
        tokio::select! {
            Some(Ok((i, p, dialled))) = attempts.join_next() => match dialled {
                Ok(d) => return Ok((p, d)),
                Err(e) if i == 0 => first = Some(e),
                Err(_) => {}
            },
            () = pause, if untried.len() > 0 => {}
        }
    }
}

/// Connects to one address.
async fn handshake(
    address: SocketAddr, config: quinn::ClientConfig, target: Target,
) -> Result<(Endpoint, Connection), NetError> {
    let authority = &target.authority;
    let endpoint =
        endpoint(address).map_err(|e| NetError::new(Failure::System, format!("cannot open a socket: {e}")))?;
    let connecting = endpoint
        .connect_with(config, address, &target.host)
        .map_err(|e| NetError::new(Failure::Refused, format!("cannot connect to {authority}: {e}")))?;
    match tokio::time::timeout(HANDSHAKE, connecting).await {
        Ok(Ok(connection)) => Ok((endpoint, connection)),
        Ok(Err(e)) => Err(explain(&e, authority, false)),
        Err(_) => Err(explain(&ConnectionError::TimedOut, authority, false)),
    }
}

fn endpoint(peer: SocketAddr) -> std::io::Result<Endpoint> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
    // Best effort: with a smaller buffer, bursts cause loss and retransmissions.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    let any: SocketAddr = if peer.is_ipv6() { ([0u16; 8], 0).into() } else { ([0u8; 4], 0).into() };
    socket.bind(&any.into())?;
    let runtime = quinn::default_runtime().ok_or_else(|| std::io::Error::other("no runtime"))?;
    Endpoint::new(quinn::EndpointConfig::default(), None, socket.into(), runtime)
}

/// A connection in use.
pub(crate) struct Conn<A> {
    pub link: u64,
    pub session: RefCell<Session>,
    pub opened: tokio::time::Instant,
    /// The relay.
    pub place: Place,
    /// The subscription to its list of relays.
    pub roster: Cell<Option<Request>>,
    driver: Rc<Driver<A>>,
    endpoint: Endpoint,
    connection: Connection,
    observed: Arc<Observed>,
    tls: Arc<QuicClientConfig>,
    early: Cell<Option<ZeroRttAccepted>>,
    writers: RefCell<HashMap<StreamKey, mpsc::UnboundedSender<Write>>>,
    readers: RefCell<HashMap<StreamKey, oneshot::Sender<u64>>>,
}

impl<A: App + 'static> Conn<A> {
    pub fn new(link: u64, place: Place, d: Dialled, session: Session, driver: Rc<Driver<A>>) -> Rc<Self> {
        Rc::new(Conn {
            link,
            session: RefCell::new(session),
            opened: tokio::time::Instant::now(),
            place,
            roster: Cell::default(),
            driver,
            endpoint: d.endpoint,
            connection: d.connection,
            observed: d.observed,
            tls: d.tls,
            early: Cell::new(d.early.map(|(accepted, _)| accepted)),
            writers: RefCell::default(),
            readers: RefCell::default(),
        })
    }

    /// Starts the session.
    pub fn start(self: &Rc<Self>) {
        match self.early.take() {
            None => self.receive(),
            Some(accepted) => {
                let c = self.clone();
                spawn_local(async move {
                    if accepted.await {
                        c.receive();
                    } else {
                        c.driver.rejected(c.link);
                    }
                });
            }
        }
        self.pump();
    }

    /// The relay, for resuming the session. None before the handshake completes.
    pub fn resumable(&self) -> Option<Resumable> {
        Some(Resumable {
            place: self.place.clone(),
            tls: self.tls.clone(),
            address: self.connection.remote_address(),
            version: negotiated(&self.connection)?,
        })
    }

    /// The connection, for another session after the relay rejected early data. None if it has ended.
    pub fn again(&self) -> Option<Dialled> {
        self.connection.close_reason().is_none().then(|| Dialled {
            endpoint: self.endpoint.clone(),
            connection: self.connection.clone(),
            observed: self.observed.clone(),
            tls: self.tls.clone(),
            early: None,
        })
    }

    fn receive(self: &Rc<Self>) {
        let c = self.clone();
        spawn_local(async move {
            while let Ok(recv) = c.connection.accept_uni().await {
                let key = c.session.borrow_mut().accept_uni();
                c.spawn_reader(key, recv);
            }
        });
        let c = self.clone();
        spawn_local(async move {
            while let Ok((send, recv)) = c.connection.accept_bi().await {
                let key = c.session.borrow_mut().accept_bi();
                let queue = c.writer(key);
                let d = c.clone();
                spawn_local(async move { d.write(key, send, queue).await });
                c.spawn_reader(key, recv);
            }
        });
        let c = self.clone();
        spawn_local(async move {
            while let Ok(b) = c.connection.read_datagram().await {
                c.session.borrow_mut().datagram(c.driver.now(), &b);
                c.pump();
            }
        });
        let c = self.clone();
        spawn_local(async move {
            let e = c.connection.closed().await;
            let why = explain(&e, &c.place.target.authority, true);
            let code = match &e {
                ConnectionError::ApplicationClosed(a) => a.error_code.into_inner(),
                _ => moqt::code::session::INTERNAL_ERROR,
            };
            c.session.borrow_mut().disconnected(code, &why.text);
            c.pump();
        });
    }

    pub fn rtt(&self) -> Rtt {
        let smoothed = self.connection.rtt();
        let min = self.observed.min.load(Ordering::Relaxed);
        Rtt { min: if min == u64::MAX { smoothed } else { Duration::from_nanos(min) }, smoothed }
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.connection.stats().udp_rx.bytes
    }

    /// Delivers the session's events and executes its outputs.
    pub fn pump(self: &Rc<Self>) {
        loop {
            let event = self.session.borrow_mut().poll_event();
            if let Some(e) = event {
                self.driver.event(self, e);
                continue;
            }
            let output = self.session.borrow_mut().poll_output();
            match output {
                Some(o) => self.perform(o),
                None => return self.driver.wake_in_time(),
            }
        }
    }

    fn writer(&self, key: StreamKey) -> mpsc::UnboundedReceiver<Write> {
        let (tx, rx) = mpsc::unbounded_channel();
        self.writers.borrow_mut().insert(key, tx);
        rx
    }

    fn perform(self: &Rc<Self>, o: Output) {
        let send = |key: StreamKey, w: Write| {
            if let Some(tx) = self.writers.borrow().get(&key) {
                let _ = tx.send(w); // the stream may be closed already
            }
        };
        match o {
            Output::OpenUni(key) => {
                let queue = self.writer(key);
                let c = self.clone();
                spawn_local(async move {
                    if let Ok(s) = c.connection.open_uni().await {
                        c.write(key, s, queue).await;
                    }
                });
            }
            Output::OpenBi(key) => {
                let queue = self.writer(key);
                let c = self.clone();
                spawn_local(async move {
                    if let Ok((s, r)) = c.connection.open_bi().await {
                        let _ = s.set_priority(1);
                        c.spawn_reader(key, r);
                        c.write(key, s, queue).await;
                    }
                });
            }
            Output::Send(key, b) => send(key, Write::Bytes(b)),
            Output::Finish(key) => send(key, Write::Finish),
            Output::Reset(key, code) => send(key, Write::Reset(code)),
            Output::Stop(key, code) => {
                if let Some(stop) = self.readers.borrow_mut().remove(&key) {
                    let _ = stop.send(code);
                }
            }
            Output::Datagram(b) => {
                let _ = self.connection.send_datagram(b.into()); // fails if too large or the connection is closed
            }
            Output::Close(code, reason) => self.close(code, &reason),
        }
    }

    /// Closes the connection after the session has closed.
    fn close(&self, code: u64, reason: &str) {
        let code = VarInt::from_u64(code).unwrap_or(VarInt::from_u32(1));
        // Truncate to fit a packet.
        let cut = (0..=reason.len().min(256)).rev().find(|n| reason.is_char_boundary(*n)).unwrap_or(0);
        self.connection.close(code, &reason.as_bytes()[..cut]);
    }

    /// Closes the session and waits for the peer to receive the close.
    pub async fn leave(self: &Rc<Self>) {
        self.session.borrow_mut().close(moqt::code::session::NO_ERROR, "");
        self.pump();
        let _ = tokio::time::timeout(Duration::from_millis(300), self.endpoint.wait_idle()).await;
    }

    async fn write(self: &Rc<Self>, key: StreamKey, mut s: SendStream, mut queue: mpsc::UnboundedReceiver<Write>) {
        while let Some(w) = queue.recv().await {
            match w {
                Write::Bytes(b) => {
                    if s.write_all(&b).await.is_err() {
                        break;
                    }
                }
                Write::Finish => {
                    let _ = s.finish();
                    break;
                }
                Write::Reset(code) => {
                    let _ = s.reset(VarInt::from_u64(code).unwrap_or_default());
                    break;
                }
            }
        }
        self.writers.borrow_mut().remove(&key);
    }

    fn spawn_reader(self: &Rc<Self>, key: StreamKey, recv: RecvStream) {
        let (tx, rx) = oneshot::channel();
        self.readers.borrow_mut().insert(key, tx);
        let c = self.clone();
        spawn_local(async move {
            c.read(key, recv, rx).await;
            c.readers.borrow_mut().remove(&key);
        });
    }

    async fn read(self: &Rc<Self>, key: StreamKey, mut recv: RecvStream, mut stop: oneshot::Receiver<u64>) {
        let mut chunks: [Bytes; CHUNKS] = std::array::from_fn(|_| Bytes::new());
        loop {
            let got = tokio::select! {
                biased;
                code = &mut stop => {
                    if let Ok(code) = code {
                        let _ = recv.stop(VarInt::from_u64(code).unwrap_or_default());
                    }
                    return;
                }
                got = recv.read_chunks(&mut chunks) => got,
            };
            let now = self.driver.now();
            let over = {
                let mut s = self.session.borrow_mut();
                match got {
                    Ok(Some(n)) => {
                        for b in &mut chunks[..n] {
                            s.receive(now, key, b);
                            *b = Bytes::new();
                        }
                        false
                    }
                    Ok(None) => {
                        s.finished(now, key);
                        true
                    }
                    Err(quinn::ReadError::Reset(_)) => {
                        s.reset(now, key);
                        true
                    }
                    Err(_) => true, // the connection's close has the reason
                }
            };
            self.pump();
            if over {
                return;
            }
        }
    }
}
