//! An object cache: per-CPU buckets over a depot of full buckets over slabs over pages.
//!
//! This file is the way between the levels; what each level is, `percpu`, `bucket` and `slab` say. How much lies on
//! each, `tuning` and `working_set` say; what goes back, `trim`. malloc's size classes are such caches, and so are
//! those that a program makes (`made_cache`).
//!
//! Where there are several NUMA nodes, each has a [`Domain`] of its own, whose slabs lie on it: objects are put back
//! in the domain that they are from. On one node that costs one look at the number of nodes.

use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use crate::base::invalid_free::InvalidFree;
use crate::base::size_class::COUNT;
use crate::base::units::PAGE;
use crate::base::unwind::OnUnwind;
use crate::caches::Caches;
use crate::caches::bucket_size::Tuning;
use crate::caches::depot::Depot;
use crate::caches::geometry::{Geometry, MAX_BATCH, Shape};
use crate::caches::invalid_frees;
use crate::caches::slab::{Empty, SlabLists, Slabs};
use crate::caches::user_cache::Made;
use crate::pages::Short;
use crate::pages::node::ZoneKind;
use crate::pages::window::NOTHING;
use crate::pages::zone::Purpose;
use crate::platform::Platform;
use crate::platform::cpu_table::{CpuSlab, Pushed};
use crate::platform::lock::{Guard, Lock};
use crate::platform::rank;
use crate::telemetry::stats;

/// What a cache has on one NUMA node.
#[repr(align(64))]
pub struct Domain {
    /// Full buckets.
    pub depot: Lock<Depot, { rank::DEPOT }>,
    /// Slabs.
    pub slabs: Slabs,
}

impl Domain {
    const fn new() -> Self {
        Self { depot: Lock::new(Depot::new()), slabs: Lock::new(SlabLists::new()) }
    }
}

/// What happened to a cache, counted where that is rare; the rest its depots count.
pub(crate) struct Counts {
    /// Allocations that failed.
    pub failures: AtomicU64,
    /// Frees that were not pushes of one object.
    pub slow_frees: AtomicU64,
    /// Trims that took something, and the bytes that they took.
    pub trims: AtomicU64,
    pub trimmed: AtomicU64,
    /// Drains that took something, and the bytes that they took.
    pub drains: AtomicU64,
    pub drained: AtomicU64,
    /// Batches that left CPUs' buckets as programs freed, for telling which of them are checked.
    pub batches: AtomicU32,
}

impl Counts {
    const fn new() -> Self {
        Self {
            failures: AtomicU64::new(0),
            slow_frees: AtomicU64::new(0),
            trims: AtomicU64::new(0),
            trimmed: AtomicU64::new(0),
            drains: AtomicU64::new(0),
            drained: AtomicU64::new(0),
            batches: AtomicU32::new(0),
        }
    }

    /// Sets all to zero.
    pub(crate) fn reset(&self) {
        let all = [&self.failures, &self.slow_frees, &self.trims, &self.trimmed, &self.drains, &self.drained];
        all.into_iter().for_each(|counter| counter.store(0, Relaxed));
        self.batches.store(0, Relaxed);
    }
}

/// One cache: what lies below the per-CPU buckets. What all CPUs read and few write comes first, in lines of its own.
#[repr(C, align(64))]
pub struct Cache {
    pub(crate) shape: Shape,
    /// Whether it is in use: see `made_cache`.
    pub(crate) state: AtomicU8,
    pub(crate) tuning: Tuning,
    /// The domains of nodes 1 and up, mapped at their first use; [`no_domains`] if that failed.
    more: AtomicPtr<Domain>,
    /// How many those are: written before `more`.
    more_count: AtomicU32,
    pub(crate) made: Made,
    pub(crate) counts: Counts,
    home: Domain,
}

/// In place of domains that there was no memory for: the first node's is used then, for good.
const fn no_domains() -> *mut Domain {
    core::ptr::without_provenance_mut(1)
}

impl Cache {
    /// An empty cache.
    pub(crate) const fn new(geometry: Geometry, state: u8) -> Self {
        Self {
            shape: Shape::new(geometry),
            state: AtomicU8::new(state),
            tuning: Tuning::new(&geometry),
            counts: Counts::new(),
            made: Made::new(),
            home: Domain::new(),
            more: AtomicPtr::new(core::ptr::null_mut()),
            more_count: AtomicU32::new(0),
        }
    }

