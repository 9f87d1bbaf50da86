//! The background thread: it hears pressure, and ends the heap's calm windows.
//!
//! Started by the first free after the heap grew to `background_start` bytes; gone in a forked child until needed
//! again there; not started, and ended, where the tunable `background` is not 1 (slow paths then do its work).
//!
//! It ends, and another is started by a thread of the program, whenever the program becomes something else than it was
//! ([`crate::threads::aside`], [`crate::os::identity`]), so that it never has what the program gave up, and never stands outside of
//! a jail. Beside it lives the listener ([`crate::pressure::wake`]), which it starts and ends.

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use weir_core::base::cause::Cause;
use weir_core::base::level::Level;

use crate::message::is_own_thread;
use crate::os::identity::{self, MainThread};
use crate::os::process::{getpid, monotonic_ns, unbind};
use crate::os::{process, tasks};
use crate::platform::rseq;
use crate::platform::statics::{STATS, TUNABLES};
use crate::platform::stats_page;
use crate::pressure::answer::{Rest, answer};
use crate::pressure::sources::{Heat, Sources};
use crate::pressure::wake::{Listener, Waker};
use crate::process::environment;
use crate::process::heap::HEAP;
use crate::threads::aside;
use crate::threads::finalizer;
use crate::threads::node_worker;
use crate::threads::owner::Owner;
use crate::threads::thread::Place;

const ABSENT: u32 = 0;
const STARTING: u32 = 1;
const RUNNING: u32 = 2;
/// It could not be started, which is tried again later; until then slow paths do its work.
const REFUSED: u32 = 3;

/// Between two looks at what the main thread is, while the heap is warm and there is something to give up.
const LOOK_NS: u64 = 1_000_000_000;
/// Between two tries to start the thread, where it is refused (a limit of threads, no memory, a program thread that is
/// something else than the main thread).
const RETRY_NS: u64 = 10_000_000_000;
/// How long a thread that stands in for one that the program made end sleeps before it opens anything: a program may change
/// its user for each request, and changes itself by several calls in a row.
const AGAIN_NS: u64 = 100_000_000;
/// Said to such a thread, beside the changes.
const AGAIN: usize = 1 << 32;
/// Between two looks whether the program has a thread left, where nothing tells of a thread's end (before
/// Linux 5.16, or another libc than glibc, for the main thread; before 6.9 for others).
const LAST_THREAD_NS: u64 = 60_000_000_000;
/// How long a heap rests, where sources of pressure do not notify, until what calm windows keep is released all the same:
/// then there is nothing left to hear for, and nothing is read. Longer than triggers wait to be armed.
const REST_NS: u64 = 15_000_000_000;
/// For how long the listener may take to end.
const LISTENER_NS: u64 = 1_000_000_000;
/// Bytes of heap for which a process that is at rest still looks whether memory is short elsewhere.
const WORTH_HEARING: u64 = 16 << 20;

/// No thread; the program's own threads read files (limits, stalls) on slow paths.
const NO_THREAD: u64 = 2;

static STATE: AtomicU32 = AtomicU32::new(ABSENT);
static PLACE: Place = Place::new();
static OWNER: Owner = Owner::new();
static WAKER: Waker = Waker::new();
static LISTENER: Listener = Listener::new();
static LISTENER_PLACE: Place = Place::new();
/// When to try again where the thread was refused.
static RETRY_AT: AtomicU64 = AtomicU64::new(0);

/// The sources, used by the background thread alone.
struct Own(UnsafeCell<Sources>);
// SAFETY: only the background thread touches it, and there is one at a time (`STATE`).
unsafe impl Sync for Own {}
static SOURCES: Own = Own(UnsafeCell::new(Sources::new()));

/// This process is the one that the memory belongs to. To be called before it has children, and again in a forked child.
pub(crate) fn settle() {
    // Where there is no memory for that, the thread is refused.
    let _ = OWNER.set(getpid());
}

/// Whether this process is the one that the memory belongs to: not a child of `vfork`.
pub(crate) fn is_settled() -> bool {
    OWNER.get() == getpid()
}

