//! Frames in datagrams (docs/spec/frames-in-datagrams.md): assembles payloads from parts in any
//! order, and decides which missing parts to request. Same algorithm and test vectors as
//! internal/parts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use moqt::{BufferPool, Nanos, Object};

const MS: Nanos = 1_000_000;
/// Maximum payload of a part, bytes.
pub(crate) const MAX_PART: usize = 1150;
/// Exclusive upper bound of object IDs.
const MAX_OBJECTS: u64 = 1 << 16;
/// Maximum groups being assembled.
const MAX_FRAMES: usize = 16;
/// Maximum gaps in the object IDs of a group.
const MAX_HOLES: usize = 256;
/// Maximum payloads per group.
const MAX_STARTS: usize = 255;
/// Number of finished groups remembered.
const HISTORY: usize = 64;
/// Memory overhead per part, bytes.
const PART_COST: usize = 128;
/// Memory limit, bytes; raised to two payloads if they are larger.
const ROOM: usize = 32 << 20;
/// Upper bound of the memory limit, bytes.
pub(crate) const MAX_ROOM: usize = 96 << 20;
/// A part is considered lost once this many later parts of its group arrived (RFC 9002 §6.1.1).
const REORDERING: u64 = 3;
/// A group's missing end is requested once no part has arrived for this long, or for a quarter of
/// the round-trip time if that is longer. An end of more than NEARBY parts waits until the next
/// group begins, or LONGER times as long.
const QUIET: Nanos = 8 * MS;
const LONGER: Nanos = 10;
/// Missing parts closer together than this share a request.
const NEARBY: u64 = 8;
/// Beyond this many requests, a group requests everything from its first to its last missing part.
const MAX_REQUESTS: u32 = 16;
/// Timeout for tracks without a delivery timeout.
const DEFAULT_TIMEOUT: Nanos = 2000 * MS;

/// Counters of an [`Assembler`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(default))]
pub(crate) struct Counts {
    /// Completed groups.
    pub frames: u64,
    /// Groups completed with requested parts.
    pub repaired: u64,
    /// Groups dropped as incomplete.
    pub abandoned: u64,
    /// Missing parts of dropped groups.
    pub parts_lost: u64,
    /// Requests for missing parts.
    pub requests: u64,
    /// Parts requested, including some that had arrived.
    pub requested: u64,
    /// Parts of finished groups.
    pub late: u64,
    /// Parts received twice.
    pub duplicate: u64,
    /// Parts that contradict others or exceed a limit.
    pub refused: u64,
}

/// A complete payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub group: u64,
    /// Object ID of its first part.
    pub object: u64,
    pub bytes: Vec<u8>,
}

/// A request for objects `first` to `last` of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct Missing {
    pub group: u64,
    pub first: u64,
    pub last: u64,
}

/// A range of missing IDs.
#[derive(Debug, Clone, Copy)]
struct Hole {
    first: u64,
    last: u64,
    asked: bool,
}

/// The first part of a payload.
#[derive(Debug)]
struct Start {
    /// Object ID of the payload's first part.
    first: u64,
    last: u64,
    length: usize,
    /// Size of every part except the last.
    size: usize,
    done: bool,
}

/// A group being assembled.
#[derive(Debug)]
struct Frame {
    group: u64,
    began: Nanos,
    /// Arrival of the latest part that was not fetched.
    newest: Nanos,
    parts: BTreeMap<u64, Vec<u8>>,
    /// One above the highest ID received or known to exist.
    next: u64,
    /// One above the highest ID received without fetching.
    reached: u64,
    /// Below `next`, ascending.
    holes: Vec<Hole>,
    /// Ascending.
    starts: Vec<Start>,
    /// One above the last object's ID; 0 = unknown.
    end: u64,
    requests: u32,
    /// Any part has arrived.
    seen: bool,
    /// A fetched part was used.
    fetched: bool,
    bytes: usize,
}

/// Assembles payloads. Time is passed in.
#[derive(Debug)]
pub(crate) struct Assembler {
    max_payload: usize,
    timeout: Nanos,
    pool: Arc<BufferPool>,
    /// Oldest first.
    frames: VecDeque<Frame>,
    /// Finished groups, oldest first.
    past: VecDeque<u64>,
    /// Time at which the newest group began.
    begun: Nanos,
    bytes: usize,
    counts: Counts,
}

