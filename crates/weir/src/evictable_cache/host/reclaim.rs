//! Where caches meet reclaim: they are registered as what can be made smaller, each part of them for its class of zones.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_core::base::zone_class::ZoneClass;
use weir_core::platform::Clock;
use weir_linux::os::catch::catch_closure;
use weir_linux::platform::other_malloc;
use weir_linux::process::callbacks::{
    self, Callback, CallbackSpec, Class, Panicked, Prices, Registration, STOP, ScanReason, Thread,
};
use weir_linux::process::evictable_list;
use weir_linux::process::heap::HEAP;

use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::place::Place;
use crate::evictable_cache::entry::victims::Victims;
use crate::evictable_cache::parts::Part;
use crate::evictable_cache::shared::Shared;
use crate::heap;
use crate::zone::Zone;

/// A part of a cache as the registry calls it.
struct Registered<C: Content> {
    cache: NonNull<Shared<C>>,
    part: Part,
    /// The listener panicked in this run, or the drop of a key or value.
    panicked: AtomicBool,
}

// SAFETY: a shared reference to the cache, which is `Sync`, is all that is used of it.
unsafe impl<C: Content> Send for Registered<C> {}
// SAFETY: shared references to this give shared references to the cache, which is `Sync`.
unsafe impl<C: Content> Sync for Registered<C> {}

impl<C: Content> Registered<C> {
    fn new(cache: NonNull<Shared<C>>, part: Part) -> Self {
        Self { cache, part, panicked: AtomicBool::new(false) }
    }

    fn cache(&self) -> &Shared<C> {
        // SAFETY: `register` has the caller's promise that the cache is there until the registration is ended, which waits
        // for a call that is under way.
        unsafe { self.cache.as_ref() }
    }

    /// Bytes of the part that could be freed now. Threads that are none of libc's ask too.
    fn freeable(&self) -> usize {
        let (room, in_zone) = (&self.cache().room, self.cache().zoned.bytes());
        let bytes = room.bytes.load(Relaxed);
        let least = room.least_at(|| HEAP.platform().now().0);
        let of_part = match self.part {
            Part::All => bytes,
            Part::InZone => in_zone,
            Part::OnHeap => bytes.saturating_sub(in_zone),
        };
        bytes.saturating_sub(least).min(of_part)
    }

    /// Calls code of the program's, which may panic. That is reported at the end of the run.
    fn guarded<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let result = catch_closure(f).ok();
        if result.is_none() {
            self.panicked.store(true, Relaxed);
        }
        result
    }
}

impl<C: Content> Callback for Registered<C> {
    fn count(&self) -> Result<usize, Panicked> {
        Ok(self.freeable())
    }

    fn scan(&self, bytes: usize, _: ScanReason) -> Result<usize, Panicked> {
        // The run goes on after a panic: with a listener that panics each time 16 entries would else go in each run. The listener
        // is told no more in it: Rust prints a whole backtrace at each further panic of a thread.
        let end = |victims: Victims<'_, C>| {
            let is_told = !self.panicked.load(Relaxed);
            self.guarded(|| if is_told { victims.tell_and_drop() } else { drop(victims) });
        };
        let freed = self.guarded(|| self.cache().evict(bytes, self.part, end)).unwrap_or(0);
        if self.part != Part::InZone {
            // Of what nothing weighs each fourth batch is worth a trim.
            self.cache().count_evicted(freed, other_malloc::WORTH / 4);
        }
        // All that is left is pinned: the batches of this run that are left would search in vain.
        Ok(if freed == 0 { STOP } else { freed })
    }

    /// What goes of the part in the zone is not on the cost curve.
    fn prices(&self) -> Option<(&Prices, usize)> {
        (self.part != Part::InZone).then(|| (&self.cache().membership.node.prices, self.freeable()))
    }

    fn scanned(&self) -> Result<(), Panicked> {
        other_malloc::settle();
        if self.panicked.swap(false, Relaxed) { Err(Panicked) } else { Ok(()) }
    }

    fn relieved(&self) -> Result<(), Panicked> {
        self.cache().relieved();
        Ok(())
    }
}

/// Makes a cache known to the process. Returns false if there is no memory or no thread for that.
///
/// # Safety
/// The cache is new, and stays where it is until [`leave`].
pub unsafe fn enter<C: Content>(cache: NonNull<Shared<C>>) -> bool {
    // SAFETY: the caller's cache; its registrations are this function's and `stop`'s.
    let (node, registrations) = unsafe {
        let membership = &cache.as_ref().membership;
        (NonNull::from(&membership.node), &mut *membership.registrations.get())
    };
    // SAFETY: the caller's cache.
    if unsafe { cache.as_ref() }.frees_more_than_it_weighs() {
        other_malloc::note_owner(true);
    }
    // SAFETY: the cache stays where it is until `leave` takes it off the list.
    unsafe {
        evictable_list::add(HEAP.platform(), node);
        register(cache, registrations)
    }
}

/// Ends what reclaim does with a cache; waits for a call that is under way.
///
/// # Safety
/// Called once, behind [`enter`].
pub unsafe fn stop<C: Content>(cache: &Shared<C>) {
    // SAFETY: the registrations are this function's: nothing else reads them after `enter`.
    let registrations = unsafe { core::mem::take(&mut *cache.membership.registrations.get()) };
    registrations.into_iter().flatten().for_each(Registration::unregister);
}

