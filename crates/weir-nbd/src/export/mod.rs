//! Exports: what clients see under a name.

mod counters;
mod exports;

pub use counters::Figures;
pub use exports::{Definition, Export, Exports};