/// Something was freed: wakes the thread, or starts it once the heap is worth it.
pub(crate) fn notify() {
    stats_page::take_late();
    let owner = OWNER.get();
    if owner == 0 && OWNER.claim(getpid()) {
        // A copy of the process, forked past libc's handlers: the thread is not there.
        return forget();
    }
    let state = STATE.load(Acquire);
    if state == ABSENT && !is_worth_a_thread() {
        // A small heap gets here whenever `report_threshold` bytes were freed: no system call for that.
        return HEAP.forget_notice();
    }
    if owner != 0 && owner != getpid() {
        // A child of `vfork`. The thread is its parent's; one started here would end with this process.
        return if state == RUNNING { WAKER.wake() } else { HEAP.forget_notice() };
    }
    match state {
        RUNNING if PLACE.is_alive() => WAKER.wake(),
        RUNNING => lost(),
        ABSENT => start(ABSENT, 0),
        REFUSED if monotonic_ns() >= RETRY_AT.load(Relaxed) => start(REFUSED, 0),
        _ => {}
    }
}

/// A parameter was set: the thread, if it sleeps, is to look at it.
pub fn wake() {
    if STATE.load(Acquire) == RUNNING {
        WAKER.wake();
    }
}

/// A sandbox ended the thread. The next free may start another.
#[cold]
fn lost() {
    if STATE.compare_exchange(RUNNING, STARTING, AcqRel, Acquire).is_ok() {
        // The listener may be there still; its memory, its descriptors and its half of the protocol are left alone.
        clear(!LISTENER_PLACE.is_alive());
    }
}

fn wants_thread() -> bool {
    TUNABLES.background.get() == 1
}

/// Whether the thread does the balancer's work, or will when there is some.
pub(crate) fn is_tending() -> bool {
    let state = STATE.load(Relaxed);
    wants_thread() && state < REFUSED && (state != RUNNING || OWNER.get() != 0)
}

/// Whether a thread is wanted, and the heap is worth it.
fn is_worth_a_thread() -> bool {
    let heap = STATS.heap_bytes.load(Relaxed) + STATS.mapped_bytes.load(Relaxed);
    let held = STATS.used_bytes.load(Relaxed).max(heap / 8).max(STATS.zone_bytes.load(Relaxed));
    wants_thread() && held >= TUNABLES.background_start.get()
}

/// `again`: 0 or [`AGAIN`].
#[cold]
fn start(from: u32, again: usize) {
    if !is_worth_a_thread()
        // One that was made to end may not be gone, or gone just now.
        || PLACE.is_alive()
        || monotonic_ns() < RETRY_AT.load(Relaxed)
        || STATE.compare_exchange(from, STARTING, SeqCst, Acquire).is_err()
    {
        // The next free asks again.
        HEAP.forget_notice();
        return;
    }
    // Read before the thread is made, and before the look at who holds: what changes from now on makes it end.
    let changes = aside::changes();
    if aside::is_held() {
        aside::owe();
        STATE.store(from, SeqCst);
        HEAP.forget_notice();
        return;
    }
    let is_settled = OWNER.get() != 0 || OWNER.set(getpid());
    let started = if is_settled { PLACE.spawn(run, changes as usize | again) } else { None };
    if let Some(thread) = started {
        // Whatever the caller is bound to: if it spins on its CPU at a real-time priority, the thread would never run.
        unbind(thread);
    } else {
        refuse();
    }
}

fn refuse() {
    RETRY_AT.store(monotonic_ns() + RETRY_NS, Relaxed);
    STATE.store(REFUSED, Release);
    HEAP.forget_notice();
}

/// Has the thread end, which sees that something changed, and waits until it has; at most until `deadline`, since a program
/// may call from a signal handler that interrupted what the thread waits for. It ends then as soon as it can.
pub(crate) fn end_before(deadline: u64) {
    // One that starts will see the change.
    while STATE.load(SeqCst) == STARTING && !PLACE.is_here() && monotonic_ns() < deadline {
        process::sched_yield();
    }
    wake();
    if !is_own_thread() {
        PLACE.wait_gone(deadline);
        node_worker::wait_gone(deadline);
    }
}

/// Starts the thread that a change made end: what is idle is not to wait for the next free to be heard for.
pub(crate) fn start_again() {
    if STATE.load(SeqCst) == ABSENT {
        start(ABSENT, AGAIN);
    }
}

