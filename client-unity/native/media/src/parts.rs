//! Frames in datagrams (docs/spec/frames-in-datagrams.md): puts payloads together from their parts, in whatever order
//! those come, and says which are to be asked for again; as internal/parts, against the same vectors.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use moqt::{BufferPool, Nanos, Object};

const MS: Nanos = 1_000_000;
/// Most payload of a part, bytes.
pub(crate) const MAX_PART: usize = 1150;
/// Object IDs are below this.
const MAX_OBJECTS: u64 = 1 << 16;
/// Groups being put together.
const MAX_FRAMES: usize = 16;
/// Gaps in the object IDs of a group.
const MAX_HOLES: usize = 256;
/// Payloads of a group.
const MAX_STARTS: usize = 255;
/// Groups remembered after they were whole or given up.
const HISTORY: usize = 64;
/// Bytes of memory besides a part's payload.
const PART_COST: usize = 128;
/// Bytes of memory, unless that is less than two payloads need.
const ROOM: usize = 32 << 20;
/// Bytes of memory, whatever payloads need.
pub(crate) const MOST: usize = 96 << 20;
/// So many later parts of a group tell that one was lost (RFC 9002 §6.1.1).
const REORDERING: u64 = 3;
/// How long nothing of a group has come before its missing end is asked for; a quarter of the round-trip time if that
/// is longer. An end of more than NEARBY parts waits until another group has begun, or LONGER times as long.
const QUIET: Nanos = 8 * MS;
const LONGER: Nanos = 10;
/// Requests for parts nearer to each other than this are one.
const NEARBY: u64 = 8;
/// Further requests of a group ask for everything from the first missing part to the last.
const MAX_REQUESTS: u32 = 16;
/// Of tracks without a delivery timeout.
const DEFAULT_TIMEOUT: Nanos = 2000 * MS;

/// Counts of an [`Assembler`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(default))]
pub(crate) struct Counts {
    /// Groups that came whole.
    pub frames: u64,
    /// Of those, groups that parts asked for made whole.
    pub repaired: u64,
    /// Groups given up.
    pub abandoned: u64,
    /// Parts that had not come when their group was given up.
    pub parts_lost: u64,
    /// For missing parts.
    pub requests: u64,
    /// Parts asked for, among them such as were there.
    pub requested: u64,
    /// Parts of groups that were whole or given up.
    pub late: u64,
    /// Parts that were there already.
    pub duplicate: u64,
    /// Parts that contradict others, or exceed a bound.
    pub refused: u64,
}

/// A payload that is whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub group: u64,
    /// ID of its first part.
    pub object: u64,
    pub bytes: Vec<u8>,
}

/// Asks for the objects of a group from `first` to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct Missing {
    pub group: u64,
    pub first: u64,
    pub last: u64,
}

/// IDs that have not come.
#[derive(Debug, Clone, Copy)]
struct Hole {
    first: u64,
    last: u64,
    asked: bool,
}

/// The first part of a payload.
#[derive(Debug)]
struct Start {
    /// Of the payload's parts.
    first: u64,
    last: u64,
    length: usize,
    /// Of each part but the last.
    size: usize,
    done: bool,
}

/// A group being put together.
#[derive(Debug)]
struct Frame {
    group: u64,
    began: Nanos,
    /// When the last part came that was not fetched.
    newest: Nanos,
    parts: BTreeMap<u64, Vec<u8>>,
    /// One above the greatest ID that came, or is known to be.
    next: u64,
    /// One above the greatest ID that came unfetched.
    reached: u64,
    /// Below `next`, ascending.
    holes: Vec<Hole>,
    /// Ascending.
    starts: Vec<Start>,
    /// One above the last object's ID; 0 = unknown.
    end: u64,
    requests: u32,
    /// A part came.
    seen: bool,
    /// A fetched part was of use.
    fetched: bool,
    bytes: usize,
}

