//! A platform made of plain memory and locks, whose clock, CPUs, nodes and failures a test decides.
//!
//! It checks what the engine owes a platform. Calls that may be system calls come under none of the locks from the depots' rank
//! on. Released runs are whole pages of mapped memory, not in use (as far as the test tells) and not in flight twice.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod memory;
mod platform;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard};

use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES};
use weir_core::platform::cpu_table::{CpuSlab, NO_CPU, Pushed, Table};
use weir_core::platform::lock::Lock;
use weir_core::platform::{
    Clock, Collapse, Contents, CpuOps, Diagnostics, Host, Memory, Placed, Reach, Refused, Released, Topology, Wait,
    Workers, rank,
};
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tunables::Tunables;

/// The error of a call that fails: Linux's ENOMEM.
const REFUSED: Refused = Refused { error: 12 };
/// CPUs of the machine.
pub const CPUS: usize = 1024;
/// Locks under which no call that may be a system call is allowed.
const QUIET_RANKS: u32 = ((1 << (rank::PROFILE + 1)) - (1 << rank::DEPOT)) << 8;
/// The bit of the callbacks' list, under which none of a program's code runs.
pub const CALLBACKS_RANK: u32 = 1 << (8 + rank::CALLBACKS);

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
    static NODE: Cell<usize> = const { Cell::new(0) };
    static RANKS: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
}

/// Moves the calling thread to `cpu`.
pub fn run_on(cpu: usize) {
    CPU.set(cpu % CPUS);
}

/// Moves the calling thread to no CPU, as if the platform knew none: it has no buckets.
pub fn run_on_none() {
    CPU.set(NO_CPU);
}

/// Moves the calling thread to `node`.
pub fn run_on_node(node: usize) {
    NODE.set(node);
}

/// The calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Window,
    MapAt,
    Map,
    Remap,
    Renew,
    Release,
    UnmapAt,
}

/// When calls of one kind fail: call number `n` does when bit `n % 64` is set.
#[derive(Default)]
struct Plan {
    calls: AtomicU64,
    fail: AtomicU64,
}

impl Plan {
    fn fails(&self) -> bool {
        let n = self.calls.fetch_add(1, Relaxed);
        self.fail.load(Relaxed) >> (n % 64) & 1 == 1
    }
}

/// A task that a test wants done while a release is under way, on a thread of its own.
type Hook = Box<dyn Fn() + Send + Sync>;
/// A lock was taken, or is given back.
#[derive(Clone, Copy)]
pub struct Turn {
    pub rank: u32,
    pub lock: usize,
    pub is_taken: bool,
    pub at: std::time::Instant,
}

/// A program's callback at the hard limit.
type HardLimitCallback = Box<dyn Fn(usize) -> bool + Send>;

