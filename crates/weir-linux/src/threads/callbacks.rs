//! The threads that call a program's callbacks: shrinkers and subscribers to pressure.
//!
//! The background thread must not: libc has no record of it. Nor may a thread of the program's that happens to allocate:
//! it may hold what a callback waits for. So libc makes threads for it, with the first registration. By default all
//! callbacks share one queue, which two threads serve: one calls a callback, the other stands by. If the first does not
//! come back in time, the second goes on with the next callback and makes another thread to stand by. A callback that has
//! a queue of its own is called by a thread of its own, or by threads of the program's.
//!
//! All signals that can be are blocked there (`libc_thread.rs`).
//!
//! Threads are made where a program registers something. In a forked child they are not there until it does so again, or calls
//! [`CallbackThreads::resume`], as the first insertion into an evictable cache does. A thread cannot be made inside an allocation,
//! nor between `fork` and `exec`.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
};
use weir_core::base::time::Time;
use weir_core::evict::callback::Queue;
use weir_core::evict::calling::Taken;

use crate::os::clock::monotonic_ns;
use crate::os::futex::{futex_wait, futex_wake, futex_wake_at};
use crate::os::process::{gettid, set_thread_name};
use crate::platform::linux::Engine;
use crate::threads::libc_thread;

/// Threads of the shared queue that are not in a callback: one to call the next, one to stand by.
const STANDBY: usize = 2;
/// Threads that keep their ids for the look whether the program has a thread left. Further ones of the shared queue, of which
/// there are as many as callbacks are late, count as the program's.
const IDS: usize = 64;
/// In place of the id of the thread that serves a queue, while it is made.
const STARTING: u32 = u32::MAX;
/// How long a thread sleeps at a time that waits for the end of another one, ns: a fork in its signal handler has ended that, and
/// the kernel sleeps on in the child (choice).
const LOOK_NS: u64 = 100_000_000;
/// Stack that a thread touches before it is needed, bytes: an eviction's frames, and those of a small listener (choice).
const TOUCHED: usize = 16 << 10;

/// The threads of a heap's callbacks.
pub struct CallbackThreads {
    heap: &'static Engine,
    shared: Queue,
    /// Threads of the shared queue that are not in a callback.
    free: AtomicUsize,
    ids: [AtomicU32; IDS],
    /// Threads that were made and are not among `ids` yet.
    starting: AtomicU32,
    is_over: AtomicBool,
    /// A thread of the shared queue was refused: each job that finds none standing by asks for it again.
    is_short: AtomicBool,
    /// Forks so far: a thread that was in a callback as it forked is not one of the child's.
    forks: AtomicU32,
}

impl CallbackThreads {
    /// No thread yet.
    pub const fn new(heap: &'static Engine) -> Self {
        Self {
            heap,
            shared: Queue::new(),
            free: AtomicUsize::new(0),
            ids: [const { AtomicU32::new(0) }; IDS],
            starting: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            forks: AtomicU32::new(0),
        }
    }

    /// The queue of callbacks that have no other.
    pub fn shared(&self) -> &Queue {
        &self.shared
    }

    /// Has threads serve the shared queue; `false`: libc has none to offer. To be called where the program may allocate.
    pub fn start_shared(&'static self) -> bool {
        while self.free.load(Acquire) < STANDBY {
            self.free.fetch_add(1, AcqRel);
            if !self.spawn_shared() {
                return self.free.fetch_sub(1, AcqRel) > 1;
            }
        }
        true
    }

    /// Starts a thread for a queue of its own; `false`: libc has none to offer, or there is one. To be called where the program
    /// may allocate.
    ///
    /// # Safety
    /// The queue stays until [`CallbackThreads::end_own`] has returned, or its callback was disposed of on the thread.
    pub unsafe fn start_own(&'static self, queue: &Queue) -> bool {
        if !claim(queue) {
            return false;
        }
        queue.maker.store(self.address().addr(), Relaxed);
        // SAFETY: claimed; it stays, as the caller promises.
        unsafe { self.start_claimed(NonNull::from(queue)) }
    }

