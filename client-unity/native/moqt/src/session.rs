use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::bytes::{ReadError, Reader};
use crate::code::{self, violation, RequestError, WireError};
use crate::data::{Datagram, Location, ObjectHeader, ObjectStatus, Parser, Sink, StreamHeader, SubgroupHeader};
use crate::message::{self, Filter, Message, Namespace, Parameters, Properties, TrackName, MAX_MESSAGE};
use crate::pool::BufferPool;
use crate::Version;

/// Time on the caller's clock, nanoseconds since an arbitrary epoch.
pub type Nanos = i64;

const MS: Nanos = 1_000_000;
/// Allocation granularity for large objects, bytes.
const STEP: usize = 64 << 10;

/// Identifies a stream between session and driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey(pub u64);

/// One of our requests, by ID (§3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request(pub u64);

/// Instructions for the driver, to be executed in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Open a unidirectional stream.
    OpenUni(StreamKey),
    /// Open a bidirectional stream.
    OpenBi(StreamKey),
    /// Send bytes on a stream.
    Send(StreamKey, Vec<u8>),
    /// Finish our direction of a stream.
    Finish(StreamKey),
    /// Reset our direction of a stream with an error code.
    Reset(StreamKey, u64),
    /// Ask the peer to stop sending. The session ignores further data.
    Stop(StreamKey, u64),
    /// Send a datagram, or drop it if congested.
    Datagram(Vec<u8>),
    /// Close the connection.
    Close(u64, String),
}

/// A complete object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Subscription or FETCH that it belongs to. Objects of a joining FETCH belong to the
    /// subscription.
    pub request: Request,
    /// Received by FETCH.
    pub fetched: bool,
    /// Received in a datagram, or originally published in one.
    pub datagram: bool,
    /// Received in a datagram that ends its group.
    pub end_of_group: bool,
    /// Group ID.
    pub group: u64,
    /// Subgroup ID.
    pub subgroup: u64,
    /// Object ID.
    pub id: u64,
    /// Publisher priority; None: the track's.
    pub priority: Option<u8>,
    /// Object status.
    pub status: ObjectStatus,
    /// Object properties.
    pub properties: Properties,
    /// Payload. Return it to the [`BufferPool`].
    pub payload: Vec<u8>,
}

impl Object {
    fn of(request: Request, d: &Datagram<'_>) -> Self {
        Object {
            request,
            fetched: false,
            datagram: true,
            end_of_group: d.end_of_group,
            group: d.group,
            subgroup: 0,
            id: d.object,
            priority: d.priority,
            status: d.status,
            properties: d.properties.clone(),
            payload: d.payload.to_vec(),
        }
    }
}

/// The publisher's reason for ending a subscription (§10.11).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{reason}", code::done_name(*code), if reason.is_empty() { "" } else { ": " })]
pub struct Ended {
    /// PUBLISH_DONE code.
    pub code: u64,
    /// The publisher's reason phrase.
    pub reason: String,
}

impl Ended {
    /// True if the track or the requested range ended normally. False for errors and disconnects.
    pub fn over(&self) -> bool {
        matches!(self.code, code::done::TRACK_ENDED | code::done::SUBSCRIPTION_ENDED)
    }
}

/// Events for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer's SETUP arrived.
    Ready {
        /// The peer's implementation name.
        implementation: String,
    },
    /// A SUBSCRIBE was accepted.
    Subscribed {
        /// The SUBSCRIBE.
        request: Request,
        /// Largest object published so far.
        largest: Option<Location>,
        /// Track properties.
        properties: Properties,
    },
    /// An object arrived.
    Object(Object),
    /// A subgroup was reset by the peer or rejected here. It is incomplete.
    Cut {
        /// The SUBSCRIBE.
        request: Request,
        /// Group ID.
        group: u64,
        /// Subgroup ID, if known.
        subgroup: Option<u64>,
        /// True if the peer reset it.
        remote: bool,
    },
    /// A FETCH is complete. A joining FETCH is reported under its subscription.
    Fetched {
        /// The FETCH; for a joining FETCH, its SUBSCRIBE.
        request: Request,
    },
    /// A request was rejected or timed out, or its stream was reset.
    Failed {
        /// The request.
        request: Request,
        /// The reason.
        error: RequestError,
    },
    /// An accepted subscription ended.
    Ended {
        /// The SUBSCRIBE.
        request: Request,
        /// The reason.
        why: Ended,
    },
    /// A PUBLISH was accepted.
    Published {
        /// The PUBLISH.
        request: Request,
    },
    /// A namespace was added or removed.
    Namespace {
        /// The SUBSCRIBE_NAMESPACE.
        request: Request,
        /// True if added.
        added: bool,
        /// Namespace without the subscribed prefix.
        suffix: Namespace,
    },
    /// The peer asks to migrate the session (§3.6).
    Goaway {
        /// Target URI; "" means the same relay.
        uri: String,
        /// Milliseconds until the peer closes the session; 0 = unspecified.
        timeout_ms: u64,
    },
    /// The session has ended. No further events.
    Closed {
        /// Session termination code.
        code: u64,
        /// Description.
        reason: String,
        /// True if ended by the peer or the network.
        remote: bool,
    },
}

/// Publisher priority of tracks that name none (§12.4).
const DEFAULT_PRIORITY: u8 = 128;

/// Limits on the resources a session uses for its peer.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of incomplete objects.
    pub partial_bytes: usize,
    /// Subgroups and datagrams with an unknown alias.
    pub orphans: usize,
    /// Bytes of subgroups and datagrams with an unknown alias.
    pub orphan_bytes: usize,
    /// Namespaces per prefix.
    pub namespaces: usize,
    /// Unanswered updates per subscription.
    pub updates: u32,
    /// Timeout for SETUP and for answers to requests.
    pub answer: Nanos,
    /// Timeout for the alias of an early subgroup or datagram.
    pub orphan: Nanos,
    /// Timeout for streams still missing at PUBLISH_DONE.
    pub done: Nanos,
    /// Timeout for the objects of a FETCH.
    pub fetch: Nanos,
    /// Bytes that encryption may add to an object; 0 for sessions that are not encrypted.
    pub sealing: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            partial_bytes: 96 << 20,
            orphans: 256,
            orphan_bytes: 4 << 20,
            namespaces: 4096,
            updates: 64,
            answer: 10_000 * MS,
            orphan: 2_000 * MS,
            done: 2_000 * MS,
            fetch: 20_000 * MS,
            sealing: 0,
        }
    }
}

/// Settings of a session.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Path and query of the URL.
    pub path: String,
    /// Host and port of the URL.
    pub authority: String,
    /// Our implementation name.
    pub implementation: String,
    /// Resource limits.
    pub limits: Limits,
    /// The negotiated draft.
    pub version: Version,
}

