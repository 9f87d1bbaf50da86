//! An object cache: per-CPU buckets over a depot of full buckets over slabs over pages.
//!
//! This file is the way between the levels; what each level is, `percpu`, `bucket` and `slab` say.

use crate::bucket::{Depot, map_shells};
use crate::heap::Heap;
use crate::lock::Lock;
use crate::page::{LARGE, NOTHING};
use crate::percpu::{CpuSlab, Pushed};
use crate::platform::{Misuse, Platform};
use crate::size_class::{BATCH, MAX_BATCH, PAGES, SIZE};
use crate::slab::{Empty, SlabLists, Slabs};
use crate::stats;

/// One cache: what lies below the per-CPU buckets.
pub struct Cache {
    /// Full buckets.
    pub depot: Lock<Depot, 2>,
    /// Partial slabs.
    pub slabs: Slabs,
}

impl Cache {
    /// An empty cache.
    #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
    pub const fn new() -> Self {
        Self { depot: Lock::new(Depot::new()), slabs: Lock::new(SlabLists::new()) }
    }
}

impl<P: Platform> Heap<P> {
    /// An allocation that found its bucket empty.
    #[cold]
    #[inline(never)]
    pub(crate) fn refill(&self, class: usize) -> *mut u8 {
        stats::add(&self.platform.stats().alloc_misses, 1);
        if !self.platform.lockless()
            && let Some((_guard, slab)) = self.percpu.locked(&self.platform, self.platform.cpu())
        {
            // SAFETY: the guard makes the slab ours.
            let object = unsafe { CpuSlab::pop(slab, class) };
            if !object.is_null() {
                return object;
            }
        }
        let mut objects = [core::ptr::null_mut(); MAX_BATCH];
        let n = self.fetch(class, &mut objects);
        if n == 0 {
            return core::ptr::null_mut();
        }
        // The first is handed out; the others are pushed last first, so that they come out ascending.
        objects[1..n].reverse();
        let kept = self.keep(class, &objects[1..n]);
        if kept < n - 1 {
            self.deposit(class, &objects[1 + kept..n]);
        }
        self.housekeeping();
        objects[0]
    }

    /// Objects from the depot, else from slabs, else from a fresh slab; 0 when memory is refused.
    fn fetch(&self, class: usize, out: &mut [*mut u8; MAX_BATCH]) -> usize {
        let cache = &self.caches[class];
        let n = cache.depot.lock(&self.platform).get(out);
        if n > 0 {
            return n;
        }
        let want = &mut out[..BATCH[class] as usize];
        let mut slabs = cache.slabs.lock(&self.platform);
        let n = slabs.take(&self.normal.window, class, want);
        let again = slabs.take_again();
        drop(slabs);
        self.note_again(again);
        if n > 0 {
            return n;
        }
        let pages = PAGES[class] as usize;
        let Some(run) = self.take_pages(pages, pages.next_power_of_two().trailing_zeros()) else { return 0 };
        self.normal.window.set_class(run.page, pages, class as u8);
        let mut slabs = cache.slabs.lock(&self.platform);
        slabs.add(&self.normal.window, class, run.page);
        slabs.take(&self.normal.window, class, want)
    }

    /// Pushes objects on the current CPU's bucket; returns how many it took.
    fn keep(&self, class: usize, objects: &[*mut u8]) -> usize {
        if objects.is_empty() {
            return 0;
        }
        if !self.platform.lockless() {
            let Some((_guard, slab)) = self.percpu.locked(&self.platform, self.platform.cpu()) else { return 0 };
            // SAFETY: the guard makes the slab ours; the objects are the caller's.
            return objects.iter().take_while(|&&o| unsafe { CpuSlab::push(slab, class, o) } == Pushed::Done).count();
        }
        if !self.percpu.install(&self.platform) {
            return 0;
        }
        // SAFETY: the table's slabs live on; the objects are the caller's.
        unsafe { self.platform.push_batch(&self.percpu.table, class, objects) }
    }

