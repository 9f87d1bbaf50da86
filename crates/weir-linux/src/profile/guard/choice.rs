//! Which allocation is guarded: one in `guard_every` of those that fit a page.
//!
//! The distance from one to the next is random, from 1 to twice the setting less 1. So a program's own rhythm neither
//! hides allocations nor shows the same ones again. Distances are counted by groups of threads, as a count for all
//! would go from CPU to CPU at each allocation.

use core::alloc::Layout;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::os::page::bytes as page_bytes;
use crate::os::thread_block;
use crate::platform::statics::TUNABLES;

/// Groups of threads; a choice: more than threads that allocate at the same time on most machines.
const GROUPS: usize = 64;

/// Allocations to the group's next one, on a cache line of its own; 0: none was drawn yet.
#[repr(align(64))]
struct Group(AtomicU32);

static LEFT: [Group; GROUPS] = [const { Group(AtomicU32::new(0)) }; GROUPS];
/// State of the random numbers, which need be no secret.
static RANDOM: AtomicU32 = AtomicU32::new(0);

/// Counts an allocation; whether it is to be guarded.
pub fn is_chosen(layout: Layout) -> bool {
    let every = TUNABLES.guard_every.get() as u32;
    if every == 0 || layout.size().max(layout.align()) > page_bytes() || thread_block::is_own_thread() {
        return false;
    }
    let left = &LEFT[thread_block::thread_number() % GROUPS].0;
    // Of two threads of a group one may overwrite the other's count: the next comes some allocations later.
    let before = match left.load(Relaxed) {
        0 => distance(every),
        before => before,
    };
    left.store(if before == 1 { distance(every) } else { before - 1 }, Relaxed);
    before == 1
}

/// Forgets distances that were drawn for another setting.
pub(super) fn restart() {
    LEFT.iter().for_each(|group| group.0.store(0, Relaxed));
}

fn distance(every: u32) -> u32 {
    1 + random() % every.saturating_mul(2).saturating_sub(1)
}

/// A number of 32 bits: a step of the golden ratio, and the mixing of MurmurHash3's end.
pub(super) fn random() -> u32 {
    let mut number = RANDOM.fetch_add(0x9e37_79b9, Relaxed);
    number = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    number = (number ^ number >> 13).wrapping_mul(0xc2b2_ae35);
    number ^ number >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_have_the_mean_that_is_set() {
        assert!((0..100).all(|_| distance(1) == 1));
        let distances: std::vec::Vec<u32> = (0..20_000).map(|_| distance(100)).collect();
        assert!(distances.iter().all(|distance| (1..200).contains(distance)));
        let mean = distances.iter().sum::<u32>() / 20_000;
        assert!((95..=105).contains(&mean), "{mean}");
    }
}
