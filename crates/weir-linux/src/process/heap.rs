//! The heap of the process, with its threads, and how the parts are connected. The file has the parts of the platform
//! that need the layers above it, what libc calls around `fork`, and the start and end of the process.

use core::alloc::Layout;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::units::{BlockNo, Order, Pages};
use weir_core::base::zone_class::ZoneClass;
use weir_core::caches::figures::CacheStats;
use weir_core::caches::user_cache::{Busy, CacheId, LimitError, MakeError, Move, Spec};
use weir_core::heap::Heap;
use weir_core::heap::page_pools::InFlight;
use weir_core::pages::user_zone::{InUse, UserZone, ZoneUsage};
use weir_core::pages::zone::PageRun;
use weir_core::pages::{Hold, Short};
use weir_core::platform::lock::RankTurn;
use weir_core::platform::{Wait, Workers};
use weir_core::policy::prices::Prices;
use weir_core::pools::page_pool::{PagePool, PoolStats};
use weir_core::reclaim::Usage;
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tables::EvictableRow;

use crate::os::futex::{futex_wait, futex_wake, report_end_in_copy};
use crate::os::symbol::weak_symbol;
use crate::os::syscall::Errno;
use crate::os::tasks;
use crate::os::thread_block;
use crate::platform::linux::{Engine, Linux};
use crate::platform::neighbours;
use crate::platform::other_malloc;
use crate::platform::statics::TUNABLES;
use crate::platform::stats_page;
use crate::pressure::sources::machine_free;
use crate::process::environment::{self, Environment};
use crate::process::{evictable_list, exit_profile, fork, fork_freeze, limit};
use crate::profile::guard;
use crate::threads::at_work::AT_WORK;
use crate::threads::background::Background;
use crate::threads::callbacks::CallbackThreads;
use crate::threads::finalizer::Finalizer;
use crate::threads::node_workers::NodeWorkers;

/// The one heap. Fast paths written by hand address its fields by [`crate::platform::fast_path`].
pub static HEAP: Process = Process(Heap::new(Linux::new()));
/// The heap's background thread.
pub static BACKGROUND: Background = Background::new(&HEAP.0, &FINALIZER, &CALLBACK_THREADS, &NODE_WORKERS);
/// The heap's finalizer thread.
pub static FINALIZER: Finalizer = Finalizer::new(&HEAP.0);
/// The threads of the program's callbacks.
pub static CALLBACK_THREADS: CallbackThreads = CallbackThreads::new(&HEAP.0);
/// The heap's node workers.
static NODE_WORKERS: NodeWorkers = NodeWorkers::new(&HEAP.0);

/// The engine on Linux, to which it derefs.
#[repr(transparent)]
pub struct Process(Engine);

impl Process {
    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.0
    }

    /// The engine's `user_caches().alloc`, of which only the fast path is compiled where it is called.
    #[inline(always)]
    pub fn cache_alloc(&self, id: CacheId) -> *mut u8 {
        let object = self.0.user_caches().alloc_fast(id);
        if object.is_null() { self.cache_alloc_slow(id) } else { object }
    }

    #[cold]
    fn cache_alloc_slow(&self, id: CacheId) -> *mut u8 {
        let object = self.0.user_caches().alloc(id);
        self.cache_slow_path_ends(id);
        object
    }

    /// The engine's `user_caches().free`, of which only the fast path is compiled where it is called.
    ///
    /// # Safety
    /// The object is not used any more.
    #[inline(always)]
    pub unsafe fn cache_free(&self, id: CacheId, object: *mut u8) {
        // SAFETY: the caller gives the object up.
        if !unsafe { self.0.user_caches().free_fast(id, object) } {
            // SAFETY: it was not taken back.
            unsafe { self.cache_free_slow(id, object) }
        }
    }

    /// # Safety
    /// As for [`Process::cache_free`].
    #[cold]
    unsafe fn cache_free_slow(&self, id: CacheId, object: *mut u8) {
        // SAFETY: the caller gives the object up.
        unsafe { self.0.user_caches().free(id, object) }
        self.cache_slow_path_ends(id);
    }

    /// The engine's `user_caches().alloc_batch`.
    pub fn cache_alloc_batch(&self, id: CacheId, out: &mut [*mut u8]) -> usize {
        let count = self.0.user_caches().alloc_batch(id, out);
        self.cache_slow_path_ends(id);
        count
    }

    /// The engine's `user_caches().free_batch`.
    ///
    /// # Safety
    /// The objects are not used any more.
    pub unsafe fn cache_free_batch(&self, id: CacheId, objects: &[*mut u8]) {
        // SAFETY: the caller gives the objects up.
        unsafe { self.0.user_caches().free_batch(id, objects) }
        self.cache_slow_path_ends(id);
    }

    /// The engine's `user_caches().set_reserve`. Before the background thread has read the limits, what the machine does not have
    /// is refused.
    pub fn set_cache_reserve(&self, id: CacheId, objects: usize) -> Result<(), LimitError> {
        let stats = self.0.user_caches().stats(id);
        let missing = stats.size.saturating_mul(objects).saturating_sub(stats.slab_bytes);
        if missing > UNASKED
            && self.0.reclaim().budget_figures().capacity == 0
            && machine_free().is_some_and(|free| missing as u64 > free)
        {
            return Err(LimitError::NoMemory);
        }
        self.0.user_caches().set_reserve(id, objects)
    }

    /// A slow path of a cache may have to make the finalizer thread again, in a forked child, or where it was refused: it is wanted
    /// where there is a background thread. No lock is held, and the program may allocate.
    fn cache_slow_path_ends(&self, id: CacheId) {
        if FINALIZER.is_missing() && BACKGROUND.does_the_work() && self.0.user_caches().has_callbacks(id) {
            FINALIZER.start_again();
        }
    }
}

