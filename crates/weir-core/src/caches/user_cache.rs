//! User caches, as UMA's `uma_zcreate` makes them: of objects of one size. A cache may say what is done to each object when its
//! slab comes ([`spec::Init`]) and goes ([`finalizers`]), or how one [moves](move_callback).
//!
//! [`crate::heap::user_caches::UserCaches::destroy`] ends the life of a cache's number ([`super::cache::life`]), empties the
//! CPUs' buckets and the depots, and gives the slabs back. If objects are still out, the cache is live again, and nothing has
//! happened.

mod alloc;
pub(crate) mod finalizers;
pub(crate) mod move_callback;
mod moves;
pub(crate) mod spec;

use core::sync::atomic::Ordering::Relaxed;

use crate::base::class_set::ClassSet;
use crate::base::size_class::COUNT;
use crate::base::units::{Class, PAGE};
use crate::caches::cache::Cache;
use crate::caches::geometry::FIRST_USER;
use crate::caches::geometry::{BUCKETED, Geometry, MAX_BATCH, MAX_OBJECT, MIN_OBJECT, class_of_number};
use crate::caches::heap_caches::Caches;
use crate::caches::slab::lists::SlabLists;
use crate::pages::window::LARGE;
use crate::platform::Platform;

pub use move_callback::Move;
pub use spec::{COUNTED, Fini, Flags, Init, LimitError, MakeError, Spec};

/// A cache was not destroyed: so many of its objects are still out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy(pub usize);

impl core::fmt::Display for Busy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} objects of the cache are in use", self.0)
    }
}

impl core::error::Error for Busy {}

/// A user cache. A number, and no more: after the cache is destroyed the number must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheId(u32);

impl CacheId {
    /// The cache's number, as statistics show it.
    #[inline(always)]
    pub fn number(self) -> usize {
        self.0 as usize
    }

    /// The bucket that CPUs have for it: one that is empty and full at once, if the cache has none.
    #[inline(always)]
    pub(crate) fn class(self) -> Class {
        class_of_number(self.number())
    }
}

impl<P: Platform> Caches<P> {
    /// Makes a cache. O(numbers with buckets).
    pub(crate) fn make(&self, spec: &Spec<'_>) -> Result<CacheId, MakeError> {
        if !spec.align.is_power_of_two() || spec.align > PAGE {
            return Err(MakeError::Align);
        }
        if spec.size == 0 || spec.size > MAX_OBJECT {
            return Err(MakeError::Size);
        }
        let size = spec.size.max(MIN_OBJECT).next_multiple_of(spec.align.max(8));
        let number = self.table.take_number(&self.pages.platform).ok_or(MakeError::NoMemory)?;
        let cache = self.table.get(number);
        let geometry_of = if spec.init.is_some() { Geometry::of_initialised } else { Geometry::new };
        let geometry = geometry_of(number, size);
        cache.shape.set(geometry);
        cache.tuning.reset(&geometry);
        cache.counts.reset();
        cache.user.set(spec);
        cache.moves.reset();
        let now = self.pages.events.clock();
        cache.domains().for_each(|domain| domain.depot.lock(&self.pages.platform).reset(now));
        self.cpu.forget(geometry.class());
        cache.user.frees_before.store(self.cpu.pushes_of(geometry.class()), Relaxed);
        cache.life.begin();
        Ok(CacheId(number as u32))
    }

    /// Destroys a cache all of whose objects are back, and gives its number back. Waits for reclaim and for finalizers that work
    /// on some of them.
    ///
    /// # Safety
    /// The cache is not used meanwhile, nor afterwards if this succeeds.
    pub(crate) unsafe fn destroy(&self, id: CacheId) -> Result<(), Busy> {
        let (number, cache) = (id.number(), self.table.get(id.number()));
        if !cache.life.end(&self.pages) {
            return Ok(());
        }
        let reserve = cache.user.reserve.swap(0, Relaxed);
        self.empty_buckets(number);
        let out = self.objects_out(cache);
        if out > 0 {
            cache.user.reserve.store(reserve, Relaxed);
            cache.life.begin();
            return Err(Busy(out));
        }
        for domain in cache.domains() {
            while let Some(slab) = self.next_empty(cache, domain) {
                self.finalize_slab(cache, slab);
            }
            let spare = domain.depot.lock(&self.pages.platform).take_spare();
            self.give_shells(spare);
        }
        self.table.give_number(&self.pages.platform, number);
        Ok(())
    }