pub struct Fake {
    /// The locks of an evictable cache, which come before the heap's.
    cache:
        (Lock<(), { rank::EVICTABLE_CACHES }>, Lock<(), { rank::EVICTABLE_SHARD }>, Lock<(), { rank::EVICTABLE_DUEL }>),
    memory: Mutex<memory::Memory>,
    clock: AtomicU64,
    /// Time that each look at the clock takes, ns.
    pub clock_step: AtomicU64,
    /// Time in which no thread ran, ns.
    pub stood_still: AtomicU64,
    plans: [Plan; 7],
    pub node_count: AtomicUsize,
    /// NUMA nodes that these are parts of; at first each is one.
    pub numa_nodes: AtomicUsize,
    pub huge: AtomicBool,
    /// Huge pages come to what asked for them.
    pub huge_on_advice: AtomicBool,
    /// A part of the heap asked for them.
    pub may_have_huge: AtomicBool,
    /// Time to put memory behind a run at once, ms; above a year it is refused.
    pub populate_ms: AtomicU64,
    /// Mapping memory takes its time.
    pub is_slow: AtomicBool,
    /// What is mapped gets its memory at once.
    pub populates: AtomicBool,
    /// What is mapped counts, used or not.
    pub are_mappings_counted: AtomicBool,
    pub lockless: bool,
    /// Bytes that a heap window may have.
    pub window: usize,
    /// Pages of its first pageblock that a heap window begins behind.
    pub skipped: usize,
    cpus: Vec<Mutex<()>>,
    sleepers: (Mutex<()>, Condvar),
    pub notices: AtomicUsize,
    pub finalizer_wakes: AtomicUsize,
    /// Allocations that were about to fail at the hard limit, bytes each.
    pub at_hard_limit: Mutex<Vec<usize>>,
    /// The program's work then; whether it freed something.
    pub hard_limit_callback: Mutex<Option<HardLimitCallback>>,
    /// Pages of other processes.
    pub neighbours: Mutex<Vec<&'static Stats>>,
    /// Other processes of which no page is looked at.
    pub more_neighbours: AtomicUsize,
    /// Nodes whose workers were wanted.
    summoned: Mutex<Vec<usize>>,
    /// Runs that huge pages were asked for.
    pub advised: Mutex<Vec<Run>>,
    /// Runs that ask for huge pages no more.
    pub advised_small: Mutex<Vec<Run>>,
    /// Runs of blocks of their own that were looked at.
    looks: Mutex<Vec<Run>>,
    /// Calls that unmapped.
    pub unmapped: AtomicUsize,
    /// Only what was touched is resident, as the kernel has it; else all of each block of its own is.
    pub really: AtomicBool,
    pub fences: AtomicUsize,
    /// Fences are refused.
    pub no_fence: AtomicBool,
    /// The task that runs after each fence.
    fencing: Mutex<Option<Hook>>,
    misuses: Mutex<Vec<(InvalidFree, usize)>>,
    /// Samples of the heap profile that it was told of: address and size.
    pub samples: Mutex<Vec<(usize, usize)>>,
    /// Every call of release so far.
    released: Mutex<Vec<Vec<Run>>>,
    /// Bytes of metadata released so far.
    pub metadata_released: AtomicUsize,
    /// Bytes evicted so far into another allocator's memory, and bytes resident of the process; 0 for the latter: not known.
    pub elsewhere: (AtomicU64, AtomicU64),
    /// Metadata is not taken back.
    pub keeps_metadata: AtomicBool,
    /// Calls that were refused for that.
    pub metadata_refusals: AtomicUsize,
    /// Turns of locks, where a test wants them: rank, address, whether it was taken, and when.
    pub turns: Mutex<Option<Vec<Turn>>>,
    /// Looks at the locks that a thread holds: a few for each lock that is taken.
    pub looks_at_ranks: AtomicUsize,
    in_flight: Mutex<Vec<Run>>,
    /// The blocks that the test holds now: address and length.
    live: Mutex<BTreeMap<usize, usize>>,
    hook: Mutex<Option<Hook>>,
    unmapping: Mutex<Option<Hook>>,
    /// The task for the next question of how many nodes there are, on the thread that asks.
    counting: Mutex<Option<Hook>>,
    /// The task for the next question on which node a thread runs.
    homing: Mutex<Option<Hook>>,
    /// The task that runs while reclaim waits for callbacks.
    waiting: Mutex<Option<Hook>>,
    interrupting: Mutex<Option<Hook>>,
    /// Callbacks that were named as slow, and as panicked.
    pub slow: Mutex<Vec<String>>,
    pub panicked: Mutex<Vec<String>>,
    /// Runs that are not taken back.
    pub pinned: Mutex<Vec<Run>>,
    /// The heap's pageblocks that huge pages are behind.
    pub collapsed: Mutex<Vec<Run>>,
    /// What the platform says when it is to put a huge page behind a pageblock, and how long that takes, ms.
    pub collapses: Mutex<(Collapse, u64)>,
    /// Where it was asked to.
    pub collapse_calls: Mutex<Vec<Run>>,
    /// What happens while it does.
    collapsing: Mutex<Option<Hook>>,
    /// Runs that were cooled.
    cooled: Mutex<Vec<Run>>,
    windows: Mutex<Vec<Run>>,
    /// Whether what is below merges equal pages.
    pub merges: AtomicBool,
    /// Pages of the process beside the heap's that share memory.
    pub merged_elsewhere: AtomicUsize,
    /// Calls to come for which there is no memory, of those that end merging.
    pub unmerges_refused: AtomicUsize,
    /// Where it was asked to, in order, and whether it still is.
    mergeable: Mutex<Vec<(Run, bool)>>,
    /// Pages that it merged so far.
    merged: AtomicUsize,
    /// Pages that another process has too, as after a fork.
    pub shared: Mutex<BTreeSet<usize>>,
    secrets: AtomicU64,
    /// Nothing tells what is resident.
    pub is_blind: AtomicBool,
    /// Time to touch a MiB that was released, ns.
    pub touch_ns: AtomicU64,
    /// Least that is taken back.
    pub unit: usize,
    stats: Stats,
    tunables: Tunables,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed under the lock has said so already.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

pub fn overlap(a: Run, b: Run) -> bool {
    a.addr < b.addr + b.len && b.addr < a.addr + a.len
}

impl Fake {
    pub fn new() -> Self {
        RANKS.with(|r| r.store(0, Relaxed));
        run_on(0);
        run_on_node(0);
        memory::refuse_huge_pages();
        Self {
            cache: (Lock::new(()), Lock::new(()), Lock::new(())),
            memory: Mutex::default(),
            clock: AtomicU64::new(1_000_000_000),
            clock_step: AtomicU64::new(0),
            stood_still: AtomicU64::new(0),
            plans: Default::default(),
            node_count: AtomicUsize::new(1),
            numa_nodes: AtomicUsize::new(usize::MAX),
            huge: AtomicBool::new(false),
            huge_on_advice: AtomicBool::new(false),
            may_have_huge: AtomicBool::new(false),
            populate_ms: AtomicU64::new(0),
            is_slow: AtomicBool::new(false),
            populates: AtomicBool::new(false),
            are_mappings_counted: AtomicBool::new(false),
            lockless: true,
            window: 1 << 30,
            skipped: 0,
            cpus: (0..=NO_CPU).map(|_| Mutex::default()).collect(),
            sleepers: Default::default(),
            notices: AtomicUsize::new(0),
            finalizer_wakes: AtomicUsize::new(0),
            at_hard_limit: Mutex::default(),
            hard_limit_callback: Mutex::default(),
            neighbours: Mutex::default(),
            more_neighbours: AtomicUsize::new(0),
            summoned: Mutex::default(),
            advised: Mutex::default(),
            advised_small: Mutex::default(),
            looks: Mutex::default(),
            unmapped: AtomicUsize::new(0),
            really: AtomicBool::new(false),
            fences: AtomicUsize::new(0),
            no_fence: AtomicBool::new(false),
            fencing: Mutex::default(),
            misuses: Mutex::default(),
            samples: Mutex::default(),
            released: Mutex::default(),
            metadata_released: AtomicUsize::new(0),
            elsewhere: Default::default(),
            keeps_metadata: AtomicBool::new(false),
            metadata_refusals: AtomicUsize::new(0),
            turns: Mutex::default(),
            looks_at_ranks: AtomicUsize::new(0),
            in_flight: Mutex::default(),
            live: Mutex::default(),
            hook: Mutex::default(),
            unmapping: Mutex::default(),
            counting: Mutex::default(),
            homing: Mutex::default(),
            waiting: Mutex::default(),
            interrupting: Mutex::default(),
            slow: Mutex::default(),
            panicked: Mutex::default(),
            pinned: Mutex::default(),
            collapsed: Mutex::default(),
            collapses: Mutex::new((Collapse::Done, 1)),
            collapse_calls: Mutex::default(),
            collapsing: Mutex::default(),
            cooled: Mutex::default(),
            windows: Mutex::default(),
            merges: AtomicBool::new(false),
            merged_elsewhere: AtomicUsize::new(0),
            unmerges_refused: AtomicUsize::new(0),
            mergeable: Mutex::default(),
            merged: AtomicUsize::new(0),
            shared: Mutex::default(),
            secrets: AtomicU64::new(1),
            is_blind: AtomicBool::new(false),
            touch_ns: AtomicU64::new(400_000),
            unit: PAGE,
            stats: Stats::new(),
            tunables: Tunables::new(),
        }
    }

