//! Sessions against a peer that sends exactly the test's bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::sync::Arc;

use moqt::bytes::Writer;
use moqt::message::kind;
use moqt::*;

const MS: Nanos = 1_000_000;

/// The session's output on one of its streams.
#[derive(Debug, Default)]
struct Local {
    sent: Vec<u8>,
    finished: bool,
    reset: Option<u64>,
    stopped: Option<u64>,
    bidirectional: bool,
}

struct Peer {
    s: Session,
    now: Nanos,
    local: HashMap<StreamKey, Local>,
    order: Vec<StreamKey>,
    datagrams: Vec<Vec<u8>>,
    closed: Option<(u64, String)>,
}

fn message(kind: u64, body: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(kind).u8((body.len() >> 8) as u8).u8(body.len() as u8).raw(body);
    w.0
}

fn fields(list: &[u64]) -> Vec<u8> {
    let mut w = Writer::new();
    for v in list {
        w.varint(*v);
    }
    w.0
}

impl Peer {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self::of(limits, Version::Draft18)
    }

    fn of(limits: Limits, version: Version) -> Self {
        let config = Config {
            path: "/demo".into(),
            authority: "relay:4443".into(),
            implementation: "test".into(),
            limits,
            version,
        };
        let mut p = Peer {
            s: Session::new(config, Arc::default(), 0),
            now: 0,
            local: HashMap::new(),
            order: Vec::new(),
            datagrams: Vec::new(),
            closed: None,
        };
        p.outputs();
        p
    }

    fn open() -> Self {
        Self::speaking(Version::Draft18)
    }

    fn speaking(version: Version) -> Self {
        let mut p = Self::of(Limits::default(), version);
        let control = p.s.accept_uni();
        p.send(control, &message(kind::SETUP, &[]));
        assert_eq!(p.events(), [Event::Ready { implementation: String::new() }]);
        p
    }

    fn outputs(&mut self) {
        while let Some(o) = self.s.poll_output() {
            match o {
                Output::OpenUni(k) => {
                    self.order.push(k);
                    self.local.insert(k, Local::default());
                }
                Output::OpenBi(k) => {
                    self.order.push(k);
                    self.local.insert(k, Local { bidirectional: true, ..Local::default() });
                }
                Output::Send(k, b) => self.local.entry(k).or_default().sent.extend(b),
                Output::Finish(k) => self.local.entry(k).or_default().finished = true,
                Output::Reset(k, c) => self.local.entry(k).or_default().reset = Some(c),
                Output::Stop(k, c) => self.local.entry(k).or_default().stopped = Some(c),
                Output::Datagram(b) => self.datagrams.push(b),
                Output::Close(c, r) => self.closed = Some((c, r)),
            }
        }
    }

    fn events(&mut self) -> Vec<Event> {
        self.outputs();
        std::iter::from_fn(|| self.s.poll_event()).collect()
    }

    fn send(&mut self, k: StreamKey, b: &[u8]) {
        self.s.receive(self.now, k, b);
        self.outputs();
    }

    fn pass(&mut self, time: Nanos) {
        self.now += time;
        self.s.tick(self.now);
        self.outputs();
    }

    /// Stream of the n-th request.
    fn request(&mut self, n: usize) -> StreamKey {
        self.outputs();
        self.order.iter().copied().filter(|k| self.local[k].bidirectional).nth(n).unwrap()
    }

    fn stopped(&self, k: StreamKey) -> Option<u64> {
        self.local.get(&k).and_then(|l| l.stopped)
    }

    fn subscribe(&mut self, join: bool) -> Request {
        let o = SubscribeOptions { join, max_object: 1000, ..SubscribeOptions::default() };
        self.s.subscribe(self.now, &TrackName::new(Namespace::new(["a"]), "t"), o)
    }

    /// An accepted subscription with alias 7.
    fn subscribed(&mut self) -> Request {
        let r = self.subscribe(false);
        let k = self.request(0);
        self.send(k, &message(kind::SUBSCRIBE_OK, &fields(&[7, 0])));
        assert!(matches!(self.events()[..], [Event::Subscribed { .. }]));
        r
    }

    /// Opens a subgroup stream of alias 7 with a group and objects of the given lengths.
    fn subgroup(&mut self, group: u64, lengths: &[u64]) -> StreamKey {
        let k = self.s.accept_uni();
        let mut w = Writer::new();
        w.varint(0x10).varint(7).varint(group).u8(128);
        for n in lengths {
            w.varint(0).varint(*n).raw(&vec![b'x'; *n as usize]);
            if *n == 0 {
                w.varint(0);
            }
        }
        self.send(k, &w.0);
        k
    }

    fn violation(&self) -> &str {
        match &self.closed {
            Some((3, why)) => why,
            c => panic!("expected a violation, got {c:?}"),
        }
    }
}

