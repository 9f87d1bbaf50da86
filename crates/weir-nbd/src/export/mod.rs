//! Exports: what clients see under a name.

mod complaints;
mod counters;
mod exports;

pub use counters::Counters;
pub use exports::{Definition, Export, Exports};
