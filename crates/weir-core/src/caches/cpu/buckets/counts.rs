//! What CPUs' buckets hold and served, by class. The fast path counts its pushes only; the rest is derived.

use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed},
};

use super::{BEGIN, PerCpu, in_bucket};
use crate::base::run_class;
use crate::caches::geometry::{BUCKETED, UNBUCKETED, slots};
use crate::platform::Platform;
use crate::platform::cpu_table::{CLASSES, CpuSlab};

// What is counted by class has a place for every number with buckets, and none for those without.
const _: () = assert!(BUCKETED < CLASSES && CLASSES == UNBUCKETED);

/// Classes that are summed up at a time.
const SUMMED: usize = 32;

impl PerCpu {
    /// Counts objects that came from the depot to the current CPU (or went there, if negative). A thread that has just
    /// moved counts them on the wrong CPU: these are statistics.
    pub(crate) fn note_came<P: Platform>(&self, platform: &P, class: usize, objects: i32) {
        if let Some(slab) = self.here(platform)
            && let Some(came) = slab.came.get(class)
        {
            came.fetch_add(objects as u32, Relaxed);
        }
    }

    /// Objects of `class` in buckets now, and how many of them, at least, were freed on another CPU than they were
    /// allocated on: a CPU that took fewer objects from the depot than it gave there and still holds got the
    /// difference from elsewhere. What went one way and as much the other is not seen.
    pub(crate) fn held(&self, class: usize) -> (usize, usize) {
        let (mut held, mut crossed) = (0, 0);
        if class >= BUCKETED {
            return (held, crossed);
        }
        for slab in self.all() {
            let here = in_bucket(slab, class);
            let surplus = here as i32 - slab.came[class].load(Relaxed) as i32;
            held += here;
            crossed += surplus.max(0) as usize;
        }
        (held, crossed)
    }

    /// Calls `f` with class and address of each run in buckets. What moves meanwhile may be missed, or told twice.
    pub(crate) fn each_run(&self, mut f: impl FnMut(usize, usize)) {
        let seen = self.seen.load(Acquire) as usize;
        for slab in self.slabs[..seen].iter().map(|slab| slab.load(Acquire)).filter(|slab| !slab.is_null()) {
            for class in run_class::ALL {
                // SAFETY: a slab is never unmapped, and what is read of it here are atomics.
                let runs = unsafe { in_bucket(&*slab, class) };
                for word in (BEGIN[class]..).take(runs.min(slots(class))) {
                    // SAFETY: it names a slot of the class, which is aligned and never unmapped. Its CPU writes it in one piece: by an
                    // instruction of a restartable section, or by `CpuSlab`'s atomic stores.
                    let run = unsafe { AtomicPtr::from_ptr(CpuSlab::slot(slab, word)) }.load(Relaxed);
                    f(class, run as usize);
                }
            }
        }
    }

    /// Objects of `class` that came from below buckets, all CPUs together, less those that went there: those of the program, and
    /// those in buckets, if none came or went past a CPU without buckets.
    pub(crate) fn came(&self, class: usize) -> usize {
        let sum = self.all().fold(0u32, |sum, slab| sum.wrapping_add(slab.came[class].load(Relaxed)));
        (sum as i32).max(0) as usize
    }

    /// Forgets what was counted of `class`, which is about to be another cache's number.
    pub(crate) fn forget(&self, class: usize) {
        self.all().filter_map(|slab| slab.came.get(class)).for_each(|came| came.store(0, Relaxed));
        self.pushes();
    }

    /// Frees of `class` that the fast path served, as of the last [`PerCpu::pushes`].
    pub(crate) fn pushes_of(&self, class: usize) -> u64 {
        self.retired.get(class).map_or(0, |retired| retired.load(Relaxed))
    }

    /// Frees that the fast path served since the start, over all CPUs and classes (32-bit counters: read often enough).
    pub(crate) fn pushes(&self) -> u64 {
        let mut total = 0;
        // A few classes at a time: the sums are on a stack that may be the program's.
        for (first, retired) in (0..).step_by(SUMMED).zip(self.retired.chunks(SUMMED)) {
            let mut sums = [0u32; SUMMED];
            for slab in self.all() {
                let pushes = &slab.pushes[first..];
                sums.iter_mut().zip(pushes).for_each(|(sum, p)| *sum = sum.wrapping_add(p.load(Relaxed)));
            }
            for (sum, retired) in sums.into_iter().zip(retired) {
                let before = retired.load(Relaxed);
                // The 32-bit counters wrap: only what the sum grew by (modulo 2^32) since the last reading is added.
                // Another reader may have been later with its sum and quicker to store it: then this sum is the older.
                let grown = sum.wrapping_sub(before as u32);
                let now = before + u64::from(if grown > i32::MAX as u32 { 0 } else { grown });
                retired.store(now, Relaxed);
                total += now;
            }
        }
        total
    }
}
