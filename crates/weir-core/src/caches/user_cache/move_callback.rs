//! The callback of a cache by which a program lets reclaim move its objects ([`super::moves`]).

use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Moves the object at the first address to the place at the second, of the same size, which is given too; the last argument is
/// the program's. `true`: the object is at the second now, and nothing refers to the first. `false`: all is as before.
///
/// The first may be no object that the program holds, and is not to be read before that is known. The function may not unwind.
pub type Move = unsafe extern "C" fn(*mut u8, *mut u8, usize, *mut u8) -> bool;

/// A cache's [`Move`], which is set once at most in the cache's life.
pub(crate) struct MoveCallback {
    /// Null: there is none.
    function: AtomicPtr<()>,
    /// Written before it.
    argument: AtomicPtr<u8>,
    /// Reclaim wishes that sparse slabs become empty.
    is_wanted: AtomicBool,
    /// Free objects in slabs when a pass asked for nothing: as long as they are as many, another pass would find no more.
    /// `usize::MAX`: the last pass asked, or there was none.
    settled_at: AtomicUsize,
}

impl MoveCallback {
    pub(crate) const fn new() -> Self {
        Self {
            function: AtomicPtr::new(null_mut()),
            argument: AtomicPtr::new(null_mut()),
            is_wanted: AtomicBool::new(false),
            settled_at: AtomicUsize::new(usize::MAX),
        }
    }

    /// The cache is made: it has none.
    pub(super) fn reset(&self) {
        self.function.store(null_mut(), Relaxed);
        self.is_wanted.store(false, Relaxed);
        self.settled_at.store(usize::MAX, Relaxed);
    }

    /// Sets it, unless there is one. One thread at a time.
    pub(super) fn set(&self, function: Move, argument: *mut u8) -> bool {
        if self.is_there() {
            return false;
        }
        self.argument.store(argument, Relaxed);
        self.function.store(function as *mut (), Release);
        true
    }

    pub(super) fn is_there(&self) -> bool {
        !self.function.load(Relaxed).is_null()
    }

    /// The function, and its last argument.
    pub(super) fn get(&self) -> Option<(Move, *mut u8)> {
        let function = self.function.load(Acquire);
        // SAFETY: it is not null, so it was stored by `set` from a function of this very type.
        (!function.is_null())
            .then(|| unsafe { (core::mem::transmute::<*mut (), Move>(function), self.argument.load(Relaxed)) })
    }

    /// A pass ended that asked so many objects, with so many free ones in slabs.
    pub(super) fn passed(&self, asked: usize, free: usize) {
        self.settled_at.store(if asked == 0 { free } else { usize::MAX }, Relaxed);
    }

    /// Whether the last pass asked for nothing, and as many objects are free in slabs as then.
    pub(super) fn is_settled(&self, free: usize) -> bool {
        self.settled_at.load(Relaxed) == free
    }

    pub(super) fn want(&self) {
        self.is_wanted.store(true, Release);
    }

    /// Whether reclaim wished for moves since the last call.
    pub(super) fn take_wish(&self) -> bool {
        self.is_wanted.load(Relaxed) && self.is_wanted.swap(false, Acquire)
    }
}
