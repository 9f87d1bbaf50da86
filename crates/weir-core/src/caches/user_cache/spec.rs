//! Description that a user cache is made from, and why one cannot be made or set.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize};

use crate::base::units::PAGE;
use crate::caches::geometry::{MAX_OBJECT, MIN_OBJECT};
use crate::telemetry::name::{NAME_WORDS, Name};

/// Brings an object of a new slab into its constructed state: `object`, its size, the cache's data. `false`: it cannot.
/// It may unwind: then the slab goes back, and so far as it was initialised it is finalized before.
pub type Init = unsafe extern "C-unwind" fn(*mut u8, usize, *mut u8) -> bool;
/// The finalizer: undoes [`Init`] before the slab goes back. It may not unwind: the thread that calls it has no caller
/// to pass a panic to.
pub type Fini = unsafe extern "C" fn(*mut u8, usize, *mut u8);

/// A limit that stops nothing, of a cache whose objects are counted all the same, so that it can have another later.
pub const COUNTED: usize = usize::MAX - 1;

/// Traits of a cache beyond handing out objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Objects are zero when they are handed out.
    pub zero: bool,
    /// No trim, drain or pressure touches the cache.
    pub no_reclaim: bool,
    /// No object of the cache is copied for [merging](crate::merge), as it holds secrets.
    pub no_merge: bool,
}

/// Specification of a new cache.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// Name in statistics; cut at 31 bytes.
    pub name: &'a [u8],
    /// Object size, bytes: 1 to [`MAX_OBJECT`]; rounded up to the alignment, and to 16.
    pub size: usize,
    /// Alignment of objects, a power of two up to a page; at least 8.
    pub align: usize,
    /// Traits of the cache.
    pub flags: Flags,
    /// For each object of a new slab.
    pub init: Option<Init>,
    /// For each object before its slab goes back.
    pub fini: Option<Fini>,
    /// The last argument of both.
    pub data: *mut u8,
    /// Objects that may be out at a time; `usize::MAX`: any number; [`COUNTED`]. What it costs each call is an atomic
    /// addition, or with a limit that stops something a compare-and-swap.
    pub limit: usize,
}

impl Default for Spec<'_> {
    fn default() -> Self {
        Self {
            name: b"",
            size: MIN_OBJECT,
            align: 8,
            flags: Flags::default(),
            init: None,
            fini: None,
            data: core::ptr::null_mut(),
            limit: usize::MAX,
        }
    }
}

/// Why a cache could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeError {
    /// The object size is 0 or above [`MAX_OBJECT`].
    Size,
    /// The alignment is not a power of two, or above a page.
    Align,
    /// There is no memory for what goes with it.
    NoMemory,
}

impl core::fmt::Display for MakeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Size => write!(f, "an object of a cache has 1 to {MAX_OBJECT} bytes"),
            Self::Align => write!(f, "the alignment of a cache is a power of two up to {PAGE}"),
            Self::NoMemory => f.write_str("there is no memory for the cache"),
        }
    }
}

impl core::error::Error for MakeError {}

/// A setting of a cache was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// The cache was made without a limit: its objects are not counted.
    Uncounted,
    /// There is no memory for the reserve, which is what it was.
    NoMemory,
}

impl core::fmt::Display for LimitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Uncounted => "the cache was made without a limit, so its objects are not counted",
            Self::NoMemory => "there is no memory for the reserve",
        })
    }
}

impl core::error::Error for LimitError {}

// What a user cache has beyond what malloc's caches have: traits, limit, reserve, name, and the functions for its objects.

/// Bits of [`UserPart::traits`].
pub(crate) const LIMITED: u8 = 1;
pub(crate) const ZERO: u8 = 2;
const NO_RECLAIM: u8 = 4;
const NO_MERGE: u8 = 8;

/// The part of a cache that only a user cache uses.
pub(crate) struct UserPart {
    pub traits: AtomicU8,
    /// Free objects that reclaim leaves in slabs.
    pub reserve: AtomicUsize,
    pub limit: AtomicUsize,
    /// Objects out, where there is a limit.
    pub used: AtomicUsize,
    /// The functions of its objects, null for none, and what they are called with.
    pub init: AtomicPtr<()>,
    pub fini: AtomicPtr<()>,
    pub data: AtomicPtr<u8>,
    /// Frees that are none of an allocation that succeeded: pushes of the caches that had the number before, and objects that the
    /// program could not use.
    pub frees_before: AtomicU64,
    /// The most allocations that were told of.
    requests: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
}

