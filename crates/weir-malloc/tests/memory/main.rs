//! What is resident of a program: at its peak, after it, in huge pages, in merged pages, and by NUMA node.

#[path = "../common/mod.rs"]
mod common;
mod huge_heap;
mod merging;
mod nodes;
mod resident;
mod retained;
