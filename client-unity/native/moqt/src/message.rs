//! Control messages (§10): encodes those a subscriber sends, parses those it may receive.

use crate::bytes::{Read, ReadError, Reader, Writer};
use crate::code::{self, violation, WireError};
use crate::data::Location;
use crate::Version;

/// Message types (§10).
#[allow(missing_docs)]
pub mod kind {
    pub const REQUEST_UPDATE: u64 = 0x2;
    pub const SUBSCRIBE: u64 = 0x3;
    pub const SUBSCRIBE_OK: u64 = 0x4;
    pub const REQUEST_ERROR: u64 = 0x5;
    pub const PUBLISH_NAMESPACE: u64 = 0x6;
    pub const REQUEST_OK: u64 = 0x7;
    pub const NAMESPACE: u64 = 0x8;
    pub const PUBLISH_DONE: u64 = 0xb;
    pub const TRACK_STATUS: u64 = 0xd;
    pub const NAMESPACE_DONE: u64 = 0xe;
    pub const GOAWAY: u64 = 0x10;
    pub const FETCH: u64 = 0x16;
    pub const FETCH_OK: u64 = 0x18;
    pub const PUBLISH: u64 = 0x1d;
    /// From draft-20 on.
    pub const PUBLISH_STATE_NOTIFY: u64 = 0x22;
    /// Appears only in the draft's table; parsed as REQUEST_OK.
    pub const PUBLISH_OK: u64 = 0x1e;
    pub const SUBSCRIBE_NAMESPACE: u64 = 0x50;
    pub const SUBSCRIBE_TRACKS: u64 = 0x51;
    pub const SETUP: u64 = 0x2f00;
}

/// Maximum payload of a message (§10).
pub const MAX_MESSAGE: usize = 65535;
const MAX_FIELDS: u64 = 32;
const MAX_FULL_NAME: usize = 4096;
const MAX_REASON: usize = 1024;
const MAX_URI: usize = 8192;
const MAX_PAIR: usize = 65535;
const MAX_TOKENS: u32 = 16;

/// A track namespace: 0 to 32 non-empty fields (§2.4.1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(pub Vec<Vec<u8>>);

impl Namespace {
    /// Creates a namespace from text fields.
    pub fn new<S: AsRef<str>>(fields: impl IntoIterator<Item = S>) -> Self {
        Namespace(fields.into_iter().map(|f| f.as_ref().as_bytes().to_vec()).collect())
    }

    fn write(&self, w: &mut Writer) {
        w.varint(self.0.len() as u64);
        for f in &self.0 {
            w.bytes(f);
        }
    }

    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let n = r.int(MAX_FIELDS, "number of namespace fields")?;
        let mut fields = Vec::with_capacity(n as usize);
        let mut total = 0;
        for _ in 0..n {
            let f = r.bytes(MAX_FULL_NAME, "length of the namespace field")?;
            total += f.len();
            if f.is_empty() {
                return Err(violation("empty namespace field").into());
            }
            if total > MAX_FULL_NAME {
                return Err(violation(format!("namespace exceeds {MAX_FULL_NAME} bytes")).into());
            }
            fields.push(f.to_vec());
        }
        Ok(Namespace(fields))
    }

    /// Total length of all fields in bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// True if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A full track name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TrackName {
    /// The namespace.
    pub namespace: Namespace,
    /// Track name within the namespace.
    pub name: Vec<u8>,
}

impl TrackName {
    /// Creates a track name from text.
    pub fn new(namespace: Namespace, name: &str) -> Self {
        TrackName { namespace, name: name.as_bytes().to_vec() }
    }

    /// True if the name satisfies the limits of §2.4.1.
    pub fn valid(&self) -> bool {
        let fields = &self.namespace.0;
        fields.len() as u64 <= MAX_FIELDS
            && fields.iter().all(|f| !f.is_empty())
            && self.namespace.len() + self.name.len() <= MAX_FULL_NAME
    }

    fn write(&self, w: &mut Writer) {
        self.namespace.write(w);
        w.bytes(&self.name);
    }
}

impl std::fmt::Display for TrackName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for field in &self.namespace.0 {
            write!(f, "{}/", String::from_utf8_lossy(field))?;
        }
        write!(f, "{}", String::from_utf8_lossy(&self.name))
    }
}

