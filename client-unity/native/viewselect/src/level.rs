/// Nanoseconds.
type Nanos = i64;

const SECOND: Nanos = 1_000_000_000;
/// Minimum time and number of frames to observe before a change.
const WATCH: Nanos = 4 * SECOND;
const ENOUGH: u64 = 20;
/// The level is lowered if more than these shares of the frames are not shown or lost. It is not
/// raised while either share exceeds FEW.
const MANY_UNSHOWN: f64 = 0.6;
const MANY_LOST: f64 = 0.2;
const FEW: f64 = 0.05;
/// Time without trouble before the next better level is tried. It doubles with each failed try.
const RETRY_AFTER: Nanos = 15 * SECOND;
const MAX_RETRY_AFTER: Nanos = 240 * SECOND;

/// Frame counts since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Received.
    pub frames: u64,
    /// Of these, dropped because decoding or drawing was busy.
    pub unshown: u64,
    /// Lost in transit.
    pub lost: u64,
}

/// Cost of a level over all cameras.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Points per frame.
    pub points: f64,
    /// bit/s; 0 = unknown.
    pub bitrate: f64,
}

/// Lowers and raises the quality of a session by the share of frames that are not shown. Level 0 is
/// the best quality.
#[derive(Debug, Default)]
pub struct Level {
    now: usize,
    since: Option<(Nanos, Counts)>,
    good: Option<Nanos>,
    raised: Option<Nanos>,
    patience: Nanos,
}

impl Level {
    /// Adds the counts at a time and returns the level. `costs` lists the cost of each level, best
    /// first.
    pub fn update(&mut self, now: Nanos, counts: Counts, costs: &[Cost]) -> usize {
        self.now = self.now.min(costs.len().saturating_sub(1));
        let Some((at, before)) = self.since else {
            (self.since, self.patience) = (Some((now, counts)), RETRY_AFTER);
            return self.now;
        };
        let frames = counts.frames.saturating_sub(before.frames);
        let lost = counts.lost.saturating_sub(before.lost);
        if now - at < WATCH || frames + lost < ENOUGH {
            return self.now;
        }
        let unshown = counts.unshown.saturating_sub(before.unshown) as f64 / frames.max(1) as f64;
        let missing = lost as f64 / (frames + lost) as f64;
        self.since = Some((now, counts));
        if unshown > MANY_UNSHOWN && self.lower(now, costs, |c| c.points)
            || missing > MANY_LOST && self.lower(now, costs, |c| c.bitrate)
            || unshown > FEW
            || missing > FEW
        {
            self.good = None;
        } else {
            let good = *self.good.get_or_insert(at);
            if self.now > 0 && now - good >= self.patience {
                self.now -= 1;
                (self.raised, self.good) = (Some(now), None);
            }
        }
        self.now
    }

    /// Selects the best level with a lower or unknown cost, and reports whether there is one.
    fn lower(&mut self, now: Nanos, costs: &[Cost], of: impl Fn(&Cost) -> f64) -> bool {
        let Some(present) = costs.get(self.now).map(&of) else { return false };
        let cheaper = |c: &Cost| of(c) < present || of(c) == 0.0;
        let Some(i) = costs[self.now + 1..].iter().position(cheaper) else { return false };
        if self.raised.is_some_and(|r| now - r < 2 * RETRY_AFTER) {
            self.patience = (2 * self.patience).min(MAX_RETRY_AFTER);
        }
        self.now += i + 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of TestLevel in internal/viewselect.
    #[test]
    fn falls_after_losses_and_rises_again() {
        let cost = |points, bitrate| Cost { points, bitrate };
        let costs = [cost(300.0, 80e6), cost(300.0, 8e6), cost(300.0, 4e6), cost(75.0, 2e6)];
        let (mut l, mut now, mut counts) = (Level::default(), 100 * SECOND, Counts::default());
        let mut level = l.update(now, counts, &costs);
        let steps = [
            (60, 0.0, 0.0, 0),
            (4, 0.0, 0.5, 1),
            (4, 0.8, 0.0, 3),
            (12, 0.0, 0.1, 3),
            (16, 0.0, 0.0, 2),
            (4, 0.0, 0.5, 3),
            (28, 0.0, 0.0, 3),
            (4, 0.0, 0.0, 2),
            (4, 0.0, 0.5, 3),
            (8, 0.0, 1.0, 3),
        ];
        for (i, (seconds, unshown, lost, want)) in steps.into_iter().enumerate() {
            for _ in 0..seconds {
                now += SECOND;
                counts.frames += (30.0 * (1.0 - lost)) as u64;
                counts.unshown += (30.0 * (1.0 - lost) * unshown) as u64;
                counts.lost += (30.0 * lost) as u64;
                level = l.update(now, counts, &costs);
            }
            assert_eq!(level, want, "step {i}");
        }
        assert_eq!(l.update(now, counts, &costs[..2]), 1);
        assert_eq!(l.update(now, counts, &[]), 0);

        // No level has fewer points: losses lower it even if few frames are shown.
        let (mut l, costs) = (Level::default(), &costs[..3]);
        l.update(now, Counts::default(), costs);
        let counts = Counts { frames: 60, unshown: 48, lost: 60 };
        assert_eq!(l.update(now + 4 * SECOND, counts, costs), 1);
    }
}
