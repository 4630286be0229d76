//! The other relays of a cluster, which a relay lists in a track, as in internal/roster.

use moqt::{Filter, Namespace, SubscribeOptions, TrackName};

use crate::target::Target;
use crate::trust::{parse_hash, Hash};

/// Maximum size of a list, bytes.
const MAX_SIZE: usize = 8 << 10;
/// Maximum number of relays in use.
const MAX_RELAYS: usize = 8;
const MAX_URL: usize = 512;
/// Priority of the list, below that of media.
const PRIORITY: u8 = 200;

/// A relay and the only certificate that it is trusted with; None: as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub target: Target,
    pub certificate: Option<Hash>,
}

/// Another relay that serves the same sessions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Relay {
    pub place: Place,
    /// Low costs come first.
    pub cost: f64,
}

/// The list's track.
pub(crate) fn track() -> TrackName {
    TrackName::new(Namespace::new([".relay"]), "relays")
}

/// Options to subscribe to the list.
pub(crate) fn options() -> SubscribeOptions {
    SubscribeOptions {
        filter: Some(Filter::LargestObject),
        priority: Some(PRIORITY),
        join: true,
        max_object: MAX_SIZE,
        ..SubscribeOptions::default()
    }
}

/// Parses a list; None if it is malformed.
pub(crate) fn parse(b: &[u8]) -> Option<Vec<Relay>> {
    let list: serde_json::Value = serde_json::from_slice(b).ok()?;
    list.get("relays")?.as_array()?.iter().take(MAX_RELAYS).map(relay).collect()
}

fn relay(r: &serde_json::Value) -> Option<Relay> {
    let url = r.get("url")?.as_str().filter(|u| u.len() <= MAX_URL && u.starts_with("moqt://"))?;
    let target = Target::parse(url).ok().filter(|t| t.path.is_empty() && !url.contains('#'))?;
    let certificate = match r.get("sha256").map(|h| h.as_str()) {
        None | Some(Some("")) => None,
        Some(hash) => Some(parse_hash(hash?)?),
    };
    let cost = r.get("cost").map_or(Some(0.0), serde_json::Value::as_f64)?;
    Some(Relay { place: Place { target, certificate }, cost })
}

/// The known relays and the configured one, without the relay at `at`, best first. `random` orders relays
/// of equal cost.
pub(crate) fn others(known: &[Relay], home: &Place, at: &Target, mut random: impl FnMut() -> f64) -> Vec<Place> {
    let mut order: Vec<(f64, f64, Place)> = known.iter().map(|r| (r.cost, random(), r.place.clone())).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut list: Vec<Place> = Vec::new();
    for mut p in order.into_iter().map(|o| o.2).chain([home.clone()]) {
        p.target = p.target.with_path_of(&home.target);
        let same = |t: &Target| t.host == p.target.host && t.port == p.target.port;
        if !same(at) && !list.iter().any(|o| same(&o.target)) {
            list.push(p);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let hash = "0a".repeat(32);
        let text = format!(
            r#"{{"relays":[{{"url":"moqt://b:1","sha256":"{hash}"}},{{"url":"moqt://[::1]:2","cost":3}},{{"url":"moqt://c"}}]}}"#
        );
        let list = parse(text.as_bytes()).unwrap();
        assert_eq!(list.iter().map(|r| r.place.target.authority.as_str()).collect::<Vec<_>>(), ["b:1", "[::1]:2", "c"]);
        assert_eq!(list.iter().map(|r| r.place.certificate).collect::<Vec<_>>(), [Some([10; 32]), None, None]);
        assert_eq!(list.iter().map(|r| r.cost).collect::<Vec<_>>(), [0.0, 3.0, 0.0]);
        let many = format!(r#"{{"relays":[{}]}}"#, vec![r#"{"url":"moqt://b:1"}"#; 100].join(","));
        assert_eq!(parse(many.as_bytes()).unwrap().len(), MAX_RELAYS);
        for wrong in [
            "",
            "[]",
            r#"{"relays":{}}"#,
            r#"{"relays":[{}]}"#,
            r#"{"relays":[{"url":"https://b:1"}]}"#,
            r#"{"relays":[{"url":"moqt://b:1/path"}]}"#,
            r#"{"relays":[{"url":"moqt://b:1#x"}]}"#,
            r#"{"relays":[{"url":"moqt://me@b:1"}]}"#,
            r#"{"relays":[{"url":"moqt://b:1","sha256":"0a"}]}"#,
            r#"{"relays":[{"url":"moqt://b:1","sha256":7}]}"#,
            r#"{"relays":[{"url":"moqt://b:1","cost":"low"}]}"#,
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn order() {
        let known = parse(
            br#"{"relays":[{"url":"moqt://far:1","cost":1},{"url":"moqt://b:1"},{"url":"moqt://a:1"},{"url":"moqt://c:1"}]}"#,
        )
        .unwrap();
        let home = Place { target: Target::parse("moqt://home:1/demo?token=t").unwrap(), certificate: Some([1; 32]) };
        let urls = |list: &[Place]| {
            list.iter().map(|p| format!("{}{}", p.target.authority, p.target.path)).collect::<Vec<_>>().join(" ")
        };
        let mut n = 0.0;
        let falling = || {
            n -= 1.0;
            n
        };
        let list = others(&known, &home, &home.target, falling);
        assert_eq!(urls(&list), "c:1/demo?token=t a:1/demo?token=t b:1/demo?token=t far:1/demo?token=t");
        let list = others(&known, &home, &known[2].place.target, || 0.0);
        assert_eq!(urls(&list), "b:1/demo?token=t c:1/demo?token=t far:1/demo?token=t home:1/demo?token=t");
        assert_eq!(list.last(), Some(&home));
        assert!(others(&[], &home, &home.target, || 0.0).is_empty());
    }
}
