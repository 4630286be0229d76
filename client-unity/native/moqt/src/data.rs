//! Data streams and datagrams (§11). Parsers accept a stream in chunks of any size, and buffer only
//! incomplete headers.

use crate::bytes::{Read, ReadError, Reader, Writer};
use crate::code::{self, violation};
use crate::message::{self, Properties};
use crate::Version;

/// Location of an object in its track (§1.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Location {
    /// Group ID.
    pub group: u64,
    /// Object ID.
    pub object: u64,
}

const STREAM_FETCH: u64 = 0x05;
const STREAM_SETUP: u64 = message::kind::SETUP;
const STREAM_PADDING: u64 = 0x132b_3e28;
const DATAGRAM_PADDING: u64 = 0x132b_3e29;
/// Maximum size of an object's properties, bytes. Our limit; the draft has none.
const MAX_PROPERTIES: usize = 65535;
/// Maximum size of an object's header: nine bytes each for ID, length and status, plus the
/// properties.
const MAX_HEADER: usize = MAX_PROPERTIES + 64;

/// Type of a unidirectional stream (§3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamHeader {
    /// Objects of a subscription.
    Subgroup(SubgroupHeader),
    /// The response to the FETCH with this request ID.
    Fetch(u64),
    /// Padding, to be discarded.
    Padding,
    /// The control stream. Its type is that of SETUP, whose length follows.
    Setup,
}

/// Header of a subgroup stream (§11.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubgroupHeader {
    /// Track alias.
    pub alias: u64,
    /// Group ID.
    pub group: u64,
    /// None: the ID of the first object.
    pub subgroup: Option<u64>,
    /// Publisher priority; None: the track's.
    pub priority: Option<u8>,
    has_properties: bool,
}

impl StreamHeader {
    /// Reads the header of a unidirectional stream.
    pub fn read(r: &mut Reader<'_>) -> Read<Self> {
        match r.varint()? {
            STREAM_FETCH => Ok(StreamHeader::Fetch(r.varint()?)),
            STREAM_SETUP => Ok(StreamHeader::Setup),
            STREAM_PADDING => Ok(StreamHeader::Padding),
            t if t < 0x80 && t & 0x10 != 0 && (t >> 1) & 3 != 3 => {
                let (alias, group) = (r.varint()?, r.varint()?);
                let subgroup = match (t >> 1) & 3 {
                    0 => Some(0),
                    1 => None,
                    _ => Some(r.varint()?),
                };
                let priority = if t & 0x20 == 0 { Some(r.u8()?) } else { None };
                let has_properties = t & 1 != 0;
                Ok(StreamHeader::Subgroup(SubgroupHeader { alias, group, subgroup, priority, has_properties }))
            }
            t => Err(violation(format!("unknown stream type {t:#x}")).into()),
        }
    }
}

/// Object status (§11.2.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectStatus {
    /// A payload, possibly empty.
    Normal,
    /// The group has no further objects.
    EndOfGroup,
    /// The track has no further objects.
    EndOfTrack,
}

/// The header of an object; `length` bytes of payload follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHeader {
    /// Group ID.
    pub group: u64,
    /// Subgroup ID.
    pub subgroup: u64,
    /// Object ID.
    pub id: u64,
    /// Object status.
    pub status: ObjectStatus,
    /// Length of the payload in bytes.
    pub length: u64,
    /// Object properties.
    pub properties: Properties,
    /// Publisher priority; None: the track's.
    pub priority: Option<u8>,
    /// Fetched, but originally published as a datagram.
    pub datagram: bool,
}

fn status(v: u64) -> Read<ObjectStatus> {
    match v {
        0 => Ok(ObjectStatus::Normal),
        3 => Ok(ObjectStatus::EndOfGroup),
        4 => Ok(ObjectStatus::EndOfTrack),
        v => Err(violation(format!("unknown object status {v:#x}")).into()),
    }
}

fn object_properties(r: &mut Reader<'_>) -> Read<Properties> {
    let n = r.int(MAX_PROPERTIES as u64, "length of the object's properties")?;
    let p = match message::properties(r.take(n as usize)?, false) {
        Err(ReadError::Wire(e)) if e.code == code::session::KEY_VALUE_FORMATTING_ERROR => {
            return Err(ReadError::Malformed(e.reason));
        }
        p => p?,
    };
    match p.unknown_mandatory {
        Some(t) => Err(ReadError::Malformed(format!("mandatory track property {t:#x} on an object"))),
        None => Ok(p),
    }
}

/// Receiver of a parser's output.
pub trait Sink {
    /// An object begins. Return false to stop parsing the stream.
    fn object(&mut self, h: ObjectHeader) -> bool;
    /// Part of the payload. Return false to stop parsing the stream.
    fn payload(&mut self, b: &[u8]) -> bool;
}

