//! Sparse pages of slabs are made equal, so that the kernel has one page behind several (same-page merging, KSM).
//!
//! After a peak of which few objects are left at random, nearly every page has one of them. No allocator that leaves pointers
//! where they are gets below the pages with a survivor. But the free objects of such a page hold nothing. They are filled with
//! copies of the objects in use that lie at the same places of other pages. So all pages of a group become equal byte for byte,
//! and the kernel merges them, copy on write. No pointer moves; a program that writes gets a page of its own.
//!
//! - `group`: which pages go together.
//! - `fill`: how a page is filled while the program writes; the protocol.
//! - `pass`: a walk over the heap: what is sparse and has not changed is grouped, filled, and the kernel told.
//! - `merger`: what is remembered, and what the kernel is asked for; `asked`: where that was; `reclaimer`: when, and what reclaim
//!   and figures ask.
//!
//! Which pages are merged with which is remembered with their slabs ([`crate::caches::slab::merged`]), as the lock that guards
//! them is the slabs'.

mod asked;
mod fill;
mod group;
mod merger;
mod pass;
mod reclaimer;

pub(crate) use merger::{MergeState, Merger};
