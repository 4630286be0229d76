//! A recording under a viewer's own playback control: data ahead of the position is fetched a
//! second at a time and shown when due (docs/spec/replay.md). Media times are milliseconds. Does no
//! I/O: [`Playback::take`] returns the actions to perform.

use std::collections::{BTreeMap, VecDeque};

use moqt::Nanos;

use crate::catalog::Timeline;

/// Media time per fetch: right after a seek, and later; and the media time to buffer ahead.
const FIRST: f64 = 250.0;
const WINDOW: f64 = 1000.0;
const AHEAD: f64 = 1500.0;
/// A seek shows a frame that begins up to this long before its position.
const BEFORE: f64 = 100.0;
const RETRY: Nanos = 500_000_000;
/// Maximum bytes buffered per camera.
const MAX_BYTES: usize = 64 << 20;

/// A part of the recording: one camera or the 360° video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Camera by number. A group is a frame, which is shown when due; in layout W it is a GoP of frames.
    Camera(u16),
    /// 360° video. A group is a GoP, whose frames go to the decoder on arrival.
    Sphere,
}

/// The objects of a frame.
pub type Objects = Vec<Vec<u8>>;

/// An action for the caller.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Fetch groups. Results are reported under `id`.
    Fetch {
        /// Part to fetch.
        part: Part,
        /// Identifies the fetch.
        id: u64,
        /// First group.
        first: u64,
        /// Last group.
        last: u64,
    },
    /// Cancel a fetch.
    Cancel(u64),
    /// Show a frame.
    Show {
        /// Camera.
        camera: u16,
        /// Group.
        group: u64,
        /// Its descriptions.
        objects: Objects,
    },
    /// A frame arrived after a later one was due.
    Skip(Objects),
}

impl Timeline {
    /// The first group at or after a media time.
    pub fn group_at(&self, media: f64) -> u64 {
        (self.group + (media - self.media) / self.media_step * self.group_step).ceil().max(0.0) as u64
    }

    /// Media time of a group.
    pub fn media_at(&self, group: u64) -> f64 {
        self.media + (group as f64 - self.group) / self.group_step * self.media_step
    }
}

#[derive(Debug)]
struct Waiting {
    at: f64,
    group: u64,
    objects: Objects,
}

/// Buffered data of one part.
#[derive(Debug)]
struct PartBuffer {
    timeline: Timeline,
    /// The group needed for a position may begin up to this long before it, ms.
    before: f64,
    /// Frames are passed on at once instead of buffered here.
    streamed: bool,
    /// Layout W: the newest group, and the capture time of its first frame, µs.
    video: Option<(u64, u64)>,
    frames: VecDeque<Waiting>,
    bytes: usize,
    /// Everything before this media time has arrived.
    until: f64,
    /// A frame has been shown since the last seek.
    primed: bool,
    window: f64,
    request: Option<u64>,
    /// End of the requested media time.
    end: f64,
    under_way: Option<Waiting>,
    retry: Nanos,
}

impl PartBuffer {
    fn new(part: Part, timeline: Timeline, gop: Option<f64>) -> Self {
        let streamed = part == Part::Sphere;
        PartBuffer {
            timeline,
            before: gop.map_or(BEFORE, |g| (g - 1.0).max(0.0)),
            streamed,
            video: gop.filter(|_| !streamed).map(|_| (0, 0)),
            frames: VecDeque::new(),
            bytes: 0,
            until: 0.0,
            primed: false,
            window: 0.0,
            request: None,
            end: 0.0,
            under_way: None,
            retry: 0,
        }
    }

    /// Restarts buffering at a position.
    fn begin(&mut self, place: f64) {
        self.frames.clear();
        self.under_way = None;
        self.bytes = 0;
        let whole = self.streamed || self.video.is_some();
        let place = if whole { place.floor() } else { place };
        self.until = (place - self.before).max(0.0);
        self.primed = false;
        // A GoP is fetched whole, so the window must cover it.
        self.window = if whole { FIRST.max(self.before + 1.0) } else { FIRST };
        self.retry = 0;
    }

    /// Adds a frame of layout W. Its media time is its group's, plus the capture time since the
    /// group's first frame.
    fn video_frame(&mut self, group: u64, payload: Vec<u8>) {
        let captured = cloud::Header::parse_video(&payload).map_or(0, |h| h.capture_time);
        let first = self.video.filter(|v| v.0 == group).map_or(captured, |v| v.1);
        self.video = Some((group, first));
        let at = self.timeline.media_at(group) + captured.saturating_sub(first) as f64 / 1e3;
        self.until = self.until.max(at);
        self.frames.push_back(Waiting { at, group, objects: vec![payload] });
    }

