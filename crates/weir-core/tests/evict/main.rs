//! The policy of evictable caches: what always holds, against a model; and what it is for, on traces.

mod cache;
mod concurrent;
mod invariants;
mod model;
mod pinned;
mod traces;
mod weights;
mod worth;
