//! The platform that the engine runs on in a Linux process. Its memory is in `memory/mod.rs`. Its parts that need the layers above
//! are in `process/heap.rs`: this file names no thread, and no part of a process.

use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::run::Run;
use weir_core::base::time::{Nanos, Time};
use weir_core::base::units::Class;
use weir_core::heap::Heap;
use weir_core::platform::cpu_table::{MAX_CPUS, Pushed, Table};
use weir_core::platform::{Clock, CpuOps, Diagnostics, Host, Memory, Released, Topology};
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tunables::Tunables;

use crate::arch::sections;
use crate::messages;
use crate::os::clock::{monotonic_ns, thread_cpu_ns};
use crate::os::page;
use crate::os::tasks;
use crate::os::thread_block;
use crate::platform::fast_path::rseq;
use crate::platform::machine::{self, HugePages};
use crate::platform::memory::address_layout::AddressLayout;
use crate::platform::memory::merging::Merging;
use crate::platform::memory::release::Releaser;
use crate::platform::memory::touch_time::TouchTime;
use crate::platform::memory_probes;
use crate::platform::statics::{STATS, TUNABLES};

const UNKNOWN: u8 = 0;
const LOCKLESS: u8 = 1;
const LOCKED: u8 = 2;

/// The engine on Linux.
pub type Engine = Heap<Linux>;

/// Linux, below the engine.
pub struct Linux {
    /// Whether the fast path runs on restartable sequences.
    mode: AtomicU8,
    /// NUMA nodes, and the engine's nodes of each; 0: the settings were not read yet.
    numa_nodes: AtomicUsize,
    nodes_each: AtomicUsize,
    /// Threads with neighbouring numbers that use one part of each NUMA node; stored before `nodes_each`.
    part_threads: AtomicUsize,
    /// Whether fresh memory of the heap comes as huge pages, whether it gets them if it asks, and whether it ever did.
    pub(super) huge_on_touch: AtomicBool,
    pub(super) huge_on_advice: AtomicBool,
    pub(super) may_have_huge: AtomicBool,
    /// The system counts what is mapped, as of the last look ([`machine::CountFiles`]).
    pub(crate) are_mappings_counted: AtomicBool,
    /// Where the heap and its metadata lie.
    pub(super) addresses: AddressLayout,
    /// How memory is released.
    pub(super) releaser: Releaser,
    /// The kernel's same-page merging.
    pub(crate) merging: Merging,
    /// How long released memory takes to be touched again.
    pub(super) touch_time: TouchTime,
}

impl Linux {
    /// Nothing probed yet.
    pub(crate) const fn new() -> Self {
        Self {
            mode: AtomicU8::new(UNKNOWN),
            numa_nodes: AtomicUsize::new(1),
            nodes_each: AtomicUsize::new(0),
            part_threads: AtomicUsize::new(1),
            huge_on_touch: AtomicBool::new(false),
            huge_on_advice: AtomicBool::new(false),
            may_have_huge: AtomicBool::new(false),
            are_mappings_counted: AtomicBool::new(false),
            addresses: AddressLayout::new(),
            releaser: Releaser::new(messages::memory_stays_resident),
            merging: Merging::new(),
            touch_time: TouchTime::new(),
        }
    }

    /// Sets the fast path up. Threads that do it at once come to the same answers; what they began on the fast path
    /// before found no buckets, and never will.
    #[cold]
    fn probe(&self) -> bool {
        let lockless = rseq::enable(MAX_CPUS);
        STATS.rseq.store(lockless.into(), Relaxed);
        match machine::huge_pages() {
            HugePages::Always => self.set_huge_on_touch(true),
            HugePages::Madvise => self.huge_on_advice.store(true, Relaxed),
            HugePages::Never | HugePages::Absent => {}
        }
        self.numa_nodes.store(machine::node_count(), Relaxed);
        self.mode.store(if lockless { LOCKLESS } else { LOCKED }, Release);
        self.is_ready();
        lockless
    }

    /// The settings have been read. The engine's nodes are counted now, and not again.
    ///
    /// Each has a zone and depots behind locks of its own, for as many threads that run at once as `zone_cpus` says. Which one a
    /// thread uses goes by its dense number (`mm_cid`), which is below the number of threads that live. Before Linux 6.14 it is nearly
    /// that of those that run. By the numbers of CPUs, one thread would come to use the zones of all.
    pub(crate) fn count_nodes(&self) {
        let is_dense = self.lockless() && rseq::is_dense();
        let zone_cpus = TUNABLES.zone_cpus.get() as usize;
        let (threads, parts) = if is_dense { machine::parts(zone_cpus, self.numa_nodes.load(Relaxed)) } else { (1, 1) };
        self.part_threads.store(threads, Relaxed);
        self.nodes_each.store(parts, Release);
    }

