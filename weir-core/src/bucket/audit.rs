//! Whether a depot's counts agree with its buckets.

use super::Depot;
use crate::audit::{Fault, check};
use crate::size_class::BATCH;

impl Depot {
    /// Checks the counts; calls `f` with each object.
    pub(crate) fn audit(&self, class: usize, mut f: impl FnMut(usize) -> Result<(), Fault>) -> Result<(), Fault> {
        let (mut buckets, mut objects) = (0, 0);
        let mut bucket = self.full;
        while !bucket.is_null() {
            // SAFETY: full buckets are valid and hold `len` pointers; the depot's lock is held.
            let held = unsafe {
                let len = (*bucket).len;
                check(len > 0 && len <= BATCH[class] as usize, "the length of a bucket", class)?;
                core::slice::from_raw_parts(bucket.add(1).cast::<*mut u8>(), len)
            };
            held.iter().try_for_each(|&object| f(object as usize))?;
            (buckets, objects) = (buckets + 1, objects + held.len());
            // SAFETY: as above.
            bucket = unsafe { (*bucket).next };
        }
        let ws = &self.working_set;
        check(ws.items == buckets, "buckets of a depot", class)?;
        check(self.objects == objects, "objects of a depot", class)?;
        check(ws.max >= ws.items && ws.items >= ws.batch_min && ws.batch_min >= ws.min, "a working set", class)
    }
}
