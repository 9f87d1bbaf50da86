//! Records of the samples: the shared table of stacks, and the sampled blocks.
//!
//! Both are in one mapping, made when sampling is first switched on and kept from then on. So a reader in another process may
//! look at it at any time. Sampled blocks are kept track of until they are freed, also after sampling was switched off.
//!
//! One lock is over both, taken by samples and by frees of sampled blocks. A free of a run or a mapped block learns without the
//! lock that its block is not sampled. [`Recorder::live`] says that no block is, the filter that this one is not. Both were
//! raised before the sampled block was handed out. The thread that frees the block has it from there, so finds them above 0.
//!
//! [`Recorder::table`] is stored once, with release order, after the table's header was written: who finds it finds the header.
//! Of two threads that make a table at a time the second finds the samples there, under the lock, and gives its mapping back.
//! The mean and its copy in the header are stored under the lock, so that they are of one call.
//!
//! The model is `crates/weir-models/tests/profile/recorder.rs`.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::filter::Filter;
use super::interval::Weight;
use super::layout::{MAGIC, PROFILE_BYTES, Profile, SLOTS, Stack, VERSION};
use super::samples::{Sample, Samples};
use super::stacks;
use crate::base::run::Run;
use crate::base::time::Time;
use crate::base::units::{Order, PAGE, PAGEBLOCK};
use crate::platform::lock::{Lock, RankTurn};
use crate::platform::sync::{AtomicPtr, AtomicU64, AtomicUsize, constructor};
use crate::platform::{Platform, Refused, Wait, rank};
use crate::telemetry::stats;

/// Bytes of the mapping: 13.9 MiB of address space, of which what was never written takes no memory.
const BYTES: usize = PROFILE_BYTES + SAMPLES_BYTES + size_of::<Filter>();
/// Bytes of the table of samples.
const SAMPLES_BYTES: usize = SLOTS * size_of::<Sample>();
const _: () = assert!(PROFILE_BYTES.is_multiple_of(PAGE) && BYTES.is_multiple_of(PAGE));

/// A sampled allocation, as its caller saw it.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Return addresses, from the caller of the allocation outwards.
    pub frames: &'a [usize],
    /// The mean with which the allocation was drawn, 1 or more.
    pub mean: u64,
    /// A random number, by which the count is rounded.
    pub random: u64,
}

/// The heap's profile.
pub struct Recorder {
    lock: Lock<Option<Samples>, { rank::PROFILE }>,
    /// The shared table; null until sampling was first switched on.
    table: AtomicPtr<Profile>,
    /// Blocks in the table of samples.
    live: AtomicUsize,
    /// Mean of the bytes between two samples; 0: off.
    mean: AtomicU64,
}

impl Recorder {
    constructor! {
        /// Off, and nothing mapped.
        #[allow(clippy::new_without_default, reason = "const, and only ever a field")]
        pub fn new() -> Self {
            Self {
                lock: Lock::new(None),
                table: AtomicPtr::new(ptr::null_mut()),
                live: AtomicUsize::new(0),
                mean: AtomicU64::new(0),
            }
        }
    }

