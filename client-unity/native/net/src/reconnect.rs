//! Keeps a session open: reconnects with back-off, and migrates when the relay sends GOAWAY.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use moqt::{BufferPool, Config, Event, Nanos, Session};
use tokio::sync::{mpsc, Notify};
use tokio::task::{spawn_local, LocalSet};
use tokio::time::Instant;

use crate::conn::{dial, Conn, Dialled};
use crate::error::{Failure, NetError};
use crate::rtt::Rtt;
use crate::target::Target;
use crate::trust::{parse_hash, Hash};

/// The application. All calls are made on the thread of [`run`].
pub trait App {
    /// Local time.
    fn now(&self) -> Nanos;
    /// A session is open and becomes the current one.
    fn connected(&mut self, now: Nanos, link: u64, s: &mut Session);
    /// An event of a session.
    fn event(&mut self, now: Nanos, link: u64, s: &mut Session, e: Event);
    /// Round-trip times of the current session.
    fn path(&mut self, link: u64, rtt: Rtt);
    /// A session ended.
    fn disconnected(&mut self, link: u64);
    /// Connecting failed, or the current connection was lost; a retry follows.
    fn connection_error(&mut self, why: &NetError);
    /// [`Handle::wake`] was called.
    fn wake(&mut self, now: Nanos, s: Option<&mut Session>);
    /// Time passed.
    fn tick(&mut self, now: Nanos, s: Option<&mut Session>);
    /// Latest time for the next `tick`.
    fn deadline(&self) -> Nanos;
    /// A session that is no longer used, to be closed.
    fn superseded(&mut self) -> Option<u64>;
}

/// Connection settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// Relay address.
    pub target: Target,
    /// The only trusted certificate; None: the public CAs.
    pub pinned: Option<Hash>,
    /// Fetch the certificate hash from the relay. Always done for loopback relays.
    pub insecure: bool,
    /// Implementation name sent in SETUP.
    pub implementation: String,
    /// Buffers for objects.
    pub pool: Arc<BufferPool>,
}

/// Wakes and stops [`run`] from other threads.
#[derive(Debug, Default)]
pub struct Handle {
    wake: Notify,
    over: AtomicBool,
}

impl Handle {
    /// Causes a call of [`App::wake`].
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Ends [`run`], which closes its sessions.
    pub fn stop(&self) {
        self.over.store(true, Ordering::Release);
        self.wake();
    }

    fn over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

// Back-off between connection attempts.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// Maximum time to stay with a relay after its GOAWAY.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);

enum ConnEvent {
    Dialled(Target, Result<Dialled, NetError>),
    /// The peer's SETUP arrived.
    Ready,
    Goaway(u64, String),
    Over(u64, NetError),
}

/// State shared by the connections.
pub(crate) struct Driver<A> {
    app: RefCell<A>,
    options: Options,
    events: mpsc::UnboundedSender<ConnEvent>,
    current: Cell<Option<u64>>,
    /// Time at which the reconnect loop wakes next, and a notification to wake it earlier.
    wakes: Cell<Nanos>,
    sooner: Notify,
}

impl<A: App + 'static> Driver<A> {
    /// Wakes the reconnect loop earlier if the application's deadline moved up.
    pub fn wake_in_time(&self) {
        if self.app.borrow().deadline() < self.wakes.get() {
            self.wakes.set(Nanos::MIN);
            self.sooner.notify_one();
        }
    }

    pub fn now(&self) -> Nanos {
        self.app.borrow().now()
    }

    pub fn authority(&self) -> String {
        self.options.target.authority.clone()
    }

