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
                // SAFETY: the list holds shells that this depot alone has, mapped for good; `&self` excludes writers.
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
            // SAFETY: the list holds shells that this depot alone has, mapped for good; `&self` excludes writers, and
            // the length is checked before that many slots are read.
            let held = unsafe {
                let len = (*bucket).len;
                check(len > 0 && len <= MAX_BATCH, "the length of a bucket", class)?;
                &(&(*bucket).slots)[..len]
            };
            held.iter().try_for_each(|&object| f(object as usize))?;
            objects += held.len();
            // SAFETY: `bucket` is not null, so it is a shell on this depot's list, mapped for good; `&self` excludes
            // writers.
            bucket = unsafe { (*bucket).next };
        }
        let ws = &self.working_set;
        check(self.objects == objects && ws.items as usize == objects, "objects of a depot", class)?;
        check(ws.max >= ws.items && ws.items >= ws.batch_min && ws.batch_min >= ws.min, "a working set", class)
    }
}
