//! Queues of callbacks that a program's own threads call.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use weir_core::evict::callback::{Entry, Queue};
use weir_core::evict::calling::Taken;

use crate::os::bell;
use crate::os::clock::monotonic_ns;
use crate::os::fd::close;
use crate::os::futex::futex_wait;
use crate::process::calls;
use crate::process::heap::HEAP;
use crate::process::registration::Registration;

impl Shared {
    fn new() -> Self {
        let (owners, fd, bell) = (AtomicU32::new(1), AtomicI32::new(-1), AtomicPtr::new(null_mut()));
        Self { queue: Queue::new(), owners, fd, bell }
    }
}

/// A queue of callbacks that threads of the program's call.
#[derive(Debug)]
pub struct ProgramQueue(NonNull<Shared>);

/// What a queue's owner and its callbacks share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) queue: Queue,
    owners: AtomicU32,
    /// The program's descriptor; -1: there is none.
    pub(super) fd: AtomicI32,
    /// The callback that makes it readable, while there is one.
    pub(super) bell: AtomicPtr<Entry>,
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
        unsafe { block.write(Shared::new()) };
        Some(Self(block))
    }

    /// The engine's part.
    pub fn queue(&self) -> &Queue {
        &self.shared().queue
    }

    pub(super) fn shared(&self) -> &Shared {
        // SAFETY: there while there is an owner.
        unsafe { self.0.as_ref() }
    }

    /// Calls the callbacks that wait; returns how many. A callback's panic is the caller's.
    pub fn serve(&self) -> usize {
        let mut calls = 0;
        let fd = self.shared().fd.load(Acquire);
        if fd >= 0 {
            // Before the look: what is posted after it makes the descriptor readable again.
            let _ = bell::take(fd);
        }
        loop {
            match HEAP.callbacks().take(HEAP.platform(), self.queue()) {
                Taken::Again => {}
                Taken::Sleep(_) => return calls,
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
            let _ = close(shared.fd.load(Relaxed));
        }
        // SAFETY: this was the last owner.
        unsafe { calls::free(self.0.as_ptr().cast()) };
    }
}
