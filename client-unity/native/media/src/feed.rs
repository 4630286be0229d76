//! Path of a camera's frames from object to display: objects are assembled into frames, frames are
//! decoded, and the newest is kept for the renderer.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use cloud::{Header, Layout, Subject};
use moqt::{BufferPool, Nanos, Object};

use crate::catalog::Track;
use crate::order::{Order, Ordered};
use crate::parts::{Assembler, Whole};

/// Maximum complete frames per camera that wait for the decoder. Beyond that the decoder is behind,
/// and the oldest is dropped in favour of the newest.
const BACKLOG: usize = 3;
/// Maximum frames of layout W that wait for the decoder, since each needs the earlier ones of its group.
const VIDEO_BACKLOG: usize = 120;
/// Interval between key frame requests, and how long objects wait for missing earlier ones before
/// the first request.
const KEY_INTERVAL: Nanos = 250_000_000;
/// Number of recent groups kept to recognize frames already emitted.
const HISTORY: u64 = 64;
/// A group this far below the newest belongs to a restarted publisher; nearer ones are late.
const RESTART_GAP: u64 = 1000;
/// Maximum frames of a camera acquired at a time.
const MAX_ACQUIRED: usize = 2;
/// Maximum frames that wait for their sound, and their longest wait. If a frame would wait longer,
/// its sound belongs to another run of a replay.
const MAX_WAITING: usize = 6;
const MAX_WAIT: Nanos = 100_000_000;
/// Maximum unused frame buffers kept.
const MAX_FREE: usize = 3;

/// A camera's track and derived state. The version changes with the ray table.
#[derive(Debug)]
pub(crate) struct Source {
    pub track: Track,
    pub version: u32,
    pub rays: Arc<OnceLock<Vec<f32>>>,
}

/// The descriptions of a frame.
#[derive(Debug)]
pub(crate) struct Job {
    pub source: Arc<Source>,
    pub objects: Vec<Vec<u8>>,
    pub arrived: Nanos,
    pub replayed: bool,
    /// A later frame arrived before any part of this one. In layout W: fetched because later frames
    /// need it.
    pub late: bool,
    /// From a recording under this viewer's playback control.
    pub playback: bool,
}

impl Job {
    fn video(&self) -> bool {
        self.source.track.layout == Layout::W
    }

    /// A frame of layout W that decodes on its own.
    fn key(&self) -> bool {
        self.video() && self.objects.first().is_some_and(|o| pointvideo::is_key(o))
    }
}

/// A decoded frame without its words.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct FrameInfo {
    pub header: Header,
    pub points: u32,
    pub words_per_point: u32,
    pub descriptions: u32,
    pub bytes: u32,
    pub version: u32,
    pub decode: Nanos,
    /// Local times.
    pub arrived: Nanos,
    pub decoded: Nanos,
    /// Delay from capture to the end of decoding; for a recording, from arrival.
    pub delay: Nanos,
    pub replayed: bool,
    pub playback: bool,
    pub subject: Option<Subject>,
}

impl FrameInfo {
    /// Capture time.
    pub fn captured(&self) -> Nanos {
        Nanos::try_from(self.header.capture_time).unwrap_or(Nanos::MAX).saturating_mul(1000)
    }
}

#[derive(Debug)]
pub(crate) struct Decoded {
    pub info: FrameInfo,
    pub words: Vec<u32>,
}

/// A frame acquired by the renderer.
#[derive(Debug, Clone, Copy)]
pub struct Acquired {
    /// Identifies the frame in release.
    pub handle: u64,
    /// Description of the frame.
    pub info: FrameInfo,
}

/// Per-camera counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub partial: u64,
    pub skipped: u64,
    pub damaged: u64,
    pub late: u64,
    pub reset: u64,
    pub shown: u64,
    pub whole: u64,
    pub repaired: u64,
    pub abandoned: u64,
    pub parts_lost: u64,
    pub repairs: u64,
}