    /// Starts a thread for a queue of its own that the caller has claimed. Where none is to be had the claim ends: `false`.
    ///
    /// # Safety
    /// The queue stays until [`CallbackThreads::end_own`] has returned, which waits for the end of the claim.
    unsafe fn start_claimed(&'static self, queue: NonNull<Queue>) -> bool {
        // SAFETY: the queue stays for as long as the thread.
        let made = unsafe { self.spawn(run_own, queue.as_ptr().cast()) };
        if !made {
            // SAFETY: claimed until now.
            unsafe { end_claim(queue) };
        }
        made
    }

    /// Ends the thread of a queue of its own and waits until it is gone, unless it is the caller. A thread of the parent's is gone:
    /// a signal handler of the calling thread may fork, and `forget` does not find a queue that is off the list.
    pub fn end_own(&self, queue: &Queue) {
        queue.end();
        let _ = futex_wake(queue.posted(), u32::MAX);
        let me = gettid();
        let forks = self.forks.load(Relaxed);
        loop {
            let server = queue.server.load(SeqCst);
            let here = self.forks.load(Relaxed);
            // One that is being made notes the count later. It is another thread's, so a fork since this call began has ended it.
            let is_parents = here != forks || server != STARTING && here != queue.server_forks.load(Relaxed);
            if server == 0 || server == me || is_parents {
                return;
            }
            let _ = futex_wait(&queue.server, server, Some(LOOK_NS));
        }
    }

    /// In a forked child that goes on with the callbacks of its parent: makes the threads that are not there.
    pub fn resume(&'static self) {
        let callbacks = self.heap.callbacks();
        if !callbacks.are_there() {
            return;
        }
        self.start_shared();
        loop {
            // One at a time, as none can be made under the list's lock. A queue whose thread is refused stays without. It is claimed
            // under the lock, so it is registered still. Who unregisters it from then on waits for the end of the claim.
            let mut next: Option<NonNull<Queue>> = None;
            callbacks.each(self.heap.platform(), |entry| {
                let queue = entry.queue();
                let has_own = queue.maker.load(Relaxed) != 0 && !queue.is_over();
                if next.is_none() && has_own && claim(queue) {
                    next = Some(NonNull::from(queue));
                }
            });
            let Some(queue) = next else { return };
            // SAFETY: claimed while it was registered; `dispose` calls `end_own` before the queue goes.
            if !unsafe { self.start_claimed(queue) } {
                return;
            }
        }
    }

    /// Makes a thread, which counts as starting until it is noted; `false`: libc has none to offer.
    ///
    /// # Safety
    /// `argument` is what `body` takes, for as long as it runs; `body` notes its thread.
    unsafe fn spawn(&self, body: libc_thread::Body, argument: *mut u8) -> bool {
        self.starting.fetch_add(1, SeqCst);
        // SAFETY: the caller's promise is the one that is demanded.
        let made = unsafe { libc_thread::spawn(body, argument) };
        if !made {
            self.has_started();
        }
        made
    }

    /// One fewer is starting. In a forked child none may be left to count.
    fn has_started(&self) {
        let _ = self.starting.fetch_update(SeqCst, SeqCst, |starting| starting.checked_sub(1));
    }

    /// In a forked child: the threads are not there.
    pub(crate) fn forget(&self) {
        self.starting.store(0, SeqCst);
        self.forks.fetch_add(1, Relaxed);
        self.free.store(0, Relaxed);
        self.ids.iter().for_each(|id| id.store(0, Relaxed));
        self.heap.callbacks().try_each(self.heap.platform(), |entry| entry.queue().server.store(0, Relaxed));
    }

    /// Whether a thread is one of these.
    pub(crate) fn has(&self, thread: u32) -> bool {
        self.ids.iter().any(|id| id.load(Acquire) == thread) || self.serves_own(thread)
    }

    /// Whether a thread serves a queue of its own.
    fn serves_own(&self, thread: u32) -> bool {
        let mut found = false;
        self.heap.callbacks().each(self.heap.platform(), |entry| {
            found |= entry.queue().server.load(SeqCst) == thread;
        });
        found
    }

    /// Whether there may be a thread of these that [`CallbackThreads::has`] does not find yet. To be looked at after the threads
    /// of the process were listed. One that is on that list was made before, and so counts here, or is noted.
    pub(crate) fn are_starting(&self) -> bool {
        self.starting.load(SeqCst) > 0
    }

    /// The program has no thread left: the threads return, and libc ends the process.
    pub(crate) fn end(&self) {
        self.is_over.store(true, SeqCst);
        let wake = |queue: &Queue| {
            queue.end();
            let _ = futex_wake(queue.posted(), u32::MAX);
        };
        wake(&self.shared);
        self.heap.callbacks().each(self.heap.platform(), |entry| wake(entry.queue()));
    }

