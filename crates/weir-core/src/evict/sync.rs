//! What [`super::pins`] is made of, named in one place so that a model checker can put its own under the same file.

pub(super) use core::sync::atomic::{AtomicU32, fence};

/// A constructor that is `const` here; a model checker's atomics have none that are.
macro_rules! constructor {
    ($(#[$meta:meta])* pub fn $($rest:tt)*) => { $(#[$meta])* pub const fn $($rest)* };
}
pub(super) use constructor;
