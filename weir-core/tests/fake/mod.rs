//! A platform made of plain memory and locks, whose clock, CPUs, nodes and failures a test decides.
//!
//! It checks what the engine owes a platform: calls that may be system calls come under none of the locks from the depots' rank on;
//! released runs are whole pages of mapped memory, not in use (as far as the test tells) and not in flight twice.
#![allow(dead_code, reason = "each test binary uses a part of it")]

mod memory;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard};

use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK_PAGES};
use weir_core::platform::cpu_table::{CpuSlab, Pushed, Table};
use weir_core::platform::lock::Lock;
use weir_core::platform::{
    Clock, Contents, CpuOps, Diagnostics, Host, Memory, Placed, Reach, Refused, Released, Topology, Wait, Workers, rank,
};
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tunables::Tunables;

/// What a call that fails says: Linux's ENOMEM.
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
    Release,
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

/// What a test wants done while a release is under way, on a thread of its own.
type Hook = Box<dyn Fn() + Send + Sync>;
/// A program's callback at the hard limit.
type HardLimitCallback = Box<dyn Fn(usize) -> bool + Send>;

pub struct Fake {
    /// The locks of an evictable cache, which come before the heap's.
    cache:
        (Lock<(), { rank::EVICTABLE_CACHES }>, Lock<(), { rank::EVICTABLE_SHARD }>, Lock<(), { rank::EVICTABLE_DUEL }>),
    memory: Mutex<memory::Memory>,
    clock: AtomicU64,
    plans: [Plan; 5],
    pub node_count: AtomicUsize,
    pub huge: AtomicBool,
    /// Mapping memory takes its time.
    pub is_slow: AtomicBool,
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
    /// What a program does then; whether it freed something.
    pub hard_limit_callback: Mutex<Option<HardLimitCallback>>,
    /// Nodes whose workers were wanted.
    summoned: Mutex<Vec<usize>>,
    /// Runs that huge pages were asked for.
    pub advised: Mutex<Vec<Run>>,
    /// Runs of blocks of their own that were looked at.
    looks: Mutex<Vec<Run>>,
    /// Of blocks of their own, what was touched is resident, as the kernel has it; else all of them are.
    pub really: AtomicBool,
    pub fences: AtomicUsize,
    /// Fences are refused.
    pub no_fence: AtomicBool,
    misuses: Mutex<Vec<(InvalidFree, usize)>>,
    /// Every call of release so far.
    released: Mutex<Vec<Vec<Run>>>,
    /// Bytes of metadata released so far.
    pub metadata_released: AtomicUsize,
    /// Metadata is not taken back.
    pub keeps_metadata: AtomicBool,
    /// Calls that were refused for that.
    pub metadata_refusals: AtomicUsize,
    in_flight: Mutex<Vec<Run>>,
    /// What the test holds now: address and length.
    live: Mutex<BTreeMap<usize, usize>>,
    hook: Mutex<Option<Hook>>,
    /// The same for the next question of how many nodes there are, on the thread that asks.
    counting: Mutex<Option<Hook>>,
    /// The same for the next question on which node a thread runs.
    homing: Mutex<Option<Hook>>,
    /// What runs while reclaim waits for callbacks.
    waiting: Mutex<Option<Hook>>,
    interrupting: Mutex<Option<Hook>>,
    /// Callbacks that were named as slow, and as panicked.
    pub slow: Mutex<Vec<String>>,
    pub panicked: Mutex<Vec<String>>,
    /// Runs that are not taken back.
    pub pinned: Mutex<Vec<Run>>,
    /// The heap's pageblocks that huge pages are behind.
    pub collapsed: Mutex<Vec<Run>>,
    /// Runs that were cooled.
    cooled: Mutex<Vec<Run>>,
    windows: Mutex<Vec<Run>>,
    /// What is resident is not told.
    pub is_blind: AtomicBool,
    /// What is taken back at least.
    pub unit: usize,
    stats: Stats,
    tunables: Tunables,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed under the lock has said so already.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn overlap(a: Run, b: Run) -> bool {
    a.addr < b.addr + b.len && b.addr < a.addr + a.len
}

impl Fake {
    pub fn new() -> Self {
        RANKS.with(|r| r.store(0, Relaxed));
        run_on(0);
        run_on_node(0);
        Self {
            cache: (Lock::new(()), Lock::new(()), Lock::new(())),
            memory: Mutex::default(),
            clock: AtomicU64::new(1_000_000_000),
            plans: Default::default(),
            node_count: AtomicUsize::new(1),
            huge: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            lockless: true,
            window: 1 << 30,
            skipped: 0,
            cpus: (0..CPUS).map(|_| Mutex::default()).collect(),
            sleepers: Default::default(),
            notices: AtomicUsize::new(0),
            finalizer_wakes: AtomicUsize::new(0),
            at_hard_limit: Mutex::default(),
            hard_limit_callback: Mutex::default(),
            summoned: Mutex::default(),
            advised: Mutex::default(),
            looks: Mutex::default(),
            really: AtomicBool::new(false),
            fences: AtomicUsize::new(0),
            no_fence: AtomicBool::new(false),
            misuses: Mutex::default(),
            released: Mutex::default(),
            metadata_released: AtomicUsize::new(0),
            keeps_metadata: AtomicBool::new(false),
            metadata_refusals: AtomicUsize::new(0),
            in_flight: Mutex::default(),
            live: Mutex::default(),
            hook: Mutex::default(),
            counting: Mutex::default(),
            homing: Mutex::default(),
            waiting: Mutex::default(),
            interrupting: Mutex::default(),
            slow: Mutex::default(),
            panicked: Mutex::default(),
            pinned: Mutex::default(),
            collapsed: Mutex::default(),
            cooled: Mutex::default(),
            windows: Mutex::default(),
            is_blind: AtomicBool::new(false),
            unit: PAGE,
            stats: Stats::new(),
            tunables: Tunables::new(),
        }
    }

