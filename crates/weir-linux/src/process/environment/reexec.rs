//! Programs with a sanitizer, preloaded: they run without this library.
//!
//! AddressSanitizer, ThreadSanitizer and their like find errors by a malloc of their own. Preloaded, this one comes
//! first: AddressSanitizer then refuses to start, ThreadSanitizer too, for mappings in its shadow memory. Where they do
//! start, they are blind for blocks that they did not hand out. Or they take a block that is handed out again for a
//! race. So the program is executed anew, before any code of it has run, with the library taken out of `LD_PRELOAD`;
//! its children inherit that. A runtime that is linked into the program itself comes before every preloaded library,
//! and nothing is to be done.

use core::ffi::{CStr, c_char};
use core::ptr::NonNull;

use crate::messages;
use crate::os::process;
use crate::os::symbol::weak_symbol;

weak_symbol!(address = "__asan_init": NonNull<u8>);
weak_symbol!(hardware_address = "__hwasan_init": NonNull<u8>);
weak_symbol!(leak = "__lsan_init": NonNull<u8>);
weak_symbol!(memory = "__msan_init": NonNull<u8>);
weak_symbol!(thread = "__tsan_init": NonNull<u8>);

const VARIABLE: &[u8] = b"LD_PRELOAD=";
/// How the names of this library's file begin (`libweir.so`, `libweir.so.0`).
const FILE: &[u8] = b"libweir";
/// Longest value of `LD_PRELOAD` that is changed, with its name.
const LONGEST: usize = 4096;

/// Executes the program anew without this library if it has a sanitizer's shared runtime; else returns.
///
/// # Safety
/// To be called first of all, with what the program was given: null-terminated arrays of C strings, which may be
/// written.
pub unsafe fn without_weir_if_sanitized(argv: *const *const u8, envp: *const *const u8) {
    if let Some(name) = shared_runtime() {
        // SAFETY: as the caller promises.
        unsafe { without_weir_in_list(name, argv, envp) }
    }
}

/// Executes the program anew if the library is named in the list of those to preload. Not part of its caller, whose frame is
/// below all that a process does at its start: this one is of 8 KiB.
///
/// # Safety
/// As for [`without_weir_if_sanitized`].
#[cold]
#[inline(never)]
unsafe fn without_weir_in_list(name: &str, argv: *const *const u8, envp: *const *const u8) {
    let mut preload = [0; LONGEST];
    let mut at = envp.cast_mut();
    // SAFETY: `envp` is null or an array whose last entry is null, where the walk ends; the caller lets it be written.
    while let Some(entry) = unsafe { at.as_mut() }.filter(|p| !p.is_null()) {
        // SAFETY: the array's entries are C strings, and this one is not null.
        let text = unsafe { CStr::from_ptr((*entry).cast()) }.to_bytes();
        if without_weir(text, &mut preload) {
            let before = core::mem::replace(entry, preload.as_ptr());
            // SAFETY: the caller's arrays; the changed entry is a C string too.
            unsafe { execute(name, argv, envp) };
            // It was refused: the program goes on, and the runtime reports its own error.
            *entry = before;
            return;
        }
        at = at.wrapping_add(1);
    }
}

/// The program's file may have no path: it is a memfd, was replaced or deleted, or lies where the process may not search.
///
/// # Safety
/// As for [`without_weir_if_sanitized`].
unsafe fn execute(name: &str, argv: *const *const u8, envp: *const *const u8) {
    let mut path = [0; 4096];
    // SAFETY: as the caller promises.
    let started = unsafe { started_as(argv) };
    let paths = [process::program(&mut path).ok(), Some(c"/proc/self/exe"), started];
    let Some(path) = paths.into_iter().flatten().find(|path| process::is_executable(path)) else {
        return messages::does_not_run_without_weir(name);
    };
    messages::runs_without_weir(name);
    // SAFETY: `path` is a C string, and both arrays are the caller's, null-terminated.
    let _ = unsafe { process::execute(path, argv, envp) };
}