    /// Puts all objects in buckets and depots of a cache that reclaim does not look at into their slabs.
    fn empty_buckets(&self, number: usize) {
        let mut batch = [core::ptr::null_mut(); MAX_BATCH];
        let mut n = 0;
        let to_slabs = |_, object| {
            batch[n] = object;
            n += 1;
            if n == MAX_BATCH {
                self.to_slabs(number, &batch);
                n = 0;
            }
        };
        if number < BUCKETED {
            let class = class_of_number(number);
            let set = ClassSet::from_iter([class]);
            self.cpu.drain(&self.pages.platform, set, class, |_| 0, false, to_slabs);
        }
        self.to_slabs(number, &batch[..n]);
        for domain in self.table.get(number).domains() {
            loop {
                let n = domain.depot.lock(&self.pages.platform).reclaim(&mut batch);
                if n == 0 {
                    break;
                }
                self.to_slabs(number, &batch[..n]);
            }
        }
    }

    /// Objects of a cache that are in no slab.
    pub(crate) fn objects_out(&self, cache: &Cache) -> usize {
        let objects = usize::from(cache.shape.get().objects);
        let out = |slabs: &SlabLists| slabs.slabs * objects - slabs.free;
        cache.domains().map(|domain| out(&domain.slabs.lock(&self.pages.platform))).sum()
    }

    /// Whether a cache has a finalizer or a move callback.
    pub(crate) fn has_callbacks(&self, id: CacheId) -> bool {
        let cache = self.table.get(id.number());
        cache.user.has_finalizer() || cache.moves.is_there()
    }

    /// In a forked child, which has one thread: ends what the parent's other threads had begun.
    pub(crate) fn inherit(&self) {
        self.cpu.finish_installs(&self.pages.platform);
        self.table.iter().for_each(|cache| cache.life.inherit());
    }

    // ---- which caches there are --------------------------------------------------------------------------------

    /// The numbers of the caches that reclaim may look at: malloc's and live ones. Run classes have neither depots nor slabs for
    /// it to look at, and what describes them is not touched where a program has no runs. Unless a batch lock is held, another
    /// thread may destroy one that was found: before a cache is changed, [`Caches::is_reclaimable`] is called under one.
    pub(crate) fn reclaimable(&self) -> impl Iterator<Item = usize> {
        self.table.numbers().filter(|&number| self.is_reclaimable(number))
    }

    /// [`Caches::reclaimable`], beginning with the one that is `turn`th, counted round and round.
    pub(crate) fn reclaimable_from(&self, turn: usize) -> impl Iterator<Item = usize> {
        let first = turn % self.reclaimable().count().max(1);
        self.reclaimable().skip(first).chain(self.reclaimable().take(first))
    }

    /// Whether reclaim may look at cache `number` now; so it stays while a batch lock is held.
    pub(crate) fn is_reclaimable(&self, number: usize) -> bool {
        let cache = self.table.get(number);
        number <= COUNT || number >= FIRST_USER && cache.is_live() && !cache.user.is_exempt()
    }

    /// The user cache that has `addr` in one of its slabs: at an object's start or anywhere else. `None` for all other
    /// addresses. O(1), or O(pages of a slab) for a cache without buckets.
    pub(crate) fn cache_at(&self, addr: usize) -> Option<CacheId> {
        let page = self.pages.normal.page_of(addr)?;
        let class = self.pages.normal.class_of(page);
        let number = if class == LARGE { None } else { self.number_of(class, page) };
        number.filter(|&number| number >= FIRST_USER).map(|number| CacheId(number as u32))
    }
}
