//! Caches of a program's own that become smaller when memory is short.
//!
//! A program that keeps a cache registers it with a function that counts what could be freed and one that frees some. When memory
//! is short, in the process, its control group or the machine, Weir releases what is idle first. Then it has [evictable
//! caches](crate#where-to-look) evict. Then it calls the shrinkers, a little at a time: pressure that lasts is heard again.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use weir::Shrinker;
//!
//! let tiles: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
//! let (count, scan) = (tiles.clone(), tiles.clone());
//! let shrinker = Shrinker::builder("tiles")
//!     .register_fns(
//!         move || count.lock().unwrap().iter().map(Vec::len).sum(),
//!         move |bytes, _reason| {
//!             let mut freed = 0;
//!             let mut tiles = scan.lock().unwrap();
//!             while freed < bytes && !tiles.is_empty() {
//!                 freed += tiles.remove(0).len();
//!             }
//!             freed
//!         },
//!     )
//!     .unwrap();
//! tiles.lock().unwrap().push(vec![0; 100_000]);
//! assert!(!shrinker.stats().is_disabled);
//! ```
//!
//! A program that keeps the cache it has registers that. `tests/adapters.rs` of this crate does so for moka, mini-moka, quick_cache
//! and lru, ten lines each. `lab/weir-lab/tests/adapters.rs` in the repository does so for foyer.
//!
//! ## How much it is asked to free
//!
//! The rule is Linux's (`mm/shrinker.c`). Each scan has a *priority*, from 12, the first, down to 1. It is to free `count() >>
//! priority` bytes, times 4, divided by [`ShrinkerBuilder::seeks`], in batches of [`ShrinkerBuilder::batch`]. What is less
//! than a batch is deferred, and so is what was not done; a later scan adds a part of it. Pressure from elsewhere scans at the
//! priorities 12 to 10. Where this process's own limit is near, or pressure is severe, scans go on to 1 until enough went. So
//! does an allocation for which the system has no memory left. A trim ([`crate::heap::trim`]) leaves caches alone: it releases
//! what is free.
//!
//! ## On which thread
//!
//! [`CallbackThread`] says. Where the program's allocator is not [`Weir`](crate::Weir), what a shrinker freed is released by that
//! allocator's own trim (glibc's, jemalloc's) after each scan. None is called under a lock of Weir's, nor inside an allocation,
//! and one registration is never called by two threads at once. So a callback may allocate, free, lock, and register or drop
//! shrinkers. A thread that waits for a lock which a shrinker needs, and allocates meanwhile, is not waited for longer than
//! `callback_ms` (a [setting](crate::settings)).
//!
//! - A callback that takes longer than `callback_ms` goes on while the others are called by another thread. A call of a second is
//!   named on standard error. It is not called again before it has returned.
//! - A scan is called in batches for twice what `count` says at most, and for twice what can be resident. Batches are larger where
//!   there would be more than 65,536.
//! - One that panics is named too, and not called any more. On a thread of the program's own the panic goes on to whoever
//!   called [`CallbackQueue::serve`].
//! - What a callback holds is dropped as it is unregistered, on the thread that does so. If that is in a callback which runs it is
//!   dropped after the return, on the thread that called it. A panic as it is dropped ends the process on a thread of Weir's.
//! - In a forked child there is no thread to call anything, until it registers something or calls
//!   [`resume_after_fork`](crate::pressure::resume_after_fork).

use core::fmt;
use core::mem::ManuallyDrop;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;
use weir_linux::process::callbacks::{self, CallbackSpec, Class, DEFAULT_BATCH, DEFAULT_SEEKS, ProgramQueue};

use crate::fd::Fd;
use crate::heap;

pub use weir_linux::process::callbacks::{CallbackStats, STOP, ScanReason, Shrink};

/// A registered shrinker; dropping it unregisters. See the [module](self).
///
/// A drop waits while another thread is in the callback, for the one call. Inside the callback itself it returns at once.
#[derive(Debug)]
pub struct Shrinker {
    registration: OwnedRegistration,
}