/// The path by which the program was started. `None` for a script's interpreter: the path is the script's, and among the arguments.
///
/// # Safety
/// `argv` is null or a null-terminated array of C strings.
unsafe fn started_as(argv: *const *const u8) -> Option<&'static CStr> {
    let path = process::auxiliary(linux_raw_sys::auxvec::AT_EXECFN).filter(|&at| at != 0)?;
    // SAFETY: the kernel's C string, which lies above the stack of the first thread for as long as the process runs.
    let path = unsafe { CStr::from_ptr(path as *const c_char) };
    let mut arguments = (0..).map_while(|i| {
        // SAFETY: `argv` is null or an array whose last entry is null, where the walk ends.
        let argument = unsafe { argv.wrapping_add(i).as_ref() }.filter(|p| !p.is_null())?;
        // SAFETY: the array's entries are C strings, and this one is not null.
        Some(unsafe { CStr::from_ptr(argument.cast()) })
    });
    arguments.next();
    arguments.all(|argument| argument != path).then_some(path)
}

/// The sanitizer that is in this process as a shared library.
fn shared_runtime() -> Option<&'static str> {
    let known = [
        (address(), "AddressSanitizer"),
        (hardware_address(), "HWAddressSanitizer"),
        (leak(), "LeakSanitizer"),
        (memory(), "MemorySanitizer"),
        (thread(), "ThreadSanitizer"),
    ];
    let (at, name) = known.into_iter().find_map(|(at, name)| Some((at?, name)))?;
    let (entry, loader) =
        (process::auxiliary(linux_raw_sys::auxvec::AT_ENTRY), process::auxiliary(linux_raw_sys::auxvec::AT_BASE));
    // A loader that was called by hand is the program that would be executed; it would need other arguments.
    let (entry, at, here) = (entry?, at.as_ptr() as usize, shared_runtime as *const () as usize);
    // The program's own code lies far from the libraries, which lie together.
    (loader? != 0 && at.abs_diff(here) < at.abs_diff(entry)).then_some(name)
}

/// Writes an environment's entry without this library to `out`; `false`: the library is not named there.
fn without_weir(entry: &[u8], out: &mut [u8; LONGEST]) -> bool {
    let Some(value) = entry.strip_prefix(VARIABLE).filter(|_| entry.len() < out.len()) else { return false };
    let is_weir = |file: &[u8]| file.rsplit(|&b| b == b'/').next().is_some_and(|name| name.starts_with(FILE));
    // The loader takes both.
    let files = || value.split(|b| b": ".contains(b)).filter(|file| !file.is_empty());
    let mut len = VARIABLE.len();
    out[..len].copy_from_slice(VARIABLE);
    for file in files().filter(|file| !is_weir(file)) {
        if len > VARIABLE.len() {
            out[len] = b':';
            len += 1;
        }
        out[len..len + file.len()].copy_from_slice(file);
        len += file.len();
    }
    out[len] = 0;
    files().any(is_weir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_taken_out_of_the_list() {
        let left = |entry: &str| {
            let mut out = [0xff; LONGEST];
            let found = without_weir(entry.as_bytes(), &mut out);
            found.then(|| String::from_utf8(out.split(|&b| b == 0).next().unwrap().to_vec()).unwrap())
        };
        for (entry, expected) in [
            ("LD_PRELOAD=/lib/libweir.so", Some("LD_PRELOAD=")),
            ("LD_PRELOAD=libweir.so.0:/a/b.so", Some("LD_PRELOAD=/a/b.so")),
            ("LD_PRELOAD=/a/b.so  ./libweir.so.0 c.so:", Some("LD_PRELOAD=/a/b.so:c.so")),
            ("LD_PRELOAD=/libweir/b.so", None),
            ("LD_PRELOAD=", None),
            ("LD_PRELOADS=libweir.so", None),
        ] {
            assert_eq!(left(entry).as_deref(), expected, "{entry}");
        }
        assert_eq!(left(&format!("LD_PRELOAD=libweir.so:{}", "x".repeat(LONGEST))), None);
    }
}