    /// Whether the machine has several NUMA nodes.
    pub(crate) fn has_numa_nodes(&self) -> bool {
        self.numa_nodes.load(Relaxed) > 1
    }
}

impl Host for Linux {
    fn release(&self, runs: &[Run], calm: bool) -> Released {
        self.releaser.release(runs, calm && TUNABLES.report_lazily.get() != 0)
    }

    fn release_unit(&self) -> usize {
        page::bytes()
    }
}

impl Clock for Linux {
    fn now(&self) -> Time {
        Time(monotonic_ns())
    }

    fn cpu_time(&self) -> Nanos {
        Nanos(thread_cpu_ns())
    }
}

impl Topology for Linux {
    fn nodes(&self) -> usize {
        // NUMA nodes are counted when the fast path is set up.
        self.lockless();
        self.numa_nodes.load(Relaxed) * self.nodes_each.load(Relaxed)
    }

    fn node(&self) -> usize {
        // A program whose first block is a large one.
        self.lockless();
        let (numa_nodes, each) = (self.numa_nodes.load(Relaxed), self.nodes_each.load(Acquire));
        // Threads on a node that was added later use the last of those that were there at the start.
        let numa_node = if numa_nodes == 1 { 0 } else { numa_node_now().min(numa_nodes - 1) };
        // CPUs may be more than they were at the start.
        let part = if each <= 1 { 0 } else { rseq::index() / self.part_threads.load(Relaxed) % each };
        part * numa_nodes + numa_node
    }

    fn numa_node(&self, node: usize) -> usize {
        // The first ones are the first parts of each: few have workers.
        node % self.numa_nodes.load(Relaxed)
    }
}

/// The calling thread's NUMA node.
fn numa_node_now() -> usize {
    // Kernels before 6.3 do not write it there.
    rseq::area().filter(|area| area.node_id).map_or_else(tasks::node, rseq::node)
}

impl Diagnostics for Linux {
    #[cold]
    fn invalid_free(&self, what: InvalidFree, addr: usize, class_size: usize) {
        messages::invalid_free(what, addr, class_size, TUNABLES.abort_on_misuse.get() != 0);
    }

    #[cold]
    fn callback_is_slow(&self, name: &[u8], ns: u64, has_thread: bool) {
        messages::callback_is_slow(name, ns, has_thread);
    }

    #[cold]
    fn callback_panicked(&self, name: &[u8], is_disabled: bool) {
        messages::callback_panicked(name, is_disabled);
    }

    fn block_is_sampled(&self, block: usize, size: usize, weight: u64) {
        memory_probes::alloc(block, size, weight);
    }

    fn sample_is_freed(&self, block: usize) {
        memory_probes::free(block);
    }

    fn stats(&self) -> &Stats {
        &STATS
    }

    fn tunables(&self) -> &Tunables {
        &TUNABLES
    }
}

impl CpuOps for Linux {
    fn lockless(&self) -> bool {
        match self.mode.load(Acquire) {
            UNKNOWN => self.probe(),
            mode => mode == LOCKLESS,
        }
    }

    fn cpu(&self) -> usize {
        if self.lockless() { rseq::index() } else { thread_block::thread_number() }
    }

    #[inline(always)]
    unsafe fn pop(&self, table: &Table, class: Class) -> *mut u8 {
        // SAFETY: the caller keeps to the trait's contract, which is the section's.
        unsafe { sections::pop(table, class) }
    }

    #[inline(always)]
    unsafe fn push(&self, table: &Table, class: Class, object: *mut u8) -> Pushed {
        // SAFETY: the caller keeps to the trait's contract, which is the section's.
        unsafe { sections::push(table, class, object) }
    }

    unsafe fn push_batch(&self, table: &Table, class: Class, objects: &[*mut u8]) -> usize {
        // SAFETY: the caller keeps to the trait's contract, which is the section's.
        unsafe { sections::push_batch(table, class, objects) }
    }

    unsafe fn pop_batch(&self, table: &Table, class: Class, objects: &mut [*mut u8]) -> usize {
        // SAFETY: the caller keeps to the trait's contract, which is the section's.
        unsafe { sections::pop_batch(table, class, objects) }
    }

    fn fence(&self) -> bool {
        rseq::fence()
    }
}
