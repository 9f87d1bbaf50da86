//! A program's callbacks, shrinkers and subscribers to pressure: how they are registered, and what calls them. The queues of
//! those that a program's own threads call are here as well.

use core::alloc::Layout;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use weir_core::base::time::Time;
use weir_core::evict::calling::Taken;

pub use weir_core::evict::callback::{
    Callback, CallbackSpec, CallbackStats, Class, DEFAULT_BATCH, Entry, Panicked, Queue, STOP, ScanReason, Shrink,
};
pub use weir_core::policy::deferred::DEFAULT_SEEKS;
pub use weir_core::policy::prices::Prices;

use crate::os::catch::catch_closure;
use crate::os::clock::monotonic_ns;
use crate::os::file::socket::{Bell, End};
use crate::os::futex::{futex_wait, futex_wake};
use crate::os::syscall::Errno;
use crate::platform::other_malloc;
use crate::process::heap::{BACKGROUND, CALLBACK_THREADS, HEAP, on_first_use};
use crate::process::malloc;

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
    /// The queue of a callback with a thread of its own.
    own: Queue,
    /// The queue of a callback that the program's threads call.
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
    let block = HEAP.alloc_aligned(Layout::new::<Block<C>>()).cast::<Block<C>>();
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

/// A registered callback; [`Registration::unregister`] ends it.
#[derive(Debug)]
pub struct Registration(NonNull<Entry>);

// SAFETY: an `Entry` may be used from any thread, and what it disposes of is `Send`, as whoever registers demands.
unsafe impl Send for Registration {}
// SAFETY: only figures are read through a shared reference, which are atomic.
unsafe impl Sync for Registration {}

impl Registration {
    /// Unregisters the callback and drops it. Waits while it is called by another thread; inside the callback itself it
    /// returns at once, and the callback is dropped after its return.
    pub fn unregister(self) {
        // SAFETY: registered, as `from_raw` demands, and given up here.
        unsafe { HEAP.callbacks().unregister(HEAP.platform(), self.0) }
    }

    /// The callback's figures.
    pub fn stats(&self) -> CallbackStats {
        // SAFETY: the entry is there until it is unregistered, which takes the registration.
        unsafe { self.0.as_ref() }.stats()
    }

    /// Has a subscriber hear of the latest event, unless it was `seen`, and of the relief after it.
    pub fn catch_up(&self, seen: u32) {
        // SAFETY: the entry is there until it is unregistered, which takes the registration.
        HEAP.callbacks().catch_up(HEAP.platform(), unsafe { self.0.as_ref() }, seen);
    }

    /// For a language without owners: [`Registration::from_raw`] undoes it.
    pub fn into_raw(self) -> NonNull<Entry> {
        self.0
    }

    /// Undoes [`Registration::into_raw`].
    ///
    /// # Safety
    /// The entry is registered, may be disposed of on any thread, and there is one `Registration` of it at a time.
    pub unsafe fn from_raw(entry: NonNull<Entry>) -> Self {
        Self(entry)
    }
}

