//! The background thread: it hears pressure, and ends the heap's calm windows.
//!
//! Started by the first free after the heap grew to `background_start` bytes; gone in a forked child until needed
//! again there; not started, and ended, where the tunable `background` is 0 (slow paths then do its work).

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use weir_core::pressure::Level;

use weir_core::stats;

use crate::heap::HEAP;
use crate::linux::{STATS, TUNABLES};
use crate::os::creds::{self, MainThread};
use crate::os::process::{getpid, monotonic_ns, unbind};
use crate::os::sources::{Heat, Sources};
use crate::os::wake::Waker;
use crate::owner::Owner;
use crate::thread::Place;
use crate::{rseq, settings, stats_page};

const ABSENT: u32 = 0;
const STARTING: u32 = 1;
const RUNNING: u32 = 2;
/// It could not be started, which is tried again later; until then slow paths do its work.
const REFUSED: u32 = 3;
/// It ended, for it could not follow the program's credentials; slow paths do its work.
const RETIRED: u32 = 4;

/// Between two looks at the rights that the program has, while it has some to give up.
const RIGHTS_NS: u64 = 1_000_000_000;
/// Between two tries to start the thread, where it is refused (a limit of threads, no memory).
const RETRY_NS: u64 = 10_000_000_000;
/// Bytes of heap for which a process that is at rest still looks whether memory is short elsewhere.
const WORTH_HEARING: u64 = 16 << 20;

static STATE: AtomicU32 = AtomicU32::new(ABSENT);
static PLACE: Place = Place::new();
static OWNER: Owner = Owner::new();
static WAKER: Waker = Waker::new();
/// When to try again where the thread was refused.
static RETRY_AT: AtomicU64 = AtomicU64::new(0);

/// The sources, used by the background thread alone.
struct Own(UnsafeCell<Sources>);
// SAFETY: only the background thread touches it, and there is one at a time (`STATE`).
unsafe impl Sync for Own {}
static SOURCES: Own = Own(UnsafeCell::new(Sources::new()));

/// Something was freed: wakes the thread, or starts it once the heap is worth it.
pub(crate) fn notify() {
    stats_page::take_late();
    match STATE.load(Acquire) {
        RUNNING if wake_thread() => {}
        RUNNING => lost(),
        ABSENT => start(ABSENT),
        REFUSED if monotonic_ns() >= RETRY_AT.load(Relaxed) => start(REFUSED),
        _ => {}
    }
}

/// A parameter was set: the thread, if it sleeps, is to look at it.
pub(crate) fn wake() {
    if STATE.load(Acquire) == RUNNING {
        let _ = wake_thread();
    }
}

/// Wakes the thread, which is the parent's in a child of `vfork`. `false`: it is not there.
fn wake_thread() -> bool {
    match OWNER.get() {
        0 => false,
        process => WAKER.wake(process),
    }
}

/// The thread is not there: this is a copy of its process, forked past libc's handlers, or a sandbox ended it. The next
/// free may start another.
#[cold]
fn lost() {
    let owner = OWNER.get();
    if owner != 0 && owner != getpid() {
        // A child of `vfork` that does not see its parent's processes: the thread is there.
        return;
    }
    if STATE.compare_exchange(RUNNING, STARTING, AcqRel, Acquire).is_ok() {
        forget();
    }
}

/// Whether the thread does the balancer's work, or will when there is some.
pub(crate) fn is_tending() -> bool {
    let state = STATE.load(Relaxed);
    TUNABLES.background.get() != 0 && state < REFUSED && (state != RUNNING || OWNER.get() != 0)
}

#[cold]
fn start(from: u32) {
    let heap = STATS.heap_bytes.load(Relaxed) + STATS.mapped_bytes.load(Relaxed);
    let held = STATS.used_bytes.load(Relaxed).max(heap / 8).max(STATS.zone_bytes.load(Relaxed));
    let is_worth_it = held >= TUNABLES.background_start.get();
    if TUNABLES.background.get() == 0
        || !is_worth_it
        || STATE.compare_exchange(from, STARTING, AcqRel, Acquire).is_err()
    {
        // The next free asks again.
        HEAP.forget_notice();
        return;
    }
    let started = if OWNER.set(getpid()) { PLACE.spawn(run, 0) } else { None };
    if let Some(thread) = started {
        // Whatever the caller is bound to: if it spins on its CPU at a real-time priority, the thread would never run.
        unbind(thread);
    } else {
        RETRY_AT.store(monotonic_ns() + RETRY_NS, Relaxed);
        STATE.store(REFUSED, Release);
        HEAP.forget_notice();
    }
}

