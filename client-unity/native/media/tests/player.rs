//! Tests of the player with simulated relays.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use media::{Acquired, Command, Config, Link, Phase, Player, Selection, Shared};
use moqt::bytes::Writer;
use moqt::message::kind;
use moqt::{Event, Nanos, Output, Session, StreamKey};

const MS: Nanos = 1_000_000;
/// Camera number of the test vectors.
const CAMERA: u16 = 513;

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

/// A frame of the shared vectors with the given sequence number and capture time.
fn frame(sequence: u32, captured: Nanos) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../internal/pointcloud/testdata/noise-c1.hcpf");
    let mut b = std::fs::read(path).unwrap();
    b[8..12].copy_from_slice(&sequence.to_le_bytes());
    b[20..28].copy_from_slice(&((captured / 1000) as u64).to_le_bytes());
    b
}

fn catalog(tracks: usize) -> Vec<u8> {
    let track = serde_json::json!({"name": format!("points/{CAMERA}/full"), "packaging": "hcpf", "isLive": true,
      "framerate": 30,
        "hcpf": {"camera": CAMERA, "quality": "full", "layout": "C", "descriptions": 1, "maxPoints": 100_000}});
    serde_json::json!({"version": "draft-01", "tracks": vec![track; tracks]}).to_string().into_bytes()
}

/// The relay's end of one connection.
struct Relay {
    link: Link,
    s: Session,
    /// Streams of SUBSCRIBEs and PUBLISHes, by the track name they contain.
    requests: HashMap<String, StreamKey>,
    datagrams: Vec<Vec<u8>>,
    /// Standalone FETCHes with their messages.
    fetches: Vec<(StreamKey, Vec<u8>)>,
    /// SUBSCRIBE_NAMESPACEs with their messages.
    listings: Vec<(StreamKey, Vec<u8>)>,
    /// REQUEST_UPDATEs.
    updates: Vec<Vec<u8>>,
}

