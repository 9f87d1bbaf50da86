//! Calls of a cache's callbacks. An exception of C++ that leaves one of them is named, and ends the process.
//!
//! An exception that went on into the program's `weir_cache_alloc()` would leave an object behind that nobody has: neither the
//! program nor the cache. Out of `fini` there is no one to catch it. One out of `on_evict` would leave entries pinned that the
//! cache does not have any more. So it ends here (`catch`), as one out of a shrinker does. A shrinker can be left out from then
//! on; an object that is made or unmade by half cannot.
//!
//! A thread that is cancelled in `init`, `fini` or `on_evict` ends after it, as others wait for the call. In `ctor` and `dtor` it
//! ends at once, and the object is lost: to ask libc to wait takes four locked instructions for each object on glibc 2.36.

use core::ffi::{c_int, c_void};

use weir_core::caches::user_cache::CacheId;
use weir_linux::messages;
use weir_linux::os::catch::{Arguments, Function, Thrown, catch, uncancelled};
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
    // SAFETY: the caller's promise.
    match unsafe { caught(function, [object.addr(), size, argument.addr(), 0, 0, 0]) } {
        // An `int` is the lower half of the register.
        Ok(result) => result as c_int,
        Err(Thrown) => {
            let cache = HEAP.cache_stats(cache);
            let mut name = [0; 64];
            let parts = [what.as_bytes(), b" of the cache ", cache.name().as_bytes()];
            let text = parts.into_iter().flatten();
            let len = name.iter_mut().zip(text).map(|(to, &byte)| *to = byte).count();
            end(&name[..len])
        }
    }
}

/// Calls the `on_evict` of an evictable cache.
///
/// # Safety
/// The function is the program's, and takes these arguments.
pub unsafe fn call_on_evict(function: usize, arguments: Arguments) {
    // SAFETY: the caller's promise.
    if let Err(Thrown) = uncancelled(|| unsafe { caught(function, arguments) }) {
        end(b"on_evict of an evictable cache")
    }
}

/// # Safety
/// The function is the program's, and takes these arguments, or the first of them.
unsafe fn caught(function: usize, arguments: Arguments) -> Result<usize, Thrown> {
    // SAFETY: the caller's promise. Integers and pointers are passed alike, and arguments too many do no harm. What a function
    // without a result leaves in the register is not used.
    let function = unsafe { core::mem::transmute::<usize, Function>(function) };
    // SAFETY: as above. If it throws, nothing is needed again.
    unsafe { catch(function, arguments) }
}

#[cold]
fn end(callback: &[u8]) -> ! {
    messages::exception_left(callback);
    // On a thread of Weir's own no handler of the program's can run.
    if is_own_thread() { signals::abort_elsewhere() } else { signals::abort() }
}