fn objects(events: &[Event]) -> Vec<(u64, u64, usize, bool)> {
    let object = |e: &Event| match e {
        Event::Object(o) => Some((o.group, o.id, o.payload.len(), o.fetched)),
        _ => None,
    };
    events.iter().filter_map(object).collect()
}

#[test]
fn setup_names_path_and_authority() {
    let p = Peer::new();
    let control = &p.local[&p.order[0]];
    assert!(!control.bidirectional);
    let text = String::from_utf8_lossy(&control.sent);
    assert!(text.contains("/demo") && text.contains("relay:4443") && text.contains("test"));
}

#[test]
fn no_setup() {
    let mut p = Peer::new();
    assert_eq!(p.s.deadline(), Some(10_000 * MS));
    p.pass(10_000 * MS);
    assert_eq!(p.closed.as_ref().unwrap().0, code::session::CONTROL_MESSAGE_TIMEOUT);
    assert!(p.s.closed());
}

#[test]
fn subscribe_with_joining_fetch() {
    let mut p = Peer::open();
    let r = p.subscribe(true);
    let (subscribe, fetch) = (p.request(0), p.request(1));
    assert_eq!(p.local[&subscribe].sent[0], kind::SUBSCRIBE as u8);
    assert_eq!(p.local[&fetch].sent[..], message(kind::FETCH, &fields(&[2, 2, 0, 0, 0])));
    p.send(subscribe, &message(kind::SUBSCRIBE_OK, &[&fields(&[7, 1, 9])[..], &fields(&[5, 0])].concat()));
    p.send(fetch, &message(kind::FETCH_OK, &fields(&[0, 5, 1, 0])));
    assert!(matches!(p.events()[..], [Event::Subscribed { largest: Some(Location { group: 5, object: 0 }), .. }]));
    let k = p.s.accept_uni();
    let mut w = Writer::new();
    w.varint(5).varint(2).varint(0x1c).varint(5).varint(0).u8(128).varint(4).raw(b"past");
    p.send(k, &w.0);
    assert_eq!(objects(&p.events()), [(5, 0, 4, true)]);
    p.s.finished(p.now, k);
    assert_eq!(p.events(), [Event::Fetched { request: r }]);
    assert!(p.local[&fetch].finished);
    p.subgroup(6, &[3]);
    assert_eq!(objects(&p.events()), [(6, 0, 3, false)]);
}

#[test]
fn joining_fetch_refused_before_subscribe_ok() {
    let mut p = Peer::open();
    p.subscribe(true);
    let (subscribe, fetch) = (p.request(0), p.request(1));
    p.send(fetch, &message(kind::REQUEST_ERROR, &fields(&[0x32, 0, 0])));
    assert!(p.events().is_empty());
    p.send(subscribe, &message(kind::SUBSCRIBE_OK, &[&fields(&[7, 1, 9])[..], &fields(&[5, 0])].concat()));
    let again = p.request(2);
    assert_eq!(p.local[&again].sent[..], message(kind::FETCH, &fields(&[4, 2, 0, 0, 0])));
    p.send(again, &message(kind::REQUEST_ERROR, &fields(&[0x32, 0, 0])));
    assert!(matches!(p.events()[..], [Event::Subscribed { .. }, Event::Fetched { .. }]));
}

