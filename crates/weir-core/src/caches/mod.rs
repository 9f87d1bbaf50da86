//! Object caches: per-CPU buckets over depots of full buckets over slabs over pages.

pub(crate) mod audit;
pub(crate) mod cache;
pub(crate) mod cpu;
pub(crate) mod depot;
pub mod figures;
pub mod geometry;
mod heap_caches;
mod moving;
pub(crate) mod reclaimer;
#[doc(hidden)]
pub mod slab;
pub(crate) mod usage;
pub mod user_cache;

pub use heap_caches::Caches;
