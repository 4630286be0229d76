//! Opens the objects of encrypted sessions (docs/spec/encryption.md,
//! draft-ietf-moq-secure-objects-01). `internal/secureobjects` is the reference; both share its test
//! vectors.

use std::collections::{HashMap, VecDeque};

use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use base64::Engine;
use moqt::bytes::{Reader, Writer};
use moqt::{Namespace, Object, ObjectStatus, Properties, Request, TrackName};
use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_128_GCM};
use ring::hkdf::{KeyType, Salt, HKDF_SHA256};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Maximum growth of an object by encryption, with properties of up to 64 KiB, bytes.
pub const SEALING: usize = (64 << 10) + 64;

/// AES_128_GCM_SHA256_128 (§7.2).
const SUITE: u16 = 0x0004;
const KEY_ID: u64 = 0x02;
const NONCE: usize = 12;
/// Bits of a Key ID below the ID of the key.
const RUN_BITS: u32 = 24;
const MAX_KEY_ID: u32 = 0x00ff_ffff;
const MAX_DERIVED: usize = 2048;
/// Subscriptions and fetches whose received locations are remembered.
const MAX_WINDOWS: usize = 1024;
const ON_DEMAND: &[u8] = b"recording";

/// A session without a key in its URL is encrypted.
pub(crate) const NO_KEY: &str = "the session is encrypted: append #e2e= and its key to the URL";

/// Why an object is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Unencrypted,
    UnknownKey(u64),
    Forged(u64),
    Replayed,
    Malformed,
}

impl Refusal {
    /// Explains the refusal of a catalog to users.
    fn sentence(self) -> String {
        match self {
            Refusal::Unencrypted => "the session is not encrypted, although a key was given: whoever runs the relay \
                                     can see and replace it. Remove the key if you accept that"
                .to_owned(),
            Refusal::UnknownKey(id) => {
                format!("the session is encrypted with key {}, which is not among the keys given", id >> RUN_BITS)
            }
            Refusal::Forged(id) => format!(
                "the session cannot be decrypted: key {} has another secret, or a relay changed the session",
                id >> RUN_BITS
            ),
            Refusal::Replayed | Refusal::Malformed => "the session cannot be decrypted".to_owned(),
        }
    }
}

/// Counters of a session's objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counters {
    pub opened: u64,
    pub unencrypted: u64,
    pub unknown_key: u64,
    pub forged: u64,
    pub replayed: u64,
    pub malformed: u64,
}

/// Parses keys in the form of links: ID.SECRET, comma-separated, secrets in base64url. None if they
/// are damaged.
pub fn parse_keys(text: &str) -> Option<HashMap<u32, Vec<u8>>> {
    text.split(',')
        .map(|part| {
            let (id, secret) = part.trim().split_once('.')?;
            let id = id.parse().ok().filter(|id| (1..=MAX_KEY_ID).contains(id))?;
            let secret = URL_SAFE_NO_PAD.decode(secret).ok().filter(|s| (16..=64).contains(&s.len()))?;
            Some((id, secret))
        })
        .collect()
}

/// Key and salt of one track and Key ID (§3.7).
struct Derived {
    key: LessSafeKey,
    salt: [u8; NONCE],
}

/// Output length of HKDF-Expand.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(secret: &[u8], track: &[u8], key_id: u64) -> Option<Derived> {
    let prk = Salt::new(HKDF_SHA256, &[]).extract(secret);
    let (suite, id) = (SUITE.to_be_bytes(), key_id.to_be_bytes());
    let expand = |label: &str, out: &mut [u8]| {
        prk.expand(&[label.as_bytes(), track, &suite, &id], Length(out.len())).and_then(|okm| okm.fill(out)).ok()
    };
    let (mut key, mut salt) = ([0; 16], [0; NONCE]);
    expand("MOQ 1.0 Secure Objects Secret key ", &mut key)?;
    expand("MOQ 1.0 Secret salt ", &mut salt)?;
    Some(Derived { key: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?), salt })
}