/// SUBSCRIBE_OK with alias 7 and, if there is one, the largest object.
fn accepted(largest: Option<u64>) -> Vec<u8> {
    match largest {
        Some(group) => message(kind::SUBSCRIBE_OK, &fields(&[7, 1, 9, group, 0])),
        None => message(kind::SUBSCRIBE_OK, &fields(&[7, 0])),
    }
}

/// The header of the fill of request 0 and one of its objects, of group 5.
fn filling() -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(5).varint(0).varint(0x1c).varint(5).varint(0).u8(128).varint(4).raw(b"past");
    w.0
}

#[test]
fn subscribe_with_fill() {
    for v in [Version::Draft20, Version::Draft22] {
        let mut p = Peer::speaking(v);
        let r = p.subscribe(true);
        let subscribe = p.request(0);
        assert_eq!(p.order.len(), 2, "{v:?}: the control stream and one request");
        let k = p.s.accept_uni();
        p.send(k, &filling()); // may arrive before SUBSCRIBE_OK
        p.send(subscribe, &accepted(Some(5)));
        assert_eq!(objects(&p.events()), [(5, 0, 4, true)]);
        p.s.finished(p.now, k);
        assert_eq!(p.events(), [Event::Fetched { request: r }]);
        p.subgroup(6, &[3]);
        assert_eq!(objects(&p.events()), [(6, 0, 3, false)]);
        // PUBLISH_STATE_NOTIFY only informs.
        p.send(subscribe, &message(kind::PUBLISH_STATE_NOTIFY, &fields(&[0])));
        assert!(p.closed.is_none());
    }
}

#[test]
fn fill_of_nothing() {
    let mut p = Peer::speaking(Version::Draft22);
    let r = p.subscribe(true);
    let subscribe = p.request(0);
    p.send(subscribe, &accepted(None));
    let events = p.events();
    assert!(
        matches!(events[..], [Event::Subscribed { largest: None, .. }, Event::Fetched { request }] if request == r)
    );
}

#[test]
fn refused_fill_is_fetched() {
    let mut p = Peer::speaking(Version::Draft22);
    p.subscribe(true);
    let subscribe = p.request(0);
    p.send(subscribe, &accepted(Some(5)));
    let k = p.s.accept_uni();
    p.send(k, &fields(&[5, 0]));
    p.s.reset(p.now, k);
    let fetch = p.request(1);
    // FETCH 2 of track "t" in ["a"], one parameter: the filter from {5, 0} to object 0 of group 5.
    assert_eq!(p.local[&fetch].sent, message(kind::FETCH, &[2, 1, 1, b'a', 1, b't', 1, 0x21, 4, 5, 0, 0, 0]));
    assert!(matches!(p.events()[..], [Event::Subscribed { .. }]));
}

#[test]
fn refused_fill_up_to_the_largest_object_id() {
    let mut p = Peer::speaking(Version::Draft22);
    p.subscribe(true);
    let subscribe = p.request(0);
    p.send(subscribe, &message(kind::SUBSCRIBE_OK, &fields(&[7, 1, 9, 5, u64::MAX])));
    let k = p.s.accept_uni();
    p.send(k, &fields(&[5, 0]));
    p.s.reset(p.now, k);
    let fetch = p.request(1);
    assert_eq!(p.local[&fetch].sent, message(kind::FETCH, &[2, 1, 1, b'a', 1, b't', 1, 0x21, 3, 5, 0, 0]));
}

#[test]
fn fill_refused_before_subscribe_ok() {
    let mut p = Peer::speaking(Version::Draft22);
    let r = p.subscribe(true);
    let subscribe = p.request(0);
    let k = p.s.accept_uni();
    p.send(k, &fields(&[5, 0]));
    p.s.reset(p.now, k);
    assert!(p.events().is_empty());
    p.send(subscribe, &accepted(Some(5)));
    let fetch = p.request(1);
    assert_eq!(p.local[&fetch].sent, message(kind::FETCH, &[2, 1, 1, b'a', 1, b't', 1, 0x21, 4, 5, 0, 0, 0]));
    assert!(matches!(p.events()[..], [Event::Subscribed { .. }]));
    p.send(fetch, &message(kind::REQUEST_ERROR, &fields(&[0x32, 0, 0])));
    assert_eq!(p.events(), [Event::Fetched { request: r }]);
}

