//! Selects the tiles of 360° video to request, their qualities and order, from predicted gaze,
//! predicted throughput, and the tiles' sizes and distortions. Same algorithms and test vectors as
//! internal/tile360.

mod capacity;
mod gaze;
mod ows;
mod planner;
mod sphere;

pub use capacity::{Capacity, Train};
pub use gaze::{Crowd, Gaze, Sample};
pub use ows::{ows, Plan, Problem, REFINE};
pub use planner::{Gop, Planner, Request, BUDGET_PERCENTILE};
pub use sphere::{Grid, Look, Vec3, View, FORWARD};
