//! Refill: objects on their way to a program or a CPU's bucket, from the depot, else from slabs, else from a fresh
//! slab.

use crate::base::units::{Class, Order, PageNo, Pages, Span};
use crate::base::unwind::OnUnwind;
use crate::caches::cache::Cache;
use crate::caches::cache::domain::Domain;
use crate::caches::cache::domain_access::visit_depot;
use crate::caches::geometry::{Geometry, MAX_BATCH, SLAB_HEAD, SLAB_TAIL, UNBUCKETED, class_of_number};
use crate::caches::heap_caches::Caches;
use crate::caches::slab::pieces::Pieces;
use crate::pages::Short;
use crate::pages::node::ZoneKind;
use crate::pages::zone::Purpose;
use crate::platform::Platform;
use crate::platform::cpu_table::CpuSlab;
use crate::telemetry::stats;

/// Where objects come from.
#[derive(Clone, Copy)]
enum Source {
    /// The caller's node.
    Home,
    /// The node of a fresh slab, of which this is the first page. It is added to that node's slabs.
    Fresh(PageNo),
    /// Any node: they are nearer than no memory.
    Any,
}

impl<P: Platform> Caches<P> {
    /// Where there are no restartable sections, an object from the CPU's bucket under its lock, if there is one.
    #[inline]
    pub(crate) fn pop_locked(&self, number: usize) -> Option<*mut u8> {
        if self.pages.platform.lockless() || number >= UNBUCKETED {
            return None;
        }
        let (_guard, slab) = self.cpu.locked(&self.pages.platform, self.pages.platform.cpu())?;
        // SAFETY: where there are no restartable sections, a slab is worked on under its lock alone, and the guard holds
        // that lock.
        let object = unsafe { CpuSlab::pop(slab, class_of_number(number)) };
        (!object.is_null()).then_some(object)
    }

    /// An allocation that found its bucket empty; null where the cache's `init` failed.
    ///
    /// No array of objects lies on the stack while a slab is made, which is the deepest of this: the stack may be small.
    pub(crate) fn refill(&self, number: usize) -> Result<*mut u8, Short> {
        stats::add(&self.pages.platform.stats().alloc_misses, 1);
        if number >= UNBUCKETED {
            return self.refill_unbucketed(number);
        }
        let class = class_of_number(number);
        let object = self.refill_from_stock(class, Source::Home);
        if !object.is_null() {
            return Ok(object);
        }
        let cache = self.table.get(number);
        match self.fresh_slab(cache, &cache.shape.get()) {
            Ok(Some(page)) => Ok(self.refill_from_stock(class, Source::Fresh(page))),
            Ok(None) => {
                self.note_failures(number, 1);
                Ok(core::ptr::null_mut())
            }
            Err(Short) => {
                let object = self.refill_from_stock(class, Source::Any);
                if object.is_null() { Err(Short) } else { Ok(object) }
            }
        }
    }

    /// Refills the bucket from what [`Caches::stock`] finds, and hands an object out; null where it finds nothing.
    #[inline(never)]
    fn refill_from_stock(&self, class: Class, source: Source) -> *mut u8 {
        let mut objects = [core::ptr::null_mut(); MAX_BATCH];
        let cache = self.table.get(class.index());
        let checks_all = self.pages.platform.checks_all();
        let batch = if checks_all { 1 } else { cache.tuning.batch(&cache.shape.get()) };
        let n = self.stock(cache, &mut objects[..batch], source);
        if n == 0 {
            return core::ptr::null_mut();
        }
        // The first is handed out; the others are pushed last first, so that they come out ascending.
        objects[1..n].reverse();
        let kept = self.fill_bucket(class, &objects[1..n]);
        self.cpu.note_came(&self.pages.platform, class, 1 + kept as i32);
        if kept < n - 1 {
            self.flush(class.index(), &objects[1 + kept..n]);
        }
        objects[0]
    }

    /// Objects from the depot, else from slabs, else from a fresh slab; returns how many: none only where the cache's
    /// `init` failed.
    pub(crate) fn fetch(&self, number: usize, out: &mut [*mut u8]) -> Result<usize, Short> {
        let cache = self.table.get(number);
        let n = self.stock(cache, out, Source::Home);
        if n > 0 {
            return Ok(n);
        }
        match self.fresh_slab(cache, &cache.shape.get()) {
            Ok(fresh) => Ok(fresh.map_or(0, |page| self.stock(cache, out, Source::Fresh(page)))),
            Err(Short) => {
                let n = self.stock(cache, out, Source::Any);
                if n > 0 { Ok(n) } else { Err(Short) }
            }
        }
    }

