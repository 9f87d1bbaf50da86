//! Buckets: arrays of object pointers that move between CPUs and slabs by way of the depot.
//!
//! A bucket is metadata: freed objects are never written to. Its memory (a *shell*) comes from the platform in chunks
//! and is kept on a free list for good; there are at most as many as the depots once held at a time. All shells are
//! of one size, so that those of a cache that is gone serve the others.

mod audit;

use core::ptr::null_mut;

use crate::geometry::MAX_BATCH;
use crate::page::PAGE;
use crate::platform::Platform;
use crate::tuning::Points;
use crate::working_set::WorkingSet;

/// A bucket: `len` pointers.
#[repr(C)]
struct Bucket {
    next: *mut Bucket,
    len: usize,
    slots: [*mut u8; MAX_BATCH],
}

/// Bytes asked of the platform at a time for bucket shells.
const CHUNK: usize = 4 * PAGE;

/// Spare shells.
pub struct Shells {
    head: *mut Bucket,
}

// SAFETY: shells are reached only through their list, which is always behind a lock.
unsafe impl Send for Shells {}

impl Shells {
    /// None.
    #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
    pub const fn new() -> Self {
        Self { head: null_mut() }
    }

    fn pop(&mut self) -> Option<*mut Bucket> {
        let shell = self.head;
        if shell.is_null() {
            return None;
        }
        // SAFETY: shells on the list are valid and this list's alone.
        self.head = unsafe { (*shell).next };
        Some(shell)
    }

    fn push(&mut self, shell: *mut Bucket) {
        // SAFETY: the caller gives a valid shell up.
        unsafe { (*shell).next = self.head };
        self.head = shell;
    }

    /// Takes one of `other`'s; whether it had one.
    pub fn take_one(&mut self, other: &mut Self) -> bool {
        other.pop().map(|shell| self.push(shell)).is_some()
    }

    /// Cuts a chunk of memory from [`map_shells`] into shells.
    pub fn add(&mut self, chunk: usize) {
        for at in (0..CHUNK - size_of::<Bucket>() + 1).step_by(size_of::<Bucket>()).rev() {
            // Fresh memory, big enough and aligned; zero is a bucket with nothing in it.
            self.push((chunk + at) as *mut Bucket);
        }
    }
}

/// A depot: the buckets of one cache that are with no CPU, and spare shells.
pub struct Depot {
    full: *mut Bucket,
    /// Shells for more.
    pub spare: Shells,
    /// How many of `objects` will be wanted again.
    pub working_set: WorkingSet,
    /// Objects in the buckets.
    pub objects: usize,
    /// Whether larger buckets would be good.
    pub points: Points,
    /// Visits so far.
    pub visits: u64,
    /// Visits that found it empty.
    pub misses: u64,
    /// When the last of those was, ns, as of the last window's end.
    pub short_at: u64,
}

// SAFETY: buckets are reached only through the depot, which is always behind its lock.
unsafe impl Send for Depot {}

impl Depot {
    /// An empty depot.
    pub const fn new() -> Self {
        Self {
            full: null_mut(),
            spare: Shells::new(),
            working_set: WorkingSet::new(),
            objects: 0,
            points: Points::new(),
            visits: 0,
            misses: 0,
            short_at: 0,
        }
    }

    /// Forgets what is known of a cache that is gone, but keeps the shells.
    pub fn reset(&mut self, now: u64) {
        let spare = core::mem::replace(&mut self.spare, Shells::new());
        *self = Self { spare, short_at: now, ..Self::new() };
    }

    /// Puts `objects` in buckets; returns how many there were shells for.
    pub fn put(&mut self, objects: &[*mut u8]) -> usize {
        let mut done = 0;
        while done < objects.len() {
            // SAFETY: buckets are valid and this depot's alone; at most `MAX_BATCH` pointers are in one.
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

    /// Takes up to `out.len()` objects, those that came last, for a program that wants some; returns how many.
    pub fn get(&mut self, out: &mut [*mut u8]) -> usize {
        let n = self.pop(out);
        self.working_set.get(n as u32);
        n
    }

    /// Takes objects for reclaim, which is no demand.
    pub fn reclaim(&mut self, out: &mut [*mut u8]) -> usize {
        let n = self.pop(out);
        self.working_set.shift(n as u32);
        n
    }

    fn pop(&mut self, out: &mut [*mut u8]) -> usize {
        let mut done = 0;
        while done < out.len() && !self.full.is_null() {
            let bucket = self.full;
            // SAFETY: as in `put`; `len` pointers were written there.
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