    /// Lets `ms` milliseconds pass.
    pub fn pass_ms(&self, ms: u64) {
        self.clock.fetch_add(ms * 1_000_000, Relaxed);
    }

    /// Lets `ms` milliseconds pass in which no thread runs, as while the process is stopped.
    pub fn stand_still_ms(&self, ms: u64) {
        self.stood_still.fetch_add(ms * 1_000_000, Relaxed);
        self.pass_ms(ms);
    }

    /// Calls of kind `call` fail from now on where `pattern` has a bit for them.
    pub fn fail(&self, call: Call, pattern: u64) {
        let plan = &self.plans[call as usize];
        plan.calls.store(0, Relaxed);
        plan.fail.store(pattern, Relaxed);
    }

    /// Nothing fails any more.
    pub fn fail_nothing(&self) {
        self.plans.iter().for_each(|plan| plan.fail.store(0, Relaxed));
    }

    /// Tells the platform that the test holds a block.
    pub fn hold(&self, addr: usize, len: usize) {
        locked(&self.live).insert(addr, len);
    }

    /// Tells the platform that the test no longer holds the block at `addr`.
    pub fn let_go(&self, addr: usize) {
        locked(&self.live).remove(&addr);
    }

    /// The misuses recorded since the last call.
    pub fn take_misuses(&self) -> Vec<(InvalidFree, usize)> {
        std::mem::take(&mut locked(&self.misuses))
    }

