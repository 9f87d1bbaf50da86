//! How the policy of a cache is run: one duel for all shards, made when the cache begins to be full, chooses the setting.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use weir_core::evict::replacement::duel::{Duel, DuelStorage, Held, is_sampled};
use weir_core::evict::replacement::favour::Favour;
use weir_core::evict::replacement::setting::Setting;
use weir_core::platform::lock::{Lock, RankTurn};
use weir_core::platform::rank::EVICTABLE_DUEL;

use super::room::Room;
use crate::evictable_cache::host::{self, System, system};

/// There is no duel: no key is sampled.
const NO_DUEL: u32 = u32::MAX;
/// The fewest entries for which a duel of some 33 KiB is made.
const FEWEST: usize = 32;
/// The duel is made when the cache holds this part of what it may.
const FILLED: usize = 8;

struct Home {
    storage: DuelStorage,
    duel: MaybeUninit<Duel<'static>>,
}

/// A block with a duel in it.
struct Owned(NonNull<Home>);

// SAFETY: it owns the block, which nothing else refers to.
unsafe impl Send for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: allocated by `start`; a duel has nothing to drop.
        unsafe { host::free(self.0.cast(), Layout::new::<Home>()) }
    }
}

/// The hash by which the duel samples: another for each key, whose bits are not those that shards go by (2^32 / the golden ratio).
#[inline]
const fn for_duel(hash: u32) -> u32 {
    hash.wrapping_mul(0x9e37_79b1)
}

/// The choice of a setting.
pub struct Choice {
    duel: Lock<Option<Owned>, EVICTABLE_DUEL>,
    /// The binary logarithm of how many keys there are for each that is sampled, or [`NO_DUEL`].
    shift: AtomicU32,
    /// The setting's number.
    setting: AtomicU8,
    favour: Favour,
}

impl Choice {
    /// Without a duel.
    pub const fn new(favour: Favour) -> Self {
        Self { duel: Lock::new(None), shift: AtomicU32::new(NO_DUEL), setting: AtomicU8::new(0), favour }
    }

    /// How shards run their queues, and for what.
    pub fn setting(&self) -> (Setting, Favour) {
        let setting = Setting::ALL.get(usize::from(self.setting.load(Relaxed)));
        (setting.copied().unwrap_or(Setting::Balanced), self.favour)
    }

    /// Whether the duel is to see a key.
    #[inline]
    pub fn is_sampled(&self, hash: u32) -> bool {
        let shift = self.shift.load(Relaxed);
        shift != NO_DUEL && is_sampled(for_duel(hash), shift)
    }

    fn has_duel(&self) -> bool {
        self.shift.load(Relaxed) != NO_DUEL
    }

    /// Makes a duel when the cache is an eighth as full as it may get. Its shadows begin empty, and are to have seen about what
    /// the cache has seen: a loop may keep what was held first for good. Shadows that began when the cache was half full had none
    /// of the dead entries that the cache had. The duel then kept the setting by which it hit 27.5 % in place of 37.8 (the trace
    /// lirs-ps).
    #[inline]
    pub fn start_if_due(&self, room: &Room) {
        if !self.has_duel() {
            let (bytes, entries) = (room.bytes.load(Relaxed), room.entries.load(Relaxed));
            let is_due = bytes >= room.most() / FILLED || room.has_replaced.load(Relaxed);
            if entries >= FEWEST && is_due {
                self.start();
            }
        }
    }

    /// Notes a use of a key, if the duel samples it.
    #[inline]
    pub fn note_use(&self, hash: u32, weight: usize, room: &Room) {
        if self.is_sampled(hash) {
            self.see(hash, weight, room);
        }
    }

    /// Makes a duel, if there is memory.
    #[cold]
    fn start(&self) {
        let Some(home) = host::alloc_zeroed(Layout::new::<Home>()).map(NonNull::cast::<Home>) else { return };
        // SAFETY: a fresh block of zeros, which are an empty storage. Nothing else refers to it until it is freed, which is after
        // the duel's last use.
        let storage: &'static mut DuelStorage = unsafe { &mut (*home.as_ptr()).storage };
        let duel = Duel::new(storage, self.favour);
        let shift = duel.shift();
        // SAFETY: in the block, beside the storage.
        unsafe { (&raw mut (*home.as_ptr()).duel).write(MaybeUninit::new(duel)) };
        // What the lock held is freed without it; so is this one, where another thread was first.
        let mut spare = Some(Owned(home));
        if let Some(mut held) = self.duel.try_lock(system())
            && held.is_none()
        {
            *held = spare.take();
            self.shift.store(shift, Relaxed);
        }
        drop(spare);
    }

    /// Lets the duel see an access. Where another thread is at it, the access is left out.
    #[cold]
    pub fn see(&self, hash: u32, weight: usize, room: &Room) {
        let (entries, bytes) = (room.entries.load(Relaxed), room.bytes.load(Relaxed));
        let held = Held { entries, weight: bytes, target: room.goal() };
        let Some(guard) = self.duel.try_lock(system()) else { return };
        let Some(owned) = &*guard else { return };
        // SAFETY: the block has a duel, which the lock gives to this thread alone.
        let duel = unsafe { (*owned.0.as_ptr()).duel.assume_init_mut() };
        let has_changed = duel.access(for_duel(hash), weight, held);
        self.shift.store(duel.shift(), Relaxed);
        if has_changed {
            let at = Setting::ALL.iter().position(|&setting| setting == duel.setting()).unwrap_or(0);
            self.setting.store(at as u8, Relaxed);
        }
    }

    /// Frees the duel; the setting stays.
    pub fn stop(&self) {
        if let Some(mut held) = self.duel.try_lock(system()) {
            let old = held.take();
            self.shift.store(NO_DUEL, Relaxed);
            drop(held);
            drop(old);
        }
    }

    /// Bytes of the duel.
    pub fn bytes(&self) -> usize {
        if self.has_duel() { size_of::<Home>() } else { 0 }
    }

    /// Passes its lock to the turn of a rank, for `fork`.
    pub fn freeze(&self, turn: &RankTurn<'_, System>) {
        turn.lock(&self.duel);
    }
}