/// Puts payloads together. It reads no clock.
#[derive(Debug)]
pub(crate) struct Assembler {
    max_payload: usize,
    timeout: Nanos,
    pool: Arc<BufferPool>,
    /// Oldest first.
    frames: VecDeque<Frame>,
    /// Groups that are no longer taken, oldest first.
    past: VecDeque<u64>,
    /// When the newest group began.
    begun: Nanos,
    bytes: usize,
    counts: Counts,
}

impl Assembler {
    /// max_payload: the greatest payload taken, bytes. timeout: how long after its first part a group is given up;
    /// 0 = 2 s. Payloads are in buffers of the pool.
    pub fn new(max_payload: usize, timeout: Nanos, pool: Arc<BufferPool>) -> Self {
        let mut a = Assembler {
            max_payload: 0,
            timeout: 0,
            pool,
            frames: VecDeque::new(),
            past: VecDeque::new(),
            begun: Nanos::MIN,
            bytes: 0,
            counts: Counts::default(),
        };
        a.set_limits(max_payload, timeout);
        a
    }

    /// Sets the bounds that `new` took.
    pub fn set_limits(&mut self, max_payload: usize, timeout: Nanos) {
        self.max_payload = max_payload.min(MOST / 2);
        self.timeout = if timeout > 0 { timeout } else { DEFAULT_TIMEOUT };
    }

    /// How long after its first part a group is given up.
    pub fn timeout(&self) -> Nanos {
        self.timeout
    }

