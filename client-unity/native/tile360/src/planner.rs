//! Combines gaze prediction, throughput prediction and tile selection.

use crate::capacity::Capacity;
use crate::gaze::Gaze;
use crate::ows::{ows, Plan, Problem, REFINE};
use crate::sphere::View;

/// Sizes and distortions of a GoP's tiles.
#[derive(Debug, Clone, Default)]
pub struct Gop {
    /// Start, in seconds on the media timeline.
    pub start: f64,
    /// Duration, seconds.
    pub duration: f64,
    /// Distortion of the low-resolution base, per tile.
    pub miss: Vec<f64>,
    /// Size at [tile·qualities + quality].
    pub bytes: Vec<f64>,
    /// Distortion, indexed like bytes.
    pub distortion: Vec<f64>,
    /// Quality of each tile that has arrived or been requested; may be empty if there is none.
    pub have: Vec<Option<usize>>,
}

/// A tile to request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Index into the GoPs passed to `plan`.
    pub gop: usize,
    /// Tile index.
    pub tile: usize,
    /// Quality index; 0 is the lowest.
    pub quality: usize,
}

/// Number of gaze predictions per GoP.
const MOMENTS: usize = 3;
/// Remaining share of a GoP below which its tiles are not worth requesting.
const MIN_REST: f64 = 0.25;
/// Percentile of the predicted throughput used as budget.
pub const BUDGET_PERCENTILE: f64 = 10.0;
/// Percentile of the predicted throughput up to which further tiles are requested.
const SPARE_PERCENTILE: f64 = 50.0;

/// Decides which tiles to request.
#[derive(Debug, Clone)]
pub struct Planner {
    /// The viewport.
    pub view: View,
    /// Qualities per tile.
    pub qualities: usize,
    /// Minimum time from request to display, seconds.
    pub latency: f64,
    /// Gaze prediction.
    pub gaze: Gaze,
    /// Throughput prediction.
    pub capacity: Capacity,
    /// The latest selection within the budget.
    pub chosen: Plan,
}

impl Planner {
    /// A planner without data on viewer and network.
    pub fn new(view: View, qualities: usize, latency: f64) -> Self {
        Planner {
            view,
            qualities,
            latency,
            gaze: Gaze::default(),
            capacity: Capacity::default(),
            chosen: Plan::default(),
        }
    }

    /// Returns the tiles to request, in sending order. `gops` are the GoPs that are not over, the one
    /// on display first; `seconds` is the time until the last of them is due; `pending` is the number
    /// of bytes requested but not received.
    pub fn plan(&mut self, gops: &[Gop], seconds: f64, pending: f64) -> Vec<Request> {
        let tiles = self.view.grid().tiles();
        let mut p = Problem { qualities: self.qualities, ..Problem::default() };
        for g in gops {
            p.seen.append(&mut self.expect(g));
            for t in 0..tiles {
                let have = g.have.get(t).copied().flatten();
                p.miss.push(have.map_or(g.miss[t], |q| g.miss[t].min(g.distortion[t * self.qualities + q])));
                // Do not offer the quality that has arrived or been requested.
                p.bytes.extend((0..self.qualities).map(|q| {
                    if have == Some(q) {
                        0.0
                    } else {
                        g.bytes[t * self.qualities + q]
                    }
                }));
            }
            p.distortion.extend_from_slice(&g.distortion);
        }
        p.budget = self.capacity.percentile(BUDGET_PERCENTILE) * seconds - pending;
        p.capacity = self.capacity.distribution(seconds);
        p.capacity.iter_mut().for_each(|c| *c -= pending);
        self.chosen = ows(&p, REFINE);
        // Append the tiles beyond the budget. If the network cannot carry them, only they are late.
        for i in &self.chosen.order {
            p.bytes[i * self.qualities..(i + 1) * self.qualities].fill(0.0);
        }
        p.budget = self.capacity.percentile(SPARE_PERCENTILE) * seconds - pending - self.chosen.bytes;
        let spare = ows(&p, REFINE);
        let requests = |plan: &Plan| {
            let request = |i: &usize| Some(Request { gop: i / tiles, tile: i % tiles, quality: plan.quality[*i]? });
            plan.order.iter().filter_map(request).collect::<Vec<_>>()
        };
        [requests(&self.chosen), requests(&spare)].concat()
    }

    /// Expected viewport share of each tile, over the time in which tiles requested now can be
    /// shown.
    fn expect(&self, g: &Gop) -> Vec<f64> {
        let (now, end) = (self.gaze.last().t, g.start + g.duration);
        let from = g.start.max(now + self.latency);
        let rest = (end - from) / g.duration;
        let mut looks = Vec::new();
        if rest >= MIN_REST {
            for i in 0..MOMENTS {
                let at = from + (end - from) * (i as f64 + 0.5) / MOMENTS as f64;
                self.gaze.looks((at - now).max(0.0), rest / MOMENTS as f64, &mut looks);
            }
        }
        self.view.expect(&looks).0
    }
}
