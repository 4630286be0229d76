use tile360::{ows, Problem, REFINE};

/// One quality of a camera.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Quality {
    /// bit/s.
    pub rate: f64,
    /// Mean squared error of the rendered picture.
    pub error: f64,
}

/// Least worth of a camera: a viewer may turn to any of them.
const FLOOR: f64 = 0.02;
/// Error of a camera that is not sent, far above that of any quality.
const MISSING: f64 = 1e6;
/// Part of the error that a new choice must avoid to replace the present one.
const KEEP: f64 = 0.05;

/// A choice of qualities.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Index of each camera's quality; None if not even the cheapest fits.
    pub quality: Vec<Option<usize>>,
    /// Bound on the excess over the optimum, as a fraction.
    pub gap: f64,
}

/// Chooses each camera's quality to minimize the sum of worth × error at a total of at most `budget`
/// bit/s. A quality of rate 0 is not offered. `current`, the present choice, is kept if it is within
/// the budget and no other choice avoids 5 % of its error.
pub fn choose(worths: &[f64], options: &[Vec<Quality>], budget: f64, current: Option<&[Option<usize>]>) -> Choice {
    let qualities = options.iter().map(Vec::len).max().unwrap_or(0);
    let all = || options.iter().flat_map(|list| (0..qualities).map(|q| list.get(q).copied().unwrap_or_default()));
    let p = Problem {
        qualities,
        seen: worths.iter().map(|w| w.max(FLOOR)).collect(),
        miss: vec![MISSING; worths.len()],
        bytes: all().map(|o| o.rate).collect(),
        distortion: all().map(|o| o.error).collect(),
        budget,
        capacity: Vec::new(),
    };
    let plan = ows(&p, REFINE);
    let gap = |loss: f64| (loss - plan.bound).max(0.0) / plan.bound.max(1e-12);
    if let Some((current, present)) = current.and_then(|c| Some((c, loss(&p, c)?))) {
        if plan.loss > present * (1.0 - KEEP) {
            return Choice { quality: current.to_vec(), gap: gap(present) };
        }
    }
    Choice { gap: gap(plan.loss), quality: plan.quality }
}

/// The weighted error of a choice; None if it exceeds the budget or is not one of these cameras.
fn loss(p: &Problem, choice: &[Option<usize>]) -> Option<f64> {
    let (mut rate, mut loss) = (0.0, 0.0);
    for (i, q) in choice.iter().enumerate() {
        let seen = p.seen.get(i)?;
        match *q {
            Some(q) if q >= p.qualities => return None,
            Some(q) => {
                rate += p.bytes[i * p.qualities + q];
                loss += seen * p.distortion[i * p.qualities + q];
            }
            None => loss += seen * p.miss[i],
        }
    }
    (choice.len() == p.seen.len() && rate <= p.budget).then_some(loss)
}

/// [`choose`], but a camera that does not fit gets its last quality: no camera disappears, and the
/// total may exceed the budget.
pub fn choose_within(worths: &[f64], options: &[Vec<Quality>], budget: f64, current: Option<&[usize]>) -> Vec<usize> {
    let current: Option<Vec<_>> = current.map(|c| c.iter().copied().map(Some).collect());
    let choice = choose(worths, options, budget, current.as_deref());
    choice.quality.iter().zip(options).map(|(q, list)| q.unwrap_or(list.len().saturating_sub(1))).collect()
}

/// Total bit/s of all cameras at a level, 0 being the best quality. Cameras with fewer qualities
/// count with their last.
pub fn budget(options: &[Vec<Quality>], level: usize) -> f64 {
    options.iter().filter_map(|list| list.get(level).or(list.last())).map(|o| o.rate).sum()
}

/// Assumed error of a camera's quality, 0 being the best: fourfold from one to the next.
pub fn unknown_error(quality: usize) -> f64 {
    4f64.powi(quality.min(16) as i32) - 1.0
}
