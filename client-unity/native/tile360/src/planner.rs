//! Gaze, capacity and sorting together.

use crate::capacity::Capacity;
use crate::gaze::Gaze;
use crate::ows::{ows, Plan, Problem, REFINE};
use crate::sphere::View;

/// What is known of one GoP of all tiles.
#[derive(Debug, Clone, Default)]
pub struct Gop {
    /// Seconds on the medium's timeline.
    pub start: f64,
    /// Seconds.
    pub duration: f64,
    /// Distortion of the low-resolution sphere in each tile.
    pub miss: Vec<f64>,
    /// At [tile·qualities + quality].
    pub bytes: Vec<f64>,
    /// As bytes.
    pub distortion: Vec<f64>,
    /// The quality of each tile that is there or under way. Empty: none of any.
    pub have: Vec<Option<usize>>,
}

/// A tile to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Index in the GoPs planned for.
    pub gop: usize,
    /// Its number.
    pub tile: usize,
    /// 0 is the worst.
    pub quality: usize,
}

/// The gaze is expected at so many moments of a GoP.
const MOMENTS: usize = 3;
/// Share of a GoP below which it is not worth asking for its tiles.
const LEAST_REST: f64 = 0.25;
/// Percentile of the predicted capacity that is planned with.
pub const BUDGET_PERCENTILE: f64 = 10.0;
/// That up to which further tiles are asked for.
const SPARE_PERCENTILE: f64 = 50.0;

/// Decides what to ask for.
#[derive(Debug, Clone)]
pub struct Planner {
    /// What is seen at once.
    pub view: View,
    /// Of a tile.
    pub qualities: usize,
    /// How long after a request its tile can be shown at the earliest, seconds.
    pub latency: f64,
    /// Where the viewer looks.
    pub gaze: Gaze,
    /// What the network carries.
    pub capacity: Capacity,
    /// What was chosen last within the budget.
    pub chosen: Plan,
}

impl Planner {
    /// A planner that knows nothing of viewer and network so far.
    pub fn new(view: View, qualities: usize, latency: f64) -> Self {
        Planner { view, qualities, latency, gaze: Gaze::default(), capacity: Capacity::default(), chosen: Plan::default() }
    }

    /// Decides which tiles to ask for, in the order in which to have them sent. gops: those whose time is not over, the
    /// one being shown first. seconds: until the last of them must be there. pending: bytes asked for that are to come.
    pub fn plan(&mut self, gops: &[Gop], seconds: f64, pending: f64) -> Vec<Request> {
        let tiles = self.view.grid().tiles();
        let mut p = Problem { qualities: self.qualities, ..Problem::default() };
        for g in gops {
            p.seen.append(&mut self.expect(g));
            for t in 0..tiles {
                let have = g.have.get(t).copied().flatten();
                p.miss.push(have.map_or(g.miss[t], |q| g.miss[t].min(g.distortion[t * self.qualities + q])));
                // What is there is no longer offered.
                p.bytes.extend((0..self.qualities).map(|q| if have == Some(q) { 0.0 } else { g.bytes[t * self.qualities + q] }));
            }
            p.distortion.extend_from_slice(&g.distortion);
        }
        p.budget = self.capacity.percentile(BUDGET_PERCENTILE) * seconds - pending;
        p.capacity = self.capacity.distribution(seconds);
        p.capacity.iter_mut().for_each(|c| *c -= pending);
        self.chosen = ows(&p, REFINE);
        // What it left out follows: if the network does not carry that, it is late, and nothing before it is.
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

    /// The share of the viewport that each tile is expected to fill while what is asked for now can be shown.
    fn expect(&self, g: &Gop) -> Vec<f64> {
        let (now, end) = (self.gaze.last().t, g.start + g.duration);
        let from = g.start.max(now + self.latency);
        let rest = (end - from) / g.duration;
        let mut looks = Vec::new();
        if rest >= LEAST_REST {
            for i in 0..MOMENTS {
                let at = from + (end - from) * (i as f64 + 0.5) / MOMENTS as f64;
                self.gaze.looks((at - now).max(0.0), rest / MOMENTS as f64, &mut looks);
            }
        }
        self.view.expect(&looks).0
    }
}