    /// Lets `ms` milliseconds pass.
    pub fn pass_ms(&self, ms: u64) {
        self.clock.fetch_add(ms * 1_000_000, Relaxed);
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

    /// Has `hook` run while the nodes are counted for the next time.
    pub fn while_nodes_are_counted(&self, hook: impl Fn() + Send + Sync + 'static) {
        *locked(&self.counting) = Some(Box::new(hook));
    }

    /// Has `hook` run, on the thread that asks, when it is next asked on which of several nodes a thread runs: an allocation
    /// of pages asks between its hold below the hard limit and the zone.
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

    fn check_release(&self, runs: &[Run]) {
        assert!(!runs.is_empty());
        let memory = locked(&self.memory);
        let live = locked(&self.live);
        let mut flying = locked(&self.in_flight);
        for &run in runs {
            assert!(
                run.addr.is_multiple_of(PAGE) && run.len.is_multiple_of(PAGE) && run.len > 0,
                "{run:?} is not whole pages"
            );
            assert!(memory.is_mapped(run), "{run:?} is not mapped");
            let near = live.range(..run.addr + run.len).next_back();
            let near = near.map(|(&addr, &len)| Run { addr, len });
            assert!(!near.is_some_and(|held| overlap(held, run)), "{run:?} is in use: {near:?}");
            assert!(!flying.iter().any(|&other| overlap(other, run)), "{run:?} is in flight already");
            flying.push(run);
        }
    }

    /// What was cooled since the last call.
    pub fn take_cooled(&self) -> Vec<Run> {
        std::mem::take(&mut locked(&self.cooled))
    }

    /// What the test wants done meanwhile.
    fn run_hook(&self) {
        let hook = locked(&self.hook).take();
        if let Some(hook) = hook {
            std::thread::scope(|scope| scope.spawn(&hook).join().unwrap());
            *locked(&self.hook) = Some(hook);
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

    /// The next block of its own is mapped right behind the mapped part of a window that `addr` lies in.
    pub fn map_next_behind(&self, addr: usize) {
        locked(&self.memory).map_next_behind(addr);
    }

    /// Whether a block of its own begins at `addr`.
    pub fn is_block(&self, addr: usize) -> bool {
        locked(&self.memory).is_block(addr)
    }

    /// Bytes of all that is mapped here and has memory behind it; and of those what is metadata.
    pub fn resident_bytes(&self) -> (usize, usize) {
        locked(&self.memory).resident_bytes()
    }

    /// The windows asked for so far.
    pub fn windows(&self) -> Vec<Run> {
        locked(&self.windows).clone()
    }
}

impl Host for Fake {
    fn release(&self, runs: &[Run], calm: bool) -> Released {
        let fails = self.fails(Call::Release);
        self.check_release(runs);
        locked(&self.released).push(runs.to_vec());
        self.run_hook();
        // A failing call still does a part of its work.
        let taken = if fails { runs.len() / 2 } else { runs.len() };
        let pinned = locked(&self.pinned).clone();
        let free = |run: &&Run| !pinned.iter().any(|&pin| overlap(pin, **run));
        let taken = runs[..taken].iter().take_while(free).count();
        let lazy = calm && self.tunables.report_lazily.get() != 0;
        if !lazy {
            runs[..taken].iter().for_each(|&run| memory::wipe(run));
        }
        locked(&self.in_flight).retain(|run| !runs.contains(run));
        locked(&self.collapsed).retain(|&huge| !runs[..taken].iter().any(|&run| overlap(huge, run)));
        let contents = if lazy { Contents::Undefined } else { Contents::Zero };
        Released { runs: taken, contents, error: if taken < runs.len() { 22 } else { 0 } }
    }

    fn release_unit(&self) -> usize {
        self.unit
    }
}

impl Memory for Fake {
    fn window(&self, len: usize, align: usize, reach: Reach) -> Result<Run, Refused> {
        if self.fails(Call::Window) {
            return Err(REFUSED);
        }
        // The engine asks for a heap's window in terabytes and for its arrays' in what they need. Below 4 GiB is room for
        // those of many tests at a time.
        let len = match reach {
            Reach::Low32 => len.min(self.window / 4),
            _ if len > self.window * 4 => self.window,
            _ => len,
        };
        let window = locked(&self.memory).reserve(len, align, reach);
        locked(&self.windows).extend(window);
        let skipped = if reach == Reach::Any { self.skipped * PAGE } else { 0 };
        window.map(|Run { addr, len }| Run { addr: addr + skipped, len: len - skipped }).ok_or(REFUSED)
    }

    fn map_at(&self, run: Run, _node: usize) -> Placed {
        if self.is_slow.load(Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        if self.fails(Call::MapAt) {
            return Placed::Refused;
        }
        if locked(&self.memory).map_at(run) { Placed::Done } else { Placed::Occupied }
    }

    fn map(&self, len: usize, align: usize) -> Result<usize, Refused> {
        let mapped = if self.fails(Call::Map) { None } else { locked(&self.memory).map(len, align) };
        mapped.ok_or(REFUSED)
    }

    fn release_metadata(&self, runs: &[Run]) -> bool {
        let fails = self.fails(Call::Release);
        self.check_release(runs);
        self.run_hook();
        let keeps = self.keeps_metadata.load(Relaxed);
        self.metadata_refusals.fetch_add(keeps.into(), Relaxed);
        let fails = fails || keeps;
        if !fails {
            runs.iter().for_each(|&run| memory::wipe(run));
            self.metadata_released.fetch_add(runs.iter().map(|run| run.len).sum(), Relaxed);
        }
        locked(&self.in_flight).retain(|run| !runs.contains(run));
        !fails
    }

    fn map_metadata(&self, len: usize, align: usize) -> Result<usize, Refused> {
        let mapped = if self.fails(Call::Map) { None } else { locked(&self.memory).map_metadata(len, align) };
        mapped.ok_or(REFUSED)
    }

    fn unmap(&self, run: Run) {
        self.outside_locks();
        locked(&self.memory).unmap(run);
    }

    fn remap(&self, run: Run, len: usize) -> Result<usize, Refused> {
        let remapped = if self.fails(Call::Remap) { None } else { locked(&self.memory).remap(run, len) };
        remapped.ok_or(REFUSED)
    }

    fn advise_huge(&self, run: Run) {
        locked(&self.advised).push(run);
    }

    fn cool(&self, runs: &[Run]) {
        self.outside_locks();
        assert!(runs.iter().all(|&run| locked(&self.memory).is_mapped(run)));
        locked(&self.cooled).extend(runs);
    }

    /// Every page of a block counts as touched, so that it looks filled, unless `really`; of a window, those in
    /// `collapsed`.
    fn resident(&self, run: Run) -> Option<usize> {
        self.outside_locks();
        let in_window = locked(&self.windows).iter().any(|&window| overlap(window, run));
        if !in_window {
            locked(&self.looks).push(run);
            if self.really.load(Relaxed) {
                return Some(memory::resident(run));
            }
        }
        let resident = !in_window || locked(&self.collapsed).contains(&run);
        Some(if resident { run.len / PAGE } else { 0 })
    }

    /// As it really is, whatever [`Memory::resident`] says.
    fn resident_pages(&self, run: Run) -> Option<[u64; PAGEBLOCK_PAGES / 64]> {
        self.outside_locks();
        (!self.is_blind.load(Relaxed)).then(|| memory::resident_pages(run))
    }

    fn huge_on_touch(&self) -> bool {
        self.huge.load(Relaxed)
    }
}

impl Clock for Fake {
    fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }
}

impl Topology for Fake {
    fn nodes(&self) -> usize {
        let hook = locked(&self.counting).take();
        hook.into_iter().for_each(|hook| hook());
        self.node_count.load(Relaxed)
    }

    fn node(&self) -> usize {
        let hook = locked(&self.homing).take();
        hook.into_iter().for_each(|hook| hook());
        NODE.get().min(self.node_count.load(Relaxed) - 1)
    }
}

impl Wait for Fake {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let guard = locked(&self.sleepers.0);
        if word.load(SeqCst) == expected {
            drop(self.sleepers.1.wait(guard));
        }
    }

    fn wait_for(&self, word: &AtomicU32, expected: u32, ns: Option<u64>) {
        self.outside_locks();
        let Some(ns) = ns else {
            let hook = locked(&self.interrupting).take();
            hook.inspect(|hook| hook());
            return self.wait(word, expected);
        };
        let hook = locked(&self.waiting).take();
        let Some(hook) = hook else {
            self.clock.fetch_add(ns, Relaxed);
            return;
        };
        std::thread::scope(|scope| scope.spawn(&hook).join().unwrap());
        *locked(&self.waiting) = Some(hook);
        if word.load(SeqCst) == expected {
            self.clock.fetch_add(ns, Relaxed);
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        let _guard = locked(&self.sleepers.0);
        self.sleepers.1.notify_all();
    }

    fn held_ranks(&self) -> Option<&AtomicU32> {
        Some(RANKS.with(|r| *r))
    }
}

impl Workers for Fake {
    fn freeze_evictable_caches(&self) {
        self.cache.0.acquire(self);
        self.cache.1.acquire(self);
        self.cache.2.acquire(self);
    }

    unsafe fn thaw_evictable_caches(&self) {
        // SAFETY: taken by `freeze_evictable_caches`, on this thread or the one that it plays the copy of.
        unsafe {
            self.cache.2.release(self);
            self.cache.1.release(self);
            self.cache.0.release(self);
        }
    }

    fn wake_node_worker(&self, node: usize, _: Cause, _: bool) {
        locked(&self.summoned).push(node);
    }

    fn wake_balancer(&self) {
        self.outside_locks();
        self.notices.fetch_add(1, Relaxed);
    }

    fn hard_limit_reached(&self, bytes: usize) -> bool {
        assert_eq!(RANKS.with(|r| r.load(Relaxed)), 0, "a program's callback under a lock");
        locked(&self.at_hard_limit).push(bytes);
        let callback = locked(&self.hard_limit_callback).take();
        callback.is_some_and(|callback| {
            let is_worth_it = callback(bytes);
            *locked(&self.hard_limit_callback) = Some(callback);
            is_worth_it
        })
    }

    fn wake_finalizer(&self) {
        self.outside_locks();
        self.finalizer_wakes.fetch_add(1, Relaxed);
    }
}

impl Diagnostics for Fake {
    fn invalid_free(&self, what: InvalidFree, addr: usize, _class_size: usize) {
        self.outside_locks();
        locked(&self.misuses).push((what, addr));
    }

    fn callback_is_slow(&self, name: &[u8], _ns: u64) {
        self.outside_locks();
        locked(&self.slow).push(String::from_utf8_lossy(name).into_owned());
    }

    fn callback_panicked(&self, name: &[u8]) {
        self.outside_locks();
        locked(&self.panicked).push(String::from_utf8_lossy(name).into_owned());
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }
}

impl CpuOps for Fake {
    fn lockless(&self) -> bool {
        self.lockless
    }

    fn cpu(&self) -> usize {
        CPU.get()
    }

    unsafe fn pop(&self, table: &Table, class: usize) -> *mut u8 {
        // SAFETY: the section's lock makes the slab this thread's; a drain fences before it touches the slab.
        self.on_cpu(table, |slab| unsafe { CpuSlab::pop(slab, class) })
    }

    unsafe fn push(&self, table: &Table, class: usize, object: *mut u8) -> Pushed {
        // SAFETY: as in `pop`.
        self.on_cpu(table, |slab| unsafe { CpuSlab::push(slab, class, object) })
    }

    unsafe fn push_batch(&self, table: &Table, class: usize, objects: &[*mut u8]) -> usize {
        // SAFETY: as in `pop`.
        self.on_cpu(table, |slab| unsafe { CpuSlab::push_batch(slab, class, objects) })
    }

    unsafe fn pop_batch(&self, table: &Table, class: usize, objects: &mut [*mut u8]) -> usize {
        self.on_cpu(table, |slab| {
            for (n, slot) in objects.iter_mut().enumerate() {
                // SAFETY: as in `pop`.
                *slot = unsafe { CpuSlab::pop(slab, class) };
                if slot.is_null() {
                    return n;
                }
            }
            objects.len()
        })
    }

    fn fence(&self) -> bool {
        self.outside_locks();
        self.fences.fetch_add(1, Relaxed);
        self.cpus.iter().for_each(|cpu| drop(locked(cpu)));
        !self.no_fence.load(Relaxed)
    }
}
