//! How many runs of each run class a CPU's buckets may hold: all of them together no more bytes than a budget.
//!
//! An object cache's ceiling is the same on all CPUs, as its buckets are small. Runs are not: one of each class is 12 MiB. So
//! a bucket of a run class has room for nothing until a run is freed on its CPU, and for one more run each time that it is
//! found full. When the budget is used up, a class that frees again and again takes the room of another, in turn.
//!
//! The same words change as where buckets are resized ([`super`]), under the same protocol: `end` alone, by any thread.

use core::sync::atomic::Ordering::Relaxed;

use super::{BEGIN, PerCpu, in_bucket, resize};
use crate::base::run_class::{self, FIRST, RUN_CLASSES, size_of_class};
use crate::base::units::PAGE;
use crate::caches::geometry::slots;
use crate::pages::window::LARGE;
use crate::platform::Platform;
use crate::platform::cpu_table::CpuSlab;

/// Frees on a CPU that find no room, of which one displaces another class: the others cost a displaced one as much as they gain.
const DISPLACES: u32 = 8;
/// Where a CPU counts them: no class has this number.
const REFUSED: usize = LARGE as usize;

/// What a full bucket of a run class gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Room for one more run.
    Made,
    /// The room of another class, which has none now: the runs that are in that one's bucket are to leave it, and then it is
    /// to be asked again.
    After(usize),
    /// None.
    Refused,
}

/// Pages of a run of each class.
const PAGES: [u32; RUN_CLASSES] = {
    let mut out = [0; RUN_CLASSES];
    let mut i = 0;
    while i < RUN_CLASSES {
        out[i] = (size_of_class(FIRST + i) / PAGE) as u32;
        i += 1;
    }
    out
};

fn room_of(slab: &CpuSlab, class: usize) -> usize {
    (slab.headers[class].end.load(Relaxed) - BEGIN[class]) as usize
}

impl PerCpu {
    /// Lets the current CPU's bucket of `class`, which is full, hold one run more, if all may hold no more than `budget` bytes
    /// then. Else, each [`DISPLACES`]th time, another class loses its room: they take turns.
    pub(crate) fn make_room<P: Platform>(&self, platform: &P, class: usize, budget: usize) -> Room {
        self.here(platform).map_or(Room::Refused, |slab| Self::make_room_locked(slab, class, budget))
    }

    /// The same of the slab that the caller holds the lock of.
    pub(crate) fn make_room_locked(slab: &CpuSlab, class: usize, budget: usize) -> Room {
        let room = room_of(slab, class);
        if room >= slots(class) {
            return Room::Refused;
        }
        let rooms = slab.headers[FIRST..].iter().zip(&BEGIN[FIRST..]).zip(&PAGES);
        let pages = rooms.map(|((header, begin), pages)| (header.end.load(Relaxed) - begin) * pages).sum::<u32>();
        if pages as usize * PAGE + size_of_class(class) <= budget {
            resize(slab, class, room + 1);
            return Room::Made;
        }
        let refused = &slab.came[REFUSED];
        let before = refused.load(Relaxed);
        refused.store(before.wrapping_add(1), Relaxed);
        if !before.is_multiple_of(DISPLACES) {
            return Room::Refused;
        }
        let turn = (before / DISPLACES) as usize;
        let others = (0..RUN_CLASSES).map(|i| FIRST + (turn + i) % RUN_CLASSES);
        let loser = { others }.find(|&other| other != class && room_of(slab, other) > 0);
        loser.map_or(Room::Refused, |loser| {
            resize(slab, loser, 0);
            Room::After(loser)
        })
    }

    /// The run classes of which the current CPU's buckets hold runs.
    pub(crate) fn classes_here<P: Platform>(&self, platform: &P) -> impl Iterator<Item = usize> {
        let slab = self.here(platform);
        run_class::ALL.filter(move |&class| slab.is_some_and(|slab| in_bucket(slab, class) > 0))
    }

    /// CPUs that have had buckets so far, one at least.
    pub(crate) fn cpus(&self) -> usize {
        self.all().count().max(1)
    }
}