    fn finish(&mut self) {
        if let Some(f) = self.under_way.take() {
            self.frames.push_back(f);
        }
    }
}

/// Plays back a recording.
#[derive(Debug)]
pub struct Playback {
    duration: f64,
    buffers: BTreeMap<Part, PartBuffer>,
    position: f64,
    at: Nanos,
    playing: bool,
    waiting: bool,
    next: u64,
    actions: Vec<Action>,
}

impl Playback {
    /// duration: length of the recording.
    pub fn new(duration: f64) -> Self {
        Playback {
            duration,
            buffers: BTreeMap::new(),
            position: 0.0,
            at: 0,
            playing: false,
            waiting: false,
            next: 0,
            actions: Vec::new(),
        }
    }

    /// Actions since the last call.
    pub fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Sets the parts that have a position in the recording, and for 360° video and layout W the GoP
    /// duration, ms.
    pub fn set_parts(&mut self, parts: &BTreeMap<Part, (Timeline, Option<f64>)>) {
        let actions = &mut self.actions;
        self.buffers.retain(|part, buffer| {
            let keep = parts.get(part).is_some_and(|(t, _)| *t == buffer.timeline);
            if !keep {
                actions.extend(buffer.request.take().map(Action::Cancel));
            }
            keep
        });
        for (part, (timeline, gop)) in parts {
            self.buffers.entry(*part).or_insert_with(|| {
                let mut buffer = PartBuffer::new(*part, *timeline, *gop);
                buffer.begin(self.position);
                buffer
            });
        }
    }

    /// Position in the recording.
    pub fn position(&self) -> f64 {
        self.position
    }

    /// False while paused.
    pub fn playing(&self) -> bool {
        self.playing
    }

    /// True while playback waits for data.
    pub fn waiting(&self) -> bool {
        self.waiting
    }

    /// Resumes; at the end, restarts from the beginning.
    pub fn play(&mut self, now: Nanos) {
        if self.position >= self.duration {
            self.seek(now, 0.0);
        }
        self.playing = true;
        self.at = now;
    }

    /// Pauses.
    pub fn pause(&mut self) {
        self.playing = false;
    }

    /// Seeks to a position.
    pub fn seek(&mut self, now: Nanos, media: f64) {
        self.position = if media.is_nan() { 0.0 } else { media.clamp(0.0, self.duration) };
        self.at = now;
        for buffer in self.buffers.values_mut() {
            self.actions.extend(buffer.request.take().map(Action::Cancel));
            buffer.begin(self.position);
        }
    }

    /// Stops playback and cancels fetches.
    pub fn stop(&mut self) {
        self.playing = false;
        for buffer in self.buffers.values_mut() {
            self.actions.extend(buffer.request.take().map(Action::Cancel));
        }
    }

    /// Takes an object of a fetch.
    pub fn object(&mut self, id: u64, group: u64, payload: Vec<u8>) {
        let Some(buffer) = self.buffers.values_mut().find(|r| r.request == Some(id)) else { return };
        buffer.bytes += payload.len();
        match &mut buffer.under_way {
            _ if buffer.video.is_some() => buffer.video_frame(group, payload),
            Some(f) if f.group == group => f.objects.push(payload),
            _ => {
                buffer.finish();
                let at = buffer.timeline.media_at(group);
                buffer.until = buffer.until.max(at);
                buffer.under_way = Some(Waiting { at, group, objects: vec![payload] });
            }
        }
        if buffer.bytes > MAX_BYTES {
            // Too large for a second of any recording: show the received frames and request the rest
            // later.
            self.actions.extend(buffer.request.take().map(Action::Cancel));
            if let Some(f) = buffer.under_way.take() {
                buffer.bytes -= f.objects.iter().map(Vec::len).sum::<usize>().min(buffer.bytes);
            }
        }
    }

    /// Notes an object of a fetch whose frames are not buffered here.
    pub fn streamed(&mut self, id: u64, group: u64) {
        if let Some(buffer) = self.buffers.values_mut().find(|r| r.request == Some(id)) {
            buffer.until = buffer.until.max(buffer.timeline.media_at(group));
        }
    }

    /// A fetch completed.
    pub fn fetched(&mut self, id: u64) {
        let Some(buffer) = self.buffers.values_mut().find(|r| r.request == Some(id)) else { return };
        buffer.finish();
        buffer.request = None;
        buffer.until = buffer.end;
        buffer.window = WINDOW;
    }

    /// A fetch failed. beyond: its range lies past the end.
    pub fn failed(&mut self, now: Nanos, id: u64, beyond: bool) {
        let duration = self.duration;
        let Some(buffer) = self.buffers.values_mut().find(|r| r.request == Some(id)) else { return };
        buffer.request = None;
        // Keep the received frames and request the rest again, unless it lies past the end.
        if let Some(group) = buffer.under_way.as_ref().map(|f| f.group) {
            buffer.until = buffer.timeline.media_at(group + 1);
        }
        buffer.finish();
        if beyond {
            buffer.until = duration + 1.0;
        }
        buffer.retry = now + RETRY;
    }