/// Bytes of a reserve up to which what the machine has is not read: what a heap holds before it has a background thread.
const UNASKED: usize = 4 << 20;

/// Functions of the engine that sister crates call, under their names, compiled here. Each crate that calls a generic function
/// has a copy of its own, with a copy of all that it calls. Without this list the library's code is 40 % longer.
macro_rules! compiled_here {
    ($($([$unsafety:tt])? $name:ident = <$($view:ident)?> $method:ident($($argument:ident: $type:ty),*)
        $(-> $result:ty)?;)*) => {
        impl Process {$(
            #[doc = concat!("The engine's ", $("`", stringify!($view), "().", )? stringify!($method), "`.")]
            #[allow(clippy::missing_safety_doc, reason = "the engine's function has it")]
            pub $($unsafety)? fn $name(&self $(, $argument: $type)*) $(-> $result)? {
                // SAFETY: the caller's promise is that of the function of this name.
                #[allow(unused_unsafe, reason = "some of them promise nothing")]
                unsafe { self.0$(.$view())?.$method($($argument),*) }
            }
        )*}
    };
}

compiled_here! {
    alloc_zeroed = <> alloc_zeroed(size: usize) -> *mut u8;
    alloc_aligned = <> alloc_aligned(layout: Layout) -> *mut u8;
    alloc_zeroed_aligned = <> alloc_zeroed_aligned(layout: Layout) -> *mut u8;
    alloc_low32 = <> alloc_low32(size: usize) -> *mut u8;
    purge = <> purge() -> usize;
    purge_unfinalized = <reclaim> purge() -> usize;
    usage = <figures> usage() -> Usage;
    mapped_count = <figures> mapped_count() -> usize;
    may_grow = <reclaim> may_grow(bytes: usize) -> bool;
    may_grow_low32 = <reclaim> may_grow_low32(bytes: usize) -> bool;
    set_congested = <reclaim> set_congested(zone: ZoneClass, is_congested: bool);
    [unsafe] destroy_cache = <user_caches> destroy(id: CacheId) -> Result<(), Busy>;
    set_cache_limit = <user_caches> set_limit(id: CacheId, limit: usize) -> Result<(), LimitError>;
    cache_at = <user_caches> at(addr: usize) -> Option<CacheId>;
    note_cache_refusal = <user_caches> note_refused(id: CacheId);
    cache_stats = <user_caches> stats(id: CacheId) -> CacheStats;
    next_cache = <user_caches> next(number: usize) -> Option<CacheStats>;
    remove_pool = <page_pools> remove(pool: &PagePool) -> Result<(), InFlight>;
    pool_get = <page_pools> get(pool: &PagePool, pages: usize) -> *mut u8;
    pool_get_batch = <page_pools> get_batch(pool: &PagePool, pages: usize, out: &mut [*mut u8]) -> usize;
    [unsafe] pool_put = <page_pools> put(pool: &PagePool, runs: &[*mut u8]);
    tend_pool = <page_pools> tend(pool: &PagePool) -> usize;
    wait_for_squeeze = <page_pools> wait_for_squeeze(pool: &PagePool, ns: Option<u64>);
    pool_stats = <page_pools> stats(pool: &PagePool) -> PoolStats;
    room_for_zone = <zones> room(bytes: usize) -> Result<Hold<'_>, Short>;
    [unsafe] add_zone = <zones> add(zone: NonNull<UserZone>);
    remove_zone = <pages> remove_zone(zone: &UserZone);
    zone_take = <zones> take(zone: &UserZone, pages: Pages, align: Order) -> Result<PageRun, Short>;
    zone_take_first = <zones> take_first(zone: &UserZone, pages: Pages, align: Order) -> Result<PageRun, Short>;
    zone_has_room = <zones> has_room(zone: &UserZone, bytes: usize) -> bool;
    zone_give = <pages> zone_give(zone: &UserZone, addr: usize, pages: Pages) -> Result<(), InvalidFree>;
    zone_give_bare = <pages> zone_give_bare(zone: &UserZone, addr: usize, pages: Pages, bare: u32)
        -> Result<(), InvalidFree>;
    zone_usage = <pages> zone_usage(zone: &UserZone) -> ZoneUsage;
    zone_offline = <pages> zone_offline(zone: &UserZone, blocks: Range<BlockNo>) -> Result<(), InUse>;
    zone_close = <pages> zone_close(zone: &UserZone, blocks: Range<BlockNo>) -> Pages;
    zone_open = <pages> zone_open(zone: &UserZone, blocks: Range<BlockNo>);
}