/// Ends that the process knows a cache.
///
/// # Safety
/// Called once, behind [`stop`].
pub unsafe fn leave<C: Content>(cache: &Shared<C>) {
    // SAFETY: `enter` added it.
    unsafe { evictable_list::remove(HEAP.platform(), NonNull::from(&cache.membership.node)) };
    if cache.frees_more_than_it_weighs() {
        other_malloc::note_owner(false);
    }
}

/// Makes a cache known to reclaim, for each class of zones that it has memory of. Returns false if there is no memory or no
/// thread for that.
///
/// # Safety
/// The cache stays where it is until the registrations are ended.
unsafe fn register<C: Content>(cache: NonNull<Shared<C>>, registrations: &mut [Option<Registration>; 2]) -> bool {
    heap::note_program_allocator();
    // SAFETY: the caller's cache.
    let shared = unsafe { cache.as_ref() };
    let (normal, in_zone) = ((ZoneClass::Normal, 0), |zone: &Zone| (zone.class(), zone.number()));
    let parts = match (shared.zoned.zone(), shared.place) {
        (Some(zone), _) => [Some((in_zone(zone), Part::InZone)), Some((normal, Part::OnHeap))],
        // What is resident below 4 GiB counts against the budget, which is NORMAL's.
        (None, Place::Low32) => [Some(((ZoneClass::Low32, 0), Part::All)), Some((normal, Part::All))],
        // What its values own lies on the heap.
        (None, Place::Zone(zone)) => [Some((in_zone(zone), Part::All)), C::OWNS_MEMORY.then_some((normal, Part::All))],
        (None, _) => [Some((normal, Part::All)), None],
    };
    registrations.iter_mut().zip(parts).all(|(registration, part)| {
        let Some(((zone, zone_number), part)) = part else { return true };
        let name = shared.name.bytes();
        let spec = CallbackSpec { name, class: Class::Cache, zone, zone_number, ..CallbackSpec::default() };
        *registration = callbacks::register(&spec, Registered::new(cache, part), Thread::Shared).ok();
        registration.is_some()
    })
}

impl<C: Content> Shared<C> {
    /// Whether an eviction may free more than what went weighs.
    fn frees_more_than_it_weighs(&self) -> bool {
        C::OWNS_MEMORY || self.weigher.is_some() || self.listener.is_some()
    }

    /// Evicts as the program asks for it, on a thread of the program's. Its allocator is told to release what is free, as under
    /// pressure.
    pub fn evict_for_program(&self, bytes: usize) -> usize {
        let freed = self.evict(bytes, Part::All, Victims::tell_and_drop);
        self.count_evicted(freed, other_malloc::WORTH);
        if C::OWNS_MEMORY {
            other_malloc::settle();
        }
        freed
    }

    /// Counts what evicted keys and values owned. That lies where the program allocates, and what nothing weighs may be any number
    /// of bytes: `unweighed` at least.
    fn count_evicted(&self, freed: usize, unweighed: usize) {
        if C::OWNS_MEMORY && freed > 0 {
            other_malloc::evict(freed.max(if self.weigher.is_some() { 0 } else { unweighed }));
        }
    }

    /// Says whether write-back lags behind what is to be reclaimed of the zones that the cache has memory of.
    pub fn set_congested(&self, is_congested: bool) {
        let zone = self.zoned.zone().map_or(self.place.class(), Zone::class);
        for zone in [ZoneClass::Normal, zone] {
            HEAP.set_congested(zone, is_congested);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expiry;
    use crate::evictable_cache::api::byte_cache::ByteCache;
    use crate::zone::BLOCK;
    use core::sync::atomic::AtomicU64;
    use core::time::Duration;

    #[test]
    fn a_scan_stops_the_run_where_nothing_can_go() {
        let cache = ByteCache::builder().build().unwrap();
        let registered = Registered::new(NonNull::from(&*cache.shared), Part::All);
        let pinned = cache.insert(b"key", b"value").unwrap();
        assert_eq!(registered.scan(1, ScanReason::Mild), Ok(STOP));
        let weight = pinned.weight();
        drop(pinned);
        assert_eq!(registered.scan(1, ScanReason::Mild), Ok(weight));
        assert_eq!(registered.scan(1, ScanReason::Mild), Ok(STOP));
    }

    #[test]
    fn what_is_over_in_the_other_part_frees_nothing_where_memory_is_short() {
        static SECONDS: AtomicU64 = AtomicU64::new(0);
        let Ok(zone) = Zone::locked(BLOCK) else { return weir_testing::skip!("2 MiB cannot be locked") };
        let is_locked = |key: &[u8]| key == b"locked";
        let builder = ByteCache::builder().shards(1).values_in(Box::leak(Box::new(zone)), move |key, _| is_locked(key));
        let live = move |key: &[u8]| (!is_locked(key)).then_some(Duration::from_secs(1));
        let builder = builder.expire_after(move |key, _| Expiry { live: live(key), idle: None });
        let cache = builder.clock(|| Duration::from_secs(SECONDS.load(Relaxed))).build().unwrap();
        let [weight, _] = [b"locked", b"mortal"].map(|key| cache.insert(key, b"value").unwrap().weight());
        SECONDS.store(1, Relaxed);
        let registered = Registered::new(NonNull::from(&*cache.shared), Part::InZone);
        assert_eq!((registered.scan(weight, ScanReason::Mild), cache.contains(b"locked")), (Ok(weight), false));
        registered.relieved().unwrap();
    }
}