#[test]
fn fill_that_does_not_come() {
    let mut p = Peer::speaking(Version::Draft22);
    let r = p.subscribe(true);
    let subscribe = p.request(0);
    p.send(subscribe, &accepted(Some(5)));
    p.events();
    p.pass(20_000 * MS);
    assert_eq!(p.events(), [Event::Fetched { request: r }]);
}

#[test]
fn objects_before_their_alias() {
    let mut p = Peer::open();
    p.subscribe(false);
    let k = p.subgroup(1, &[10]);
    p.s.finished(p.now, k);
    assert!(p.events().is_empty());
    let subscribe = p.request(0);
    p.send(subscribe, &message(kind::SUBSCRIBE_OK, &fields(&[7, 0])));
    assert_eq!(objects(&p.events()), [(1, 0, 10, false)]);
    assert_eq!(p.s.held(), 0);
}

#[test]
fn objects_of_an_unknown_alias() {
    let mut p = Peer::open();
    p.subscribe(false);
    let k = p.subgroup(1, &[10]);
    p.pass(2000 * MS);
    assert_eq!(p.stopped(k), Some(code::stream::CANCELLED));
    assert_eq!((p.s.counters().subgroups_unknown, p.s.held()), (1, 0));
}

#[test]
fn refusals() {
    let mut p = Peer::open();
    let r = p.subscribe(false);
    let k = p.request(0);
    p.send(k, &message(kind::REQUEST_ERROR, &[&fields(&[0x10, 0, 4])[..], b"none"].concat()));
    let error = RequestError { code: 0x10, reason: "none".into() };
    assert_eq!(error.to_string(), "DOES_NOT_EXIST: none");
    assert_eq!(p.events(), [Event::Failed { request: r, error }]);
    let r = p.subscribe(false);
    p.pass(10_000 * MS);
    assert!(
        matches!(&p.events()[..], [Event::Failed { request, error: RequestError { code: 2, .. } }] if *request == r)
    );
    let k = p.request(1);
    assert_eq!(p.local[&k].reset, Some(code::stream::CANCELLED));
}

#[test]
fn publish_done_waits_for_streams() {
    let mut p = Peer::open();
    p.subscribed();
    let first = p.subgroup(1, &[5]);
    let k = p.request(0);
    p.send(k, &message(kind::PUBLISH_DONE, &fields(&[2, 2, 0])));
    p.s.finished(p.now, first);
    assert_eq!(objects(&p.events()), [(1, 0, 5, false)]);
    let second = p.subgroup(2, &[5]);
    p.s.finished(p.now, second);
    assert!(matches!(&p.events()[..], [Event::Object(_), Event::Ended { why, .. }] if why.over()));
}

#[test]
fn publish_done_times_out() {
    let mut p = Peer::open();
    p.subscribed();
    let open = p.subgroup(1, &[]);
    let k = p.request(0);
    p.send(k, &message(kind::PUBLISH_DONE, &fields(&[4, (1 << 62) - 1, 0])));
    p.pass(2000 * MS);
    assert!(matches!(&p.events()[..], [Event::Ended { why, .. }] if !why.over()));
    assert!(p.stopped(open).is_some());
}

#[test]
fn publisher_without_publish_done() {
    let mut p = Peer::open();
    p.subscribed();
    let k = p.request(0);
    p.s.finished(p.now, k);
    assert!(matches!(&p.events()[..], [Event::Ended { why, .. }] if why.code == code::done::INTERNAL_ERROR));
}