/// Serializes a full track name (§3.3.1).
fn full_track_name(t: &TrackName) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(t.namespace.0.len() as u64);
    for field in &t.namespace.0 {
        w.bytes(field);
    }
    w.bytes(&t.name);
    w.0
}

/// An object's place and priority as the publisher sealed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    group: u64,
    id: u64,
    priority: u8,
}

/// Nonce (§3.6) and additional data (§3.5); None for object IDs of more than 32 bits.
fn context(salt: &[u8; NONCE], at: Place, immutable: &[u8]) -> Option<([u8; NONCE], Vec<u8>)> {
    let mut aad = Vec::with_capacity(NONCE + 1 + immutable.len());
    aad.extend_from_slice(&at.group.to_be_bytes());
    aad.extend_from_slice(&u32::try_from(at.id).ok()?.to_be_bytes());
    let mut nonce = *salt;
    for (n, c) in nonce.iter_mut().zip(&aad) {
        *n ^= c;
    }
    aad.push(at.priority);
    aad.extend_from_slice(immutable);
    Some((nonce, aad))
}

/// Key ID in the content of Immutable Properties.
fn key_id(immutable: &[u8]) -> Option<u64> {
    let (mut r, mut kind) = (Reader::new(immutable), 0u64);
    while r.left() > 0 {
        kind = kind.checked_add(r.varint().ok()?)?;
        if kind % 2 == 1 {
            r.bytes(immutable.len(), "property").ok()?;
            continue;
        }
        let value = r.varint().ok()?;
        if kind == KEY_ID {
            return Some(value);
        }
    }
    None
}

/// Splits a plaintext into the range of its payload and the properties (§3.3.3).
fn split(plain: &[u8]) -> Option<(std::ops::Range<usize>, Properties)> {
    let mut r = Reader::new(plain);
    let n = usize::try_from(r.varint().ok()?).ok()?;
    let from = r.pos();
    r.take(n).ok()?;
    let payload = from..from + n;
    if r.left() == 0 {
        return Some((payload, Properties::default()));
    }
    if r.u8().ok()? != 0 || r.u8().ok()? != 0x0a {
        return None;
    }
    let list = r.bytes(plain.len(), "properties").ok()?;
    if r.left() > 0 {
        return None;
    }
    Some((payload, Properties::parse(list).ok()?))
}

const GROUPS: u64 = 512;
const MAX_IDS: u64 = 1 << 16;

/// Remembers the locations of the newest groups.
#[derive(Debug, Default)]
struct Window {
    groups: HashMap<u64, Seen>,
    newest: Option<u64>,
}

#[derive(Debug, Default)]
struct Seen {
    group: u64,
    bits: Vec<u64>,
    /// One above the largest ID of at least MAX_IDS; 0 = none.
    above: u64,
}

impl Window {
    /// Adds a location. Returns false if it was added before or is too old to know.
    fn add(&mut self, group: u64, id: u64) -> bool {
        let newest = *self.newest.get_or_insert(group);
        if group < newest && newest - group >= GROUPS {
            return false;
        }
        self.newest = Some(newest.max(group));
        let g = self.groups.entry(group % GROUPS).or_insert_with(|| Seen { group, ..Seen::default() });
        if g.group != group {
            *g = Seen { group, ..Seen::default() };
        }
        if id >= MAX_IDS {
            let new = id >= g.above;
            g.above = g.above.max(id.saturating_add(1));
            return new;
        }
        let (i, bit) = ((id / 64) as usize, 1 << (id % 64));
        if g.bits.len() <= i {
            g.bits.resize(i + 1, 0);
        }
        let new = g.bits[i] & bit == 0;
        g.bits[i] |= bit;
        new
    }
}

/// A catalog's field "hcsealed".
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SealedCatalog {
    key_id: u64,
    namespace: Vec<String>,
    group: u64,
    object: u64,
    priority: u8,
    data: String,
}

