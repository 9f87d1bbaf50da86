//! The whole engine on a fake platform: every decision on a clock, CPUs, nodes and failures that the test sets.

#[path = "../fake/mod.rs"]
mod fake;
mod held;

mod merging;
mod page_pools;
mod profile;
mod shrinkers;

mod blocks {
    mod address_space;
    mod lent;
    mod mapped;
    mod replaced;
    mod turns;
}

mod caches {
    mod class_runs;
    mod moving;
    mod run_buckets;
    mod user_caches;
    mod waiting_runs;
}

mod heap {
    mod forks;
    mod many_cpus;
    mod misuse;
    pub mod model;
    mod resident;
    mod retained;
    mod scale;
    mod threads;
    pub mod usage;
}

mod huge_pages {
    mod collapse;
    mod dense;
    mod huge_heap;
    mod sparse;
}

mod pages {
    mod growth;
    mod hard_limit;
    mod low32;
    mod places;
    mod reporting;
    mod runs;
    pub mod zones;
}

mod reclaim {
    mod budget;
    mod goals;
    mod node;
    pub mod order;
    pub mod refaults;
}