/// Parameters of a SUBSCRIBE.
#[derive(Debug, Clone, Copy)]
pub struct SubscribeOptions {
    /// Start of the subscription; None: from now on.
    pub filter: Option<Filter>,
    /// 0 (highest) to 255 (lowest); None: 128 (§7).
    pub priority: Option<u8>,
    /// Delivery timeout of objects in milliseconds; 0 = none.
    pub delivery_timeout_ms: u64,
    /// Rendezvous timeout in milliseconds.
    pub rendezvous_ms: u64,
    /// Request the newest group along with the subscription, by a joining FETCH (§10.12.2) or from
    /// draft-20 on a fill (draft-22 §3.4).
    pub join: bool,
    /// Maximum accepted object size, bytes.
    pub max_object: usize,
    /// Subgroups from this ID on are rejected.
    pub subgroups: u64,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        SubscribeOptions {
            filter: None,
            priority: None,
            delivery_timeout_ms: 0,
            rendezvous_ms: 0,
            join: false,
            max_object: 0,
            subgroups: u64::MAX,
        }
    }
}

/// Counters of rejected and lost data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counters {
    pub subgroups_unknown: u64,
    pub datagrams_unknown: u64,
    pub subgroups_refused: u64,
    pub subgroups_reset: u64,
    pub malformed: u64,
}

#[derive(Debug)]
enum Phase {
    Setup {
        until: Nanos,
    },
    Open,
    /// The peer closed its control stream; the connection should follow.
    Leaving {
        until: Nanos,
    },
    Closed,
}

#[derive(Debug)]
struct PendingRequest {
    stream: StreamKey,
    /// Deadline of the answer or, once answered, of the end.
    until: Option<Nanos>,
    answered: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Subscribe(Box<Subscription>),
    Fetch { joining: Option<Request>, max_object: usize, again: bool, complete: bool, data: Option<StreamKey> },
    Namespaces { active: HashSet<Namespace> },
    Publish { alias: u64, forward: bool },
}

#[derive(Debug)]
struct Subscription {
    track: TrackName,
    options: SubscribeOptions,
    alias: Option<u64>,
    largest: Option<Location>,
    /// Until when the stream of a fill is expected (draft-20).
    fill: Option<Nanos>,
    join: Option<Request>,
    /// The joining FETCH or fill was rejected before the subscription was accepted.
    rejoin: bool,
    streams: u64,
    open: HashSet<StreamKey>,
    updates: u32,
    done: Option<(u64, Ended)>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // nearly all streams are data streams
enum Stream {
    ControlIn(Vec<u8>),
    Request(Request, Vec<u8>),
    PeerRequest(Vec<u8>),
    Header(Vec<u8>),
    Orphan { header: SubgroupHeader, held: Vec<u8>, since: Nanos, fin: bool },
    Data { parser: Parser, objects: Collector },
}

/// A datagram with an unknown alias.
#[derive(Debug)]
struct Early {
    alias: u64,
    since: Nanos,
    bytes: Vec<u8>,
}

/// Assembles a stream's objects.
#[derive(Debug)]
struct Collector {
    request: Request,
    owner: Request,
    fetched: bool,
    max_object: usize,
    subgroups: u64,
    group: u64,
    subgroup: Option<u64>,
    header: Option<ObjectHeader>,
    buf: Vec<u8>,
    refused: Option<u64>,
}

struct Collecting<'a> {
    c: &'a mut Collector,
    events: &'a mut VecDeque<Event>,
    pool: &'a BufferPool,
    held: &'a mut usize,
    most: usize,
}

impl Collecting<'_> {
    fn refuse(&mut self, code: u64) -> bool {
        self.c.refused = Some(code);
        false
    }

    fn finish(&mut self) {
        let Some(h) = self.c.header.take() else { return };
        *self.held -= self.c.buf.capacity();
        self.events.push_back(Event::Object(Object {
            request: self.c.owner,
            fetched: self.c.fetched,
            datagram: h.datagram,
            end_of_group: false,
            group: h.group,
            subgroup: h.subgroup,
            id: h.id,
            priority: h.priority,
            status: h.status,
            properties: h.properties,
            payload: std::mem::take(&mut self.c.buf),
        }));
    }
}

impl Sink for Collecting<'_> {
    fn object(&mut self, h: ObjectHeader) -> bool {
        self.c.group = h.group;
        self.c.subgroup = Some(h.subgroup);
        if h.length > self.c.max_object as u64 {
            return self.refuse(code::stream::EXCESSIVE_LOAD);
        }
        if h.subgroup >= self.c.subgroups {
            return self.refuse(code::stream::CANCELLED);
        }
        let empty = h.length == 0;
        if !empty {
            // Datagram parts are many and small; pooled buffers are for large objects.
            self.c.buf = if h.datagram { Vec::new() } else { self.pool.take() };
            *self.held += self.c.buf.capacity();
        }
        self.c.header = Some(h);
        if !empty && *self.held > self.most {
            return self.refuse(code::stream::EXCESSIVE_LOAD);
        }
        if empty {
            self.finish();
        }
        true
    }

    fn payload(&mut self, b: &[u8]) -> bool {
        let Some(h) = &self.c.header else { return false };
        let (length, buf) = (h.length as usize, &mut self.c.buf);
        if buf.capacity() - buf.len() < b.len() {
            // Grow the buffer with the received bytes: first 512 KiB, then double, capped at the
            // object's size. Large sizes are rounded to whole steps to make pooled buffers fit the
            // next frame.
            let most = if length < STEP { length } else { length.next_multiple_of(STEP) };
            let want = (2 * (buf.len() + b.len())).max(512 << 10).min(most);
            let before = buf.capacity();
            buf.reserve_exact(want - buf.len());
            *self.held += buf.capacity() - before;
            if *self.held > self.most {
                return self.refuse(code::stream::EXCESSIVE_LOAD);
            }
        }
        buf.extend_from_slice(b);
        if buf.len() == length {
            self.finish();
        }
        true
    }
}

/// A client's MOQT session.
#[derive(Debug)]
pub struct Session {
    version: Version,
    limits: Limits,
    pool: Arc<BufferPool>,
    phase: Phase,
    outputs: VecDeque<Output>,
    events: VecDeque<Event>,
    streams: HashMap<StreamKey, Stream>,
    requests: HashMap<Request, PendingRequest>,
    aliases: HashMap<u64, Request>,
    next_stream: u64,
    next_request: u64,
    next_alias: u64,
    held: usize,
    orphan_bytes: usize,
    early: VecDeque<Early>,
    control_in: bool,
    goaway: bool,
    refuses_changes: bool,
    counters: Counters,
    /// Tracks of subscriptions and fetches, and their publisher priority, until the application has
    /// seen their last event.
    tracks: HashMap<Request, (TrackName, u8)>,
}

