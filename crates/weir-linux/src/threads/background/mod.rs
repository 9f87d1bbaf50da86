//! The background thread: when it starts, when it ends, and what stands in for it where there is none.
//!
//! The thread is started by the first allocation or free that finds the heap grown to `background_start` bytes. In a
//! forked child it is gone until needed again there. It is not started, and it is ended, where the tunable `background`
//! is 0; slow paths then do its work.
//!
//! It ends, and a thread of the program starts another, whenever the program changes itself as a whole (`changes.rs`,
//! `suspension.rs`, `os/rights/credentials.rs`). So it never keeps rights that the program gave up, and never stands
//! outside of a jail. It starts and ends the listener (`pressure/wake.rs`). What it does while it runs is in
//! `duties.rs`.

mod duties;
mod evictable_rows;
mod figures;
mod response;
pub mod steering;
mod suspension;

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

use crate::os::clock::monotonic_ns;
use crate::os::futex::pause;
use crate::os::process::{getpid, set_thread_name};
use crate::os::rights::credentials::{self, MainThread};
use crate::os::rights::sandbox::Sandbox;
use crate::os::signals::end_by;
use crate::os::tasks::{first_other, unbind};
use crate::platform::linux::Engine;
use crate::platform::machine;
use crate::platform::statics::{STATS, TUNABLES};
use crate::platform::stats_page;
use crate::platform::stats_page::Sharing;
use crate::pressure::sources::Sources;
use crate::pressure::systemd_watch;
use crate::pressure::wake::{Listener, Waker};
use crate::threads::at_work::AT_WORK;
use crate::threads::background::duties::{End, Loop, Schedule, is_wanted};
use crate::threads::background::figures::Figures;
use crate::threads::background::steering::Steering;
use crate::threads::callbacks::CallbackThreads;
use crate::threads::changes::Changes;
use crate::threads::finalizer::Finalizer;
use crate::threads::memory_owner::MemoryOwner;
use crate::threads::node_workers::NodeWorkers;
use crate::threads::raw_thread::RawThread;

pub(super) const ABSENT: u32 = 0;
pub(super) const STARTING: u32 = 1;
/// The thread itself says that it is there, and opens what it needs. From now on it has ended if it is not alive.
pub(super) const BEGUN: u32 = 2;
const RUNNING: u32 = 3;
/// A thread of the program's looks whether the background thread was lost ([`Background::lost`]).
pub(super) const LOOKING: u32 = 4;
/// The thread could not be started, which is tried again later; until then slow paths do its work.
const REFUSED: u32 = 5;

/// Between two tries to start the thread, where it is refused. Reasons are a limit of threads, no memory, or a program
/// thread that has other rights than the main thread.
const RETRY_NS: u64 = 10_000_000_000;
/// How long a thread that replaces one which a change ended sleeps before it opens anything. A program may change its
/// user for each request, and changes itself by several calls in a row.
const REPLACEMENT_NS: u64 = 100_000_000;
/// Beside the count of changes in what a thread is started with: it is such a replacement.
pub(super) const REPLACEMENT: usize = 1 << 32;
/// How long the listener, and threads for callbacks, may take to end.
const LISTENER_NS: u64 = 1_000_000_000;

/// The background thread of a heap, and its listener.
pub struct Background {
    heap: &'static Engine,
    finalizer: &'static Finalizer,
    callback_threads: &'static CallbackThreads,
    pub(super) node_workers: &'static NodeWorkers,
    pub(super) state: AtomicU32,
    pub(super) thread: RawThread,
    pub(super) owner: MemoryOwner,
    pub(super) changes: Changes,
    waker: Waker,
    listener: Listener,
    listener_thread: RawThread,
    /// When to try again where the thread was refused.
    retry_at: AtomicU64,
    /// A thread is in [`Background::lost`]: the one that `LOOKING` is of.
    is_looked_at: AtomicBool,
    /// Used by the background thread alone, or by whoever has found it gone and has the state.
    sources: UnsafeCell<Sources>,
}