    pub fn event(&self, c: &Rc<Conn<A>>, e: Event) {
        let tell = |n| {
            let _ = self.events.send(n); // the receiver lives as long as `run`
        };
        match e {
            Event::Ready { .. } => {
                self.current.set(Some(c.link));
                let mut app = self.app.borrow_mut();
                let now = app.now();
                app.path(c.link, c.rtt());
                app.connected(now, c.link, &mut c.session.borrow_mut());
                tell(ConnEvent::Ready);
            }
            Event::Goaway { uri, .. } => tell(ConnEvent::Goaway(c.link, uri)),
            Event::Closed { reason, code, remote } => {
                let name = moqt::code::session_name(code);
                let text = if remote {
                    reason
                } else {
                    format!("the session with {} was closed: {name}: {reason}", self.authority())
                };
                tell(ConnEvent::Over(c.link, NetError { failure: Failure::Lost, text }));
            }
            e => {
                let mut app = self.app.borrow_mut();
                let now = app.now();
                if matches!(&e, Event::Object(o) if o.datagram && !o.fetched) {
                    app.path(c.link, c.rtt());
                }
                app.event(now, c.link, &mut c.session.borrow_mut(), e);
            }
        }
    }
}

/// Keeps a session open until [`Handle::stop`] is called.
pub async fn run<A: App + 'static>(options: Options, app: A, handle: Arc<Handle>) {
    LocalSet::new().run_until(reconnect_loop(options, app, handle)).await;
}

struct Reconnector<A> {
    driver: Rc<Driver<A>>,
    conns: BTreeMap<u64, Rc<Conn<A>>>,
    next_link: u64,
    dialling: bool,
    /// Time of the next attempt.
    retry: Option<Instant>,
    wait: Duration,
    /// Target of a GOAWAY, and its certificate if the GOAWAY named that.
    moved: Option<(Target, Option<Hash>)>,
    /// Sessions being left after GOAWAY, with their closing deadlines.
    leaving: Vec<(u64, Instant)>,
}

async fn reconnect_loop<A: App + 'static>(options: Options, app: A, handle: Arc<Handle>) {
    let (events, mut receive) = mpsc::unbounded_channel();
    let driver = Rc::new(Driver {
        app: RefCell::new(app),
        options,
        events,
        current: Cell::new(None),
        wakes: Cell::new(Nanos::MIN),
        sooner: Notify::new(),
    });
    let mut k = Reconnector {
        driver,
        conns: BTreeMap::new(),
        next_link: 0,
        dialling: false,
        retry: Some(Instant::now()),
        wait: FIRST_RETRY,
        moved: None,
        leaving: Vec::new(),
    };
    while !handle.over() {
        k.dial_if_due();
        let wake = k.tick();
        tokio::select! {
            biased;
            n = receive.recv() => {
                if let Some(n) = n {
                    k.events(n);
                }
            }
            () = handle.wake.notified() => k.wake(),
            () = k.driver.sooner.notified() => {}
            () = tokio::time::sleep_until(wake) => {}
        }
    }
    for c in k.conns.values() {
        c.leave().await;
    }
}

