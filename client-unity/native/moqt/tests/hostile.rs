//! Arbitrary input from the peer: no panic, bounded memory, and the same objects for any chunking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use moqt::bytes::Writer;
use moqt::data::{ObjectHeader, Parser, Sink, StreamHeader};
use moqt::message::{self, kind};
use moqt::*;
use proptest::prelude::*;

fn framed(kind: u64, body: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(kind).u8((body.len() >> 8) as u8).u8(body.len() as u8).raw(body);
    w.0
}

/// A session with a subscription (accepted), a fetch, a namespace subscription and a publication.
fn session() -> (Session, Vec<StreamKey>) {
    let limits = Limits { partial_bytes: 1 << 20, orphan_bytes: 1 << 18, ..Limits::default() };
    let mut s = Session::new(Config { limits, ..Config::default() }, Arc::default(), 0);
    let control = s.accept_uni();
    s.receive(0, control, &framed(kind::SETUP, &[]));
    let t = TrackName::new(Namespace::new(["a"]), "t");
    s.subscribe(0, &t, SubscribeOptions { join: true, max_object: 1 << 30, ..SubscribeOptions::default() });
    s.fetch(0, &t, Location::default(), Location { group: 9, object: 0 }, None, 1 << 30);
    s.subscribe_namespace(0, &Namespace::new(["a"]));
    s.publish(0, &t, 0);
    let mut keys = vec![control];
    while let Some(o) = s.poll_output() {
        if let Output::OpenBi(k) = o {
            keys.push(k);
        }
    }
    s.receive(0, keys[1], &framed(kind::SUBSCRIBE_OK, &[7, 0]));
    (s, keys)
}

#[derive(Debug, Clone)]
enum Step {
    Bytes(usize, Vec<u8>),
    Uni(Vec<u8>),
    Bi(Vec<u8>),
    Finish(usize),
    Reset(usize),
    Datagram(Vec<u8>),
    Pass(u32),
}

fn play(steps: &[Step]) {
    let (mut s, mut keys) = session();
    let mut now = 0;
    for step in steps {
        match step {
            Step::Bytes(k, b) => s.receive(now, keys[k % keys.len()], b),
            Step::Uni(b) => {
                keys.push(s.accept_uni());
                s.receive(now, keys[keys.len() - 1], b);
            }
            Step::Bi(b) => {
                keys.push(s.accept_bi());
                s.receive(now, keys[keys.len() - 1], b);
            }
            Step::Finish(k) => s.finished(now, keys[k % keys.len()]),
            Step::Reset(k) => s.reset(now, keys[k % keys.len()]),
            Step::Datagram(b) => s.datagram(now, b),
            Step::Pass(ms) => {
                now += Nanos::from(*ms) * 1_000_000;
                s.tick(now);
            }
        }
        while s.poll_event().is_some() {}
        while s.poll_output().is_some() {}
        assert!(s.held() < 4 << 20, "{} bytes held", s.held());
    }
    now += 3_600_000_000_000;
    s.tick(now);
    if let Some(d) = s.deadline() {
        assert!(d > now, "the deadline does not advance");
    }
}

/// Bytes with a plausible beginning.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    let kinds = vec![2u64, 3, 4, 5, 7, 8, 0xb, 0xe, 0x10, 0x16, 0x18, 0x1d, 0x50, 0x2f00];
    prop_oneof![
        (prop::sample::select(kinds), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(k, b)| framed(k, &b)),
        prop::collection::vec(any::<u8>(), 0..60),
        (0x10u8..0x80, prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(t, b)| [&[t, 7][..], &b].concat()),
        (0u8..8, prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(id, b)| [&[5, id][..], &b].concat()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<usize>(), likely()).prop_map(|(k, b)| Step::Bytes(k, b)),
        3 => likely().prop_map(Step::Uni),
        1 => likely().prop_map(Step::Bi),
        1 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::Reset),
        1 => likely().prop_map(Step::Datagram),
        1 => (0u32..30_000).prop_map(Step::Pass),
    ]
}

/// Group, subgroup, object and payload.
type Found = Vec<(u64, u64, u64, Vec<u8>)>;

struct Seen(Found);

impl Sink for Seen {
    fn object(&mut self, h: ObjectHeader) -> bool {
        self.0.push((h.group, h.subgroup, h.id, Vec::new()));
        true
    }
    fn payload(&mut self, b: &[u8]) -> bool {
        self.0.last_mut().unwrap().3.extend_from_slice(b);
        true
    }
}

/// Parses a stream in chunks of the given sizes.
fn parse(b: &[u8], pieces: &[usize]) -> Option<(Found, bool)> {
    let mut r = moqt::bytes::Reader::new(b);
    let mut parser = match StreamHeader::read(&mut r).ok()? {
        StreamHeader::Subgroup(h) => Parser::subgroup(h),
        StreamHeader::Fetch(_) => Parser::fetch(Version::Draft18),
        _ => return None,
    };
    let mut rest = &b[r.pos()..];
    let mut seen = Seen(Vec::new());
    let mut good = true;
    for n in pieces.iter().copied().chain(std::iter::repeat(usize::MAX)) {
        if rest.is_empty() || !good {
            break;
        }
        let (now, later) = rest.split_at(n.clamp(1, rest.len()));
        good = parser.push(now, &mut seen).is_ok();
        rest = later;
    }
    Some((seen.0, good && parser.boundary()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_peer(steps in prop::collection::vec(step(), 1..40)) {
        play(&steps);
    }

    #[test]
    fn any_cut(b in likely(), pieces in prop::collection::vec(1usize..9, 0..30)) {
        prop_assert_eq!(parse(&b, &pieces), parse(&b, &[]));
    }

    #[test]
    fn any_message(k in 0u64..0x60, b: Vec<u8>) {
        for v in Version::ALL {
            let _ = message::parse(k, &b, v);
            let _ = message::parse(kind::SETUP, &b, v);
        }
        let _ = Datagram::parse(&b);
    }
}

/// Regression inputs, each a stream's bytes: played in full, truncated, and on every stream.
#[test]
fn corpus() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut n = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let b = std::fs::read(entry.unwrap().path()).unwrap();
        n += 1;
        for piece in [1, 3, b.len().max(1)] {
            let chunks: Vec<_> = b.chunks(piece).collect();
            for k in 0..6 {
                let mut steps: Vec<_> = chunks.iter().map(|c| Step::Bytes(k, c.to_vec())).collect();
                steps.push(Step::Finish(k));
                play(&steps);
            }
            let mut steps = vec![Step::Uni(Vec::new())];
            steps.extend(chunks.iter().map(|c| Step::Bytes(6, c.to_vec())));
            steps.push(Step::Finish(6));
            play(&steps);
        }
    }
    assert!(n > 20);
}