/// The end of a registration.
///
/// # Safety
/// The entry is a `Block<C>`'s, off the list, and no other thread has it.
unsafe fn dispose<C>(entry: NonNull<Entry>) {
    let block = entry.cast::<Block<C>>();
    // SAFETY: the caller gives the block up. The thread of its own queue is gone after `end_own`, or is the caller, which does
    // not use the queue any more.
    unsafe {
        CALLBACK_THREADS.end_own(&block.as_ref().own);
        block.drop_in_place();
        malloc::free(block.as_ptr().cast());
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
    fn scanned(&self) -> Result<(), Panicked> {
        other_malloc::settle();
        Ok(())
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
/// parent's.
pub fn resume() {
    CALLBACK_THREADS.resume();
    BACKGROUND.listen();
}

/// A queue of callbacks that threads of the program's call.
#[derive(Debug)]
pub struct ProgramQueue(NonNull<Shared>);

/// The part of a queue that its owner and its callbacks share.
#[derive(Debug)]
struct Shared {
    queue: Queue,
    owners: AtomicU32,
    /// The program's descriptor, in a block of its own; null: there is none.
    end: AtomicPtr<End>,
    /// The callback that makes it readable, while there is one.
    bell: AtomicPtr<Entry>,
}

impl Shared {
    fn new() -> Self {
        let (owners, end, bell) = (AtomicU32::new(1), AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut()));
        Self { queue: Queue::new(), owners, end, bell }
    }

    fn end(&self) -> Option<&End> {
        // SAFETY: null, or the block that `open_end` wrote, which stays until the last owner has gone.
        unsafe { self.end.load(Acquire).as_ref() }
    }

    /// Opens a descriptor, unless another thread is faster.
    fn open_end(&self) -> Result<(), FdError> {
        let home = NonNull::new(malloc::alloc(size_of::<End>()).cast::<End>());
        let home = home.ok_or(FdError::Register(RegisterError::NoMemory))?;
        let opened = Bell::open().map_err(FdError::Os).and_then(|(bell, fd)| {
            let end = bell.end(fd);
            let spec = CallbackSpec { name: b"queue", class: Class::Bell, ..CallbackSpec::default() };
            let registered = register(&spec, QueueBell(bell), Thread::Shared);
            registered.inspect_err(|_| end.close()).map_err(FdError::Register).map(|registration| (end, registration))
        });
        let failed = match opened {
            Ok((end, registration)) => {
                // SAFETY: fresh, and of that size; malloc's alignment is more than enough.
                unsafe { home.write(end) };
                if self.end.compare_exchange(null_mut(), home.as_ptr(), AcqRel, Acquire).is_ok() {
                    let entry = registration.into_raw();
                    self.bell.store(entry.as_ptr(), Release);
                    HEAP.callbacks().set_bell(HEAP.platform(), &self.queue, Some(entry));
                    return Ok(());
                }
                registration.unregister();
                // SAFETY: written above, and this thread's alone.
                unsafe { home.as_ref() }.close();
                Ok(())
            }
            Err(why) => Err(why),
        };
        // SAFETY: a block of this function's that nothing else refers to.
        unsafe { malloc::free(home.as_ptr().cast()) };
        failed
    }
}

// SAFETY: what it points to is atomic, and freed by the thread that gives up the last reference.
unsafe impl Send for ProgramQueue {}
// SAFETY: all methods take shared references, to atomics.
unsafe impl Sync for ProgramQueue {}

impl ProgramQueue {
    /// An empty queue; `None`: there is no memory.
    pub fn new() -> Option<Self> {
        let block = NonNull::new(malloc::alloc(size_of::<Shared>()).cast::<Shared>())?;
        // SAFETY: fresh memory of that size; malloc's alignment is more than enough.
        unsafe { block.write(Shared::new()) };
        Some(Self(block))
    }

    /// The engine's part.
    pub fn queue(&self) -> &Queue {
        &self.shared().queue
    }

    fn shared(&self) -> &Shared {
        // SAFETY: there while there is an owner.
        unsafe { self.0.as_ref() }
    }

    /// A descriptor that is readable while a callback may wait: then the program calls [`ProgramQueue::serve`], which takes
    /// the message. The same one at each call; the queue closes it when it ends.
    pub fn fd(&self) -> Result<i32, FdError> {
        let shared = self.shared();
        if shared.end().is_none() {
            shared.open_end()?;
        }
        Ok(shared.end().map_or(-1, End::fd))
    }

    /// Ends the queue: no callback of it is called from now on, and whoever waits for one returns.
    pub fn end(&self) {
        self.queue().end();
        let _ = futex_wake(self.queue().posted(), u32::MAX);
    }

    /// Calls the callbacks that wait; returns how many. A callback's panic is the caller's.
    pub fn serve(&self) -> usize {
        self.serve_until().0
    }

    /// [`ProgramQueue::serve`], and when there may be something to do although nothing was posted: another thread's callback is
    /// late then.
    fn serve_until(&self) -> (usize, Option<Time>) {
        let mut calls = 0;
        if let Some(end) = self.shared().end() {
            // Before the look: what is posted after it makes the descriptor readable again.
            end.take();
        }
        loop {
            if self.queue().is_over() {
                return (calls, None);
            }
            match HEAP.callbacks().take(HEAP.platform(), self.queue()) {
                Taken::Again => {}
                Taken::Sleep(until) => return (calls, until),
                Taken::Job(job) => {
                    HEAP.callbacks().run(HEAP.platform(), job);
                    calls += 1;
                }
            }
        }
    }

    /// Sleeps until a callback waits, for `ns` at most, and calls those that do; returns how many. It may return earlier.
    pub fn wait_and_serve(&self, ns: Option<u64>) -> usize {
        let deadline = ns.map(|ns| monotonic_ns().saturating_add(ns));
        loop {
            let seen = self.queue().posted().load(SeqCst);
            let (calls, until) = self.serve_until();
            let now = monotonic_ns();
            let left = deadline.map(|at| at.saturating_sub(now));
            if calls > 0 || left == Some(0) || self.queue().is_over() {
                return calls;
            }
            let until = until.map(|at| at.since(Time(now)).0);
            let _ = futex_wait(self.queue().posted(), seen, left.into_iter().chain(until).min());
        }
    }
}

/// Why there is no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdError {
    /// The system refused it.
    Os(Errno),
    /// Nothing could be registered that makes it readable.
    Register(RegisterError),
}

/// Makes a queue's descriptor readable.
struct QueueBell(Bell);

impl Callback for QueueBell {
    fn ring(&self) {
        self.0.put(&1u64.to_ne_bytes());
    }
}

impl Clone for ProgramQueue {
    fn clone(&self) -> Self {
        self.shared().owners.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl Drop for ProgramQueue {
    fn drop(&mut self) {
        let shared = self.shared();
        if shared.owners.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        if let Some(bell) = NonNull::new(shared.bell.load(Acquire)) {
            HEAP.callbacks().set_bell(HEAP.platform(), &shared.queue, None);
            // SAFETY: from `into_raw`, in `fd`.
            unsafe { Registration::from_raw(bell) }.unregister();
        }
        if let Some(end) = shared.end() {
            end.close();
            // SAFETY: from `open_end`; this was the last owner.
            unsafe { malloc::free(core::ptr::from_ref(end).cast_mut().cast()) };
        }
        // SAFETY: this was the last owner.
        unsafe { malloc::free(self.0.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::futex::pause;
    use crate::platform::statics::TUNABLES;
    use core::sync::atomic::AtomicBool;
    use weir_core::base::cause::Cause;
    use weir_core::base::level::Level;
    use weir_core::reclaim::Event;

    static CALLS: AtomicU32 = AtomicU32::new(0);
    static RELIEFS: AtomicU32 = AtomicU32::new(0);
    static MAY_RETURN: AtomicBool = AtomicBool::new(false);

    /// Returns from the first call only when it may.
    struct Held;

    impl Callback for Held {
        fn event(&self, event: Event) -> Result<(), Panicked> {
            if event.level == Level::None {
                RELIEFS.fetch_add(1, SeqCst);
            }
            CALLS.fetch_add(1, SeqCst);
            wait_for(|| MAY_RETURN.load(SeqCst));
            Ok(())
        }
    }

    fn wait_for(condition: impl Fn() -> bool) {
        (0..).take_while(|_| !condition()).for_each(pause);
    }

    #[test]
    fn a_thread_that_waits_goes_on_where_the_callback_of_another_is_late() {
        let queue = ProgramQueue::new().unwrap();
        let spec = CallbackSpec { name: b"held", class: Class::Subscriber, ..CallbackSpec::default() };
        let both = [(), ()].map(|()| register(&spec, Held, Thread::Program(&queue)).unwrap());
        std::thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(|| queue.wait_and_serve(None))));
            // Posted once. Relief, which comes later, would wake the second thread too.
            TUNABLES.relief_ms.set(60_000);
            HEAP.reclaim().note_pressure(Level::Some, Cause::Pressure);
            wait_for(|| CALLS.load(SeqCst) == 2);
            MAY_RETURN.store(true, SeqCst);
            queue.end();
        });
        assert_eq!(RELIEFS.load(SeqCst), 0, "the second was called because another event came");
        both.into_iter().for_each(Registration::unregister);
    }
}
