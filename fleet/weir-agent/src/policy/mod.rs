//! What is decided, by pure functions: no file, no clock, no network. Limits and requests are [`weir_policy`]'s.

pub mod quantity;
pub mod relief;