impl Shrinker {
    /// Sets out how a shrinker is registered, under a name for messages (cut at 32 bytes).
    pub fn builder(name: &str) -> ShrinkerBuilder<'_> {
        ShrinkerBuilder { name, seeks: DEFAULT_SEEKS, batch: DEFAULT_BATCH, thread: CallbackThread::Shared }
    }

    /// The shrinker's counts so far.
    pub fn stats(&self) -> CallbackStats {
        self.registration.0.stats()
    }
}

/// Owns a registration, and ends it as it is dropped.
pub(crate) struct OwnedRegistration(ManuallyDrop<callbacks::Registration>);

impl OwnedRegistration {
    pub(crate) fn new(registration: callbacks::Registration) -> Self {
        Self(ManuallyDrop::new(registration))
    }
}

// A panic of the callback ends it, and leaves the registration as it was.
impl UnwindSafe for OwnedRegistration {}
impl RefUnwindSafe for OwnedRegistration {}

impl Drop for OwnedRegistration {
    fn drop(&mut self) {
        // SAFETY: taken once, as this is gone afterwards.
        unsafe { ManuallyDrop::take(&mut self.0) }.unregister();
    }
}

impl fmt::Debug for OwnedRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.stats().fmt(f)
    }
}

/// Whose thread calls a callback.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum CallbackThread<'a> {
    /// A thread of Weir's, which calls all of these one after another. Two named `weir-callbacks` are started at the first
    /// registration: one stands by for a callback that is late. All signals that can be are blocked there.
    #[default]
    Shared,
    /// A thread of Weir's for this callback alone: for one that waits for long, as for a disk.
    Own,
    /// The program's, which calls the queue.
    Queue(&'a CallbackQueue),
}

/// Registers a [`Shrinker`].
#[derive(Clone, Copy, Debug)]
pub struct ShrinkerBuilder<'a> {
    name: &'a str,
    seeks: u32,
    batch: usize,
    thread: CallbackThread<'a>,
}

impl<'a> ShrinkerBuilder<'a> {
    /// Sets what it costs to make an object again, in accesses to storage: 2 if it is not called. More is scanned less; 0 says
    /// that objects cost nothing, and half of them go at each scan.
    pub fn seeks(self, seeks: u32) -> Self {
        Self { seeks, ..self }
    }

    /// Bytes to free at a time: 64 KiB if it is not called. More where a scan would take more than 65,536 batches.
    pub fn batch(self, bytes: usize) -> Self {
        Self { batch: bytes, ..self }
    }

    /// Whose thread calls it.
    pub fn thread(self, thread: CallbackThread<'a>) -> Self {
        Self { thread, ..self }
    }

    /// Registers a cache.
    ///
    /// # Errors
    /// There is no memory for the registration, or no thread.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    /// use weir::{ScanReason, Shrink, Shrinker};
    ///
    /// /// Counts the bytes that it would hold.
    /// struct Sessions(AtomicUsize);
    ///
    /// impl Shrink for Sessions {
    ///     fn count(&self) -> usize {
    ///         self.0.load(Relaxed)
    ///     }
    ///     fn scan(&self, bytes: usize, _reason: ScanReason) -> usize {
    ///         let freed = bytes.min(self.count());
    ///         self.0.fetch_sub(freed, Relaxed);
    ///         freed
    ///     }
    /// }
    ///
    /// let shrinker = Shrinker::builder("sessions").seeks(4).register(Sessions(AtomicUsize::new(1 << 20))).unwrap();
    /// assert_eq!(shrinker.stats().freed, 0);
    /// ```
    pub fn register<S: Shrink + Send + 'static>(self, shrink: S) -> Result<Shrinker, RegisterError> {
        heap::note_program_allocator();
        let (name, seeks, batch) = (self.name.as_bytes(), self.seeks, self.batch);
        let spec = CallbackSpec { name, class: Class::Program, seeks, batch, ..CallbackSpec::default() };
        let registration = callbacks::register_shrink(&spec, shrink, self.thread.inner())?;
        Ok(Shrinker { registration: OwnedRegistration::new(registration) })
    }

    /// Registers closures. One counts the bytes that could be freed. The other frees about as many as it is told, and returns how
    /// many it did ([`Shrink`] has the details).
    ///
    /// # Errors
    /// Those of [`ShrinkerBuilder::register`].
    pub fn register_fns<C, F>(self, count: C, scan: F) -> Result<Shrinker, RegisterError>
    where
        C: Fn() -> usize + Send + Sync + 'static,
        F: Fn(usize, ScanReason) -> usize + Send + Sync + 'static,
    {
        self.register(Closures { count, scan })
    }
}