/// Where there is no thread: what the sources say now, if the program's threads are to read files. One at a time looks; the
/// others go on.
pub(crate) fn look() -> (Level, Cause) {
    if TUNABLES.background.get() != NO_THREAD {
        return (Level::None, Cause::Idle);
    }
    let before = STATE.load(Acquire);
    let is_free = matches!(before, ABSENT | REFUSED);
    if !is_free || STATE.compare_exchange(before, STARTING, AcqRel, Acquire).is_err() {
        return (Level::None, Cause::Idle);
    }
    // SAFETY: `STARTING` keeps every other user away from the sources.
    let events = unsafe { &mut *SOURCES.0.get() }.look(&environment::watch_request(), &TUNABLES);
    STATE.store(before, Release);
    (events.level, events.cause.map_or(Cause::Pressure, Into::into))
}

/// In a forked child: the thread is not there.
pub(crate) fn forget() {
    settle();
    aside::forget();
    RETRY_AT.store(0, Relaxed);
    clear(true);
}

/// The thread is not there; and, unless it is said otherwise, its listener is not.
fn clear(with_listener: bool) {
    WAKER.forget();
    if with_listener {
        LISTENER.reset();
        LISTENER_PLACE.forget();
    }
    STATS.background.store(0, Relaxed);
    // SAFETY: this process has no background thread, so nobody else has the sources.
    unsafe { *SOURCES.0.get() = Sources::new() };
    PLACE.forget();
    STATE.store(ABSENT, Release);
    HEAP.forget_notice();
}

/// Whether the caller is the background thread, which alone may have workers beside it.
pub(crate) fn is_this_thread() -> bool {
    STATE.load(Acquire) == RUNNING && PLACE.is_here()
}

/// Whether the caller is the background thread or its listener, also before it runs and after it has ended its work.
pub(crate) fn is_here() -> bool {
    PLACE.is_here() || LISTENER_PLACE.is_here()
}

extern "C" fn listen(_: usize) -> ! {
    rseq::register(true);
    let _ = process::set_thread_name(c"weir-listen");
    LISTENER.listen(&WAKER);
    LISTENER_PLACE.leave().end(0)
}

/// What the thread keeps in mind from wait to wait.
struct Mind {
    /// [`aside::changes`] as the thread was made.
    changes: u32,
    main_thread: MainThread,
    has_rights: bool,
    next_look: u64,
    /// When to see whether the program has a thread left, where no descriptor tells of it.
    next_count: Option<u64>,
    /// When the calm window ends; `None` at rest.
    window_ends: Option<u64>,
    rest: Rest,
}

extern "C" fn run(number: usize) -> ! {
    rseq::register(true);
    let _ = process::set_thread_name(c"weir");
    let changes = number as u32;
    if number & AGAIN != 0 {
        nap(changes);
    }
    // SAFETY: this is the background thread.
    let sources = unsafe { &mut *SOURCES.0.get() };
    sources.open(&WAKER, &environment::watch_request(), &TUNABLES);
    let Some(main_thread) = MainThread::note(sources.is_private()) else {
        RETRY_AT.store(monotonic_ns() + RETRY_NS, Relaxed);
        stop(REFUSED)
    };
    let has_rights = identity::has_rights();
    identity::give_up_rights();
    // After that, as the listener begins with what this thread has.
    if sources.is_private() && !LISTENER_PLACE.is_alive() && LISTENER.open().is_ok() {
        if LISTENER_PLACE.spawn(listen, 0).is_some() {
            sources.listen_with(&LISTENER);
        } else {
            LISTENER.reset();
        }
    }
    STATS.background.store(1, Relaxed);
    STATE.store(RUNNING, SeqCst);
    let next_count = watch_program(sources);
    let mut mind = Mind {
        changes,
        main_thread,
        has_rights,
        next_look: 0,
        next_count,
        window_ends: Some(next_window()),
        rest: Rest::default(),
    };
    loop {
        turn(sources, &mut mind);
    }
}

/// Waits for a moment in which nothing changes.
fn nap(changes: u32) {
    STATE.store(RUNNING, SeqCst);
    let until = monotonic_ns() + AGAIN_NS;
    loop {
        // Whether it was woken does not matter, as it will be awake. Taken before the look: who changes something wakes after.
        WAKER.take();
        end_after_change(changes);
        let left = until.saturating_sub(monotonic_ns());
        if left == 0 {
            return;
        }
        WAKER.wait(Some(left));
    }
}

/// Ends the thread if something changed since it was made; who changed it starts another.
fn end_after_change(changes: u32) {
    if aside::changes() != changes {
        aside::owe();
        stop(ABSENT);
    }
}

