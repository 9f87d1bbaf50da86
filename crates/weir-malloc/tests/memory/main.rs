//! What is resident of a program: at its peak, after it, in huge pages, in merged pages, by NUMA node, and by zone.

#[path = "../common/mod.rs"]
mod common;
mod huge_heap;
mod merging;
mod nodes;
mod resident;
mod retained;
mod zones;
