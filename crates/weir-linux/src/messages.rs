//! Every line that Weir writes to standard error, with what the user can do about it. No allocation, no libc. Where a line must
//! not go is in `standard_error`.
//!
//! [`invalid_free`] and [`wrong_call`] end the process where the setting `abort_on_misuse` is 1, and these end it
//! always: [`torn_by_fork`], [`counters_are_lost`], [`no_cxx_runtime`], [`no_end_of_catch`], [`internal_error`]. The others
//! are notes, after which the program goes on.

pub mod guarded;
pub(crate) mod standard_error;

use arrayvec::ArrayVec;
use core::fmt::{self, Write};
use weir_core::base::invalid_free::InvalidFree;

use crate::os::signals;
use crate::os::syscall::Errno;
use crate::os::thread_block::is_own_thread;

/// The program freed what it may not. With `abort` the process ends by `SIGABRT`; else the call is ignored.
#[cold]
pub fn invalid_free(what: InvalidFree, addr: usize, class_size: usize, abort: bool) {
    let remedy = match what {
        InvalidFree::DoubleFree => "free each block once",
        InvalidFree::InteriorPointer => "free the pointer that malloc or realloc returned",
        InvalidFree::PoolPages => "put it back into its pool",
        InvalidFree::SizeOfNoBlock => "ask of what malloc or realloc returned, before it is freed",
        InvalidFree::SizeOfPoolPages => "a run has the pages that it was got with",
        InvalidFree::ForeignPointer => "free only what this process's malloc returned",
    };
    let class = Class(class_size);
    say(format_args!("weir: {what}: {addr:#x}{class}: {remedy}; AddressSanitizer or a debugger shows where"));
    if abort {
        end()
    }
}

/// Makes [`WrongCall`], with two texts for each: what happened, to be followed by an address; and what the author of the program
/// can do.
macro_rules! wrong_calls {
    ($($name:ident: $what:literal, $remedy:literal;)*) => {
        /// A wrong call of a function of `weir.h`, or a wrong use of an object of a cache.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum WrongCall {
            $(#[doc = $what] $name,)*
        }

        impl WrongCall {
            fn text(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$name => ($what, $remedy),)*
                }
            }
        }
    };
}

wrong_calls! {
    NullCache: "weir_cache_free: the cache is NULL; the object",
        "pass the cache that the object is from, and check what weir_cache_create() returned";
    NullObjects: "weir_cache_free_batch: the array of objects is NULL; the cache",
        "pass an array of as many objects as the count says";
    NullObject: "weir_cache_free_batch: NULL in the array of objects, at",
        "pass objects of the cache only: unlike weir_cache_free(), batches take no NULL";
    OtherCache: "weir_cache_free: not an object of this cache",
        "pass the cache that the object is from; what malloc() returned is freed by free()";
    NoCache: "not a cache, or destroyed already",
        "use what weir_cache_create() returned, until weir_cache_destroy() has returned 0";
    NoZone: "not a zone, or destroyed already",
        "use what weir_zone_create() returned, until weir_zone_destroy() has returned 0";
    NoPool: "not a page pool, or destroyed already",
        "use what weir_page_pool_create() returned, until weir_page_pool_destroy() has returned 0";
    NoEvictable: "not an evictable cache, or destroyed already",
        "use what weir_evictable_create() returned, until weir_evictable_destroy() has returned 0";
    NoQueue: "not a queue, or destroyed already",
        "use what weir_queue_create() returned, until weir_queue_destroy()";
    NullRuns: "weir_page_pool_put_batch: the array of runs is NULL; the pool",
        "pass an array of as many runs as the count says";
    NoCallback: "not a registered callback, or unregistered already",
        "pass what weir_shrinker_register() or weir_pressure_subscribe() returned to weir_unregister() once";
    FreedWithoutDtor: "free() of an object of a cache with a dtor or a limit",
        "free it by weir_cache_free(): free() neither calls the dtor nor counts the object as back";
    FreedTwice: "weir_cache_free: double free of a cache's object",
        "free each object once; a debugger's watchpoint on the address finds the first free";
    NotHeld: "weir_cache_free: no object in use begins here, or something wrote past its end",
        "look for a pointer into the middle of an object, an earlier free, and writes beyond the object's size";
    Resized: "realloc() of an object of a cache",
        "objects of a cache have one size: allocate another block, copy, and weir_cache_free() the object";
}

/// The program called a function of `weir.h` wrongly, and the function has no result to say so by, or memory is no
/// longer sound. With `abort` the process ends by `SIGABRT`; else the call is ignored.
#[cold]
pub fn wrong_call(call: WrongCall, addr: usize, abort: bool) {
    let (what, remedy) = call.text();
    say(format_args!("weir: {what}: {addr:#x}: {remedy}"));
    if abort {
        end()
    }
}