    /// Bytes held at most, costs included: sixteen payloads, if that is not too much.
    fn room(&self) -> usize {
        (MAX_FRAMES * self.max_payload).min(ROOM).max(2 * self.max_payload)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Takes a part and returns the payloads that it made whole.
    pub fn add(&mut self, o: Object, now: Nanos) -> Vec<Whole> {
        let (id, fetched) = (o.id, o.fetched);
        if self.past.contains(&o.group) {
            self.counts.late += 1;
            return Vec::new();
        }
        let at = self.frames.iter().position(|f| f.group == o.group);
        let ended = at.is_some_and(|i| self.frames[i].end > 0 && id >= self.frames[i].end);
        if id >= MAX_OBJECTS || o.payload.len() > self.max_payload || ended {
            self.counts.refused += 1;
            return Vec::new();
        }
        let at = at.unwrap_or_else(|| self.open(o.group, now));
        let f = &mut self.frames[at];
        if !fetched {
            f.newest = now;
            f.reached = f.reached.max(id + 1);
        }
        if !f.fill(id) {
            self.counts.duplicate += 1;
            return Vec::new();
        }
        f.seen = true;
        f.fetched |= fetched;
        let (size, cost) = (o.payload.len(), o.payload.capacity() + PART_COST);
        f.parts.insert(id, o.payload);
        f.bytes += cost;
        self.bytes += cost;
        if o.end_of_group {
            if f.end > 0 || f.next > id + 1 {
                self.counts.refused += 1; // the group has gone on behind this end
            } else {
                f.end = id + 1;
            }
        }
        if let Some(length) = o.properties.payload_length {
            self.counts.refused += u64::from(!f.begin(id, size, length, self.max_payload));
        }
        let whole = self.collect(at, id);
        let f = &self.frames[at];
        if f.end > 0 && f.next >= f.end && f.holes.is_empty() && f.ready() {
            self.count(at);
            self.forget(at);
        } else if f.holes.len() > MAX_HOLES {
            self.abandon(at);
        }
        while self.bytes > self.room() && !self.frames.is_empty() {
            self.abandon(0);
        }
        whole
    }

    /// What is wanted of a group is here: it is whole.
    pub fn finish(&mut self, group: u64) {
        if let Some(at) = self.frames.iter().position(|f| f.group == group) {
            self.count(at);
            self.forget(at);
        }
    }

    /// Gives the oldest group up; false if there is none.
    pub fn give_way(&mut self) -> bool {
        let any = !self.frames.is_empty();
        if any {
            self.abandon(0);
        }
        any
    }

    /// Takes the payload that the part `id` made whole, if it did.
    fn collect(&mut self, at: usize, id: u64) -> Vec<Whole> {
        let mut whole = Vec::new();
        let f = &mut self.frames[at];
        let Some(i) = f.starts.iter().position(|s| !s.done && s.first <= id && id <= s.last) else { return whole };
        if f.missing(f.starts[i].first, f.starts[i].last) {
            return whole;
        }
        let s = &mut f.starts[i];
        s.done = true;
        let mut bytes = self.pool.take();
        bytes.reserve_exact(s.length);
        let mut good = true;
        for id in s.first..=s.last {
            let Some(p) = f.parts.remove(&id) else {
                good = false;
                continue;
            };
            good = good && (p.len() == s.size || id == s.last) && bytes.len() + p.len() <= s.length;
            if good {
                bytes.extend_from_slice(&p);
            }
            f.bytes -= p.capacity() + PART_COST;
            self.bytes -= p.capacity() + PART_COST;
        }
        if good && bytes.len() == s.length {
            whole.push(Whole { group: f.group, object: s.first, bytes });
        } else {
            self.counts.refused += s.last - s.first + 1;
            self.pool.give(bytes);
        }
        whole
    }

    fn count(&mut self, at: usize) {
        let f = &self.frames[at];
        self.counts.frames += 1;
        self.counts.repaired += u64::from(f.fetched && f.requests > 0);
    }

    /// Gives a group up.
    fn abandon(&mut self, at: usize) {
        let f = &self.frames[at];
        if f.seen {
            let lost = f.lost();
            if lost == 0 && f.ready() {
                self.count(at); // whole, but for the word that nothing follows
            } else {
                self.counts.abandoned += 1;
                self.counts.parts_lost += lost;
            }
        }
        self.forget(at);
    }

    /// Drops what is held of a group and takes no more of it.
    fn forget(&mut self, at: usize) {
        let Some(f) = self.frames.remove(at) else { return };
        self.bytes -= f.bytes;
        if self.past.len() == HISTORY {
            self.past.pop_front();
        }
        self.past.push_back(f.group);
    }

    /// Gives up the groups whose time is over and returns what is to be asked for now, at most `limit` requests. Each
    /// part is asked for once, and only if an answer can come in time.
    pub fn due(&mut self, now: Nanos, rtt: Nanos, limit: usize) -> Vec<Missing> {
        let mut list = Vec::new();
        while self.frames.front().is_some_and(|f| now - f.began >= self.timeout) {
            self.abandon(0);
        }
        let mut at = 0;
        while at < self.frames.len() {
            let (begun, f) = (self.begun, &mut self.frames[at]);
            if now + rtt - f.began < self.timeout {
                let still = now - f.newest >= patience(rtt);
                let overtaken = begun > f.newest;
                if still && (overtaken || now >= f.end_due(rtt)) {
                    f.expect(f.expected());
                }
                if still && overtaken && f.holes.is_empty() && f.ready() {
                    self.abandon(at); // whole, but for the word that nothing follows
                    continue;
                }
                if list.len() < limit {
                    f.ask(still || overtaken, limit, &mut list, &mut self.counts);
                }
            }
            at += 1;
        }
        list
    }

    /// When to call `due`, if no part comes before; nothing while nothing is held.
    pub fn next(&self, rtt: Nanos) -> Option<Nanos> {
        let mut at = self.frames.front()?.began + self.timeout;
        for f in &self.frames {
            let due = if f.holes.is_empty() { f.end_due(rtt) } else { f.newest + patience(rtt) };
            if f.incomplete() && due < at && due + rtt < f.began + self.timeout {
                at = due;
            }
        }
        Some(at)
    }

    /// The objects of a group up to `last` are on their way, fetched: they are not asked for.
    pub fn expect(&mut self, group: u64, last: u64, now: Nanos) {
        let known = self.past.contains(&group) || self.frames.iter().any(|f| f.group == group);
        if last >= MAX_OBJECTS || known {
            return;
        }
        let at = self.open(group, now);
        let f = &mut self.frames[at];
        f.holes.push(Hole { first: 0, last, asked: true });
        f.next = last + 1;
    }

    /// Begins a group; its place.
    fn open(&mut self, group: u64, now: Nanos) -> usize {
        if self.frames.len() == MAX_FRAMES {
            self.abandon(0);
        }
        self.begun = now;
        self.frames.push_back(Frame {
            group,
            began: now,
            newest: now,
            parts: BTreeMap::new(),
            next: 0,
            reached: 0,
            holes: Vec::new(),
            starts: Vec::new(),
            end: 0,
            requests: 0,
            seen: false,
            fetched: false,
            bytes: 0,
        });
        self.frames.len() - 1
    }

    /// Gives up what is held.
    pub fn close(&mut self) {
        while self.give_way() {}
    }

    /// What comes now has nothing to do with what came before.
    pub fn restart(&mut self) {
        self.close();
        self.past.clear();
    }
}

impl Frame {
    /// Notes that an object came; false if it was there.
    fn fill(&mut self, id: u64) -> bool {
        if id >= self.next {
            self.expect(id);
            self.next = id + 1;
            return true;
        }
        let i = self.holes.partition_point(|h| h.last < id);
        let Some(h) = self.holes.get(i).copied().filter(|h| h.first <= id) else { return false };
        let before = Hole { last: id.wrapping_sub(1), ..h };
        let after = Hole { first: id + 1, ..h };
        match (h.first < id, id < h.last) {
            (false, false) => {
                self.holes.remove(i);
            }
            (false, true) => self.holes[i] = after,
            (true, false) => self.holes[i] = before,
            (true, true) => {
                self.holes[i] = before;
                self.holes.insert(i + 1, after);
            }
        }
        true
    }