    fn address(&'static self) -> *mut u8 {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// Notes the calling thread among [`CallbackThreads::has`]; where.
    fn note_thread(&self) -> Option<&AtomicU32> {
        libc_thread::unbind_here();
        touch_stack();
        let _ = set_thread_name(c"weir-callbacks");
        let noted = self.ids.iter().find(|id| id.compare_exchange(0, gettid(), AcqRel, Relaxed).is_ok());
        self.has_started();
        noted
    }

    /// Serves the shared queue.
    fn serve_shared(&'static self) {
        let forks = self.forks.load(Relaxed);
        while let Some(seen) = self.shared.seen() {
            match self.heap.callbacks().take(self.heap.platform(), &self.shared) {
                Taken::Again => {}
                Taken::Sleep(until) => self.sleep(&self.shared, seen, until),
                Taken::Job(job) => {
                    // Where no callback is late, the other thread is only just back from one, and about to count itself. A
                    // thread made for that would be one too many. The group is charged for it, above its `memory.high` with a
                    // sleep of up to 2 s before this callback.
                    let is_last = self.free.fetch_sub(1, AcqRel) == 1;
                    if is_last && (job.beside_late || self.is_short.load(Relaxed)) {
                        // No thread stands by. Refused: this callback is then waited for.
                        self.start_one();
                    }
                    let ran = self.heap.callbacks().run(self.heap.platform(), job);
                    if self.forks.load(Relaxed) != forks {
                        return;
                    }
                    // What was thrown has left its traces on the thread (`os/catch.rs`). Where no other can be made, and none is
                    // free, it goes on all the same: else no callback would be called any more.
                    if ran.panicked && (self.start_one() || self.free.load(Acquire) > 0) {
                        return;
                    }
                    if self.free.fetch_add(1, AcqRel) >= STANDBY {
                        self.free.fetch_sub(1, AcqRel);
                        return;
                    }
                }
            }
        }
    }

    /// Has one more thread stand by, unless enough do; `false`: refused.
    fn start_one(&'static self) -> bool {
        let is_one = self.free.fetch_add(1, AcqRel) < STANDBY;
        let is_made = is_one && self.spawn_shared();
        if !is_made {
            self.free.fetch_sub(1, AcqRel);
        }
        is_made || !is_one
    }

    /// Makes a thread for the shared queue, which the caller has counted as free; `false`: refused.
    fn spawn_shared(&'static self) -> bool {
        // SAFETY: the argument, this value, lives as long as the process.
        let made = unsafe { self.spawn(run_shared, self.address()) };
        self.is_short.store(!made, Relaxed);
        made
    }

    /// Serves a queue of its own; whether the queue is still there.
    fn serve_own(&self, queue: &Queue) -> bool {
        let forks = self.forks.load(Relaxed);
        while let Some(seen) = queue.seen() {
            // Looked at after the word was read, as `end` raises that later.
            if self.is_over.load(SeqCst) {
                break;
            }
            match self.heap.callbacks().take(self.heap.platform(), queue) {
                Taken::Again => {}
                Taken::Sleep(until) => self.sleep(queue, seen, until),
                Taken::Job(job) => {
                    let ran = self.heap.callbacks().run(self.heap.platform(), job);
                    if ran.gone || self.forks.load(Relaxed) != forks {
                        return false;
                    }
                    if ran.panicked {
                        break;
                    }
                }
            }
        }
        true
    }

    /// Sleeps until something is posted to the queue since `seen` was read, or the time is there.
    fn sleep(&self, queue: &Queue, seen: u32, until: Option<Time>) {
        let left = until.map(|at| at.since(Time(monotonic_ns())).0);
        let _ = futex_wait(queue.posted(), seen, left);
        self.heap.callbacks().woke(self.heap.platform(), until);
    }
}

/// Has memory behind the stack that the thread will need. A thread that takes its first page as it is to evict would be charged for
/// it, and put to sleep by the kernel, where the group is above its `memory.high`.
#[inline(never)]
fn touch_stack() {
    core::hint::black_box([0u8; TOUCHED]);
}

extern "C" fn run_shared(threads: *mut u8) -> *mut u8 {
    // SAFETY: `start_shared` passed a reference that lives as long as the process.
    let threads = unsafe { &*threads.cast::<CallbackThreads>() };
    let id = threads.note_thread();
    threads.serve_shared();
    if let Some(id) = id {
        id.store(0, Relaxed);
    }
    core::ptr::null_mut()
}

extern "C" fn run_own(queue: *mut u8) -> *mut u8 {
    // SAFETY: `start_own` passed a queue that stays until this thread has cleared `server`, or was told that it is gone.
    let queue = unsafe { &*queue.cast::<Queue>() };
    // SAFETY: `start_own` stored a reference that lives as long as the process.
    let threads = unsafe { &*(queue.maker.load(Relaxed) as *const CallbackThreads) };
    queue.server_forks.store(threads.forks.load(Relaxed), Relaxed);
    queue.server.store(gettid(), SeqCst);
    let _ = futex_wake(&queue.server, u32::MAX);
    let id = threads.note_thread();
    let is_there = threads.serve_own(queue);
    if let Some(id) = id {
        id.store(0, Relaxed);
    }
    if is_there {
        // SAFETY: this thread has served it until now.
        unsafe { end_claim(NonNull::from(queue)) };
    }
    core::ptr::null_mut()
}

/// Claims the right to make a queue's thread. `false`: it has one, or another thread makes it.
fn claim(queue: &Queue) -> bool {
    queue.server.compare_exchange(0, STARTING, AcqRel, Acquire).is_ok()
}

/// The queue has no thread any more. It may be gone when this returns.
///
/// # Safety
/// The queue is claimed, or served by the calling thread.
unsafe fn end_claim(queue: NonNull<Queue>) {
    // SAFETY: as the caller promises. The store is the last access: who waits for it frees the queue. A wake-up of an address reads
    // nothing there.
    unsafe {
        let server = &raw const (*queue.as_ptr()).server;
        (*server).store(0, SeqCst);
        let _ = futex_wake_at(server, u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::futex::pause;
    use crate::process::heap::{CALLBACK_THREADS, on_first_use};

    static QUEUES: [Queue; 2] = [const { Queue::new() }; 2];
    static WAITER: AtomicU32 = AtomicU32::new(0);
    /// The child that the handler forked; in the child itself 0.
    static CHILD: AtomicU32 = AtomicU32::new(u32::MAX);

    extern "C" fn fork_here(_: i32) {
        // SAFETY: the heap is consistent in the child, whatever this interrupted. An alarm ends a child that hangs.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(300);
            }
            CHILD.store(child as u32, SeqCst);
        }
    }

    #[test]
    fn who_waits_for_a_thread_of_the_parents_goes_on_in_a_child_that_its_handler_forked() {
        on_first_use();
        // Neither is the thread that waits; each is there until the test says otherwise.
        for (queue, server) in QUEUES.iter().zip([1, STARTING]) {
            CHILD.store(u32::MAX, SeqCst);
            WAITER.store(0, SeqCst);
            queue.server_forks.store(CALLBACK_THREADS.forks.load(Relaxed), Relaxed);
            queue.server.store(server, SeqCst);
            let waiter = std::thread::spawn(move || {
                WAITER.store(gettid(), SeqCst);
                CALLBACK_THREADS.end_own(queue);
                if CHILD.load(SeqCst) == 0 {
                    // SAFETY: nothing of the test's runs in the child.
                    unsafe { libc::_exit(0) };
                }
            });
            // A fork before the call begins would not be one in its wait.
            (0..).take_while(|_| queue.seen().is_some()).for_each(pause);
            std::thread::sleep(core::time::Duration::from_millis(20));
            let mut status = -1;
            // SAFETY: the handler stays for the test; the thread is there, and the child is the test's.
            unsafe {
                libc::signal(libc::SIGURG, fork_here as *const () as libc::sighandler_t);
                libc::syscall(libc::SYS_tgkill, libc::getpid(), WAITER.load(SeqCst), libc::SIGURG);
                (0..).take_while(|_| CHILD.load(SeqCst) == u32::MAX).for_each(pause);
                let child = CHILD.load(SeqCst) as i32;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            }
            queue.server.store(0, SeqCst);
            let _ = futex_wake(&queue.server, u32::MAX);
            waiter.join().unwrap();
            assert_eq!(status, 0, "the child, where server {server} is not there");
        }
    }
}