    /// Its domains, the first node's first.
    pub(crate) fn domains(&self) -> impl Iterator<Item = &Domain> {
        let more = self.more.load(Acquire);
        let count = if more.is_null() || more == no_domains() { 0 } else { self.more_count.load(Relaxed) as usize };
        // SAFETY: once stored, that many domains are there for good.
        core::iter::once(&self.home).chain((0..count).map(move |i| unsafe { &*more.add(i) }))
    }

    /// Bytes of the domains of nodes 1 and up, all of which are resident.
    pub(crate) fn domain_bytes(&self) -> usize {
        ((self.domains().count() - 1) * size_of::<Domain>()).next_multiple_of(PAGE)
    }

    /// The domain of `node`.
    fn domain<P: Platform>(&self, caches: &Caches<P>, node: usize) -> &Domain {
        if node == 0 {
            return &self.home;
        }
        let mut more = self.more.load(Acquire);
        if more.is_null() {
            more = self.map_domains(caches);
        }
        // SAFETY: once stored, that many domains are there for good.
        if more == no_domains() { &self.home } else { unsafe { &*more.add(node - 1) } }
    }

    #[cold]
    fn map_domains<P: Platform>(&self, caches: &Caches<P>) -> *mut Domain {
        let platform = &caches.pages.platform;
        let count = caches.pages.nodes.count() - 1;
        let bytes = (count * size_of::<Domain>()).next_multiple_of(PAGE);
        let mapped = platform.map_metadata(bytes, PAGE).map_or(no_domains(), |at| at as *mut Domain);
        if mapped != no_domains() {
            for i in 0..count {
                // SAFETY: fresh memory, long enough.
                unsafe { mapped.add(i).write(Domain::new()) };
            }
        }
        self.more_count.store(count as u32, Relaxed);
        // Not while a fork holds the locks of the domains that it knew of.
        let making = caches.making.lock(platform);
        // A thread that was quicker decided for all: slabs may be in its domains already.
        let placed = self.more.compare_exchange(core::ptr::null_mut(), mapped, AcqRel, Acquire);
        drop(making);
        match placed {
            Ok(_) => mapped,
            Err(theirs) => {
                if mapped != no_domains() {
                    platform.unmap(crate::base::run::Run { addr: mapped as usize, len: bytes });
                }
                theirs
            }
        }
    }
}

/// Objects that the depot of a size class of malloc holds at most; what is freed beyond them goes to slabs at once.
///
/// A depot hands out what came last, in the order that it came. A program that frees much in another order than it
/// allocated in would get its next objects in that order, and the more so the longer it runs, each on a cache line and
/// page of its own; slabs hand them out in the order of their addresses again. (Measured, without a bound, 8,192, 1,024
/// and 256: a Python program with trees of small objects 5.0, 3.7, 3.2 and 3.1 s. A tree that is built and freed in one
/// order gains nothing and loses a fifth. Caches that a program made have no bound: their objects may keep their state.)
const ENOUGH: usize = 1024;

/// Takes a depot's lock for a visit, which is counted, and counted for more if another thread held it.
fn visit_depot<'a, P: Platform>(
    cache: &Cache,
    g: &Geometry,
    domain: &'a Domain,
    platform: &'a P,
) -> Guard<'a, Depot, P, { rank::DEPOT }> {
    let free = domain.depot.try_lock(platform);
    let contended = free.is_none();
    let mut depot = free.unwrap_or_else(|| domain.depot.lock(platform));
    depot.visits += 1;
    if depot.points.visit(contended, platform.tunables().bucket_visits.get()) {
        cache.tuning.grow(g);
    }
    depot
}

impl<P: Platform> Caches<P> {
    /// The domain that the slab with `page` is of.
    pub(crate) fn domain_of<'a>(&'a self, cache: &'a Cache, page: u32) -> &'a Domain {
        if self.pages.nodes.count() == 1 {
            return &cache.home;
        }
        cache.domain(self, self.pages.normal.node_of(page))
    }

    /// The domain that `object` is of; the first one's for what is no object.
    fn domain_of_object<'a>(&'a self, cache: &'a Cache, object: *mut u8) -> &'a Domain {
        let page = if self.pages.nodes.count() == 1 { None } else { self.pages.normal.page_of(object as usize) };
        page.map_or(&cache.home, |page| self.domain_of(cache, page))
    }

