//! How long it takes to touch released memory again: measured on fresh pages of Weir's own, by the background thread.
//!
//! A released page costs a fault when it is touched: the kernel finds a page, clears it, and charges the group for it. That differs
//! between machines, kernels and groups, so each process measures it, on some pages now and then. One page alone says too little:
//! its fault finds caches warm, and a page that the kernel has at hand. So stretches of 64 pages are touched, and the median of
//! five counts. Time on a CPU counts, as a thread that is not running touches nothing.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::base::cost::USUAL_TOUCH_NS;
use weir_core::base::units::PAGE;

use crate::os::clock::{monotonic_ns, thread_cpu_ns};
use crate::os::mman;
use crate::os::page;

/// Bytes of a stretch.
const STRETCH: usize = 64 * PAGE;
/// Stretches, an odd number of them.
const STRETCHES: usize = 5;
/// Bytes of a MiB.
const MIB: u64 = 1 << 20;
/// Between two measurements, each about 1 ms long.
const AGAIN_NS: u64 = 600_000_000_000;

/// The time, as it was measured last.
pub struct TouchTime {
    ns: AtomicU64,
    /// When to measure again, ns.
    due: AtomicU64,
}

impl TouchTime {
    pub(in crate::platform) const fn new() -> Self {
        Self { ns: AtomicU64::new(USUAL_TOUCH_NS), due: AtomicU64::new(0) }
    }

    /// Time to touch a MiB, ns. For the background thread, as it may measure.
    pub(in crate::platform) fn ns(&self) -> u64 {
        let now = monotonic_ns();
        if now >= self.due.load(Relaxed) {
            self.due.store(now + AGAIN_NS, Relaxed);
            if let Some(ns) = measure() {
                self.ns.store(ns, Relaxed);
            }
        }
        self.ns.load(Relaxed)
    }
}

/// `None`: there is no memory for it, or nothing tells the time.
fn measure() -> Option<u64> {
    let at = mman::mmap_anonymous(STRETCHES * STRETCH, 0).ok()?;
    let ns = time_of(at);
    // SAFETY: the mapping of above, of which nothing is used any more.
    let _ = unsafe { mman::munmap(at, STRETCHES * STRETCH) };
    ns
}

/// The time of a touch, by a new mapping of all stretches. `None`: the kernel has put memory there already, as it does for a program
/// that locks all that it will map (`MCL_FUTURE`); or nothing tells the time.
fn time_of(at: *mut u8) -> Option<u64> {
    let mut first = [0];
    // Where a filter refuses the look, the time is as good as it can be.
    if mman::mincore(at, &mut first, page::bytes()).is_ok() && first[0] & 1 == 1 {
        return None;
    }
    let mut times = [0; STRETCHES];
    for (number, time) in times.iter_mut().enumerate() {
        let begun = thread_cpu_ns();
        for page in (0..STRETCH).step_by(PAGE) {
            // SAFETY: inside the mapping, which no other code has the address of.
            unsafe { at.add(number * STRETCH + page).write_volatile(1) };
        }
        *time = thread_cpu_ns().saturating_sub(begun);
    }
    times.sort_unstable();
    let ns = times[STRETCHES / 2] * MIB / STRETCH as u64;
    (ns > 0).then_some(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_measured_once_and_not_again_for_some_time() {
        let time = TouchTime::new();
        let first = time.ns();
        // A fault takes more than 10 ns, and less than a millisecond of a CPU.
        assert!((256 * 10..256 * 1_000_000).contains(&first), "{first}");
        assert_eq!((time.ns(), time.ns()), (first, first));
    }

    #[test]
    fn what_has_memory_already_tells_nothing_of_the_price() {
        let at = mman::mmap_anonymous(STRETCHES * STRETCH, 0).unwrap();
        // SAFETY: inside the mapping, which no other code has the address of.
        unsafe { at.write_volatile(1) };
        assert_eq!(time_of(at), None);
        // SAFETY: nothing uses it any more.
        unsafe { mman::munmap(at, STRETCHES * STRETCH) }.unwrap();
    }
}