    /// Advances playback, fetches ahead and shows due frames. Call this often.
    pub fn tick(&mut self, now: Nanos) {
        let duration = self.duration;
        let ended = |r: &PartBuffer| r.until > duration;
        self.waiting = self.buffers.values().any(|r| !r.primed && !ended(r));
        if self.playing {
            let passed = (now - self.at) as f64 / 1e6;
            let wanted = if self.waiting { self.position } else { self.position + passed };
            let here = self.buffers.values().filter(|r| !ended(r)).map(|r| r.until.max(self.position));
            let here = here.fold(duration, f64::min);
            self.position = wanted.min(here);
            self.waiting |= wanted > here && here < duration;
            if self.position >= duration {
                self.playing = false;
            }
        }
        self.at = now;
        let position = self.position;
        for (part, r) in &mut self.buffers {
            r.primed |= r.streamed && (r.until > position || ended(r));
            let full = r.until - position > AHEAD || r.bytes > MAX_BYTES / 2;
            if r.request.is_none() && !ended(r) && !full && now >= r.retry {
                let id = self.next;
                self.next += 1;
                r.end = r.until + r.window;
                let first = r.timeline.group_at(r.until);
                let last = r.timeline.group_at(r.end).saturating_sub(1);
                if last < first {
                    r.until = r.end; // groups are longer than the window, so none begins in it
                } else {
                    r.request = Some(id);
                    self.actions.push(Action::Fetch { part: *part, id, first, last });
                }
            }
            if let Part::Camera(camera) = *part {
                show(camera, r, position, &mut self.actions);
            }
        }
    }
}