/// Decrypts a session's objects.
pub(crate) struct Encryption {
    namespace: Namespace,
    keys: HashMap<u32, Vec<u8>>,
    /// The namespace that a replay was encrypted for.
    recorded: Option<Namespace>,
    derived: HashMap<(Vec<u8>, u64), Derived>,
    windows: HashMap<(u64, Request), Window>,
    window_order: VecDeque<(u64, Request)>,
    readable: bool,
    counters: Counters,
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encryption").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl Encryption {
    pub(crate) fn new(namespace: Namespace, keys: HashMap<u32, Vec<u8>>) -> Self {
        Encryption {
            namespace,
            keys,
            recorded: None,
            derived: HashMap::new(),
            windows: HashMap::new(),
            window_order: VecDeque::new(),
            readable: false,
            counters: Counters::default(),
        }
    }

    /// Decrypts an object of a track in place. `replayed` is true in sessions that announce a replay. An
    /// error is a refusal, with a sentence for users if it makes the session unreadable.
    pub(crate) fn open(
        &mut self, link: u64, track: &TrackName, priority: u8, replayed: bool, o: &mut Object,
    ) -> Result<(), Option<String>> {
        if o.status != ObjectStatus::Normal || !track.namespace.0.starts_with(&self.namespace.0) {
            return Ok(());
        }
        let catalog = track.name == b"catalog";
        let at = Place { group: o.group, id: o.id, priority: o.priority.unwrap_or(priority) };
        let past = track.namespace.0[self.namespace.0.len()..].iter().any(|f| f == ON_DEMAND);
        let replayed = replayed || past;
        let opened = if catalog { self.open_catalog(at, replayed, o) } else { self.open_media(track, at, replayed, o) };
        let opened = opened.and_then(|()| match self.window((link, o.request)).add(at.group, at.id) {
            true => Ok(()),
            false => Err(Refusal::Replayed),
        });
        let Err(why) = opened else {
            self.counters.opened += 1;
            self.readable |= catalog;
            return Ok(());
        };
        let c = &mut self.counters;
        match why {
            Refusal::Unencrypted => c.unencrypted += 1,
            Refusal::UnknownKey(_) => c.unknown_key += 1,
            Refusal::Forged(_) => c.forged += 1,
            Refusal::Replayed => c.replayed += 1,
            Refusal::Malformed => c.malformed += 1,
        }
        let unreadable = catalog && !self.readable && why != Refusal::Replayed;
        // The first object under a new key that is missing.
        let rotated = !catalog && matches!(why, Refusal::UnknownKey(_)) && self.counters.unknown_key == 1;
        Err((unreadable || rotated).then(|| why.sentence()))
    }

    fn window(&mut self, of: (u64, Request)) -> &mut Window {
        if !self.windows.contains_key(&of) {
            if self.window_order.len() == MAX_WINDOWS {
                if let Some(oldest) = self.window_order.pop_front() {
                    self.windows.remove(&oldest);
                }
            }
            self.window_order.push_back(of);
        }
        self.windows.entry(of).or_default()
    }

    fn open_media(&mut self, track: &TrackName, at: Place, replayed: bool, o: &mut Object) -> Result<(), Refusal> {
        let immutable = o.properties.immutable.take().ok_or(Refusal::Unencrypted)?;
        let id = key_id(&immutable).ok_or(Refusal::Unencrypted)?;
        let at = match o.properties.original_group {
            Some(group) if replayed => Place { group, ..at },
            _ => at,
        };
        let name = self.sealed_name(track);
        o.properties = self.decrypt(&name, id, at, &immutable, &mut o.payload)?;
        Ok(())
    }

    /// The name that a track was encrypted for, which differs in replays.
    fn sealed_name(&self, track: &TrackName) -> TrackName {
        let Some(recorded) = &self.recorded else { return track.clone() };
        let mut rest = &track.namespace.0[self.namespace.0.len()..];
        if rest.first().is_some_and(|f| f == ON_DEMAND) {
            rest = &rest[1..];
        }
        TrackName { namespace: Namespace([&recorded.0[..], rest].concat()), name: track.name.clone() }
    }

