//! The engine's `platform/sync.rs`, of the checker's atomics, whose constructors are not constant.

pub use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};

/// A constructor, as it is.
#[macro_export]
macro_rules! constructor {
    ($($item:tt)*) => { $($item)* };
}

/// An array each of whose elements is made by the same expression.
#[macro_export]
macro_rules! array {
    ($value:expr; $len:expr) => {
        ::core::array::from_fn::<_, { $len }, _>(|_| $value)
    };
}

pub use {array, constructor};
