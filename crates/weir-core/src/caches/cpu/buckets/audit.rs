//! The audit of what CPUs' buckets hold, while no thread uses them.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{BEGIN, PerCpu, waiting};
use crate::base::fault::{Fault, check};
use crate::base::units::Class;
use crate::caches::geometry::{BUCKETED, class_of_number, slots};
use crate::platform::cpu_table::CpuSlab;

impl PerCpu {
    /// Checks every CPU's buckets; calls `f` with class and object of each object in them.
    pub(crate) fn audit(&self, mut f: impl FnMut(Class, usize) -> Result<(), Fault>) -> Result<(), Fault> {
        let seen = self.seen.load(Acquire) as usize;
        for slab in self.slabs[..seen].iter().map(|s| s.load(Acquire)).filter(|s| !s.is_null()) {
            for class in (1..BUCKETED).map(class_of_number) {
                // SAFETY: a slab is never unmapped, and what is read of it here are atomics.
                let header = unsafe { &(*slab).headers[class.index()] };
                let begin = BEGIN[class.index()];
                let within = begin..=begin + slots(class) as u32;
                let current = header.current.load(Relaxed);
                let right = within.contains(&current) && within.contains(&header.end.load(Relaxed));
                check(right, "a bucket's header", class.index())?;
                for word in begin - 1..current {
                    // SAFETY: `current` lies within the class's slots, as was just checked, and the word before the
                    // first of them is the slab's too. No thread uses the caches during an audit, so nothing writes it
                    // now.
                    let object = unsafe { *CpuSlab::slot(slab, word) } as usize;
                    check((object == 0) == (word < begin), "a bucket's slot", class.index())?;
                    if object != 0 {
                        f(class, object)?;
                    }
                }
            }
            // SAFETY: a slab is never unmapped, and what is read of it here is an atomic.
            if let Some((class, run)) = waiting::parts(unsafe { (*slab).waiting.load(Relaxed) }) {
                f(class, run as usize)?;
            }
        }
        Ok(())
    }
}
