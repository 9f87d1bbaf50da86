//! Operations on the current CPU's buckets, and the fence that stops them.

use super::cpu_table::{Pushed, Table};
use crate::base::units::Class;

/// Restartable sections. The four operations are those of [`CpuSlab`](super::cpu_table::CpuSlab), each done whole on one CPU
/// or not at all.
pub trait CpuOps {
    /// Whether they work on this platform. Where not, buckets are locked.
    fn lockless(&self) -> bool;
    /// The caller's index into the table now; it may be stale at once. Below [`MAX_CPUS`](super::cpu_table::MAX_CPUS), or
    /// [`NO_CPU`](super::cpu_table::NO_CPU).
    fn cpu(&self) -> usize;
    /// Pops one object of `class` from the current CPU's buckets; null when there is none.
    ///
    /// # Safety
    /// Each table entry points to a [`CpuSlab`](super::cpu_table::CpuSlab) that lives on.
    unsafe fn pop(&self, table: &Table, class: Class) -> *mut u8;
    /// Pushes `object` onto the current CPU's bucket.
    ///
    /// # Safety
    /// As [`CpuOps::pop`]; `object` is not null and belongs to the caller.
    unsafe fn push(&self, table: &Table, class: Class, object: *mut u8) -> Pushed;
    /// Pushes the first of `objects`, as many as fit; returns how many.
    ///
    /// # Safety
    /// As [`CpuOps::push`].
    unsafe fn push_batch(&self, table: &Table, class: Class, objects: &[*mut u8]) -> usize;
    /// Pops up to `objects.len()`; returns how many.
    ///
    /// # Safety
    /// As [`CpuOps::pop`].
    unsafe fn pop_batch(&self, table: &Table, class: Class, objects: &mut [*mut u8]) -> usize;
    /// After it returns `true`, every operation that had read the table before it was called has committed or will not.
    /// `false`: refused; nothing is known of them.
    fn fence(&self) -> bool;
}
