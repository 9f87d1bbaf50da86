//! The background thread: it hears pressure, and ends the heap's calm windows.
//!
//! Started by the first free after the heap grew to `background_start` bytes; gone in a forked child until needed
//! again there; never started where the tunable `background` is 0 (slow paths then do its work).

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use weir_core::pressure::Level;

use weir_core::stats;

use crate::heap::HEAP;
use crate::linux::{STATS, TUNABLES};
use crate::os::creds::MainThread;
use crate::os::process::monotonic_ns;
use crate::os::sources::Sources;
use crate::os::wake::Waker;
use crate::{settings, thread};

const ABSENT: u32 = 0;
const STARTING: u32 = 1;
const RUNNING: u32 = 2;
/// It could not be started; slow paths do its work.
const REFUSED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(ABSENT);
static WAKER: Waker = Waker::new();

/// The sources, used by the background thread alone.
struct Own(UnsafeCell<Sources>);
// SAFETY: only the background thread touches it, and there is one at a time (`STATE`).
unsafe impl Sync for Own {}
static SOURCES: Own = Own(UnsafeCell::new(Sources::new()));

/// Something was freed: wakes the thread, or starts it once the heap is worth it.
pub(crate) fn notify() {
    settings::take_page_late();
    match STATE.load(Acquire) {
        RUNNING => WAKER.wake(),
        ABSENT => start(),
        _ => {}
    }
}

#[cold]
fn start() {
    let heap = STATS.heap_bytes.load(Relaxed) + STATS.mapped_bytes.load(Relaxed);
    if TUNABLES.background.get() == 0 || STATS.used_bytes.load(Relaxed).max(heap / 8) < TUNABLES.background_start.get()
    {
        // The next free asks again.
        HEAP.forget_notice();
        return;
    }
    if STATE.compare_exchange(ABSENT, STARTING, AcqRel, Acquire).is_err() {
        return;
    }
    if !thread::spawn(run) {
        STATE.store(REFUSED, Release);
        TUNABLES.background.set(0);
    }
}

/// Where there is no thread: what the sources say now. One program thread at a time looks; the others go on.
pub(crate) fn look() -> (Level, stats::Cause) {
    let before = STATE.load(Acquire);
    let free = before == ABSENT || before == REFUSED;
    if !free || STATE.compare_exchange(before, STARTING, AcqRel, Acquire).is_err() {
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
    HEAP.forget_notice();
}

extern "C" fn run() -> ! {
    let _ = crate::os::process::set_thread_name(c"weir");
    // SAFETY: this is the background thread.
    let sources = unsafe { &mut *SOURCES.0.get() };
    sources.open(&WAKER, &settings::watch_request(), &TUNABLES);
    let main_thread = MainThread::open();
    STATS.background.store(1, Relaxed);
    STATE.store(RUNNING, Release);
    let mut window_ends = Some(next_window());
    loop {
        let left = window_ends.map(|end: u64| end.saturating_sub(monotonic_ns()));
        let events = sources.wait(&TUNABLES, window_ends.is_some(), left);
        if main_thread.as_ref().is_ok_and(|main| main.match_main_thread().is_err()) {
            // It may still hold rights that the program gave up: better no thread than that one.
            retire();
        }
        if events.level > Level::None {
            answer(events.level, events.cause.map_or(stats::Cause::Pressure, Into::into));
        }
        if events.woken && window_ends.is_none() {
            window_ends = Some(next_window());
        }
        if window_ends.is_some_and(|end| monotonic_ns() >= end) {
            window_ends = HEAP.engine().balance_calm().then(next_window);
        }
    }
}

/// Ends the background thread for good; slow paths do its work from now on.
fn retire() -> ! {
    STATE.store(REFUSED, Release);
    STATS.background.store(0, Relaxed);
    TUNABLES.background.set(0);
    crate::os::process::exit(0)
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
