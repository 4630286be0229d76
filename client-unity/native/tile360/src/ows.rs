//! Observation-weighted sorting: selects tiles, qualities and sending order to minimize the
//! viewport's expected distortion within a budget.

/// The selection problem for one or several consecutive GoPs.
#[derive(Debug, Clone, Default)]
pub struct Problem {
    /// Qualities per tile.
    pub qualities: usize,
    /// Expected share of the viewport, per tile.
    pub seen: Vec<f64>,
    /// Distortion if the tile does not arrive, per tile.
    pub miss: Vec<f64>,
    /// Size at [tile·qualities + quality]; not offered unless positive.
    pub bytes: Vec<f64>,
    /// Distortion, indexed like bytes.
    pub distortion: Vec<f64>,
    /// Maximum total size, bytes.
    pub budget: f64,
    /// Distribution of the bytes deliverable before the deadline: equally probable values in
    /// ascending order. Empty: unlimited.
    pub capacity: Vec<f64>,
}

/// The selection.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Quality per tile; None: not sent.
    pub quality: Vec<Option<usize>>,
    /// Selected tiles in sending order.
    pub order: Vec<usize>,
    /// Total size of the selected tiles.
    pub bytes: f64,
    /// Sum of seen × distortion if all tiles arrive in time.
    pub loss: f64,
    /// Lower bound on the loss of any selection within the budget.
    pub bound: f64,
    /// Expected loss, accounting for late tiles.
    pub expected: f64,
}

/// Default limit of search states: enough to find and prove the optimum for most problems of up to
/// 32 tiles.
pub const REFINE: usize = 8192;
/// Maximum number of tiles for an exhaustive search.
const REFINE_TILES: usize = 128;

/// A vertex of the lower convex hull of a tile's loss over size. At the first vertex of each tile,
/// the tile is not sent.
#[derive(Debug, Clone, Copy)]
struct Corner {
    bytes: f64,
    loss: f64,
    quality: Option<usize>,
}

impl Problem {
    fn offered(&self, i: usize) -> bool {
        self.bytes[i] > 0.0 && self.bytes[i].is_finite() && self.distortion[i].is_finite()
    }

    fn hull(&self, t: usize) -> Vec<Corner> {
        let of = |q: usize| t * self.qualities + q;
        let corner =
            |q| Corner { bytes: self.bytes[of(q)], loss: self.seen[t] * self.distortion[of(q)], quality: Some(q) };
        let mut points: Vec<_> = (0..self.qualities).filter(|q| self.offered(of(*q))).map(corner).collect();
        points.sort_by(|a, b| a.bytes.total_cmp(&b.bytes).then(a.loss.total_cmp(&b.loss)));
        let mut hull = vec![Corner { bytes: 0.0, loss: self.seen[t] * self.miss[t], quality: None }];
        for c in points {
            if c.loss >= hull[hull.len() - 1].loss {
                continue;
            }
            while let [.., a, b] = hull[..] {
                if (b.loss - c.loss) * (b.bytes - a.bytes) < (a.loss - b.loss) * (c.bytes - b.bytes) {
                    break;
                }
                hull.pop();
            }
            hull.push(c);
        }
        hull
    }

    /// Probability that data ending at this byte of the GoP misses the deadline.
    fn late(&self, bytes: f64) -> f64 {
        match self.capacity.len() {
            0 => 0.0,
            n => self.capacity.partition_point(|c| *c < bytes) as f64 / n as f64,
        }
    }
}

/// Sorts indexes by descending value, rounded to single precision. Equal values keep their order.
fn descending<T>(mut keys: Vec<(f64, T)>) -> Vec<T> {
    keys.sort_by(|a, b| (b.0 as f32 + 0.0).total_cmp(&(a.0 as f32 + 0.0)));
    keys.into_iter().map(|k| k.1).collect()
}

/// Applies the hulls' steps by descending slope while they fit. Sets quality, loss and bound;
/// returns the slope of the first step that does not fit.
fn greedy(p: &Problem, hulls: &[Vec<Corner>], plan: &mut Plan) -> f64 {
    let steep = |t: usize, i: usize| {
        let (a, b) = (hulls[t][i - 1], hulls[t][i]);
        (a.loss - b.loss) / (b.bytes - a.bytes)
    };
    let steps = hulls.iter().enumerate().flat_map(|(t, h)| (1..h.len()).map(move |i| (t, i)));
    let steps = descending(steps.map(|(t, i)| (steep(t, i), (t, i))).collect());
    let mut level = vec![0; hulls.len()];
    let (mut bytes, mut loss) = (0.0, hulls.iter().map(|h| h[0].loss).sum::<f64>());
    let mut slope = None;
    for (t, i) in steps {
        if level[t] != i - 1 {
            continue; // the tile's previous step did not fit
        }
        let (a, b) = (hulls[t][i - 1], hulls[t][i]);
        if bytes + (b.bytes - a.bytes) > p.budget {
            slope.get_or_insert(steep(t, i));
            continue;
        }
        bytes += b.bytes - a.bytes;
        loss += b.loss - a.loss;
        level[t] = i;
    }
    plan.quality = level.iter().zip(hulls).map(|(i, h)| h[*i].quality).collect();
    (plan.loss, plan.bound) = (loss, loss);
    let Some(slope) = slope else { return 0.0 };
    // Lagrangian dual at this price per byte: the optimum if tiles could be split between
    // qualities.
    let mut bound = -slope * p.budget;
    for h in hulls {
        bound += h.iter().map(|c| c.loss + slope * c.bytes).fold(f64::INFINITY, f64::min);
    }
    plan.bound = loss.min(bound);
    slope
}

