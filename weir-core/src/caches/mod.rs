//! Object caches: per-CPU buckets over depots of full buckets over slabs over pages.

pub mod audit;
mod bucket;
pub mod bucket_size;
pub mod cache;
pub mod cache_table;
pub mod cpu_cache;
pub mod depot;
pub mod domain;
pub mod domain_routing;
pub mod drain;
pub mod figures;
pub mod finalizers;
pub mod flush;
pub mod geometry;
mod heap_caches;
mod idle_windows;
pub mod invalid_frees;
pub mod reclaimer;
pub mod refill;
pub mod run_caches;
pub mod shell_supply;
pub mod shells;
pub mod slab;
pub mod slab_lists;
pub mod slab_objects;
pub mod slab_pages;
pub mod slab_pieces;
pub mod spec;
pub mod trim;
pub mod unbucketed;
pub mod usage;
pub mod user_alloc;
pub mod user_cache;
pub mod user_part;

pub use heap_caches::Caches;