    /// Makes a hole of the IDs from `next` to one below `end`.
    fn expect(&mut self, end: u64) {
        if end > self.next {
            self.holes.push(Hole { first: self.next, last: end - 1, asked: false });
            self.next = end;
        }
    }

    /// Notes that a part of `size` bytes begins a payload of `length`; false if that cannot be.
    fn begin(&mut self, id: u64, size: usize, length: u64, most: usize) -> bool {
        if length > most as u64 || self.starts.len() == MAX_STARTS {
            return false;
        }
        let length = length as usize;
        if size > length || size == 0 && length > 0 {
            return false;
        }
        let last = if length > size { id + ((length - 1) / size) as u64 } else { id };
        if last >= MAX_OBJECTS || self.end > 0 && last >= self.end {
            return false;
        }
        let i = self.starts.partition_point(|s| s.first < id);
        // Inside another payload, or around one.
        if i > 0 && self.starts[i - 1].last >= id || self.starts.get(i).is_some_and(|s| s.first <= last) {
            return false;
        }
        self.starts.insert(i, Start { first: id, last, length, size, done: false });
        true
    }

    /// Whether any of the IDs from `first` to `last` has not come.
    fn missing(&self, first: u64, last: u64) -> bool {
        let i = self.holes.partition_point(|h| h.last < first);
        last >= self.next || self.holes.get(i).is_some_and(|h| h.first <= last)
    }

    /// Whether each payload whose beginning is known is whole, and there is one.
    fn ready(&self) -> bool {
        !self.starts.is_empty() && self.starts.iter().all(|s| s.done)
    }

    /// The parts that have not come, as far as is known.
    fn lost(&self) -> u64 {
        self.holes.iter().map(|h| h.last - h.first + 1).sum::<u64>() + self.expected().saturating_sub(self.next)
    }