    /// The calls of release since the last call of this.
    pub fn take_released(&self) -> Vec<Vec<Run>> {
        std::mem::take(&mut locked(&self.released))
    }

    /// Has `hook` run during each release that is not made by the hook itself.
    pub fn during_release(&self, hook: impl Fn() + Send + Sync + 'static) {
        *locked(&self.hook) = Some(Box::new(hook));
    }

    /// Has `hook` run, on the thread that fences, after each fence.
    pub fn after_each_fence(&self, hook: impl Fn() + Send + Sync + 'static) {
        *locked(&self.fencing) = Some(Box::new(hook));
    }

    /// Has `hook` run while the next huge page is put behind a pageblock.
    pub fn while_it_collapses(&self, hook: impl Fn() + Send + Sync + 'static) {
        *locked(&self.collapsing) = Some(Box::new(hook));
    }

    /// Has `hook` run while the nodes are counted for the next time.
    pub fn while_nodes_are_counted(&self, hook: impl Fn() + Send + Sync + 'static) {
        *locked(&self.counting) = Some(Box::new(hook));
    }

    /// Has `hook` run, on the thread that asks, when it is next asked on which of several nodes a thread runs. An allocation of
    /// pages asks between its hold below the hard limit and the zone.
    pub fn while_a_home_is_sought(&self, hook: impl Fn() + Send + Sync + 'static) {
        *locked(&self.homing) = Some(Box::new(hook));
    }

    /// Has `hook` run, on a thread of its own, whenever a thread waits for callbacks for a bounded time. Without one, the
    /// time passes.
    pub fn while_callbacks_are_waited_for(&self, hook: impl Fn() + Send + Sync + 'static) {
        *locked(&self.waiting) = Some(Box::new(hook));
    }

    /// Has `hook` run, as a signal's handler, on the next thread that begins to wait for as long as it takes.
    pub fn interrupt_the_next_wait(&self, hook: impl Fn() + Send + Sync + 'static) {
        *locked(&self.interrupting) = Some(Box::new(hook));
    }

    /// How many calls of kind `call` there were since its failures were last planned.
    pub fn calls(&self, call: Call) -> u64 {
        self.plans[call as usize].calls.load(Relaxed)
    }

    fn fails(&self, call: Call) -> bool {
        self.outside_locks();
        self.plans[call as usize].fails()
    }

    fn outside_locks(&self) {
        let held = RANKS.with(|r| r.load(Relaxed)) & QUIET_RANKS;
        assert!(held == 0, "a platform call under a lock (held: {held:#b})");
    }

    fn on_cpu<R>(&self, table: &Table, f: impl FnOnce(*mut CpuSlab) -> R) -> R {
        let cpu = CPU.get();
        // The table is read inside the section, as a restartable one does.
        let _section = locked(&self.cpus[cpu]);
        f(table.entry(cpu).load(Acquire))
    }

    /// Mappings begin at whole units; where a unit is a pageblock, that is of releases alone.
    fn check_unit(&self, run: Run) {
        let unit = if self.unit == PAGEBLOCK { PAGE } else { self.unit };
        assert!(run.addr.is_multiple_of(unit), "{run:?} begins within a unit");
    }

    fn check_release(&self, runs: &[Run]) {
        assert!(!runs.is_empty());
        let memory = locked(&self.memory);
        let live = locked(&self.live);
        let mut flying = locked(&self.in_flight);
        for &run in runs {
            assert!(
                run.addr.is_multiple_of(self.unit) && run.len.is_multiple_of(self.unit) && run.len > 0,
                "{run:?} is not in whole units"
            );
            assert!(memory.is_mapped(run), "{run:?} is not mapped");
            let near = live.range(..run.addr + run.len).next_back();
            let near = near.map(|(&addr, &len)| Run { addr, len });
            assert!(!near.is_some_and(|held| overlap(held, run)), "{run:?} is in use: {near:?}");
            assert!(!flying.iter().any(|&other| overlap(other, run)), "{run:?} is in flight already");
            flying.push(run);
        }
    }