/// Start of a subscription (§5.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// At the next group.
    NextGroup,
    /// After the largest object.
    LargestObject,
    /// At a group.
    From(u64),
}

impl Filter {
    fn write(self, w: &mut Writer, v: Version) {
        if v < Version::Draft20 {
            let mut own = Writer::new();
            match self {
                Filter::NextGroup => own.varint(1),
                Filter::LargestObject => own.varint(2),
                Filter::From(group) => own.varint(3).varint(group).varint(0),
            };
            w.bytes(&own.0);
            return;
        }
        match self {
            Filter::NextGroup => location_filter(w, v, &[0]),
            Filter::LargestObject if v >= Version::Draft22 => {
                w.varint(5);
            }
            Filter::LargestObject => location_filter(w, v, &[0, 0]),
            // In draft-20 two zeros mean the next object.
            Filter::From(0) if v < Version::Draft22 => location_filter(w, v, &[]),
            Filter::From(group) => location_filter(w, v, &[group, 0]),
        }
    }
}

/// Writes the value of a location filter: up to four fields, which are the start's group and object,
/// the number of groups from there to the end, and the last object; one field counts groups back from
/// the next one (draft-22 §9.20.9).
fn location_filter(w: &mut Writer, v: Version, fields: &[u64]) {
    let mut value = Writer::new();
    for field in fields {
        value.varint(*field);
    }
    if v >= Version::Draft22 {
        w.varint(fields.len() as u64).raw(&value.0);
    } else {
        w.bytes(&value.0);
    }
}

// Parameter types (§15.7).
mod param {
    pub const OBJECT_DELIVERY_TIMEOUT: u64 = 0x02;
    pub const AUTHORIZATION_TOKEN: u64 = 0x03;
    pub const RENDEZVOUS_TIMEOUT: u64 = 0x04;
    pub const SUBGROUP_DELIVERY_TIMEOUT: u64 = 0x06;
    pub const EXPIRES: u64 = 0x08;
    pub const LARGEST_OBJECT: u64 = 0x09;
    pub const FORWARD: u64 = 0x10;
    pub const SUBSCRIBER_PRIORITY: u64 = 0x20;
    pub const FILTER: u64 = 0x21;
    pub const GROUP_ORDER: u64 = 0x22;
    pub const FILL: u64 = 0x23;
    pub const NEW_GROUP_REQUEST: u64 = 0x32;
    pub const NAMESPACE_PREFIX: u64 = 0x34;
}

/// The message parameters that are evaluated (§10.2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    /// LARGEST_OBJECT.
    pub largest: Option<Location>,
    /// FORWARD.
    pub forward: Option<bool>,
}

/// The track and object properties that are evaluated (§2.5); others are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// Compression of a catalog's objects (MSF §12.1): 0 none, 1 gzip.
    pub compression: Option<u64>,
    /// The track replays a recording (docs/spec/replay.md).
    pub replayed: bool,
    /// Length of the payload that starts with this object and continues in the following ones
    /// (docs/spec/frames-in-datagrams.md).
    pub payload_length: Option<u64>,
    /// Capture time of the object: UNIX time in microseconds (draft-ietf-moq-loc-04).
    pub timestamp: Option<u64>,
    /// Units of the timestamp per second. If present, `timestamp` is None.
    pub timescale: Option<u64>,
    /// Decoder configuration; avcC for H.264 (draft-ietf-moq-loc-04).
    pub video_config: Option<Vec<u8>>,
    /// The publisher begins a group on request (§12.6).
    pub dynamic_groups: bool,
    /// The track's previous sound packet (docs/spec/sound.md).
    pub previous: Option<Vec<u8>>,
    /// Type of a mandatory track property (§2.5.1), if any. None is supported.
    pub unknown_mandatory: Option<u64>,
    /// Default publisher priority of a track (§12.4).
    pub priority: Option<u8>,
    /// Content of Immutable Properties (§12.7). The other fields include its properties.
    pub immutable: Option<Vec<u8>>,
    /// Group in which a replay's encrypted object was recorded (docs/spec/encryption.md).
    pub original_group: Option<u64>,
    /// At least one property is present.
    pub any: bool,
}

impl Properties {
    /// Parses the properties of an object.
    pub fn parse(b: &[u8]) -> Read<Properties> {
        properties(b, false)
    }
}