    /// Splits objects into stretches of one domain each.
    fn by_domain<'a>(&'a self, cache: &'a Cache, objects: &[*mut u8], mut f: impl FnMut(&'a Domain, &[*mut u8])) {
        let mut rest = objects;
        while let Some(&first) = rest.first() {
            let domain = self.domain_of_object(cache, first);
            let same = |&object: &*mut u8| core::ptr::eq(self.domain_of_object(cache, object), domain);
            let n =
                if self.pages.nodes.count() == 1 { rest.len() } else { rest.iter().copied().take_while(same).count() };
            f(domain, &rest[..n]);
            rest = &rest[n..];
        }
    }

    /// An allocation that found its bucket empty; null where the cache's own `init` failed.
    #[inline]
    pub(crate) fn refill(&self, class: usize) -> Result<*mut u8, Short> {
        stats::add(&self.pages.platform.stats().alloc_misses, 1);
        if !self.pages.platform.lockless()
            && let Some((_guard, slab)) = self.cpu.locked(&self.pages.platform, self.pages.platform.cpu())
        {
            // SAFETY: the guard makes the slab ours.
            let object = unsafe { CpuSlab::pop(slab, class) };
            if !object.is_null() {
                return Ok(object);
            }
        }
        let mut objects = [core::ptr::null_mut(); MAX_BATCH];
        let cache = &self.table[class];
        let batch = cache.tuning.batch(&cache.shape.get());
        let n = self.fetch(class, &mut objects[..batch])?;
        if n == 0 {
            self.note_failures(class, 1);
            return Ok(core::ptr::null_mut());
        }
        // The first is handed out; the others are pushed last first, so that they come out ascending.
        objects[1..n].reverse();
        let kept = self.keep(class, &objects[1..n]);
        self.cpu.note_came(&self.pages.platform, class, 1 + kept as i32);
        if kept < n - 1 {
            self.deposit(class, &objects[1 + kept..n]);
        }
        Ok(objects[0])
    }

    /// Objects from the depot, else from slabs, else from a fresh slab; returns how many: none only where the cache's own
    /// `init` failed.
    pub(crate) fn fetch(&self, class: usize, out: &mut [*mut u8]) -> Result<usize, Short> {
        let cache = &self.table[class];
        let g = cache.shape.get();
        let domain = cache.domain(self, self.pages.home());
        let mut depot = visit_depot(cache, &g, domain, &self.pages.platform);
        let n = depot.get(out);
        if n > 0 {
            return Ok(n);
        }
        depot.short_at = self.pages.events.clock();
        depot.misses += 1;
        drop(depot);
        let window = &self.pages.normal;
        let mut slabs = domain.slabs.lock(&self.pages.platform);
        let n = slabs.take(window, &g, out);
        let again = slabs.take_again();
        drop(slabs);
        self.pages.events.taken_again(&self.pages.platform, again);
        if n > 0 {
            return Ok(n);
        }
        let Some(page) = self.fresh_slab(cache, &g)? else { return Ok(0) };
        let mut slabs = self.domain_of(cache, page).slabs.lock(&self.pages.platform);
        slabs.add(window, &g, page);
        Ok(slabs.take(window, &g, out))
    }

    /// The first page of a new slab, its objects initialised; it is on no list yet. `None`: `init` failed.
    pub(crate) fn fresh_slab(&self, cache: &Cache, g: &Geometry) -> Result<Option<u32>, Short> {
        let pages = usize::from(g.pages);
        let align = pages.next_power_of_two().trailing_zeros();
        let run = self.pages.take(ZoneKind::Normal, pages, align, Purpose::Slab)?;
        let undo = OnUnwind(|| self.pages.give(ZoneKind::Normal, run.page, pages, 0));
        if !cache.made.set_up(self.pages.normal.addr_of(run.page) as *mut u8, g) {
            // Dropping `undo` gives the pages back.
            return Ok(None);
        }
        core::mem::forget(undo);
        self.pages.normal.set_class(run.page, pages, g.class);
        Ok(Some(run.page))
    }

    /// Pushes objects on the current CPU's bucket; returns how many it took.
    pub(crate) fn keep(&self, class: usize, objects: &[*mut u8]) -> usize {
        if objects.is_empty() {
            return 0;
        }
        let room = self.table[class].tuning.ceiling();
        if !self.pages.platform.lockless() {
            let Some((_guard, slab)) = self.cpu.locked(&self.pages.platform, self.pages.platform.cpu()) else {
                return 0;
            };
            self.cpu.resize(&self.pages.platform, class, room);
            // SAFETY: the guard makes the slab ours; the objects are the caller's.
            return unsafe { CpuSlab::push_batch(slab, class, objects) };
        }
        if !self.cpu.install(&self.pages.platform) {
            return 0;
        }
        self.cpu.resize(&self.pages.platform, class, room);
        // SAFETY: the table's slabs live on; the objects are the caller's.
        unsafe { self.pages.platform.push_batch(&self.cpu.table, class, objects) }
    }

    /// A free of an object that its CPU's bucket did not take.
    #[inline]
    pub(crate) fn overflow(&self, object: *mut u8, class: usize, pushed: Pushed) {
        if pushed == Pushed::Twice {
            return self.pages.platform.invalid_free(InvalidFree::DoubleFree, object as usize, self.size_of(class));
        }
        if !self.pages.platform.lockless() {
            return self.free_locked(class, object);
        }
        stats::add(&self.pages.platform.stats().free_misses, 1);
        if self.cpu.install(&self.pages.platform) {
            match self.overflow_here(class, object) {
                Pushed::Done => return,
                Pushed::Twice => return self.overflow(object, class, Pushed::Twice),
                Pushed::Full => {}
            }
        }
        stats::add(&self.table[class].counts.slow_frees, 1);
        self.deposit_freed(class, &mut [object]);
    }

    /// Makes room in the current CPU's bucket, by letting it hold more or by giving a batch to the depot.
    fn overflow_here(&self, class: usize, object: *mut u8) -> Pushed {
        let cache = &self.table[class];
        let (room, batch) = (cache.tuning.ceiling(), cache.tuning.batch(&cache.shape.get()));
        let mut fits = self.cpu.resize(&self.pages.platform, class, room);
        // SAFETY: the table's slabs live on; the object is the caller's.
        match unsafe { self.pages.platform.push(&self.cpu.table, class, object) } {
            Pushed::Full => {}
            pushed => return pushed,
        }
        let mut objects = [core::ptr::null_mut(); MAX_BATCH];
        loop {
            let batch = if fits { batch } else { MAX_BATCH };
            // SAFETY: as above.
            let n = unsafe { self.pages.platform.pop_batch(&self.cpu.table, class, &mut objects[..batch]) };
            self.cpu.note_came(&self.pages.platform, class, -(n as i32));
            self.deposit_freed(class, &mut objects[..n]);
            // It held more than it may now: all of that goes.
            if fits || n == 0 {
                break;
            }
            fits = self.cpu.resize(&self.pages.platform, class, room);
        }
        // SAFETY: as above.
        unsafe { self.pages.platform.push(&self.cpu.table, class, object) }
    }

    fn free_locked(&self, class: usize, object: *mut u8) {
        let cache = &self.table[class];
        let mut objects = [core::ptr::null_mut(); MAX_BATCH];
        let mut n = 0;
        let mut pushed = Pushed::Full;
        if let Some((_guard, slab)) = self.cpu.locked(&self.pages.platform, self.pages.platform.cpu()) {
            // SAFETY: the guard makes the slab ours; the object is the caller's.
            unsafe {
                let fits = self.cpu.resize(&self.pages.platform, class, cache.tuning.ceiling());
                pushed = CpuSlab::push(slab, class, object);
                if pushed == Pushed::Full {
                    let batch = if fits { cache.tuning.batch(&cache.shape.get()) } else { MAX_BATCH };
                    while n < batch {
                        objects[n] = CpuSlab::pop(slab, class);
                        if objects[n].is_null() {
                            break;
                        }
                        n += 1;
                    }
                    pushed = CpuSlab::push(slab, class, object);
                }
            }
        }
        if n > 0 {
            stats::add(&self.pages.platform.stats().free_misses, 1);
            self.cpu.note_came(&self.pages.platform, class, -(n as i32));
            self.deposit_freed(class, &mut objects[..n]);
        }
        match pushed {
            Pushed::Done => {}
            Pushed::Twice => self.overflow(object, class, Pushed::Twice),
            Pushed::Full => {
                stats::add(&cache.counts.slow_frees, 1);
                self.deposit_freed(class, &mut [object]);
            }
        }
    }

    /// [`Heap::deposit`] of what a program freed and nobody has looked at since.
    pub(crate) fn deposit_freed(&self, class: usize, objects: &mut [*mut u8]) {
        let cache = &self.table[class];
        // Two threads may count the same batch: then the one after it is checked, or not, in its place.
        let before = cache.counts.batches.load(Relaxed);
        cache.counts.batches.store(before.wrapping_add(1), Relaxed);
        let mut kept = objects.len();
        if invalid_frees::is_due(before) {
            let g = cache.shape.get();
            let wrong = |what, object| self.pages.platform.invalid_free(what, object as usize, g.size as usize);
            kept = invalid_frees::check(&g, objects, wrong);
        }
        self.deposit(class, &objects[..kept]);
    }

    /// Puts objects in the depot; into their slabs if there is no memory for a bucket.
    pub(crate) fn deposit(&self, class: usize, objects: &[*mut u8]) {
        let cache = &self.table[class];
        let g = cache.shape.get();
        self.by_domain(cache, objects, |domain, part| {
            let mut rest = part;
            loop {
                let mut depot = visit_depot(cache, &g, domain, &self.pages.platform);
                let is_full = class <= COUNT && depot.objects >= ENOUGH;
                let done = if is_full { 0 } else { depot.put(rest) };
                drop(depot);
                rest = &rest[done..];
                if rest.is_empty() {
                    break;
                }
                if is_full || !self.supply_shells(&domain.depot) {
                    self.to_slabs(class, rest);
                    break;
                }
            }
            self.pages.events.freed(&self.pages.platform, part.len() * g.size as usize);
        });
    }

    /// Returns objects to their slabs, and slabs that are empty then to their zone.
    pub(crate) fn to_slabs(&self, class: usize, objects: &[*mut u8]) {
        let cache = &self.table[class];
        let g = cache.shape.get();
        for part in objects.chunks(MAX_BATCH) {
            self.by_domain(cache, part, |domain, part| {
                let mut slabs = domain.slabs.lock(&self.pages.platform);
                for &object in part {
                    if let Err(what) = slabs.give(&self.pages.normal, &g, object) {
                        drop(slabs);
                        self.pages.platform.invalid_free(what, object as usize, g.size as usize);
                        slabs = domain.slabs.lock(&self.pages.platform);
                    }
                }
                drop(slabs);
                self.give_empty(cache, domain);
            });
        }
    }

    /// Gives the empty slabs of a domain back to the zone, as far as the cache's reserve lets them go. Objects that
    /// somebody has to take down first wait for that.
    pub(crate) fn give_empty(&self, cache: &Cache, domain: &Domain) {
        let g = cache.shape.get();
        let keep = cache.made.reserve.load(Relaxed);
        loop {
            let mut empty = [Empty::default(); MAX_BATCH];
            let mut n = 0;
            let mut slabs = domain.slabs.lock(&self.pages.platform);
            if cache.made.takes_down() {
                let waiting = slabs.empty > 0 && slabs.free >= usize::from(g.objects) + keep;
                drop(slabs);
                if waiting {
                    self.pages.platform.wake_finalizer();
                }
                return;
            }
            while n < MAX_BATCH
                && let Some(slab) = slabs.take_empty(&self.pages.normal, &g, keep)
            {
                empty[n] = slab;
                n += 1;
            }
            drop(slabs);
            empty[..n].iter().for_each(|&slab| self.give_slab(&g, slab));
            if n < MAX_BATCH {
                return;
            }
        }
    }

    /// Gives an empty slab's pages back to the zone.
    pub(crate) fn give_slab(&self, g: &Geometry, slab: Empty) {
        let pages = usize::from(g.pages);
        self.pages.normal.set_class(slab.page, pages, NOTHING);
        self.pages.give(ZoneKind::Normal, slab.page, pages, slab.reported);
    }

    /// Object size of cache `class`, bytes.
    pub(crate) fn size_of(&self, class: usize) -> usize {
        self.table[class].shape.get().size as usize
    }
}
