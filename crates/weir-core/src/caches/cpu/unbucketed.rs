//! Caches without per-CPU buckets: user caches beyond the numbers that a CPU's slab has a bucket for. Their objects go
//! one by one between the program and the depot, under its lock.

use crate::base::invalid_free::InvalidFree;
use crate::base::units::{Bytes, Class, PageNo};
use crate::caches::cache::domain_access::visit_depot;
use crate::caches::geometry::{BUCKETED, UNBUCKETED};
use crate::caches::heap_caches::Caches;
use crate::caches::slab;
use crate::pages::Short;
use crate::pages::window::NOTHING;
use crate::platform::Platform;
use crate::platform::cpu_table::Pushed;
use crate::telemetry::stats;

impl<P: Platform> Caches<P> {
    /// The number of the cache that `page`, which is of `class`, belongs to, if it is a slab's.
    #[inline]
    pub(crate) fn number_of(&self, class: Class, page: PageNo) -> Option<usize> {
        match class.index() {
            number if number < BUCKETED => (class != NOTHING).then_some(number),
            _ => self.number_in_header(page),
        }
    }

    /// The number of the cache that a block belongs to whose page is of `class`. `None`: its slab has gone.
    pub(crate) fn number_of_block(&self, class: Class, block: *mut u8) -> Option<usize> {
        if class.index() < BUCKETED {
            return Some(class.index());
        }
        self.number_of(class, self.pages.normal.page_of(block as usize)?)
    }

    /// The number that the header of the slab holds which `page` is of. `None`: it is of no slab of a cache without
    /// buckets.
    #[cold]
    fn number_in_header(&self, page: PageNo) -> Option<usize> {
        let number = slab::number_in_header(&self.pages.normal, page)?;
        // Where the page's slab goes meanwhile, which an invalid free alone can see, the word may be anything.
        (number >= UNBUCKETED && self.table.contains(number)).then_some(number)
    }

    /// Whether `page` is of a slab of cache `number`, one without buckets.
    #[cold]
    #[inline(never)]
    pub(in crate::caches) fn is_of_unbucketed(&self, page: PageNo, number: usize) -> bool {
        number >= UNBUCKETED && self.number_in_header(page) == Some(number)
    }

    /// An object of cache `number`; null where its `init` failed.
    pub(super) fn refill_unbucketed(&self, number: usize) -> Result<*mut u8, Short> {
        let mut object = [core::ptr::null_mut()];
        if self.fetch(number, &mut object)? == 0 {
            self.note_failures(number, 1);
        }
        Ok(object[0])
    }

    /// A free of an object of cache `number`. It is compared with the one that was freed last, as a bucket does.
    pub(super) fn free_unbucketed(&self, number: usize, object: *mut u8) {
        let (cache, platform) = (self.table.get(number), &self.pages.platform);
        let (g, addr) = (cache.shape.get(), object as usize);
        stats::add(&platform.stats().free_misses, 1);
        if !g.begins_object(addr) {
            return platform.invalid_free(InvalidFree::InteriorPointer, addr, g.size as usize);
        }
        if platform.checks_all() {
            stats::add(&cache.counts.slow_frees, 1);
            return self.flush_freed(number, &mut [object]);
        }
        let mut depot = visit_depot(cache, &g, self.domain_of_object(cache, object), platform);
        let pushed = match depot.top() {
            Some(top) if top == object => Pushed::Twice,
            _ if depot.put(&[object]) == 1 => Pushed::Done,
            _ => Pushed::Full,
        };
        drop(depot);
        if pushed == Pushed::Twice {
            return platform.invalid_free(InvalidFree::DoubleFree, addr, g.size as usize);
        }
        stats::add(&cache.counts.slow_frees, 1);
        match pushed {
            // There is no shell for a bucket: the way that finds one, or goes to the slabs.
            Pushed::Full => self.flush(number, &[object]),
            _ => self.pages.events.freed(platform, Bytes(g.size as usize)),
        }
    }
}