/// Shows due frames; after a seek, the nearest one.
fn show(camera: u16, r: &mut PartBuffer, position: f64, actions: &mut Vec<Action>) {
    let mut due = r.frames.iter().take_while(|f| f.at <= position).count();
    if !r.primed {
        let known = due < r.frames.len() || r.until > position;
        if !known || r.frames.is_empty() {
            return;
        }
        due = due.max(1);
    }
    for i in 0..due {
        let Some(f) = r.frames.pop_front() else { return };
        r.bytes -= f.objects.iter().map(Vec::len).sum::<usize>().min(r.bytes);
        // Frames of layout W need the earlier ones.
        if i + 1 == due || r.video.is_some() {
            r.primed = true;
            actions.push(Action::Show { camera, group: f.group, objects: f.objects });
        } else if r.primed {
            actions.push(Action::Skip(f.objects));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const LINE: Timeline = Timeline { media: 0.0, media_step: 1.0, group: 0.0, group_step: 1.0, wallclock: 1e12 };

    /// Plays a recording with a frame every 33 ms against a relay that answers at once, and logs
    /// the displayed frames.
    struct Stage {
        p: Playback,
        now: Nanos,
        shown: Vec<u64>,
        skipped: usize,
        duration: f64,
    }

    impl Stage {
        fn new(duration: f64) -> Self {
            let mut p = Playback::new(duration);
            p.set_parts(&BTreeMap::from([(Part::Camera(0), (LINE, None))]));
            Stage { p, now: 0, shown: Vec::new(), skipped: 0, duration }
        }

        fn run(&mut self, ms: i64, answer: bool) {
            for _ in 0..ms / 10 {
                self.now += 10 * MS;
                self.p.tick(self.now);
                for a in self.p.take() {
                    match a {
                        Action::Fetch { id, first, last, .. } if answer => {
                            if first as f64 > self.duration {
                                self.p.failed(self.now, id, true);
                                continue;
                            }
                            for g in (first..=last).filter(|g| g % 33 == 0 && *g as f64 <= self.duration) {
                                self.p.object(id, g, vec![0]);
                            }
                            self.p.fetched(id);
                        }
                        Action::Show { group, .. } => self.shown.push(group),
                        Action::Skip(_) => self.skipped += 1,
                        _ => {}
                    }
                }
            }
        }
    }

    #[test]
    fn plays_to_the_end_at_its_pace() {
        let mut s = Stage::new(3000.0);
        s.p.play(0);
        s.run(1000, true);
        assert!((s.p.position() - 1000.0).abs() < 60.0, "{}", s.p.position());
        s.run(3000, true);
        assert_eq!((s.p.position(), s.p.playing(), s.skipped), (3000.0, false, 0));
        assert_eq!(s.shown, (0..=90).map(|i| 33 * i).collect::<Vec<_>>());
        s.p.play(s.now);
        assert_eq!(s.p.position(), 0.0);
    }

    #[test]
    fn a_seek_shows_its_frame_while_paused() {
        let mut s = Stage::new(60_000.0);
        s.run(50, true);
        s.p.seek(s.now, 30_000.0);
        s.shown.clear();
        s.run(100, true);
        assert_eq!(s.shown, [29_997]);
        assert_eq!((s.p.position(), s.p.playing(), s.p.waiting()), (30_000.0, false, false));
        s.p.play(s.now);
        s.run(200, true);
        assert_eq!(s.shown.last(), Some(&30_195));
    }

    #[test]
    fn waits_for_missing_data() {
        let mut s = Stage::new(60_000.0);
        s.p.play(0);
        s.run(300, true);
        let reached = s.p.position();
        s.run(5000, false);
        assert!(s.p.waiting() && s.p.playing() && s.p.position() < reached + 3000.0);
    }

    /// 360° video with GoPs of one second, each arriving at once.
    #[test]
    fn sphere_is_fetched_from_the_gop_at_the_position() {
        let mut p = Playback::new(60_000.0);
        p.set_parts(&BTreeMap::from([(Part::Sphere, (LINE, Some(1000.0)))]));
        p.seek(0, 30_500.0);
        p.play(0);
        let mut now = 0;
        let mut fetched = Vec::new();
        for _ in 0..300 {
            now += 10 * MS;
            p.tick(now);
            for a in p.take() {
                let Action::Fetch { part: Part::Sphere, id, first, last } = a else { panic!("{a:?}") };
                fetched.extend((first..=last).filter(|g| g % 1000 == 0));
                (first..=last).filter(|g| g % 1000 == 0).for_each(|g| p.streamed(id, g));
                p.fetched(id);
            }
        }
        assert_eq!(fetched[..4], [30_000, 31_000, 32_000, 33_000]);
        assert!((p.position() - 33_480.0).abs() < 40.0 && p.playing() && !p.waiting(), "{}", p.position());
    }

    /// Layout W with a key frame every second and ten frames per second: a seek decodes from the key frame
    /// before its position.
    #[test]
    fn point_video_plays_from_a_key_frame() {
        let frame = |group: u64, n: u64| {
            let mut b = vec![0; 60];
            b[..8].copy_from_slice(b"HCPF\x01\x04\x02\x00");
            b[20..28].copy_from_slice(&(1_000_000_000 + 1000 * (group + 100 * n)).to_le_bytes());
            (b[31], b[32], b[34], b[40]) = (1, 1, 1, 1);
            b
        };
        let mut p = Playback::new(60_000.0);
        p.set_parts(&BTreeMap::from([(Part::Camera(0), (LINE, Some(1500.0)))]));
        p.seek(0, 30_450.0);
        p.play(0);
        let (mut now, mut shown) = (0, Vec::new());
        for _ in 0..100 {
            now += 10 * MS;
            p.tick(now);
            for a in p.take() {
                match a {
                    Action::Fetch { id, first, last, .. } => {
                        for g in (first..=last).filter(|g| g % 1000 == 0) {
                            (0..10).for_each(|n| p.object(id, g, frame(g, n)));
                        }
                        p.fetched(id);
                    }
                    Action::Show { objects, .. } => {
                        let h = cloud::Header::parse_video(&objects[0]).map(|h| h.capture_time / 1000 - 1_000_000);
                        shown.push(h.unwrap_or_default());
                    }
                    a => panic!("{a:?}"),
                }
            }
        }
        assert!(shown.len() > 14 && shown[0] % 1000 == 0 && shown[0] <= 30_000, "{shown:?}");
        assert!(shown.windows(2).all(|w| w[1] == w[0] + 100), "{shown:?}");
        assert!((p.position() - f64::from(*shown.last().unwrap_or(&0) as u32)).abs() < 110.0);
    }

    #[test]
    fn seek_out_of_range() {
        let mut s = Stage::new(1000.0);
        for media in [f64::NAN, -5.0, f64::INFINITY] {
            s.p.seek(0, media);
            s.run(100, true);
            assert!((0.0..=1000.0).contains(&s.p.position()));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut p = Playback::new(1e9);
        p.set_parts(&BTreeMap::from([(Part::Camera(0), (LINE, None))]));
        p.play(0);
        p.tick(MS);
        let Some(Action::Fetch { id, .. }) = p.take().pop() else { panic!("no fetch") };
        for g in 0..1000 {
            p.object(id, g, vec![0; 1 << 20]);
        }
        assert!(p.buffers[&Part::Camera(0)].bytes <= MAX_BYTES + (1 << 20));
        assert_eq!(p.take(), [Action::Cancel(id)]);
    }
}