/// One wait, and what follows from it.
fn turn(sources: &mut Sources, mind: &mut Mind) {
    let now = monotonic_ns();
    let look = mind.window_ends.filter(|_| mind.has_rights).map(|_| mind.next_look);
    let until = [mind.window_ends, look, mind.next_count, mind.rest.ends_at].into_iter().flatten().min();
    let events = sources.wait(&TUNABLES, heat(sources, mind), until.map(|at| at.saturating_sub(now)));
    let now = monotonic_ns();
    end_after_change(mind.changes);
    if !wants_thread() {
        stop(ABSENT);
    }
    if events.thread_ended || mind.next_count.is_some_and(|at| now >= at) {
        mind.next_count = watch_program(sources);
    }
    if events.woken && mind.window_ends.is_none() {
        mind.window_ends = Some(next_window());
        mind.rest = Rest::default();
        mind.next_look = 0;
    }
    if mind.has_rights && mind.window_ends.is_some() && now >= mind.next_look {
        mind.next_look = now + LOOK_NS;
        if mind.main_thread.has_changed() {
            stop(ABSENT);
        }
    }
    if mind.rest.ends_at.is_some_and(|at| now >= at) {
        mind.rest.ends_at = None;
        if sources.is_deaf() {
            HEAP.engine().balance_rest();
            mind.rest.is_empty = true;
        }
    }
    if events.level > Level::None {
        answer(&events, &WAKER, mind.window_ends.is_none().then_some(&mut mind.rest));
    }
    if mind.window_ends.is_some_and(|end| monotonic_ns() >= end) {
        mind.window_ends = HEAP.engine().balance_calm().then(next_window);
        if mind.window_ends.is_none() {
            come_to_rest(sources, mind);
        }
    }
}

/// Nothing moves any more: the thread is about to sleep until it is woken.
fn come_to_rest(sources: &Sources, mind: &mut Mind) {
    if TUNABLES.limit.get() != 0 || sources.is_limited() {
        HEAP.engine().balance_rest();
        mind.rest.is_empty = true;
    }
    mind.rest.ends_at = sources.is_deaf().then(|| monotonic_ns() + REST_NS);
    // Asleep it looks at nothing. If it cannot see what the main thread is, it is not to outlive what that was.
    if mind.has_rights && (!mind.main_thread.is_visible() || mind.main_thread.has_changed()) {
        stop(ABSENT);
    }
}

/// Has the end of a thread of the program's wake this one, so that no process stays that has Weir's threads alone: a
/// process ends with its last thread, and the program's last one may end by `exit(2)`, which ends no other. If none is
/// left, this one ends too, and the process with what the main thread ended with. When to look again, where the kernel
/// tells of no thread's end.
fn watch_program(sources: &mut Sources) -> Option<u64> {
    match tasks::first_other(&[PLACE.id(), LISTENER_PLACE.id(), finalizer::id()]) {
        // The kernel tells of the main thread's end by a descriptor only when all others have ended.
        Ok(Some(thread)) if thread == getpid() && WAKER.watch_main_thread() => None,
        Ok(Some(thread)) if thread != getpid() && sources.watch_thread(thread).is_ok() => None,
        Ok(None) => {
            finalizer::end();
            end(ABSENT, tasks::main_threads_status())
        }
        _ => Some(monotonic_ns() + LAST_THREAD_NS),
    }
}

fn heat(sources: &Sources, mind: &Mind) -> Heat {
    if mind.window_ends.is_some() {
        return Heat::Warm;
    }
    // What cannot notify is not worth reading for a heap that has nothing to release.
    let is_silent = mind.rest.is_empty && sources.is_deaf();
    match STATS.used_bytes.load(Relaxed) + STATS.idle_bytes.load(Relaxed) {
        WORTH_HEARING.. if !is_silent => Heat::Resting,
        _ => Heat::Cold,
    }
}

/// Ends the background thread; slow paths do its work until there is another.
fn stop(state: u32) -> ! {
    end(state, 0)
}

fn end(state: u32, status: i32) -> ! {
    STATS.background.store(0, Relaxed);
    if LISTENER.end() {
        LISTENER_PLACE.wait_gone(monotonic_ns() + LISTENER_NS);
    }
    WAKER.forget();
    // SAFETY: this is still the background thread. The descriptors end with its table.
    unsafe { *SOURCES.0.get() = Sources::new() };
    let leaving = PLACE.leave();
    STATE.store(state, Release);
    HEAP.forget_notice();
    leaving.end(status)
}

fn next_window() -> u64 {
    monotonic_ns() + HEAP.engine().calm_window()
}
