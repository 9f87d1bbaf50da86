//! What is resident of a program: at its peak, after it, in huge pages, and in merged pages.

#[path = "../common/mod.rs"]
mod common;
mod huge_heap;
mod merging;
mod resident;
mod retained;
