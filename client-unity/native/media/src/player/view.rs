//! Chooses the cameras' qualities by the viewer's pose, while the session plays live.

use std::collections::BTreeMap;

use moqt::{Nanos, Session};
use viewselect::{ahead, budget, choose_within, unknown_error, worth, Cost, Counts, Level, Quality, Sample, View};

use super::{Player, MS};
use crate::catalog::Track;

/// Time between choices.
const INTERVAL: Nanos = 500 * MS;
/// Without a view for this long, the choice stays.
const FRESH: Nanos = 2000 * MS;
/// Time until a change of quality is visible, s, and how fast viewers turn, rad/s.
const CHANGE: f64 = 0.5;
const TURN: f64 = 1.5;

/// The choice of qualities and its state.
#[derive(Debug, Default)]
pub(super) struct ViewSelection {
    view: Option<(View, Nanos)>,
    /// Maximum bit/s of all cameras; 0 lowers and raises it by lost frames.
    budget: f64,
    /// View of the previous choice.
    before: Option<(View, Nanos)>,
    chosen_at: Option<Nanos>,
    level: Level,
    current: Option<Vec<usize>>,
    /// Name of the chosen quality by camera; others have their best.
    pub(super) chosen: BTreeMap<u16, String>,
}

impl ViewSelection {
    /// Sets the viewer's eye.
    pub(super) fn look(&mut self, now: Nanos, view: View, budget: f64) {
        (self.view, self.budget) = (Some((view, now)), budget);
    }

    /// The views that the viewer may have when a change becomes visible.
    fn ahead(&mut self, view: View, at: Nanos) -> [View; 3] {
        let mut velocity = [0.0; 3];
        if let Some((from, then)) = self.before.filter(|(_, then)| at > *then) {
            let (a, b) = (place(&from), place(&view));
            velocity = [0, 1, 2].map(|i| (b[i] - a[i]) / ((at - then) as f64 / 1e9));
        }
        self.before = Some((view, at));
        ahead(&view, velocity, TURN, CHANGE)
    }
}

/// The eye's position in studio space.
fn place(v: &View) -> [f64; 3] {
    let (r, t) = (&v.eye.r, &v.eye.t);
    [0, 1, 2].map(|i| -(r[i] * t[0] + r[3 + i] * t[1] + r[6 + i] * t[2]))
}

/// Cost of each level of quality.
fn costs(lists: &[Vec<&Track>]) -> Vec<Cost> {
    let levels = lists.iter().map(Vec::len).max().unwrap_or(0);
    let at = |level: usize| {
        let tracks = lists.iter().filter_map(move |list| list.get(level).or(list.last()));
        tracks.fold(Cost::default(), |c, t| Cost {
            points: c.points + f64::from(t.max_points),
            bitrate: c.bitrate + t.bitrate as f64,
        })
    };
    (0..levels).map(at).collect()
}

impl Player {
    /// Chooses the qualities of the cameras subscribed without one, and changes to them.
    pub(super) fn select_by_view(&mut self, now: Nanos, s: &mut Session) {
        let Some((view, at)) = self.view.view.filter(|(_, at)| now - at <= FRESH) else { return };
        if self.view.chosen_at.is_some_and(|t| now < t + INTERVAL) || self.playback.is_some() {
            return;
        }
        let Some(catalog) = &self.catalog else { return };
        let automatic = |n: &u16| self.selection(*n).is_some_and(|s| s.quality.is_none());
        let cameras: Vec<u16> = catalog.cameras().into_iter().filter(automatic).collect();
        let of = |n: &u16| catalog.tracks.iter().filter(|t| t.camera == *n).collect();
        let lists: Vec<Vec<&Track>> = cameras.iter().map(of).collect();
        if cameras.is_empty() {
            return;
        }
        let quality = |(i, t): (usize, &&Track)| Quality {
            rate: t.bitrate as f64,
            error: t.error.unwrap_or_else(|| unknown_error(i)),
        };
        let options: Vec<Vec<Quality>> = lists.iter().map(|l| l.iter().enumerate().map(quality).collect()).collect();
        let known = lists.iter().flatten().all(|t| t.bitrate > 0);
        let surfaces = self.surfaces(&cameras);
        let counts = self.shared.counts();
        let v = &mut self.view;
        v.chosen_at = Some(now);
        let eyes = v.ahead(view, at);
        let limited = v.budget > 0.0;
        let level = if limited { 0 } else { v.level.update(now, counts, &costs(&lists)) };
        let limit = if limited { v.budget } else { budget(&options, level) };
        let worths = match surfaces {
            Some(s) => worth(&s, &eyes),
            None if limited && v.chosen.is_empty() => vec![1.0; cameras.len()],
            None => Vec::new(),
        };
        let choice = if worths.is_empty() || !known {
            if limited {
                return; // keeps the choice until all surfaces are known
            }
            v.current = None;
            lists.iter().map(|l| level.min(l.len().saturating_sub(1))).collect()
        } else if limit >= budget(&options, 0) {
            v.current = None; // everything fits
            vec![0; cameras.len()]
        } else {
            let choice = choose_within(&worths, &options, limit, v.current.as_deref());
            v.current = Some(choice.clone());
            choice
        };
        let named = cameras.iter().zip(&lists).zip(&choice);
        let chosen: BTreeMap<_, _> = named.filter_map(|((n, l), q)| Some((*n, l.get(*q)?.quality.clone()))).collect();
        if chosen != v.chosen {
            v.chosen = chosen;
            self.apply_catalog(now, s);
        }
    }

    /// The cameras' surface patches in studio space; None if a camera has none.
    fn surfaces(&self, cameras: &[u16]) -> Option<Vec<Vec<Sample>>> {
        let all = self.shared.cameras();
        let of = |n: &u16| {
            let pose = self.poses.get(n).or(self.feeds.get(n).map(|f| &f.source.track.pose))?;
            Some(all.get(n)?.patches.as_ref()?.iter().map(|p| p.moved(pose)).collect())
        };
        cameras.iter().map(of).collect()
    }
}

impl crate::shared::Shared {
    /// The frame counts that decide on the level.
    fn counts(&self) -> Counts {
        let (frames, lost) = self.measures().frames(self.now());
        let unshown: u64 = self.cameras().values().map(|c| c.counters.skipped).sum();
        Counts { frames: frames + unshown, unshown, lost: lost.saturating_sub(unshown) }
    }
}
