//! Reclaim: who is scanned, in which order, how far, and when to stop. It knows what can be reclaimed by one trait alone.

pub mod audit;
pub mod balancer;
pub mod events;
pub mod goal;
pub mod order;
pub mod pressure;
pub mod reclaimable;
pub mod step;
pub mod usage;

pub use audit::Audit;
pub use events::Events;
pub use goal::{Cushion, Goal, Kind};
pub use order::{run, run_down};
pub use pressure::{Event, Pressure};
pub use reclaimable::{Reclaimable, Reclaimed};
pub use step::Step;
pub use usage::{Figures, Usage};