#[test]
fn start_update_until_refused() {
    let mut p = Peer::open();
    let r = p.subscribed();
    p.s.start_at(r, 50);
    let k = p.request(0);
    p.outputs();
    // REQUEST_UPDATE with ID 2 and one parameter, a filter that starts at group 50.
    let update = message(kind::REQUEST_UPDATE, &[2, 1, 0x21, 3, 3, 50, 0]);
    assert!(p.local[&k].sent.ends_with(&update));
    p.send(k, &message(kind::REQUEST_OK, &fields(&[0])));
    assert!(!p.s.refuses_changes());
    p.s.new_group(r, 51);
    p.outputs();
    // NEW_GROUP_REQUEST
    assert!(p.local[&k].sent.ends_with(&message(kind::REQUEST_UPDATE, &[4, 1, 0x32, 51])));
    p.send(k, &message(kind::REQUEST_OK, &fields(&[0])));
    p.s.start_at(r, 60);
    p.send(k, &message(kind::REQUEST_ERROR, &fields(&[3, 0, 0])));
    assert!(p.s.refuses_changes() && p.events().is_empty());
    let before = p.local[&k].sent.len();
    p.s.start_at(r, 70);
    p.outputs();
    assert_eq!(p.local[&k].sent.len(), before);
}

#[test]
fn resets_are_reported() {
    let mut p = Peer::open();
    let r = p.subscribed();
    let k = p.s.accept_uni();
    p.send(k, &[0x10, 7, 9, 128, 0, 100, 1, 2, 3]);
    p.s.reset(p.now, k);
    assert_eq!(p.events(), [Event::Cut { request: r, group: 9, subgroup: Some(0), remote: true }]);
    assert_eq!((p.s.held(), p.s.counters().subgroups_reset), (0, 1));
}

#[test]
fn oversized_objects_and_excluded_subgroups() {
    let mut p = Peer::open();
    let o = SubscribeOptions { max_object: 100, subgroups: 1, ..SubscribeOptions::default() };
    p.s.subscribe(0, &TrackName::new(Namespace::new(["a"]), "t"), o);
    let k = p.request(0);
    p.send(k, &message(kind::SUBSCRIBE_OK, &fields(&[7, 0])));
    let large = p.s.accept_uni();
    p.send(large, &[0x10, 7, 9, 128, 0, 101]);
    assert_eq!(p.stopped(large), Some(code::stream::EXCESSIVE_LOAD));
    let second = p.s.accept_uni();
    p.send(second, &[0x14, 7, 9, 1, 128]);
    assert_eq!(p.stopped(second), Some(code::stream::CANCELLED));
    let events = p.events();
    assert_eq!(events.iter().filter(|e| matches!(e, Event::Cut { group: 9, remote: false, .. })).count(), 2);
}

#[test]
fn cancel_ends_everything() {
    let mut p = Peer::open();
    let r = p.subscribed();
    let k = p.s.accept_uni();
    p.send(k, &[0x10, 7, 9, 128, 0, 100, 1]);
    p.s.cancel(r);
    let request = p.request(0);
    assert!(p.local[&request].finished && p.stopped(k).is_some());
    assert_eq!(p.s.held(), 0);
    p.send(k, &[1, 2, 3]);
    p.subgroup(10, &[5]);
    assert!(objects(&p.events()).is_empty());
}

#[test]
fn fetches_of_groups() {
    let mut p = Peer::open();
    let (track, whole) = (TrackName::new(Namespace::new(["a"]), "t"), |group| Location { group, object: 0 });
    let r = p.s.fetch(0, &track, whole(3), whole(4), None, 1000);
    let k = p.request(0);
    p.send(k, &message(kind::FETCH_OK, &fields(&[0, 4, 0, 0])));
    let data = p.s.accept_uni();
    let mut w = Writer::new();
    w.varint(5).varint(r.0).varint(0x1c).varint(3).varint(0).u8(128).varint(2).raw(b"ab");
    w.varint(0x0c).varint(0).varint(0).varint(1).raw(b"c");
    p.send(data, &w.0);
    p.s.finished(p.now, data);
    let events = p.events();
    assert_eq!(objects(&events), [(3, 0, 2, true), (4, 0, 1, true)]);
    assert_eq!(events.last(), Some(&Event::Fetched { request: r }));
    let r = p.s.fetch(0, &track, whole(9), whole(9), None, 1000);
    let k = p.request(1);
    p.send(k, &message(kind::REQUEST_ERROR, &fields(&[0x11, 0, 0])));
    assert!(matches!(&p.events()[..], [Event::Failed { request, error }] if *request == r && error.code == 0x11));
}

