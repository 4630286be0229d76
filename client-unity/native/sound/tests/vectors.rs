//! Conformance with the vectors of internal/jitter/testdata, shared by all implementations.

#![allow(clippy::panic)]

use serde::Deserialize;
use sound::{Buffer, Codec, Counts, Format, Kind, Packet};

#[derive(Deserialize)]
struct Document {
    splice: usize,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    packet: i64,
    lead: i64,
    steps: Vec<Step>,
    own: i64,
    stats: Stats,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Step {
    Add([i64; 3]),
    Next([i64; 7]),
}

#[derive(Deserialize)]
struct Stats {
    received: u64,
    played: u64,
    repeated: u64,
    corrected_us: i64,
    concealed_us: i64,
    late: u64,
    far: u64,
    overflowed: u64,
    jumps: u64,
}

#[test]
fn decisions() {
    let path = format!("{}/../../../internal/jitter/testdata/vectors.json", env!("CARGO_MANIFEST_DIR"));
    let b = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let doc: Document = serde_json::from_slice(&b).unwrap_or_else(|e| panic!("{path}: {e}"));
    let format = Format { codec: Codec::Opus, channels: 1, rate: 48_000, config: None, packet: None };
    assert!(!doc.cases.is_empty());
    for c in doc.cases {
        let mut b = Buffer::new(&format, c.packet, c.lead, 128);
        for (i, step) in c.steps.iter().enumerate() {
            let [at, pictures, ..] = match *step {
                Step::Add([now, timestamp, repeated]) => {
                    let packet = Packet { timestamp, ..Packet::default() };
                    b.add(now, packet, (repeated != 0).then(|| vec![0]));
                    continue;
                }
                Step::Next(n) => n,
            };
            let d = b.next(at, b.target((pictures >= 0).then_some(pictures)));
            if d.stretch != 0 {
                b.stretched(doc.splice);
            }
            let (kind, timestamp) = match d.kind {
                Kind::Play(p) => (0, p.timestamp),
                Kind::Correct(p) => (1, p.timestamp),
                Kind::Conceal => (2, 0),
                Kind::Silence => (3, 0),
            };
            let got = [at, pictures, kind, timestamp, d.samples as i64, i64::from(d.jump), i64::from(d.stretch)];
            let Step::Next(want) = *step else { continue };
            assert_eq!(got, want, "{}: step {i}", c.name);
        }
        let s = c.stats;
        let want = Counts {
            received: s.received,
            played: s.played,
            repeated: s.repeated,
            corrected: s.corrected_us,
            concealed: s.concealed_us,
            late: s.late,
            far: s.far,
            overflowed: s.overflowed,
            jumps: s.jumps,
        };
        assert_eq!((b.own(), b.counts()), (c.own, want), "{}", c.name);
    }
}
