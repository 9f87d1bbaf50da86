//! A program's callbacks: what it registers with the heap, and what the threads that call them do.

use core::ptr::NonNull;

use super::Heap;
use crate::base::cause::Cause;
use crate::base::level::Level;
use crate::evict::callback::{Entry, Queue};
use crate::evict::callbacks::Callbacks;
use crate::evict::calling::{Job, Ran, Taken};
use crate::platform::Platform;
use crate::reclaim::PressureEvents;

impl<P: Platform> Heap<P> {
    /// The registry.
    pub fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// Changes of memory pressure.
    pub fn pressure_events(&self) -> &PressureEvents {
        self.callbacks.events()
    }

    /// [`Callbacks::register`].
    ///
    /// # Safety
    /// The entry is new, and lives where it is until it is disposed of.
    pub unsafe fn register_callback(&self, entry: NonNull<Entry>) {
        // SAFETY: the caller's promise is the one that is demanded.
        unsafe { self.callbacks.register(self.platform(), entry) }
    }

    /// [`Callbacks::unregister`].
    ///
    /// # Safety
    /// The entry is registered, and the caller gives it up.
    pub unsafe fn unregister_callback(&self, entry: NonNull<Entry>) {
        // SAFETY: the caller's promise is the one that is demanded.
        unsafe { self.callbacks.unregister(self.platform(), entry) }
    }

    /// What the calling thread, one of `queue`'s, is to do now.
    pub fn take_callback(&self, queue: &Queue) -> Taken {
        self.callbacks.take(self.platform(), queue)
    }

    /// Runs what [`Heap::take_callback`] gave. Calls a program's own code: to be called by a thread that holds nothing.
    pub fn run_callback(&self, job: Job) -> Ran {
        self.callbacks.run(self.platform(), job)
    }

    /// A pressure event was heard: subscribers are told, and caches do not grow until relief, whether anything is released or
    /// not. [`Heap::balance_pressure`] then does what follows for the heap.
    pub fn note_pressure(&self, level: Level, cause: Cause) {
        self.page_pools.signal(self.platform(), self.platform().now());
        // The level first: relief that comes meanwhile sees it, and tells it again.
        self.pressure_is(level, self.platform().now());
        self.callbacks.raise(self.platform(), level, cause);
    }
}