/// Objects 4 to 6 of a group published in datagrams.
#[test]
fn fetch_of_a_range_in_datagrams() {
    let mut p = Peer::open();
    let track = TrackName::new(Namespace::new(["a"]), "t");
    let r = p.s.fetch(0, &track, Location { group: 3, object: 4 }, Location { group: 3, object: 7 }, Some(64), 1000);
    let k = p.request(0);
    let sent = p.local[&k].sent.clone();
    assert_eq!(sent, message(kind::FETCH, &[0, 1, 1, 1, b'a', 1, b't', 3, 4, 3, 7, 1, 0x20, 64]));
    p.send(k, &message(kind::FETCH_OK, &fields(&[0, 3, 7, 0])));
    let data = p.s.accept_uni();
    let mut w = Writer::new();
    // Object 4, with the property that starts a payload, and object 5.
    w.varint(5).varint(r.0).varint(0x7c).varint(3).varint(4).u8(128);
    let mut length = Writer::new();
    length.varint(0x6863_706c).varint(300);
    w.bytes(&length.0).varint(2).raw(b"ab").varint(0x40).varint(1).raw(b"c");
    p.send(data, &w.0);
    p.s.finished(p.now, data);
    let events = p.events();
    assert_eq!(objects(&events), [(3, 4, 2, true), (3, 5, 1, true)]);
    let of = |e: &Event| match e {
        Event::Object(o) => Some((o.datagram, o.properties.payload_length)),
        _ => None,
    };
    assert_eq!(events.iter().filter_map(of).collect::<Vec<_>>(), [(true, Some(300)), (true, None)]);
}

/// Datagrams of a track with a pending SUBSCRIBE are held, within limits.
#[test]
fn datagrams_before_their_alias() {
    let limits = Limits { orphans: 2, ..Limits::default() };
    let mut p = Peer::with(limits);
    let control = p.s.accept_uni();
    p.send(control, &message(kind::SETUP, &[]));
    p.events();
    p.s.datagram(0, &Datagram::encode(7, 1, 128, b"of nobody"));
    p.subscribe(false);
    for group in 2..5 {
        p.s.datagram(0, &Datagram::encode(7, group, 128, b"early"));
    }
    assert!(p.events().is_empty() && p.s.held() > 0 && p.s.counters().datagrams_unknown == 2);
    let k = p.request(0);
    p.send(k, &message(kind::SUBSCRIBE_OK, &fields(&[7, 0])));
    assert_eq!(objects(&p.events()), [(2, 0, 5, false), (3, 0, 5, false)]);
    // Type 0x03: properties, and end of group.
    p.s.datagram(0, &[0x03, 7, 9, 2, 128, 2, 0x78, 1, b'z']);
    let [Event::Object(o)] = &p.events()[..] else { panic!("no object") };
    assert_eq!((o.id, o.end_of_group, o.datagram, o.properties.compression), (2, true, true, Some(1)));
    // Datagrams whose alias stays unknown are dropped.
    p.subscribe(false);
    p.s.datagram(0, &Datagram::encode(8, 1, 128, b"early"));
    assert!(p.s.held() > 0 && p.s.deadline().is_some_and(|d| d <= 2000 * MS));
    p.pass(2000 * MS);
    assert_eq!((p.s.held(), p.s.counters().datagrams_unknown), (0, 3));
}

