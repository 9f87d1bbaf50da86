//! Restartable sequences where libc registers none: musl, and glibc before 2.35.
//!
//! The library's thread-local block is laid out as an area (`os/thread_block.rs`). Each thread has the kernel keep its own
//! block as its area, at its first slow path. Until then the block says "no CPU", so that sections find the empty dummy.
//! A libc that knows of restartable sequences and registers none was told so by its user: nothing is registered then.
//!
//! *At the thread's end.* The kernel writes to the area whenever it lets the thread run, so the block may not go before the
//! thread. For glibc that holds: it reuses a thread's memory when the kernel has reported its end. But musl unmaps that of a
//! detached thread from the thread itself: a write in between would end the process by SIGSEGV. So elsewhere than on glibc a
//! key's destructor ends the registration. The kernel leaves CPU 0 in an area that it gives up, which is no index of this
//! thread's any more. So signals are blocked until the block says "no CPU" again, and no section sees it.
//!
//! *Not covered.* A signal may come between two instructions of a thread's very first section, and its handler may call
//! `malloc`, which POSIX forbids there. The registration is made in the handler then, and the section goes on without the
//! kernel's protection for its last five instructions.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use linux_raw_sys::general::__NR_rseq;

use crate::arch::sections;
use crate::arch::thread::{block_distance, read_thread_word, thread_pointer};
use crate::os::process::auxiliary;
use crate::os::signals::set_signal_mask;
use crate::os::symbol::weak_symbol;
use crate::os::syscall::{check, syscall4};
use crate::os::thread_block::{Registration, registration};
use crate::platform::fast_path::rseq_area::{AREA_BYTES, AREA_CPU_ID, Area, write_no_cpu};
use crate::platform::statics::TUNABLES;

weak_symbol!(
    /// glibc's function; other libcs lack it.
    gnu_get_libc_version = "gnu_get_libc_version": NonNull<u8>
);
weak_symbol!(
    /// libc's function.
    pthread_key_create = "pthread_key_create" in libc of "GLIBC_2.2.5":
        unsafe extern "C" fn(*mut u32, unsafe extern "C" fn(*mut u8)) -> i32
);
weak_symbol!(
    /// libc's function.
    pthread_setspecific = "pthread_setspecific" in libc of "GLIBC_2.2.5": unsafe extern "C" fn(u32, *const u8) -> i32
);

/// Auxiliary vector entry: bytes of an area that the kernel fills. Kernels without it fill 20.
const AT_RSEQ_FEATURE_SIZE: u32 = 27;
const UNREGISTER: usize = 1;

/// Threads register their own blocks.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The key with the destructor, and one; 0: a thread's end needs none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Whether threads register their own blocks.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Registers the calling thread's block, and from now on that of each thread; its area. `None`: the kernel refuses, or
/// libc has no key left.
pub(super) fn begin() -> Option<Area> {
    if gnu_get_libc_version().is_none() && KEY.load(Relaxed) == 0 {
        let mut key = 0;
        // SAFETY: libc's function of this type; the destructor takes any pointer.
        if unsafe { pthread_key_create()?(&mut key, end) } != 0 {
            return None;
        }
        KEY.store(key + 1, Relaxed);
    }
    // A signal handler may come here while the thread it interrupted is here: both give one answer.
    if !register() && !is_registered() {
        return None;
    }
    IS_ON.store(true, Relaxed);
    let filled = auxiliary(AT_RSEQ_FEATURE_SIZE).unwrap_or(20);
    Some(Area::new(block_distance() as isize, filled))
}

/// Registers the calling thread's block, if that was not tried before; `false`: it has no index.
#[cold]
pub(crate) fn register_once() -> bool {
    TUNABLES.rseq.get() != 0 && register()
}

/// As [`register_once`], whatever the setting says.
fn register() -> bool {
    let state = registration();
    if state.swap(Registration::TRIED, Relaxed) != Registration::NEW || !keep(0) {
        return false;
    }
    if let (key @ 1.., Some(set)) = (KEY.load(Relaxed), pthread_setspecific()) {
        // SAFETY: libc's function of this type, with the key that was made; any value but null calls the destructor.
        unsafe { set(key - 1, NonNull::dangling().as_ptr()) };
    }
    true
}

/// Whether the kernel keeps the calling thread's block as its area.
fn is_registered() -> bool {
    // SAFETY: a word of the library's block.
    unsafe { read_thread_word(block_distance().wrapping_add(AREA_CPU_ID) as isize) as i32 >= 0 }
}

/// Has the kernel keep the calling thread's block as its area, or (`flags` 1) no longer.
pub(super) fn keep(flags: usize) -> bool {
    let block = thread_pointer().wrapping_add(block_distance());
    // SAFETY: the block is the calling thread's own, and lives until the thread's end, or `end`.
    check(unsafe { syscall4(__NR_rseq, block, AREA_BYTES, flags, sections::SIGNATURE as usize) }).is_ok()
}

/// The thread ends: the kernel keeps its block no longer. What the thread allocates after this takes slow paths.
unsafe extern "C" fn end(_: *mut u8) {
    let Ok(before) = set_signal_mask(u64::MAX) else { return };
    if keep(UNREGISTER) {
        // SAFETY: the calling thread's block.
        unsafe { write_no_cpu(thread_pointer().wrapping_add(block_distance())) };
    }
    let _ = set_signal_mask(before);
}
