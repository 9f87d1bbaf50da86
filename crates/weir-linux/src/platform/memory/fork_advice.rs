//! Whether the program may have said of a part of its memory what `fork` is to do with it (`MADV_DONTFORK`,
//! `MADV_WIPEONFORK`). A block that it has freed, and that is handed out again, would keep that for its next owner. So
//! the advice has to be undone, by two system calls, but only if it may have been given. `libweir.so` stands before
//! libc's `madvise` and hears of it. A program that makes the system call past libc undoes it before the free by
//! itself. It must do so under any malloc that hands memory out again.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use linux_raw_sys::general::{MADV_DONTFORK, MADV_WIPEONFORK};

/// The program's advice would be heard of.
static IS_HEARD: AtomicBool = AtomicBool::new(false);
/// Advice was given.
static IS_GIVEN: AtomicBool = AtomicBool::new(false);

/// Finds out whether the program's advice is heard of: `try_it` gives some, of no memory, as the program would. Before
/// other threads are there.
pub fn find_out(try_it: impl FnOnce()) {
    if !IS_GIVEN.load(Relaxed) {
        try_it();
        IS_HEARD.store(IS_GIVEN.swap(false, Relaxed), Relaxed);
    }
}

/// The program gives `advice` on memory. To be called before the kernel hears of it. Another thread may free the block
/// then only after it was told by this one, so that it sees the mark.
pub fn is_given(advice: i32) {
    if matches!(u32::try_from(advice), Ok(MADV_DONTFORK | MADV_WIPEONFORK)) {
        IS_GIVEN.store(true, Relaxed);
    }
}

/// Whether blocks may bear such advice.
pub(super) fn may_be_there() -> bool {
    !IS_HEARD.load(Relaxed) || IS_GIVEN.load(Relaxed)
}