#[test]
fn namespaces_added_and_removed() {
    let mut p = Peer::with(Limits { namespaces: 2, ..Limits::default() });
    let control = p.s.accept_uni();
    p.send(control, &message(kind::SETUP, &[]));
    let r = p.s.subscribe_namespace(0, &Namespace::new(["holocast"]));
    let k = p.request(0);
    p.send(k, &message(kind::REQUEST_OK, &fields(&[0])));
    let name = |n: &str| [&[1, n.len() as u8], n.as_bytes()].concat();
    p.send(
        k,
        &[
            message(kind::NAMESPACE, &name("a")),
            message(kind::NAMESPACE, &name("b")),
            message(kind::NAMESPACE_DONE, &name("a")),
        ]
        .concat(),
    );
    let reported: Vec<_> = p
        .events()
        .into_iter()
        .filter_map(|e| match e {
            Event::Namespace { added, suffix, .. } => Some((added, suffix.0[0].clone())),
            _ => None,
        })
        .collect();
    assert_eq!(reported, [(true, b"a".to_vec()), (true, b"b".to_vec()), (false, b"a".to_vec())]);
    p.send(k, &[message(kind::NAMESPACE, &name("c")), message(kind::NAMESPACE, &name("d"))].concat());
    assert!(matches!(p.events().last(), Some(Event::Failed { request, .. }) if *request == r));
    let r = p.s.subscribe_namespace(0, &Namespace::new(["holocast"]));
    assert_eq!(r.0 % 2, 0);
    let k = p.request(1);
    p.send(k, &message(kind::REQUEST_OK, &fields(&[0])));
    p.send(k, &message(kind::NAMESPACE_DONE, &name("x")));
    assert_eq!(p.violation(), "NAMESPACE_DONE without its NAMESPACE");
}

#[test]
fn publish_honours_forward() {
    let mut p = Peer::open();
    let r = p.s.publish(0, &TrackName::new(Namespace::new(["a"]), "receipts/x"), 0);
    assert!(!p.s.send_datagram(r, 0, 128, b"early"));
    let k = p.request(0);
    p.send(k, &message(kind::REQUEST_OK, &[1, 0x10, 0]));
    assert!(!p.s.send_datagram(r, 0, 128, b"nobody listens"));
    p.send(k, &message(kind::REQUEST_UPDATE, &[1, 1, 0x10, 1]));
    assert!(p.s.send_datagram(r, 3, 128, b"receipt"));
    p.outputs();
    let d = Datagram::parse(&p.datagrams[0]).unwrap().unwrap();
    assert_eq!((d.alias, d.group, d.payload), (0, 3, &b"receipt"[..]));
    p.s.cancel(r);
    p.outputs();
    assert!(p.local[&k].finished && !p.s.send_datagram(r, 4, 128, b"late"));
}

#[test]
fn goaway() {
    let mut p = Peer::new();
    let control = p.s.accept_uni();
    p.send(control, &message(kind::SETUP, &[]));
    let uri = "moqt://b:1/x";
    let body = [&[uri.len() as u8], uri.as_bytes(), &fields(&[5000, 0])].concat();
    p.send(control, &message(kind::GOAWAY, &body));
    assert_eq!(p.events().last(), Some(&Event::Goaway { uri: uri.into(), timeout_ms: 5000 }));
    p.send(control, &message(kind::GOAWAY, &body));
    assert_eq!(p.violation(), "a second GOAWAY");
}

#[test]
fn goaway_of_a_request() {
    let mut p = Peer::open();
    p.subscribed();
    let k = p.request(0);
    p.send(k, &message(kind::GOAWAY, &fields(&[0, 0])));
    assert!(matches!(&p.events()[..], [Event::Ended { why, .. }] if why.code == code::done::GOING_AWAY));
}

#[test]
fn peer_requests_are_rejected() {
    let mut p = Peer::open();
    let k = p.s.accept_bi();
    p.send(k, &message(kind::SUBSCRIBE, &[1, 0, 1, b't', 0]));
    assert_eq!(p.local[&k].sent[0], kind::REQUEST_ERROR as u8);
    assert!(p.local[&k].finished && p.closed.is_none());
}

