//! A program's shrinkers and subscribers by plain functions: what the crate `weir` and the C interface stand on.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Relaxed},
};

pub use weir_core::base::cause::Cause;
pub use weir_core::base::level::Level;
pub use weir_core::evict::callback::{
    Callback, CallbackSpec, CallbackStats, Class, DEFAULT_BATCH, NAME, Panicked, STOP, ScanReason, Shrink,
};
pub use weir_core::evict::callback::{Entry, Queue};
use weir_core::evict::callbacks::Taken;
pub use weir_core::policy::deferred::DEFAULT_SEEKS;
pub use weir_core::reclaim::Event;

use crate::os::catch::catch_closure;
use crate::os::clock::monotonic_ns;
use crate::os::futex::futex_wait;
use crate::process::calls;
use crate::process::heap::{BACKGROUND, CALLBACK_THREADS, HEAP, on_first_use};

/// Whose thread calls a callback.
#[derive(Clone, Copy, Debug)]
pub enum Thread<'a> {
    /// One of Weir's, which calls all callbacks of this kind one after another.
    Shared,
    /// One of Weir's, for this callback alone.
    Own,
    /// The program's, which calls [`ProgramQueue::serve`].
    Program(&'a ProgramQueue),
}

/// Why a callback was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// There is no memory for it.
    NoMemory,
    /// There is no thread to call it: the process has no `pthread_create`, or the system refuses one.
    NoThread,
}

/// A registered callback; [`Registration::unregister`] ends it.
#[derive(Debug)]
pub struct Registration(NonNull<Entry>);

// SAFETY: an `Entry` may be used from any thread, and what it disposes of is `Send`, as `register` demands.
unsafe impl Send for Registration {}
// SAFETY: only figures are read through a shared reference, which are atomic.
unsafe impl Sync for Registration {}

/// A registration's memory. The entry is first, so that its address is the block's.
#[repr(C)]
struct Block<C> {
    entry: Entry,
    /// Of a callback with a thread of its own.
    own: Queue,
    /// Of one that the program's threads call.
    program: Option<ProgramQueue>,
    callback: C,
}

/// Registers a callback. It may be called from now on until [`Registration::unregister`] returns, and is dropped then.
pub fn register<C: Callback + Send + 'static>(
    spec: &CallbackSpec<'_>,
    callback: C,
    thread: Thread<'_>,
) -> Result<Registration, RegisterError> {
    on_first_use();
    let block = calls::alloc_aligned(align_of::<Block<C>>(), size_of::<Block<C>>()).cast::<Block<C>>();
    let Some(block) = NonNull::new(block) else { return Err(RegisterError::NoMemory) };
    // SAFETY: fresh memory of that size; the fields' addresses are inside it.
    let entry = unsafe {
        let at = block.as_ptr();
        (&raw mut (*at).callback).write(callback);
        (&raw mut (*at).own).write(Queue::new());
        let program = if let Thread::Program(queue) = thread { Some(queue.clone()) } else { None };
        let queue = match (thread, &program) {
            (Thread::Own, _) => NonNull::new_unchecked(&raw mut (*at).own),
            (_, Some(queue)) => NonNull::from(queue.queue()),
            _ => NonNull::from(CALLBACK_THREADS.shared()),
        };
        (&raw mut (*at).program).write(program);
        let callback: NonNull<dyn Callback> = NonNull::new_unchecked(&raw mut (*at).callback as *mut dyn Callback);
        (&raw mut (*at).entry).write(Entry::new(spec, callback, queue, dispose::<C>));
        NonNull::new_unchecked(&raw mut (*at).entry)
    };
    let is_served = match thread {
        Thread::Shared => CALLBACK_THREADS.start_shared(),
        // SAFETY: `dispose` ends the thread before the block goes.
        Thread::Own => unsafe { CALLBACK_THREADS.start_own(&block.as_ref().own) },
        Thread::Program(_) => true,
    };
    if !is_served {
        // SAFETY: not registered: this function alone has the block.
        unsafe { dispose::<C>(entry) };
        return Err(RegisterError::NoThread);
    }
    // SAFETY: new, in a block that stays until `dispose`.
    unsafe { HEAP.register_callback(entry) };
    BACKGROUND.listen();
    Ok(Registration(entry))
}

/// The end of a registration.
///
/// # Safety
/// The entry is a `Block<C>`'s, off the list, and no other thread has it.
unsafe fn dispose<C>(entry: NonNull<Entry>) {
    let block = entry.cast::<Block<C>>();
    // SAFETY: the caller gives the block up; the thread of its own queue is gone after `end_own`, or is the caller, which
    // does not use the queue any more.
    unsafe {
        CALLBACK_THREADS.end_own(&block.as_ref().own);
        block.drop_in_place();
        calls::free(block.as_ptr().cast());
    }
}

