//! Buckets: arrays of object pointers that move between CPUs and slabs by way of the depot.
//!
//! A bucket is metadata: freed objects are never written to. Its memory comes from the platform in chunks and is
//! kept on a free list for good; there are at most as many as the depots once held at a time.

mod audit;

use core::ptr::null_mut;

use crate::page::PAGE;
use crate::platform::Platform;
use crate::size_class::{BATCH, MAX_BATCH};
use crate::working_set::WorkingSet;

/// Header of a bucket; `len` pointers follow it.
#[repr(C)]
struct Bucket {
    next: *mut Bucket,
    len: usize,
}

/// Bytes asked of the platform at a time for bucket shells.
const CHUNK: usize = 4 * PAGE;

/// A depot: the full buckets of one cache, and spare shells.
pub struct Depot {
    full: *mut Bucket,
    spare: *mut Bucket,
    /// What of `full` will be wanted again.
    pub working_set: WorkingSet,
    /// Objects in `full`.
    pub objects: usize,
}

// SAFETY: buckets are reached only through the depot, which is always behind its lock.
unsafe impl Send for Depot {}

impl Depot {
    /// An empty depot.
    pub const fn new() -> Self {
        Self { full: null_mut(), spare: null_mut(), working_set: WorkingSet::new(), objects: 0 }
    }

    /// Whether [`Depot::put`] has a shell to put objects in; if not, [`Depot::add_shells`] first.
    pub fn has_shell(&self) -> bool {
        !self.spare.is_null()
    }

    /// Puts `objects` (at most the class's batch) in a bucket. There is a shell for it.
    pub fn put(&mut self, class: usize, objects: &[*mut u8]) {
        debug_assert!(objects.len() <= BATCH[class] as usize);
        let bucket = self.spare;
        // SAFETY: shells are valid, this depot's alone, and have room for a batch.
        unsafe {
            self.spare = (*bucket).next;
            (*bucket).len = objects.len();
            (*bucket).next = self.full;
            let slots = bucket.add(1).cast::<*mut u8>();
            core::ptr::copy_nonoverlapping(objects.as_ptr(), slots, objects.len());
        }
        self.full = bucket;
        self.objects += objects.len();
        self.working_set.put();
    }

    /// Takes a bucket's objects for a program that wants some; returns how many.
    pub fn get(&mut self, out: &mut [*mut u8; MAX_BATCH]) -> usize {
        let n = self.pop(out);
        if n > 0 {
            self.working_set.get();
        }
        n
    }

    /// Takes a bucket's objects for reclaim, which is no demand.
    pub fn reclaim(&mut self, out: &mut [*mut u8; MAX_BATCH]) -> usize {
        let n = self.pop(out);
        if n > 0 {
            self.working_set.shift(1);
        }
        n
    }

    fn pop(&mut self, out: &mut [*mut u8; MAX_BATCH]) -> usize {
        let bucket = self.full;
        if bucket.is_null() {
            return 0;
        }
        // SAFETY: as in `put`; `len` pointers were written there.
        unsafe {
            let len = (*bucket).len;
            core::ptr::copy_nonoverlapping(bucket.add(1).cast::<*mut u8>(), out.as_mut_ptr(), len);
            self.full = (*bucket).next;
            (*bucket).next = self.spare;
            self.spare = bucket;
            self.objects -= len;
            len
        }
    }

    /// Cuts a chunk of memory from [`map_shells`] into shells.
    pub fn add_shells(&mut self, class: usize, chunk: usize) {
        let bytes = size_of::<Bucket>() + BATCH[class] as usize * size_of::<*mut u8>();
        for at in (0..CHUNK - bytes + 1).step_by(bytes).rev() {
            let shell = (chunk + at) as *mut Bucket;
            // SAFETY: fresh memory, big enough and aligned (a shell's size is a multiple of 8).
            unsafe { shell.write(Bucket { next: self.spare, len: 0 }) };
            self.spare = shell;
        }
    }
}

/// Memory for bucket shells; asked for with no lock held.
pub fn map_shells<P: Platform>(platform: &P) -> Option<usize> {
    let chunk = platform.map(CHUNK, PAGE)?;
    crate::stats::add(&platform.stats().metadata_bytes, CHUNK as u64);
    Some(chunk)
}

impl Default for Depot {
    fn default() -> Self {
        Self::new()
    }
}
