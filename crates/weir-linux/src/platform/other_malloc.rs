//! Another allocator beside Weir: the one that a program's values come from where Weir is not its allocator.
//!
//! Memory of values that a cache evicts then goes to free lists of that allocator's, which may keep it for good. That of glibc
//! does, but for what lies at the top of its heap. So evictions are counted here. Once a shrinker has done what it was asked for,
//! the allocator is told to release what is free. That is `malloc_trim` of glibc, and the purge of all arenas of jemalloc. What
//! both find is then missing from the process's resident memory, by which reclaim goes.
//!
//! A trim visits all that is free, under the lock of one arena after the other. So the next one begins no earlier after the end of
//! the last one than that took, or `MOST_PAUSE_NS`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::os::clock::monotonic_ns;
use crate::os::file::own::OwnFile;
use crate::os::file::text::{number, words};
use crate::os::futex::futex_wait;
use crate::os::page;
use crate::os::symbol::LibcSymbol;
use crate::os::symbol::weak_symbol;

/// The longest pause between two trims, ns: reclaim waits for a shrinker for 50 ms (`callback_ms`), a trim included.
const MOST_PAUSE_NS: u64 = 20_000_000;
/// Bytes that are worth a trim: a batch of a shrinker's.
pub const WORTH: usize = 64 << 10;

/// The `malloc_trim` of the first object which has one, as the loader finds it. No weak reference: the preloaded library defines the name.
static MALLOC_TRIM: LibcSymbol = LibcSymbol::new(c"malloc_trim");

weak_symbol!(
    /// jemalloc's, as it is named by itself.
    mallctl = "mallctl": Mallctl
);
weak_symbol!(
    /// jemalloc's, as it is named where it has a prefix.
    je_mallctl = "je_mallctl": Mallctl
);
weak_symbol!(
    /// jemalloc's, as Rust's package of it names it.
    rjem_mallctl = "_rjem_mallctl": Mallctl
);

type Mallctl = unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

/// The purge of all arenas (`MALLCTL_ARENAS_ALL`, 4096).
const PURGE_ALL: &CStr = c"arena.4096.purge";

/// Who serves the program's allocations.
static WHOSE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const WEIRS: u8 = 1;
const OTHERS: u8 = 2;

/// Bytes evicted in all.
static EVICTED: AtomicU64 = AtomicU64::new(0);
/// Bytes that were evicted by the last trim.
static TRIMMED: AtomicU64 = AtomicU64::new(0);
/// Trims so far.
static TRIMS: AtomicU64 = AtomicU64::new(0);
/// When the next one may begin.
static NEXT_AT: AtomicU64 = AtomicU64::new(0);
/// A thread is at it.
static IS_BUSY: AtomicBool = AtomicBool::new(false);

/// Notes whether what the program allocates comes from Weir; `ask` is called the first time. Returns whether it is news that it
/// does not.
pub fn note(ask: impl FnOnce() -> bool) -> bool {
    if WHOSE.load(Relaxed) != UNKNOWN {
        return false;
    }
    let whose = if ask() { WEIRS } else { OTHERS };
    WHOSE.swap(whose, Relaxed) == UNKNOWN && whose == OTHERS
}

/// Whether the program's values come from another allocator, as far as is known.
pub fn is_other() -> bool {
    WHOSE.load(Relaxed) == OTHERS
}

/// Whether the program's values come from Weir, as far as is known.
pub fn is_weir() -> bool {
    WHOSE.load(Relaxed) == WEIRS
}

/// Counts what was freed of a program's values.
pub fn evict(bytes: usize) {
    if is_other() {
        EVICTED.fetch_add(bytes as u64, Relaxed);
    }
}

/// Bytes evicted so far.
pub fn evicted() -> u64 {
    EVICTED.load(Relaxed)
}

/// Trims so far.
pub fn trims() -> u64 {
    TRIMS.load(Relaxed)
}

/// Caches of which more may go than they weigh: keys or values own memory, a weigher of the program's says what they weigh, or a
/// listener frees what they lead to.
static OWNERS: AtomicUsize = AtomicUsize::new(0);

/// How many caches there are of which more may go than they weigh.
pub(crate) fn owners() -> usize {
    OWNERS.load(Relaxed)
}

/// A cache is one of those of which more may go than they weigh, as long as it is in the list.
pub fn note_owner(is_there: bool) {
    if is_there {
        OWNERS.fetch_add(1, Relaxed)
    } else {
        OWNERS.fetch_sub(1, Relaxed)
    };
}

/// Has the allocator release what is free, if that is worth it. On a thread of libc's that holds nothing.
pub fn settle() {
    let is_worth = || EVICTED.load(Relaxed).saturating_sub(TRIMMED.load(Relaxed)) >= WORTH as u64;
    if !is_worth() || IS_BUSY.swap(true, Acquire) {
        return;
    }
    let pause = NEXT_AT.load(Relaxed).saturating_sub(monotonic_ns());
    if pause > 0 {
        let _ = futex_wait(&AtomicU32::new(0), 0, Some(pause.min(MOST_PAUSE_NS)));
    }
    TRIMMED.store(EVICTED.load(Relaxed), Relaxed);
    let begin = monotonic_ns();
    trim();
    let end = monotonic_ns();
    NEXT_AT.store(end + end.saturating_sub(begin).min(MOST_PAUSE_NS), Relaxed);
    TRIMS.fetch_add(1, Relaxed);
    IS_BUSY.store(false, Release);
}

/// Bytes of this process that are resident, whoever manages them.
pub fn resident() -> Option<u64> {
    let mut buf = [0; 128];
    // The second number counts pages that are resident.
    number(words(OwnFile::STATM.read(&mut buf).ok()?).nth(1)?)?.checked_mul(page::bytes() as u64)
}

/// In a forked child: the thread that was at it is not there.
pub fn inherit() {
    IS_BUSY.store(false, Relaxed);
}

fn trim() {
    for purge in [mallctl(), je_mallctl(), rjem_mallctl()].into_iter().flatten() {
        // SAFETY: jemalloc's function, by its name: a string, and nothing to read or write.
        unsafe { purge(PURGE_ALL.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    }
    if let Some(trim) = MALLOC_TRIM.address() {
        // SAFETY: the name is that of a function of this type, in glibc and in whatever takes its place.
        let trim = unsafe { core::mem::transmute::<usize, extern "C" fn(usize) -> c_int>(trim) };
        trim(0);
    }
}