impl Registration {
    /// Unregisters the callback and drops it. Waits while it is called by another thread; inside the callback itself it
    /// returns at once, and the callback is dropped after its return.
    pub fn unregister(self) {
        // SAFETY: registered by `register`, and given up here.
        unsafe { HEAP.unregister_callback(self.0) }
    }

    /// Its figures.
    pub fn stats(&self) -> CallbackStats {
        // SAFETY: the entry is there until it is unregistered, which takes the registration.
        unsafe { self.0.as_ref() }.stats()
    }

    /// For a language without owners: [`Registration::from_raw`] undoes it.
    pub fn into_raw(self) -> NonNull<Entry> {
        self.0
    }

    /// Undoes [`Registration::into_raw`].
    ///
    /// # Safety
    /// The pointer is from there, and there is one registration of it at a time.
    pub unsafe fn from_raw(entry: NonNull<Entry>) -> Self {
        Self(entry)
    }
}

/// A [`Shrink`] as a callback: panics are caught.
#[derive(Debug)]
pub struct Caught<S>(pub S);

impl<S: Shrink> Callback for Caught<S> {
    fn count(&self) -> Result<usize, Panicked> {
        catch_closure(|| self.0.count()).map_err(|_| Panicked)
    }
    fn scan(&self, bytes: usize, reason: ScanReason) -> Result<usize, Panicked> {
        catch_closure(|| self.0.scan(bytes, reason)).map_err(|_| Panicked)
    }
    fn relieved(&self) -> Result<(), Panicked> {
        catch_closure(|| self.0.relieved()).map_err(|_| Panicked)
    }
}

/// A queue of callbacks that threads of the program's call.
#[derive(Debug)]
pub struct ProgramQueue(NonNull<Shared>);

/// What a queue's owner and its callbacks share.
#[derive(Debug)]
struct Shared {
    queue: Queue,
    owners: AtomicU32,
}

// SAFETY: what it points to is atomic, and freed by whoever gives the last reference up.
unsafe impl Send for ProgramQueue {}
// SAFETY: all methods take shared references, to atomics.
unsafe impl Sync for ProgramQueue {}

impl ProgramQueue {
    /// An empty queue; `None`: there is no memory.
    pub fn new() -> Option<Self> {
        let block = NonNull::new(calls::alloc(size_of::<Shared>()).cast::<Shared>())?;
        // SAFETY: fresh memory of that size; malloc's alignment is more than enough.
        unsafe { block.write(Shared { queue: Queue::new(), owners: AtomicU32::new(1) }) };
        Some(Self(block))
    }

    /// The engine's part.
    pub fn queue(&self) -> &Queue {
        // SAFETY: there while there is an owner.
        unsafe { &self.0.as_ref().queue }
    }

    /// Calls the callbacks that wait; returns how many. A callback's panic is the caller's.
    pub fn serve(&self) -> usize {
        let mut calls = 0;
        loop {
            match HEAP.take_callback(self.queue()) {
                Taken::Again => {}
                Taken::Sleep(_) => return calls,
                Taken::Job(job) => {
                    HEAP.run_callback(job);
                    calls += 1;
                }
            }
        }
    }

    /// Sleeps until a callback waits, for `ns` at most, and calls those that do; returns how many. It may return earlier.
    pub fn wait_and_serve(&self, ns: Option<u64>) -> usize {
        let deadline = ns.map(|ns| monotonic_ns().saturating_add(ns));
        loop {
            let seen = self.queue().posted().load(Relaxed);
            let calls = self.serve();
            let left = deadline.map(|at| at.saturating_sub(monotonic_ns()));
            if calls > 0 || left == Some(0) {
                return calls;
            }
            let _ = futex_wait(self.queue().posted(), seen, left);
        }
    }
}

impl Clone for ProgramQueue {
    fn clone(&self) -> Self {
        // SAFETY: there while there is an owner, as this one is.
        unsafe { self.0.as_ref() }.owners.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl Drop for ProgramQueue {
    fn drop(&mut self) {
        // SAFETY: there while there is an owner; the last one frees it.
        unsafe {
            if self.0.as_ref().owners.fetch_sub(1, AcqRel) == 1 {
                calls::free(self.0.as_ptr().cast());
            }
        }
    }
}

/// In a forked child that goes on with the callbacks of its parent: makes the threads that call them, which are the
/// parent's. No other thread unregisters a callback meanwhile.
pub fn resume() {
    CALLBACK_THREADS.resume();
    BACKGROUND.listen();
}

/// The latest event.
pub fn latest() -> Event {
    HEAP.pressure().latest()
}

/// Sleeps until the generation is no longer `seen`, for `ns` at most, or for no reason.
pub fn wait(seen: u32, ns: Option<u64>) {
    HEAP.pressure().wait(HEAP.platform(), seen, ns);
}
