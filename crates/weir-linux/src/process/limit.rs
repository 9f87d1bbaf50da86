//! The program's last word before an allocation fails because of `hard_limit`.

use core::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};

use crate::os::catch::uncancelled;
use crate::os::thread_block;

/// Frees memory of the program's, for an allocation of so many bytes that will fail otherwise. Not 0: it freed some,
/// and the allocation is to be tried again. Called on the thread that allocates, under no lock of Weir's. It may not
/// unwind.
pub type LimitCallback = extern "C" fn(bytes: usize) -> i32;

/// The function's address; 0: none.
static CALLBACK: AtomicUsize = AtomicUsize::new(0);

fn function(address: usize) -> Option<LimitCallback> {
    // SAFETY: the word is 0, which is `None`, or was stored by `on_limit` from a function of this type.
    unsafe { core::mem::transmute(address) }
}

/// Sets the callback; returns the one before.
pub fn on_limit(callback: Option<LimitCallback>) -> Option<LimitCallback> {
    function(CALLBACK.swap(callback.map_or(0, |callback| callback as usize), AcqRel))
}

/// Whether there is a callback.
#[cold]
pub fn is_set() -> bool {
    CALLBACK.load(Acquire) != 0
}

/// An allocation of `bytes` would exceed `hard_limit`: whether the program freed something. What the callback itself
/// allocates does not call it again: that fails.
#[cold]
pub fn limit_reached(bytes: usize) -> bool {
    let Some(callback) = function(CALLBACK.load(Acquire)) else { return false };
    if !thread_block::enter_limit() {
        return false;
    }
    let freed = uncancelled(|| callback(bytes)) != 0;
    thread_block::leave_limit();
    freed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    static CALLS: AtomicUsize = AtomicUsize::new(0);

    /// Allocates more than there may be: that must not call it again.
    extern "C" fn greedy(bytes: usize) -> i32 {
        CALLS.fetch_add(1, Relaxed);
        assert!(!limit_reached(2 * bytes), "no recursion");
        i32::from(bytes == 64)
    }

    #[test]
    fn the_callback_is_asked_once_for_an_allocation_and_may_allocate() {
        assert!(!limit_reached(64), "none is set");
        assert!(on_limit(Some(greedy)).is_none());
        assert!(limit_reached(64) && !limit_reached(65));
        assert_eq!(CALLS.load(Relaxed), 2);
        assert!(on_limit(None).is_some_and(|before| before as usize == greedy as *const () as usize));
        assert!(!limit_reached(64));
        assert_eq!(CALLS.load(Relaxed), 2);
    }
}
