//! Caches that a program makes, as UMA's `uma_zcreate` does: of objects of one size, with what is done to each object
//! when its slab comes and goes.
//!
//! # The life of a number
//!
//! `FREE` → `MAKING` (under the registry's lock) → `LIVE` → `DYING` → `FREE`. A cache is looked at by reclaim only
//! while it is `LIVE`, and only under a batch lock of the balancer's: the first node's, or, for reports of slabs, their
//! node's. [`crate::heap::Heap::destroy_cache`] sets `DYING` under the first and then passes all of them, so afterwards no trim, drain
//! or report has it in its hands or will look at it; it then waits for whoever takes objects down outside the lock (`taking`), empties the CPUs' buckets and the depots, and gives the slabs back. What
//! this excludes: reclaim has taken objects out of a bucket, the destroyer finds all slabs that it sees empty and frees
//! the number, another cache gets it, and reclaim puts the objects into slabs of another geometry. If objects are
//! still out, the cache is `LIVE` again, and nothing has happened.
//!
//! # Initialised objects
//!
//! `init` is called for each object of a new slab, `fini` before the slab goes back; in between an object keeps its
//! contents while it is free, so the pages of such slabs are never reported from inside. `fini` is a program's own
//! code: it is called with no lock held, and only where a program's code may run: inside [`crate::heap::Heap::destroy_cache`],
//! [`crate::heap::Heap::trim`] and [`crate::heap::Heap::run_finalizers`], for which the platform has a thread of the program's kind.

use core::cell::Cell;
use core::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::base::id_set::IdSet;
use crate::base::size_class::COUNT;
use crate::base::units::PAGE;
use crate::base::unwind::OnUnwind;
use crate::caches::Caches;
use crate::caches::geometry::{CACHES, FIRST_MADE, Geometry, MAX_BATCH, MAX_OBJECT, MIN_OBJECT};
use crate::caches::object_cache::Cache;
use crate::caches::slab::Empty;
use crate::platform::Platform;

pub(crate) const FREE: u8 = 0;
const MAKING: u8 = 1;
pub(crate) const LIVE: u8 = 2;
const DYING: u8 = 3;

/// Bytes of a cache's name.
pub const NAME_BYTES: usize = 32;

/// Brings an object of a new slab into its constructed state: `object`, its size, the cache's data. `false`: it cannot. It
/// may unwind: then the slab goes back, and so far as it was initialised it is taken down before.
pub type Init = unsafe extern "C-unwind" fn(*mut u8, usize, *mut u8) -> bool;
/// Undoes [`Init`] before the slab goes back. It may not unwind: reclaim's thread has nobody to tell.
pub type Fini = unsafe extern "C" fn(*mut u8, usize, *mut u8);

/// What a cache does beyond handing out objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Objects are zero when they are handed out.
    pub zero: bool,
    /// No trim, drain or pressure touches the cache.
    pub no_reclaim: bool,
}

/// What a program wants of a new cache.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// Its name in statistics; cut at 31 bytes.
    pub name: &'a [u8],
    /// Object size, bytes: 1 to [`MAX_OBJECT`]; rounded up to the alignment, and to 16.
    pub size: usize,
    /// Alignment of objects, a power of two up to a page; at least 8.
    pub align: usize,
    /// What it does beyond that.
    pub flags: Flags,
    /// For each object of a new slab.
    pub init: Option<Init>,
    /// For each object before its slab goes back.
    pub fini: Option<Fini>,
    /// The last argument of both.
    pub data: *mut u8,
    /// Objects that may be out at a time; `usize::MAX`: any number. A limit costs each call an atomic addition.
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
    /// All the numbers there are have a cache: [`CACHES`] less malloc's.
    TooMany,
    /// There is no memory for what goes with it.
    NoMemory,
}

impl core::fmt::Display for MakeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Size => write!(f, "an object of a cache has 1 to {MAX_OBJECT} bytes"),
            Self::Align => write!(f, "the alignment of a cache is a power of two up to {PAGE}"),
            Self::NoMemory => f.write_str("there is no memory for the cache"),
            Self::TooMany => write!(f, "there are {} caches already, and no more numbers", CACHES - FIRST_MADE),
        }
    }
}

impl core::error::Error for MakeError {}

/// A cache was not destroyed: so many of its objects are still out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy(pub usize);

impl core::fmt::Display for Busy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} objects of the cache are in use", self.0)
    }
}

impl core::error::Error for Busy {}

