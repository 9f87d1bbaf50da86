//! What a heap profile is made of: the call stacks of allocations.

pub mod unwind;
