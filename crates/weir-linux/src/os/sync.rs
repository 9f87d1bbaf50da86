//! Atomics and cells that the lock-free protocols of this crate are made of. They are named in one place so that a
//! model checker can put its own under the same files (`weir-models`).

use core::cell::UnsafeCell;
pub(crate) use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};

/// A static; a model checker makes one for each interleaving.
macro_rules! shared {
    ($($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$meta])* static $name: $type = $value;)*
    };
}
pub(crate) use shared;

/// A constructor that is `const` here; a model checker's atomics have none that are.
macro_rules! constructor {
    ($(#[$meta:meta])* pub fn $($rest:tt)*) => { $(#[$meta])* pub const fn $($rest)* };
}
pub(crate) use constructor;

/// A value whose users take turns by a protocol, which a model checker holds them to.
#[derive(Debug)]
pub(crate) struct Cell<T>(UnsafeCell<T>);

impl<T> Cell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Calls `f` with where the value is, to be read and written.
    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