    /// Decrypts a payload in place.
    fn decrypt(
        &mut self, track: &TrackName, id: u64, at: Place, immutable: &[u8], payload: &mut Vec<u8>,
    ) -> Result<Properties, Refusal> {
        let k = self.key(track, id)?;
        let (nonce, aad) = context(&k.salt, at, immutable).ok_or(Refusal::Malformed)?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let plain = k.key.open_in_place(nonce, Aad::from(aad), payload).map_err(|_| Refusal::Forged(id))?;
        let (range, properties) = split(plain).ok_or(Refusal::Malformed)?;
        let n = range.len();
        payload.copy_within(range, 0);
        payload.truncate(n);
        Ok(properties)
    }

    fn key(&mut self, track: &TrackName, id: u64) -> Result<&Derived, Refusal> {
        let of = (full_track_name(track), id);
        if !self.derived.contains_key(&of) {
            let secret = u32::try_from(id >> RUN_BITS).ok().and_then(|key| self.keys.get(&key));
            let d = secret.and_then(|s| derive(s, &of.0, id)).ok_or(Refusal::UnknownKey(id))?;
            if self.derived.len() == MAX_DERIVED {
                self.derived.clear();
            }
            self.derived.insert(of.clone(), d);
        }
        self.derived.get(&of).ok_or(Refusal::UnknownKey(id))
    }

    fn open_catalog(&mut self, at: Place, replayed: bool, o: &mut Object) -> Result<(), Refusal> {
        let shell: Map<String, Value> = serde_json::from_slice(&o.payload).map_err(|_| Refusal::Unencrypted)?;
        let sealed = shell.get("hcsealed").ok_or(Refusal::Unencrypted)?;
        let sealed = SealedCatalog::deserialize(sealed).map_err(|_| Refusal::Malformed)?;
        let place = Place { group: sealed.group, id: sealed.object, priority: sealed.priority };
        if !replayed && place != at {
            return Err(Refusal::Forged(sealed.key_id));
        }
        let namespace = if replayed { Namespace::new(&sealed.namespace) } else { self.namespace.clone() };
        let mut immutable = Writer::new();
        immutable.varint(KEY_ID).varint(sealed.key_id);
        let mut payload = STANDARD.decode(&sealed.data).map_err(|_| Refusal::Malformed)?;
        let name = TrackName::new(namespace.clone(), "catalog");
        self.decrypt(&name, sealed.key_id, place, &immutable.0, &mut payload)?;
        if replayed {
            self.recorded = Some(namespace);
            payload = retime(&payload, &shell).ok_or(Refusal::Malformed)?;
        }
        o.payload = payload;
        o.properties = Properties::default();
        Ok(())
    }
}

