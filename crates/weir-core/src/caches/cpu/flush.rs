//! Flush: objects on their way back, from a CPU's bucket to the depot, and from there to their slabs.

use core::sync::atomic::Ordering::Relaxed;

use crate::base::invalid_free::InvalidFree;
use crate::base::size_class::COUNT;
use crate::base::units::{Bytes, Class, Span};
use crate::caches::cache::Cache;
use crate::caches::cache::domain::Domain;
use crate::caches::cache::domain_access::visit_depot;
use crate::caches::cpu::buckets::PerCpu;
use crate::caches::cpu::invalid_frees;
use crate::caches::geometry::{Geometry, MAX_BATCH, UNBUCKETED, class_of_number};
use crate::caches::heap_caches::Caches;
use crate::caches::slab::Empty;
use crate::caches::slab::pieces::{Faults, Pieces, bits};
use crate::pages::node::ZoneKind;
use crate::pages::window::NOTHING;
use crate::platform::Platform;
use crate::platform::cpu_table::{CpuSlab, Pushed};
use crate::telemetry::stats;

/// Objects that the depot of a size class of malloc holds at most; what is freed beyond them goes to slabs at once.
///
/// A depot hands out what came last, in the order that it came. A program may free much in another order than it allocated in. It
/// would get its next objects in that order, each on a cache line and page of its own. The longer it runs, the more that is so.
/// Slabs hand them out in the order of their addresses again.
///
/// Measured, without a bound, 8,192, 1,024 and 256: a Python program with trees of small objects 5.0, 3.7, 3.2 and 3.1 s. A tree
/// that is built and freed in one order gains nothing and loses a fifth. Since batches go to slabs in bulk, 4,096 and 256 are no
/// better than 1,024 either. User caches have no bound: their objects may be initialised ones.
const ENOUGH: usize = 1024;
/// Nor more bytes: at least 32 objects. What lies in a depot serves its own class alone, and pages are touched anew beside it. With
/// the number alone a depot may hold 32 MiB: a program that fills and frees 1,024 objects of one size after the other, up to 32
/// KiB, had a peak of 187 MiB for 27 in use, and has 58 so.
const ENOUGH_BYTES: usize = 1 << 20;

/// Empty slabs that are taken off their list at a time: they lie on the stack, which may be small.
const EMPTY_AT_A_TIME: usize = 16;

impl<P: Platform> Caches<P> {
    /// A free of an object that its CPU's bucket did not take. Whether it went beyond the bucket: without restartable
    /// sections each free comes here, and most go into the bucket after all.
    pub(crate) fn free_slow(&self, object: *mut u8, number: usize, pushed: Pushed) -> bool {
        if number >= UNBUCKETED {
            self.free_unbucketed(number, object);
            return true;
        }
        if pushed == Pushed::Twice {
            self.pages.platform.invalid_free(InvalidFree::DoubleFree, object as usize, self.size_of(number));
            return true;
        }
        let class = class_of_number(number);
        if !self.pages.platform.lockless() {
            return self.free_locked(class, object);
        }
        stats::add(&self.pages.platform.stats().free_misses, 1);
        if self.cpu.install(&self.pages.platform) {
            match self.flush_bucket(class, object) {
                Pushed::Done => return true,
                Pushed::Twice => return self.free_slow(object, number, Pushed::Twice),
                Pushed::Full => {}
            }
        }
        stats::add(&self.table.get(number).counts.slow_frees, 1);
        self.flush_freed(number, &mut [object]);
        true
    }