// SAFETY: all fields but `sources` are `Sync`. Of `sources` there is one user at a time. Either it is the background
// thread, of which `state` admits one, or the one thread that moved `state` to `LOOKING`. Or it is the only thread of
// a forked child.
unsafe impl Sync for Background {}

impl Background {
    /// No thread yet.
    pub const fn new(
        heap: &'static Engine,
        finalizer: &'static Finalizer,
        callback_threads: &'static CallbackThreads,
        node_workers: &'static NodeWorkers,
    ) -> Self {
        Self {
            heap,
            finalizer,
            callback_threads,
            node_workers,
            state: AtomicU32::new(ABSENT),
            thread: RawThread::new(),
            owner: MemoryOwner::new(),
            changes: Changes::new(),
            waker: Waker::new(),
            listener: Listener::new(),
            listener_thread: RawThread::new(),
            retry_at: AtomicU64::new(0),
            is_looked_at: AtomicBool::new(false),
            sources: UnsafeCell::new(Sources::new()),
        }
    }

    /// Notes that the memory belongs to this process. To be called before it has children, and again in a forked child.
    pub(crate) fn settle(&self) {
        // Where there is no memory for that, the thread is refused.
        let _ = self.owner.set(getpid());
    }

    /// Something was freed: wakes the thread, or starts it once the heap is worth it.
    pub(crate) fn freed(&'static self) {
        stats_page::take_late();
        let owner = self.owner.get();
        if owner == 0 && self.owner.claim(getpid()) {
            // A copy of the process, forked past libc's handlers: the thread is not there, and the page of counters is the
            // parent's.
            stats_page::leave_parents();
            return self.forget();
        }
        let state = self.state.load(Acquire);
        if state == ABSENT && !self.is_worth_a_thread() {
            // A small heap gets here whenever `report_threshold` bytes were freed: no system call for that.
            return self.heap.reclaim().forget_notice();
        }
        if owner != 0 && owner != getpid() {
            // A child of `vfork`. The thread is its parent's; one started here would end with this process.
            return if state == RUNNING { self.waker.wake() } else { self.heap.reclaim().forget_notice() };
        }
        match state {
            RUNNING if self.thread.is_alive() => self.waker.wake(),
            BEGUN | RUNNING if !self.thread.is_alive() => self.lost(state),
            ABSENT => self.start(ABSENT, 0),
            REFUSED if monotonic_ns() >= self.retry_at.load(Relaxed) => self.start(REFUSED, 0),
            _ => {}
        }
    }

    /// The heap has grown: starts the thread once the heap is worth it. A program that frees nothing has nothing to release, but
    /// it is looked into and steered by that thread.
    pub(crate) fn grown(&'static self) {
        match self.state.load(Relaxed) {
            ABSENT => self.freed(),
            REFUSED if monotonic_ns() >= self.retry_at.load(Relaxed) => self.freed(),
            _ => {}
        }
    }

    /// Whether a thread is wanted, and the heap is worth it, or the program wants to hear of pressure.
    fn is_worth_a_thread(&self) -> bool {
        let gauges = &self.heap.pages().gauges;
        let held = gauges.page_bytes.get() + gauges.mapped_bytes.get();
        let held = held.max(gauges.address_bytes.get() / 8).max(gauges.zone_bytes.get());
        is_wanted() && (held >= TUNABLES.background_start.get() || self.heap.reclaim().hears_pressure())
    }

    /// The program has registered a callback: starts the thread, which hears of pressure, or has it look again.
    pub fn listen(&'static self) {
        self.freed();
    }

    /// Starts the thread if it is not there.
    pub(crate) fn be_there(&'static self) {
        if self.state.load(Acquire) != RUNNING {
            self.freed();
        }
    }

    /// A parameter was set: wakes the thread, if it sleeps, to look at it.
    pub fn wake(&self) {
        if self.state.load(Acquire) == RUNNING {
            self.waker.wake();
        }
    }