/// A message from the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Message {
    Setup {
        implementation: String,
    },
    Goaway {
        uri: String,
        timeout_ms: u64,
        request: Option<u64>,
    },
    SubscribeOk {
        alias: u64,
        parameters: Parameters,
        properties: Properties,
    },
    FetchOk {
        end_of_track: bool,
        end: Location,
    },
    Ok(Parameters),
    Error {
        code: u64,
        reason: String,
    },
    Done {
        code: u64,
        streams: u64,
        reason: String,
    },
    Update {
        id: u64,
        parameters: Parameters,
    },
    /// PUBLISH_STATE_NOTIFY.
    State(Parameters),
    Namespace {
        added: bool,
        suffix: Namespace,
    },
    /// A request from the peer, by type.
    Request(u64),
}

struct ParameterWriter {
    w: Writer,
    count: u64,
    last: u64,
}

impl ParameterWriter {
    fn new() -> Self {
        ParameterWriter { w: Writer::new(), count: 0, last: 0 }
    }

    /// Adds a parameter. Types must ascend.
    fn begin(&mut self, kind: u64) -> &mut Writer {
        self.w.varint(kind - self.last);
        self.last = kind;
        self.count += 1;
        &mut self.w
    }

    fn int(&mut self, kind: u64, v: u64) {
        if v > 0 {
            self.begin(kind).varint(v);
        }
    }

    fn priority(&mut self, v: Option<u8>) {
        if let Some(v) = v {
            self.begin(param::SUBSCRIBER_PRIORITY).u8(v);
        }
    }

    fn finish(self, w: &mut Writer) {
        w.varint(self.count).raw(&self.w.0);
    }
}

fn message(kind: u64, body: Writer) -> Vec<u8> {
    debug_assert!(body.0.len() <= MAX_MESSAGE);
    let mut w = Writer::new();
    w.varint(kind).u8((body.0.len() >> 8) as u8).u8(body.0.len() as u8).raw(&body.0);
    w.0
}

/// SETUP with client options for raw QUIC (§10.3).
pub fn setup(path: &str, authority: &str, implementation: &str) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(0x01).bytes(path.as_bytes());
    w.varint(0x05 - 0x01).bytes(authority.as_bytes());
    w.varint(0x07 - 0x05).bytes(implementation.as_bytes());
    message(kind::SETUP, w)
}

/// Parameters of a SUBSCRIBE.
#[derive(Debug, Clone, Copy, Default)]
pub struct Subscribe {
    /// None: from now on.
    pub filter: Option<Filter>,
    /// 0 (highest) to 255 (lowest); None: 128 (§7).
    pub priority: Option<u8>,
    /// Delivery timeout of objects in milliseconds; 0 = none.
    pub delivery_timeout_ms: u64,
    /// Rendezvous timeout in milliseconds; 0 = the relay's default.
    pub rendezvous_ms: u64,
    /// Also request the newest group on a fetch stream with the same ID; from draft-20 on (draft-22
    /// §3.4).
    pub fill: bool,
}

/// SUBSCRIBE (§10.7).
pub fn subscribe(id: u64, track: &TrackName, o: &Subscribe, v: Version) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(id);
    track.write(&mut w);
    let mut p = ParameterWriter::new();
    p.int(param::OBJECT_DELIVERY_TIMEOUT, o.delivery_timeout_ms);
    p.int(param::RENDEZVOUS_TIMEOUT, o.rendezvous_ms);
    p.priority(o.priority);
    if let Some(f) = o.filter {
        f.write(p.begin(param::FILTER), v);
    }
    if o.fill {
        let (mut value, mut own) = (Writer::new(), ParameterWriter::new());
        location_filter(own.begin(param::FILTER), v, &[1]);
        own.finish(&mut value);
        p.begin(param::FILL).bytes(&value.0);
    }
    p.finish(&mut w);
    message(kind::SUBSCRIBE, w)
}

/// REQUEST_UPDATE that moves a subscription's start to a group (§10.9, §5.1.2).
pub fn start_update(id: u64, group: u64, v: Version) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(id);
    let mut p = ParameterWriter::new();
    Filter::From(group).write(p.begin(param::FILTER), v);
    p.finish(&mut w);
    message(kind::REQUEST_UPDATE, w)
}

/// REQUEST_UPDATE that asks for a group (§10.9, §10.2.14).
pub fn new_group_update(id: u64, group: u64) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(id);
    let mut p = ParameterWriter::new();
    p.begin(param::NEW_GROUP_REQUEST).varint(group);
    p.finish(&mut w);
    message(kind::REQUEST_UPDATE, w)
}

