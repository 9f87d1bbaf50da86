//! How many runs of each run class a CPU's buckets may hold: all of them together no more bytes than a budget.
//!
//! An object cache's ceiling is the same on all CPUs, as its buckets are small. Runs are not: one of each class is 50 MiB. So a
//! bucket of a run class has room for nothing until it is worth it. A bucket gets room for one run more when a run is freed that
//! would have served one of the requests missed last: those for which no bucket of their CPU had a run. Then one like it will be
//! wanted again. Noted for each CPU, a miss would be old where a thread comes back to one. So the last few of all CPUs are noted,
//! each with its CPU. When the budget is used up, a class that goes on so takes the room of others, in turn.
//!
//! A CPU that takes back what it has handed out makes the program no larger. So it may keep one run whatever the budget is, and
//! more within a least budget. A CPU that frees what others asked for may not: each of their requests would take it back by a
//! fence.
//!
//! Rooms change the words that resizing buckets changes ([`super`]), under the same protocol: `end` alone, by any thread. But
//! they change them by exchanges, so that the sum of all rooms is exact. A bucket may lose its room and be emptied. A section of
//! its CPU that had read the old `end` may then push on it once more. That run stays until its class is asked for, or until the
//! next drain.

use core::sync::atomic::Ordering::Relaxed;

use super::{BEGIN, PerCpu, in_bucket};
use crate::base::run_class::{MAX_CLASS_RUN, RUN_CLASSES, all, class_of_run, nth, place, serves, size_of_class};
use crate::base::units::{Class, PAGE, Pages};
use crate::caches::geometry::slots;
use crate::platform::Platform;
use crate::platform::cpu_table::CpuSlab;
use crate::platform::sync::AtomicU64;

/// Frees on a CPU that find no room, of which one looks for some, and displaces other classes. The others cost a displaced class
/// as much as they gain.
const DISPLACES: u16 = 8;
const _: () = assert!(MAX_CLASS_RUN / PAGE < 1 << LENGTH_BITS);
/// Bits of each length in `PerCpu::missed`, and of each CPU in `PerCpu::missed_on`.
const LENGTH_BITS: u32 = 16;
/// Lengths in it.
const LENGTHS: u32 = u64::BITS / LENGTH_BITS;

/// How many pages buckets may have room for.
pub(crate) struct Budget {
    /// Pages of all CPUs together. A CPU may have its share of them whatever the others have, up to twice as many in all.
    pub(crate) all: Pages,
    /// A CPU's share.
    pub(crate) share: Pages,
    /// Pages of one CPU, whatever there is.
    pub(crate) most: Pages,
    /// Whether a CPU may keep one run beyond all that.
    pub(crate) one_beyond: bool,
}

/// Where a run was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    /// On other CPUs.
    Elsewhere,
    /// On this one, perhaps on others too.
    Here,
}

impl Budget {
    /// By how many pages too much it is if all CPUs have room for `all` and one of them for `own`.
    fn over(&self, all: Pages, own: Pages) -> Pages {
        let beyond_share = all.saturating_sub(self.all).min(own.saturating_sub(self.share));
        beyond_share.max(own.saturating_sub(self.most)).max(all.saturating_sub(self.all * 2))
    }
}

/// Pages of a run of each class.
const PAGES: [u32; RUN_CLASSES] = {
    let mut out = [0; RUN_CLASSES];
    let mut i = 0;
    while i < RUN_CLASSES {
        out[i] = (size_of_class(nth(i)) / PAGE) as u32;
        i += 1;
    }
    out
};

fn room_of(slab: &CpuSlab, class: Class) -> usize {
    (slab.headers[class.index()].end.load(Relaxed) - BEGIN[class.index()]) as usize
}

/// Pages that a CPU's bucket of `class` has room for.
fn pages_of(slab: &CpuSlab, class: Class) -> Pages {
    Pages(room_of(slab, class) * PAGES[place(class)] as usize)
}

/// Whether a CPU's bucket of `class` has room for runs, or one that came past its room.
fn is_used(slab: &CpuSlab, class: Class) -> bool {
    room_of(slab, class) > 0 || in_bucket(slab, class) > 0
}

/// Whether one of a CPU's buckets of runs does.
pub(super) fn has_runs(slab: &CpuSlab) -> bool {
    all().any(|class| is_used(slab, class))
}

impl PerCpu {
    /// Lets a bucket of run class `class` hold `room` runs.
    pub(super) fn set_room(&self, slab: &CpuSlab, class: Class, room: usize) {
        let end = BEGIN[class.index()] + room as u32;
        let before = slab.headers[class.index()].end.swap(end, Relaxed);
        self.room_pages.fetch_add(end.wrapping_sub(before).wrapping_mul(PAGES[place(class)]), Relaxed);
    }