/// The order of objects in a stream.
#[derive(Debug, Clone)]
enum Order {
    Subgroup { header: SubgroupHeader, last: Option<u64>, subgroup: Option<u64>, ended: bool },
    Fetch { timed_out: bool, last: Option<Location>, subgroup: Option<u64>, priority: Option<u8> },
}

/// Parses the objects of a data stream after its header.
#[derive(Debug, Clone)]
pub struct Parser {
    order: Order,
    rest: Vec<u8>,
    payload: u64,
}

impl Parser {
    /// Parser of a subgroup stream (§11.4.2).
    pub fn subgroup(header: SubgroupHeader) -> Self {
        Self::new(Order::Subgroup { header, last: None, subgroup: header.subgroup, ended: false })
    }

    /// Parser of a fetch stream in ascending order (§11.4.4).
    pub fn fetch(version: Version) -> Self {
        let timed_out = version >= Version::Draft20;
        Self::new(Order::Fetch { timed_out, last: None, subgroup: None, priority: None })
    }

    fn new(order: Order) -> Self {
        Parser { order, rest: Vec::new(), payload: 0 }
    }

    /// Parses the next chunk of the stream. Returns false once the sink has stopped.
    pub fn push(&mut self, chunk: &[u8], sink: &mut impl Sink) -> Read<bool> {
        let mut chunk = chunk;
        while !chunk.is_empty() {
            if self.payload > 0 {
                let n = chunk.len().min(usize::try_from(self.payload).unwrap_or(usize::MAX));
                self.payload -= n as u64;
                if !sink.payload(&chunk[..n]) {
                    return Ok(false);
                }
                chunk = &chunk[n..];
                continue;
            }
            // A header that continues in the next chunk waits in `rest`.
            let carried = self.rest.len();
            let header = if carried == 0 {
                let mut r = Reader::new(chunk);
                self.header(&mut r).map(|h| (h, r.pos()))
            } else {
                self.rest.extend_from_slice(&chunk[..chunk.len().min(MAX_HEADER - carried.min(MAX_HEADER))]);
                let rest = std::mem::take(&mut self.rest);
                let mut r = Reader::new(&rest);
                let h = self.header(&mut r).map(|h| (h, r.pos()));
                self.rest = rest;
                h
            };
            match header {
                Ok((h, used)) => {
                    self.rest.clear();
                    chunk = &chunk[used - carried.min(used)..];
                    if let Some(h) = h {
                        self.payload = h.length;
                        if !sink.object(h) {
                            return Ok(false);
                        }
                    }
                }
                Err(ReadError::Short) => {
                    if carried == 0 {
                        self.rest.extend_from_slice(chunk);
                    }
                    if self.rest.len() >= MAX_HEADER {
                        return Err(violation("object header exceeds its limit").into());
                    }
                    return Ok(true);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// True if the stream so far ends between objects.
    pub fn boundary(&self) -> bool {
        self.payload == 0 && self.rest.is_empty()
    }

    /// Reads one header, or changes nothing if it is incomplete. None: the end of a range.
    fn header(&mut self, r: &mut Reader<'_>) -> Read<Option<ObjectHeader>> {
        match &mut self.order {
            Order::Subgroup { header, last, subgroup, ended } => {
                let delta = r.varint()?;
                if *ended {
                    return Err(ReadError::Malformed("object after the end of its group".into()));
                }
                let id = match last {
                    Some(l) => l.checked_add(delta).and_then(|v| v.checked_add(1)),
                    None => Some(delta),
                };
                let id = id.ok_or_else(|| violation("object ID exceeds 2^64-1"))?;
                let properties = if header.has_properties { object_properties(r)? } else { Properties::default() };
                let length = r.varint()?;
                let status = if length == 0 { status(r.varint()?)? } else { ObjectStatus::Normal };
                if status != ObjectStatus::Normal && properties.any {
                    return Err(violation("properties on an object that is a status").into());
                }
                *last = Some(id);
                *ended = status != ObjectStatus::Normal;
                let subgroup = *subgroup.get_or_insert(id);
                Ok(Some(ObjectHeader {
                    group: header.group,
                    subgroup,
                    id,
                    status,
                    length,
                    properties,
                    priority: header.priority,
                    datagram: false,
                }))
            }
            Order::Fetch { timed_out, last, subgroup, priority } => fetched(r, *timed_out, last, subgroup, priority),
        }
    }
}

/// Reads the header of a fetch stream entry (§11.4.4).
fn fetched(
    r: &mut Reader<'_>, timed_out: bool, last: &mut Option<Location>, subgroup: &mut Option<u64>,
    priority: &mut Option<u8>,
) -> Read<Option<ObjectHeader>> {
    let follows = |l: Location| match *last {
        Some(p) if l <= p => Err(violation(format!(
            "fetch entry {{{}, {}}} is not after {{{}, {}}}",
            l.group, l.object, p.group, p.object
        ))),
        _ => Ok(()),
    };
    let beyond = || violation("fetch location exceeds 2^64-1");
    let flags = r.varint()?;
    if flags == 0x8c || flags == 0x10c || flags == 0x20c && timed_out {
        let l = Location { group: r.varint()?, object: r.varint()? };
        follows(l)?;
        *last = Some(l);
        return Ok(None);
    }
    if flags > 0x7f {
        return Err(violation(format!("fetch serialization flags {flags:#x}")).into());
    }
    let prior = match *last {
        Some(l) => l,
        None if flags & 0x0c == 0x0c => Location::default(),
        None => return Err(violation("first fetch object without group and object ID").into()),
    };
    let mut group = prior.group;
    if flags & 0x08 != 0 {
        let delta = r.varint()?;
        group = match *last {
            Some(l) => l.group.checked_add(delta).and_then(|v| v.checked_add(1)).ok_or_else(beyond)?,
            None => delta,
        };
    }
    let datagram = flags & 0x40 != 0;
    let sub = match flags & 3 {
        _ if datagram => None,
        0 => Some(0),
        3 => Some(r.varint()?),
        mode => {
            let p = subgroup.ok_or_else(|| violation("fetch object refers to a prior subgroup"))?;
            Some(p.checked_add(mode - 1).ok_or_else(beyond)?)
        }
    };
    let id = match (flags & 0x04 != 0, flags & 0x08 != 0) {
        (false, _) => prior.object.checked_add(1),
        (true, true) => Some(r.varint()?),
        (true, false) => prior.object.checked_add(r.varint()?),
    };
    let id = id.ok_or_else(beyond)?;
    let own = if flags & 0x10 != 0 { Some(r.u8()?) } else { *priority };
    if own.is_none() {
        return Err(violation("fetch object refers to a prior priority").into());
    }
    let properties = if flags & 0x20 != 0 { object_properties(r)? } else { Properties::default() };
    let length = r.varint()?;
    let l = Location { group, object: id };
    follows(l)?;
    *last = Some(l);
    *subgroup = sub;
    *priority = own;
    let status = ObjectStatus::Normal;
    Ok(Some(ObjectHeader {
        group,
        subgroup: sub.unwrap_or(0),
        id,
        status,
        length,
        properties,
        priority: own,
        datagram,
    }))
}

/// An object in a datagram (§11.3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Track alias.
    pub alias: u64,
    /// Group ID.
    pub group: u64,
    /// Object ID.
    pub object: u64,
    /// Publisher priority; None: the track's.
    pub priority: Option<u8>,
    /// This is the group's last object.
    pub end_of_group: bool,
    /// Object status.
    pub status: ObjectStatus,
    /// Object properties.
    pub properties: Properties,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Parses a datagram; None for padding (§11.5.2).
    pub fn parse(b: &'a [u8]) -> Read<Option<Self>> {
        Self::fields(&mut Reader::new(b)).map_err(|e| match e {
            ReadError::Short => violation("datagram ends inside a field").into(),
            e => e,
        })
    }

    fn fields(r: &mut Reader<'a>) -> Read<Option<Self>> {
        let t = r.varint()?;
        if t == DATAGRAM_PADDING {
            return Ok(None);
        }
        if t > 0x2f || t & 0x10 != 0 || t & 0x22 == 0x22 {
            return Err(violation(format!("unknown datagram type {t:#x}")).into());
        }
        let (alias, group) = (r.varint()?, r.varint()?);
        let object = if t & 0x04 == 0 { r.varint()? } else { 0 };
        let priority = if t & 0x08 == 0 { Some(r.u8()?) } else { None };
        let mut properties = Properties::default();
        if t & 0x01 != 0 {
            let before = r.pos();
            properties = object_properties(r)?;
            if r.pos() == before + 1 {
                return Err(violation("datagram with empty properties").into());
            }
        }
        let mut is = ObjectStatus::Normal;
        if t & 0x20 != 0 {
            is = status(r.varint()?)?;
            if r.left() > 0 {
                return Err(violation(format!("{} bytes after the status of a datagram", r.left())).into());
            }
            if is != ObjectStatus::Normal && properties.any {
                return Err(violation("properties on an object that is a status").into());
            }
        }
        Ok(Some(Datagram {
            alias,
            group,
            object,
            priority,
            end_of_group: t & 0x02 != 0,
            status: is,
            properties,
            payload: r.rest(),
        }))
    }

    /// Encodes object 0 of a group as a datagram.
    pub fn encode(alias: u64, group: u64, priority: u8, payload: &[u8]) -> Vec<u8> {
        let mut w = Writer::new();
        w.varint(0x04).varint(alias).varint(group).u8(priority).raw(payload);
        w.0
    }
}
