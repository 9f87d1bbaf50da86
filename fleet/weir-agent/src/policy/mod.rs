//! What is decided, by pure functions: no file, no clock, no network. Limits and requests are [`weir_policy`]'s.

pub mod relief;
pub use weir_policy::quantity;
