//! The engine of Weir: a memory manager in which every cache gives way.
//!
//! `no_std`; it allocates nothing but the pages it manages, makes no system call and reads no clock: all of that comes
//! through [`platform::Platform`]. Floors say what is built on what; the type [`heap::Heap`] is named from floor 4 on, as
//! the files there are parts of what it can do:
//!
//! | floor | files |
//! |---|---|
//! | 7 | [`audit`] |
//! | 6 | [`heap`], with `large` for what is larger than a size class; [`user_zone`] |
//! | 5 | [`object_cache`], [`made_cache`], `cache_calls`, `shell_supply`, `trim`, [`cache_stats`], [`balancer`], `collapse`, [`sparse`] |
//! | 4 | [`slab`], [`report`], `bare`, [`mapped`] on [`untouched`], [`density`] |
//! | 3 | [`zone`] |
//! | 2 | [`buddy`], [`percpu`], [`bucket`] on [`shells`], [`pressure`] |
//! | 1 | [`platform`], [`page`], [`lock`] on `sync`, [`size_class`], [`geometry`], [`class_set`], [`tuning`], [`backoff`], [`working_set`], [`refault`], `unwind`, [`stats`], [`trace`], [`tunables`] |
//! | - | [`evict`], which uses nothing of the others |
#![cfg_attr(not(test), no_std)]

pub mod audit;
pub mod backoff;
pub mod balancer;
mod bare;
mod batch_check;
pub mod bucket;
pub mod buddy;
mod cache_calls;
pub mod cache_stats;
pub mod class_set;
mod collapse;
pub mod density;
pub mod evict;
pub mod geometry;
mod grow;
pub mod heap;
mod large;
pub mod lock;
pub mod made_cache;
pub mod mapped;
pub mod object_cache;
pub mod page;
pub mod percpu;
pub mod platform;
pub mod pressure;
pub mod refault;
pub mod report;
mod shell_supply;
pub mod shells;
pub mod size_class;
pub mod slab;
pub mod sparse;
pub mod stats;
mod sync;
pub mod trace;
mod trim;
pub mod tunables;
pub mod tuning;
pub mod untouched;
mod unwind;
pub mod user_zone;
pub mod working_set;
pub mod zone;