impl Deref for Process {
    type Target = Engine;
    #[inline(always)]
    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl Linux {
    /// The fast path is set up: the heap is used for the first time.
    pub(crate) fn is_ready(&self) {
        on_first_use();
    }

    /// The figures of each evictable cache, and where its prices are told; `false`: they cannot be read now, or not all.
    pub(crate) fn each_evictable_cache(&self, add: &mut dyn FnMut(EvictableRow, &Prices)) -> bool {
        evictable_list::figures(self, add)
    }
}

/// How long a thread waits for a lock before it checks whether a `fork` holds it. Locks are held for microseconds,
/// except by a `fork`, which takes seconds where a process is large. So the time says little, and the check decides.
pub(super) const LONG_WAIT_NS: u64 = 1_000_000_000;

impl Wait for Linux {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        if futex_wait(word, expected, Some(LONG_WAIT_NS)) == Err(Errno::ETIMEDOUT) {
            fork_freeze::waited_long(&HEAP.0);
        }
    }

    fn wake(&self, word: &AtomicU32) {
        let _ = futex_wake(word, 1);
    }

    fn wait_for(&self, word: &AtomicU32, expected: u32, ns: Option<u64>) {
        let _ = futex_wait(word, expected, ns);
    }

    fn wake_all(&self, word: &AtomicU32) {
        let _ = futex_wake(word, i32::MAX as u32);
    }

    fn held_ranks(&self) -> Option<&AtomicU32> {
        Some(thread_block::ranks())
    }
}

impl Workers for Linux {
    fn wake_node_worker(&self, node: usize, cause: Cause, severe: bool) {
        if BACKGROUND.is_this_thread() {
            NODE_WORKERS.start(node, cause, severe);
        }
    }

    fn wake_balancer(&self) {
        BACKGROUND.freed();
    }

    fn heap_has_grown(&self) {
        BACKGROUND.grown();
    }

    fn wake_finalizer(&self) {
        FINALIZER.wake();
    }

    fn is_alone(&self) -> bool {
        tasks::has_one_thread() && AT_WORK.hold_up()
    }

    fn is_not_alone(&self) {
        AT_WORK.go_on();
    }

    fn freeze_evictable_caches(&self, turn: &RankTurn<'_, Self>) {
        evictable_list::freeze(turn);
    }

    fn has_balancer_thread(&self) -> bool {
        BACKGROUND.does_the_work()
    }

    fn hears_hard_limit(&self) -> bool {
        limit::is_set()
    }