/// A camera's state shared between threads.
#[derive(Debug, Default)]
pub(crate) struct Camera {
    pub queue: VecDeque<Job>,
    pub decoding: bool,
    pub newest: Option<Decoded>,
    /// Frames that wait for their sound.
    pub waiting: VecDeque<Decoded>,
    pub acquired: Vec<(u64, Decoded)>,
    pub free: Vec<Vec<u32>>,
    pub counters: Counters,
    /// Consecutive undecodable frames.
    pub undecodable: u64,
    pub looked: Nanos,
    pub subject: Option<Subject>,
    /// Surface patches of a recent frame, in camera space.
    pub patches: Option<Vec<viewselect::Sample>>,
    /// Decoder of layout W; None while in use.
    pub video: Option<Box<pointvideo::Decoder>>,
    /// Frames of layout W are dropped until the next key frame.
    pub broken: bool,
}

impl Camera {
    /// Queues a frame. Returns the frames dropped to limit the backlog; in layout W, whole groups.
    pub fn push(&mut self, job: Job) -> Vec<Job> {
        self.broken &= job.video() && !job.key();
        if self.broken {
            self.counters.skipped += 1;
            return vec![job];
        }
        let video = job.video();
        self.queue.push_back(job);
        let excess = match self.queue.len().saturating_sub(BACKLOG) {
            0 => 0,
            n if !video => n,
            _ => self.before_key(),
        };
        self.counters.skipped += excess as u64;
        self.queue.drain(..excess).collect()
    }

    /// Number of queued frames that a later key frame makes superfluous; all of them if too many wait
    /// without one.
    fn before_key(&mut self) -> usize {
        match self.queue.iter().rposition(Job::key) {
            Some(n) if n > 0 => n,
            _ if self.queue.len() <= VIDEO_BACKLOG => 0,
            _ => {
                self.broken = true;
                self.queue.len()
            }
        }
    }

    /// A frame of layout W was undecodable: drops the queued ones that need it, and returns them.
    pub fn resynchronize(&mut self) -> Vec<Job> {
        let key = self.queue.iter().position(|j| !j.video() || j.key());
        self.broken = key.is_none();
        let excess = key.unwrap_or(self.queue.len());
        self.counters.skipped += excess as u64;
        self.queue.drain(..excess).collect()
    }

    /// Drops all frames except acquired ones.
    pub fn clear(&mut self) {
        self.queue.clear();
        (self.video, self.broken) = (None, false);
        (self.undecodable, self.patches) = (0, None);
        for d in self.newest.take().into_iter().chain(std::mem::take(&mut self.waiting)) {
            self.give_back(d.words);
        }
    }

    /// Keeps a decoded frame until its capture time plus `due`; Nanos::MIN: shows it now.
    pub fn keep(&mut self, d: Decoded, due: Nanos) {
        if due == Nanos::MIN && self.waiting.is_empty() {
            return self.show(d);
        }
        self.waiting.push_back(d);
        while self.waiting.len() > MAX_WAITING {
            if let Some(d) = self.waiting.pop_front() {
                self.show(d);
            }
        }
    }

    /// Makes the frames that are due available.
    pub fn release_due(&mut self, now: Nanos, due: Nanos) {
        let is_due = |d: &Decoded| {
            let wait = d.info.captured().saturating_add(due).saturating_sub(now);
            wait <= 0 || wait > MAX_WAIT
        };
        while self.waiting.front().is_some_and(is_due) {
            if let Some(d) = self.waiting.pop_front() {
                self.show(d);
            }
        }
    }

    fn show(&mut self, d: Decoded) {
        if let Some(old) = self.newest.replace(d) {
            self.give_back(old.words);
        }
    }

    pub fn give_back(&mut self, words: Vec<u32>) {
        if self.free.len() < MAX_FREE {
            self.free.push(words);
        }
    }

    pub fn full(&self) -> bool {
        self.acquired.len() >= MAX_ACQUIRED
    }