impl Assembler {
    /// max_payload: maximum payload size, bytes. timeout: time from a group's first part until it
    /// is dropped; 0 = 2 s. Payloads use buffers of the pool.
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

    /// Changes the limits passed to `new`.
    pub fn set_limits(&mut self, max_payload: usize, timeout: Nanos) {
        self.max_payload = max_payload.min(MAX_ROOM / 2);
        self.timeout = if timeout > 0 { timeout } else { DEFAULT_TIMEOUT };
    }

    /// Time from a group's first part until it is dropped.
    pub fn timeout(&self) -> Nanos {
        self.timeout
    }

    /// Memory limit including overhead, bytes: sixteen payloads, within bounds.
    fn room(&self) -> usize {
        (MAX_FRAMES * self.max_payload).min(ROOM).max(2 * self.max_payload)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counters since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Takes a part. Returns the payloads that it completes.
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
                self.counts.refused += 1; // the group has parts beyond this end
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

    /// Finishes a group: everything requested from it has arrived.
    pub fn finish(&mut self, group: u64) {
        if let Some(at) = self.frames.iter().position(|f| f.group == group) {
            self.count(at);
            self.forget(at);
        }
    }

    /// Drops the oldest group; returns false if there is none.
    pub fn drop_oldest(&mut self) -> bool {
        let any = !self.frames.is_empty();
        if any {
            self.abandon(0);
        }
        any
    }

    /// Extracts the payload that part `id` completes, if any.
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

    /// Drops a group.
    fn abandon(&mut self, at: usize) {
        let f = &self.frames[at];
        if f.seen {
            let lost = f.lost();
            if lost == 0 && f.ready() {
                self.count(at); // complete, except that its end was not signalled
            } else {
                self.counts.abandoned += 1;
                self.counts.parts_lost += lost;
            }
        }
        self.forget(at);
    }

    /// Frees a group and ignores its future parts.
    fn forget(&mut self, at: usize) {
        let Some(f) = self.frames.remove(at) else { return };
        self.bytes -= f.bytes;
        if self.past.len() == HISTORY {
            self.past.pop_front();
        }
        self.past.push_back(f.group);
    }

    /// Drops groups that timed out, and returns the requests to send now, at most `limit`. Each
    /// part is requested once, and only if the answer can arrive in time.
    pub fn due(&mut self, now: Nanos, rtt: Nanos, limit: usize) -> Vec<Missing> {
        let mut list = Vec::new();
        while self.frames.front().is_some_and(|f| now - f.began >= self.timeout) {
            self.abandon(0);
        }
        let mut at = 0;
        while at < self.frames.len() {
            let (begun, f) = (self.begun, &mut self.frames[at]);
            if now + rtt - f.began < self.timeout {
                let still = now - f.newest >= quiet_time(rtt);
                let overtaken = begun > f.newest;
                if still && (overtaken || now >= f.end_due(rtt)) {
                    f.expect(f.expected());
                }
                if still && overtaken && f.holes.is_empty() && f.ready() {
                    self.abandon(at); // complete, except that its end was not signalled
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

    /// Time of the next call of `due` if no part arrives before; None if nothing is pending.
    pub fn next(&self, rtt: Nanos) -> Option<Nanos> {
        let mut at = self.frames.front()?.began + self.timeout;
        for f in &self.frames {
            let due = if f.holes.is_empty() { f.end_due(rtt) } else { f.newest + quiet_time(rtt) };
            if f.incomplete() && due < at && due + rtt < f.began + self.timeout {
                at = due;
            }
        }
        Some(at)
    }

    /// Marks a group's objects up to `last` as being fetched; `due` does not request them.
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

    /// Starts a group; returns its index.
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

    /// Drops all groups.
    pub fn close(&mut self) {
        while self.drop_oldest() {}
    }

    /// Resets the state: the next parts are unrelated to the previous ones.
    pub fn restart(&mut self) {
        self.close();
        self.past.clear();
    }
}

impl Frame {
    /// Marks an ID as received; returns false for a duplicate.
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

    /// Marks the IDs from `next` up to, but not including, `end` as missing.
    fn expect(&mut self, end: u64) {
        if end > self.next {
            self.holes.push(Hole { first: self.next, last: end - 1, asked: false });
            self.next = end;
        }
    }

    /// Registers a part of `size` bytes as the start of a payload of `length` bytes; returns false
    /// if that is inconsistent.
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
        // Overlaps another payload.
        if i > 0 && self.starts[i - 1].last >= id || self.starts.get(i).is_some_and(|s| s.first <= last) {
            return false;
        }
        self.starts.insert(i, Start { first: id, last, length, size, done: false });
        true
    }

    /// True if any ID from `first` to `last` is missing.
    fn missing(&self, first: u64, last: u64) -> bool {
        let i = self.holes.partition_point(|h| h.last < first);
        last >= self.next || self.holes.get(i).is_some_and(|h| h.first <= last)
    }

    /// True if at least one payload start is known and all known payloads are complete.
    fn ready(&self) -> bool {
        !self.starts.is_empty() && self.starts.iter().all(|s| s.done)
    }

    /// Number of parts known to be missing.
    fn lost(&self) -> u64 {
        self.holes.iter().map(|h| h.last - h.first + 1).sum::<u64>() + self.expected().saturating_sub(self.next)
    }

    /// One above the last ID known to exist.
    fn expected(&self) -> u64 {
        self.end.max(self.starts.last().map_or(0, |s| s.last + 1))
    }

    /// Time at which to request a missing end if no other group has begun.
    fn end_due(&self, rtt: Nanos) -> Nanos {
        let times = if self.expected() > self.next + NEARBY { LONGER } else { 1 };
        self.newest + times * quiet_time(rtt)
    }

    /// True if there is something to request once the group is quiet.
    fn incomplete(&self) -> bool {
        self.expected() > self.next || self.holes.iter().any(|h| !h.asked)
    }

    /// Appends requests for the group's missing parts. over: parts not yet received are lost. The
    /// last request within `limit` covers all that remains: a further one would have to wait for an
    /// answer, which at a rate-limiting relay takes longer than the group has.
    fn ask(&mut self, over: bool, limit: usize, list: &mut Vec<Missing>, counts: &mut Counts) {
        let from = list.len();
        for h in &mut self.holes {
            if h.asked || !over && h.last + REORDERING >= self.reached {
                continue;
            }
            let full = list.len() == limit;
            match list[from..].last_mut() {
                Some(open) if full || h.first - open.last <= NEARBY || self.requests > MAX_REQUESTS => {
                    open.last = h.last
                }
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

/// Quiet time of a group before its missing parts are requested.
fn quiet_time(rtt: Nanos) -> Nanos {
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
            priority: None,
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

    /// Test vectors shared with the other assemblers.
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
                let want: Vec<_> =
                    s.whole.iter().map(|w| Whole { group: w.group, object: w.object, bytes: hex(&w.bytes) }).collect();
                assert_eq!(whole, want, "{}, step {i}", c.name);
                assert_eq!(a.due(now, c.rtt_ms * MS, c.limit), s.ask, "{}, step {i}", c.name);
            }
            a.close();
            assert_eq!((a.take_counts(), a.bytes()), (c.stats, 0), "{}", c.name);
        }
    }

    #[test]
    fn finished_group_requests_nothing() {
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

        /// With arbitrary input, memory stays bounded, and payloads have the announced length and
        /// the bytes received first.
        #[test]
        fn any_parts(steps in prop::collection::vec(
            (0u64..40, 0u64..300, any::<u8>(), 0usize..200, any::<u8>(), 0i64..32), 1..200,
        )) {
            const MAX_PAYLOAD: usize = 1 << 10;
            let mut a = Assembler::new(MAX_PAYLOAD, 100 * MS, Arc::default());
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
                    first.retain(|k, _| k.0 != group); // no longer remembered: starts a new group
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
                    prop_assert!(w.bytes == want && w.bytes.len() <= MAX_PAYLOAD);
                }
                let asked = a.due(now, 10 * MS, 4);
                prop_assert!(asked.len() <= 4 && asked.iter().all(|m| m.first <= m.last && m.last < MAX_OBJECTS));
                let parts = a.frames.iter().flat_map(|f| f.parts.values());
                let held: usize = parts.map(|p| p.capacity() + PART_COST).sum();
                prop_assert!(held == a.bytes && held <= a.room());
                prop_assert!(a.frames.len() <= MAX_FRAMES && a.past.len() <= HISTORY);
                prop_assert!(a.frames.iter().all(|f| f.holes.len() <= MAX_HOLES && f.starts.len() <= MAX_STARTS));
                let soon = a.next(10 * MS);
                prop_assert_ne!(soon.is_some(), a.frames.is_empty());
            }
            a.close();
            prop_assert!(a.bytes == 0 && a.frames.is_empty());
        }
    }
}