/// A setting of a cache was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// The cache was made without a limit: its objects are not counted.
    Uncounted,
    /// There is no memory for the reserve; what could be had of it is kept.
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

/// A cache that a program made. A number, and no more: whoever destroys it sees to it that nobody uses it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheId(u8);

impl CacheId {
    /// The cache's number, as statistics show it.
    pub fn number(self) -> usize {
        self.0.into()
    }
}

/// Bits of [`Made::traits`].
pub(crate) const LIMITED: u8 = 1;
pub(crate) const ZERO: u8 = 2;
const NO_RECLAIM: u8 = 4;

/// What a cache has that a program made, and malloc's have not.
pub(crate) struct Made {
    pub traits: AtomicU8,
    /// Free objects that reclaim leaves in slabs.
    pub reserve: AtomicUsize,
    pub limit: AtomicUsize,
    /// Objects out, where there is a limit.
    pub used: AtomicUsize,
    init: AtomicUsize,
    fini: AtomicUsize,
    data: AtomicUsize,
    /// Threads that have slabs of it in their hands to take their objects down.
    pub taking: AtomicU32,
    /// Pushes of the caches that had the number before.
    pub frees_before: AtomicU64,
    name: [AtomicU64; NAME_BYTES / 8],
}

impl Made {
    pub(crate) const fn new() -> Self {
        Self {
            traits: AtomicU8::new(0),
            reserve: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            used: AtomicUsize::new(0),
            init: AtomicUsize::new(0),
            fini: AtomicUsize::new(0),
            data: AtomicUsize::new(0),
            taking: AtomicU32::new(0),
            frees_before: AtomicU64::new(0),
            name: [const { AtomicU64::new(0) }; NAME_BYTES / 8],
        }
    }

    fn set(&self, spec: &Spec<'_>) {
        let limited = if spec.limit == usize::MAX { 0 } else { LIMITED };
        let zero = if spec.flags.zero { ZERO } else { 0 };
        let kept = if spec.flags.no_reclaim { NO_RECLAIM } else { 0 };
        self.traits.store(limited | zero | kept, Relaxed);
        self.reserve.store(0, Relaxed);
        self.limit.store(spec.limit, Relaxed);
        self.used.store(0, Relaxed);
        self.init.store(spec.init.map_or(0, |f| f as usize), Relaxed);
        self.fini.store(spec.fini.map_or(0, |f| f as usize), Relaxed);
        self.data.store(spec.data as usize, Relaxed);
        let mut name = [0u8; NAME_BYTES];
        let len = spec.name.len().min(NAME_BYTES - 1);
        name[..len].copy_from_slice(&spec.name[..len]);
        for (word, bytes) in self.name.iter().zip(name.chunks_exact(8)) {
            word.store(bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)), Relaxed);
        }
    }

    /// Its name, ended by zeros.
    pub(crate) fn name(&self) -> [u8; NAME_BYTES] {
        let mut name = [0; NAME_BYTES];
        for (bytes, word) in name.chunks_exact_mut(8).zip(&self.name) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        name
    }

    /// Somebody has to take its free objects down before their slabs go back.
    pub(crate) fn takes_down(&self) -> bool {
        self.fini.load(Relaxed) != 0
    }

    /// Free objects keep their contents, or are a reserve: their pages may not go from inside a slab.
    pub(crate) fn keeps_pages(&self) -> bool {
        self.init.load(Relaxed) != 0 || self.takes_down() || self.reserve.load(Relaxed) > 0
    }

    /// No reclaim touches it.
    pub(crate) fn is_exempt(&self) -> bool {
        self.traits.load(Relaxed) & NO_RECLAIM != 0
    }

    /// Initialises the objects of a new slab. `false`: one could not be, and the others were taken down again.
    pub(crate) fn set_up(&self, slab: *mut u8, g: &Geometry) -> bool {
        let init = self.init.load(Relaxed);
        if init == 0 {
            return true;
        }
        // SAFETY: `set` stored a function of this type.
        let init = unsafe { core::mem::transmute::<usize, Init>(init) };
        let (size, data) = (g.size as usize, self.data.load(Relaxed) as *mut u8);
        let done = Cell::new(0);
        let undo = OnUnwind(|| self.tear_down(slab, size, done.get()));
        for i in 0..usize::from(g.objects) {
            // SAFETY: the object is nobody's yet; the maker of the cache answers for the function.
            if !unsafe { init(slab.wrapping_add(i * size), size, data) } {
                // Dropping `undo` takes the others down.
                return false;
            }
            done.set(i + 1);
        }
        core::mem::forget(undo);
        true
    }

    /// Takes the first `count` objects of a slab down.
    fn tear_down(&self, slab: *mut u8, size: usize, count: usize) {
        let fini = self.fini.load(Relaxed);
        if fini == 0 {
            return;
        }
        // SAFETY: `set` stored a function of this type.
        let fini = unsafe { core::mem::transmute::<usize, Fini>(fini) };
        let data = self.data.load(Relaxed) as *mut u8;
        // SAFETY: the objects are initialised and free; the maker of the cache answers for the function.
        (0..count).for_each(|i| unsafe { fini(slab.wrapping_add(i * size), size, data) });
    }

    /// Counts `n` more objects out, or as many as the limit lets; returns how many.
    pub(crate) fn count_out(&self, n: usize) -> usize {
        let limit = self.limit.load(Relaxed);
        let before = self.used.fetch_add(n, Relaxed);
        let granted = limit.saturating_sub(before).min(n);
        if granted < n {
            self.used.fetch_sub(n - granted, Relaxed);
        }
        granted
    }
}