    /// A free whose bucket did not take the object, or that is of no class (its page is a large run's, or nobody's).
    #[cold]
    #[inline(never)]
    pub(crate) fn overflow(&self, object: *mut u8, class: usize, pushed: Pushed) {
        if class == NOTHING as usize || class == LARGE as usize {
            return self.free_run(object);
        }
        if pushed == Pushed::Twice {
            return self.platform.misuse(Misuse::DoubleFree, object as usize, SIZE[class] as usize);
        }
        if !self.platform.lockless() {
            return self.free_locked(class, object);
        }
        stats::add(&self.platform.stats().free_misses, 1);
        if self.percpu.install(&self.platform) {
            let mut objects = [core::ptr::null_mut(); MAX_BATCH];
            let batch = &mut objects[..BATCH[class] as usize];
            // SAFETY: the table's slabs live on; the object is the caller's.
            unsafe {
                match self.platform.push(&self.percpu.table, class, object) {
                    Pushed::Done => return,
                    Pushed::Twice => return self.overflow(object, class, Pushed::Twice),
                    Pushed::Full => {}
                }
                let n = self.platform.pop_batch(&self.percpu.table, class, batch);
                self.deposit(class, &batch[..n]);
                if self.platform.push(&self.percpu.table, class, object) == Pushed::Done {
                    return self.housekeeping();
                }
            }
        }
        self.deposit(class, &[object]);
        self.housekeeping();
    }

    fn free_locked(&self, class: usize, object: *mut u8) {
        let mut objects = [core::ptr::null_mut(); MAX_BATCH];
        let mut n = 0;
        let mut pushed = Pushed::Full;
        if let Some((_guard, slab)) = self.percpu.locked(&self.platform, self.platform.cpu()) {
            // SAFETY: the guard makes the slab ours; the object is the caller's.
            unsafe {
                pushed = CpuSlab::push(slab, class, object);
                if pushed == Pushed::Full {
                    while n < BATCH[class] as usize {
                        objects[n] = CpuSlab::pop(slab, class);
                        n += 1;
                    }
                    pushed = CpuSlab::push(slab, class, object);
                }
            }
        }
        if n > 0 {
            stats::add(&self.platform.stats().free_misses, 1);
            self.deposit(class, &objects[..n]);
            self.housekeeping();
        }
        match pushed {
            Pushed::Done => {}
            Pushed::Twice => self.overflow(object, class, Pushed::Twice),
            Pushed::Full => self.deposit(class, &[object]),
        }
    }

    /// Puts objects in the depot; into their slabs if there is no memory for a bucket.
    pub(crate) fn deposit(&self, class: usize, objects: &[*mut u8]) {
        if objects.is_empty() {
            return;
        }
        let cache = &self.caches[class];
        let mut depot = cache.depot.lock(&self.platform);
        if !depot.has_shell() {
            drop(depot);
            if !self.shells.ready() {
                return self.to_slabs(class, objects);
            }
            let Some(chunk) = map_shells(&self.platform) else {
                self.shells.refused();
                return self.to_slabs(class, objects);
            };
            depot = cache.depot.lock(&self.platform);
            depot.add_shells(class, chunk);
        }
        depot.put(class, objects);
        drop(depot);
        self.note_idle(objects.len() * SIZE[class] as usize);
    }

    /// Returns objects to their slabs, and slabs that are empty then to their zone.
    pub(crate) fn to_slabs(&self, class: usize, objects: &[*mut u8]) {
        for part in objects.chunks(MAX_BATCH) {
            let mut empty = [Empty::default(); MAX_BATCH];
            let mut n = 0;
            let mut slabs = self.caches[class].slabs.lock(&self.platform);
            for &object in part {
                match slabs.give(&self.normal.window, class, object) {
                    Ok(Some(slab)) => {
                        empty[n] = slab;
                        n += 1;
                    }
                    Ok(None) => {}
                    Err(what) => {
                        drop(slabs);
                        self.platform.misuse(what, object as usize, SIZE[class] as usize);
                        slabs = self.caches[class].slabs.lock(&self.platform);
                    }
                }
            }
            drop(slabs);
            for slab in &empty[..n] {
                self.give_slab(class, *slab);
            }
        }
    }

    /// Gives an empty slab's pages back to the zone.
    pub(crate) fn give_slab(&self, class: usize, slab: Empty) {
        let pages = PAGES[class] as usize;
        self.normal.window.set_class(slab.page, pages, NOTHING);
        self.give_pages(slab.page, pages, slab.reported);
    }

    /// Trims the depot of `class` to `keep` buckets; returns bytes returned to slabs.
    pub(crate) fn trim_depot(&self, class: usize, keep: u32) -> usize {
        let mut bytes = 0;
        loop {
            let mut objects = [core::ptr::null_mut(); MAX_BATCH];
            let _in_flight = self.balancer.batch(&self.platform);
            let mut depot = self.caches[class].depot.lock(&self.platform);
            if depot.working_set.items <= keep {
                return bytes;
            }
            let n = depot.reclaim(&mut objects);
            drop(depot);
            self.to_slabs(class, &objects[..n]);
            bytes += n * SIZE[class] as usize;
        }
    }
}
