//! Types that every layer needs: units, sets, levels, causes.

pub(crate) mod backing;
pub mod backoff;
pub mod cause;
pub(crate) mod class_set;
pub mod cost;
pub(crate) mod fault;
pub mod invalid_free;
pub mod level;
pub mod run;
pub mod run_class;
pub mod size_class;
pub mod time;
pub mod units;
pub(crate) mod unwind;
pub mod zone_class;