impl<P: Platform> Caches<P> {
    /// Makes a cache. O(1), and a look at each number.
    pub(crate) fn make(&self, spec: &Spec<'_>) -> Result<CacheId, MakeError> {
        if !spec.align.is_power_of_two() || spec.align > PAGE {
            return Err(MakeError::Align);
        }
        if spec.size == 0 || spec.size > MAX_OBJECT {
            return Err(MakeError::Size);
        }
        let size = spec.size.max(MIN_OBJECT).next_multiple_of(spec.align.max(8));
        let class = {
            let _registry = self.making.lock(&self.pages.platform);
            let free = |&class: &usize| self.table[class].state.load(Acquire) == FREE;
            let class = (FIRST_MADE..CACHES).find(free).ok_or(MakeError::TooMany)?;
            self.table[class].state.store(MAKING, Relaxed);
            self.known.fetch_max(class as u32 + 1, Relaxed);
            class
        };
        let cache = &self.table[class];
        let geometry = Geometry::new(class, size);
        cache.shape.set(geometry);
        cache.tuning.reset(&geometry);
        cache.counts.reset();
        cache.made.set(spec);
        let now = self.pages.events.clock();
        cache.domains().for_each(|domain| domain.depot.lock(&self.pages.platform).reset(now));
        self.cpu.forget(class);
        cache.made.frees_before.store(self.cpu.pushes_of(class), Relaxed);
        cache.state.store(LIVE, Release);
        Ok(CacheId(class as u8))
    }

    /// Destroys a cache whose objects are all back, and gives its number free; waits for reclaim that has some of
    /// them in its hands.
    ///
    /// # Safety
    /// Nobody uses the cache meanwhile, nor afterwards if this succeeds.
    pub(crate) unsafe fn destroy(&self, id: CacheId) -> Result<(), Busy> {
        let (class, cache) = (id.number(), &self.table[id.number()]);
        let batch = self.pages.batch(0);
        if cache.state.compare_exchange(LIVE, DYING, AcqRel, Acquire).is_err() {
            return Ok(());
        }
        drop(batch);
        // Reports of further nodes' slabs go under locks of their own; what begins from here on finds the cache dying.
        self.pages.pass_batches();
        loop {
            let taking = cache.made.taking.load(Acquire);
            if taking == 0 {
                break;
            }
            self.pages.platform.wait(&cache.made.taking, taking);
        }
        let reserve = cache.made.reserve.swap(0, Relaxed);
        self.empty_buckets(class);
        let out = self.objects_out(cache);
        if out > 0 {
            cache.made.reserve.store(reserve, Relaxed);
            cache.state.store(LIVE, Release);
            return Err(Busy(out));
        }
        for domain in cache.domains() {
            while let Some(slab) = self.next_empty(cache, domain) {
                self.take_slab_down(cache, slab);
            }
            let spare = domain.depot.lock(&self.pages.platform).take_spare();
            self.give_shells(spare);
        }
        cache.state.store(FREE, Release);
        Ok(())
    }

