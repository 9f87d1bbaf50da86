//! What the per-CPU buckets hold, while nobody uses them.

use super::{BEGIN, CpuSlab, PerCpu, held_and_room};
use crate::audit::{Fault, check};
use crate::geometry::{CACHES, slots};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

impl PerCpu {
    /// Checks every CPU's buckets; calls `f` with class and object of each object in them.
    pub(crate) fn audit(&self, mut f: impl FnMut(usize, usize) -> Result<(), Fault>) -> Result<(), Fault> {
        let seen = self.seen.load(Acquire) as usize;
        for slab in self.slabs[..seen].iter().map(|s| s.load(Acquire)).filter(|s| !s.is_null()) {
            for (class, &begin) in BEGIN.iter().enumerate().take(CACHES).skip(1) {
                // SAFETY: a slab, once made, lives on; nobody uses it now, as the caller promises.
                let header = unsafe { (*slab).headers[class].load(Relaxed) };
                let (held, room) = held_and_room(class, header).unwrap_or((1, 0));
                check(held <= room && room <= slots(class), "a bucket's header", class)?;
                for word in 0..=held {
                    // SAFETY: slots of the class, or the zero word before them.
                    let object = unsafe { *CpuSlab::slot(slab, u32::from(begin) - 1 + word as u32) } as usize;
                    check((object == 0) == (word == 0), "a bucket's slot", class)?;
                    if object != 0 {
                        f(class, object)?;
                    }
                }
            }
        }
        Ok(())
    }
}