    /// Makes room in the current CPU's bucket, by letting it hold more or by a flush of a batch to the depot.
    fn flush_bucket(&self, class: Class, object: *mut u8) -> Pushed {
        let cache = self.table.get(class.index());
        let (room, batch) = (cache.tuning.ceiling(), cache.tuning.batch(&cache.shape.get()));
        let mut fits = self.cpu.resize(&self.pages.platform, class, room);
        // SAFETY: what the table's entries point to is never unmapped, `class` has a bucket, and the caller gave the
        // object up.
        match unsafe { self.pages.platform.push(&self.cpu.table, class, object) } {
            Pushed::Full => {}
            pushed => return pushed,
        }
        let mut objects = [core::ptr::null_mut(); MAX_BATCH];
        loop {
            let batch = if fits { batch } else { MAX_BATCH };
            // SAFETY: what the table's entries point to is never unmapped, and `class` has a bucket; what is popped is
            // this thread's alone.
            let n = unsafe { self.pages.platform.pop_batch(&self.cpu.table, class, &mut objects[..batch]) };
            self.cpu.note_came(&self.pages.platform, class, -(n as i32));
            self.flush_freed(class.index(), &mut objects[..n]);
            // It held more than it may now: all of that goes.
            if fits || n == 0 {
                break;
            }
            fits = self.cpu.resize(&self.pages.platform, class, room);
        }
        // SAFETY: what the table's entries point to is never unmapped, `class` has a bucket, and the object is in
        // none: the first push refused it.
        unsafe { self.pages.platform.push(&self.cpu.table, class, object) }
    }

    /// A free where there are no restartable sections: into the CPU's bucket under its lock.
    fn free_locked(&self, class: Class, object: *mut u8) -> bool {
        let cache = self.table.get(class.index());
        let mut objects = [core::ptr::null_mut(); MAX_BATCH];
        let mut n = 0;
        let mut pushed = Pushed::Full;
        if let Some((_guard, slab)) = self.cpu.locked(&self.pages.platform, self.pages.platform.cpu()) {
            // SAFETY: where there are no restartable sections, a slab is worked on under its lock alone, and the guard
            // holds that lock. The caller gave the object up.
            unsafe {
                pushed = CpuSlab::push(slab, class, object);
                if pushed == Pushed::Full {
                    let fits = PerCpu::resize_locked(&*slab, class, cache.tuning.ceiling());
                    let batch = if fits { cache.tuning.batch(&cache.shape.get()) } else { MAX_BATCH };
                    pushed = CpuSlab::push(slab, class, object);
                    while pushed == Pushed::Full && n < batch {
                        objects[n] = CpuSlab::pop(slab, class);
                        if objects[n].is_null() {
                            break;
                        }
                        n += 1;
                    }
                    if n > 0 {
                        pushed = CpuSlab::push(slab, class, object);
                    }
                }
            }
        }
        if n > 0 {
            stats::add(&self.pages.platform.stats().free_misses, 1);
            self.cpu.note_came(&self.pages.platform, class, -(n as i32));
            self.flush_freed(class.index(), &mut objects[..n]);
        }
        match pushed {
            Pushed::Done => n > 0,
            Pushed::Twice => self.free_slow(object, class.index(), Pushed::Twice),
            Pushed::Full => {
                stats::add(&cache.counts.slow_frees, 1);
                self.flush_freed(class.index(), &mut [object]);
                true
            }
        }
    }

    /// [`Caches::flush`] of objects that a program freed. Each object is to begin where one does, and some of the batches are
    /// checked for double frees as well.
    pub(crate) fn flush_freed(&self, number: usize, objects: &mut [*mut u8]) {
        if self.pages.platform.checks_all() {
            self.to_slabs(number, objects);
            return self.pages.events.freed(&self.pages.platform, Bytes(self.size_of(number)) * objects.len());
        }
        let cache = self.table.get(number);
        // Two threads may count the same batch: then the one after it is checked, or not, in its place.
        let before = cache.counts.batches.load(Relaxed);
        cache.counts.batches.store(before.wrapping_add(1), Relaxed);
        let mut kept = objects.len();
        let g = cache.shape.get();
        if invalid_frees::is_due(before) || !invalid_frees::all_begin(&g, objects) {
            let wrong = |what, object| self.pages.platform.invalid_free(what, object as usize, g.size as usize);
            kept = invalid_frees::check(&g, objects, wrong);
        }
        self.flush(number, &objects[..kept]);
    }

