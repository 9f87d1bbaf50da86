//! How all CPUs' buckets are taken over: the protocol is [`super`]'s.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::rooms::has_runs;
use super::{ACTIVE, PerCpu, SLAB_BYTES, STOPPED, in_bucket, resize};
use crate::base::class_set::ClassSet;
use crate::base::run::Run;
use crate::base::run_class;
use crate::base::units::{Class, PAGE};
use crate::caches::geometry::{BUCKETED, class_of_number};
use crate::platform::Platform;
use crate::platform::cpu_table::{CpuSlab, SLOTS, dummy};
use crate::platform::lock::Guard;
use crate::platform::rank;

impl PerCpu {
    /// Takes every CPU's buckets of the caches in `set` over, with one fence for all of them. Hands each object to
    /// `sink` (class, object). The CPU loop is outside, the cache loop inside, beginning with the first cache of the
    /// set at or after `first`. Each bucket may hold `room(class)` objects afterwards. With `release`, the memory
    /// behind slabs all of whose buckets are empty then goes back.
    pub(crate) fn drain<P: Platform>(
        &self,
        platform: &P,
        set: ClassSet,
        first: Class,
        room: impl Fn(Class) -> usize,
        release: bool,
        mut sink: impl FnMut(Class, *mut u8),
    ) {
        let one = self.draining.lock(platform);
        self.drain_all(platform, &one, |_| true, set, first, room, release, &mut sink);
    }

    /// Takes every CPU's runs over, as [`PerCpu::drain`] does, unless a drain goes on; whether it did. A CPU that has none keeps all
    /// its buckets meanwhile: this is done each time that a heap has grown by a small part.
    pub(crate) fn try_drain_runs<P: Platform>(&self, platform: &P, mut sink: impl FnMut(Class, *mut u8)) -> bool {
        let Some(one) = self.draining.try_lock(platform) else { return false };
        let set = run_class::all().collect();
        self.drain_all(platform, &one, has_runs, set, run_class::FIRST, |_| 0, false, &mut sink);
        true
    }

    /// [`PerCpu::drain`] of the CPUs that are `wanted`.
    #[allow(clippy::too_many_arguments, reason = "those of `drain`, its lock, and which CPUs")]
    fn drain_all<P: Platform>(
        &self,
        platform: &P,
        _one: &Guard<'_, (), P, { rank::DRAIN }>,
        wanted: impl Fn(&CpuSlab) -> bool,
        set: ClassSet,
        first: Class,
        room: impl Fn(Class) -> usize,
        release: bool,
        mut sink: impl FnMut(Class, *mut u8),
    ) {
        let release = release && platform.release_unit() == PAGE;
        let seen = self.seen.load(Acquire) as usize;
        // SAFETY: each pointer is null or a slab that was initialised before it was stored and is never unmapped. A
        // `CpuSlab` is atomics alone, so its CPU may work on it meanwhile.
        let is_wanted = |&cpu: &usize| unsafe { self.slabs[cpu].load(Acquire).as_ref() }.is_some_and(&wanted);
        if !platform.lockless() {
            for index in (0..seen).filter(is_wanted) {
                if let Some((_guard, slab)) = self.locked_always(platform, index) {
                    self.empty(slab, set, first, &room, &mut sink);
                    if release {
                        release_slots(platform, slab);
                    }
                }
            }
            return;
        }
        let claim = |cpu: &usize| self.state[*cpu].compare_exchange(ACTIVE, STOPPED, AcqRel, Relaxed).is_ok();
        for cpu in (0..seen).filter(is_wanted).filter(claim) {
            self.table.entry(cpu).store(dummy(), Release);
        }
        let ours = platform.fence();
        for cpu in (0..seen).filter(|&cpu| self.state[cpu].load(Relaxed) == STOPPED) {
            let slab = self.slabs[cpu].load(Acquire);
            if ours {
                self.empty(slab, set, first, &room, &mut sink);
                if release {
                    release_slots(platform, slab);
                }
            }
            if platform.checks_all() && ours {
                // It stays stopped until a drain finds that not all frees are checked any more.
                continue;
            }
            self.table.entry(cpu).store(slab, Release);
            self.state[cpu].store(ACTIVE, Release);
        }
    }

    /// Hands the objects of `slab`'s buckets of the caches in `set` to `sink`, and gives each bucket its new room. The slab is the
    /// caller's alone.
    fn empty(
        &self,
        slab: *mut CpuSlab,
        set: ClassSet,
        first: Class,
        room: &impl Fn(Class) -> usize,
        sink: &mut impl FnMut(Class, *mut u8),
    ) {
        for class in set.from(first) {
            let mut taken = 0;
            loop {
                // SAFETY: only this thread works on the slab: its CPU was stopped and fenced, or its lock is held.
                let object = unsafe { CpuSlab::pop(slab, class) };
                if object.is_null() {
                    break;
                }
                taken += 1;
                sink(class, object);
            }
            // SAFETY: the slab is never unmapped, and a `CpuSlab` is atomics alone: the slots, which are not, lie behind
            // it.
            let slab = unsafe { &*slab };
            slab.came[class.index()].fetch_sub(taken, Relaxed);
            if run_class::contains(class) {
                self.set_room(slab, class, room(class));
            } else {
                resize(slab, class, room(class));
            }
        }
    }
}

/// Releases the memory of the slots of `slab`, which is the caller's alone, if all its buckets are empty.
fn release_slots<P: Platform>(platform: &P, slab: *mut CpuSlab) {
    // SAFETY: the slab is never unmapped, and what is read of it are atomics.
    let is_empty = (1..BUCKETED).map(class_of_number).all(|class| unsafe { in_bucket(&*slab, class) } == 0);
    if is_empty {
        platform.release_metadata(&[Run { addr: slab as usize + SLOTS, len: SLAB_BYTES - SLOTS }]);
    }
}