impl UserPart {
    pub(crate) const fn new() -> Self {
        Self {
            traits: AtomicU8::new(0),
            reserve: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            used: AtomicUsize::new(0),
            init: AtomicPtr::new(null_mut()),
            fini: AtomicPtr::new(null_mut()),
            data: AtomicPtr::new(null_mut()),
            frees_before: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            name: [const { AtomicU64::new(0) }; NAME_WORDS],
        }
    }

    pub(super) fn set(&self, spec: &Spec<'_>) {
        let limited = if spec.limit == usize::MAX { 0 } else { LIMITED };
        let zero = if spec.flags.zero { ZERO } else { 0 };
        let exempt = if spec.flags.no_reclaim { NO_RECLAIM } else { 0 };
        let apart = if spec.flags.no_merge { NO_MERGE } else { 0 };
        self.traits.store(limited | zero | exempt | apart, Relaxed);
        self.reserve.store(0, Relaxed);
        self.limit.store(spec.limit, Relaxed);
        self.used.store(0, Relaxed);
        self.requests.store(0, Relaxed);
        self.init.store(spec.init.map_or(null_mut(), |f| f as *mut ()), Relaxed);
        self.fini.store(spec.fini.map_or(null_mut(), |f| f as *mut ()), Relaxed);
        self.data.store(spec.data, Relaxed);
        self.name.iter().zip(Name::ended(spec.name).words()).for_each(|(to, word)| to.store(word, Relaxed));
    }

    /// So many allocations succeeded by a reading, or as many as one before found, if these were more. A thread had objects in hand
    /// then, which counted as freed and as used.
    pub(crate) fn told_requests(&self, now: u64) -> u64 {
        let before = self.requests.load(Relaxed);
        // Not written where nothing happens: a forked child shares this memory with its parent.
        if now <= before { before } else { self.requests.fetch_max(now, Relaxed).max(now) }
    }

    /// Name.
    pub(crate) fn name(&self) -> Name {
        Name::of_words(core::array::from_fn(|word| self.name[word].load(Relaxed)))
    }

    /// Whether free objects are finalized before their slabs go back.
    pub(crate) fn has_finalizer(&self) -> bool {
        !self.fini.load(Relaxed).is_null()
    }

    /// Free objects keep what they hold.
    pub(super) fn is_initialised(&self) -> bool {
        !self.init.load(Relaxed).is_null() || self.has_finalizer()
    }

    /// Free objects keep their contents, or are a reserve: their pages are not released from inside a slab.
    pub(crate) fn retains_pages(&self) -> bool {
        self.is_initialised() || self.reserve.load(Relaxed) > 0
    }

    /// Pages of its slabs may be merged: its free objects may hold anything, and those in use are no secret.
    pub(crate) fn may_merge(&self) -> bool {
        self.traits.load(Relaxed) & NO_MERGE == 0 && !self.retains_pages()
    }

    /// No reclaim touches it.
    pub(crate) fn is_exempt(&self) -> bool {
        self.traits.load(Relaxed) & NO_RECLAIM != 0
    }

    /// Counts `n` more objects out, or as many as the limit lets; returns how many. Never more than those, not even for a moment:
    /// another thread would find the limit reached that is not.
    pub(crate) fn count_out(&self, n: usize) -> usize {
        let limit = self.limit.load(Relaxed);
        if limit == COUNTED {
            self.used.fetch_add(n, Relaxed);
            return n;
        }
        let granted = |used: usize| limit.saturating_sub(used).min(n);
        let count = |used| Some(used + granted(used)).filter(|&count| count > used);
        self.used.fetch_update(Relaxed, Relaxed, count).map_or(0, granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;

    #[test]
    fn who_asks_for_more_than_there_is_has_none_refused_to_others() {
        let user = UserPart::new();
        for round in 0..4000 {
            user.limit.store(10, Relaxed);
            user.used.store(10, Relaxed);
            let is_over = AtomicBool::new(false);
            let (greedy, modest) = std::thread::scope(|scope| {
                let greedy = scope.spawn(|| {
                    let mut granted = 0;
                    while granted == 0 && !is_over.load(Relaxed) {
                        granted = user.count_out(8);
                    }
                    granted
                });
                let mut granted = 1;
                for _ in 0..100 {
                    user.used.fetch_sub(granted, Relaxed);
                    granted = user.count_out(1);
                    if granted == 0 {
                        break;
                    }
                }
                is_over.store(true, Relaxed);
                (greedy.join().unwrap(), granted)
            });
            assert_eq!((greedy + modest, user.used.load(Relaxed)), (1, 10), "round {round}");
        }
    }
}