    /// Flushes objects to the depot; to their slabs if there is no memory for a bucket.
    pub(crate) fn flush(&self, number: usize, objects: &[*mut u8]) {
        let cache = self.table.get(number);
        let g = cache.shape.get();
        self.by_domain(cache, objects, |domain, part| {
            let mut rest = part;
            loop {
                let mut depot = visit_depot(cache, &g, domain, &self.pages.platform);
                let is_full = number <= COUNT && depot.objects >= ENOUGH.min(ENOUGH_BYTES / g.size as usize);
                let done = if is_full { 0 } else { depot.put(rest) };
                drop(depot);
                rest = &rest[done..];
                if rest.is_empty() {
                    break;
                }
                if is_full || !self.supply_shells(&domain.depot) {
                    self.to_slabs(number, rest);
                    break;
                }
            }
            self.pages.events.freed(&self.pages.platform, Bytes(g.size as usize) * part.len());
        });
    }

    /// Returns objects to their slabs, slab by slab, and slabs that are empty then to their zone.
    pub(crate) fn to_slabs(&self, number: usize, objects: &[*mut u8]) {
        let cache = self.table.get(number);
        for part in objects.chunks(MAX_BATCH) {
            self.by_domain(cache, part, |domain, part| {
                if self.to_slabs_of(cache, domain, part) {
                    self.give_empty(cache, domain);
                }
            });
        }
    }

    /// Returns a batch of objects to the slabs of a domain; whether some of those are empty. The batch's pieces lie in this
    /// function's frame, which is gone before empty slabs are given back: the stack may be small.
    #[inline(never)]
    fn to_slabs_of(&self, cache: &Cache, domain: &Domain, objects: &[*mut u8]) -> bool {
        let (g, window) = (cache.shape.get(), &self.pages.normal);
        let mut batch = Pieces::NONE;
        let faults = batch.collect(window, &g, objects);
        let mut slabs = domain.slabs.lock(&self.pages.platform);
        let is_whole = slabs.give(window, &g, &mut batch);
        let has_empty = slabs.empty > 0;
        drop(slabs);
        if !is_whole || faults != Faults::default() {
            self.name_faults(&g, domain, objects, (&batch, faults));
        }
        has_empty
    }

    /// Names what was wrong with a batch that went to slabs: what these refused is left in its pieces.
    #[cold]
    fn name_faults(&self, g: &Geometry, domain: &Domain, objects: &[*mut u8], (refused, faults): (&Pieces, Faults)) {
        let (window, platform) = (&self.pages.normal, &self.pages.platform);
        let wrong = |what, object| platform.invalid_free(what, object as usize, g.size as usize);
        refused.for_each(window, g, |object| wrong(InvalidFree::DoubleFree, object));
        bits(faults.twice).for_each(|i| wrong(InvalidFree::DoubleFree, objects[i]));
        for object in bits(faults.odd).map(|i| objects[i]) {
            let what = domain.slabs.lock(platform).fault_of(window, g, object);
            wrong(what, object);
        }
    }

    /// Gives the empty slabs of a domain back to the zone, as far as the cache's reserve lets them go. Slabs of
    /// objects with a finalizer stay: the platform's thread for those is woken.
    pub(crate) fn give_empty(&self, cache: &Cache, domain: &Domain) {
        let g = cache.shape.get();
        let reserve = cache.user.reserve.load(Relaxed);
        loop {
            let mut empty = [Empty::default(); EMPTY_AT_A_TIME];
            let mut n = 0;
            let mut slabs = domain.slabs.lock(&self.pages.platform);
            if cache.user.has_finalizer() {
                let waits = slabs.can_spare(&g, reserve);
                drop(slabs);
                // No finalizer of an exempt cache runs before its end.
                if waits && !cache.user.is_exempt() {
                    self.pages.platform.wake_finalizer();
                }
                return;
            }
            while n < EMPTY_AT_A_TIME
                && let Some(slab) = slabs.take_empty(&self.pages.normal, &g, reserve)
            {
                empty[n] = slab;
                n += 1;
            }
            drop(slabs);
            empty[..n].iter().for_each(|&slab| self.give_slab(&g, slab));
            if n < EMPTY_AT_A_TIME {
                return;
            }
        }
    }

    /// Gives an empty slab's pages back to the zone.
    pub(crate) fn give_slab(&self, g: &Geometry, slab: Empty) {
        let pages = Span::new(slab.page, g.slab_pages());
        self.pages.normal.set_class(pages, NOTHING);
        self.pages.give(ZoneKind::Normal, pages, slab.reported);
    }
}
