//! The whole engine on a fake platform: every decision on a clock, CPUs, nodes and failures that the test sets.

#[path = "../fake/mod.rs"]
mod fake;

mod address_space;
mod caches;
mod class_runs;
mod forks;
mod goals;
mod growth;
mod hard_limit;
mod held;
mod huge_heap;
mod low32;
mod mapped;
mod merging;
mod misuse;
mod model;
mod moving;
mod node;
mod page_pools;
mod places;
mod policy;
mod profile;
mod profile_model;
mod refaults;
mod replaced;
mod reporting;
mod resident;
mod retained;
mod run_buckets;
mod runs;
mod scale;
mod shrinkers;
mod sparse;
mod threads;
mod usage;
mod zones;
