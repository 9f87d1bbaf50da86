//! The engine of Weir: a memory manager all of whose caches can be reclaimed.
#![cfg_attr(not(test), no_std)]
// Most of the engine is private, and its pages are for those who work on it.
#![allow(rustdoc::private_intra_doc_links)]

// Addresses, sizes and what is packed into words are taken to have 64 bits.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("Weir and its evictable caches need a target with addresses of 64 bits");

#[macro_use]
mod macros;

pub mod base;
pub mod blocks;
pub mod caches;
pub mod evict;
pub mod heap;
pub mod huge_pages;
pub(crate) mod merge;
pub mod pages;
pub mod platform;
pub mod policy;
pub mod pools;
pub mod profile;
pub mod reclaim;
pub mod telemetry;
