//! A program's shrinkers and subscribers by plain functions: what the crate `weir` and the C interface stand on.

use core::ptr::NonNull;

pub use weir_core::evict::callback::{
    Callback, CallbackSpec, CallbackStats, Class, DEFAULT_BATCH, NAME, Panicked, STOP, ScanReason, Shrink,
};
pub use weir_core::evict::callback::{Entry, Queue};
pub use weir_core::policy::deferred::DEFAULT_SEEKS;

use crate::os::catch::catch_closure;
use crate::os::other_malloc;
use crate::process::calls;
use crate::process::heap::{BACKGROUND, CALLBACK_THREADS, HEAP, on_first_use};
use crate::process::program_queue::ProgramQueue;
pub use crate::process::registration::Registration;

/// The thread that calls a callback.
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
    unsafe { HEAP.callbacks().register(HEAP.platform(), entry) };
    BACKGROUND.listen();
    // SAFETY: registered here, once.
    Ok(unsafe { Registration::from_raw(entry) })
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

/// Calls a callback of Rust's that may panic. On a thread of Weir's the panic ends here; on one of the program's it goes on
/// to whoever serves the queue.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    catches: bool,
}

impl Guard {
    /// For callbacks that this thread calls.
    pub fn new(thread: Thread<'_>) -> Self {
        Self { catches: !matches!(thread, Thread::Program(_)) }
    }

    /// Calls `f`.
    pub fn call<R>(self, f: impl FnOnce() -> R) -> Result<R, Panicked> {
        if self.catches { catch_closure(f).map_err(|_| Panicked) } else { Ok(f()) }
    }
}

/// A [`Shrink`] as a callback.
struct Guarded<S> {
    shrink: S,
    guard: Guard,
    /// A cache of the program's own: what it frees lies where the program allocates.
    is_program: bool,
}

impl<S: Shrink> Callback for Guarded<S> {
    fn count(&self) -> Result<usize, Panicked> {
        self.guard.call(|| self.shrink.count())
    }
    fn scan(&self, bytes: usize, reason: ScanReason) -> Result<usize, Panicked> {
        let freed = self.guard.call(|| self.shrink.scan(bytes, reason));
        if let Ok(bytes @ 1..STOP) = freed
            && self.is_program
        {
            other_malloc::evict(bytes);
        }
        freed
    }
    fn scanned(&self) {
        other_malloc::settle();
    }
    fn relieved(&self) -> Result<(), Panicked> {
        self.guard.call(|| self.shrink.relieved())
    }
}

/// Registers a [`Shrink`], of the class that the specification says.
pub fn register_shrink<S: Shrink + Send + 'static>(
    spec: &CallbackSpec<'_>,
    shrink: S,
    thread: Thread<'_>,
) -> Result<Registration, RegisterError> {
    let is_program = spec.class == Class::Program;
    register(spec, Guarded { shrink, guard: Guard::new(thread), is_program }, thread)
}

/// In a forked child that goes on with the callbacks of its parent: makes the threads that call them, which are the
/// parent's. No other thread unregisters a callback meanwhile.
pub fn resume() {
    CALLBACK_THREADS.resume();
    BACKGROUND.listen();
}