    pub fn bytes(&self) -> usize {
        let words = self.newest.iter().chain(&self.waiting).map(|d| d.words.capacity()).sum::<usize>()
            + self.acquired.iter().map(|(_, d)| d.words.capacity()).sum::<usize>()
            + self.free.iter().map(Vec::capacity).sum::<usize>();
        4 * words + self.queue.iter().flat_map(|j| &j.objects).map(Vec::capacity).sum::<usize>()
    }
}

/// A frame being assembled.
#[derive(Debug)]
struct Assembling {
    group: u64,
    descriptions: u8,
    objects: Vec<Vec<u8>>,
    has: u8,
    lost: u8,
    arrived: Nanos,
    replayed: bool,
}

/// Output of a feed: a frame to decode, or an unused payload.
#[derive(Debug)]
pub(crate) enum FeedOutput {
    Frame { objects: Vec<Vec<u8>>, arrived: Nanos, replayed: bool, late: bool },
    Unused(Vec<u8>),
}

/// Assembles a camera's frames, one group per frame. Emits a frame once all its descriptions have
/// arrived or are known to be missing, or as it is when an object of a later frame arrives.
#[derive(Debug)]
pub(crate) struct Feed {
    pub source: Arc<Source>,
    /// Maximum descriptions to receive per frame.
    pub wanted: u8,
    current: Option<Assembling>,
    newest: Option<u64>,
    past: BTreeSet<u64>,
    /// Local arrival time of the newest object.
    pub arrived: Nanos,
    /// Capture time of the newest object, microseconds.
    pub captured: u64,
    pub late: u64,
    pub reset: u64,
    pub damaged: u64,
    /// Assembler of frames in datagrams.
    pub parts: Assembler,
    /// Time of the next check for missing parts.
    pub check_at: Option<Nanos>,
    order: Order,
    /// Time at which to request a key frame of layout W.
    pub key_at: Option<Nanos>,
    /// Time of the last such request.
    key_asked: Nanos,
}

impl Feed {
    pub fn new(source: Arc<Source>, wanted: u8, pool: Arc<BufferPool>, now: Nanos) -> Self {
        Feed {
            parts: Assembler::new(source.track.max_object(), 0, pool),
            check_at: None,
            order: Order::default(),
            key_at: None,
            key_asked: Nanos::MIN / 2,
            source,
            wanted,
            current: None,
            newest: None,
            past: BTreeSet::new(),
            arrived: now,
            captured: 0,
            late: 0,
            reset: 0,
            damaged: 0,
        }
    }

    /// Resets the state: the next objects are unrelated to the previous ones.
    pub fn restart(&mut self, now: Nanos) {
        (self.current, self.newest) = (None, None);
        self.past.clear();
        self.parts.restart();
        self.check_at = None;
        self.order = Order::default();
        self.key_at = None;
        self.arrived = now;
    }

    /// Takes an object of layout W. The decoder checks it.
    pub fn add_video(&mut self, o: Object, now: Nanos, replayed: bool, out: &mut Vec<FeedOutput>) {
        self.arrived = now;
        if let Ok(h) = Header::parse_video(&o.payload) {
            self.captured = h.capture_time;
        }
        let (mut ready, mut unused) = (Vec::new(), Vec::new());
        let ordered = Ordered { payload: o.payload, arrived: now, fetched: o.fetched };
        let group = self.order.group();
        self.order.add(o.group, o.id, ordered, &mut ready, &mut unused);
        if self.order.group() != group {
            self.key_at = None;
        }
        if ready.is_empty() && self.order.waits() {
            self.key_at.get_or_insert(now + KEY_INTERVAL);
        }
        out.extend(unused.into_iter().map(FeedOutput::Unused));
        out.extend(ready.into_iter().map(|o| FeedOutput::Frame {
            objects: vec![o.payload],
            arrived: o.arrived,
            replayed,
            late: o.fetched,
        }));
    }

