//! Atomics that filling is made of: a model checker puts its own under the same file.

pub(super) use crate::platform::sync::AtomicU64;