    /// The table that is shared, if sampling was ever on.
    pub fn table(&self) -> Option<&'static Profile> {
        // SAFETY: null, or the mapping that `install` stored with release order. It is never unmapped, consists of atomics
        // alone, and any bytes are a value of them.
        unsafe { self.table.load(Acquire).as_ref() }
    }

    /// The filter of the blocks, if sampling was ever on.
    fn filter(&self) -> Option<&'static Filter> {
        let table = ptr::from_ref(self.table()?).cast::<u8>();
        // SAFETY: the mapping of `BYTES` that the table begins is never unmapped and ends in the filter. The filter is of atomics
        // alone, for which any bytes are a value. The mapping's address was exposed as it was made.
        Some(unsafe { &*((table.addr() + PROFILE_BYTES + SAMPLES_BYTES) as *const Filter) })
    }

    /// Mean of the bytes between two samples; 0: sampling is off.
    pub fn mean(&self) -> u64 {
        self.mean.load(Relaxed)
    }

    /// Sampled blocks that are not freed yet.
    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// Switches sampling to a mean, or off by 0. `now` is the time since 1970. An error: the tables cannot be mapped, and
    /// sampling is off.
    pub fn switch<P: Platform>(&self, p: &P, mean: u64, now: Time) -> Result<(), Refused> {
        if mean != 0 && self.table().is_none() {
            let at = p.map_metadata(BYTES, Order::PAGE)?;
            if !self.install(p, at, now) {
                p.unmap(Run { addr: at, len: BYTES });
            }
        }
        // Under the lock, so that the two words are of one call.
        let _lock = self.lock.lock(p);
        self.mean.store(mean, Relaxed);
        if let Some(table) = self.table() {
            table.header.mean_bytes.store(mean, Relaxed);
        }
        Ok(())
    }

    /// Makes the fresh mapping at `at` the tables; `false`: another thread was faster with one of its own.
    fn install<P: Platform>(&self, p: &P, at: usize, now: Time) -> bool {
        let mut samples = self.lock.lock(p);
        if samples.is_some() {
            return false;
        }
        // SAFETY: `BYTES` zero bytes were mapped at `at`, a page, for this call alone, and stay mapped. In front is the table of
        // stacks, of atomics for which zero is a value. Behind it are the slots, for which it is too, and the filter, of atomics
        // as well. The slots' only reference is this one.
        let (table, slots) = unsafe {
            let slots = (at + PROFILE_BYTES) as *mut Sample;
            (&*(at as *const Profile), core::slice::from_raw_parts_mut(slots, SLOTS))
        };
        *samples = Some(Samples::new(slots));
        table.header.version.store(VERSION, Relaxed);
        table.header.began_ns.store(now.0, Relaxed);
        table.header.magic.store(MAGIC, Release);
        self.table.store(at as *mut Profile, Release);
        p.stats().profile.store(at as u64, Release);
        true
    }

    /// Counts the block, which was allocated apart with `size` bytes and was not handed out yet, and remembers it.
    /// The bytes that it stands for, if it is remembered.
    pub(crate) fn record<P: Wait>(&self, p: &P, block: *mut u8, size: usize, origin: Origin<'_>) -> Option<u64> {
        let mut samples = self.lock.lock(p);
        let (Some(samples), Some(table), 1..) = (&mut *samples, self.table(), self.mean()) else { return None };
        let header = &table.header;
        stats::add(&header.samples, 1);
        let Some((stack, entry)) = stacks::find_or_add(table, origin.frames) else {
            stats::add(&header.lost_stacks, 1);
            return None;
        };
        let Weight { objects, bytes } = Weight::of(size, origin.mean, origin.random);
        stats::add(&entry.allocated_objects, objects);
        stats::add(&entry.allocated_bytes, bytes);
        let sample = Sample { block: block as usize, stack: stack as usize, objects, bytes, size };
        let is_kept = self.keep(samples, entry, sample);
        if !is_kept {
            stats::add(&header.lost_blocks, 1);
        }
        is_kept.then_some(bytes)
    }

    /// Under the lock: counts a sample as live; `false`: there is no place.
    fn keep(&self, samples: &mut Samples, entry: &Stack, sample: Sample) -> bool {
        let is_kept = samples.insert(sample);
        if is_kept {
            stats::add(&entry.live_objects, sample.objects);
            stats::add(&entry.live_bytes, sample.bytes);
            self.live.store(self.live.load(Relaxed) + 1, Relaxed);
            self.filter().inspect(|filter| filter.add(sample.block));
        }
        is_kept
    }

    /// Takes a block that is about to be freed off the live ones, if it is sampled. To be called before another thread can be
    /// given the block.
    pub(crate) fn forget<P: Wait>(&self, p: &P, block: *mut u8) -> Option<Sample> {
        if self.live() == 0 || !self.filter()?.may_have(block as usize) {
            return None;
        }
        let mut samples = self.lock.lock(p);
        let sample = samples.as_mut()?.remove(block as usize)?;
        let entry = &self.table()?.stacks[sample.stack];
        entry.live_objects.store(entry.live_objects.load(Relaxed) - sample.objects, Relaxed);
        entry.live_bytes.store(entry.live_bytes.load(Relaxed) - sample.bytes, Relaxed);
        self.live.store(self.live.load(Relaxed) - 1, Relaxed);
        self.filter()?.remove(block as usize);
        Some(sample)
    }

    /// Undoes [`Recorder::forget`] of a block that is not freed after all.
    pub(crate) fn restore<P: Wait>(&self, p: &P, sample: Sample) {
        let mut samples = self.lock.lock(p);
        if let (Some(samples), Some(table)) = (&mut *samples, self.table())
            && !self.keep(samples, &table.stacks[sample.stack], sample)
        {
            stats::add(&table.header.lost_blocks, 1);
        }
    }

    /// Resident bytes of the tables.
    pub(crate) fn metadata<P: Platform>(&self, p: &P) -> usize {
        let Some(table) = self.table() else { return 0 };
        let (begin, end) = (ptr::from_ref(table) as usize, ptr::from_ref(table) as usize + BYTES);
        let parts = (begin..end).step_by(PAGEBLOCK).map(|addr| Run { addr, len: PAGEBLOCK.min(end - addr) });
        parts.map(|run| p.resident(run).unwrap_or(run.len / PAGE) * PAGE).sum()
    }

    /// Shows where the table is, once more: the page of counters may have been replaced by a copy as it was first shown.
    pub(crate) fn publish<P: Platform>(&self, p: &P) {
        p.stats().profile.store(self.table.load(Relaxed) as u64, Relaxed);
    }

    /// Passes its lock to the turn of a rank.
    pub(crate) fn freeze<P: Wait>(&self, turn: &RankTurn<'_, P>) {
        turn.lock(&self.lock);
    }
}