impl<A: App + 'static> Reconnector<A> {
    fn current(&self) -> Option<&Rc<Conn<A>>> {
        self.conns.get(&self.driver.current.get()?)
    }

    fn dial_if_due(&mut self) {
        if self.dialling || self.retry.is_none_or(|t| Instant::now() < t) {
            return;
        }
        (self.dialling, self.retry) = (true, None);
        let d = self.driver.clone();
        let (target, named) = self.moved.take().unwrap_or_else(|| (d.options.target.clone(), None));
        spawn_local(async move {
            let dialled = dial(&target, named.or(d.options.pinned), d.options.insecure).await;
            let _ = d.events.send(ConnEvent::Dialled(target, dialled));
        });
    }

    fn try_again(&mut self) {
        if self.dialling || self.retry.is_some() {
            return;
        }
        self.retry = Some(Instant::now() + self.wait);
        let doubled = (2 * self.wait).min(LAST_RETRY);
        self.wait = doubled + doubled.mul_f64(random_quarter()); // jitter, to spread reconnecting viewers
    }

    fn events(&mut self, n: ConnEvent) {
        match n {
            ConnEvent::Dialled(target, Ok(d)) => {
                let now = self.driver.now();
                let o = &self.driver.options;
                let config = Config {
                    path: target.path,
                    authority: target.authority,
                    implementation: o.implementation.clone(),
                    version: d.version(),
                    ..Config::default()
                };
                let session = Session::new(config, o.pool.clone(), now);
                let link = self.next_link;
                self.next_link += 1;
                let c = Conn::new(link, d, session, self.driver.clone());
                self.conns.insert(link, c.clone());
                c.start();
            }
            ConnEvent::Dialled(_, Err(e)) => {
                self.dialling = false;
                self.driver.app.borrow_mut().connection_error(&e);
                self.try_again();
            }
            ConnEvent::Ready => self.dialling = false,
            ConnEvent::Goaway(link, uri) => {
                if self.driver.current.get() != Some(link) {
                    return;
                }
                let certificate = uri.split_once('#').and_then(|(_, hash)| parse_hash(hash));
                let to = Target::parse(&uri).ok();
                self.moved = to.map(|t| (t.with_path_of(&self.driver.options.target), certificate));
                self.leaving.push((link, Instant::now() + LEAVE_TIMEOUT));
                if !self.dialling {
                    self.retry = Some(Instant::now());
                }
            }
            ConnEvent::Over(link, why) => self.over(link, &why),
        }
    }

    fn over(&mut self, link: u64, why: &NetError) {
        let Some(c) = self.conns.remove(&link) else { return };
        self.leaving.retain(|(l, _)| *l != link);
        if c.opened.elapsed() > LAST_RETRY {
            self.wait = FIRST_RETRY;
        }
        let was_current = self.driver.current.get() == Some(link);
        // If a connection ended before it was ready, it was the current attempt.
        let attempt = !was_current && self.dialling && self.driver.current.get().is_none_or(|l| l < link);
        self.dialling &= !attempt;
        {
            let mut app = self.driver.app.borrow_mut();
            app.disconnected(link);
            if was_current || attempt {
                app.connection_error(why);
            }
        }
        if was_current {
            self.driver.current.set(None);
        }
        if was_current || attempt {
            self.try_again();
        }
    }

    /// Closes superseded sessions.
    fn close_superseded(&mut self) {
        let now = Instant::now();
        let mut done: Vec<u64> = self.leaving.iter().filter(|(_, t)| now >= *t).map(|(l, _)| *l).collect();
        done.extend(self.driver.app.borrow_mut().superseded());
        for link in done {
            self.leaving.retain(|(l, _)| *l != link);
            if let Some(c) = self.conns.get(&link).cloned() {
                c.session.borrow_mut().close(moqt::code::session::NO_ERROR, "moved");
                c.pump();
            }
        }
    }

    fn wake(&mut self) {
        let c = self.current().cloned();
        {
            let mut app = self.driver.app.borrow_mut();
            let now = app.now();
            let mut session = c.as_ref().map(|c| c.session.borrow_mut());
            app.wake(now, session.as_deref_mut());
        }
        if let Some(c) = c {
            c.pump();
        }
    }

    /// Runs timers; returns when to run them again.
    fn tick(&mut self) -> Instant {
        let now = self.driver.now();
        for c in self.conns.values().cloned().collect::<Vec<_>>() {
            let due = c.session.borrow().deadline().is_some_and(|d| now >= d);
            if due {
                c.session.borrow_mut().tick(now);
                c.pump();
            }
        }
        if now >= self.driver.app.borrow().deadline() {
            let c = self.current().cloned();
            {
                let mut session = c.as_ref().map(|c| c.session.borrow_mut());
                self.driver.app.borrow_mut().tick(now, session.as_deref_mut());
            }
            if let Some(c) = c {
                c.pump();
            }
        }
        self.close_superseded();
        let sessions = self.conns.values().filter_map(|c| c.session.borrow().deadline());
        let next = sessions.min().unwrap_or(Nanos::MAX).min(self.driver.app.borrow().deadline());
        self.driver.wakes.set(next);
        let wait = Duration::from_nanos(u64::try_from(next.saturating_sub(self.driver.now())).unwrap_or(0));
        let wake = Instant::now() + wait.min(Duration::from_secs(1));
        self.retry.map_or(wake, |r| r.min(wake))
    }
}

/// A random number between 0 and 0.25, derived from the hasher's seed. Not cryptographic.
fn random_quarter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64 / 4.0
}
