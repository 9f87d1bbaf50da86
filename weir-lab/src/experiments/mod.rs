//! The experiments: a folder each for what is run and what is printed, a file where that is little.

mod cgroup_v2;
mod e10_many_threads;
mod e3_object_caches;
mod e4_forwarding;
mod e5_density;
mod e6_reporting_cost;
mod e8_neighbour;
pub mod e9_peers;
mod hitrate;
#[cfg(target_arch = "x86_64")]
mod instructions;
mod latency;
mod picture;
mod redis;
mod reporting_time;
mod scaling;
mod soak;
mod sweep;

use crate::harness::args::RunArgs;
use crate::peers::Allocator;

/// An experiment: its name, what it shows, how it is run.
pub type Experiment = (&'static str, &'static str, fn(&RunArgs, Vec<Allocator>) -> Result<serde_json::Value, String>);

/// All of them, in the order of the list.
pub const EXPERIMENTS: &[Experiment] = &[
    (
        "e3",
        "object caches under back pressure: a file server's buffers, with all memory and a twentieth",
        e3_object_caches::run,
    ),
    (
        "e4",
        "forwarding: buffers taken on one CPU and given back on another, under pressure and drains",
        e4_forwarding::run,
    ),
    (
        "e5",
        "density: how many idle processes or guests fit before the first swap, and what memhog takes",
        e5_density::run,
    ),
    (
        "e6",
        "what reporting costs: page faults a second with it and without; huge pages before and after",
        e6_reporting_cost::run,
    ),
    ("e8", "the neighbour: what an idle process that once peaked costs another in its cgroup", e8_neighbour::run),
    (
        "e9",
        "peers: the standard allocator workloads and real programs; time, peak resident set, page faults",
        e9_peers::run,
    ),
    ("e10", "many threads: what is held for threads that used malloc once and sleep", e10_many_threads::run),
    (
        "groups",
        "an idle heap in a group of cgroup v2 that comes to its limit, in a guest: does it give way",
        cgroup_v2::run,
    ),
    (
        "hitrate",
        "the policy of evictable caches against other caches: hit rates on traces, cost of a hit and of an insertion",
        hitrate::run,
    ),
    #[cfg(target_arch = "x86_64")]
    ("calls", "instructions of a malloc and of a free, counted one by one", instructions::run),
    ("latency", "single calls of malloc and free while memory is given back: p50 to the longest", latency::run),
    ("scaling", "the threaded workloads of e9 on 1 to 64 threads; calls while up to 16 GiB are live", scaling::run),
    ("sweep", "what free and malloc cost at every size from 8 B to 64 MiB, in eight patterns (--svg FILE)", sweep::run),
    ("picture", "memory over time, from a peak to 12 s of idleness, as a drawing (--svg FILE)", picture::run),
    (
        "report",
        "from a pressure event to the last idle byte of 1 GiB given back; its processor time",
        reporting_time::run,
    ),
    (
        "soak",
        "threads, forks, signals, streams, growth and moves under pressure: no corruption, hang or growth",
        soak::run,
    ),
    ("redis", "the resident set of redis-server after FLUSHALL of 500 MB", redis::run),
];