    /// Whether the thread does the balancer's work, or will when there is some.
    pub(crate) fn does_the_work(&self) -> bool {
        let state = self.state.load(Acquire);
        // A filter may have ended it.
        let is_there = !matches!(state, BEGUN | RUNNING) || self.thread.is_alive();
        is_wanted() && state < REFUSED && is_there && (state != RUNNING || self.owner.get() != 0)
    }

    /// Whether the caller is the background thread, which alone may start node workers.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.state.load(Acquire) == RUNNING && self.thread.is_here()
    }

    /// In a forked child: the thread is not there. Where its parent had one, the next slow path starts another: what the parent had
    /// idle is the child's as well.
    pub(crate) fn forget(&self) {
        if self.state.load(Relaxed) != ABSENT {
            self.heap.reclaim().look_at_growth();
        }
        self.settle();
        self.changes.forget();
        self.retry_at.store(0, Relaxed);
        self.is_looked_at.store(false, Relaxed);
        self.clear(true, ABSENT);
    }

    /// A sandbox ended the thread, which was in `state`. The next free may start another; not at once where it ended as it began.
    ///
    /// The caller read the state, and then that no thread is alive. In between the thread may have left in order, and another have
    /// come to the same state. So it is asked once more when the state is this caller's: a thread is alive before it changes the
    /// state, and none is started while that is `LOOKING`. Of a living one the state is put back, unless it has gone on itself.
    ///
    /// One caller at a time looks, and the state of a look is its own. Else the living thread could leave before or after that
    /// question, and a third caller start another. The state of that start would be taken for this caller's. Then two would write
    /// the sources, or unmap the memory of the thread that begins.
    #[cold]
    fn lost(&self, state: u32) {
        if self.is_looked_at.swap(true, Acquire) {
            return;
        }
        if self.state.compare_exchange(state, LOOKING, AcqRel, Acquire).is_ok() {
            self.look(state, || self.thread.is_alive());
        }
        self.is_looked_at.store(false, Release);
    }

    /// Ends a look at a thread that was in `state`.
    fn look(&self, state: u32, is_alive: impl FnOnce() -> bool) {
        if is_alive() {
            let _ = self.state.compare_exchange(LOOKING, state, AcqRel, Acquire);
            // Who wanted to wake it meanwhile did not.
            return self.waker.wake();
        }
        // It left in order: it wrote the state before it was gone, and another may be on its way.
        if self.state.load(Acquire) != LOOKING {
            return;
        }
        let next = if state == BEGUN { REFUSED } else { ABSENT };
        if next == REFUSED {
            self.retry_at.store(monotonic_ns() + RETRY_NS, Relaxed);
        }
        // The listener may be there still; its memory, its descriptors and its half of the protocol are left alone.
        self.clear(!self.listener_thread.is_alive(), next);
    }

    /// Starts the listener, if there is to be one and there is none. `false`: a limit refused it.
    fn start_listener(&'static self, sources: &mut Sources) -> bool {
        // That of a thread that was lost may be there still.
        if !sources.is_private() || self.listener_thread.is_alive() {
            return true;
        }
        // SAFETY: no listener's thread is alive, as was asked, and this thread alone starts one.
        if unsafe { self.listener.open() }.is_err() {
            return false;
        }
        let is_there = self.listener_thread.spawn(listen, core::ptr::from_ref(self) as usize, 0).is_some();
        if is_there {
            sources.listen_with(&self.listener, self.listener_thread.word());
        } else {
            self.listener.give_up();
        }
        is_there
    }

    /// The thread is not there, and the state is `next`; nor is its listener there, if `with_listener` says so.
    fn clear(&self, with_listener: bool, next: u32) {
        self.waker.forget();
        if with_listener {
            self.listener.reset();
            // SAFETY: no listener is there, as the caller says.
            unsafe { self.listener_thread.forget() };
        }
        STATS.background.store(0, Relaxed);
        // SAFETY: this process has no background thread, and another one cannot start before `state` is stored below.
        unsafe { *self.sources.get() = Sources::new() };
        // SAFETY: this process has no background thread, as above.
        unsafe { self.thread.forget() };
        self.state.store(next, Release);
        self.heap.reclaim().forget_notice();
    }

    /// `replacement`: 0 or [`REPLACEMENT`].
    #[cold]
    pub(super) fn start(&'static self, from: u32, replacement: usize) {
        if !self.is_worth_a_thread()
            // One that was made to end may not be gone, or gone just now.
            || self.thread.is_alive()
            || monotonic_ns() < self.retry_at.load(Relaxed)
            || self.state.compare_exchange(from, STARTING, SeqCst, Acquire).is_err()
        {
            // The next free tries again.
            self.heap.reclaim().forget_notice();
            return;
        }
        // Read before the thread is made, and before the look at changes under way: what changes from now on makes it
        // end.
        let change = self.changes.count();
        if self.changes.are_under_way() {
            self.changes.owe();
            self.state.store(from, SeqCst);
            self.heap.reclaim().forget_notice();
            return;
        }
        let is_settled = self.owner.get() != 0 || self.owner.set(getpid());
        let (owner, number) = (core::ptr::from_ref(self) as usize, change as usize | replacement);
        let started = if is_settled { self.thread.spawn(run, owner, number) } else { None };
        if let Some(thread) = started {
            // Whatever the caller is bound to: if it spins on its CPU at a real-time priority, the thread would never
            // run.
            unbind(thread);
        } else {
            self.retry_at.store(monotonic_ns() + RETRY_NS, Relaxed);
            self.state.store(REFUSED, Release);
            self.heap.reclaim().forget_notice();
        }
    }

    /// The thread's life.
    fn live(&'static self, change: u32, is_replacement: bool) -> ! {
        if is_replacement && !self.wait_for_calm(change) {
            self.end(End::Change);
        }
        // SAFETY: this is the background thread, the sources' only user while `state` is `STARTING`, `BEGUN` or `RUNNING`.
        let sources = unsafe { &mut *self.sources.get() };
        sources.open(&self.waker, &systemd_watch::request(), &TUNABLES);
        let Some(main_thread) = MainThread::note(sources.is_private()) else {
            self.retry_at.store(monotonic_ns() + RETRY_NS, Relaxed);
            self.leave(REFUSED, 0)
        };
        let has_rights = credentials::has_rights();
        credentials::give_up_rights();
        // After that, as the listener begins with what this thread has.
        let is_listener_refused = !self.start_listener(sources);
        STATS.background.store(1, Relaxed);
        self.state.store(RUNNING, SeqCst);
        let is_own = |thread| {
            [self.thread.id(), self.listener_thread.id(), self.finalizer.id()].contains(&thread)
                || self.callback_threads.has(thread)
        };
        let are_starting = || self.finalizer.is_starting() || self.callback_threads.are_starting();
        let end = Loop {
            heap: self.heap,
            waker: &self.waker,
            is_listener_refused,
            start_listener: &|sources| self.start_listener(sources),
            huge_mode: if sources.is_private() { machine::ModeFiles::open() } else { None },
            counts: sources.is_private().then(machine::CountFiles::open),
            filters: sources.is_private().then(Sandbox::look).and_then(Result::ok),
            sharing: Sharing::new(sources.is_private()),
            figures: Figures::default(),
            steering: Steering::default(),
            sources,
            changes: &self.changes,
            change,
            main_thread,
            has_rights,
            is_own_thread: &is_own,
            are_threads_starting: &are_starting,
            schedule: Schedule::default(),
        }
        .run();
        self.end(end)
    }

    /// Waits for a moment in which nothing changes; `false` if something did.
    fn wait_for_calm(&self, change: u32) -> bool {
        self.state.store(RUNNING, SeqCst);
        let until = monotonic_ns() + REPLACEMENT_NS;
        loop {
            // Whether it was woken does not matter, as it will be awake. Taken before the look: the changer wakes
            // after.
            self.waker.take();
            if self.changes.count() != change {
                return false;
            }
            let left = until.saturating_sub(monotonic_ns());
            if left == 0 {
                return true;
            }
            self.waker.wait(Some(left));
        }
    }

    fn end(&self, why: End) -> ! {
        match why {
            End::Change => {
                self.changes.owe();
                self.leave(ABSENT, 0)
            }
            End::Unwanted => self.leave(ABSENT, 0),
            End::LastThread(status) => {
                self.finalizer.end();
                self.callback_threads.end();
                // A filter of the program's kills the one thread that makes a call. Had Weir's not been there, that would have
                // been the process.
                match (status & 0x7f).cast_unsigned() {
                    0 => {
                        self.wait_until_alone();
                        self.leave(ABSENT, status >> 8 & 0xff)
                    }
                    signal => end_by(signal),
                }
            }
        }
    }

    /// Waits until this thread and its listener alone are left: the process ends with the status of the thread that ends last. One
    /// that is in a callback is not waited for.
    fn wait_until_alone(&self) {
        let until = monotonic_ns() + LISTENER_NS;
        let is_own = |thread| [self.thread.id(), self.listener_thread.id()].contains(&thread);
        let mut round = 0;
        while matches!(first_other(&is_own), Ok(Some(_))) && monotonic_ns() < until {
            pause(round);
            round += 1;
        }
    }

    /// Ends the background thread; slow paths do its work until there is another.
    fn leave(&self, state: u32, status: i32) -> ! {
        let gone = [&STATS.background, &STATS.sharing, &STATS.control.state];
        gone.into_iter().for_each(|stat| stat.store(0, Relaxed));
        if self.listener.end() {
            self.listener_thread.wait_gone(monotonic_ns() + LISTENER_NS);
        }
        self.waker.forget();
        // SAFETY: this is still the background thread, and nothing of the sources is borrowed any more. The descriptors
        // end with its table.
        unsafe { *self.sources.get() = Sources::new() };
        let leaving = self.thread.leave();
        self.state.store(state, Release);
        self.heap.reclaim().forget_notice();
        AT_WORK.end();
        leaving.end(status)
    }
}

