//! How a cache is to be: what builders gather.

use weir_core::evict::replacement::favour::Favour;
use weir_core::telemetry::name::Name;

use super::api::stats::RemovalCause;
use super::closure::Closure;
use super::entry::header::Content;
use super::entry::place::Place;
use super::eviction::expiry::Ages;
use super::host::Zone;

/// A closure that is told of entries that leave.
pub type Listener<C> = dyn Fn(&<C as Content>::Key, &<C as Content>::Value, RemovalCause) + Send + Sync;
/// A closure that weighs entries.
pub type Weigher<C> = dyn Fn(&<C as Content>::Key, &<C as Content>::Value) -> usize + Send + Sync;

/// A closure that knows whether an entry's memory lies in a zone.
pub type InZone<C> = dyn Fn(&<C as Content>::Key, &<C as Content>::Value) -> bool + Send + Sync;

/// How a cache is to be.
pub struct Options<C: Content> {
    pub name: Name,
    pub min: usize,
    pub max: usize,
    pub favour: Favour,
    /// Time of a miss where none is timed, ns; 0: not known.
    pub miss_ns: u64,
    /// 0: by CPUs and size.
    pub shards: usize,
    pub place: Place,
    /// A zone in which the memory of some values lies.
    pub values: Option<(&'static Zone, Option<Closure<InZone<C>>>)>,
    pub ages: Ages<C>,
    pub weigher: Option<Closure<Weigher<C>>>,
    /// Entries own memory that nothing weighs: there has to be a bound.
    pub needs_bound: bool,
    pub listener: Option<Closure<Listener<C>>>,
    /// There was no memory for a closure.
    pub is_short: bool,
}

impl<C: Content> Options<C> {
    /// On the heap, without a bound.
    pub const fn new() -> Self {
        Self {
            name: Name::EMPTY,
            min: 0,
            max: usize::MAX,
            favour: Favour::Entries,
            miss_ns: 0,
            shards: 0,
            place: Place::Heap,
            values: None,
            ages: Ages::new(),
            weigher: None,
            needs_bound: false,
            listener: None,
            is_short: false,
        }
    }

    /// A closure of the program's on Weir's heap, if there is memory for it; `as_object` only makes a trait object of the
    /// pointer.
    pub fn keep<F, T: ?Sized>(&mut self, f: F, as_object: fn(*mut F) -> *mut T) -> Option<Closure<T>> {
        let kept = Closure::new(f, as_object);
        self.is_short |= kept.is_none();
        kept
    }
}