/// C++'s `operator new` failed in a process without a C++ runtime.
#[cold]
pub fn no_cxx_runtime() -> ! {
    say(format_args!(
        "weir: operator new: no memory, and no C++ runtime to throw std::bad_alloc with: raise the memory limit, or link \
         libstdc++ or libc++ (a static one with -Wl,-u,_ZSt17__throw_bad_allocv)"
    ));
    end()
}

/// A nothrow `new` caught an exception of a new-handler, and the C++ runtime lacks the functions that end exceptions.
#[cold]
pub fn no_end_of_catch() -> ! {
    say(format_args!(
        "weir: operator new: caught an exception that cannot be ended: the C++ runtime lacks __cxa_begin_catch or \
         __cxa_end_catch; link libstdc++ or libc++"
    ));
    end()
}

/// An assumption of Weir's own code, at this line of it, does not hold.
#[cold]
pub fn internal_error(file: &str, line: u32) -> ! {
    say(format_args!("weir: internal error at {file}:{line}: this is a bug of Weir: please report it with this line"));
    end()
}

/// Ends the process by `SIGABRT`.
fn end() -> ! {
    // On a thread of Weir's own no handler of the program's can run.
    if is_own_thread() { signals::abort_elsewhere() } else { signals::abort() }
}

/// A forked child needs a part of the heap that another thread of its parent was changing while it was copied.
#[cold]
pub fn torn_by_fork() -> ! {
    say(format_args!(
        "weir: this process was forked while another thread was changing the heap, and now needs the heap: \
         execute a program after fork(), or fork from a thread that holds no lock of libc's"
    ));
    signals::abort()
}

/// The page of counters was unmapped by a call of Weir's that failed half way, and there is no memory for another.
#[cold]
pub fn counters_are_lost(why: Errno) -> ! {
    say(format_args!(
        "weir: no memory for the page of counters (error {}): raise the limit of memory or of mappings \
         (vm.max_map_count), or set WEIR_PUBLISH=0",
        why.0
    ));
    end()
}

/// The tables of the heap profile cannot be mapped.
#[cold]
pub fn profile_stays_off(why: Errno) {
    say(format_args!(
        "weir: no heap profile: the kernel refuses 14 MiB of address space for its tables ({why}): raise the limit of address \
         space (ulimit -v), and set profile_bytes again"
    ));
}

/// The file of the heap profile cannot be written.
#[cold]
pub fn profile_not_written(path: &[u8], why: Errno) {
    say(format_args!(
        "weir: the heap profile is not written to {} ({why}): let WEIR_PROFILE name a file in a directory that the program may \
         write to",
        Bytes(path)
    ));
}

/// The kernel refuses to release free memory.
#[cold]
pub fn memory_stays_resident(why: Errno) {
    if why == Errno::EINVAL {
        say(format_args!(
            "weir: free memory stays resident: it is locked (mlock or mlockall; EINVAL). Unlock it before it is freed, or \
             set WEIR_REPORT=0 if it is meant to stay"
        ));
    } else {
        say(format_args!(
            "weir: free memory stays resident: the kernel refuses to take it (madvise: {why}). A sandbox or a sealed file \
             may forbid it: allow it, or set WEIR_REPORT=0"
        ));
    }
}

/// The kernel refuses to take huge pages of a zone back into the system's pool.
#[cold]
pub fn pool_stays_taken(why: Errno) {
    say(format_args!(
        "weir: free huge pages of a zone stay taken from the system's pool: the kernel refuses to take them back (madvise: {why}). \
         Linux 5.18 and later do, unless a sandbox forbids it"
    ));
}

/// The environment gives a setting a value that it cannot have.
pub fn setting_ignored(name: &[u8], value: &[u8], reason: fmt::Arguments<'_>) {
    say(format_args!("weir: WEIR_{}={}: {reason}; ignored", Bytes(name), Bytes(value)));
}

/// The environment names a setting that does not exist; `meant` is the one with the nearest name.
pub fn unknown_setting(name: &[u8], meant: Option<&str>) {
    match meant {
        Some(meant) => {
            say(format_args!("weir: WEIR_{}: no such setting (WEIR_{}?); ignored", Bytes(name), Upper(meant)));
        }
        None => say(format_args!("weir: WEIR_{}: no such setting (see weir settings); ignored", Bytes(name))),
    }
}

/// The service manager's watch names something that cannot be watched.
pub fn watch_ignored() {
    say(format_args!("weir: MEMORY_PRESSURE_WATCH is no pressure file, FIFO or socket that can be watched; ignored"));
}

