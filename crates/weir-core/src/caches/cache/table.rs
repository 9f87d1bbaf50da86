//! The table of caches, by number. One array is for those with per-CPU buckets. For further ones there are chunks that
//! are mapped as numbers are given, each twice as long as the one before. Chunks are never unmapped, so a reference to
//! a cache stays valid.

use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::base::run::Run;
use crate::base::size_class::COUNT;
use crate::base::units::{Class, Order, PAGE};
use crate::caches::cache::Cache;
use crate::caches::cache::life::{FREE, LIVE, MAKING};
use crate::caches::geometry::{BUCKETED, FIRST_USER, Geometry, MALLOC, UNBUCKETED};
use crate::platform::Platform;
use crate::platform::lock::{Guard, Lock, RankTurn};
use crate::platform::rank;

/// Caches of the first chunk.
const FIRST_CHUNK: usize = 64;
/// Chunks: together they have room for every number of 32 bits.
const CHUNKS: usize = 26;
const _: () = assert!(UNBUCKETED + FIRST_CHUNK * ((1 << CHUNKS) - 1) > u32::MAX as usize);

/// All caches.
pub(crate) struct CacheTable {
    bucketed: [Cache; BUCKETED],
    chunks: [AtomicPtr<Cache>; CHUNKS],
    /// Numbers that ever had a cache, plus one. The caches below it are initialised: it is stored after them.
    end: AtomicU32,
    /// Held while a number is given or given back, and while a cache gets its further nodes' domains.
    free: Lock<FreeNumbers, { rank::CACHE_TABLE }>,
}

/// Numbers without buckets that were given back: the first of a list that [`Cache::next_free`] continues; 0: none.
pub(crate) struct FreeNumbers(u32);

/// The chunk that cache `number` is in, and its place there.
fn place_of(number: usize) -> (usize, usize) {
    let index = number - UNBUCKETED;
    let chunk = (index / FIRST_CHUNK + 1).ilog2() as usize;
    (chunk, index - FIRST_CHUNK * ((1 << chunk) - 1))
}

/// Bytes of a chunk, whole pages.
fn chunk_bytes(chunk: usize) -> usize {
    ((FIRST_CHUNK << chunk) * size_of::<Cache>()).next_multiple_of(PAGE)
}

/// malloc's caches, the run classes, and room for user caches.
const fn bucketed() -> [Cache; BUCKETED] {
    let mut out = [const { Cache::new(Geometry::NONE, FREE) }; BUCKETED];
    let mut number = 1;
    while number <= COUNT {
        out[number] = Cache::new(MALLOC[number], LIVE);
        number += 1;
    }
    while number < FIRST_USER {
        out[number] = Cache::new(Geometry::of_runs(Class(number as u8)), LIVE);
        number += 1;
    }
    out
}

impl CacheTable {
    /// malloc's caches.
    pub(crate) const fn new() -> Self {
        Self {
            bucketed: bucketed(),
            chunks: [const { AtomicPtr::new(core::ptr::null_mut()) }; CHUNKS],
            end: AtomicU32::new(FIRST_USER as u32),
            free: Lock::new(FreeNumbers(0)),
        }
    }

    /// The cache that has `number`, or had it.
    #[inline(always)]
    pub(crate) fn get(&self, number: usize) -> &Cache {
        if number < BUCKETED { &self.bucketed[number] } else { self.get_unbucketed(number) }
    }

    #[cold]
    #[inline(never)]
    fn get_unbucketed(&self, number: usize) -> &Cache {
        assert!(self.contains(number), "no cache ever had this number");
        let (chunk, index) = place_of(number);
        // SAFETY: `number` lies below `end`, which was stored after its chunk was mapped and the cache there written. A
        // chunk is never unmapped, and a cache is changed by its atomics and locks alone.
        unsafe { &*self.chunks[chunk].load(Acquire).add(index) }
    }

    /// Whether `number` has a cache or ever had one.
    pub(crate) fn contains(&self, number: usize) -> bool {
        number > 0 && number < self.end.load(Acquire) as usize && !(BUCKETED..UNBUCKETED).contains(&number)
    }