    /// One above the last ID that is known to exist.
    fn expected(&self) -> u64 {
        self.end.max(self.starts.last().map_or(0, |s| s.last + 1))
    }

    /// When a missing end is asked for though no other group has begun.
    fn end_due(&self, rtt: Nanos) -> Nanos {
        let times = if self.expected() > self.next + NEARBY { LONGER } else { 1 };
        self.newest + times * patience(rtt)
    }

    /// Whether there is something to ask for once the group is quiet.
    fn incomplete(&self) -> bool {
        self.expected() > self.next || self.holes.iter().any(|h| !h.asked)
    }

    /// Appends the requests for what the group lacks. over: what has not come will not. The last request that limit
    /// allows takes all of it: what is left would wait for an answer, and at a relay that bounds requests for longer
    /// than the group has.
    fn ask(&mut self, over: bool, limit: usize, list: &mut Vec<Missing>, counts: &mut Counts) {
        let from = list.len();
        for h in &mut self.holes {
            if h.asked || !over && h.last + REORDERING >= self.reached {
                continue;
            }
            let full = list.len() == limit;
            match list[from..].last_mut() {
                Some(open) if full || h.first - open.last <= NEARBY || self.requests > MAX_REQUESTS => open.last = h.last,
                _ if full => continue,
                _ => {
                    list.push(Missing { group: self.group, first: h.first, last: h.last });
                    self.requests += 1;
                    counts.requests += 1;
                }
            }
            h.asked = true;
        }
        counts.requested += list[from..].iter().map(|r| r.last - r.first + 1).sum::<u64>();
    }
}

/// How long nothing of a group has come before what it lacks is asked for.
fn patience(rtt: Nanos) -> Nanos {
    QUIET.max(rtt / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use moqt::{ObjectStatus, Properties, Request};
    use proptest::prelude::*;
    use serde::Deserialize;
    use std::collections::HashMap;

    fn part(group: u64, id: u64, length: Option<u64>, end: bool, fetched: bool, payload: Vec<u8>) -> Object {
        Object {
            request: Request(0),
            fetched,
            datagram: true,
            end_of_group: end,
            group,
            subgroup: 0,
            id,
            status: ObjectStatus::Normal,
            properties: Properties { payload_length: length, ..Properties::default() },
            payload,
        }
    }

    #[derive(Deserialize)]
    struct Document {
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        name: String,
        max_payload: usize,
        timeout_ms: Nanos,
        rtt_ms: Nanos,
        limit: usize,
        steps: Vec<Step>,
        stats: Counts,
    }

    #[derive(Deserialize)]
    struct Step {
        at_ms: Nanos,
        part: Option<Part>,
        expect: Option<Expected>,
        #[serde(default)]
        whole: Vec<WholeOf>,
        #[serde(default)]
        ask: Vec<Missing>,
    }

    #[derive(Deserialize)]
    struct Part {
        group: u64,
        object: u64,
        bytes: String,
        length: Option<u64>,
        #[serde(default)]
        end: bool,
        #[serde(default)]
        fetched: bool,
    }

    #[derive(Deserialize)]
    struct Expected {
        group: u64,
        last: u64,
    }

    #[derive(Deserialize)]
    struct WholeOf {
        group: u64,
        object: u64,
        bytes: String,
    }

    fn hex(s: &str) -> Vec<u8> {
        s.as_bytes().chunks(2).map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap()).collect()
    }

    /// The vectors that the other assemblers are tested against, too.
    #[test]
    fn vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../internal/parts/testdata/assembler.json");
        let doc: Document = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert!(doc.cases.len() > 10);
        for c in doc.cases {
            let mut a = Assembler::new(c.max_payload, c.timeout_ms * MS, Arc::default());
            for (i, s) in c.steps.into_iter().enumerate() {
                let now = (1_000_000 + s.at_ms) * MS;
                if let Some(e) = s.expect {
                    a.expect(e.group, e.last, now);
                }
                let part = s.part.map(|p| part(p.group, p.object, p.length, p.end, p.fetched, hex(&p.bytes)));
                let whole = part.map(|p| a.add(p, now)).unwrap_or_default();
                let want: Vec<_> = s.whole.iter().map(|w| Whole { group: w.group, object: w.object, bytes: hex(&w.bytes) }).collect();
                assert_eq!(whole, want, "{}, step {i}", c.name);
                assert_eq!(a.due(now, c.rtt_ms * MS, c.limit), s.ask, "{}, step {i}", c.name);
            }
            a.close();
            assert_eq!((a.take_counts(), a.bytes()), (c.stats, 0), "{}", c.name);
        }
    }

