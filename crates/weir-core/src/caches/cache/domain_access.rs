//! Which domain of a cache an object is of, and a visit to a domain's depot. An object is put back in the domain that it is from.
//! On one node that costs one look at the number of nodes, and of a cache that was used on the first node alone one at its domains.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::base::run::Run;
use crate::base::size_class::COUNT;
use crate::base::units::{Order, PageNo};
use crate::caches::cache::Cache;
use crate::caches::cache::domain::{Domain, domain_bytes, unavailable};
use crate::caches::depot::Depot;
use crate::caches::geometry::{Geometry, MAX_BATCH};
use crate::caches::heap_caches::Caches;
use crate::caches::slab::pieces::bits;
use crate::platform::Platform;
use crate::platform::lock::Guard;
use crate::platform::rank;

/// Takes a depot's lock for a visit, which is counted, and counted for more if another thread held it.
pub(in crate::caches) fn visit_depot<'a, P: Platform>(
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
    /// The domain of `node`.
    pub(in crate::caches) fn domain<'a>(&'a self, cache: &'a Cache, node: usize) -> &'a Domain {
        let domains = &cache.domains;
        if node == 0 {
            return &domains.home;
        }
        let mut more = domains.more.load(Acquire);
        if more.is_null() {
            more = self.map_domains(cache);
        }
        if more == unavailable() {
            return &domains.home;
        }
        // SAFETY: one domain for each node but the first was initialised before `more` was stored. `node` is one of
        // these nodes, whose number is fixed once there is a second. The domains are never unmapped.
        unsafe { &*more.add(node - 1) }
    }

    #[cold]
    fn map_domains(&self, cache: &Cache) -> *mut Domain {
        let (platform, domains) = (&self.pages.platform, &cache.domains);
        let count = self.pages.nodes.count() - 1;
        let (ours, own) = self.domain_memory(cache, count);
        // Not while a fork holds the locks of all domains: those that came meanwhile would be released unlocked.
        let table = self.table.lock(platform);
        let theirs = domains.more.load(Acquire);
        if !theirs.is_null() {
            // A thread that was quicker decided for all: slabs may be in its domains already.
            drop(table);
            own.into_iter().for_each(|run| platform.unmap(run));
            return theirs;
        }
        if ours != unavailable() {
            for i in 0..count {
                // SAFETY: the memory is page-aligned, mapped for good, and long enough for `count` domains of this cache. No other
                // thread uses them before `more` is stored, which happens once, under the table's lock.
                unsafe { ours.add(i).write(Domain::new()) };
            }
        }
        domains.more_count.store(count as u32, Relaxed);
        domains.more.store(ours, Release);
        ours
    }

    /// Memory for `count` domains of a cache, or [`unavailable`]; and the mapping, if it has one of its own.
    fn domain_memory(&self, cache: &Cache, count: usize) -> (*mut Domain, Option<Run>) {
        let number = cache.shape.get().number as usize;
        let is_of_malloc = (1..=COUNT).contains(&number);
        let own = if is_of_malloc { None } else { self.map_run(domain_bytes(count)) };
        let place = if is_of_malloc { (number - 1) * count } else { 0 };
        let run = if is_of_malloc { self.malloc_domains(count) } else { own };
        (run.map_or(unavailable(), |run| (run.addr as *mut Domain).wrapping_add(place)), own)
    }

    /// Memory for the domains of all of malloc's classes, `count` of each. They share it, as a page has room for those of several.
    fn malloc_domains(&self, count: usize) -> Option<Run> {
        let len = domain_bytes(count * COUNT);
        let there = self.malloc_domains.load(Acquire);
        if there > 0 {
            return Some(Run { addr: there, len });
        }
        let run = self.map_run(len)?;
        match self.malloc_domains.compare_exchange(0, run.addr, AcqRel, Acquire) {
            Ok(_) => Some(run),
            Err(addr) => {
                self.pages.platform.unmap(run);
                Some(Run { addr, len })
            }
        }
    }

    fn map_run(&self, len: usize) -> Option<Run> {
        self.pages.platform.map_metadata(len, Order::PAGE).ok().map(|addr| Run { addr, len })
    }

    /// Memory of the further nodes' domains, as far as it may be resident.
    pub(in crate::caches) fn domain_runs(&self) -> impl Iterator<Item = Run> {
        let addr = self.malloc_domains.load(Acquire);
        let of_malloc = (addr > 0).then(|| Run { addr, len: domain_bytes((self.pages.nodes.count() - 1) * COUNT) });
        let others = self.table.numbers_after(COUNT).filter_map(|number| self.table.get(number).domains.more_run());
        of_malloc.into_iter().chain(others)
    }

    /// The domain that the slab with `page` is of.
    pub(crate) fn domain_of<'a>(&'a self, cache: &'a Cache, page: PageNo) -> &'a Domain {
        if self.pages.nodes.count() == 1 {
            return &cache.domains.home;
        }
        self.domain(cache, self.pages.normal.node_of(page))
    }

    /// The domain that `object` is of; the first one's for what is no object.
    pub(in crate::caches) fn domain_of_object<'a>(&'a self, cache: &'a Cache, object: *mut u8) -> &'a Domain {
        let page = if self.is_on_one_node(cache) { None } else { self.pages.normal.page_of(object as usize) };
        page.map_or(&cache.domains.home, |page| self.domain_of(cache, page))
    }

    /// Whether all objects of the cache that a caller can have are of the first node's domain. One of another node's was allocated
    /// after that node's domain was mapped, and came to the caller after that.
    fn is_on_one_node(&self, cache: &Cache) -> bool {
        self.pages.nodes.count() == 1 || cache.domains.more.load(Acquire).is_null()
    }

    /// Calls `f` with the objects of each domain, in their order: once for a domain and at most [`MAX_BATCH`] objects, however
    /// these are mixed.
    pub(in crate::caches) fn by_domain<'a>(
        &'a self,
        cache: &'a Cache,
        objects: &[*mut u8],
        mut f: impl FnMut(&'a Domain, &[*mut u8]),
    ) {
        if !objects.is_empty() && self.is_on_one_node(cache) {
            return f(&cache.domains.home, objects);
        }
        objects.chunks(MAX_BATCH).for_each(|batch| self.sort_by_domain(cache, batch, &mut f));
    }

    /// Not inlined: on one node its array takes nothing of the stack, which may be small.
    #[inline(never)]
    fn sort_by_domain<'a>(&'a self, cache: &'a Cache, batch: &[*mut u8], f: &mut impl FnMut(&'a Domain, &[*mut u8])) {
        // Bit i: object i is still to be given to `f`.
        let mut rest = u64::MAX >> (MAX_BATCH - batch.len());
        while rest != 0 {
            let domain = self.domain_of_object(cache, batch[rest.trailing_zeros() as usize]);
            let (mut of_domain, mut n) = ([core::ptr::null_mut(); MAX_BATCH], 0);
            for i in bits(rest) {
                if core::ptr::eq(self.domain_of_object(cache, batch[i]), domain) {
                    of_domain[n] = batch[i];
                    n += 1;
                    rest &= !(1 << i);
                }
            }
            f(domain, &of_domain[..n]);
        }
    }
}
