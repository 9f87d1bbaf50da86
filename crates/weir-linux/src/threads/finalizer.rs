//! The finalizer thread: it calls the `fini` of objects of user caches whose slabs are to be released, and the callbacks of caches
//! whose objects may be moved.
//!
//! The background thread must not: libc has no record of it, and a program's code may need thread-local storage, or
//! block. Nor may a thread of the program's that just happens to free something: it may hold what `fini` waits for. So
//! the first cache with a `fini` or such a callback has libc make a thread. In a forked child the thread is made again at the
//! first slow path of such a cache, where the program may allocate, and not inside `fork`: most children never come there. Without
//! a background thread it is not made again, as the program then wants memory calls alone. And libc may have no thread to offer.
//! Then objects are finalized by `weir_trim` and where their cache is destroyed, and none are moved. Where something waits, a
//! slow path asks for the thread again, once a second.

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::os::clock::monotonic_ns;
use crate::os::futex::{futex_wait, futex_wake};
use crate::os::process::{gettid, set_thread_name};
use crate::platform::linux::Engine;
use crate::threads::libc_thread;

/// How long a refused thread is not asked for again.
const RETRY_NS: u64 = 1_000_000_000;

/// The finalizer thread of a heap.
pub struct Finalizer {
    heap: &'static Engine,
    is_started: AtomicBool,
    /// The thread was the parent's, or was refused and something waits for it. It is to be made at the next slow path.
    is_missing: AtomicBool,
    /// 1: objects wait, or are to be moved. The thread sleeps while it is 0.
    wanted: AtomicU32,
    /// Where it was refused: when it is asked for again, ns.
    retry_at: AtomicU64,
    /// The thread's id; 0 where there is none.
    id: AtomicU32,
    /// The thread is to return.
    is_over: AtomicBool,
}

impl Finalizer {
    /// No thread yet.
    pub const fn new(heap: &'static Engine) -> Self {
        Self {
            heap,
            is_started: AtomicBool::new(false),
            is_missing: AtomicBool::new(false),
            wanted: AtomicU32::new(0),
            retry_at: AtomicU64::new(0),
            id: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Starts the thread if there is none. To be called where the program may allocate.
    pub fn start(&'static self) {
        if self.is_started.swap(true, AcqRel) {
            return;
        }
        let argument = core::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the argument lives as long as the process.
        if !unsafe { libc_thread::spawn(run, argument) } {
            self.retry_at.store(monotonic_ns() + RETRY_NS, Relaxed);
            self.is_started.store(false, Release);
        }
    }

    /// Whether [`Finalizer::start_again`] is due.
    #[inline]
    pub(crate) fn is_missing(&self) -> bool {
        self.is_missing.load(Relaxed)
    }

    /// Tries once to start the thread that is missing. As [`Finalizer::start`].
    #[cold]
    pub(crate) fn start_again(&'static self) {
        if self.is_missing.swap(false, AcqRel) {
            self.start();
        }
    }

    /// Objects wait to be finalized, or are to be moved. May be called from anywhere.
    pub(crate) fn wake(&self) {
        if self.wanted.swap(1, AcqRel) == 0 {
            let _ = futex_wake(&self.wanted, 1);
        }
        if !self.is_started.load(Acquire) && monotonic_ns() >= self.retry_at.load(Relaxed) {
            self.is_missing.store(true, Release);
        }
    }

    /// In a forked child: the thread is not there.
    pub(crate) fn forget(&self) {
        self.id.store(0, Release);
        self.retry_at.store(0, Relaxed);
        if self.is_started.swap(false, AcqRel) {
            self.is_missing.store(true, Release);
        }
    }

    /// The thread's id; 0 where there is none.
    pub(crate) fn id(&self) -> u32 {
        self.id.load(Acquire)
    }

    /// Whether the thread was made and its id is not known yet. To be looked at after the threads of the process were listed.
    pub(crate) fn is_starting(&self) -> bool {
        self.is_started.load(Acquire) && self.id() == 0
    }

    /// The program has no thread left: the thread returns, and libc ends the process, as it has no record of another
    /// thread.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Release);
        self.wanted.store(1, Release);
        let _ = futex_wake(&self.wanted, 1);
    }

    fn work(&self) {
        libc_thread::unbind_here();
        let _ = set_thread_name(c"weir-fini");
        self.id.store(gettid(), Release);
        loop {
            while self.wanted.swap(0, AcqRel) == 0 {
                let _ = futex_wait(&self.wanted, 0, None);
            }
            if self.is_over.load(Acquire) {
                return;
            }
            self.heap.user_caches().run_moves();
            self.heap.user_caches().run_finalizers();
        }
    }
}

extern "C" fn run(finalizer: *mut u8) -> *mut u8 {
    // SAFETY: `start` passed a reference that lives as long as the process.
    unsafe { &*finalizer.cast::<Finalizer>() }.work();
    core::ptr::null_mut()
}
