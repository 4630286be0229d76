//! Which tiles of 360° video a viewer asks for, at which quality and in which order, as internal/tile360 decides it:
//! where the viewer will look, what the network will carry, and what is worth its bytes. Its vectors test this crate, too.

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