/// A replay's catalog: the tracks that its shell lists, with the shell's times.
fn retime(payload: &[u8], shell: &Map<String, Value>) -> Option<Vec<u8>> {
    let key = |t: &Value| Some((t.get("namespace").cloned(), t.get("name")?.clone()));
    let mut doc: Map<String, Value> = serde_json::from_slice(payload).ok()?;
    let shell = shell.get("tracks")?.as_array()?;
    let tracks = doc.get_mut("tracks")?.as_array_mut()?;
    tracks.retain_mut(|t| {
        let of = key(t);
        let Some(times) = of.and_then(|of| shell.iter().find(|s| key(s).as_ref() == Some(&of))) else { return false };
        let Some(t) = t.as_object_mut() else { return false };
        for field in ["isLive", "targetLatency", "buffers", "trackDuration", "template"] {
            match times.get(field) {
                Some(v) => t.insert(field.to_owned(), v.clone()),
                None => t.remove(field),
            };
        }
        true
    });
    serde_json::to_vec(&doc).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::Arc;

    use moqt::{Event, Limits, Session, SubscribeOptions, Version};

    use super::*;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Vector {
        keys: String,
        namespace: Vec<String>,
        name: String,
        group: String,
        object: String,
        priority: u8,
        properties: String,
        payload: String,
        sealed_properties: String,
        sealed: String,
    }

    #[derive(Deserialize)]
    struct Draft {
        names: Vec<Name>,
        keys: Vec<Key>,
        contexts: Vec<Context>,
    }
    #[derive(Deserialize)]
    struct Name {
        namespace: Vec<String>,
        name: String,
        bytes: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Key {
        secret: String,
        namespace: Vec<String>,
        name: String,
        key_id: String,
        salt: String,
    }
    #[derive(Deserialize)]
    struct Context {
        salt: String,
        group: String,
        object: String,
        priority: u8,
        immutable: String,
        nonce: String,
        aad: String,
    }

    fn load<T: serde::de::DeserializeOwned>(name: &str) -> T {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../internal/secureobjects/testdata/");
        serde_json::from_slice(&std::fs::read(format!("{dir}{name}")).unwrap()).unwrap()
    }

    fn unhex(s: &str) -> Vec<u8> {
        (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
    }

    fn track(namespace: &[String], name: &str) -> TrackName {
        TrackName::new(Namespace::new(namespace), name)
    }

    fn object(v: &Vector) -> Object {
        Object {
            request: Request(2),
            fetched: false,
            datagram: false,
            end_of_group: false,
            group: v.group.parse().unwrap(),
            subgroup: 0,
            id: v.object.parse().unwrap(),
            priority: Some(v.priority),
            status: ObjectStatus::Normal,
            properties: Properties::parse(&unhex(&v.sealed_properties)).unwrap(),
            payload: unhex(&v.sealed),
        }
    }

    fn viewer(v: &Vector, keys: &str) -> (Encryption, TrackName) {
        let e = Encryption::new(Namespace::new(&v.namespace), parse_keys(keys).unwrap());
        (e, track(&v.namespace, &v.name))
    }

    #[test]
    fn draft_vectors() {
        let d: Draft = load("vectors.json");
        for x in &d.names {
            assert_eq!(full_track_name(&track(&x.namespace, &x.name)), unhex(&x.bytes));
        }
        for x in &d.keys {
            let name = full_track_name(&track(&x.namespace, &x.name));
            let k = derive(&unhex(&x.secret), &name, x.key_id.parse().unwrap()).unwrap();
            assert_eq!(k.salt.to_vec(), unhex(&x.salt));
        }
        for x in &d.contexts {
            let salt = unhex(&x.salt).try_into().unwrap();
            let at = Place { group: x.group.parse().unwrap(), id: x.object.parse().unwrap(), priority: x.priority };
            let (nonce, aad) = context(&salt, at, &unhex(&x.immutable)).unwrap();
            assert_eq!((nonce.to_vec(), aad), (unhex(&x.nonce), unhex(&x.aad)));
        }
    }

    #[test]
    fn objects() {
        for v in load::<Vec<Vector>>("objects.json") {
            let (mut e, name) = viewer(&v, &v.keys);
            let mut o = object(&v);
            e.open(1, &name, 0, false, &mut o).unwrap();
            assert_eq!(o.payload, unhex(&v.payload));
            assert_eq!(o.properties, Properties::parse(&unhex(&v.properties)).unwrap());
            assert_eq!(e.counters, Counters { opened: 1, ..Counters::default() });
        }
    }

    #[test]
    fn refused() {
        let list: Vec<Vector> = load("objects.json");
        let v = &list[0];
        let (mut e, name) = viewer(v, &v.keys);
        let changes: [&dyn Fn(&mut Object); 5] =
            [&|o| o.payload[3] ^= 1, &|o| o.group += 1, &|o| o.id += 1, &|o| o.priority = Some(1), &|o| {
                o.payload.truncate(3)
            }];
        for change in changes {
            let mut o = object(v);
            change(&mut o);
            assert_eq!(e.open(1, &name, 0, false, &mut o), Err(None));
        }
        assert_eq!(e.counters.forged, 5);
        let mut o = object(v);
        let other = track(&v.namespace, "points/1/full");
        assert_eq!(e.open(1, &other, 0, false, &mut o), Err(None));
        assert_eq!(e.counters.forged, 6);
        let mut o = object(v);
        o.properties = Properties::default();
        assert_eq!(e.open(1, &name, 0, false, &mut o), Err(None));
        assert_eq!(e.counters.unencrypted, 1);
        assert_eq!(e.open(1, &name, 0, false, &mut object(v)), Ok(()));
        assert_eq!(e.open(1, &name, 0, false, &mut object(v)), Err(None));
        assert_eq!(e.counters.replayed, 1);
        let (mut e, name) = viewer(v, "9.AAECAwQFBgcICQoLDA0ODw");
        assert!(e.open(1, &name, 0, false, &mut object(v)).unwrap_err().unwrap().contains("encrypted with key 1"));
        assert_eq!(e.open(1, &name, 0, false, &mut object(v)), Err(None));
    }

    /// An object of a fill (draft-22 §3.4), which encryption makes larger than the track's limit.
    #[test]
    fn filled() {
        let list: Vec<Vector> = load("objects.json");
        let v = &list[0];
        let (mut e, name) = viewer(v, &v.keys);
        let limits = Limits { sealing: SEALING, ..Limits::default() };
        let config = moqt::Config { version: Version::Draft22, limits, ..moqt::Config::default() };
        let mut s = Session::new(config, Arc::default(), 0);
        let max_object = unhex(&v.payload).len();
        s.subscribe(0, &name, SubscribeOptions { join: true, max_object, ..SubscribeOptions::default() });
        let k = s.accept_uni();
        let mut w = Writer::new();
        w.varint(5).varint(0); // the fetch stream of request 0
        w.varint(0x3c).varint(v.group.parse().unwrap()).varint(v.object.parse().unwrap()).u8(v.priority);
        w.bytes(&unhex(&v.sealed_properties)).bytes(&unhex(&v.sealed));
        s.receive(0, k, &w.0);
        let Some(Event::Object(mut o)) = s.poll_event() else { panic!("no object") };
        assert!(o.fetched && o.payload.len() > max_object);
        let (track, priority) = s.track(o.request).unwrap();
        assert_eq!(e.open(1, track, priority, false, &mut o), Ok(()));
        assert_eq!(o.payload, unhex(&v.payload));
    }

    #[test]
    fn replays() {
        let list: Vec<Vector> = load("objects.json");
        let v = &list[0];
        let moved = || {
            let mut o = object(v);
            o.properties.original_group = Some(o.group);
            o.group = 9;
            o
        };
        let (mut e, name) = viewer(v, &v.keys);
        assert_eq!(e.open(1, &name, 0, false, &mut moved()), Err(None));
        assert_eq!(e.open(1, &name, 0, true, &mut moved()), Ok(()));
    }

    #[test]
    fn plain_catalog() {
        let list: Vec<Vector> = load("objects.json");
        let (mut e, _) = viewer(&list[0], &list[0].keys);
        let mut o = object(&list[0]);
        o.payload = br#"{"version":"draft-01","tracks":[]}"#.to_vec();
        let why = e.open(1, &track(&list[0].namespace, "catalog"), 0, false, &mut o).unwrap_err().unwrap();
        assert!(why.contains("not encrypted"), "{why}");
    }

    #[test]
    fn keys() {
        assert!(parse_keys("1.AAECAwQFBgcICQoLDA0ODw,2.AAECAwQFBgcICQoLDA0ODw").unwrap().len() == 2);
        for bad in ["", "1", "0.AAECAwQFBgcICQoLDA0ODw", "1.AAEC", "1.!!", "16777216.AAECAwQFBgcICQoLDA0ODw"] {
            assert!(parse_keys(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn windows() {
        let mut w = Window::default();
        let got =
            [(600, 1), (600, 1), (89, 0), (88, 0), (600, 70000), (600, 69999)].map(|(group, id)| w.add(group, id));
        assert_eq!(got, [true, false, true, false, true, false]);
    }
}
