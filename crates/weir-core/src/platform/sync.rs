//! Atomics that [`super::lock`] and other lock-free protocols are made of. They are named in one place so that a model
//! checker can put its own under the same file.

pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};

/// Tries before a thread sleeps: about the length of the longest section held under a lock (a slab refill).
pub(crate) const SPINS: u32 = 100;

/// A constructor that is `const` here; a model checker's atomics have none that are.
macro_rules! constructor {
    ($(#[$meta:meta])* pub fn $($rest:tt)*) => { $(#[$meta])* pub const fn $($rest)* };
}
pub(crate) use constructor;

/// An array each of whose elements is made by the same expression, as a constant where atomics have constant constructors.
macro_rules! array {
    ($value:expr; $len:expr) => {
        [const { $value }; $len]
    };
}
pub(crate) use array;