    /// Schedules a request for a key frame.
    pub fn want_key(&mut self, now: Nanos) {
        let at = now.max(self.key_asked + KEY_INTERVAL);
        self.key_at = Some(self.key_at.map_or(at, |t| t.min(at)));
    }

    /// The group to request now, if any. It is requested again until a key frame arrives.
    pub fn key_due(&mut self, now: Nanos) -> Option<u64> {
        self.key_at.filter(|at| now >= *at)?;
        self.key_asked = now;
        self.key_at = Some(now + KEY_INTERVAL);
        Some(self.order.following())
    }

    /// Takes a datagram part. Returns the size of the payload that it completed, if any.
    pub fn add_part(&mut self, o: Object, now: Nanos, replayed: bool, out: &mut Vec<FeedOutput>) -> Option<usize> {
        let mut length = None;
        for Whole { group, bytes, .. } in self.parts.add(o, now) {
            *length.get_or_insert(0) += bytes.len();
            if self.add(group, bytes, now, replayed, false, out) {
                self.parts.finish(group); // ignore the remaining descriptions
            }
        }
        length
    }

    /// Takes an object. Returns true if its frame now has all requested descriptions. A fetched
    /// object is useless once a later frame has begun.
    pub fn add(
        &mut self, group: u64, payload: Vec<u8>, now: Nanos, replayed: bool, fetched: bool, out: &mut Vec<FeedOutput>,
    ) -> bool {
        self.arrived = now;
        let h = match Header::parse(&payload) {
            Ok(h) if h.camera == self.source.track.camera && h.layout == self.source.track.layout => h,
            _ => {
                self.damaged += 1;
                out.push(FeedOutput::Unused(payload));
                return false;
            }
        };
        if h.description >= self.wanted.max(1) {
            out.push(FeedOutput::Unused(payload));
            return false;
        }
        if self.newest.is_some_and(|n| group < n && n - group >= RESTART_GAP) {
            self.restart(now);
        }
        self.captured = h.capture_time;
        if self.past.contains(&group) {
            self.late += u64::from(!fetched);
            out.push(FeedOutput::Unused(payload));
            return false;
        }
        if self.newest.is_some_and(|n| group < n) && self.current.as_ref().is_none_or(|c| c.group != group) {
            if fetched {
                out.push(FeedOutput::Unused(payload));
                return false;
            }
            // A frame that was overtaken before any of it arrived.
            self.note(group);
            out.push(FeedOutput::Frame { objects: vec![payload], arrived: now, replayed, late: true });
            return false;
        }
        if self.current.as_ref().is_some_and(|c| c.group != group) {
            self.emit(out);
        }
        self.newest = Some(group);
        let c = self.current.get_or_insert_with(|| Assembling {
            group,
            descriptions: h.descriptions,
            objects: Vec::with_capacity(h.descriptions.into()),
            has: 0,
            lost: 0,
            arrived: now,
            replayed,
        });
        if c.has & 1 << h.description != 0 {
            out.push(FeedOutput::Unused(payload)); // both fetched and subscribed
            return false;
        }
        c.has |= 1 << h.description;
        c.objects.push(payload);
        self.complete(out)
    }

    /// A subgroup was cut short.
    pub fn cut(&mut self, group: u64, remote: bool, now: Nanos, out: &mut Vec<FeedOutput>) {
        self.reset += u64::from(remote);
        if self.order.group() == Some(group) {
            self.want_key(now);
        }
        if let Some(c) = self.current.as_mut().filter(|c| c.group == group) {
            c.lost = c.lost.saturating_add(u8::from(remote));
            self.complete(out);
        }
    }

    fn complete(&mut self, out: &mut Vec<FeedOutput>) -> bool {
        let Some(c) = &self.current else { return false };
        let n = c.objects.len() as u32;
        let complete = n > 0 && n + u32::from(c.lost) >= u32::from(c.descriptions.min(self.wanted.max(1)));
        if complete {
            self.emit(out);
        }
        complete
    }