struct Closures<C, F> {
    count: C,
    scan: F,
}

impl<C, F> Shrink for Closures<C, F>
where
    C: Fn() -> usize + Sync,
    F: Fn(usize, ScanReason) -> usize + Sync,
{
    fn count(&self) -> usize {
        (self.count)()
    }
    fn scan(&self, bytes: usize, reason: ScanReason) -> usize {
        (self.scan)(bytes, reason)
    }
}

/// Why a callback was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// There is no memory for it.
    OutOfMemory,
    /// There is no thread to call it: the system refuses one.
    NoThread,
    /// There is no descriptor that tells of it: the system refuses one.
    NoDescriptor,
}

impl From<callbacks::RegisterError> for RegisterError {
    fn from(why: callbacks::RegisterError) -> Self {
        match why {
            callbacks::RegisterError::NoMemory => Self::OutOfMemory,
            callbacks::RegisterError::NoThread => Self::NoThread,
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "no memory for the registration",
            Self::NoThread => "no thread to call it: the limit of threads is reached, or a sandbox forbids one",
            Self::NoDescriptor => "no descriptor for it: the limit of open files is reached, or a sandbox forbids one",
        })
    }
}

impl core::error::Error for RegisterError {}

impl CallbackThread<'_> {
    pub(crate) fn inner(&self) -> callbacks::Thread<'_> {
        match self {
            Self::Shared => callbacks::Thread::Shared,
            Self::Own => callbacks::Thread::Own,
            Self::Queue(queue) => callbacks::Thread::Program(&queue.0),
        }
    }
}

/// A queue of callbacks that threads of the program's call: for a program with an event loop, or whose caches belong to
/// one thread.
///
/// Reclaim waits for `callback_ms` once, and then goes on: what is asked for waits in the queue until it is served.
///
/// ```
/// use std::time::Duration;
/// use weir::{CallbackQueue, CallbackThread, Shrinker};
///
/// let queue = CallbackQueue::new().unwrap();
/// let _shrinker = Shrinker::builder("here").thread(CallbackThread::Queue(&queue)).register_fns(|| 0, |_, _| 0).unwrap();
/// // In a loop of the program's, every now and then:
/// let calls = queue.serve();
/// // Or on a thread that does nothing else:
/// let calls = queue.wait(Some(Duration::from_millis(1)));
/// ```
#[derive(Debug)]
pub struct CallbackQueue(ProgramQueue);

impl CallbackQueue {
    /// An empty queue. It may be dropped before the callbacks that were registered with it, which are not called then.
    ///
    /// # Errors
    /// [`RegisterError::OutOfMemory`].
    pub fn new() -> Result<Self, RegisterError> {
        ProgramQueue::new().map(Self).ok_or(RegisterError::OutOfMemory)
    }

    /// Calls the callbacks that wait; returns how many. It does not sleep.
    pub fn serve(&self) -> usize {
        self.0.serve()
    }

    /// A file descriptor that is readable while a callback may wait: for an event loop, which then calls
    /// [`CallbackQueue::serve`]. The queue's own: it is closed when the queue is, and a program only polls it. `None` where
    /// the system refuses it.
    pub fn fd(&self) -> Option<Fd<'_>> {
        // SAFETY: it is open for as long as the queue lives, which is borrowed.
        self.0.fd().ok().map(|number| unsafe { Fd::borrow_raw(number) })
    }

    /// Sleeps until a callback waits, for `timeout` at most (for ever without one), and calls those that do; returns how
    /// many.
    pub fn wait(&self, timeout: Option<Duration>) -> usize {
        self.0.wait_and_serve(timeout.map(nanoseconds))
    }
}

/// A time for the kernel; one of centuries is for ever.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(i64::MAX as u64)
}
