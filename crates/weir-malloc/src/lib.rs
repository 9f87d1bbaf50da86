//! Weir as a drop-in malloc: `libweir.so`.
//!
//! Cargo builds `target/release/libweir.so`. Its soname is `libweir.so.0`, the name under which it is installed. A link of that
//! name is beside it (`build.rs`), so what is linked with `-L target/release -lweir` runs there as well.
//!
//! Everything here is the thin skin between C's rules and [`weir::heap`]: names, alignments, `errno`,
//! the constructor. Nothing here allocates, unwinds or has thread-local storage.
//!
//! | module | concept |
//! |---|---|
//! | `init` | the constructor |
//! | `c_abi` | ISO C, POSIX and the aligned forms |
//! | `glibc_abi` | glibc's extensions: statistics, tuning, trim |
//! | `arch` | what is written for each processor: `malloc` and `free` when nothing is missing, by hand, and C++'s jumps |
//! | `names` | the names under which C finds those two, glibc's second names among them |
//! | `first` | the first `malloc` of the process, where that is another: a program's own, or a wrapper |
//! | `cxx` | C++ `operator new` and `operator delete`, which form calls which, and how a failed `new` throws from a library that cannot |
//! | `weir_h` | what `weir.h` declares |
//! | `interposed` | `setuid`, `chroot`, `unshare` and their like, which Weir's thread makes room for; `madvise`, of which blocks of more than 4 MiB are to know |
//! | `deepbind` | `dlopen` without `RTLD_DEEPBIND`, with which a library would take libc's `free`; not in static programs |
//! | `clone` | `clone` of a process, and `_Fork`, around which is done what is done around `fork`; not in static programs |
//! | `next_symbol` | what stands behind a function of the library's own that libc has too |
//! | `errno` | `errno` |
//! | `misuse` | how a wrong call ends the process; the messages are [`weir_linux::messages`] |
//! | `panic` | the end of the process, if Weir itself is at fault |
#![no_std]
// The functions here are called by C, by the contracts of the C and POSIX standards. Each contract is named in the function's own
// line rather than repeated in a section.
#![allow(clippy::missing_safety_doc)]

#[cfg(panic = "unwind")]
extern crate std;

/// The allocator of `weir` where it allocates as any Rust program does: for entries of its caches for which their own place has
/// no memory.
#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

mod arch;
mod c_abi;
#[cfg(not(target_feature = "crt-static"))]
mod clone;
mod cxx;
#[cfg(not(target_feature = "crt-static"))]
mod deepbind;
mod errno;
mod first;
mod glibc_abi;
mod init;
mod interposed;
mod misuse;
mod names;
mod next_symbol;
mod panic;
mod weir_h;