    /// Emits the current frame as it is.
    pub fn emit(&mut self, out: &mut Vec<FeedOutput>) {
        let Some(c) = self.current.take() else { return };
        self.note(c.group);
        if !c.objects.is_empty() {
            out.push(FeedOutput::Frame { objects: c.objects, arrived: c.arrived, replayed: c.replayed, late: false });
        }
    }

    fn note(&mut self, group: u64) {
        self.past.insert(group);
        let newest = self.newest.unwrap_or(group);
        while self.past.first().is_some_and(|g| g.saturating_add(HISTORY) < newest)
            || self.past.len() as u64 > 2 * HISTORY
        {
            self.past.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloud::{Layout, Lens, Transform};

    fn feed(descriptions: u8) -> Feed {
        let track = Track {
            name: "points/0/full".into(),
            camera: 0,
            camera_name: String::new(),
            quality: "full".into(),
            layout: Layout::C,
            descriptions,
            width: 0,
            height: 0,
            max_points: 10,
            delivery_timeout_ms: 0,
            datagrams: false,
            framerate: 30.0,
            bitrate: 0,
            error: None,
            depth_error: None,
            lens: Lens::default(),
            pose: Transform::IDENTITY,
            depth: [0, 0],
            duration: 0.0,
            timeline: None,
        };
        Feed::new(Arc::new(Source { track, version: 1, rays: Arc::default() }), 4, Arc::default(), 0)
    }

    fn object(description: u8, descriptions: u8) -> Vec<u8> {
        let mut b = vec![0; 44];
        b[..8].copy_from_slice(b"HCPF\x01\x03\x01\x00");
        (b[30], b[31]) = (description, descriptions);
        b
    }

    /// Output as number of descriptions plus "late"; "-" for a dropped payload.
    fn summary(out: &mut Vec<FeedOutput>) -> Vec<String> {
        let word = |h: FeedOutput| match h {
            FeedOutput::Frame { objects, late, .. } => format!("{}{}", objects.len(), if late { " late" } else { "" }),
            FeedOutput::Unused(_) => "-".into(),
        };
        out.drain(..).map(word).collect()
    }

    #[test]
    fn frames_of_four_descriptions() {
        let mut f = feed(4);
        let mut out = Vec::new();
        let mut add = |g, d, fetched| {
            f.add(g, object(d, 4), 0, false, fetched, &mut out);
            summary(&mut out)
        };
        for d in [1, 0, 3] {
            assert!(add(5, d, false).is_empty());
        }
        assert_eq!(add(5, 3, true), ["-"]); // duplicate
        assert_eq!(add(5, 2, false), ["4"]);
        assert!(add(6, 0, false).is_empty());
        assert_eq!(add(7, 0, false), ["1"]); // frame 6, incomplete
        assert_eq!(add(6, 1, false), ["-"]); // too late
        assert_eq!(add(4, 0, true), ["-"]); // fetched, but older
        assert_eq!(add(4, 0, false), ["1 late"]);
        assert_eq!(f.late, 1);
    }

    #[test]
    fn reset_descriptions_count_as_missing() {
        let mut f = feed(4);
        let mut out = Vec::new();
        f.add(5, object(0, 4), 0, false, false, &mut out);
        f.add(5, object(1, 4), 0, false, false, &mut out);
        f.cut(5, true, 0, &mut out);
        assert!(summary(&mut out).is_empty());
        f.cut(5, true, 0, &mut out);
        assert_eq!(summary(&mut out), ["2"]);
        assert_eq!(f.reset, 2);
    }

    #[test]
    fn fewer_descriptions_complete_a_frame() {
        let mut f = feed(4);
        f.wanted = 2;
        let mut out = Vec::new();
        f.add(5, object(0, 4), 0, false, false, &mut out);
        f.add(5, object(3, 4), 0, false, true, &mut out);
        f.add(5, object(1, 4), 0, false, false, &mut out);
        assert_eq!(summary(&mut out), ["-", "2"]);
    }

    #[test]
    fn publisher_restart() {
        let mut f = feed(1);
        let mut out = Vec::new();
        for g in [5000, 5001, 3, 4] {
            f.add(g, object(0, 1), 0, false, false, &mut out);
        }
        assert_eq!(summary(&mut out), ["1", "1", "1", "1"]);
        f.add(5, vec![1, 2, 3], 0, false, false, &mut out);
        assert_eq!((summary(&mut out), f.damaged), (vec!["-".to_owned()], 1));
    }

    fn job(source: &Arc<Source>, index: u8) -> Job {
        let mut object = vec![0; 60];
        object[50] = index;
        Job { source: source.clone(), objects: vec![object], arrived: 0, replayed: false, late: false, playback: false }
    }

    fn indices(jobs: &[Job]) -> Vec<u8> {
        jobs.iter().map(|j| j.objects[0][50]).collect()
    }

    #[test]
    fn backlog_keeps_the_newest() {
        let source = feed(1).source;
        let mut c = Camera::default();
        for n in 0..3 {
            assert!(c.push(job(&source, n)).is_empty());
        }
        assert_eq!(indices(&c.push(job(&source, 3))), [0]);
        assert_eq!((c.queue.len(), c.counters.skipped), (3, 1));
    }

    fn video() -> Feed {
        let f = feed(1);
        let track = Track { layout: Layout::W, ..f.source.track.clone() };
        Feed::new(Arc::new(Source { track, version: 1, rays: Arc::default() }), 1, Arc::default(), 0)
    }

    #[test]
    fn video_backlog_is_dropped_at_key_frames() {
        let source = video().source;
        let mut c = Camera::default();
        for n in 0..9 {
            assert!(c.push(job(&source, n)).is_empty());
        }
        assert_eq!(indices(&c.push(job(&source, 0))), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let all: usize = (1..=VIDEO_BACKLOG).map(|n| c.push(job(&source, n as u8)).len()).sum();
        assert_eq!((all, c.broken, c.queue.len()), (VIDEO_BACKLOG + 1, true, 0));
        assert_eq!(indices(&c.push(job(&source, 121))), [121]);
        assert!(c.push(job(&source, 0)).is_empty() && !c.broken);
    }

    #[test]
    fn video_resynchronizes() {
        let source = video().source;
        let mut c = Camera::default();
        for n in [3, 4, 0, 1] {
            c.push(job(&source, n));
        }
        assert_eq!((indices(&c.resynchronize()), c.broken), (vec![], false), "dropped already");
        c.queue.pop_front();
        assert_eq!((indices(&c.resynchronize()), c.broken), (vec![1], true));
        c.clear();
        assert!(!c.broken);
    }

    #[test]
    fn key_frames_are_requested_until_one_arrives() {
        let mut f = video();
        let add = |f: &mut Feed, group, id, now| {
            let o = Object {
                request: moqt::Request(0),
                fetched: false,
                datagram: false,
                end_of_group: false,
                group,
                subgroup: 0,
                id,
                priority: None,
                status: moqt::ObjectStatus::Normal,
                properties: moqt::Properties::default(),
                payload: vec![1],
            };
            let mut out = Vec::new();
            f.add_video(o, now, false, &mut out);
            summary(&mut out).len()
        };
        assert_eq!((add(&mut f, 7, 2, 0), f.key_at), (0, Some(KEY_INTERVAL)));
        assert_eq!((f.key_due(KEY_INTERVAL - 1), f.key_due(KEY_INTERVAL)), (None, Some(8)));
        assert_eq!(f.key_at, Some(2 * KEY_INTERVAL));
        assert_eq!((add(&mut f, 8, 0, KEY_INTERVAL + 5), f.key_at), (1 + 1, None));
        f.cut(8, true, KEY_INTERVAL + 9, &mut Vec::new());
        f.want_key(KEY_INTERVAL + 10);
        assert_eq!((f.key_at, f.key_due(2 * KEY_INTERVAL)), (Some(2 * KEY_INTERVAL), Some(9)));
    }
}
