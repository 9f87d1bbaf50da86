//! A pool's state, which its handles and its runs in flight share.

use core::alloc::Layout;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use weir_core::pools::page_pool::{PagePool, PoolSpec};
use weir_linux::process::heap::{HEAP, add_pool};
use weir_linux::process::malloc;

use super::errors::PoolError;

struct State {
    pool: PagePool,
    owners: AtomicUsize,
}

/// One owner of a pool's state; the last one ends the pool.
pub(super) struct Shared(NonNull<State>);

// SAFETY: the state is a `PagePool`, which any thread may use, and an atomic. The thread that gives up the last reference
// frees it, on any thread.
unsafe impl Send for Shared {}
// SAFETY: a shared reference reaches the pool by shared references alone, and the atomic.
unsafe impl Sync for Shared {}

// None of the program's code runs inside a pool's calls, so that no panic leaves one half-way.
impl UnwindSafe for Shared {}
impl RefUnwindSafe for Shared {}

impl Shared {
    pub fn new(spec: &PoolSpec<'_>) -> Result<Self, PoolError> {
        let at = HEAP.alloc_aligned(Layout::new::<State>()).cast::<State>();
        let at = NonNull::new(at).ok_or(PoolError::OutOfMemory)?;
        // SAFETY: fresh memory of that size and alignment.
        unsafe { at.write(State { pool: PagePool::new(spec), owners: AtomicUsize::new(1) }) };
        // SAFETY: the state stays where it is until the last owner has removed the pool, and no exclusive reference is
        // made.
        unsafe { add_pool(NonNull::new_unchecked(&raw mut (*at.as_ptr()).pool)) };
        Ok(Self(at))
    }

    fn state(&self) -> &State {
        // SAFETY: there while there is an owner.
        unsafe { self.0.as_ref() }
    }

    pub fn pool(&self) -> &PagePool {
        &self.state().pool
    }

    pub fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        self.state().owners.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.state().owners.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        // Runs that were given up by `into_raw` and never turned back are in flight for good, and so is their pool.
        if HEAP.remove_pool(self.pool()).is_ok() {
            // SAFETY: this was the last owner, and the engine does not know the pool any more.
            unsafe {
                self.0.drop_in_place();
                malloc::free(self.0.as_ptr().cast());
            }
        }
    }
}