/// The program has a sanitizer's runtime and is executed anew without this library.
pub fn runs_without_weir(sanitizer: &str) {
    say(format_args!("weir: this program has a malloc of {sanitizer}'s, which finds errors: it runs without Weir"));
}

/// The program has a sanitizer's runtime, and its file has no path by which it can be executed anew.
pub fn does_not_run_without_weir(sanitizer: &str) {
    say(format_args!(
        "weir: this program has a malloc of {sanitizer}'s, and its file has no path by which to execute it without Weir: \
         start it without LD_PRELOAD"
    ));
}

/// One call of a callback that the program registered has run for `ns`. One that `has_thread` for itself is not told to take one.
#[cold]
pub fn callback_is_slow(name: &[u8], ns: u64, has_thread: bool) {
    let seconds = ns / 1_000_000_000;
    let remedy = if has_thread { "" } else { "; give it a thread of its own if it has to wait" };
    say(format_args!(
        "weir: the callback \"{}\" has not returned for {seconds} s: it is not called again before it does, and others are \
         called meanwhile{remedy}",
        Bytes(name)
    ));
}

/// A callback that the program registered panicked, or threw an exception. An evictable cache's, a listener or the drop of
/// a value, goes on to be called.
#[cold]
pub fn callback_panicked(name: &[u8], is_disabled: bool) {
    match is_disabled {
        true => say(format_args!("weir: the callback \"{}\" panicked: it is not called any more", Bytes(name))),
        false => say(format_args!(
            "weir: a listener of the cache \"{}\", or the drop of one of its values, panicked as memory was taken from it: \
             what left the cache is freed, and it goes on",
            Bytes(name)
        )),
    }
}

/// An exception of C++ has left a callback that none may leave; the caller aborts.
#[cold]
pub fn exception_left(callback: &[u8]) {
    say(format_args!("weir: an exception left the {}: none may, and the process ends", Bytes(callback)));
}

/// A line of at most 255 bytes and its end; what is longer is cut.
struct Line(ArrayVec<u8, 256>);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.0.remaining_capacity() - 1;
        // It fits: cut to the room there is.
        let _ = self.0.try_extend_from_slice(&text.as_bytes()[..text.len().min(room)]);
        Ok(())
    }
}

fn line(text: fmt::Arguments<'_>) -> Line {
    let mut line = Line(ArrayVec::new());
    let _ = line.write_fmt(text);
    line.0.push(b'\n');
    line
}

fn say(text: fmt::Arguments<'_>) {
    standard_error::write(&line(text).0);
}

/// A size class, where there is one.
struct Class(usize);

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 { write!(f, " (size class {})", self.0) } else { Ok(()) }
    }
}

/// Text that may be no UTF-8: its valid parts. At most 64 bytes, so that what is said about it still fits into the
/// line.
struct Bytes<'a>(&'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..self.0.len().min(64)].utf8_chunks().try_for_each(|chunk| f.write_str(chunk.valid()))
    }
}

/// ASCII text in capitals.
struct Upper<'a>(&'a str);

impl fmt::Display for Upper<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| f.write_char(letter.to_ascii_uppercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn shown(text: fmt::Arguments<'_>) -> String {
        String::from_utf8_lossy(&line(text).0).into_owned()
    }

    #[test]
    fn a_line_is_cut_and_always_ends() {
        assert_eq!(shown(format_args!("short {}", 1)), "short 1\n");
        let long = "x".repeat(300);
        assert_eq!(shown(format_args!("{long}y")), std::format!("{}\n", "x".repeat(255)));
    }

    #[test]
    fn every_wrong_call_fits_into_the_line() {
        use WrongCall::*;
        let all = [
            NullCache,
            NullObjects,
            NullObject,
            OtherCache,
            NoCache,
            NoZone,
            NoPool,
            NoEvictable,
            NoQueue,
            NullRuns,
            NoCallback,
            FreedWithoutDtor,
            FreedTwice,
            NotHeld,
            Resized,
        ];
        for call in all {
            let (what, remedy) = call.text();
            assert!(shown(format_args!("weir: {what}: {:#x}: {remedy}", usize::MAX)).len() < 256, "{call:?}");
        }
    }

    #[test]
    fn what_is_shown_of_the_environment_is_short_and_valid() {
        assert_eq!(shown(format_args!("{} {}", Bytes(b"a\xffb"), Upper("limit"))), "ab LIMIT\n");
        assert_eq!(std::format!("{}", Bytes(&[b'v'; 500])).len(), 64);
        assert_eq!(std::format!("{}{}", Class(0), Class(112)), " (size class 112)");
    }
}
