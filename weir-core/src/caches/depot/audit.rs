//! Whether a depot's counts agree with its buckets.

use super::Depot;
use crate::base::fault::{Fault, check};
use crate::caches::geometry::MAX_BATCH;

impl Depot {
    /// Its shells, those of buckets and spare ones.
    pub(crate) fn shells(&self) -> usize {
        let count = |mut shell: *mut super::Bucket| {
            let mut count = 0;
            while !shell.is_null() {
                count += 1;
                // SAFETY: the depot's shells are valid; the depot's lock is held.
                shell = unsafe { (*shell).next };
            }
            count
        };
        count(self.full) + count(self.spare.first())
    }

    /// Checks the counts; calls `f` with each object.
    pub(crate) fn audit(&self, class: usize, mut f: impl FnMut(usize) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut objects = 0;
        let mut bucket = self.full;
        while !bucket.is_null() {
            // SAFETY: the depot's buckets are valid and hold `len` pointers; the depot's lock is held.
            let held = unsafe {
                let len = (*bucket).len;
                check(len > 0 && len <= MAX_BATCH, "the length of a bucket", class)?;
                &(&(*bucket).slots)[..len]
            };
            held.iter().try_for_each(|&object| f(object as usize))?;
            objects += held.len();
            // SAFETY: as above.
            bucket = unsafe { (*bucket).next };
        }
        let ws = &self.working_set;
        check(self.objects == objects && ws.items as usize == objects, "objects of a depot", class)?;
        check(ws.max >= ws.items && ws.items >= ws.batch_min && ws.batch_min >= ws.min, "a working set", class)
    }
}
