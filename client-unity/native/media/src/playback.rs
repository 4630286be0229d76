//! A recording watched at a viewer's own pace: what is ahead of it is fetched a second at a time, and shown when
//! its time has come (docs/spec/replay.md). Media times are milliseconds. It does no I/O: what is to be done is in
//! [`Playback::take`].

use std::collections::{BTreeMap, VecDeque};

use moqt::Nanos;

use crate::catalog::Timeline;

/// How much is fetched at a time, at first after a seek and then, and how much is kept ahead.
const FIRST: f64 = 250.0;
const WINDOW: f64 = 1000.0;
const AHEAD: f64 = 1500.0;
/// A seek shows the frame before its place, which may have begun so long ago.
const BEFORE: f64 = 100.0;
const RETRY: Nanos = 500_000_000;
/// Bytes of a camera that are kept ahead at most.
const MOST_BYTES: usize = 64 << 20;

/// What is played: a camera's frames, or 360° video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// By its number; a group is a frame, which is handed out when it is due.
    Camera(u16),
    /// A group is a GoP, whose frames go to the decoder as they arrive.
    Sphere,
}

/// The objects of a frame.
pub type Objects = Vec<Vec<u8>>;

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Fetch groups; what comes is told by `id`.
    Fetch {
        /// Whose.
        part: Part,
        /// Names the fetch.
        id: u64,
        /// First group.
        first: u64,
        /// Last group.
        last: u64,
    },
    /// Nothing more of a fetch is wanted.
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
    /// A frame came when a later one was due.
    Skip(Objects),
}

