//! Conformance with the bytes that internal/moqt/wire writes (client-web/test/unit/wire.json).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use moqt::bytes::{Reader, Writer};
use moqt::data::{ObjectHeader, Parser, Sink, StreamHeader};
use moqt::message::{self, Message, Parameters, Properties, Subscribe};
use moqt::{Datagram, Filter, Location, Namespace, ObjectStatus, TrackName, Version};
use serde_json::Value;

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../client-web/test/unit/wire.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn hex(v: &Value) -> Vec<u8> {
    let s = v.as_str().unwrap();
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

fn track() -> TrackName {
    TrackName::new(Namespace::new(["holocast", "bühne"]), "points/0/full")
}

#[test]
fn varints() {
    for v in vectors()["varints"].as_array().unwrap() {
        let n: u64 = v["value"].as_str().unwrap().parse().unwrap();
        let mut w = Writer::new();
        w.varint(n);
        assert_eq!(w.0, hex(&v["hex"]));
        assert_eq!(Reader::new(&w.0).varint(), Ok(n));
    }
}

#[test]
fn sent() {
    let v = &vectors()["sent"];
    let plain = Subscribe::default();
    assert_eq!(message::subscribe(4, &track(), &plain, Version::Draft18), hex(&v["subscribe"]));
    assert_eq!(message::joining_fetch(6, 4, Some(16)), hex(&v["joiningFetch"]));
    assert_eq!(message::subscribe_namespace(8, &Namespace::new(["holocast"])), hex(&v["subscribeNamespace"]));
    assert_eq!(message::start_update(12, 1_763_665_200_123, Version::Draft18), hex(&v["startUpdate"]));
    assert_eq!(message::publish(10, &track(), 3, None), hex(&v["publish"]));
    assert_eq!(message::request_error(3, "no"), hex(&v["requestError"]));
    assert_eq!(message::request_ok(), hex(&v["requestOk"]));
    assert_eq!(message::publish_done(2, ""), hex(&v["publishDone"]));
    assert_eq!(Datagram::encode(3, 70000, 128, b"receipt"), hex(&v["datagram"]));
}

/// Parameters are in ascending order, and defaults are omitted.
#[test]
fn parameters() {
    let o = Subscribe {
        filter: Some(Filter::LargestObject),
        priority: Some(16),
        delivery_timeout_ms: 500,
        rendezvous_ms: 20_000,
        fill: false,
    };
    let b = message::subscribe(0, &TrackName::new(Namespace::default(), "t"), &o, Version::Draft18);
    // SUBSCRIBE, 17 bytes: request 0, no namespace, "t", 4 parameters: 0x02, +2, +0x1c, +1.
    let want = [3, 0, 17, 0, 0, 1, b't', 4, 2, 0x81, 0xf4, 2, 0xc0, 0x4e, 0x20, 0x1c, 16, 1, 1, 2];
    assert_eq!(b, want);
}

#[test]
fn received() {
    let v = &vectors()["received"];
    let read = |name: &str| {
        let b = hex(&v[name]);
        let mut r = Reader::new(&b);
        let m = message::read(&mut r, Version::Draft18).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(r.left(), 0);
        for n in 0..b.len() {
            assert!(message::read(&mut Reader::new(&b[..n]), Version::Draft18).is_err(), "{name} cut at {n}");
        }
        m
    };
    let suffix = Namespace::new(["bühne"]);
    let properties = Properties {
        compression: Some(1),
        any: true,
        priority: Some(7),
        immutable: Some(vec![129, 1, 1, b'x']),
        ..Properties::default()
    };
    for (name, want) in [
        ("setup", Message::Setup { implementation: "holocast".into() }),
        ("goaway", Message::Goaway { uri: "https://other.example:4443/".into(), timeout_ms: 5000, request: Some(12) }),
        (
            "subscribeOk",
            Message::SubscribeOk {
                alias: 1 << 60,
                parameters: Parameters {
                    largest: Some(Location { group: 1_763_665_200_123, object: 2 }),
                    forward: None,
                },
                properties,
            },
        ),
        ("fetchOk", Message::FetchOk { end_of_track: true, end: Location { group: 9, object: 1 } }),
        ("requestOk", Message::Ok(Parameters { largest: None, forward: Some(false) })),
        ("requestError", Message::Error { code: 0x10, reason: "nobody publishes it".into() }),
        ("redirect", Message::Error { code: 0x34, reason: "there".into() }),
        ("publishDone", Message::Done { code: 5, streams: (1 << 62) - 1, reason: "slow".into() }),
        ("update", Message::Update { id: 1, parameters: Parameters { largest: None, forward: Some(true) } }),
        ("namespace", Message::Namespace { added: true, suffix: suffix.clone() }),
        ("namespaceDone", Message::Namespace { added: false, suffix }),
        ("subscribe", Message::Request(3)),
    ] {
        assert_eq!(read(name), want, "{name}");
    }
    let Message::SubscribeOk { properties, .. } = read("mandatory") else { panic!("no SUBSCRIBE_OK") };
    assert_eq!(properties.unknown_mandatory, Some(0x4002));
}

#[derive(Default)]
struct Seen(Vec<(ObjectHeader, Vec<u8>)>);

impl Sink for Seen {
    fn object(&mut self, h: ObjectHeader) -> bool {
        self.0.push((h, Vec::new()));
        true
    }
    fn payload(&mut self, b: &[u8]) -> bool {
        self.0.last_mut().unwrap().1.extend_from_slice(b);
        true
    }
}

/// Parses a stream in chunks of `piece` bytes. Returns the group, subgroup, ID, status and length of
/// each object.
fn stream(b: &[u8], piece: usize) -> Vec<(u64, u64, u64, ObjectStatus, usize)> {
    let mut r = Reader::new(b);
    let mut parser = match StreamHeader::read(&mut r).unwrap() {
        StreamHeader::Subgroup(h) => Parser::subgroup(h),
        StreamHeader::Fetch(6) => Parser::fetch(Version::Draft18),
        h => panic!("{h:?}"),
    };
    let mut seen = Seen::default();
    for chunk in b[r.pos()..].chunks(piece) {
        assert!(parser.push(chunk, &mut seen).unwrap());
    }
    assert!(parser.boundary());
    for (h, payload) in &seen.0 {
        let want: Vec<u8> = (0..h.length).map(|i| i as u8).collect();
        assert_eq!(*payload, want);
    }
    seen.0.iter().map(|(h, p)| (h.group, h.subgroup, h.id, h.status, p.len())).collect()
}

#[test]
fn streams_in_chunks_of_any_size() {
    use ObjectStatus::*;
    let v = &vectors()["streams"];
    for piece in [1, 2, 3, 7, 50, 1000] {
        let subgroup =
            |g, s| vec![(g, s, 2, Normal, 3), (g, s, 3, Normal, 0), (g, s, 7, Normal, 300), (g, s, 8, EndOfGroup, 0)];
        assert_eq!(stream(&hex(&v["explicit"]), piece), subgroup(1 << 40, 3));
        assert_eq!(stream(&hex(&v["firstObject"]), piece), subgroup(7, 2));
        assert_eq!(stream(&hex(&v["zero"]), piece), subgroup(8, 0));
        let fetch = [
            (5, 0, 0, Normal, 4),
            (5, 1, 1, Normal, 4),
            (5, 1, 2, Normal, 0),
            (8, 0, 0, Normal, 2),
            (9, 70, 4, Normal, 200),
        ];
        assert_eq!(stream(&hex(&v["fetch"]), piece), fetch);
    }
    assert_eq!(StreamHeader::read(&mut Reader::new(&hex(&v["padding"]))), Ok(StreamHeader::Padding));
}

#[test]
fn datagrams() {
    let v = &vectors()["datagrams"];
    let (normal, status) = (hex(&v["normal"]), hex(&v["status"]));
    let d = Datagram::parse(&normal).unwrap().unwrap();
    assert_eq!((d.alias, d.group, d.object, d.status, d.payload), (5, 9, 2, ObjectStatus::Normal, &b"stamp"[..]));
    let d = Datagram::parse(&status).unwrap().unwrap();
    assert_eq!((d.object, d.status, d.payload.len()), (3, ObjectStatus::EndOfTrack, 0));
    assert_eq!(Datagram::parse(&hex(&v["padding"])), Ok(None));
}

/// Messages that draft-20 and -22 changed.
#[test]
fn since_20() {
    for (name, v) in [("20", Version::Draft20), ("22", Version::Draft22)] {
        let vectors = &vectors()["drafts"][name];
        let sent = &vectors["sent"];
        let from = |filter, fill| Subscribe { filter: Some(filter), fill, ..Subscribe::default() };
        let at = |group, object| Location { group, object };
        for (name, message) in [
            ("subscribeAndFill", message::subscribe(4, &track(), &from(Filter::LargestObject, true), v)),
            ("subscribeNextGroup", message::subscribe(4, &track(), &from(Filter::NextGroup, false), v)),
            ("subscribeFromStart", message::subscribe(4, &track(), &from(Filter::From(0), false), v)),
            ("startUpdate", message::start_update(12, 1_763_665_200_123, v)),
            ("fetchGroups", message::fetch(6, &track(), at(300, 0), at(301, 0), Some(16), v)),
            ("fetchObjects", message::fetch(6, &track(), at(300, 2), at(300, 201), Some(16), v)),
        ] {
            assert_eq!(message, hex(&sent[name]), "{v:?} {name}");
        }
        let read = |name: &str| {
            let b = hex(&vectors["received"][name]);
            for n in 0..b.len() {
                assert!(message::read(&mut Reader::new(&b[..n]), v).is_err(), "{name} cut at {n}");
            }
            message::read(&mut Reader::new(&b), v)
        };
        let state = Parameters { largest: Some(at(300, 2)), forward: Some(false) };
        assert_eq!(read("state"), Ok(Message::State(state)));
        assert_eq!(read("requestOk"), Ok(Message::Ok(Parameters::default())));
        let forward = Parameters { largest: None, forward: Some(true) };
        assert_eq!(read("update"), Ok(Message::Update { id: 1, parameters: forward }));
        // FORWARD moved from PUBLISH_OK to REQUEST_UPDATE.
        assert!(message::parse(message::kind::REQUEST_OK, &[1, 0x10, 0], v).is_err());
        assert!(message::parse(message::kind::PUBLISH_STATE_NOTIFY, &[0], v).is_ok());
    }
    assert!(message::parse(message::kind::PUBLISH_STATE_NOTIFY, &[0], Version::Draft18).is_err());
}
