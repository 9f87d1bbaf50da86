//! The parts of a cache along a zone list: entries in the list's first zone, and those on the heap. Where one of the two is
//! short, entries of that part go.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use weir_core::base::zone_class::ZoneClass;

use super::closure::Closure;
use super::entry::header::{Content, Header};
use super::entry::place::Place;
use super::host::Zone;
use super::options::InZone;

/// A part of a cache's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of them.
    All,
    /// Entries in the first zone of the cache's list.
    InZone,
    /// Entries on the heap.
    OnHeap,
}

/// The first zone of a cache's list, if there is one, and how much lies in it.
pub struct Zoned<C: Content> {
    zone: Option<&'static Zone>,
    /// Says which values lie in the zone; where there is none, entries' blocks do.
    is_in_zone: Option<Closure<InZone<C>>>,
    /// The weight of the entries in the zone.
    bytes: AtomicUsize,
}

impl<C: Content> Zoned<C> {
    /// The list of a cache whose entries have this place, and of whose values some may lie in a zone. What lies in private or
    /// shared memory is as elastic as the heap, and no part of its own.
    pub fn new(place: Place, values: Option<(&'static Zone, Option<Closure<InZone<C>>>)>) -> Self {
        let (zone, is_in_zone) = match (place, values) {
            (Place::First(zone), _) => (Some(zone), None),
            (_, Some((zone, is_in_zone))) => (Some(zone), is_in_zone),
            _ => (None, None),
        };
        let zone = zone.filter(|zone| zone.class() != ZoneClass::Normal);
        Self { zone, is_in_zone, bytes: AtomicUsize::new(0) }
    }

    /// The first zone of the list.
    pub fn zone(&self) -> Option<&'static Zone> {
        self.zone
    }

    /// The weight of the entries in the zone.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Whether an entry of the cache is of a part.
    #[inline]
    pub fn is_of(&self, entry: &Header, part: Part) -> bool {
        part == Part::All || (part == Part::InZone) == entry.is_in_zone()
    }

    /// Counts an entry that came into the cache.
    #[inline]
    pub fn count_in(&self, entry: &Header) {
        if entry.is_in_zone() {
            self.bytes.fetch_add(entry.weight(), Relaxed);
        }
    }

    /// Counts an entry that left the cache.
    #[inline]
    pub fn count_out(&self, entry: &Header) {
        if entry.is_in_zone() {
            self.bytes.fetch_sub(entry.weight(), Relaxed);
        }
    }

    /// The zone's entries are another process's from now on.
    #[cfg(not(plain))]
    pub fn forget(&self) {
        super::host::note_foreign_entries();
        self.bytes.store(0, Relaxed);
    }

    /// Whether an entry's memory lies in the zone. It is asked once, before the entry is in the cache, as the program's code says it:
    /// under no lock.
    ///
    /// # Safety
    /// The entry is valid, and has key and value.
    pub unsafe fn is_in_zone(&self, entry: NonNull<Header>) -> bool {
        let Some(zone) = self.zone else { return false };
        match &self.is_in_zone {
            // SAFETY: the caller's promise.
            Some(is_in_zone) => unsafe { is_in_zone(C::key(entry), C::value(entry)) },
            None => zone.contains(entry.addr().get()),
        }
    }
}
