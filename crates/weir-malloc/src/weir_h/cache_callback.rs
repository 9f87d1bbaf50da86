//! Calls of a cache's callbacks. An exception of C++ that leaves one of them is named, and ends the process.
//!
//! An exception that went on into the program's `weir_cache_alloc()` would leave an object behind that nobody has: neither the
//! program nor the cache. Out of `fini` there is no one to catch it. So it ends here (`catch`), as one out of a shrinker does.
//! A shrinker can be left out from then on; an object that is made or unmade by half cannot.

use core::ffi::{c_int, c_void};

use weir_core::caches::user_cache::CacheId;
use weir_linux::messages;
use weir_linux::os::catch::{Function, Thrown, catch};
use weir_linux::os::signals;
use weir_linux::os::thread_block::is_own_thread;
use weir_linux::process::heap::HEAP;

/// Calls a callback of a cache for an object of `size` bytes. `what` names the callback. Returns what it returns, if anything.
///
/// # Safety
/// The function is the program's, and takes an object, its size and this argument, or the first two.
pub unsafe fn call(
    (cache, what): (CacheId, &str),
    function: usize,
    object: *mut u8,
    size: usize,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise. Integers and pointers are passed alike, and one argument too many does no harm. What a
    // function without a result leaves in the register is not used.
    let function = unsafe { core::mem::transmute::<usize, Function>(function) };
    // SAFETY: as above. If it throws, nothing is needed again.
    match unsafe { catch(function, [object.addr(), size, argument.addr()]) } {
        // An `int` is the lower half of the register.
        Ok(result) => result as c_int,
        Err(Thrown) => end(cache, what),
    }
}

#[cold]
fn end(cache: CacheId, what: &str) -> ! {
    let cache = HEAP.cache_stats(cache);
    let mut name = [0; 64];
    let parts = [what.as_bytes(), b" of the cache ", cache.name().as_bytes()];
    let text = parts.into_iter().flatten();
    let len = name.iter_mut().zip(text).map(|(to, &byte)| *to = byte).count();
    messages::exception_left(&name[..len]);
    // On a thread of Weir's own no handler of the program's can run.
    if is_own_thread() { signals::abort_elsewhere() } else { signals::abort() }
}