/// Where there is no thread: what the sources say now. One program thread at a time looks; the others go on.
pub(crate) fn look() -> (Level, stats::Cause) {
    let before = STATE.load(Acquire);
    let is_free = matches!(before, ABSENT | REFUSED | RETIRED);
    if !is_free || STATE.compare_exchange(before, STARTING, AcqRel, Acquire).is_err() {
        return (Level::None, stats::Cause::Idle);
    }
    // SAFETY: `STARTING` keeps every other user away from the sources.
    let events = unsafe { &mut *SOURCES.0.get() }.look(&settings::watch_request(), &TUNABLES);
    STATE.store(before, Release);
    (events.level, events.cause.map_or(stats::Cause::Pressure, Into::into))
}

/// In a forked child: the thread is not there.
pub(crate) fn forget() {
    WAKER.forget();
    STATE.store(ABSENT, Release);
    STATS.background.store(0, Relaxed);
    // SAFETY: this process has no background thread, so nobody else has the sources.
    unsafe { *SOURCES.0.get() = Sources::new() };
    PLACE.forget();
    HEAP.forget_notice();
}

/// Whether the caller is the background thread, which alone may have workers beside it.
pub(crate) fn is_this_thread() -> bool {
    STATE.load(Acquire) == RUNNING && WAKER.is_sleeper()
}

/// The same before it runs and after it has ended its work, too.
pub(crate) fn is_here() -> bool {
    PLACE.is_here()
}

extern "C" fn run(_: usize) -> ! {
    rseq::register(true);
    let _ = crate::os::process::set_thread_name(c"weir");
    // SAFETY: this is the background thread.
    let sources = unsafe { &mut *SOURCES.0.get() };
    sources.open(&WAKER, &settings::watch_request(), &TUNABLES);
    let main_thread = MainThread::open(sources.is_private());
    let mut has_rights = creds::has_rights();
    STATS.background.store(1, Relaxed);
    STATE.store(RUNNING, Release);
    let mut window_ends = Some(next_window());
    loop {
        let left = window_ends.map(|end: u64| end.saturating_sub(monotonic_ns()));
        let left = if has_rights { Some(left.unwrap_or(u64::MAX).min(RIGHTS_NS)) } else { left };
        let events = sources.wait(&TUNABLES, heat(window_ends.is_some()), left);
        if has_rights {
            match main_thread.match_main_thread() {
                Ok(changed) => has_rights = !changed || creds::has_rights(),
                // It may still hold rights that the program gave up: better no thread than that one.
                Err(_) => stop(RETIRED),
            }
        }
        if TUNABLES.background.get() == 0 {
            stop(ABSENT);
        }
        if events.level > Level::None {
            answer(events.level, events.cause.map_or(stats::Cause::Pressure, Into::into));
        }
        if events.woken && window_ends.is_none() {
            window_ends = Some(next_window());
        }
        if window_ends.is_some_and(|end| monotonic_ns() >= end) {
            window_ends = HEAP.engine().balance_calm().then(next_window);
            if window_ends.is_none() && (TUNABLES.limit.get() != 0 || sources.is_limited()) {
                HEAP.engine().balance_rest();
            }
        }
    }
}

fn heat(is_warm: bool) -> Heat {
    match STATS.used_bytes.load(Relaxed) + STATS.idle_bytes.load(Relaxed) {
        _ if is_warm => Heat::Warm,
        WORTH_HEARING.. => Heat::Resting,
        _ => Heat::Cold,
    }
}

/// Ends the background thread; slow paths do its work until there is another.
fn stop(state: u32) -> ! {
    STATS.background.store(0, Relaxed);
    WAKER.forget();
    // SAFETY: this is still the background thread. The descriptors end with its table.
    unsafe { *SOURCES.0.get() = Sources::new() };
    let leaving = PLACE.leave();
    STATE.store(state, Release);
    HEAP.forget_notice();
    leaving.end()
}

fn next_window() -> u64 {
    monotonic_ns() + HEAP.engine().calm_window()
}

fn answer(level: Level, cause: stats::Cause) {
    let heard = monotonic_ns();
    stats::add(&STATS.pressure_events, 1);
    STATS.pressure_level.store(level as u64, Relaxed);
    HEAP.engine().balance_pressure(level, cause);
    STATS.note_latency(monotonic_ns() - heard);
    STATS.pressure_level.store(0, Relaxed);
}