    /// Puts all objects in buckets of a cache that reclaim does not look at into their slabs.
    fn empty_buckets(&self, class: usize) {
        let mut batch = [core::ptr::null_mut(); MAX_BATCH];
        let mut n = 0;
        self.cpu.drain(
            &self.pages.platform,
            IdSet::of(class),
            class,
            |_| 0,
            false,
            |_, object| {
                batch[n] = object;
                n += 1;
                if n == MAX_BATCH {
                    self.to_slabs(class, &batch);
                    n = 0;
                }
            },
        );
        self.to_slabs(class, &batch[..n]);
        for domain in self.table[class].domains() {
            loop {
                let n = domain.depot.lock(&self.pages.platform).reclaim(&mut batch);
                if n == 0 {
                    break;
                }
                self.to_slabs(class, &batch[..n]);
            }
        }
    }

    /// Objects of a cache that are in no slab.
    pub(crate) fn objects_out(&self, cache: &Cache) -> usize {
        let objects = usize::from(cache.shape.get().objects);
        let out = |slabs: &crate::caches::slab::SlabLists| slabs.slabs * objects - slabs.free;
        cache.domains().map(|domain| out(&domain.slabs.lock(&self.pages.platform))).sum()
    }

    // ---- objects taken down ------------------------------------------------------------------------------------

    /// Takes the initialised objects of empty slabs down and gives the slabs back; returns bytes. Calls the caches'
    /// own functions: to be called where a program's code may run, by a thread that holds nothing of the program's.
    pub(crate) fn run_finalizers(&self) -> usize {
        let mut bytes = 0;
        for class in FIRST_MADE..self.known.load(Relaxed) as usize {
            let cache = &self.table[class];
            if !cache.made.takes_down() || cache.made.is_exempt() {
                continue;
            }
            for domain in cache.domains() {
                while let Some(slab) = self.next_to_take_down(cache, domain) {
                    bytes += usize::from(cache.shape.get().pages) * PAGE;
                    self.take_slab_down(cache, slab);
                    cache.made.taking.fetch_sub(1, Release);
                    self.pages.platform.wake(&cache.made.taking);
                }
            }
        }
        bytes
    }

    /// An empty slab of a live cache, which cannot be destroyed before `taking` is 0 again.
    fn next_to_take_down(&self, cache: &Cache, domain: &crate::caches::object_cache::Domain) -> Option<Empty> {
        let _batch = self.pages.batch(0);
        if cache.state.load(Acquire) != LIVE {
            return None;
        }
        let slab = self.next_empty(cache, domain)?;
        cache.made.taking.fetch_add(1, Acquire);
        Some(slab)
    }

    fn next_empty(&self, cache: &Cache, domain: &crate::caches::object_cache::Domain) -> Option<Empty> {
        let (g, keep) = (cache.shape.get(), cache.made.reserve.load(Relaxed));
        domain.slabs.lock(&self.pages.platform).take_empty(&self.pages.normal, &g, keep)
    }

    fn take_slab_down(&self, cache: &Cache, slab: Empty) {
        let g = cache.shape.get();
        let first = self.pages.normal.addr_of(slab.page) as *mut u8;
        cache.made.tear_down(first, g.size as usize, g.objects.into());
        self.give_slab(&g, slab);
    }

    /// In a forked child, which has one thread: ends what the parent's other threads had begun.
    pub(crate) fn inherit(&self) {
        self.cpu.finish_installs(&self.pages.platform);
        // Slabs whose finalizers a thread was calling are lost to the child, and not waited for.
        self.known().for_each(|cache| cache.made.taking.store(0, Relaxed));
    }

    // ---- which caches there are --------------------------------------------------------------------------------

    /// The cache, of those that a program made, that has `addr` in one of its slabs: at an object's start or anywhere else.
    /// `None` for all other addresses. O(1): two loads.
    #[inline]
    pub fn cache_at(&self, addr: usize) -> Option<CacheId> {
        let class = self.pages.normal.class_of(self.pages.normal.page_of(addr)?);
        (FIRST_MADE..CACHES).contains(&usize::from(class)).then_some(CacheId(class))
    }

    /// All caches that there are or once were.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Cache> {
        self.table[1..self.known.load(Relaxed) as usize].iter()
    }

    /// The caches that reclaim may look at, under the balancer's batch lock: malloc's and live ones.
    pub(crate) fn reclaimable(&self) -> IdSet {
        let mut set = IdSet::EMPTY;
        (1..self.known.load(Relaxed) as usize).filter(|&c| self.is_reclaimable(c)).for_each(|c| set.insert(c));
        set
    }

    /// Whether reclaim may look at `class` now: asked under the balancer's batch lock.
    pub(crate) fn is_reclaimable(&self, class: usize) -> bool {
        let cache = &self.table[class];
        class <= COUNT || cache.state.load(Acquire) == LIVE && !cache.made.is_exempt()
    }
}