    /// Objects of a source; returns how many.
    fn stock(&self, cache: &Cache, out: &mut [*mut u8], source: Source) -> usize {
        match source {
            Source::Home => self.stock_of(cache, self.domain(cache, self.pages.home()), out, None),
            Source::Fresh(page) => self.stock_of(cache, self.domain_of(cache, page), out, Some(page)),
            Source::Any => {
                let mut of_each = cache.domains().map(|domain| self.stock_of(cache, domain, out, None));
                of_each.find(|&n| n > 0).unwrap_or(0)
            }
        }
    }

    /// Objects from a domain's depot, else from its slabs; returns how many. With the first page of a `fresh` slab: from the slabs,
    /// to which that one is added.
    #[inline(never)]
    fn stock_of(&self, cache: &Cache, domain: &Domain, out: &mut [*mut u8], fresh: Option<PageNo>) -> usize {
        let g = cache.shape.get();
        let window = &self.pages.normal;
        if fresh.is_none() {
            let mut depot = visit_depot(cache, &g, domain, &self.pages.platform);
            let n = depot.get(out);
            if n > 0 {
                return n;
            }
            depot.short_at = self.pages.events.clock();
            depot.misses += 1;
        }
        let mut taken = Pieces::NONE;
        let most = out.len().min(MAX_BATCH);
        let mut slabs = domain.slabs.lock(&self.pages.platform);
        if let Some(page) = fresh {
            slabs.add(window, &g, page);
        }
        let n = slabs.take(window, &g, most, &mut taken);
        let (fresh, again) = slabs.take_resident();
        drop(slabs);
        self.pages.events.resident(&self.pages.platform, fresh, again);
        let mut slots = out.iter_mut();
        taken.for_each(window, &g, |object| {
            if let Some(slot) = slots.next() {
                *slot = object;
            }
        });
        n
    }

    /// The first page of a new slab, its objects initialised; it is on no list yet. `None`: `init` failed.
    pub(crate) fn fresh_slab(&self, cache: &Cache, g: &Geometry) -> Result<Option<PageNo>, Short> {
        let pages = g.slab_pages();
        let run = self.take_pages(pages, Order::of_pages(pages), Purpose::Slab)?;
        let slab = Span::new(run.page, pages);
        // Dropped on unwinding, and where `init` failed: the pages go back.
        let undo = OnUnwind(|| self.pages.give(ZoneKind::Normal, slab, 0));
        if !cache.user.init_objects(self.pages.normal.addr_of(run.page) as *mut u8, g) {
            return Ok(None);
        }
        core::mem::forget(undo);
        let tail = if g.is_numbered() { SLAB_TAIL } else { g.class() };
        self.pages.normal.set_class(Span::new(run.page, Pages(1)), g.class());
        self.pages.normal.set_class(Span::new(run.page + Pages(1), pages - Pages(1)), tail);
        Ok(Some(run.page))
    }

    /// Pushes objects on the current CPU's bucket; returns how many it took.
    pub(crate) fn fill_bucket(&self, class: Class, objects: &[*mut u8]) -> usize {
        if objects.is_empty() || class == SLAB_HEAD {
            return 0;
        }
        let room = self.table.get(class.index()).tuning.ceiling();
        if !self.pages.platform.lockless() {
            let Some((_guard, slab)) = self.cpu.locked(&self.pages.platform, self.pages.platform.cpu()) else {
                return 0;
            };
            self.cpu.resize(&self.pages.platform, class, room);
            // SAFETY: where there are no restartable sections, a slab is worked on under its lock alone, and the guard
            // holds that lock. The objects are the caller's, and no other thread uses them.
            return unsafe { CpuSlab::push_batch(slab, class, objects) };
        }
        if !self.cpu.install(&self.pages.platform) {
            return 0;
        }
        self.cpu.resize(&self.pages.platform, class, room);
        // SAFETY: what the table's entries point to is never unmapped, `class` has a bucket, and the objects are the
        // caller's.
        unsafe { self.pages.platform.push_batch(&self.cpu.table, class, objects) }
    }
}