/// Joining FETCH of the group with the subscription's largest object (§10.12.2); draft-18 only.
pub fn joining_fetch(id: u64, joining: u64, priority: Option<u8>) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(id).varint(2).varint(joining).varint(0);
    let mut p = ParameterWriter::new();
    p.priority(priority);
    p.finish(&mut w);
    message(kind::FETCH, w)
}

/// FETCH of the objects from `first` up to, but not including, `end`. If `end`'s object is 0, its
/// whole group is included (§10.12.1).
pub fn fetch(id: u64, track: &TrackName, first: Location, end: Location, priority: Option<u8>, v: Version) -> Vec<u8> {
    let mut w = Writer::new();
    if v >= Version::Draft20 {
        w.varint(id);
        track.write(&mut w);
        let mut p = ParameterWriter::new();
        p.priority(priority);
        let range = [first.group, first.object, end.group.saturating_sub(first.group), end.object.saturating_sub(1)];
        let fields = if end.object == 0 { &range[..3] } else { &range[..] };
        location_filter(p.begin(param::FILTER), v, fields);
        p.finish(&mut w);
        return message(kind::FETCH, w);
    }
    w.varint(id).varint(1);
    track.write(&mut w);
    w.varint(first.group).varint(first.object).varint(end.group).varint(end.object);
    let mut p = ParameterWriter::new();
    p.priority(priority);
    p.finish(&mut w);
    message(kind::FETCH, w)
}

/// SUBSCRIBE_NAMESPACE (§10.18).
pub fn subscribe_namespace(id: u64, prefix: &Namespace) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(id);
    prefix.write(&mut w);
    w.varint(0);
    message(kind::SUBSCRIBE_NAMESPACE, w)
}

/// PUBLISH (§10.10).
pub fn publish(id: u64, track: &TrackName, alias: u64, largest: Option<Location>) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(id);
    track.write(&mut w);
    w.varint(alias);
    let mut p = ParameterWriter::new();
    if let Some(l) = largest {
        p.begin(param::LARGEST_OBJECT).varint(l.group).varint(l.object);
    }
    p.finish(&mut w);
    message(kind::PUBLISH, w)
}

/// PUBLISH_DONE (§10.11).
pub fn publish_done(code: u64, reason: &str) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(code).varint(0).bytes(reason.as_bytes());
    message(kind::PUBLISH_DONE, w)
}

/// REQUEST_OK without parameters (§10.5).
pub fn request_ok() -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(0);
    message(kind::REQUEST_OK, w)
}

/// REQUEST_ERROR (§10.6).
pub fn request_error(code: u64, reason: &str) -> Vec<u8> {
    let mut w = Writer::new();
    w.varint(code).varint(0).bytes(reason.as_bytes());
    message(kind::REQUEST_ERROR, w)
}

fn location(r: &mut Reader<'_>) -> Read<Location> {
    Ok(Location { group: r.varint()?, object: r.varint()? })
}

const SUBSCRIBE_OK_SCOPE: &[u64] = &[param::EXPIRES, param::LARGEST_OBJECT];
const OK_SCOPE: &[u64] = &[
    param::OBJECT_DELIVERY_TIMEOUT,
    param::SUBGROUP_DELIVERY_TIMEOUT,
    param::EXPIRES,
    param::LARGEST_OBJECT,
    param::FORWARD,
    param::SUBSCRIBER_PRIORITY,
    param::FILTER,
    param::GROUP_ORDER,
    param::NEW_GROUP_REQUEST,
];
const UPDATE_SCOPE: &[u64] = &[
    param::OBJECT_DELIVERY_TIMEOUT,
    param::AUTHORIZATION_TOKEN,
    param::SUBGROUP_DELIVERY_TIMEOUT,
    param::FORWARD,
    param::SUBSCRIBER_PRIORITY,
    param::FILTER,
    param::NEW_GROUP_REQUEST,
    param::NAMESPACE_PREFIX,
];