    fn hard_limit_reached(&self, bytes: usize) -> bool {
        limit::limit_reached(bytes)
    }

    fn may_wait(&self) -> bool {
        !thread_block::is_own_thread()
    }

    fn neighbours(&self, each: &mut dyn FnMut(&Stats)) -> usize {
        neighbours::each(each)
    }

    fn evicted_elsewhere(&self) -> u64 {
        other_malloc::evicted()
    }

    fn process_resident(&self) -> Option<u64> {
        // Read only where it makes a difference.
        if other_malloc::is_other() { other_malloc::resident() } else { None }
    }
}

/// Reads the settings from the environment and registers for `fork`, unless that was done before; and begins the heap profile,
/// if the environment wants one. For a library that is a whole program's malloc.
///
/// # Safety
/// `envp` is null or a null-terminated array of C strings that stay where they are.
pub unsafe fn init(envp: *const *const u8) {
    // Sets the fast path up now, while there is one thread.
    HEAP.prepare();
    // SAFETY: libc's environment, or what the caller promises.
    unsafe { start(environment::of_libc().unwrap_or(envp)) }
    exit_profile::begin(&HEAP);
    if TUNABLES.guard_every.get() != 0 {
        // The heap's first block makes calls of its own (where its addresses are), which a filter of the program's may forbid
        // later. The program's own first blocks may all be guarded.
        let block = HEAP.alloc(1);
        // SAFETY: null, or allocated just now.
        unsafe { HEAP.free(block) };
        guard::switch::follow_setting();
    }
}

/// A library with this code in it is not unloaded: see `stay_loaded.rs`. It is here, as who uses the heap links what this file has.
// SAFETY: the loader calls what this section holds, once, as the object is loaded. The arguments that it passes are not used.
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
#[used]
#[unsafe(link_section = ".init_array")]
static AS_IT_IS_LOADED: extern "C" fn() = super::stay_loaded::stay_loaded;

/// Does on the first allocation what [`init`] does. A library with a constructor that calls it is waited for where there is no
/// environment yet. Elsewhere libc has been set up, and the program has cleared its environment.
pub fn on_first_use() {
    match environment::of_libc() {
        None if has_constructor().is_some() => {}
        // SAFETY: null, or libc's own environment, whose strings stay until the program changes them.
        envp => unsafe { start(envp.unwrap_or(core::ptr::null())) },
    }
}

// Hidden: the mark of this object counts, not that of another in the process.
core::arch::global_asm!(".hidden weir_has_constructor");
weak_symbol!(
    /// A mark of the library that calls [`init`] as it is loaded.
    has_constructor = "weir_has_constructor": NonNull<u8>
);

/// Makes an object cache. One with a `fini` starts a thread of the program's kind the first time, which calls those of objects
/// whose slabs are to be released. In a forked child the first slow path of such a cache does.
pub fn make_cache(spec: &Spec<'_>) -> Result<CacheId, MakeError> {
    on_first_use();
    if spec.fini.is_some() {
        FINALIZER.start();
    }
    HEAP.user_caches().make(spec)
}

/// Lets objects of a cache be moved, by the same thread. `false`: the cache has such a function, or an `init` or `fini`.
///
/// # Safety
/// As for the engine's `user_caches().set_move`.
pub unsafe fn set_cache_move(id: CacheId, function: Move, argument: *mut u8) -> bool {
    // SAFETY: as the caller promises.
    let is_set = unsafe { HEAP.user_caches().set_move(id, function, argument) };
    if is_set {
        FINALIZER.start();
    }
    is_set
}

/// Makes a page pool known; from now on pressure is listened for.
///
/// # Safety
/// The pool lives, where it is, until [`Process::remove_pool`] has succeeded. It is added once, and used through shared references
/// alone meanwhile.
pub unsafe fn add_pool(pool: NonNull<PagePool>) {
    on_first_use();
    // SAFETY: as the caller promises.
    unsafe { HEAP.page_pools().add(pool) }
    BACKGROUND.listen();
}

/// Before the process ends: brings the counters up to date, if others read them, and writes the heap profile, if the
/// environment says where. The heap works on.
pub fn finish() {
    if stats_page::is_shared() {
        HEAP.figures().publish_counts();
    }
    exit_profile::write(&HEAP);
}