impl Session {
    /// Starts a session on an open connection. Its first outputs send SETUP.
    pub fn new(c: Config, pool: Arc<BufferPool>, now: Nanos) -> Self {
        let mut s = Session {
            version: c.version,
            phase: Phase::Setup { until: now + c.limits.answer },
            limits: c.limits,
            pool,
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            streams: HashMap::new(),
            requests: HashMap::new(),
            aliases: HashMap::new(),
            next_stream: 0,
            next_request: 0,
            next_alias: 0,
            held: 0,
            orphan_bytes: 0,
            early: VecDeque::new(),
            control_in: false,
            goaway: false,
            refuses_changes: false,
            counters: Counters::default(),
            tracks: HashMap::new(),
        };
        let control = s.key();
        s.outputs.push_back(Output::OpenUni(control));
        s.outputs.push_back(Output::Send(control, message::setup(&c.path, &c.authority, &c.implementation)));
        s
    }

    fn key(&mut self) -> StreamKey {
        self.next_stream += 1;
        StreamKey(self.next_stream)
    }

    /// The next instruction.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let e = self.events.pop_front();
        match &e {
            Some(Event::Failed { request, .. } | Event::Ended { request, .. }) => {
                self.tracks.remove(request);
            }
            // A joining FETCH belongs to its subscription, which continues.
            Some(Event::Fetched { request }) if !self.requests.contains_key(request) => {
                self.tracks.remove(request);
            }
            _ => {}
        }
        e
    }

    /// The track of a subscription or fetch, and the publisher priority of objects that name none.
    pub fn track(&self, request: Request) -> Option<(&TrackName, u8)> {
        self.tracks.get(&request).map(|(name, priority)| (name, *priority))
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes held for incomplete objects.
    pub fn held(&self) -> usize {
        self.held + self.orphan_bytes
    }

    /// True once the session has ended.
    pub fn closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// True once the peer's SETUP has arrived, until the session ends or the peer closes its control
    /// stream.
    pub fn ready(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// True if the peer rejected an update of a subscription (§10.9).
    pub fn refuses_changes(&self) -> bool {
        self.refuses_changes
    }

    // Our requests.

    fn ask(&mut self, now: Nanos, extra_ms: u64, kind: Kind, build: impl FnOnce(u64) -> Vec<u8>) -> Request {
        let request = Request(self.next_request);
        self.next_request += 2;
        let stream = self.key();
        self.outputs.push_back(Output::OpenBi(stream));
        self.outputs.push_back(Output::Send(stream, build(request.0)));
        self.streams.insert(stream, Stream::Request(request, Vec::new()));
        let extra = Nanos::try_from(extra_ms.min(3_600_000)).unwrap_or(0) * MS;
        let until = Some(now + self.limits.answer + extra);
        self.requests.insert(request, PendingRequest { stream, until, answered: false, kind });
        request
    }

    /// Subscribes to a track. With `join`, also fetches its newest group without waiting for the
    /// answer, so that a late joiner has an object after one round trip. An invalid name fails
    /// immediately.
    pub fn subscribe(&mut self, now: Nanos, track: &TrackName, o: SubscribeOptions) -> Request {
        if !track.valid() || self.closed() {
            return self.fail_early(format!("{track}: invalid track name"));
        }
        let v = self.version;
        let fill = o.join && v >= Version::Draft20;
        let wait = Nanos::try_from(o.rendezvous_ms.min(3_600_000)).unwrap_or(0) * MS;
        let sub = Subscription {
            track: track.clone(),
            options: o,
            alias: None,
            largest: None,
            fill: fill.then(|| now + self.limits.fetch + wait),
            join: None,
            rejoin: false,
            streams: 0,
            open: HashSet::new(),
            updates: 0,
            done: None,
        };
        let fields = message::Subscribe {
            filter: o.filter,
            priority: o.priority,
            delivery_timeout_ms: o.delivery_timeout_ms,
            rendezvous_ms: o.rendezvous_ms,
            fill,
        };
        let kind = Kind::Subscribe(Box::new(sub));
        let request = self.ask(now, o.rendezvous_ms, kind, |id| message::subscribe(id, track, &fields, v));
        self.tracks.insert(request, (track.clone(), DEFAULT_PRIORITY));
        if o.join && !fill {
            self.join(now, request, o, true);
        }
        request
    }

    fn join(&mut self, now: Nanos, sub: Request, o: SubscribeOptions, again: bool) {
        let kind = Kind::Fetch { joining: Some(sub), max_object: o.max_object, again, complete: false, data: None };
        let v = self.version;
        let range = self.subscription(sub).and_then(|s| s.largest.map(|l| (s.track.clone(), l)));
        let id = match range {
            Some((track, last)) if v >= Version::Draft20 => {
                let first = Location { group: last.group, object: 0 };
                let end = Location { object: last.object.wrapping_add(1), ..last }; // 0 = the whole group
                self.ask(now, 0, kind, |id| message::fetch(id, &track, first, end, o.priority, v))
            }
            _ => self.ask(now, o.rendezvous_ms, kind, |id| message::joining_fetch(id, sub.0, o.priority)),
        };
        if let Some(s) = self.subscription(sub) {
            s.join = Some(id);
        }
    }

    fn fail_early(&mut self, reason: String) -> Request {
        let request = Request(self.next_request);
        self.next_request += 2;
        let error = RequestError { code: code::request::INTERNAL_ERROR, reason };
        self.events.push_back(Event::Failed { request, error });
        request
    }

    /// Moves a subscription's start to `group`: earlier groups are sent only if already in flight
    /// (§10.9). Does nothing once the peer has rejected an update or left too many unanswered.
    pub fn start_at(&mut self, request: Request, group: u64) {
        let v = self.version;
        self.update(request, |id| message::start_update(id, group, v));
    }

    /// Asks the publisher to begin `group`, or any group if 0 (§10.2.14). The track's properties must
    /// permit this. Like `start_at`, does nothing once the peer has rejected an update or left too many
    /// unanswered.
    pub fn new_group(&mut self, request: Request, group: u64) {
        self.update(request, |id| message::new_group_update(id, group));
    }

    fn update(&mut self, request: Request, build: impl FnOnce(u64) -> Vec<u8>) {
        let (most, refuses) = (self.limits.updates, self.refuses_changes);
        let Some(PendingRequest { stream, kind: Kind::Subscribe(s), answered: true, .. }) =
            self.requests.get_mut(&request)
        else {
            return;
        };
        if refuses || s.updates >= most || s.done.is_some() {
            return;
        }
        s.updates += 1;
        let stream = *stream;
        let id = self.next_request;
        self.next_request += 2;
        self.outputs.push_back(Output::Send(stream, build(id)));
    }

    /// Cancels a request. It causes no further events.
    pub fn cancel(&mut self, request: Request) {
        self.tracks.remove(&request);
        let Some(pending) = self.requests.remove(&request) else { return };
        match &pending.kind {
            Kind::Publish { .. } if pending.answered => {
                let done = message::publish_done(code::done::TRACK_ENDED, "");
                self.outputs.push_back(Output::Send(pending.stream, done));
                self.end_request(pending.stream);
            }
            Kind::Subscribe(_) if pending.answered => self.end_request(pending.stream),
            _ => self.abort(pending.stream, code::stream::CANCELLED),
        }
        self.drop_data(pending.kind);
    }

    /// Drops the state of a finished request.
    fn drop_data(&mut self, kind: Kind) {
        match kind {
            Kind::Subscribe(s) => {
                if let Some(alias) = s.alias {
                    self.aliases.remove(&alias);
                }
                for key in s.open {
                    self.stop(key, code::stream::CANCELLED);
                }
                if let Some(join) = s.join {
                    self.cancel(join);
                }
            }
            Kind::Fetch { data: Some(key), .. } => self.stop(key, code::stream::CANCELLED),
            _ => {}
        }
    }

    /// Fetches a track's published objects from `first` up to, but not including, `end`. If `end`'s
    /// object is 0, its whole group is included (§10.12.1).
    pub fn fetch(
        &mut self, now: Nanos, track: &TrackName, first: Location, end: Location, priority: Option<u8>,
        max_object: usize,
    ) -> Request {
        if !track.valid() || self.closed() {
            return self.fail_early(format!("{track}: invalid track name"));
        }
        let kind = Kind::Fetch { joining: None, max_object, again: false, complete: false, data: None };
        let v = self.version;
        let request = self.ask(now, 0, kind, |id| message::fetch(id, track, first, end, priority, v));
        self.tracks.insert(request, (track.clone(), DEFAULT_PRIORITY));
        request
    }

    /// Subscribes to the namespaces under a prefix (§10.18).
    pub fn subscribe_namespace(&mut self, now: Nanos, prefix: &Namespace) -> Request {
        self.ask(now, 0, Kind::Namespaces { active: HashSet::new() }, |id| message::subscribe_namespace(id, prefix))
    }

    /// Publishes a track of datagrams (§10.10). `next` is its first group.
    pub fn publish(&mut self, now: Nanos, track: &TrackName, next: u64) -> Request {
        let alias = self.next_alias;
        self.next_alias += 1;
        let largest = next.checked_sub(1).map(|group| Location { group, object: 0 });
        self.ask(now, 0, Kind::Publish { alias, forward: false }, |id| message::publish(id, track, alias, largest))
    }

    /// Sends object 0 of a group on a published track. Returns false if there is no subscriber.
    pub fn send_datagram(&mut self, request: Request, group: u64, priority: u8, payload: &[u8]) -> bool {
        let Some(PendingRequest { kind: Kind::Publish { alias, forward: true }, .. }) = self.requests.get(&request)
        else {
            return false;
        };
        self.outputs.push_back(Output::Datagram(Datagram::encode(*alias, group, priority, payload)));
        true
    }

    /// Closes the session.
    pub fn close(&mut self, code: u64, reason: &str) {
        self.close_with(code, reason.to_owned(), false);
    }

    // Input from the transport.

    /// The peer opened a unidirectional stream.
    pub fn accept_uni(&mut self) -> StreamKey {
        let key = self.key();
        self.streams.insert(key, Stream::Header(Vec::new()));
        key
    }

    /// The peer opened a bidirectional stream: a request, which viewers reject.
    pub fn accept_bi(&mut self) -> StreamKey {
        let key = self.key();
        self.streams.insert(key, Stream::PeerRequest(Vec::new()));
        key
    }

    /// Data arrived on a stream.
    pub fn receive(&mut self, now: Nanos, key: StreamKey, chunk: &[u8]) {
        if self.closed() {
            return;
        }
        if let Err(e) = self.take(now, key, chunk) {
            self.close_with(e.code, e.reason, false);
        }
    }

    /// The peer finished its direction of a stream.
    pub fn finished(&mut self, now: Nanos, key: StreamKey) {
        if self.closed() {
            return;
        }
        if let Err(e) = self.take_end(now, key) {
            self.close_with(e.code, e.reason, false);
        }
    }

    /// The peer reset a stream.
    pub fn reset(&mut self, now: Nanos, key: StreamKey) {
        match self.streams.remove(&key) {
            Some(Stream::ControlIn(_)) => self.control_closed(now),
            Some(Stream::Request(request, _)) => self.request_ended(request, "its stream was reset"),
            Some(Stream::Orphan { held, .. }) => self.orphan_bytes -= held.len(),
            Some(Stream::Data { objects, .. }) => {
                self.counters.subgroups_reset += 1;
                self.data_over(now, key, objects, Some(true));
            }
            Some(Stream::PeerRequest(_) | Stream::Header(_)) | None => {}
        }
    }

    /// A datagram arrived.
    pub fn datagram(&mut self, now: Nanos, b: &[u8]) {
        if self.closed() {
            return;
        }
        match Datagram::parse(b) {
            Ok(Some(d)) => match self.aliases.get(&d.alias) {
                Some(&request) => self.events.push_back(Event::Object(Object::of(request, &d))),
                None => self.early(now, d.alias, b),
            },
            Ok(None) => {}
            Err(ReadError::Wire(e)) => self.close_with(e.code, e.reason, false),
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Stores a datagram until its track's alias is known.
    fn early(&mut self, now: Nanos, alias: u64, b: &[u8]) {
        let expected = self.requests.values().any(|a| !a.answered && matches!(a.kind, Kind::Subscribe(_)));
        let room = self.early.len() < self.limits.orphans && self.orphan_bytes + b.len() <= self.limits.orphan_bytes;
        if !expected || !room {
            self.counters.datagrams_unknown += 1;
            return;
        }
        self.orphan_bytes += b.len();
        self.early.push_back(Early { alias, since: now, bytes: b.to_vec() });
    }

    /// Removes and returns the early datagrams that match `wanted`.
    fn take_early(&mut self, wanted: impl Fn(&Early) -> bool) -> Vec<Early> {
        let (taken, kept) = std::mem::take(&mut self.early).into_iter().partition::<Vec<_>, _>(wanted);
        self.early = kept.into();
        self.orphan_bytes -= taken.iter().map(|e| e.bytes.len()).sum::<usize>();
        taken
    }

    /// The connection ended.
    pub fn disconnected(&mut self, code: u64, reason: &str) {
        self.close_with(code, reason.to_owned(), true);
    }

    /// Latest time for the next call of `tick`.
    pub fn deadline(&self) -> Option<Nanos> {
        let phase = match self.phase {
            Phase::Setup { until } | Phase::Leaving { until } => Some(until),
            _ => None,
        };
        let orphans = self.streams.values().filter_map(|s| match s {
            Stream::Orphan { since, .. } => Some(since + self.limits.orphan),
            _ => None,
        });
        let early = self.early.front().map(|e| e.since + self.limits.orphan);
        let fills = self.requests.values().filter_map(|a| match &a.kind {
            Kind::Subscribe(s) => s.fill,
            _ => None,
        });
        self.requests.values().filter_map(|a| a.until).chain(fills).chain(orphans).chain(early).chain(phase).min()
    }

    /// Handles the passage of time.
    pub fn tick(&mut self, now: Nanos) {
        match self.phase {
            Phase::Setup { until } if now >= until => {
                return self.close_with(code::session::CONTROL_MESSAGE_TIMEOUT, "no SETUP from the peer".into(), false);
            }
            Phase::Leaving { until } if now >= until => {
                let why = violation("the peer closed its control stream");
                return self.close_with(why.code, why.reason, false);
            }
            _ => {}
        }
        let orphaned = |s: &Stream| matches!(s, Stream::Orphan { since, .. } if now >= since + self.limits.orphan);
        let late: Vec<_> = self.streams.iter().filter(|(_, s)| orphaned(s)).map(|(k, _)| *k).collect();
        for key in late {
            self.counters.subgroups_unknown += 1;
            self.stop(key, code::stream::CANCELLED);
        }
        if self.early.front().is_some_and(|e| now >= e.since + self.limits.orphan) {
            let limit = self.limits.orphan;
            self.counters.datagrams_unknown += self.take_early(|e| now >= e.since + limit).len() as u64;
        }
        let late: Vec<_> =
            self.requests.iter().filter(|(_, a)| a.until.is_some_and(|t| now >= t)).map(|(r, _)| *r).collect();
        for request in late {
            self.timed_out(now, request);
        }
        for (request, pending) in &mut self.requests {
            if let Kind::Subscribe(s) = &mut pending.kind {
                if s.fill.is_some_and(|t| now >= t) {
                    s.fill = None;
                    self.events.push_back(Event::Fetched { request: *request });
                }
            }
        }
    }

    fn timed_out(&mut self, now: Nanos, request: Request) {
        if let Some(PendingRequest { kind: Kind::Subscribe(s), answered: true, .. }) = self.requests.get_mut(&request) {
            s.streams = u64::MAX; // the remaining streams counted by PUBLISH_DONE are lost
            let open: Vec<_> = s.open.drain().collect();
            for key in open {
                self.stop(key, code::stream::CANCELLED);
            }
            return self.check_done(request);
        }
        let reason = "the relay did not answer".to_owned();
        self.fail(now, request, RequestError { code: code::request::TIMEOUT, reason }, true);
    }

    /// Ends a failed request and reports it.
    fn fail(&mut self, now: Nanos, request: Request, error: RequestError, abort: bool) {
        let Some(pending) = self.requests.remove(&request) else { return };
        if abort {
            self.abort(pending.stream, code::stream::CANCELLED);
        } else {
            self.end_request(pending.stream);
        }
        if let Kind::Fetch { joining: Some(sub), again, .. } = pending.kind {
            self.drop_data(pending.kind);
            let Some(s) = self.subscription(sub) else { return };
            s.join = None;
            // A peer that processes the FETCH before the SUBSCRIBE may reject it.
            return self.joined(now, sub, again && error.code != code::request::TIMEOUT);
        }
        self.drop_data(pending.kind);
        self.events.push_back(Event::Failed { request, error });
    }

    /// Handles the end of a joining FETCH or a fill. With `again`, fetches the group once more, as soon as
    /// the subscription is accepted.
    fn joined(&mut self, now: Nanos, sub: Request, again: bool) {
        let Some(s) = self.subscription(sub) else { return };
        if again && s.alias.is_none() {
            s.rejoin = true;
        } else if again && s.largest.is_some() {
            let o = s.options;
            self.join(now, sub, o, false);
        } else {
            self.events.push_back(Event::Fetched { request: sub });
        }
    }

    fn subscription(&mut self, request: Request) -> Option<&mut Subscription> {
        match self.requests.get_mut(&request) {
            Some(PendingRequest { kind: Kind::Subscribe(s), .. }) => Some(s),
            _ => None,
        }
    }

    /// Finishes our direction of a request and ignores the peer's.
    fn end_request(&mut self, key: StreamKey) {
        self.outputs.push_back(Output::Finish(key));
        if self.streams.remove(&key).is_some() {
            self.outputs.push_back(Output::Stop(key, code::stream::CANCELLED));
        }
    }

    /// Aborts both directions (§3.3.2).
    fn abort(&mut self, key: StreamKey, code: u64) {
        self.outputs.push_back(Output::Reset(key, code));
        if self.streams.remove(&key).is_some() {
            self.outputs.push_back(Output::Stop(key, code));
        }
    }

    /// Stops a data stream.
    fn stop(&mut self, key: StreamKey, code: u64) {
        match self.streams.remove(&key) {
            Some(Stream::Data { objects, .. }) => self.give_back(objects),
            Some(Stream::Orphan { held, .. }) => self.orphan_bytes -= held.len(),
            Some(_) => {}
            None => return,
        }
        self.outputs.push_back(Output::Stop(key, code));
    }

    fn give_back(&mut self, mut c: Collector) {
        if c.header.take().is_some() {
            self.held -= c.buf.capacity();
            self.pool.give(c.buf);
        }
    }

    fn close_with(&mut self, code: u64, reason: String, remote: bool) {
        if self.closed() {
            return;
        }
        self.phase = Phase::Closed;
        self.streams.clear();
        self.requests.clear();
        self.aliases.clear();
        self.early.clear();
        (self.held, self.orphan_bytes) = (0, 0);
        self.outputs.clear();
        if !remote {
            self.outputs.push_back(Output::Close(code, reason.clone()));
        }
        self.events.push_back(Event::Closed { code, reason, remote });
    }

    fn take(&mut self, now: Nanos, key: StreamKey, chunk: &[u8]) -> Result<(), WireError> {
        let Some(stream) = self.streams.remove(&key) else { return Ok(()) };
        match stream {
            Stream::Header(mut buf) => {
                buf.extend_from_slice(chunk);
                self.begin_uni(now, key, buf)
            }
            Stream::ControlIn(mut buf) => {
                buf.extend_from_slice(chunk);
                while let Some(m) = next_message(&mut buf, self.version)? {
                    self.control(m)?;
                }
                if !self.closed() {
                    self.streams.insert(key, Stream::ControlIn(buf));
                }
                Ok(())
            }
            Stream::Request(request, mut buf) => {
                buf.extend_from_slice(chunk);
                loop {
                    let m = next_message(&mut buf, self.version)?;
                    // Put the stream back first, since the handler may end it by its key.
                    self.streams.insert(key, Stream::Request(request, Vec::new()));
                    let Some(m) = m else { break };
                    self.answer(now, request, m)?;
                    if self.streams.remove(&key).is_none() {
                        return Ok(());
                    }
                }
                self.streams.insert(key, Stream::Request(request, buf));
                Ok(())
            }
            Stream::PeerRequest(mut buf) => {
                buf.extend_from_slice(chunk);
                match next_message(&mut buf, self.version)? {
                    None => {
                        self.streams.insert(key, Stream::PeerRequest(buf));
                        Ok(())
                    }
                    Some(Message::Request(_)) => {
                        let refusal =
                            message::request_error(code::request::NOT_SUPPORTED, "a viewer serves no requests");
                        self.outputs.push_back(Output::Send(key, refusal));
                        self.outputs.push_back(Output::Finish(key));
                        self.outputs.push_back(Output::Stop(key, code::stream::CANCELLED));
                        Ok(())
                    }
                    Some(_) => Err(violation("a request stream does not begin with a request")),
                }
            }
            Stream::Orphan { header, mut held, since, fin } => {
                held.extend_from_slice(chunk);
                self.orphan_bytes += chunk.len();
                self.streams.insert(key, Stream::Orphan { header, held, since, fin });
                if self.orphan_bytes > self.limits.orphan_bytes {
                    self.counters.subgroups_unknown += 1;
                    self.stop(key, code::stream::EXCESSIVE_LOAD);
                }
                Ok(())
            }
            Stream::Data { parser, objects } => self.data(now, key, parser, objects, chunk),
        }
    }

    fn begin_uni(&mut self, now: Nanos, key: StreamKey, buf: Vec<u8>) -> Result<(), WireError> {
        let mut r = Reader::new(&buf);
        let header = match StreamHeader::read(&mut r) {
            Err(ReadError::Short) => {
                self.streams.insert(key, Stream::Header(buf));
                return Ok(());
            }
            Err(ReadError::Wire(e)) => return Err(e),
            Err(ReadError::Malformed(m)) => return Err(violation(m)),
            Ok(h) => h,
        };
        let rest = &buf[r.pos()..];
        match header {
            StreamHeader::Setup => {
                if std::mem::replace(&mut self.control_in, true) {
                    return Err(violation("a second control stream"));
                }
                // The control stream consists of messages from its first byte.
                self.streams.insert(key, Stream::ControlIn(Vec::new()));
                self.take(now, key, &buf)
            }
            StreamHeader::Padding => {
                self.outputs.push_back(Output::Stop(key, code::stream::CANCELLED));
                Ok(())
            }
            StreamHeader::Fetch(id) => {
                let (request, version, sealing) = (Request(id), self.version, self.limits.sealing);
                if let Some(s) = self.subscription(request).filter(|s| s.fill.is_some()) {
                    s.fill = None;
                    s.streams = s.streams.saturating_add(1);
                    s.open.insert(key);
                    let objects = Collector::new(request, request, true, s.options.max_object + sealing, u64::MAX);
                    return self.data(now, key, Parser::fetch(version), objects, rest);
                }
                let Some(PendingRequest {
                    kind: Kind::Fetch { joining, max_object, complete: false, data: data @ None, .. },
                    ..
                }) = self.requests.get_mut(&request)
                else {
                    self.outputs.push_back(Output::Stop(key, code::stream::CANCELLED));
                    return Ok(());
                };
                *data = Some(key);
                let owner = joining.unwrap_or(request);
                let objects = Collector::new(request, owner, true, *max_object + sealing, u64::MAX);
                self.data(now, key, Parser::fetch(version), objects, rest)
            }
            StreamHeader::Subgroup(h) => match self.aliases.get(&h.alias) {
                Some(&request) => self.begin_subgroup(now, key, request, h, rest),
                None => {
                    let orphans = self.streams.values().filter(|s| matches!(s, Stream::Orphan { .. })).count();
                    let expected = self.requests.values().any(|a| !a.answered && matches!(a.kind, Kind::Subscribe(_)));
                    self.streams.insert(key, Stream::Orphan { header: h, held: Vec::new(), since: now, fin: false });
                    if !expected || orphans >= self.limits.orphans {
                        self.counters.subgroups_unknown += 1;
                        self.stop(key, code::stream::CANCELLED);
                        return Ok(());
                    }
                    self.take(now, key, rest)
                }
            },
        }
    }

    fn begin_subgroup(
        &mut self, now: Nanos, key: StreamKey, request: Request, h: SubgroupHeader, rest: &[u8],
    ) -> Result<(), WireError> {
        let sealing = self.limits.sealing;
        let Some(s) = self.subscription(request) else { return Ok(()) };
        s.streams = s.streams.saturating_add(1);
        s.open.insert(key);
        let mut objects = Collector::new(request, request, false, s.options.max_object + sealing, s.options.subgroups);
        objects.group = h.group;
        objects.subgroup = h.subgroup;
        if h.subgroup.is_some_and(|id| id >= objects.subgroups) {
            objects.refused = Some(code::stream::CANCELLED);
            return self.refused(now, key, objects);
        }
        self.data(now, key, Parser::subgroup(h), objects, rest)
    }

    /// Ends a stream that was rejected here.
    fn refused(&mut self, now: Nanos, key: StreamKey, objects: Collector) -> Result<(), WireError> {
        self.counters.subgroups_refused += 1;
        let code = objects.refused.unwrap_or(code::stream::CANCELLED);
        self.outputs.push_back(Output::Stop(key, code));
        self.data_over(now, key, objects, Some(false));
        Ok(())
    }

    fn data(
        &mut self, now: Nanos, key: StreamKey, mut parser: Parser, mut objects: Collector, chunk: &[u8],
    ) -> Result<(), WireError> {
        let mut sink = Collecting {
            c: &mut objects,
            events: &mut self.events,
            pool: &self.pool,
            held: &mut self.held,
            most: self.limits.partial_bytes,
        };
        match parser.push(chunk, &mut sink) {
            Ok(true) => {
                self.streams.insert(key, Stream::Data { parser, objects });
                Ok(())
            }
            Ok(false) => self.refused(now, key, objects),
            Err(ReadError::Wire(e)) => Err(e),
            Err(e) => {
                self.outputs.push_back(Output::Stop(key, code::stream::MALFORMED_TRACK));
                self.malformed(now, key, objects, e.to_string());
                Ok(())
            }
        }
    }

    /// Ends the subscription to a malformed track (§2.4.2).
    fn malformed(&mut self, now: Nanos, key: StreamKey, objects: Collector, reason: String) {
        self.counters.malformed += 1;
        let (request, owner) = (objects.request, objects.owner);
        let filled = objects.fetched && self.subscription(request).is_some();
        self.data_over(now, key, objects, Some(false));
        if request != owner || filled {
            return; // a joining FETCH or fill: dropped silently
        }
        if let Some(PendingRequest { stream, kind, .. }) = self.requests.remove(&request) {
            self.end_request(stream);
            let ended = matches!(kind, Kind::Subscribe(_));
            self.drop_data(kind);
            self.events.push_back(if ended {
                Event::Ended { request, why: Ended { code: code::done::MALFORMED_TRACK, reason } }
            } else {
                Event::Failed { request, error: RequestError { code: code::request::MALFORMED_TRACK, reason } }
            });
        }
    }

    /// Handles the end of a data stream. `cut` is None if it is complete; true if the peer ended it
    /// early, false if this side did.
    fn data_over(&mut self, now: Nanos, key: StreamKey, objects: Collector, cut: Option<bool>) {
        let (request, group, subgroup) = (objects.request, objects.group, objects.subgroup);
        let fetched = objects.fetched;
        self.give_back(objects);
        match self.requests.get_mut(&request) {
            Some(PendingRequest { kind: Kind::Subscribe(s), .. }) => {
                s.open.remove(&key);
                if fetched {
                    // A refused fill has no object.
                    self.joined(now, request, cut.is_some() && subgroup.is_none());
                } else if let Some(remote) = cut {
                    self.events.push_back(Event::Cut { request, group, subgroup, remote });
                }
                self.check_done(request);
            }
            Some(PendingRequest { kind: Kind::Fetch { complete, data, .. }, answered, .. }) => {
                *data = None;
                if cut.is_some() {
                    let error =
                        RequestError { code: code::request::INTERNAL_ERROR, reason: "the fetch was reset".into() };
                    self.fail(now, request, error, true);
                } else {
                    *complete = true;
                    if *answered {
                        self.fetch_complete(request);
                    }
                }
            }
            _ => {}
        }
    }

    fn fetch_complete(&mut self, request: Request) {
        let Some(pending) = self.requests.remove(&request) else { return };
        self.end_request(pending.stream);
        let Kind::Fetch { joining, .. } = pending.kind else { return };
        if let Some(s) = joining.and_then(|j| self.subscription(j)) {
            s.join = None;
        }
        self.events.push_back(Event::Fetched { request: joining.unwrap_or(request) });
    }

    /// Ends a subscription once all streams counted by PUBLISH_DONE are over.
    fn check_done(&mut self, request: Request) {
        let Some(s) = self.subscription(request) else { return };
        let Some((count, _)) = &s.done else { return };
        if s.streams < *count || !s.open.is_empty() {
            return;
        }
        if let Some(PendingRequest { stream, kind: Kind::Subscribe(mut s), .. }) = self.requests.remove(&request) {
            self.end_request(stream);
            let why = s.done.take();
            self.drop_data(Kind::Subscribe(s));
            if let Some((_, why)) = why {
                self.events.push_back(Event::Ended { request, why });
            }
        }
    }

    fn take_end(&mut self, now: Nanos, key: StreamKey) -> Result<(), WireError> {
        match self.streams.remove(&key) {
            Some(Stream::ControlIn(_)) => self.control_closed(now),
            Some(Stream::Request(request, buf)) => {
                if !buf.is_empty() {
                    return Err(violation("a request stream ends inside a message"));
                }
                self.request_ended(request, "its stream was closed");
            }
            Some(Stream::PeerRequest(buf)) if !buf.is_empty() => {
                return Err(violation("a request stream ends inside a message"));
            }
            Some(Stream::Orphan { header, held, since, .. }) => {
                self.streams.insert(key, Stream::Orphan { header, held, since, fin: true });
            }
            Some(Stream::Data { parser, objects }) => {
                if parser.boundary() {
                    self.data_over(now, key, objects, None);
                } else {
                    self.malformed(now, key, objects, "a data stream ends inside an object".into());
                }
            }
            Some(Stream::PeerRequest(_) | Stream::Header(_)) | None => {}
        }
        Ok(())
    }

    /// A relay that shuts down may finish its streams before it closes the connection, which
    /// carries the reason.
    fn control_closed(&mut self, now: Nanos) {
        if !self.closed() {
            self.phase = Phase::Leaving { until: now + 100 * MS };
        }
    }

    /// The peer finished its direction of one of our requests.
    fn request_ended(&mut self, request: Request, how: &str) {
        match self.requests.get(&request) {
            // Already answered; the objects arrive on a separate stream.
            Some(PendingRequest { kind: Kind::Fetch { .. }, answered: true, .. }) | None => return,
            Some(PendingRequest { kind: Kind::Subscribe(s), .. }) if s.done.is_some() => return,
            _ => {}
        }
        let Some(pending) = self.requests.remove(&request) else { return };
        self.outputs.push_back(Output::Finish(pending.stream));
        self.streams.remove(&pending.stream);
        let (answered, subscription) = (pending.answered, matches!(pending.kind, Kind::Subscribe(_)));
        let joining = if let Kind::Fetch { joining, .. } = pending.kind { joining } else { None };
        self.drop_data(pending.kind);
        if let Some(s) = joining.and_then(|j| self.subscription(j)) {
            s.join = None;
        } else if subscription && answered {
            let reason = format!("the publisher disconnected without PUBLISH_DONE: {how}");
            self.events.push_back(Event::Ended { request, why: Ended { code: code::done::INTERNAL_ERROR, reason } });
        } else {
            let reason = format!("the relay ended the request: {how}");
            self.events.push_back(Event::Failed {
                request,
                error: RequestError { code: code::request::INTERNAL_ERROR, reason },
            });
        }
    }

    /// Handles a message on the control stream.
    fn control(&mut self, m: Message) -> Result<(), WireError> {
        match (&self.phase, m) {
            (Phase::Setup { .. }, Message::Setup { implementation }) => {
                self.phase = Phase::Open;
                self.events.push_back(Event::Ready { implementation });
                Ok(())
            }
            (Phase::Setup { .. }, _) => Err(violation("the control stream does not begin with SETUP")),
            (_, Message::Goaway { .. }) if self.goaway => Err(violation("a second GOAWAY")),
            (_, Message::Goaway { request: None, .. }) if self.version < Version::Draft20 => {
                Err(violation("GOAWAY on the control stream without a request ID"))
            }
            (_, Message::Goaway { request: Some(id), .. }) if id % 2 == 1 => Err(WireError {
                code: code::session::INVALID_REQUEST_ID,
                reason: "GOAWAY names a request ID of the wrong parity".into(),
            }),
            (_, Message::Goaway { uri, timeout_ms, .. }) => {
                self.goaway = true;
                self.events.push_back(Event::Goaway { uri, timeout_ms });
                Ok(())
            }
            _ => Err(violation("unexpected message on the control stream")),
        }
    }

    /// Handles a message on the stream of one of our requests.
    fn answer(&mut self, now: Nanos, request: Request, m: Message) -> Result<(), WireError> {
        let fetch_wait = self.limits.fetch;
        let Some(pending) = self.requests.get_mut(&request) else { return Ok(()) };
        let (stream, answered) = (pending.stream, pending.answered);
        match (&mut pending.kind, m) {
            (_, Message::Goaway { request: Some(_), .. }) => {
                return Err(violation("GOAWAY on a request stream names a request ID"));
            }
            (_, Message::Goaway { uri, .. }) => self.moved(now, request, uri),
            (_, Message::Error { code, reason }) if !answered => {
                self.fail(now, request, RequestError { code, reason }, false);
            }
            (Kind::Subscribe(_), Message::SubscribeOk { alias, parameters, properties }) if !answered => {
                self.subscribed(now, request, alias, parameters, properties)?;
            }
            (Kind::Subscribe(s), Message::Ok(_)) if s.updates > 0 => s.updates -= 1,
            (Kind::Subscribe(s), Message::Error { .. }) if s.updates > 0 => {
                s.updates -= 1;
                self.refuses_changes = true;
            }
            (Kind::Subscribe(s), Message::Done { code, streams, reason }) if answered && s.done.is_none() => {
                if code == code::done::UPDATE_FAILED || code == code::done::INTERNAL_ERROR && s.updates > 0 {
                    self.refuses_changes = true;
                }
                s.done = Some((streams, Ended { code, reason }));
                pending.until = Some(now + self.limits.done);
                self.check_done(request);
            }
            (Kind::Subscribe(_), Message::State(_)) if answered => {} // only informs
            (Kind::Subscribe(_), Message::Update { .. }) if self.version >= Version::Draft20 => {
                return Err(violation("the publisher changes a subscription"));
            }
            (Kind::Subscribe(_) | Kind::Publish { .. }, Message::Update { id, .. }) if answered && id % 2 == 0 => {
                return Err(WireError {
                    code: code::session::INVALID_REQUEST_ID,
                    reason: format!("request ID {id} has the wrong parity"),
                });
            }
            (Kind::Subscribe(_), Message::Update { .. }) if answered => {
                self.outputs.push_back(Output::Send(stream, message::request_ok()));
            }
            (Kind::Fetch { complete, .. }, Message::FetchOk { .. }) if !answered => {
                pending.answered = true;
                pending.until = Some(now + fetch_wait);
                if *complete {
                    self.fetch_complete(request);
                }
            }
            (Kind::Namespaces { .. }, Message::Ok(_)) if !answered => {
                pending.answered = true;
                pending.until = None;
            }
            (Kind::Namespaces { active }, Message::Namespace { added, suffix }) if answered => {
                let known = if added { active.insert(suffix.clone()) } else { active.remove(&suffix) };
                if !added && !known {
                    return Err(violation("NAMESPACE_DONE without its NAMESPACE"));
                }
                let too_many = active.len() > self.limits.namespaces;
                if known {
                    self.events.push_back(Event::Namespace { request, added, suffix });
                }
                if too_many {
                    let error =
                        RequestError { code: code::request::EXCESSIVE_LOAD, reason: "too many namespaces".into() };
                    self.fail(now, request, error, true);
                }
            }
            (Kind::Publish { forward, .. }, Message::Ok(p)) if !answered => {
                pending.answered = true;
                pending.until = None;
                *forward = p.forward.unwrap_or(true);
                self.events.push_back(Event::Published { request });
            }
            (Kind::Publish { forward, .. }, Message::Update { parameters, .. }) if answered => {
                *forward = parameters.forward.unwrap_or(*forward);
                self.outputs.push_back(Output::Send(stream, message::request_ok()));
            }
            _ => return Err(violation("unexpected message on a request stream")),
        }
        Ok(())
    }

    /// The peer asks to migrate one request (§10.4).
    fn moved(&mut self, now: Nanos, request: Request, uri: String) {
        let subscribed = matches!(
            self.requests.get(&request),
            Some(PendingRequest { kind: Kind::Subscribe(_), answered: true, .. })
        );
        if !subscribed {
            let reason = "the relay asks to migrate the request before accepting it".to_owned();
            return self.fail(now, request, RequestError { code: code::request::GOING_AWAY, reason }, false);
        }
        if let Some(pending) = self.requests.remove(&request) {
            self.end_request(pending.stream);
            self.drop_data(pending.kind);
            self.events.push_back(Event::Ended { request, why: Ended { code: code::done::GOING_AWAY, reason: uri } });
        }
    }

    fn subscribed(
        &mut self, now: Nanos, request: Request, alias: u64, p: Parameters, properties: Properties,
    ) -> Result<(), WireError> {
        if let Some(t) = properties.unknown_mandatory {
            let reason = format!("unsupported mandatory track property {t:#x}");
            self.fail(now, request, RequestError { code: code::request::UNSUPPORTED_EXTENSION, reason }, true);
            return Ok(());
        }
        if let Some(other) = self.aliases.get(&alias) {
            let other = *other;
            let name = self.subscription(other).map(|s| s.track.to_string()).unwrap_or_default();
            let code = code::session::DUPLICATE_TRACK_ALIAS;
            return Err(WireError { code, reason: format!("track alias {alias} is in use by {name}") });
        }
        if let (Some(t), Some(priority)) = (self.tracks.get_mut(&request), properties.priority) {
            t.1 = priority;
        }
        let Some(PendingRequest { kind: Kind::Subscribe(s), answered, until, .. }) = self.requests.get_mut(&request)
        else {
            return Ok(());
        };
        *answered = true;
        *until = None;
        s.alias = Some(alias);
        s.largest = p.largest;
        let unfilled = p.largest.is_none() && s.fill.take().is_some();
        let (options, rejoin) = (s.options, std::mem::take(&mut s.rejoin));
        self.aliases.insert(alias, request);
        self.events.push_back(Event::Subscribed { request, largest: p.largest, properties });
        if rejoin && p.largest.is_some() {
            self.join(now, request, options, false);
        } else if rejoin || unfilled {
            self.events.push_back(Event::Fetched { request });
        }
        // Streams that arrived before their alias was known.
        let mine = |s: &Stream| matches!(s, Stream::Orphan { header, .. } if header.alias == alias);
        let mut early: Vec<_> = self.streams.iter().filter(|(_, s)| mine(s)).map(|(k, _)| *k).collect();
        early.sort_unstable();
        for key in early {
            if let Some(Stream::Orphan { header, held, fin, .. }) = self.streams.remove(&key) {
                self.orphan_bytes -= held.len();
                self.begin_subgroup(now, key, request, header, &held)?;
                if fin {
                    self.take_end(now, key)?;
                }
            }
        }
        for e in self.take_early(|e| e.alias == alias) {
            self.datagram(now, &e.bytes);
        }
        Ok(())
    }
}

impl Collector {
    fn new(request: Request, owner: Request, fetched: bool, max_object: usize, subgroups: u64) -> Self {
        Collector {
            request,
            owner,
            fetched,
            max_object,
            subgroups,
            group: 0,
            subgroup: None,
            header: None,
            buf: Vec::new(),
            refused: None,
        }
    }
}

/// Removes the next complete message from a stream's buffer.
fn next_message(buf: &mut Vec<u8>, v: Version) -> Result<Option<Message>, WireError> {
    let mut r = Reader::new(buf);
    match message::read(&mut r, v) {
        Ok(m) => {
            let used = r.pos();
            buf.drain(..used);
            Ok(Some(m))
        }
        Err(ReadError::Short) if buf.len() > MAX_MESSAGE + 16 => Err(violation("message exceeds its limit")),
        Err(ReadError::Short) => Ok(None),
        Err(ReadError::Wire(e)) => Err(e),
        Err(ReadError::Malformed(m)) => Err(violation(m)),
    }
}