/// PUBLISH_OK and others from draft-20 on.
const OK_SCOPE_20: &[u64] = &[param::EXPIRES, param::LARGEST_OBJECT];
const UPDATE_SCOPE_20: &[u64] = &[
    param::OBJECT_DELIVERY_TIMEOUT,
    param::AUTHORIZATION_TOKEN,
    param::SUBGROUP_DELIVERY_TIMEOUT,
    param::FORWARD,
    param::SUBSCRIBER_PRIORITY,
    param::FILTER,
    param::FILL,
    param::NEW_GROUP_REQUEST,
    param::NAMESPACE_PREFIX,
];
const STATE_SCOPE: &[u64] = &[param::LARGEST_OBJECT, param::FORWARD, param::FILTER];

/// Reads parameters. Unknown, repeated and misplaced ones are violations, since they cannot be
/// skipped (§10.2).
fn parameters(r: &mut Reader<'_>, scope: &[u64], v: Version) -> Read<Parameters> {
    let mut p = Parameters::default();
    let count = r.int(MAX_MESSAGE as u64, "number of parameters")?;
    let mut last = 0u64;
    let mut tokens = 0;
    for i in 0..count {
        let delta = r.varint()?;
        let kind = last.checked_add(delta).ok_or_else(|| violation("parameter type exceeds 2^64-1"))?;
        if i > 0 && delta == 0 && kind != param::AUTHORIZATION_TOKEN {
            return Err(violation(format!("parameter {kind:#x} is repeated")).into());
        }
        if !scope.contains(&kind) {
            return Err(violation(format!("parameter {kind:#x} is not allowed here")).into());
        }
        last = kind;
        match kind {
            param::AUTHORIZATION_TOKEN => {
                tokens += 1;
                if tokens > MAX_TOKENS {
                    return Err(violation(format!("more than {MAX_TOKENS} authorization tokens")).into());
                }
                r.bytes(MAX_MESSAGE, "length of the authorization token")?;
            }
            param::FILTER if v >= Version::Draft22 => {
                for _ in 0..r.int(5, "location filter type")? % 5 {
                    r.varint()?;
                }
            }
            param::FILTER => {
                r.bytes(MAX_MESSAGE, "length of the filter")?;
            }
            param::FILL => {
                r.bytes(MAX_MESSAGE, "length of the fill parameters")?;
            }
            param::LARGEST_OBJECT => p.largest = Some(location(r)?),
            param::FORWARD => match r.u8()? {
                v @ 0..=1 => p.forward = Some(v == 1),
                v => return Err(violation(format!("forward parameter {v}")).into()),
            },
            param::GROUP_ORDER => match r.u8()? {
                1 | 2 => {}
                v => return Err(violation(format!("group order {v}")).into()),
            },
            param::SUBSCRIBER_PRIORITY => {
                r.u8()?;
            }
            param::NAMESPACE_PREFIX => {
                Namespace::read(r)?;
            }
            _ => {
                r.varint()?;
            }
        }
    }
    Ok(p)
}

// Property types of MOQT (§15.8), MSF and Holocast.
const IMMUTABLE: u64 = 0x0b;
const PUBLISHER_PRIORITY: u64 = 0x0e;
const GROUP_ORDER: u64 = 0x22;
const DYNAMIC_GROUPS: u64 = 0x30;
const MSF_COMPRESSION: u64 = 0x78;
const REPLAYED: u64 = 0x6863_7270;
const ORIGINAL_GROUP: u64 = 0x6863_6772;
const TIMESCALE: u64 = 0x08;
const TIMESTAMP: u64 = 0x10;
/// Up to LOC-03, as in earlier recordings. Read if there is no TIMESTAMP, which comes later.
const TIMESTAMP_03: u64 = 0x0a;
const VIDEO_CONFIG: u64 = 0x0d;
const PAYLOAD_LENGTH: u64 = 0x6863_706c;
/// Property of an object: the track's previous sound packet.
const PREVIOUS: u64 = 0x6863_6175;

fn cut_pair(e: ReadError) -> ReadError {
    match e {
        ReadError::Short => {
            WireError { code: code::session::KEY_VALUE_FORMATTING_ERROR, reason: "a key-value pair is cut off".into() }
                .into()
        }
        e => e,
    }
}

/// Reads all key-value pairs in `b` (§1.4.3), including those inside Immutable Properties (§12.7).
pub(crate) fn properties(b: &[u8], of_track: bool) -> Read<Properties> {
    let mut p = Properties::default();
    pairs(b, of_track, &mut p, false).map_err(cut_pair)?;
    p.timestamp = p.timestamp.filter(|_| p.timescale.is_none());
    Ok(p)
}