/// # Safety
/// As for [`init`].
unsafe fn start(envp: Environment) {
    // SAFETY: the caller's environment.
    if unsafe { environment::read_once(envp) } {
        HEAP.platform().count_nodes();
        BACKGROUND.settle();
        if TUNABLES.check.get() != 0 {
            // Blocks that were freed before the environment could be read may wait in buckets.
            HEAP.reclaim().follow_check();
        }
        if TUNABLES.huge_heap.get() != 0 {
            HEAP.reclaim().follow_huge_heap();
        }
        // SAFETY: functions of this object, which is never unloaded: it is the program's own, or stays (`AS_IT_IS_LOADED`).
        unsafe { fork::register(before_fork, after_fork_in_parent, after_fork_in_child) }
    }
}

/// Right before libc forks: takes every lock of the heap, unless a signal handler that interrupted the heap forks. One
/// of the other two always follows, on this thread.
extern "C" fn before_fork() {
    fork::lock_streams();
    freeze();
}

fn freeze() {
    // A process of memory calls alone opens no file.
    fork_freeze::freeze(&HEAP.0, TUNABLES.background.get() != 0);
}

/// To be called before the program has `clone` make a thread, or a child with the same memory: a `fork` takes all locks from then
/// on.
pub fn shares_memory() {
    tasks::shares_memory();
}

/// Makes a copy of the process by a call that runs none of `fork`'s handlers, and does what they do. In the copy, where the call
/// does not return, [`begin_copy`] is called first of all.
pub fn copy_process<R>(copy: impl FnOnce() -> R) -> R {
    before_fork();
    let result = copy();
    after_fork_in_parent();
    result
}

/// Forks by a call that runs none of `fork`'s handlers and returns as `fork` does (`_Fork`), and does what they do, but for libc's
/// list of streams. `fork` takes that one's lock behind the handlers, `_Fork` never: a signal handler may call it while another
/// thread has that lock, and waits for a stream of this one's.
pub fn fork_unhandled(fork: impl FnOnce() -> i32) -> i32 {
    freeze();
    let child = fork();
    if child == 0 {
        begin_child(|| ())
    } else {
        end_freeze(|| ())
    }
    child
}

/// The beginning of a copy. `has_word`: the program has the kernel clear a word as the thread ends.
///
/// # Safety
/// This is the copy that [`copy_process`] makes, and its only thread, whose thread pointer is the one of its parent's.
pub unsafe fn begin_copy(has_word: bool) {
    after_fork_in_child();
    if !has_word {
        report_end_in_copy();
    }
}

/// This process is the child of a fork in a signal handler that interrupted another fork. The locks are that one's, which goes
/// on here as in its parent, so that what takes locks waits for its end. Set and read by one thread.
static IS_INHERITANCE_LEFT: AtomicBool = AtomicBool::new(false);

extern "C" fn after_fork_in_parent() {
    end_freeze(fork::unlock_streams);
}

/// The end of [`freeze`] in the parent, on the same thread.
fn end_freeze(unlock_streams: fn()) {
    let is_nested = HEAP.fork().is_nested();
    // SAFETY: follows `freeze` on the same thread, in the parent.
    unsafe { fork_freeze::thaw(&HEAP.0) };
    unlock_streams();
    if !is_nested && IS_INHERITANCE_LEFT.swap(false, Relaxed) {
        HEAP.fork().inherit();
        inherit();
    }
}

extern "C" fn after_fork_in_child() {
    begin_child(fork::reset_streams);
}

/// In the child there is none of Weir's threads, and the counters are to be a page of its own.
fn begin_child(reset_streams: fn()) {
    IS_INHERITANCE_LEFT.store(HEAP.fork().is_in_fork(), Relaxed);
    stats_page::leave_parents();
    guard::switch::leave_parents();
    // SAFETY: follows `freeze`, and this is the child's only thread.
    unsafe { fork_freeze::thaw_child(&HEAP.0) }
    reset_streams();
    AT_WORK.forget();
    BACKGROUND.forget();
    // SAFETY: this is a forked child, which has started none yet.
    unsafe { NODE_WORKERS.forget() };
    FINALIZER.forget();
    inherit();
}

/// The part of a child's start that takes locks, as far as they are free.
fn inherit() {
    other_malloc::inherit();
    evictable_list::inherit(HEAP.platform());
    CALLBACK_THREADS.forget();
}
