//! Keeps a session open: reconnects with back-off, migrates when the relay sends GOAWAY, and continues at
//! another relay of a cluster when the relay falls silent or is lost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use moqt::{BufferPool, Config, Event, Limits, Nanos, Session};
use tokio::sync::{mpsc, Notify};
use tokio::task::{spawn_local, LocalSet};
use tokio::time::Instant;

use crate::conn::{dial_any, Conn, Dialled, Resumable};
use crate::error::{Failure, NetError};
use crate::failover::{Pace, Silence, DEAD, FIRST_RETRY, LAST_RETRY, LOOK, SUSPECT};
use crate::roster::{self, Place, Relay};
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
    /// Bytes that encryption may add to an object ([`moqt::Limits::sealing`]).
    pub sealing: usize,
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

/// Maximum time to stay with a relay after its GOAWAY.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);

enum ConnEvent {
    Dialled(Result<(Place, Dialled), NetError>),
    /// Like Dialled, of another relay while the current one is silent.
    Standby(u64, Result<(Place, Dialled), NetError>),
    /// The peer's SETUP arrived.
    Ready,
    /// The relay rejected the early data of a connection, or did not answer.
    Rejected(u64),
    Goaway(u64, String),
    Over(u64, NetError),
}

/// State shared by the connections.
pub(crate) struct Driver<A> {
    app: RefCell<A>,
    options: Options,
    events: mpsc::UnboundedSender<ConnEvent>,
    current: Cell<Option<u64>>,
    /// The other relays of the cluster.
    relays: RefCell<Vec<Relay>>,
    /// The relay of the last session that was ready.
    resumable: RefCell<Option<Resumable>>,
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

    pub fn rejected(&self, link: u64) {
        let _ = self.events.send(ConnEvent::Rejected(link));
    }

    /// Handles an event of the subscription to the list of relays. Returns other events.
    fn roster(&self, c: &Conn<A>, e: Event) -> Option<Event> {
        let request = match &e {
            Event::Object(o) => o.request,
            Event::Subscribed { request, .. }
            | Event::Cut { request, .. }
            | Event::Fetched { request }
            | Event::Failed { request, .. } // the relay is in no cluster
            | Event::Ended { request, .. } => *request,
            _ => return Some(e),
        };
        if c.roster.get() != Some(request) {
            return Some(e);
        }
        if let Event::Object(o) = e {
            if let Some(list) = roster::parse(&o.payload) {
                self.relays.replace(list);
            }
            self.options.pool.give(o.payload);
        }
        None
    }

