//! The least there is: a malloc and the free of it, on one CPU, nothing else.

use crate::base::mem::Block;
use crate::base::run::Run;

/// Pairs of malloc(64) and free on a pinned thread: the fast path's cost in nanoseconds.
pub fn pair64(run: &Run) -> u64 {
    pin_to_this_cpu();
    let pairs = run.scaled(100_000_000);
    for _ in 0..pairs {
        Block::new(64).free();
    }
    pairs
}

/// Keeps the thread where it is. A refusal only makes the figure noisier, so it is not an error.
fn pin_to_this_cpu() {
    // SAFETY: `set` is a plain bit set, zero is its empty value; the calls read and write only it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let cpu = libc::sched_getcpu();
        if cpu >= 0 {
            libc::CPU_SET(cpu as usize, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
}