    #[test]
    fn what_is_wanted_of_a_group_is_enough() {
        let mut a = Assembler::new(100, 0, Arc::default());
        assert_eq!(a.add(part(1, 0, Some(2), false, false, vec![1, 2]), 0).len(), 1);
        a.add(part(1, 2, None, false, false, vec![5]), 0);
        a.finish(1);
        assert!(a.add(part(1, 1, Some(3), false, false, vec![3]), 0).is_empty());
        assert!(a.due(1000 * MS, 0, 8).is_empty() && a.next(0).is_none());
        assert_eq!(a.take_counts(), Counts { frames: 1, late: 1, ..Counts::default() });
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// Whatever comes, what is held stays bounded, and what is whole has the length that was announced and the bytes
        /// that came first.
        #[test]
        fn any_parts(steps in prop::collection::vec(
            (0u64..40, 0u64..300, any::<u8>(), 0usize..200, any::<u8>(), 0i64..32), 1..200,
        )) {
            const MOST_PAYLOAD: usize = 1 << 10;
            let mut a = Assembler::new(MOST_PAYLOAD, 100 * MS, Arc::default());
            let mut now = 0;
            let mut first: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
            for (n, (group, mut id, length, size, flags, wait)) in steps.into_iter().enumerate() {
                let payload = vec![n as u8; size];
                if flags & 8 != 0 {
                    id = id.pow(3) * 1000;
                }
                let length = (flags & 2 != 0).then(|| u64::from(length).pow(2));
                now += wait * MS / 8;
                let late = a.past.contains(&group);
                if !late && !a.frames.iter().any(|f| f.group == group) {
                    first.retain(|k, _| k.0 != group); // forgotten so long ago that it begins anew
                }
                let before = a.counts;
                let whole = a.add(part(group, id, length, flags & 1 != 0, flags & 4 != 0, payload.clone()), now);
                if !late && a.counts.duplicate == before.duplicate && id < MAX_OBJECTS {
                    first.entry((group, id)).or_insert(payload);
                }
                for w in whole {
                    let mut want = Vec::new();
                    let mut id = w.object;
                    while want.len() < w.bytes.len() {
                        let b = &first[&(w.group, id)];
                        prop_assert!(!b.is_empty());
                        want.extend_from_slice(b);
                        id += 1;
                    }
                    prop_assert!(w.bytes == want && w.bytes.len() <= MOST_PAYLOAD);
                }
                let asked = a.due(now, 10 * MS, 4);
                prop_assert!(asked.len() <= 4 && asked.iter().all(|m| m.first <= m.last && m.last < MAX_OBJECTS));
                let held: usize = a.frames.iter().flat_map(|f| f.parts.values()).map(|p| p.capacity() + PART_COST).sum();
                prop_assert!(held == a.bytes && held <= a.room() && a.frames.len() <= MAX_FRAMES && a.past.len() <= HISTORY);
                prop_assert!(a.frames.iter().all(|f| f.holes.len() <= MAX_HOLES && f.starts.len() <= MAX_STARTS));
                let soon = a.next(10 * MS);
                prop_assert_ne!(soon.is_some(), a.frames.is_empty());
            }
            a.close();
            prop_assert!(a.bytes == 0 && a.frames.is_empty());
        }
    }
}