fn pairs(b: &[u8], of_track: bool, p: &mut Properties, nested: bool) -> Read<()> {
    let mut r = Reader::new(b);
    let mut kind = 0u64;
    while r.left() > 0 {
        p.any = true;
        kind = kind.checked_add(r.varint()?).ok_or_else(|| violation("key-value type exceeds 2^64-1"))?;
        if (0x4000..=0x7fff).contains(&kind) {
            p.unknown_mandatory.get_or_insert(kind);
        }
        if kind % 2 == 1 {
            let value = r.bytes(MAX_PAIR, "length of the key-value pair")?;
            if kind == IMMUTABLE {
                if nested {
                    let code = code::session::KEY_VALUE_FORMATTING_ERROR;
                    return Err(WireError { code, reason: "nested immutable properties".into() }.into());
                }
                p.immutable = Some(value.to_vec());
                pairs(value, of_track, p, true)?;
            } else if kind == VIDEO_CONFIG && !of_track {
                p.video_config = Some(value.to_vec());
            } else if kind == PREVIOUS && !of_track {
                p.previous = Some(value.to_vec());
            }
            continue;
        }
        let value = r.varint()?;
        match kind {
            PUBLISHER_PRIORITY if of_track && value > 255 => {
                return Err(violation(format!("default publisher priority {value} exceeds 255")).into());
            }
            GROUP_ORDER if of_track && !(1..=2).contains(&value) => {
                return Err(violation(format!("default publisher group order {value}")).into());
            }
            DYNAMIC_GROUPS if of_track && value > 1 => {
                return Err(violation(format!("dynamic groups {value}")).into());
            }
            PUBLISHER_PRIORITY if of_track => p.priority = u8::try_from(value).ok(),
            DYNAMIC_GROUPS if of_track => p.dynamic_groups = value == 1,
            MSF_COMPRESSION => p.compression = Some(value),
            ORIGINAL_GROUP if !of_track => p.original_group = Some(value),
            REPLAYED => p.replayed = value != 0,
            TIMESCALE if !of_track => p.timescale = Some(value),
            TIMESTAMP | TIMESTAMP_03 if !of_track => p.timestamp = Some(value),
            PAYLOAD_LENGTH => p.payload_length = Some(value),
            _ => {}
        }
    }
    Ok(())
}