    /// Runs that were cooled since the last call.
    pub fn take_cooled(&self) -> Vec<Run> {
        std::mem::take(&mut locked(&self.cooled))
    }

    /// `hook` runs on a thread of its own at each call that unmaps a part of a window.
    pub fn while_it_unmaps(&self, hook: impl Fn() + Send + Sync + 'static) {
        *locked(&self.unmapping) = Some(Box::new(hook));
    }

    /// Does what the test wants done meanwhile.
    fn run_hook(&self, of: &Mutex<Option<Hook>>) {
        let hook = locked(of).take();
        if let Some(hook) = hook {
            std::thread::scope(|scope| scope.spawn(&hook).join().unwrap());
            *locked(of) = Some(hook);
        }
    }

    /// Nodes whose workers were wanted since the last call.
    pub fn take_summoned(&self) -> Vec<usize> {
        std::mem::take(&mut locked(&self.summoned))
    }

    /// The runs of blocks of their own that were looked at since the last call.
    pub fn take_looks(&self) -> Vec<Run> {
        std::mem::take(&mut locked(&self.looks))
    }

    /// Bytes of blocks of their own that have memory behind them, in use or kept.
    pub fn resident_blocks(&self) -> usize {
        locked(&self.memory).resident()
    }

    /// Somebody else maps `len` bytes right behind the mapped part that `addr` lies in.
    pub fn put_behind(&self, addr: usize, len: usize) -> Run {
        locked(&self.memory).put_behind(addr, len)
    }

    /// Somebody else maps `len` bytes at `addr`, in a window.
    pub fn put_at(&self, addr: usize, len: usize) -> Run {
        locked(&self.memory).put_at(addr, len)
    }

    /// Whether the engine has mapped the page at `addr`.
    pub fn is_mapped_at(&self, addr: usize) -> bool {
        self.is_mapped(Run { addr, len: PAGE })
    }

    /// Whether the engine has mapped all of `run`.
    pub fn is_mapped(&self, run: Run) -> bool {
        locked(&self.memory).is_mapped(run)
    }

    /// The next block of its own is mapped right behind the mapped part of a window that `addr` lies in.
    pub fn map_next_behind(&self, addr: usize) {
        locked(&self.memory).map_next_behind(addr);
    }

    /// At most `bytes` may be mapped from now on, but for what describes the heap.
    pub fn limit(&self, bytes: usize) {
        locked(&self.memory).limit = Some(bytes);
    }

    /// Whether a block of its own begins at `addr`.
    pub fn is_block(&self, addr: usize) -> bool {
        locked(&self.memory).is_block(addr)
    }

    /// Bytes of all that is mapped here and has memory behind it; and of those what is metadata.
    pub fn resident_bytes(&self) -> (usize, usize) {
        locked(&self.memory).resident_bytes()
    }

    /// Merges as the kernel does: of the pages where it was asked to, those that are equal share one. Returns how many share,
    /// and how many pages they share.
    pub fn merge_equal(&self) -> (usize, usize) {
        let mut same: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for page in self.mergeable_pages() {
            let run = Run { addr: page, len: PAGE };
            if memory::resident(run) == 1 {
                // SAFETY: mapped memory of the heap, as it was asked to be merged; no other thread of the test uses it now.
                *same.entry(unsafe { std::slice::from_raw_parts(page as *const u8, PAGE) }.to_vec()).or_default() += 1;
            }
        }
        let shared: Vec<_> = same.values().filter(|&&pages| pages > 1).collect();
        let (sharing, of) = (shared.iter().copied().sum(), shared.len());
        self.merged.store(sharing, Relaxed);
        (sharing, of)
    }

    /// How often it was asked to merge in a run.
    pub fn asked_to_merge(&self) -> usize {
        locked(&self.mergeable).iter().filter(|(_, on)| *on).count()
    }

    /// The pages where it was asked to merge.
    pub fn mergeable_pages(&self) -> Vec<usize> {
        let mut pages = BTreeSet::new();
        for &(run, on) in locked(&self.mergeable).iter() {
            for page in (run.addr..run.addr + run.len).step_by(PAGE) {
                if on {
                    pages.insert(page)
                } else {
                    pages.remove(&page)
                };
            }
        }
        pages.into_iter().collect()
    }

    /// The windows asked for so far.
    pub fn windows(&self) -> Vec<Run> {
        locked(&self.windows).clone()
    }
}
