//! Objects into and out of the current CPU's buckets: by restartable sections, or, where the platform has none, under a lock.

use super::buckets::PerCpu;
use crate::base::units::Class;
use crate::platform::Platform;
use crate::platform::cpu_table::{CpuSlab, Pushed};

impl PerCpu {
    /// Takes an object out of the current CPU's bucket of `class`; null: there is none.
    #[inline(always)]
    pub(crate) fn pop<P: Platform>(&self, platform: &P, class: Class) -> *mut u8 {
        if platform.lockless() {
            // SAFETY: what the table's entries point to, CPUs' slabs and the dummy, is there for good.
            return unsafe { platform.pop(&self.table, class) };
        }
        // SAFETY: the slab is the closure's alone, and `class` has a bucket.
        self.in_locked(platform, |slab| unsafe { CpuSlab::pop(slab, class) }).unwrap_or(core::ptr::null_mut())
    }

    /// Takes objects out of the current CPU's bucket of `class`; returns how many.
    pub(crate) fn pop_batch<P: Platform>(&self, platform: &P, class: Class, out: &mut [*mut u8]) -> usize {
        if platform.lockless() {
            // SAFETY: as of `pop`.
            return unsafe { platform.pop_batch(&self.table, class, out) };
        }
        let fill = |slab: *mut CpuSlab| {
            // SAFETY: as of `pop`.
            let popped = core::iter::repeat_with(|| unsafe { CpuSlab::pop(slab, class) });
            out.iter_mut().zip(popped.take_while(|object| !object.is_null())).map(|(out, object)| *out = object).count()
        };
        self.in_locked(platform, fill).unwrap_or(0)
    }

    /// Puts an object that the caller gives up into the current CPU's bucket of `class`.
    pub(crate) fn push<P: Platform>(&self, platform: &P, class: Class, object: *mut u8) -> Pushed {
        if platform.lockless() {
            // SAFETY: as of `pop`.
            return unsafe { platform.push(&self.table, class, object) };
        }
        // SAFETY: as of `pop`.
        self.in_locked(platform, |slab| unsafe { CpuSlab::push(slab, class, object) }).unwrap_or(Pushed::Full)
    }

    /// Puts objects that the caller gives up into the current CPU's bucket of `class`; returns how many it took.
    pub(crate) fn push_batch<P: Platform>(&self, platform: &P, class: Class, objects: &[*mut u8]) -> usize {
        if platform.lockless() {
            // SAFETY: as of `pop`.
            return unsafe { platform.push_batch(&self.table, class, objects) };
        }
        // SAFETY: as of `pop`.
        self.in_locked(platform, |slab| unsafe { CpuSlab::push_batch(slab, class, objects) }).unwrap_or(0)
    }

    /// Calls `f` with the thread's slab under its lock, where the platform has no restartable sections; not where each free is
    /// checked.
    fn in_locked<P: Platform, R>(&self, platform: &P, f: impl FnOnce(*mut CpuSlab) -> R) -> Option<R> {
        if platform.checks_all() {
            return None;
        }
        let (_guard, slab) = self.locked(platform, platform.cpu())?;
        Some(f(slab))
    }
}