    /// Whether any CPU has room for runs: if none has, none holds any (but for one on its way).
    #[inline]
    pub(crate) fn has_rooms(&self) -> bool {
        self.room_pages.load(Relaxed) != 0
    }

    /// Whether the current CPU's bucket of `class` has room for runs.
    pub(crate) fn has_room<P: Platform>(&self, platform: &P, class: Class) -> bool {
        self.here(platform).is_some_and(|slab| room_of(slab, class) > 0)
    }

    /// The current CPU's buckets were asked for a run of `pages` pages and had none; none: what was wanted is of no class.
    pub(crate) fn note_missed<P: Platform>(&self, platform: &P, pages: Pages) {
        // What two threads note at once may become one: that is a hint.
        let push = |word: &AtomicU64, last: usize| {
            word.store(word.load(Relaxed) << LENGTH_BITS | u64::from(last as u16), Relaxed);
        };
        push(&self.missed, pages.0);
        push(&self.missed_on, platform.cpu());
    }

    /// Why room is to be looked for in the current CPU's bucket of `class`, which is full; `None`: it is not. It is if a run of the
    /// class would have served one of the last few misses.
    pub(crate) fn wants_room<P: Platform>(&self, platform: &P, class: Class) -> Option<Wanted> {
        let slab = self.here(platform)?;
        let (missed, on, cpu) = (self.missed.load(Relaxed), self.missed_on.load(Relaxed), platform.cpu() as u16);
        let is_served = |i: &u32| {
            let missed = class_of_run(Pages((missed >> (i * LENGTH_BITS)) as u16 as usize).length());
            missed.is_some_and(|missed| serves(class, missed))
        };
        let is_here = |i: u32| (on >> (i * LENGTH_BITS)) as u16 == cpu;
        let by =
            (0..LENGTHS).filter(is_served).map(|i| if is_here(i) { Wanted::Here } else { Wanted::Elsewhere }).max()?;
        if room_of(slab, class) >= slots(class) {
            return None;
        }
        let refused = slab.refused.load(Relaxed);
        if !refused.is_multiple_of(DISPLACES) {
            slab.refused.store(refused.wrapping_add(1), Relaxed);
            return None;
        }
        Some(by)
    }

    /// Lets the current CPU's bucket of `class` hold one run more, if `budget` allows for it then; whether it may. Other classes,
    /// as each has its turn, lose their room for it. They are told to `displaced`: the runs in their buckets are to leave them.
    pub(crate) fn make_room<P: Platform>(
        &self,
        platform: &P,
        class: Class,
        budget: &Budget,
        mut displaced: impl FnMut(Class),
    ) -> bool {
        let Some(slab) = self.here(platform) else { return false };
        let more = Pages(PAGES[place(class)] as usize);
        let others = all().filter(|&other| other != class).map(|other| pages_of(slab, other)).sum::<Pages>();
        let all = Pages(self.room_pages.load(Relaxed) as usize);
        let mut over = budget.over(all + more, pages_of(slab, class) + others + more);
        if !over.is_zero() {
            let refused = slab.refused.fetch_add(1, Relaxed);
            let is_one = budget.one_beyond && room_of(slab, class) == 0;
            if over > others && !is_one {
                return false;
            }
            let turn = (refused / DISPLACES) as usize;
            let in_turn = (0..RUN_CLASSES).map(|i| nth((turn + i) % RUN_CLASSES));
            for loser in in_turn.filter(|&other| other != class) {
                let pages = pages_of(slab, loser);
                if !over.is_zero() && !pages.is_zero() {
                    self.set_room(slab, loser, 0);
                    displaced(loser);
                    over = over.saturating_sub(pages);
                }
            }
        }
        self.set_room(slab, class, room_of(slab, class).min(slots(class) - 1) + 1);
        true
    }

    /// Takes the room of the current CPU's buckets of runs. Calls `f` with each class that had some, or had runs without. Such
    /// runs were left by a thread that was moved to another CPU in the middle of this.
    pub(crate) fn take_rooms<P: Platform>(&self, platform: &P, mut f: impl FnMut(Class)) {
        let Some(slab) = self.here(platform) else { return };
        for class in all().filter(|&class| is_used(slab, class)) {
            self.set_room(slab, class, 0);
            f(class);
        }
    }

    /// CPUs that have had buckets so far, one at least.
    pub(crate) fn cpus(&self) -> usize {
        (self.seen.load(Relaxed) as usize).max(1)
    }
}