extern "C" fn run(background: usize, number: usize) -> ! {
    // SAFETY: `start` passed a reference that lives as long as the process.
    let background = unsafe { &*(background as *const Background) };
    // Before any call that a filter may kill for. The kernel wrote the thread's number to `alive` before it ran.
    background.state.store(BEGUN, SeqCst);
    background.thread.register();
    AT_WORK.begin();
    let _ = set_thread_name(c"weir");
    background.live(number as u32, number & REPLACEMENT != 0)
}

extern "C" fn listen(background: usize, _: usize) -> ! {
    // SAFETY: `live` passed a reference that lives as long as the process.
    let background = unsafe { &*(background as *const Background) };
    background.listener_thread.register();
    let _ = set_thread_name(c"weir-listen");
    background.listener.listen(&background.waker);
    background.listener_thread.leave().end(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::heap::{CALLBACK_THREADS, FINALIZER, HEAP};
    use std::boxed::Box;

    #[test]
    fn a_look_for_a_lost_thread_leaves_a_start_under_way_alone() {
        let workers = Box::leak(Box::new(NodeWorkers::new(&HEAP)));
        let background = Background::new(&HEAP, &FINALIZER, &CALLBACK_THREADS, workers);
        let state_after = |state, is_alive: bool, meanwhile: Option<u32>| {
            background.state.store(LOOKING, SeqCst);
            background.look(state, || {
                meanwhile.into_iter().for_each(|state| background.state.store(state, SeqCst));
                is_alive
            });
            background.state.load(SeqCst)
        };
        assert_eq!([true, false].map(|is_alive| state_after(RUNNING, is_alive, None)), [RUNNING, ABSENT]);
        assert_eq!([true, false].map(|is_alive| state_after(BEGUN, is_alive, None)), [BEGUN, REFUSED]);
        // The thread that was there has left, and another caller starts the next.
        for is_alive in [true, false] {
            assert_eq!(state_after(RUNNING, is_alive, Some(STARTING)), STARTING);
        }
        // Of two callers one looks.
        background.state.store(RUNNING, SeqCst);
        background.is_looked_at.store(true, SeqCst);
        background.lost(RUNNING);
        assert_eq!(background.state.load(SeqCst), RUNNING);
    }
}