#[test]
fn violations_close_the_session() {
    for (what, on_request, bytes) in [
        ("unknown message type 0x63", true, message(0x63, &[])),
        ("unexpected message on a request stream", true, message(kind::NAMESPACE, &[1, 1, b'a'])),
        ("message 0x4 ends inside a field", true, message(kind::SUBSCRIBE_OK, &[])),
        ("1 bytes after the last field of message 0x5", true, message(kind::REQUEST_ERROR, &[0, 0, 0, 0])),
        ("parameter 0x21 is not allowed here", true, message(kind::SUBSCRIBE_OK, &[7, 1, 0x21, 1, 2])),
        ("parameter 0x8 is repeated", true, message(kind::SUBSCRIBE_OK, &[7, 2, 8, 0, 0, 0])),
        ("unknown stream type 0x9", false, vec![9]),
        ("unknown stream type 0x16", false, vec![0x16]),
        ("a second control stream", false, message(kind::SETUP, &[])),
    ] {
        let mut p = Peer::open();
        p.subscribe(false);
        let k = if on_request { p.request(0) } else { p.s.accept_uni() };
        p.send(k, &bytes);
        assert_eq!(p.violation(), what);
        assert!(matches!(p.events().last(), Some(Event::Closed { code: 3, remote: false, .. })));
        p.send(k, &bytes); // ignored after the close
        assert!(p.events().is_empty());
    }
}

#[test]
fn malformed_track_keeps_the_session() {
    for bytes in [
        &[0x10, 7, 9, 128, 0, 0, 3, 0, 0, 0][..], // an object after the end of its group
        &[0x11, 7, 9, 128, 0, 4, 0xc0, 0x40, 0x02, 1, 0, 0][..], // a mandatory property on an object
    ] {
        let mut p = Peer::open();
        p.subscribed();
        let k = p.s.accept_uni();
        p.send(k, bytes);
        assert!(
            matches!(p.events().last(), Some(Event::Ended { why, .. }) if why.code == code::done::MALFORMED_TRACK),
            "{bytes:?}"
        );
        assert!(p.closed.is_none() && p.s.counters().malformed == 1);
    }
    let mut p = Peer::open();
    p.subscribed();
    let k = p.s.accept_uni();
    p.send(k, &[0x10, 7, 9, 128, 0, 100, 1]);
    p.s.finished(p.now, k); // inside an object
    assert!(matches!(p.events().last(), Some(Event::Ended { .. })));
    assert_eq!(p.s.held(), 0);
}

#[test]
fn memory_is_bounded() {
    let limits = Limits { partial_bytes: 4 << 20, orphan_bytes: 1 << 20, ..Limits::default() };
    let mut p = Peer::with(limits.clone());
    let control = p.s.accept_uni();
    p.send(control, &message(kind::SETUP, &[]));
    let o = SubscribeOptions { max_object: usize::MAX >> 1, ..SubscribeOptions::default() };
    p.s.subscribe(0, &TrackName::new(Namespace::new(["a"]), "t"), o);
    let open = |p: &mut Peer, alias: u64| {
        let k = p.s.accept_uni();
        let mut w = Writer::new();
        w.varint(0x10).varint(alias).varint(1).u8(128).varint(0).varint(1 << 40);
        p.send(k, &w.0);
        k
    };
    // On an unknown and then on a known alias: many objects announced as a terabyte, none complete.
    let early: Vec<_> = (0..100).map(|_| open(&mut p, 9)).collect();
    for k in early {
        p.send(k, &[0; 60_000]);
        assert!(p.s.held() <= limits.orphan_bytes + 60_000);
    }
    let k = p.request(0);
    p.send(k, &message(kind::SUBSCRIBE_OK, &fields(&[7, 0])));
    for _ in 0..200 {
        let k = open(&mut p, 7);
        p.send(k, &[0; 60_000]);
        assert!(p.s.held() <= limits.partial_bytes + limits.orphan_bytes + (1 << 20), "{}", p.s.held());
    }
    assert!(p.s.counters().subgroups_refused > 0 && p.closed.is_none());
}

#[test]
fn control_stream_end() {
    let mut p = Peer::new();
    let control = p.s.accept_uni();
    p.send(control, &message(kind::SETUP, &[]));
    p.s.finished(p.now, control);
    assert!(p.closed.is_none());
    p.s.disconnected(0, "the relay ends");
    assert!(matches!(p.events().last(), Some(Event::Closed { code: 0, remote: true, .. })));
    let mut p = Peer::new();
    let control = p.s.accept_uni();
    p.send(control, &message(kind::SETUP, &[]));
    p.s.finished(p.now, control);
    p.pass(100 * MS);
    assert_eq!(p.violation(), "the peer closed its control stream");
}