/// A quality of a tile, and its excess over the tile's minimum of loss + slope·bytes.
#[derive(Clone, Copy)]
struct Choice {
    bytes: f64,
    excess: f64,
    quality: Option<usize>,
}

/// A partial selection, for the tiles so far.
#[derive(Clone, Copy)]
struct State {
    bytes: f64,
    excess: f64,
    loss: f64,
    previous: usize,
    quality: Option<usize>,
}

/// Searches for a better selection than the greedy one, and raises the bound if it proves a higher
/// one.
fn search(p: &Problem, plan: &mut Plan, slope: f64, refine: usize) {
    let slack = plan.loss - plan.bound;
    let mut quality = plan.quality.clone();
    let mut open = Vec::new();
    let (mut fixed, mut least) = (0.0, 0.0);
    for (t, seen) in p.seen.iter().enumerate() {
        let mut all = vec![Choice { bytes: 0.0, excess: seen * p.miss[t], quality: None }];
        for q in 0..p.qualities {
            let i = t * p.qualities + q;
            if p.offered(i) {
                all.push(Choice {
                    bytes: p.bytes[i],
                    excess: seen * p.distortion[i] + slope * p.bytes[i],
                    quality: Some(q),
                });
            }
        }
        let base = all.iter().map(|o| o.excess).fold(f64::INFINITY, f64::min);
        all.iter_mut().for_each(|o| o.excess -= base);
        all.retain(|o| o.excess < slack);
        let smallest = all.iter().map(|o| o.bytes).fold(f64::INFINITY, f64::min);
        if let [only] = all[..] {
            fixed += smallest;
            quality[t] = only.quality;
            continue;
        }
        open.push((t, all, smallest));
        least += smallest;
    }
    let width = (refine / open.len().max(1)).max(1);
    let mut states = vec![State { bytes: fixed, excess: 0.0, loss: -slope * fixed, previous: 0, quality: None }];
    let (mut exact, mut from) = (true, 0);
    for (_, options, own) in &open {
        let to = states.len();
        least -= own;
        let mut next = Vec::new();
        for (i, s) in states.iter().enumerate().skip(from) {
            for o in options {
                let (bytes, excess) = (s.bytes + o.bytes, s.excess + o.excess);
                if bytes + least <= p.budget && excess < slack {
                    next.push(State { bytes, excess, loss: excess - slope * bytes, previous: i, quality: o.quality });
                }
            }
        }
        // Keep states that no other dominates in both size and loss.
        next.sort_by(|a, b| {
            let rest = a.previous.cmp(&b.previous).then(a.quality.cmp(&b.quality));
            a.bytes.total_cmp(&b.bytes).then(a.loss.total_cmp(&b.loss)).then(rest)
        });
        let mut best = f64::INFINITY;
        next.retain(|s| {
            let better = s.loss < best;
            best = best.min(s.loss);
            better
        });
        if next.len() > width {
            next.sort_by(|a, b| a.excess.total_cmp(&b.excess).then(a.bytes.total_cmp(&b.bytes)));
            next.truncate(width);
            exact = false;
        }
        states.append(&mut next);
        from = to;
    }
    let (mut best, mut at) = (plan.loss, None);
    for (i, s) in states.iter().enumerate().skip(from) {
        let loss = plan.bound + s.loss + slope * p.budget;
        if loss < best {
            (best, at) = (loss, Some(i));
        }
    }
    if let Some(mut at) = at {
        for (t, _, _) in open.iter().rev() {
            quality[*t] = states[at].quality;
            at = states[at].previous;
        }
        plan.quality = quality;
    }
    plan.loss = best;
    if exact {
        plan.bound = best;
    }
}

/// Solves the problem. `refine` is the maximum number of search states; 0 disables the search.
pub fn ows(p: &Problem, refine: usize) -> Plan {
    let hulls: Vec<_> = (0..p.seen.len()).map(|t| p.hull(t)).collect();
    let mut plan = Plan::default();
    let slope = greedy(p, &hulls, &mut plan);
    if refine > 0 && hulls.len() <= REFINE_TILES && plan.loss > plan.bound {
        search(p, &mut plan, slope, refine);
    }
    let sent = plan.quality.iter().enumerate().filter_map(|(t, q)| {
        let i = t * p.qualities + (*q)?;
        Some((p.seen[t] * (p.miss[t] - p.distortion[i]) / p.bytes[i], t))
    });
    plan.order = descending(sent.collect());
    let found = plan.loss;
    (plan.loss, plan.expected) = (0.0, 0.0);
    for (t, _) in plan.quality.iter().enumerate().filter(|(_, q)| q.is_none()) {
        plan.loss += p.seen[t] * p.miss[t];
        plan.expected += p.seen[t] * p.miss[t];
    }
    for t in &plan.order {
        let Some(q) = plan.quality[*t] else { continue };
        let i = t * p.qualities + q;
        plan.bytes += p.bytes[i];
        let late = p.late(plan.bytes);
        plan.loss += p.seen[*t] * p.distortion[i];
        plan.expected += p.seen[*t] * ((1.0 - late) * p.distortion[i] + late * p.miss[*t]);
    }
    // `found` and `plan.loss` are equal up to rounding.
    plan.bound = if found <= plan.bound { plan.loss } else { plan.bound.min(plan.loss) };
    plan
}
