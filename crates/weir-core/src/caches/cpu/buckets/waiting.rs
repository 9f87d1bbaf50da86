//! The run that waits on a CPU: a program freed it, no bucket has room for it, and the CPU's next visit to its zone gives it back.
//!
//! A free that goes to its zone by itself takes the zone's lock, and a dozen cache lines from the CPU that was there last. The
//! allocation behind it takes them once more. So a short run waits for that allocation. This gives it back and takes its own pages
//! under one hold of the lock. The run is the zone's before a place is looked for, so the choice of places stays as it was.
//!
//! In a heap too small for that a run waits as well if it is what the CPU asked for last, and those before were of other lengths. The
//! next request takes its beginning, and the rest waits on. As that beginning is freed, both are one run again. So one buffer after the
//! other, each of another length, stays on its CPU, with no page more than the longest has.
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

/// The lowest bits of a run's page number, where `CpuSlab::asked` has them.
fn place(run: *mut u8) -> u16 {
    ((run.addr() / PAGE) as u16) << PLACE
}

fn take(slab: &CpuSlab) -> Option<Waiting> {
    // Mostly none waits: a look leaves the line with its CPU.
    let word = slab.waiting.load(Relaxed);
    if word.is_null() { None } else { parts(slab.waiting.swap(null_mut(), AcqRel)) }
}

/// In `CpuSlab::asked`, which has the class in its lowest bits: one more run of that class in a row.
const AGAIN: u16 = 1 << 8;
/// Runs of a class in a row after which it is the one length that the CPU wants.
const OFTEN: u16 = 3;
/// Where the lowest bits of the run's page number begin in it: as many as are left.
const PLACE: u32 = 10;

impl PerCpu {
    /// A slow path hands out a run of `class` on the current CPU; whether it did so time and again.
    pub(crate) fn note_asked<P: Platform>(&self, platform: &P, (class, run): Waiting) -> bool {
        let Some(slab) = self.here(platform) else { return false };
        let times = (self.times_asked(platform, class) + 1).min(OFTEN);
        // A thread that was moved notes it elsewhere: that is a hint.
        slab.asked.store(place(run) | (times * AGAIN) | u16::from(class.0), Relaxed);
        times == OFTEN
    }

    /// Whether it is the run that slow paths handed out last on the current CPU, and those before were of other classes.
    pub(crate) fn is_asked_once<P: Platform>(&self, platform: &P, (class, run): Waiting) -> bool {
        let is_it = self.here(platform).is_some_and(|slab| slab.asked.load(Relaxed) >> PLACE << PLACE == place(run));
        is_it && (1..OFTEN).contains(&self.times_asked(platform, class))
    }

    fn times_asked<P: Platform>(&self, platform: &P, class: Class) -> u16 {
        let asked = self.here(platform).map_or(0, |slab| slab.asked.load(Relaxed));
        if asked as u8 == class.0 { asked / AGAIN % (1 << (PLACE - u8::BITS)) } else { 0 }
    }

    /// A run waits that is much for the heap. By an exchange: the drain that takes the note has seen what was let wait before it.
    pub(crate) fn note_much_waiting(&self) {
        self.much_waiting.swap(1, AcqRel);
    }

    /// Whether a run may wait on any CPU that is much for the heap.
    pub(crate) fn is_much_waiting(&self) -> bool {
        self.much_waiting.load(Relaxed) != 0
    }

    /// The run that waits on the current CPU, which another thread may take.
    pub(crate) fn peek_waiting<P: Platform>(&self, platform: &P) -> Option<Waiting> {
        parts(self.here(platform)?.waiting.load(Relaxed))
    }

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
        // Before the look, by an exchange that orders it: of what is noted meanwhile the next caller hears.
        self.much_waiting.swap(0, AcqRel);
        self.all().filter_map(take)
    }
}
