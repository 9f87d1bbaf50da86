//! The figures of a page of statistics, each in one place: where the memory is, what was released, how long it took.

pub mod events;
pub mod idle_window;
pub mod less;
pub mod memory;
pub mod processes;
pub mod reclaim_table;
pub mod released;
pub mod run;
pub mod times;

use weir_core::telemetry::tables::{Row, Table};

/// The word for a level of pressure.
pub fn level(number: u64) -> &'static str {
    ["none", "some", "severe"].get(number as usize).copied().unwrap_or("unknown")
}

/// The rows of a table, and how many it had no room for.
pub fn rows<R: Row, const WORDS: usize>(table: &Table<WORDS>) -> (Vec<R>, u64) {
    table.read().map_or((Vec::new(), 0), |(rows, left_out)| (rows.collect(), left_out))
}
