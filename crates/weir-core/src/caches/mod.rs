//! Object caches: per-CPU buckets over depots of full buckets over slabs over pages.

pub(crate) mod audit;
pub(crate) mod bucket_size;
pub(crate) mod cache;
pub(crate) mod cache_table;
pub(crate) mod cpu_cache;
pub(crate) mod depot;
pub(crate) mod domain;
pub(crate) mod domain_routing;
pub(crate) mod drain;
pub mod figures;
pub(crate) mod finalizers;
pub(crate) mod flush;
pub mod geometry;
mod heap_caches;
pub(crate) mod invalid_frees;
mod life;
pub(crate) mod reclaimer;
pub(crate) mod refill;
pub(crate) mod run_caches;
pub(crate) mod shell_supply;
pub(crate) mod shells;
pub(crate) mod slab;
#[doc(hidden)]
pub mod slab_lists;
pub(crate) mod slab_objects;
pub(crate) mod slab_pages;
#[doc(hidden)]
pub mod slab_pieces;
pub(crate) mod spec;
pub(crate) mod trim;
pub(crate) mod unbucketed;
pub(crate) mod usage;
pub(crate) mod user_alloc;
pub mod user_cache;

pub use heap_caches::Caches;
