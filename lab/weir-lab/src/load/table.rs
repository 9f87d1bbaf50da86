//! The table of E9's workloads: the one place that says which there are.

use crate::base::run::Run;
use crate::programs::workloads::{
    alloc_test, apps, cache_lines, churn, glibc_bench, larson, mstress, rptest, sh, short_threads, xmalloc,
};

/// A workload: its name, whether it runs on every CPU, what it does, and the function that does it.
pub type Workload = (&'static str, bool, &'static str, fn(&Run) -> u64);

pub const WORKLOADS: &[Workload] = &[
    ("pair64", false, "malloc and free of 64 B, alone and pinned to a CPU", glibc_bench::pair64),
    ("larson", true, "server: random replacement, each generation's blocks pass to a new thread", larson::plain),
    ("larson-sized", true, "larson with operator new and sized operator delete", larson::sized),
    ("xmalloc", true, "producers allocate, consumers free, in batches of 4,096", xmalloc::work),
    ("sh6", true, "batches of 1..1,000 B, small ones favoured, freed in and against their order", sh::sh6),
    ("sh8", true, "sh6 with half of the blocks freed by another thread", sh::sh8),
    ("mstress", true, "new threads each round, survivors, and exchange through shared slots", mstress::work),
    ("rptest", true, "16 B to 16 KB in loops, a share handed on to the next thread to free", rptest::work),
    ("cache-scratch1", false, "write a small block that another thread allocated, 1 thread", cache_lines::scratch),
    ("cache-scratchN", true, "passive false sharing: free a neighbour's block, use one's own", cache_lines::scratch),
    ("cache-thrash1", false, "write one's own small blocks, 1 thread", cache_lines::thrash),
    ("cache-thrashN", true, "active false sharing: every thread writes its own small blocks", cache_lines::thrash),
    ("alloc-test1", false, "random slots, Pareto sizes to 1,000 B, blocks written and read", alloc_test::work),
    ("alloc-testN", true, "alloc-test1 on every CPU", alloc_test::work),
    ("cfrac", false, "a continued fraction in big numbers of 8..64 B that live for a moment", apps::cfrac),
    ("espresso", false, "logic covers: small bit sets that are copied, grown and merged", apps::espresso),
    ("barnes", false, "an octree of bodies built, walked and freed each step", apps::barnes),
    ("malloc-large", false, "20 live blocks of 5..25 MiB, replaced at random, each page touched", churn::large),
    ("glibc-simple", false, "runs of one size, 16 B to 4 KiB, allocated then freed", glibc_bench::simple),
    ("glibc-thread", true, "4 B to 32 KiB, small ones favoured, random replacement", glibc_bench::thread),
    ("mleak", false, "threads that live for a few hundred blocks, one after another", short_threads::work),
    ("page-churn", true, "4 KiB to 1 MiB, random replacement, each page touched", churn::pages),
];

/// The threads of a workload that says nothing else: two at least, if it runs on every CPU.
pub fn threads(is_on_every_cpu: bool) -> usize {
    let cpus = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
    if is_on_every_cpu { cpus } else { 1 }
}

/// Prints the table as JSON.
pub fn print() {
    let row = |(name, every_cpu, about, _): &Workload| {
        format!("{{\"name\":\"{name}\",\"threads\":{},\"about\":\"{about}\"}}", threads(*every_cpu))
    };
    println!("[{}]", WORKLOADS.iter().map(row).collect::<Vec<_>>().join(","));
}
