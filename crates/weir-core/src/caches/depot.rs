//! Buckets: arrays of object pointers that move between CPUs and slabs by way of the depot.
//!
//! A bucket is metadata: freed objects are never written to. Its memory is a *shell* ([`shells`]). A
//! depot retains the shells of buckets that became empty until its next trim.

mod shell_supply;
pub(crate) mod shells;
pub(crate) mod trim;

use core::ptr::null_mut;

use crate::base::fault::{Fault, check};
use crate::base::time::Time;
use crate::caches::cpu::bucket_size::Points;
use crate::caches::depot::shells::{Bucket, Shells};
use crate::caches::geometry::MAX_BATCH;
use crate::policy::working_set::WorkingSet;

/// A depot: the buckets of one cache that no CPU has, and spare shells.
pub struct Depot {
    full: *mut Bucket,
    /// Shells for more buckets, which the next trim takes.
    pub spare: Shells,
    /// Estimates how many of `objects` will be taken again.
    pub working_set: WorkingSet,
    /// Objects in the buckets.
    pub objects: usize,
    /// Whether buckets should be larger.
    pub points: Points,
    /// Visits so far.
    pub visits: u64,
    /// Visits that found it empty.
    pub misses: u64,
    /// When the last of those was, ns, as of the last window's end.
    pub short_at: Time,
}

// SAFETY: buckets are reached only through the depot, which is always behind its lock.
unsafe impl Send for Depot {}

impl Depot {
    /// An empty depot.
    pub(crate) const fn new() -> Self {
        Self {
            full: null_mut(),
            spare: Shells::new(),
            working_set: WorkingSet::new(),
            objects: 0,
            points: Points::new(),
            visits: 0,
            misses: 0,
            short_at: Time::ZERO,
        }
    }

    /// Starts again for another cache, but retains the spare shells.
    pub(crate) fn reset(&mut self, now: Time) {
        let spare = self.take_spare();
        *self = Self { spare, short_at: now, ..Self::new() };
    }

    /// Puts `objects` in buckets; returns how many there were shells for.
    pub(crate) fn put(&mut self, objects: &[*mut u8]) -> usize {
        let mut done = 0;
        while done < objects.len() {
            // SAFETY: buckets on the list are shells that this depot alone has, mapped for good, and `pop` yields such
            // a shell. `n` is bounded by what is left of `objects` and by the slots after the bucket's first `len`.
            unsafe {
                if self.full.is_null() || (*self.full).len == MAX_BATCH {
                    let Some(bucket) = self.spare.pop() else { break };
                    (*bucket).len = 0;
                    (*bucket).next = self.full;
                    self.full = bucket;
                }
                let len = (*self.full).len;
                let n = (MAX_BATCH - len).min(objects.len() - done);
                let slots = (&raw mut (*self.full).slots).cast::<*mut u8>();
                core::ptr::copy_nonoverlapping(objects[done..].as_ptr(), slots.add(len), n);
                (*self.full).len = len + n;
                done += n;
            }
        }
        self.objects += done;
        self.working_set.put(done as u32);
        done
    }

    /// The object that came last.
    pub(crate) fn top(&self) -> Option<*mut u8> {
        // SAFETY: `full` is null or a shell that this depot alone has, mapped for good and zero or written in all its
        // bytes.
        let bucket = unsafe { self.full.as_ref() }?;
        // No bucket without objects stays in the list.
        Some(bucket.slots[bucket.len - 1])
    }

    /// Takes up to `out.len()` objects, those that came last, for an allocation; returns how many.
    pub(crate) fn get(&mut self, out: &mut [*mut u8]) -> usize {
        let n = self.pop(out);
        self.working_set.get(n as u32);
        n
    }

    /// Whether there is nothing in it, no spare shell either.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects == 0 && self.spare.is_empty()
    }

    /// Takes its spare shells from it.
    pub(crate) fn take_spare(&mut self) -> Shells {
        core::mem::replace(&mut self.spare, Shells::new())
    }

    /// Takes objects for reclaim, which is no demand.
    pub(crate) fn reclaim(&mut self, out: &mut [*mut u8]) -> usize {
        let n = self.pop(out);
        self.working_set.shift(n as u32);
        n
    }

    fn pop(&mut self, out: &mut [*mut u8]) -> usize {
        let mut done = 0;
        while done < out.len() && !self.full.is_null() {
            let bucket = self.full;
            // SAFETY: buckets on the list are shells that this depot alone has, mapped for good; `put` wrote its first
            // `len` pointers, `n` is at most that and at most what is left of `out`. An empty bucket is taken off the
            // list before it is pushed on the other.
            unsafe {
                let len = (*bucket).len;
                let n = len.min(out.len() - done);
                let slots = (&raw const (*bucket).slots).cast::<*mut u8>();
                core::ptr::copy_nonoverlapping(slots.add(len - n), out[done..].as_mut_ptr(), n);
                (*bucket).len = len - n;
                if len == n {
                    self.full = (*bucket).next;
                    self.spare.push(bucket);
                }
                done += n;
            }
        }
        self.objects -= done;
        done
    }
}

impl Default for Depot {
    fn default() -> Self {
        Self::new()
    }
}

impl Depot {
    /// Number of shells, those of buckets and spare ones.
    pub(crate) fn shells(&self) -> usize {
        let count = |mut shell: *mut Bucket| {
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