struct Stage {
    player: Player,
    shared: Arc<Shared>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Stage {
    fn new() -> Self {
        Self::of(Config { session: Some("demo".into()), viewer: "me".into(), ..Config::default() })
    }

    fn of(config: Config) -> Self {
        let shared = Arc::new(Shared::new());
        shared.decoders(1, false).unwrap();
        shared.command(Command::Subscribe(None, Selection::default()));
        let mut player = Player::new(config, shared.clone());
        player.commands(shared.now(), None);
        Stage { player, shared }
    }

    fn connect(&mut self, link: u64) -> Relay {
        let now = self.shared.now();
        let s = Session::new(moqt::Config::default(), Arc::default(), now);
        let mut r = Relay {
            link: Link(link),
            s,
            requests: HashMap::new(),
            datagrams: Vec::new(),
            fetches: Vec::new(),
            listings: Vec::new(),
            updates: Vec::new(),
        };
        let control = r.s.accept_uni();
        r.s.receive(now, control, &message(kind::SETUP, &[]));
        assert!(matches!(r.s.poll_event(), Some(Event::Ready { .. })));
        self.player.connected(now, r.link, &mut r.s);
        self.pump(&mut r);
        r
    }

    /// Delivers pending events, and records the player's requests.
    fn pump(&mut self, r: &mut Relay) {
        while let Some(e) = r.s.poll_event() {
            self.player.event(self.shared.now(), r.link, &mut r.s, e);
        }
        while let Some(o) = r.s.poll_output() {
            match o {
                Output::Send(k, b) => {
                    if b[0] == kind::FETCH as u8 && b[4] == 1 && b.windows(7).any(|w| w == b"points/") {
                        r.fetches.push((k, b[3..].to_vec()));
                    }
                    if b[0] == kind::SUBSCRIBE_NAMESPACE as u8 {
                        r.listings.push((k, b.clone()));
                    }
                    if b[0] == kind::REQUEST_UPDATE as u8 {
                        r.updates.push(b[3..].to_vec());
                    }
                    if b[0] != kind::SUBSCRIBE as u8 && b[0] != kind::PUBLISH as u8 {
                        continue;
                    }
                    let text = String::from_utf8_lossy(&b).into_owned();
                    for name in ["clock", "catalog", "points/513/full", "receipts/me", "pose"] {
                        if text.contains(name) {
                            r.requests.insert(name.into(), k);
                        }
                    }
                }
                Output::Datagram(b) => r.datagrams.push(b),
                _ => {}
            }
        }
    }

    fn answer(&mut self, r: &mut Relay, name: &str, message: &[u8]) {
        let k = r.requests[name];
        r.s.receive(self.shared.now(), k, message);
        self.pump(r);
    }

    /// Accepts a SUBSCRIBE to a track without objects.
    fn accept(&mut self, r: &mut Relay, name: &str, alias: u64) {
        self.answer(r, name, &message(kind::SUBSCRIBE_OK, &fields(&[alias, 0])));
    }

    /// Answers a FETCH with one object that was published as a datagram.
    fn answer_fetch(&mut self, r: &mut Relay, k: StreamKey, request: u64, group: u64, id: u64, payload: &[u8]) {
        let now = self.shared.now();
        r.s.receive(now, k, &message(kind::FETCH_OK, &fields(&[0, group, id + 1, 0])));
        let data = r.s.accept_uni();
        let mut w = Writer::new();
        w.varint(5)
            .varint(request)
            .varint(0x5c)
            .varint(group)
            .varint(id)
            .u8(128)
            .varint(payload.len() as u64)
            .raw(payload);
        r.s.receive(now, data, &w.0);
        r.s.finished(now, data);
        self.pump(r);
    }

    fn object(&mut self, r: &mut Relay, alias: u64, group: u64, payload: &[u8]) {
        let k = r.s.accept_uni();
        let mut w = Writer::new();
        w.varint(0x10).varint(alias).varint(group).u8(128).varint(0).varint(payload.len() as u64).raw(payload);
        r.s.receive(self.shared.now(), k, &w.0);
        r.s.finished(self.shared.now(), k);
        self.pump(r);
    }

    /// Sends an object as a datagram. length: size of the whole payload, set on its first part.
    #[allow(clippy::too_many_arguments)] // the fields of a datagram
    fn datagram(
        &mut self, r: &mut Relay, alias: u64, group: u64, id: u64, length: Option<usize>, end: bool, payload: &[u8],
    ) {
        let mut w = Writer::new();
        let kind = u64::from(length.is_some()) | if end { 2 } else { 0 };
        w.varint(kind).varint(alias).varint(group).varint(id).u8(128);
        if let Some(n) = length {
            let mut property = Writer::new();
            property.varint(0x6863_706c).varint(n as u64);
            w.bytes(&property.0);
        }
        w.raw(payload);
        r.s.datagram(self.shared.now(), &w.0);
        self.pump(r);
    }

    /// A relay with the session: the catalog is alias 1, the points alias 2.
    fn session(&mut self, link: u64) -> Relay {
        let mut r = self.connect(link);
        self.accept(&mut r, "catalog", 1);
        self.object(&mut r, 1, 1, &catalog(1));
        self.accept(&mut r, "points/513/full", 2);
        r
    }

    /// Answers the SUBSCRIBE_NAMESPACE of a prefix.
    fn answer_listing(&mut self, r: &mut Relay, prefix: &[&str], messages: &[Vec<u8>]) {
        let mut end = Writer::new();
        end.varint(prefix.len() as u64);
        for field in prefix {
            end.bytes(field.as_bytes());
        }
        end.varint(0); // parameters
        let at = r.listings.iter().position(|(_, m)| m.ends_with(&end.0)).expect("no such SUBSCRIBE_NAMESPACE");
        let (k, _) = r.listings.remove(at);
        for m in messages {
            r.s.receive(self.shared.now(), k, m);
        }
        self.pump(r);
    }

    fn sessions(&self) -> (Phase, bool, Vec<String>) {
        self.shared.with_status(|s| (s.phase, s.some_sessions, s.sessions.clone()))
    }

    fn until(&self, what: &str, happened: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 {
            if happened(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("timed out waiting for {what}");
    }

    fn acquired(&self) -> Acquired {
        for _ in 0..60_000 {
            if let Ok(Some(a)) = self.shared.acquire(CAMERA) {
                return a;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("no frame was decoded");
    }

    fn phase(&self) -> Phase {
        self.shared.with_status(|s| s.phase)
    }
}

#[test]
fn frame_and_receipt() {
    let mut st = Stage::new();
    let mut r = st.session(0);
    assert_eq!(st.phase(), Phase::Live);
    st.answer(&mut r, "receipts/me", &message(kind::REQUEST_OK, &fields(&[0])));
    st.accept(&mut r, "clock", 3);
    // The relay's clock is an hour ahead.
    let (now, hour) = (st.shared.now(), 3_600_000 * MS);
    let mut stamp = vec![1, 0, 0, 0, 1, 0, 0, 0];
    stamp.extend((((now + hour) / 1000) as u64).to_le_bytes());
    r.s.datagram(now, &moqt::Datagram::encode(3, 0, 128, &stamp));
    st.pump(&mut r);
    let relay = st.shared.clock().relay - st.shared.clock().local;
    st.object(&mut r, 2, 100, &frame(7, now + relay - 50 * MS));
    let a = st.acquired();
    assert!(a.info.delay >= 49 * MS && !a.info.replayed, "{:?}", a.info);
    let words = st.shared.words(a.handle, |i, w| (i.points as usize, w.len())).unwrap();
    assert_eq!(words.1, 3 * words.0);
    assert!(st.shared.release(a.handle, Some(now + 30 * MS)));
    st.player.commands(st.shared.now(), Some(&mut r.s));
    st.pump(&mut r);
    let d = moqt::Datagram::parse(&r.datagrams[0]).unwrap().unwrap();
    assert_eq!((d.group, d.payload.len(), &d.payload[..8]), (0, 200, &[1, 0, 1, 2, 7, 0, 0, 0][..]));
    let us = i32::from_le_bytes(d.payload[8..12].try_into().unwrap());
    assert!((us - 80_000).abs() < 1_000, "{us} µs");
    let s = st.shared.stats(None).unwrap();
    assert_eq!((s.run.frames, s.run.shown, s.receipts), (1, 1, 1));
}

/// Frames in datagrams: one complete, one repaired by a fetch, one dropped as incomplete.
#[test]
fn frames_in_datagrams() {
    let mut st = Stage::new();
    let mut r = st.session(0);
    let now = st.shared.now();
    let b = frame(1, now);
    let size = b.len().div_ceil(5);
    let parts = |b: &[u8]| b.chunks(size).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let send = |st: &mut Stage, r: &mut Relay, group: u64, b: &[u8], lost: &[usize]| {
        for (i, p) in parts(b).iter().enumerate().filter(|(i, _)| !lost.contains(i)) {
            st.datagram(r, 2, group, i as u64, (i == 0).then_some(b.len()), i == 4, p);
        }
    };
    send(&mut st, &mut r, 100, &b, &[]);
    let a = st.acquired();
    assert_eq!((a.info.header.sequence, a.info.bytes as usize), (1, b.len()));
    st.shared.release(a.handle, None);
    assert!(r.fetches.is_empty());
    // The second part is lost, as the fifth reveals: only that part is requested.
    let b = frame(2, now);
    send(&mut st, &mut r, 101, &b, &[1]);
    let (k, m) = r.fetches.pop().expect("no FETCH");
    let mut w = Writer::new();
    w.varint(101).varint(1).varint(101).varint(2);
    assert!(m.windows(w.0.len()).any(|at| at == w.0), "{m:x?}");
    let request = u64::from(m[0]);
    st.answer_fetch(&mut r, k, request, 101, 1, &parts(&b)[1]);
    let a = st.acquired();
    assert_eq!((a.info.header.sequence, a.info.bytes as usize), (2, b.len()));
    st.shared.release(a.handle, None);
    let s = st.shared.stats(None).unwrap();
    assert_eq!((s.repaired, s.abandoned, s.repairs), (1, 0, 1));
    // The end of a frame is lost. No more parts arrive, so it is requested after a while.
    send(&mut st, &mut r, 102, &frame(3, now), &[3, 4]);
    assert!(r.fetches.is_empty());
    st.player.tick(st.shared.now(), Some(&mut r.s));
    let until = st.shared.now() + 20 * MS;
    while r.fetches.is_empty() && st.player.deadline() < until {
        let at = st.player.deadline();
        st.player.tick(at, Some(&mut r.s));
        st.pump(&mut r);
    }
    let (k, _) = r.fetches.pop().expect("no FETCH");
    // The relay lacks the part, so the frame is dropped when it times out.
    r.s.receive(st.shared.now(), k, &message(kind::REQUEST_ERROR, &fields(&[0x11, 0, 0])));
    st.pump(&mut r);
    // A wait that ends late is extended once.
    let later = st.shared.now() + 2500 * MS;
    for at in [later, later + 2 * MS] {
        st.player.tick(at, Some(&mut r.s));
        st.pump(&mut r);
    }
    let s = st.shared.stats(None).unwrap();
    assert_eq!((s.repaired, s.abandoned, s.parts_lost, s.repairs), (1, 1, 2, 2));
    assert!(r.fetches.is_empty());
    // Nothing is requested for an unsubscribed camera.
    send(&mut st, &mut r, 103, &frame(4, now), &[1]);
    assert_eq!(r.fetches.len(), 1);
    st.shared.command(Command::Unsubscribe(None));
    st.player.commands(st.shared.now(), Some(&mut r.s));
    st.pump(&mut r);
    assert_eq!(st.shared.stats(None).unwrap().abandoned, 2);
}

/// A catalog and poses in datagrams are not reassembled.
#[test]
fn small_tracks_in_datagrams() {
    let mut st = Stage::new();
    let mut r = st.connect(0);
    st.accept(&mut r, "catalog", 1);
    let mut c: serde_json::Value = serde_json::from_slice(&catalog(1)).unwrap();
    c["tracks"].as_array_mut().unwrap().push(serde_json::json!(
        {"name": "pose", "packaging": "eventtimeline", "eventType": "dev.holocast.pose/v1"}));
    st.datagram(&mut r, 1, 1, 0, None, true, c.to_string().as_bytes());
    assert_eq!(st.phase(), Phase::Live);
    st.accept(&mut r, "pose", 4);
    let poses = serde_json::json!([{"data": {"camera": CAMERA, "pose": {"r": [1,0,0,0,1,0,0,0,1], "t": [7,8,9]}}}]);
    st.datagram(&mut r, 4, 1, 0, None, true, poses.to_string().as_bytes());
    assert_eq!(st.shared.with_status(|s| s.tracks[0].track.pose.t), [7.0, 8.0, 9.0]);
}

/// The old session is used until frames arrive over the new one, and no frame is counted twice.
#[test]
fn migration_to_another_relay() {
    let mut st = Stage::new();
    let mut old = st.session(0);
    let now = st.shared.now();
    st.object(&mut old, 2, 100, &frame(1, now));
    let a = st.acquired();
    st.shared.release(a.handle, None);
    // After GOAWAY a new relay answers. Frames are requested at once, before its catalog arrives.
    let mut new = st.connect(1);
    assert!(new.requests.contains_key("points/513/full"));
    assert_eq!(st.player.take_superseded(), None);
    st.object(&mut old, 2, 101, &frame(2, now));
    let a = st.acquired();
    assert_eq!(a.info.header.sequence, 2);
    st.shared.release(a.handle, None);
    st.accept(&mut new, "points/513/full", 9);
    st.object(&mut new, 9, 101, &frame(2, now));
    assert_eq!(st.player.take_superseded(), Some(Link(0)));
    st.object(&mut new, 9, 102, &frame(3, now));
    assert_eq!(st.acquired().info.header.sequence, 3);
    assert!(!st.player.disconnected(Link(0)) && st.phase() == Phase::Live);
    st.player.tick(st.shared.now() + 2500 * MS, Some(&mut new.s)); // no clock track
    let s = st.shared.stats(None).unwrap();
    assert_eq!((s.run.frames, s.run.lost, s.run.duplicate), (3, 0, 0));
    assert_eq!(st.shared.with_status(|s| s.reconnects), 1);
}

#[test]
fn publisher_restart() {
    let mut st = Stage::new();
    let mut r = st.session(0);
    st.answer(&mut r, "catalog", &message(kind::PUBLISH_DONE, &fields(&[4, 1, 0])));
    assert_eq!(st.phase(), Phase::Ended);
    let first = r.requests["catalog"];
    let later = st.shared.now() + 2000 * MS;
    st.player.tick(later, Some(&mut r.s));
    st.pump(&mut r);
    assert_ne!(r.requests["catalog"], first);
    st.answer(&mut r, "catalog", &message(kind::REQUEST_ERROR, &fields(&[0x10, 0, 0])));
    assert_eq!(st.phase(), Phase::Ended);
    st.player.tick(later + 4000 * MS, Some(&mut r.s));
    st.pump(&mut r);
    st.accept(&mut r, "catalog", 5);
    st.object(&mut r, 5, 2, &catalog(1));
    assert_eq!(st.phase(), Phase::Live);
    // A catalog without cameras, then the end of the broadcast.
    st.object(&mut r, 5, 3, &catalog(0));
    assert_eq!((st.phase(), st.shared.with_status(|s| s.tracks.len())), (Phase::Waiting, 0));
    st.object(&mut r, 5, 4, br#"{"version":"draft-01","tracks":[],"isComplete":true}"#);
    assert_eq!(st.phase(), Phase::Ended);
}

/// If a relay refuses the full list, the sessions known by name are queried.
#[test]
fn sessions_listed_by_name() {
    let refused = message(kind::REQUEST_ERROR, &fields(&[1, 0, 0]));
    let accepted = message(kind::REQUEST_OK, &fields(&[0]));
    let list = |named: &[&str]| {
        Stage::of(Config { named: named.iter().map(|n| n.to_string()).collect(), ..Config::default() })
    };

    let mut st = list(&["a", "b"]);
    let mut r = st.connect(0);
    st.answer_listing(&mut r, &["holocast"], &[accepted.clone(), message(kind::NAMESPACE, b"\x01\x01c")]);
    assert_eq!(st.sessions(), (Phase::Listing, false, vec!["c".into()]));
    assert!(r.listings.is_empty());

    let mut st = list(&["a", "b"]);
    let mut r = st.connect(0);
    st.answer_listing(&mut r, &["holocast"], std::slice::from_ref(&refused));
    assert_eq!(st.sessions(), (Phase::Listing, true, vec![]));
    st.answer_listing(&mut r, &["holocast", "a"], std::slice::from_ref(&refused));
    assert_eq!(st.sessions(), (Phase::Listing, true, vec![]));
    // Namespaces below a session do not count as sessions.
    st.answer_listing(
        &mut r,
        &["holocast", "b"],
        &[accepted, message(kind::NAMESPACE, b"\x01\x01x"), message(kind::NAMESPACE, &[0])],
    );
    assert_eq!(st.sessions(), (Phase::Listing, true, vec!["b".into()]));

    // If no session is allowed, the list is requested again after a while.
    for named in [&[][..], &["a"]] {
        let mut st = list(named);
        let mut r = st.connect(0);
        st.answer_listing(&mut r, &["holocast"], std::slice::from_ref(&refused));
        for name in named {
            st.answer_listing(&mut r, &["holocast", name], std::slice::from_ref(&refused));
        }
        assert_eq!(st.sessions(), (Phase::Refused, false, vec![]));
        assert!(r.listings.is_empty() && st.shared.with_status(|s| s.error.contains("UNAUTHORIZED")));
        st.player.tick(st.shared.now() + 6000 * MS, Some(&mut r.s));
        st.pump(&mut r);
        let accepted = message(kind::REQUEST_OK, &fields(&[0]));
        st.answer_listing(&mut r, &["holocast"], &[accepted, message(kind::NAMESPACE, b"\x01\x01c")]);
        assert_eq!(st.sessions(), (Phase::Listing, false, vec!["c".into()]));
    }
}

/// A catalog that arrived before the answer to its subscription is not opened on the next connection.
#[test]
fn early_catalog_of_a_lost_connection() {
    let keys = HashMap::from([(1, vec![7; 16])]);
    let mut st = Stage::of(Config { session: Some("demo".into()), keys, ..Config::default() });
    let plain_catalog = |st: &mut Stage, r: &mut Relay| {
        let k = r.s.accept_uni();
        let mut w = Writer::new();
        // Of FETCH 4, which joins SUBSCRIBE 2.
        w.varint(5).varint(4).varint(0x1c).varint(1).varint(0).u8(128).bytes(&catalog(1));
        r.s.receive(st.shared.now(), k, &w.0);
        st.pump(r);
    };
    let mut lost = st.connect(0);
    plain_catalog(&mut st, &mut lost);
    st.player.disconnected(lost.link);
    let mut r = st.connect(1);
    st.accept(&mut r, "catalog", 1);
    assert_ne!(st.phase(), Phase::Refused);
    plain_catalog(&mut st, &mut r);
    assert_eq!(st.phase(), Phase::Refused);
}

/// A publisher with only undecodable frames is reported until one is decodable.
#[test]
fn undecodable_frames() {
    let mut st = Stage::new();
    let mut r = st.session(0);
    let good = frame(1, st.shared.now());
    let undecodable = |st: &Stage| st.shared.with_status(|s| (s.undecodable, s.error.clone()));
    let mut group = 100;
    let cut = &good[..good.len() - 4];
    for (bad, why) in [
        (cut, "no frame of camera 513 can be decoded: zstd: "),
        (b"no frame", "no frame of camera 513 can be decoded: its objects"),
    ] {
        let before = st.shared.stats(None).map_or(0, |s| s.damaged);
        for n in 1..=10 {
            assert_eq!(undecodable(&st).0, None);
            st.object(&mut r, 2, group, bad);
            group += 1;
            let counted = |st: &Stage| st.shared.stats(None).map_or(0, |s| s.damaged) == before + n;
            st.until("a damaged frame", counted);
        }
        st.until("the report", |st| undecodable(st).0 == Some(CAMERA));
        assert!(undecodable(&st).1.starts_with(why), "{}", undecodable(&st).1);
        st.object(&mut r, 2, group, &good);
        group += 1;
        let a = st.acquired();
        st.shared.release(a.handle, None);
        st.until("the end of the report", |st| undecodable(st).0.is_none());
    }
}

#[test]
fn connection_errors() {
    let mut st = Stage::new();
    st.player.connection_error(Phase::Unreachable, "nothing answers");
    assert_eq!(
        (st.phase(), st.shared.with_status(|s| s.error.clone())),
        (Phase::Unreachable, "nothing answers".to_owned())
    );
    let mut r = st.connect(0);
    st.accept(&mut r, "catalog", 1);
    st.object(&mut r, 1, 1, b"{");
    assert_eq!(st.phase(), Phase::Refused);
    assert!(st.shared.with_status(|s| s.error.starts_with("catalog: $: ")));
    st.object(&mut r, 1, 2, &catalog(1));
    assert_eq!(st.phase(), Phase::Live);
    // No frames for three seconds.
    st.player.tick(st.shared.now() + 3100 * MS, Some(&mut r.s));
    assert_eq!(st.phase(), Phase::Silent);
    assert!(st.player.disconnected(Link(0)));
    st.player.connection_error(Phase::Lost, "it broke");
    assert_eq!(st.phase(), Phase::Lost);
}

/// An object of layout W from the shared vectors.
fn video(n: usize) -> Vec<u8> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../internal/pointvideo/testdata");
    let mut b = std::fs::read(format!("{dir}/room-{n}.hcpf")).unwrap();
    b[28..30].copy_from_slice(&CAMERA.to_le_bytes());
    b
}

fn video_catalog() -> Vec<u8> {
    let lens = serde_json::json!({"width": 64, "height": 48, "fx": 60, "fy": 60, "cx": 32, "cy": 24,
      "k": [0, 0, 0, 0, 0, 0], "p": [0, 0]});
    let pose = serde_json::json!({"r": [1, 0, 0, 0, 1, 0, 0, 0, 1], "t": [0, 0, 0]});
    let init =
        base64::engine::general_purpose::STANDARD.encode(serde_json::json!({"grid": lens, "pose": pose}).to_string());
    let track = serde_json::json!({"name": format!("points/{CAMERA}/full"), "packaging": "hcpf", "initRef": "i",
      "width": 64, "height": 48, "framerate": 30,
        "hcpf": {"camera": CAMERA, "quality": "full", "layout": "W", "descriptions": 1, "maxPoints": 3072}});
    let inits = serde_json::json!([{"id": "i", "type": "inline", "data": init}]);
    serde_json::json!({"version": "draft-01", "tracks": [track], "initDataList": inits}).to_string().into_bytes()
}

/// Groups of several frames: in order, and with a key frame requested after damage and a reset.
#[test]
fn point_video() {
    let mut st = Stage::new();
    let mut r = st.connect(0);
    st.accept(&mut r, "catalog", 1);
    st.object(&mut r, 1, 1, &video_catalog());
    // With DYNAMIC_GROUPS.
    st.answer(&mut r, "points/513/full", &message(kind::SUBSCRIBE_OK, &fields(&[2, 0, 0x30, 1])));
    let begin = |st: &mut Stage, r: &mut Relay, group: u64| {
        let k = r.s.accept_uni();
        let mut w = Writer::new();
        w.varint(0x10).varint(2).varint(group).u8(128);
        r.s.receive(st.shared.now(), k, &w.0);
        k
    };
    let send = |st: &mut Stage, r: &mut Relay, k: StreamKey, payload: &[u8]| {
        let mut w = Writer::new();
        w.varint(0).varint(payload.len() as u64).raw(payload);
        r.s.receive(st.shared.now(), k, &w.0);
        st.pump(r);
    };
    let shown = |st: &Stage, sequence: u32| loop {
        let a = st.acquired();
        st.shared.release(a.handle, None);
        if a.info.header.sequence == sequence {
            break a.info;
        }
    };
    let requested = |st: &mut Stage, r: &mut Relay, group: u8| {
        while r.updates.is_empty() {
            std::thread::sleep(Duration::from_millis(2));
            let now = st.shared.now();
            st.player.commands(now, Some(&mut r.s));
            st.player.tick(now, Some(&mut r.s));
            st.pump(r);
        }
        assert!(r.updates.drain(..).all(|u| u.ends_with(&[1, 0x32, group])));
    };
    let k = begin(&mut st, &mut r, 4);
    for n in 0..3 {
        send(&mut st, &mut r, k, &video(n));
    }
    let info = shown(&st, 42);
    assert_eq!((info.points, info.words_per_point, info.header.layout as u32), (2814, 2, 4));
    // Damage breaks the rest of the group.
    send(&mut st, &mut r, k, &video(3)[..500]);
    requested(&mut st, &mut r, 5);
    send(&mut st, &mut r, k, &video(4));
    let k = begin(&mut st, &mut r, 5);
    send(&mut st, &mut r, k, &video(5));
    assert_eq!(shown(&st, 45).points, 2814);
    let s = st.shared.stats(None).unwrap();
    assert_eq!((s.damaged, s.skipped), (1, 1));
    // So does a reset.
    send(&mut st, &mut r, k, &video(6));
    shown(&st, 46);
    let now = st.shared.now();
    r.s.reset(now, k);
    st.pump(&mut r);
    requested(&mut st, &mut r, 6);
    let k = begin(&mut st, &mut r, 6);
    send(&mut st, &mut r, k, &video(0));
    shown(&st, 40);
}