impl Timeline {
    /// The first group at or behind a media time.
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

/// What is there ahead of one part.
#[derive(Debug)]
struct Reel {
    timeline: Timeline,
    /// A group that is needed at a place may have begun so long before it, ms.
    before: f64,
    /// Its frames do not wait here.
    streamed: bool,
    frames: VecDeque<Waiting>,
    bytes: usize,
    /// Everything before this media time is here.
    until: f64,
    /// A frame was shown since the last seek.
    primed: bool,
    window: f64,
    request: Option<u64>,
    /// Media time to which the request goes.
    end: f64,
    under_way: Option<Waiting>,
    retry: Nanos,
}

impl Reel {
    fn new(timeline: Timeline, gop: Option<f64>) -> Self {
        Reel {
            timeline,
            before: gop.map_or(BEFORE, |g| (g - 1.0).max(0.0)),
            streamed: gop.is_some(),
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

    /// Nothing is there; what is needed at a place comes first.
    fn begin(&mut self, place: f64) {
        self.frames.clear();
        self.under_way = None;
        self.bytes = 0;
        let place = if self.streamed { place.floor() } else { place };
        self.until = (place - self.before).max(0.0);
        self.primed = false;
        // Of a GoP all that may hold the place.
        self.window = if self.streamed { FIRST.max(self.before + 1.0) } else { FIRST };
        self.retry = 0;
    }

    fn finish(&mut self) {
        if let Some(f) = self.under_way.take() {
            self.frames.push_back(f);
        }
    }
}

/// Plays a recording.
#[derive(Debug)]
pub struct Playback {
    duration: f64,
    reels: BTreeMap<Part, Reel>,
    position: f64,
    at: Nanos,
    playing: bool,
    waiting: bool,
    next: u64,
    actions: Vec<Action>,
}

impl Playback {
    /// Of a recording's length.
    pub fn new(duration: f64) -> Self {
        Playback { duration, reels: BTreeMap::new(), position: 0.0, at: 0, playing: false, waiting: false, next: 0, actions: Vec::new() }
    }

    /// What is to be done since the last call.
    pub fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Makes the parts those with a place in the recording; of 360° video also the length of a GoP, ms.
    pub fn set_parts(&mut self, parts: &BTreeMap<Part, (Timeline, Option<f64>)>) {
        let actions = &mut self.actions;
        self.reels.retain(|part, reel| {
            let keep = parts.get(part).is_some_and(|(t, _)| *t == reel.timeline);
            if !keep {
                actions.extend(reel.request.take().map(Action::Cancel));
            }
            keep
        });
        for (part, (timeline, gop)) in parts {
            self.reels.entry(*part).or_insert_with(|| {
                let mut reel = Reel::new(*timeline, *gop);
                reel.begin(self.position);
                reel
            });
        }
    }

    /// Place in the recording.
    pub fn position(&self) -> f64 {
        self.position
    }

    /// Whether it moves on.
    pub fn playing(&self) -> bool {
        self.playing
    }

    /// Whether what is due has not arrived.
    pub fn waiting(&self) -> bool {
        self.waiting
    }

    /// Moves on; from the beginning, where it stands at the end.
    pub fn play(&mut self, now: Nanos) {
        if self.position >= self.duration {
            self.seek(now, 0.0);
        }
        self.playing = true;
        self.at = now;
    }

    /// Stands still.
    pub fn pause(&mut self) {
        self.playing = false;
    }

    /// Goes to a place.
    pub fn seek(&mut self, now: Nanos, media: f64) {
        self.position = if media.is_nan() { 0.0 } else { media.clamp(0.0, self.duration) };
        self.at = now;
        for reel in self.reels.values_mut() {
            self.actions.extend(reel.request.take().map(Action::Cancel));
            reel.begin(self.position);
        }
    }

    /// Nothing more is wanted.
    pub fn stop(&mut self) {
        self.playing = false;
        for reel in self.reels.values_mut() {
            self.actions.extend(reel.request.take().map(Action::Cancel));
        }
    }

    /// An object of a fetch arrived.
    pub fn object(&mut self, id: u64, group: u64, payload: Vec<u8>) {
        let Some(reel) = self.reels.values_mut().find(|r| r.request == Some(id)) else { return };
        reel.bytes += payload.len();
        match &mut reel.under_way {
            Some(f) if f.group == group => f.objects.push(payload),
            _ => {
                reel.finish();
                let at = reel.timeline.media_at(group);
                reel.until = reel.until.max(at);
                reel.under_way = Some(Waiting { at, group, objects: vec![payload] });
            }
        }
        if reel.bytes > MOST_BYTES {
            // More than any second of a recording: what came is shown, the rest asked for again.
            self.actions.extend(reel.request.take().map(Action::Cancel));
            if let Some(f) = reel.under_way.take() {
                reel.bytes -= f.objects.iter().map(Vec::len).sum::<usize>().min(reel.bytes);
            }
        }
    }

    /// An object of a fetch arrived that does not wait here.
    pub fn streamed(&mut self, id: u64, group: u64) {
        if let Some(reel) = self.reels.values_mut().find(|r| r.request == Some(id)) {
            reel.until = reel.until.max(reel.timeline.media_at(group));
        }
    }

    /// All of a fetch is here.
    pub fn fetched(&mut self, id: u64) {
        let Some(reel) = self.reels.values_mut().find(|r| r.request == Some(id)) else { return };
        reel.finish();
        reel.request = None;
        reel.until = reel.end;
        reel.window = WINDOW;
    }

    /// A fetch failed. beyond: as it lies behind the end.
    pub fn failed(&mut self, now: Nanos, id: u64, beyond: bool) {
        let duration = self.duration;
        let Some(reel) = self.reels.values_mut().find(|r| r.request == Some(id)) else { return };
        reel.request = None;
        // What came is kept, and the rest asked for again; what is behind the end will not come.
        if let Some(group) = reel.under_way.as_ref().map(|f| f.group) {
            reel.until = reel.timeline.media_at(group + 1);
        }
        reel.finish();
        if beyond {
            reel.until = duration + 1.0;
        }
        reel.retry = now + RETRY;
    }

    /// To be called often: moves on, fetches ahead, shows what is due.
    pub fn tick(&mut self, now: Nanos) {
        let duration = self.duration;
        let ended = |r: &Reel| r.until > duration;
        self.waiting = self.reels.values().any(|r| !r.primed && !ended(r));
        if self.playing {
            let passed = (now - self.at) as f64 / 1e6;
            let wanted = if self.waiting { self.position } else { self.position + passed };
            let here = self.reels.values().filter(|r| !ended(r)).map(|r| r.until.max(self.position));
            let here = here.fold(duration, f64::min);
            self.position = wanted.min(here);
            self.waiting |= wanted > here && here < duration;
            if self.position >= duration {
                self.playing = false;
            }
        }
        self.at = now;
        let position = self.position;
        for (part, r) in &mut self.reels {
            r.primed |= r.streamed && (r.until > position || ended(r));
            let full = r.until - position > AHEAD || r.bytes > MOST_BYTES / 2;
            if r.request.is_none() && !ended(r) && !full && now >= r.retry {
                let id = self.next;
                self.next += 1;
                r.end = r.until + r.window;
                let first = r.timeline.group_at(r.until);
                let last = r.timeline.group_at(r.end).saturating_sub(1);
                if last < first {
                    r.until = r.end; // steps longer than the window: nothing begins in it
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

/// Shows what is due; after a seek, the frame that is nearest.
fn show(camera: u16, r: &mut Reel, position: f64, actions: &mut Vec<Action>) {
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
        if i + 1 == due {
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

    /// Plays a recording of a frame every 33 ms against a relay that answers at once; what was shown.
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
    fn waits_for_what_does_not_come() {
        let mut s = Stage::new(60_000.0);
        s.p.play(0);
        s.run(300, true);
        let reached = s.p.position();
        s.run(5000, false);
        assert!(s.p.waiting() && s.p.playing() && s.p.position() < reached + 3000.0);
    }

    /// 360° video in GoPs of a second, of which all arrives at once.
    #[test]
    fn a_sphere_is_fetched_from_the_gop_that_holds_the_place() {
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

    #[test]
    fn seek_to_nonsense() {
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
        assert!(p.reels[&Part::Camera(0)].bytes <= MOST_BYTES + (1 << 20));
        assert_eq!(p.take(), [Action::Cancel(id)]);
    }
}