fn read_setup(r: &mut Reader<'_>) -> Read<Message> {
    let mut implementation = String::new();
    let mut kind = 0u64;
    while r.left() > 0 {
        kind = kind.checked_add(r.varint()?).ok_or_else(|| violation("setup option exceeds 2^64-1"))?;
        if kind.is_multiple_of(2) {
            r.varint()?;
            continue;
        }
        let value = r.bytes(MAX_PAIR, "length of the setup option")?;
        match kind {
            0x01 => {
                return Err(WireError { code: code::session::INVALID_PATH, reason: "PATH from a server".into() }.into())
            }
            0x05 => {
                let code = code::session::INVALID_AUTHORITY;
                return Err(WireError { code, reason: "AUTHORITY from a server".into() }.into());
            }
            0x07 => implementation = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
    }
    Ok(Message::Setup { implementation })
}

fn read_error(r: &mut Reader<'_>) -> Read<Message> {
    let code = r.varint()?;
    r.varint()?; // retry interval, ignored: our back-off is longer
    let reason = r.string(MAX_REASON, "length of the reason phrase")?;
    if code == code::request::REDIRECT {
        r.bytes(MAX_URI, "length of the connect URI")?;
        Namespace::read(r)?;
        r.bytes(MAX_FULL_NAME, "length of the track name")?;
    }
    Ok(Message::Error { code, reason })
}

fn known(kind: u64, v: Version) -> bool {
    use kind::*;
    if kind == PUBLISH_STATE_NOTIFY {
        return v >= Version::Draft20;
    }
    if kind == PUBLISH_OK {
        return v < Version::Draft20;
    }
    [
        REQUEST_UPDATE,
        SUBSCRIBE_OK,
        REQUEST_ERROR,
        REQUEST_OK,
        NAMESPACE,
        PUBLISH_DONE,
        NAMESPACE_DONE,
        GOAWAY,
        FETCH_OK,
        SETUP,
    ]
    .contains(&kind)
        || request(kind)
}

fn request(kind: u64) -> bool {
    use kind::*;
    [SUBSCRIBE, PUBLISH_NAMESPACE, TRACK_STATUS, FETCH, PUBLISH, SUBSCRIBE_NAMESPACE, SUBSCRIBE_TRACKS].contains(&kind)
}

/// Parses the payload of a message, which must end with its last field.
pub fn parse(kind: u64, payload: &[u8], v: Version) -> Result<Message, WireError> {
    let r = &mut Reader::new(payload);
    let parsed = parse_fields(kind, r, v).and_then(|m| {
        if r.left() > 0 && !matches!(m, Message::Request(_)) {
            return Err(violation(format!("{} bytes after the last field of message {kind:#x}", r.left())).into());
        }
        Ok(m)
    });
    parsed.map_err(|e| match e {
        ReadError::Wire(e) => e,
        ReadError::Short => violation(format!("message {kind:#x} ends inside a field")),
        ReadError::Malformed(m) => violation(m),
    })
}

fn parse_fields(kind: u64, r: &mut Reader<'_>, v: Version) -> Read<Message> {
    let since_20 = v >= Version::Draft20;
    Ok(match kind {
        kind::SETUP => read_setup(r)?,
        kind::GOAWAY => {
            let uri = r.string(MAX_URI, "length of the new session URI")?;
            let timeout_ms = r.varint()?;
            let request = if r.left() > 0 && !since_20 { Some(r.varint()?) } else { None };
            Message::Goaway { uri, timeout_ms, request }
        }
        kind::SUBSCRIBE_OK => {
            let alias = r.varint()?;
            let parameters = parameters(r, SUBSCRIBE_OK_SCOPE, v)?;
            Message::SubscribeOk { alias, parameters, properties: properties(r.rest(), true)? }
        }
        kind::FETCH_OK => {
            let end_of_track = r.int(1, "end of track")? == 1;
            let end = location(r)?;
            parameters(r, &[], v)?;
            properties(r.rest(), true)?;
            Message::FetchOk { end_of_track, end }
        }
        kind::REQUEST_OK | kind::PUBLISH_OK => {
            let p = parameters(r, if since_20 { OK_SCOPE_20 } else { OK_SCOPE }, v)?;
            properties(r.rest(), true)?;
            Message::Ok(p)
        }
        kind::REQUEST_ERROR => read_error(r)?,
        kind::PUBLISH_DONE => {
            let (code, streams) = (r.varint()?, r.varint()?);
            Message::Done { code, streams, reason: r.string(MAX_REASON, "length of the reason phrase")? }
        }
        kind::REQUEST_UPDATE => {
            let id = r.varint()?;
            let scope = if since_20 { UPDATE_SCOPE_20 } else { UPDATE_SCOPE };
            Message::Update { id, parameters: parameters(r, scope, v)? }
        }
        kind::PUBLISH_STATE_NOTIFY if since_20 => Message::State(parameters(r, STATE_SCOPE, v)?),
        kind::NAMESPACE | kind::NAMESPACE_DONE => {
            Message::Namespace { added: kind == kind::NAMESPACE, suffix: Namespace::read(r)? }
        }
        k if request(k) => Message::Request(k),
        k => return Err(violation(format!("unknown message type {k:#x}")).into()),
    })
}

/// Reads one message; `Short` if it is incomplete.
pub fn read(r: &mut Reader<'_>, v: Version) -> Read<Message> {
    let kind = r.varint()?;
    if !known(kind, v) {
        return Err(violation(format!("unknown message type {kind:#x}")).into());
    }
    let length = usize::from(r.u8()?) << 8 | usize::from(r.u8()?);
    Ok(parse(kind, r.take(length)?, v)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of internal/loc.
    #[test]
    fn timestamps() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../internal/loc/testdata/timestamps.json");
        let vectors: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for v in vectors.as_array().unwrap() {
            let hex = v["properties"].as_str().unwrap().as_bytes();
            let byte = |s: &[u8]| u8::from_str_radix(std::str::from_utf8(s).unwrap(), 16).unwrap();
            let b: Vec<u8> = hex.chunks(2).map(byte).collect();
            let p = properties(&b, false).unwrap_or_else(|e| panic!("{}: {e:?}", v["name"]));
            assert_eq!(p.timestamp, v["micros"].as_u64(), "{}", v["name"]);
        }
    }
}
