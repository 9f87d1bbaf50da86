//! The run that waits on a CPU: a program freed it, no bucket has room for it, and the CPU's next visit to its zone gives it back.
//!
//! A free that goes to its zone by itself takes the zone's lock, and a dozen cache lines from the CPU that was there last. The
//! allocation behind it takes them once more. So a short run waits for that allocation. This gives it back and takes its own pages
//! under one hold of the lock. The run is the zone's before a place is looked for, so the choice of places stays as it was.
//!
//! A CPU has one word for it: the run's address, with its class in the bits below a page. Threads change the word by exchanges
//! alone. So any thread may take the run of any CPU, without a fence. The interleaving that this excludes: two threads read
//! the same run, and both give it back. Who takes one leaves null, and who lets one wait has the one before.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::PerCpu;
use crate::base::units::{Class, PAGE};
use crate::caches::geometry::class_of_number;
use crate::platform::Platform;
use crate::platform::cpu_table::CpuSlab;

/// A run that waits, with its class.
pub(crate) type Waiting = (Class, *mut u8);

/// A CPU has no buckets yet, or a thread has no CPU.
pub(crate) struct NoPlace;

/// The run and its class that a word has.
pub(super) fn parts(word: *mut u8) -> Option<Waiting> {
    let class = class_of_number(word.addr() % PAGE);
    (!word.is_null()).then(|| (class, word.map_addr(|addr| addr & !(PAGE - 1))))
}

/// Class of the run that waits on a CPU.
pub(super) fn class_of(slab: &CpuSlab) -> Option<Class> {
    parts(slab.waiting.load(Relaxed)).map(|(class, _)| class)
}

fn take(slab: &CpuSlab) -> Option<Waiting> {
    // Mostly none waits: a look leaves the line with its CPU.
    let word = slab.waiting.load(Relaxed);
    if word.is_null() { None } else { parts(slab.waiting.swap(null_mut(), AcqRel)) }
}

impl PerCpu {
    /// Lets `run` wait on the current CPU; returns the run that waited before. That is this one if it was freed twice. `Err`: the
    /// CPU has no place for it.
    pub(crate) fn wait<P: Platform>(&self, platform: &P, (class, run): Waiting) -> Result<Option<Waiting>, NoPlace> {
        let slab = self.here(platform).ok_or(NoPlace)?;
        Ok(parts(slab.waiting.swap(run.map_addr(|addr| addr | class.index()), AcqRel)))
    }

    /// Takes the run that waits on the current CPU.
    pub(crate) fn take_waiting<P: Platform>(&self, platform: &P) -> Option<Waiting> {
        self.here(platform).and_then(take)
    }

    /// Takes the runs that wait on all CPUs.
    pub(crate) fn take_all_waiting(&self) -> impl Iterator<Item = Waiting> {
        self.all().filter_map(take)
    }
}