    /// The numbers that have or ever had a cache, ascending.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        self.numbers_after(0)
    }

    /// Numbers above `number` that have or ever had a cache, ascending.
    pub(crate) fn numbers_after(&self, number: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, end) = (number.saturating_add(1), self.end.load(Acquire) as usize);
        (first..end.min(BUCKETED)).chain(first.max(UNBUCKETED)..end)
    }

    /// The caches that there are or once were.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cache> {
        self.numbers().map(|number| self.get(number))
    }

    /// Finds a number for a cache that is being made: the lowest that has buckets, else one that was given back, else a
    /// new one. `None`: there is no memory. O(numbers with buckets).
    pub(crate) fn take_number<P: Platform>(&self, platform: &P) -> Option<usize> {
        loop {
            let mut free = self.free.lock(platform);
            if let Some(number) = self.given_back(&mut free) {
                return Some(number);
            }
            let number = (self.end.load(Relaxed) as usize).max(UNBUCKETED);
            let end = u32::try_from(number + 1).ok()?;
            let (chunk, index) = place_of(number);
            let caches = self.chunks[chunk].load(Acquire);
            if !caches.is_null() {
                // SAFETY: the chunk is as long as `place_of` says. No other thread uses this place before `end` is
                // beyond it. The lock keeps others from giving the same number.
                unsafe { caches.add(index).write(Cache::new(Geometry::NONE, MAKING)) };
                self.end.store(end, Release);
                return Some(number);
            }
            drop(free);
            self.map_chunk(platform, chunk)?;
        }
    }

    fn given_back(&self, free: &mut FreeNumbers) -> Option<usize> {
        let is_free = |&number: &usize| self.bucketed[number].life.is_free();
        let number = (FIRST_USER..BUCKETED).find(is_free).or_else(|| {
            let number = (free.0 > 0).then_some(free.0 as usize)?;
            free.0 = self.get(number).next_free.load(Relaxed);
            Some(number)
        })?;
        self.get(number).life.make();
        self.end.fetch_max(number as u32 + 1, Release);
        Some(number)
    }

    /// Maps a chunk, outside the lock. What it holds is written as numbers are given, so that only that takes memory.
    fn map_chunk<P: Platform>(&self, platform: &P, chunk: usize) -> Option<()> {
        let len = chunk_bytes(chunk);
        let at = platform.map_metadata(len, Order::PAGE).ok()?;
        let null = core::ptr::null_mut();
        if self.chunks[chunk].compare_exchange(null, at as *mut Cache, AcqRel, Acquire).is_err() {
            platform.unmap(Run { addr: at, len });
        }
        Some(())
    }

    /// The chunks that are mapped.
    pub(crate) fn chunk_runs(&self) -> impl Iterator<Item = Run> {
        let chunks = self.chunks.iter().enumerate().map(|(chunk, caches)| (chunk, caches.load(Acquire) as usize));
        chunks.filter(|&(_, addr)| addr != 0).map(|(chunk, addr)| Run { addr, len: chunk_bytes(chunk) })
    }

    /// The number of a destroyed cache may be another's from now on.
    pub(crate) fn give_number<P: Platform>(&self, platform: &P, number: usize) {
        let mut free = self.free.lock(platform);
        let cache = self.get(number);
        if number >= UNBUCKETED {
            cache.next_free.store(free.0, Relaxed);
            free.0 = number as u32;
        }
        cache.life.free();
    }

    /// Holds the table as it is: no number is given, and no cache gets domains.
    pub(crate) fn lock<'a, P: Platform>(&'a self, platform: &'a P) -> Guard<'a, FreeNumbers, P, { rank::CACHE_TABLE }> {
        self.free.lock(platform)
    }

    /// Passes its lock to the turn of a rank.
    pub(crate) fn freeze<P: Platform>(&self, turn: &RankTurn<'_, P>) {
        turn.lock(&self.free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_hold_every_number_once() {
        let mut expected = (0, 0);
        for number in UNBUCKETED..UNBUCKETED + 10_000 {
            assert_eq!(place_of(number), expected);
            expected.1 += 1;
            if expected.1 == FIRST_CHUNK << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        let (chunk, index) = place_of(u32::MAX as usize);
        assert!(chunk < CHUNKS && index < FIRST_CHUNK << chunk);
    }
}