    pub fn event(&self, c: &Rc<Conn<A>>, e: Event) {
        let tell = |n| {
            let _ = self.events.send(n); // the receiver lives as long as `run`
        };
        let Some(e) = self.roster(c, e) else { return };
        match e {
            Event::Ready { .. } => {
                self.current.set(Some(c.link));
                self.resumable.replace(c.resumable());
                let mut app = self.app.borrow_mut();
                let now = app.now();
                app.path(c.link, c.rtt());
                let mut session = c.session.borrow_mut();
                app.connected(now, c.link, &mut session);
                c.roster.set(Some(session.subscribe(now, &roster::track(), roster::options())));
                tell(ConnEvent::Ready);
            }
            Event::Goaway { uri, .. } => tell(ConnEvent::Goaway(c.link, uri)),
            Event::Closed { reason, code, remote } => {
                let name = moqt::code::session_name(code);
                let text = if remote {
                    reason
                } else {
                    format!("the session with {} was closed: {name}: {reason}", c.place.target.authority)
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
    /// The configured relay.
    home: Place,
    /// The relay in use, or the first to try.
    at: Place,
    /// The next attempt follows a GOAWAY, to no other relay than it names.
    moving: bool,
    /// Changes of the relay after losses since the last pause.
    hops: usize,
    pace: Pace,
    silence: Silence,
    standby: Standby,
    /// Number of standby connections so far, and when another one may be tried.
    standbys: u64,
    standby_after: Instant,
    /// Sessions being left after GOAWAY, with their closing deadlines.
    leaving: Vec<(u64, Instant)>,
}

/// A connection to another relay while the current one is silent.
enum Standby {
    None,
    Dialling(u64),
    Ready(Box<(Place, Dialled)>),
}

async fn reconnect_loop<A: App + 'static>(options: Options, app: A, handle: Arc<Handle>) {
    let (events, mut receive) = mpsc::unbounded_channel();
    let driver = Rc::new(Driver {
        app: RefCell::new(app),
        options,
        events,
        current: Cell::new(None),
        relays: RefCell::default(),
        resumable: RefCell::default(),
        wakes: Cell::new(Nanos::MIN),
        sooner: Notify::new(),
    });
    let home = Place { target: driver.options.target.clone(), certificate: driver.options.pinned };
    let mut k = Reconnector {
        driver,
        conns: BTreeMap::new(),
        next_link: 0,
        dialling: false,
        retry: Some(Instant::now()),
        wait: FIRST_RETRY,
        at: home.clone(),
        home,
        moving: false,
        hops: 0,
        pace: Pace::default(),
        silence: Silence::default(),
        standby: Standby::None,
        standbys: 0,
        standby_after: Instant::now(),
        leaving: Vec::new(),
    };
    while !handle.over() {
        k.dial_if_due();
        k.listen_for_silence();
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
        let mut places = if self.moving { Vec::new() } else { self.others() };
        let first = if self.hops > 0 { places.len() } else { 0 }; // a lost relay comes last
        places.insert(first, self.at.clone());
        self.drop_standby();
        if !matches!(&places[..], [place] if self.resume(place)) {
            self.dial(places, ConnEvent::Dialled);
        }
    }

    /// Begins a session with early data if possible. Only without an alternative, as the relay may not answer.
    fn resume(&mut self, place: &Place) -> bool {
        let known = self.driver.resumable.take().filter(|r| r.is(place));
        let Some(d) = known.and_then(|r| r.dial()) else { return false };
        self.begin(place.clone(), d);
        true
    }

    /// Dials relays in the background.
    fn dial(&self, places: Vec<Place>, event: impl FnOnce(Result<(Place, Dialled), NetError>) -> ConnEvent + 'static) {
        let d = self.driver.clone();
        spawn_local(async move {
            let dialled = dial_any(places, d.options.insecure).await;
            let _ = d.events.send(event(dialled));
        });
    }

    /// The relays other than the one in use, best first.
    fn others(&self) -> Vec<Place> {
        roster::others(&self.driver.relays.borrow(), &self.home, &self.at.target, random)
    }

    fn drop_standby(&mut self) {
        self.standby = Standby::None;
    }

    /// Dials another relay while the current one is silent, and continues there if it stays silent.
    fn listen_for_silence(&mut self) {
        let Some(c) = self.current().cloned() else { return };
        if self.dialling || self.retry.is_some() || self.driver.relays.borrow().is_empty() {
            self.silence.clear();
            return;
        }
        let now = Instant::now();
        let silent = self.silence.observe(now, c.link, c.received()).saturating_sub(c.rtt().smoothed);
        if silent < SUSPECT {
            return self.drop_standby();
        }
        match std::mem::replace(&mut self.standby, Standby::None) {
            Standby::None if now >= self.standby_after => {
                self.standbys += 1;
                let id = self.standbys;
                self.standby = Standby::Dialling(id);
                self.dial(self.others(), move |d| ConnEvent::Standby(id, d));
            }
            Standby::Ready(next) if silent >= DEAD => {
                self.leaving.push((c.link, now + LEAVE_TIMEOUT));
                self.silence.clear();
                self.dialling = true;
                let (place, d) = *next;
                self.begin(place, d);
            }
            other => self.standby = other,
        }
    }

    /// Begins a session.
    fn begin(&mut self, place: Place, d: Dialled) {
        let o = &self.driver.options;
        let config = Config {
            path: place.target.path.clone(),
            authority: place.target.authority.clone(),
            implementation: o.implementation.clone(),
            limits: Limits { sealing: o.sealing, ..Limits::default() },
            version: d.version(),
        };
        let session = Session::new(config, o.pool.clone(), self.driver.now());
        let link = self.next_link;
        self.next_link += 1;
        (self.at, self.moving) = (place.clone(), false);
        let c = Conn::new(link, place, d, session, self.driver.clone());
        self.conns.insert(link, c.clone());
        c.start();
    }

    fn try_again(&mut self) {
        if self.dialling || self.retry.is_some() {
            return;
        }
        self.retry = Some(Instant::now() + self.wait);
        let doubled = (2 * self.wait).min(LAST_RETRY);
        self.wait = doubled + doubled.mul_f64(random() / 4.0); // jitter, to spread reconnecting viewers
    }

    fn events(&mut self, n: ConnEvent) {
        match n {
            ConnEvent::Dialled(Ok((place, d))) => self.begin(place, d),
            ConnEvent::Dialled(Err(e)) => {
                (self.dialling, self.moving) = (false, false);
                self.hops = 0;
                self.driver.app.borrow_mut().connection_error(&e);
                self.try_again();
            }
            ConnEvent::Standby(id, dialled) => {
                if !matches!(self.standby, Standby::Dialling(now) if now == id) {
                    return; // the relay was heard meanwhile
                }
                self.standby = match dialled {
                    Ok(next) => Standby::Ready(Box::new(next)),
                    Err(_) => {
                        self.standby_after = Instant::now() + FIRST_RETRY;
                        Standby::None
                    }
                };
            }
            ConnEvent::Ready => self.dialling = false,
            ConnEvent::Rejected(link) => {
                let Some(c) = self.conns.remove(&link) else { return };
                match c.again() {
                    Some(d) => self.begin(c.place.clone(), d),
                    None => (self.dialling, self.retry) = (false, Some(Instant::now())),
                }
            }
            ConnEvent::Goaway(link, uri) => {
                if self.driver.current.get() != Some(link) {
                    return;
                }
                let Some(c) = self.conns.get(&link) else { return };
                let delay = self.pace.delay(c.opened.elapsed(), random() / 4.0);
                (self.at, self.moving) = (self.moved(&uri), true);
                self.leaving.push((link, Instant::now() + delay + LEAVE_TIMEOUT));
                if !self.dialling {
                    self.retry = Some(Instant::now() + delay);
                }
            }
            ConnEvent::Over(link, why) => self.over(link, &why),
        }
    }

    /// The relay that a GOAWAY names. Its certificate is the one whose hash is the URI's fragment, or the one
    /// in the list of relays.
    fn moved(&self, uri: &str) -> Place {
        let Ok(target) = Target::parse(uri) else { return self.at.clone() };
        let same = |t: &Target| t.host == target.host && t.port == target.port;
        let named = uri.split_once('#').and_then(|(_, hash)| parse_hash(hash));
        let known =
            self.driver.relays.borrow().iter().find(|r| same(&r.place.target)).and_then(|r| r.place.certificate);
        let kept = if same(&self.at.target) { self.at.certificate } else { self.home.certificate };
        Place { certificate: named.or(known).or(kept), target: target.with_path_of(&self.home.target) }
    }

    fn over(&mut self, link: u64, why: &NetError) {
        let Some(c) = self.conns.remove(&link) else { return };
        self.leaving.retain(|(l, _)| *l != link);
        if c.opened.elapsed() > LAST_RETRY {
            self.wait = FIRST_RETRY;
            self.hops = 0;
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
        if !was_current && !attempt || self.dialling {
            return;
        }
        if self.hops < self.others().len() {
            self.hops += 1;
            self.retry.get_or_insert(Instant::now());
        } else {
            self.hops = 0;
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
        let watching = self.driver.current.get().is_some() && !self.driver.relays.borrow().is_empty();
        let wake = Instant::now() + wait.min(if watching { LOOK } else { Duration::from_secs(1) });
        self.retry.map_or(wake, |r| r.min(wake))
    }
}

/// A random number between 0 and 1, derived from the hasher's seed. Not cryptographic.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}
