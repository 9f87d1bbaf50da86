//! Figures by class on objects that CPUs' buckets hold and served. The fast path counts its pushes only; the rest is
//! derived.

use core::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use super::{BEGIN, PerCpu, in_bucket, waiting};
use crate::base::run_class;
use crate::base::units::Class;
use crate::caches::geometry::{BUCKETED, slots};
use crate::platform::Platform;
use crate::platform::cpu_table::CpuSlab;

/// Classes that are summed up at a time: their counts fill a line of each slab.
const SUMMED: usize = 16;

impl PerCpu {
    /// Counts objects that came from the depot to the current CPU (or went there, if negative). A thread that has just
    /// moved counts them on the wrong CPU: these are statistics.
    pub(crate) fn note_came<P: Platform>(&self, platform: &P, class: Class, objects: i32) {
        // Classes of caches without buckets have no count.
        if let Some(came) = self.here(platform).and_then(|slab| slab.came.get(class.index())) {
            came.fetch_add(objects as u32, Relaxed);
        }
    }

    /// Objects of `class` in buckets now, and how many of them, at least, were freed on another CPU than they were
    /// allocated on. A CPU may have taken fewer objects from the depot than it gave there and still holds. The
    /// difference came from elsewhere. Objects that went one way and as many the other are not seen. A CPU counts modulo 2^32.
    pub(crate) fn held(&self, class: Class) -> (usize, usize) {
        let (mut held, mut crossed) = (0, 0);
        if class.index() >= BUCKETED {
            return (held, crossed);
        }
        for slab in self.all() {
            let here = in_bucket(slab, class) + usize::from(waiting::class_of(slab) == Some(class));
            let surplus = here as i64 - i64::from(slab.came[class.index()].load(Relaxed) as i32);
            held += here;
            crossed += surplus.max(0) as usize;
        }
        (held, crossed)
    }

    /// Calls `f` with class and address of each run in buckets. What moves meanwhile may be missed, or told twice.
    pub(crate) fn each_run(&self, mut f: impl FnMut(Class, usize)) {
        let seen = self.seen.load(Acquire) as usize;
        for slab in self.slabs[..seen].iter().map(|slab| slab.load(Acquire)).filter(|slab| !slab.is_null()) {
            for class in run_class::all() {
                // SAFETY: a slab is never unmapped, and what is read of it here are atomics.
                let runs = unsafe { in_bucket(&*slab, class) };
                for word in (BEGIN[class.index()]..).take(runs.min(slots(class))) {
                    // SAFETY: it names a slot of the class, which is aligned and never unmapped. Its CPU writes it in one piece: by an
                    // instruction of a restartable section, or by `CpuSlab`'s atomic stores.
                    let run = unsafe { AtomicPtr::from_ptr(CpuSlab::slot(slab, word)) }.load(Relaxed);
                    f(class, run as usize);
                }
            }
            // SAFETY: a slab is never unmapped, and what is read of it here is an atomic.
            if let Some((class, run)) = waiting::parts(unsafe { (*slab).waiting.load(Relaxed) }) {
                f(class, run as usize);
            }
        }
    }

    /// Objects of `class` that came from below buckets, all CPUs together, less those that went there. These are the
    /// objects of the program, and those in buckets, if none came or went past a CPU without buckets.
    pub(crate) fn came(&self, class: Class) -> usize {
        let sum = self.all().fold(0u32, |sum, slab| sum.wrapping_add(slab.came[class.index()].load(Relaxed)));
        (sum as i32).max(0) as usize
    }

    /// Forgets what was counted of `class`, which is about to be another cache's number.
    pub(crate) fn forget(&self, class: Class) {
        self.all().filter_map(|slab| slab.came.get(class.index())).for_each(|came| came.store(0, Relaxed));
        self.pushes();
    }

    /// Frees of `class` that the fast path served, as of the last [`PerCpu::pushes`].
    pub(crate) fn pushes_of(&self, class: Class) -> u64 {
        self.retired[class.index()].load(Relaxed)
    }

    /// Frees that the fast path served since the start, over all CPUs and classes. Slabs count modulo 2^32: of more frees of a
    /// class between two readings, whole multiples of that are lost.
    pub(crate) fn pushes(&self) -> u64 {
        let mut total = 0;
        // A few classes at a time: the sums are on a stack that may be the program's.
        for (first, retired) in (0..).step_by(SUMMED).zip(self.retired.chunks(SUMMED)) {
            let mut before = [0u64; SUMMED];
            before.iter_mut().zip(retired).for_each(|(before, retired)| *before = retired.load(Acquire));
            let mut sums = [0u32; SUMMED];
            for slab in self.all() {
                let pushes = &slab.pushes[first..];
                sums.iter_mut().zip(pushes).for_each(|(sum, p)| *sum = sum.wrapping_add(p.load(Relaxed)));
            }
            for ((sum, before), retired) in sums.into_iter().zip(before).zip(retired) {
                // The low half of what was noted is the sum as of then: what it grew by since is added. Another reader may have
                // noted a sum meanwhile, which is as good. So none is added to a later one.
                let now = before + u64::from(sum.wrapping_sub(before as u32));
                total += retired.compare_exchange(before, now, AcqRel, Acquire).map_or_else(|found| found, |_| now);
            }
        }
        total
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::boxed::Box;

    /// In a window of an hour, or with few slow paths, a tight loop frees more than 2^31 objects between two readings.
    #[test]
    fn frees_between_two_readings_count_up_to_2_32_of_them() {
        static CPUS: PerCpu = PerCpu::new();
        // SAFETY: it is made of atomics alone, for which zero is a value.
        let slab = || unsafe { Box::<CpuSlab>::new_zeroed().assume_init() };
        let slabs: [&CpuSlab; 2] = [(); 2].map(|()| &*Box::leak(slab()));
        for (at, slab) in CPUS.slabs.iter().zip(slabs) {
            at.store(core::ptr::from_ref(slab).cast_mut(), Relaxed);
        }
        CPUS.seen.store(2, Relaxed);
        let (class, mut all) = (Class(7), 0);
        for frees in [5, 3_000_000_000, 0, u32::MAX, 1] {
            slabs[0].pushes[7].fetch_add(frees / 3, Relaxed);
            slabs[1].pushes[7].fetch_add(frees - frees / 3, Relaxed);
            all += u64::from(frees);
            assert_eq!((CPUS.pushes(), CPUS.pushes_of(class)), (all, all));
        }
    }
}
