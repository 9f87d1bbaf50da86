//! How the background thread responds to pressure.
//!
//! All processes of a system hear of its pressure at the same moment. Those in which something was freed lately respond at once.
//! Those at rest take turns, the ones with most to release first. Otherwise a thousand of them would need the CPU together, just
//! when it is needed most. A process with nothing to release does nothing. A process with idle pages in page pools responds at
//! once also at rest. Pools are there to be squeezed within milliseconds, and few of a system's processes serve devices.

use core::sync::atomic::Ordering::Relaxed;
use weir_core::base::level::Level;
use weir_core::telemetry::stats;

use crate::os::clock::monotonic_ns;
use crate::os::process::getpid;
use crate::platform::linux::Engine;
use crate::platform::statics::STATS;
use crate::pressure::events::{Events, Source};
use crate::pressure::wake::Waker;

/// Idle bytes below which a process responds later by [`STEP_NS`] for each halving; and the most halvings.
const FIRST_BYTES: u64 = 64 << 20;
const STEPS: u32 = 8;
/// The time that releasing the memory of a step's processes takes, about: 32 MiB at 30 us/MiB on each of a few CPUs. The
/// latest response comes after 36 ms.
const STEP_NS: u64 = 4_000_000;
/// Idle bytes below which a response costs more than it saves. A response takes some 50 us of CPU, and the kernel reclaims a page
/// by itself in 1 us. Below them a heap at rest does not hear of pressure.
pub(super) const WORTH_BYTES: u64 = 256 << 10;

/// The state of a heap at rest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// The heap has responded since it came to rest, or what calm windows keep was released: nothing is left but what only
    /// severe pressure takes.
    pub is_empty: bool,
    /// When to release what calm windows keep.
    pub ends_at: Option<u64>,
}

/// Responds to what was heard; `rest` is given if the heap is at rest.
pub(crate) fn respond(heap: &Engine, events: &Events, waker: &Waker, rest: Option<&mut Rest>) {
    let (heard, cause) = (monotonic_ns(), events.cause());
    heap.callbacks().name_slow(heap.platform());
    // A stall, or a group that is full of file pages. While much memory is left, it would not end if this process gave its caches.
    let is_others = events.is_doubtful() && heap.reclaim().has_plenty();
    if !is_others {
        heap.reclaim().note_pressure(events.level, cause);
    }
    if let Some(rest) = rest {
        let of_system = matches!(events.source, Some(Source::SystemStall | Source::GroupStall));
        let idle = STATS.idle_bytes.load(Relaxed);
        if events.level < Level::Severe && of_system {
            if rest.is_empty && idle < WORTH_BYTES && !heap.reclaim().hears_pressure() {
                return;
            }
            // A change that ends the thread must not wait for this sleep.
            waker.wait(Some(delay(idle, heap.page_pools().has_idle_pages(), getpid())));
        }
        rest.is_empty = true;
    }
    stats::add(&STATS.pressure_events, 1);
    if is_others {
        heap.reclaim().balance_stall(cause);
    } else {
        heap.reclaim().balance_pressure(events.level, cause);
    }
    STATS.note_latency(monotonic_ns() - heard);
}

/// How long a process with so many idle bytes lets others go first, ns; `has_pools`: some of them lie in page pools.
fn delay(idle: u64, has_pools: bool, process: u32) -> u64 {
    let halvings = (FIRST_BYTES / idle.max(1)).max(1).ilog2().min(STEPS);
    // Processes started in turn have numbers in turn: spread by the golden ratio's multiple.
    let spread = (u64::from(process.wrapping_mul(0x9e37_79b9)) * STEP_NS) >> 32;
    if has_pools || idle >= FIRST_BYTES { 0 } else { u64::from(halvings) * STEP_NS + spread }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_time_for_which_others_go_first_is_part_of_the_response() {
        let (heap, waker) = (crate::process::heap::HEAP.engine(), Waker::new());
        let events = Events { level: Level::Some, source: Some(Source::SystemStall), ..Events::default() };
        respond(heap, &events, &waker, Some(&mut Rest::default()));
        let wait = delay(STATS.idle_bytes.load(Relaxed), heap.page_pools().has_idle_pages(), getpid());
        let longest = STATS.pressure_latency_max.load(Relaxed);
        assert!(longest >= wait, "{longest} ns of {wait}");
    }

    #[test]
    fn the_largest_come_first_and_none_waits_long() {
        assert_eq!(delay(FIRST_BYTES, false, 7), 0);
        assert_eq!(delay(0, true, 7), 0, "idle pages of pools are squeezed at once");
        let longest = |idle| (1..1000).map(|process| delay(idle, false, process)).max().unwrap();
        let shortest = |idle| (1..1000).map(|process| delay(idle, false, process)).min().unwrap();
        for shift in 0..STEPS {
            let idle = (FIRST_BYTES - 1) >> shift;
            assert!(longest(idle) <= shortest(idle / 2), "{idle}");
        }
        assert!(longest(0) <= 40_000_000 && longest(0) >= 30_000_000);
    }

    #[test]
    fn a_thousand_alike_do_not_respond_in_the_same_millisecond() {
        let milliseconds: BTreeSet<u64> =
            (1000..2000).map(|process| delay(1 << 20, false, process) / 1_000_000).collect();
        assert!(milliseconds.len() >= 4, "{milliseconds:?}");
        let tenths =
            |tenth: u64| (1000..2000).filter(|&process| delay(1 << 20, false, process) / 100_000 == tenth).count();
        assert!((0..400).map(tenths).max().unwrap() <= 60, "spread evenly");
    }
}
