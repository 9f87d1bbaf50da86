//! The table of E9's workloads: the one place that says which there are.

use crate::base::run::Run;
use crate::programs::alloc_test;
use crate::programs::apps;
use crate::programs::cache_lines;
use crate::programs::churn;
use crate::programs::glibc_bench;
use crate::programs::larson;
use crate::programs::mstress;
use crate::programs::pair;
use crate::programs::rptest;
use crate::programs::sh;
use crate::programs::short_threads;
use crate::programs::xmalloc;

/// On how many threads a workload runs unless told.
#[derive(Clone, Copy)]
pub enum Threads {
    /// One.
    One,
    /// One a CPU of this machine, at least two.
    Cpus,
}

impl Threads {
    /// The number on this machine.
    pub fn count(self) -> usize {
        match self {
            Threads::One => 1,
            Threads::Cpus => std::thread::available_parallelism().map_or(2, |n| n.get().max(2)),
        }
    }
}

/// One workload.
pub struct Workload {
    /// What `weir-lab run e9` calls it.
    pub name: &'static str,
    /// Whether it stops after a time or after an amount of work.
    pub fixed_time: bool,
    /// Its threads unless told.
    pub threads: Threads,
    /// One line on what it does.
    pub about: &'static str,
    /// Does it; answers how many operations it did.
    pub work: fn(&Run) -> u64,
}

const fn timed(name: &'static str, threads: Threads, work: fn(&Run) -> u64, about: &'static str) -> Workload {
    Workload { name, fixed_time: true, threads, about, work }
}

const fn counted(name: &'static str, threads: Threads, work: fn(&Run) -> u64, about: &'static str) -> Workload {
    Workload { name, fixed_time: false, threads, about, work }
}

use Threads::{Cpus, One};

/// All of them, in the order of the report.
pub const WORKLOADS: &[Workload] = &[
    counted("pair64", One, pair::pair64, "malloc and free of 64 B, alone and pinned to a CPU"),
    timed("larson", Cpus, larson::plain, "server: random replacement, each generation's blocks pass to a new thread"),
    timed("larson-sized", Cpus, larson::sized, "larson with operator new and sized operator delete"),
    timed("xmalloc", Cpus, xmalloc::work, "producers allocate, consumers free, in batches of 4,096"),
    counted("sh6", Cpus, sh::sh6, "batches of 1..1,000 B, small ones favoured, freed in and against their order"),
    counted("sh8", Cpus, sh::sh8, "sh6 with half of the blocks freed by another thread"),
    counted("mstress", Cpus, mstress::work, "new threads each round, survivors, and exchange through shared slots"),
    counted("rptest", Cpus, rptest::work, "16 B to 16 KB in loops, a share handed on to the next thread to free"),
    counted("cache-scratch1", One, cache_lines::scratch, "write a small block that another thread allocated, 1 thread"),
    counted(
        "cache-scratchN",
        Cpus,
        cache_lines::scratch,
        "passive false sharing: free a neighbour's block, use one's own",
    ),
    counted("cache-thrash1", One, cache_lines::thrash, "write one's own small blocks, 1 thread"),
    counted(
        "cache-thrashN",
        Cpus,
        cache_lines::thrash,
        "active false sharing: every thread writes its own small blocks",
    ),
    counted("alloc-test1", One, alloc_test::work, "random slots, Pareto sizes to 1,000 B, blocks written and read"),
    counted("alloc-testN", Cpus, alloc_test::work, "the same on every CPU"),
    counted("cfrac", One, apps::cfrac, "a continued fraction in big numbers of 8..64 B that live for a moment"),
    counted("espresso", One, apps::espresso, "logic covers: small bit sets that are copied, grown and merged"),
    counted("barnes", One, apps::barnes, "an octree of bodies built, walked and freed each step"),
    counted("malloc-large", One, churn::large, "20 live blocks of 5..25 MiB, replaced at random, each page touched"),
    counted("glibc-simple", One, glibc_bench::simple, "runs of one size, 16 B to 4 KiB, allocated then freed"),
    counted("glibc-thread", Cpus, glibc_bench::thread, "4 B to 32 KiB, small ones favoured, random replacement"),
    counted("mleak", One, short_threads::work, "threads that live for a few hundred blocks, one after another"),
    counted("page-churn", Cpus, churn::pages, "4 KiB to 1 MiB, random replacement, each page touched"),
];

/// The workload of that name.
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

/// The table as JSON, for the harness.
pub fn print() {
    let row = |w: &Workload| {
        format!(
            "{{\"name\":\"{}\",\"fixed_time\":{},\"threads\":{},\"about\":\"{}\"}}",
            w.name,
            w.fixed_time,
            w.threads.count(),
            w.about
        )
    };
    println!("[{}]", WORKLOADS.iter().map(row).collect::<Vec<_>>().join(","));
}
