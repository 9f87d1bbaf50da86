//! The stacks that `profile::unwind` takes, held against `backtrace()` of libc. They are taken in functions in C that keep no
//! frame pointer, through signal handlers, on the smallest stack, and in a coroutine. Stacks that were written over are read
//! as well.

use std::cell::RefCell;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use weir_linux::profile::unwind::capture;

type Callback = extern "C" fn();

thread_local! {
    /// The stacks that the callback found: by Weir, and by libc.
    static FOUND: RefCell<(Vec<usize>, Vec<usize>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Both stacks, and no more on this thread's stack than the smallest has room for.
extern "C" fn look() {
    let (mut ours, mut theirs) = ([0usize; 64], [std::ptr::null_mut::<c_void>(); 64]);
    let depth = capture(&mut ours);
    // SAFETY: libc fills as many words as it is told.
    let libc_depth = unsafe { libc::backtrace(theirs.as_mut_ptr(), 64) } as usize;
    FOUND.set((ours[..depth].to_vec(), theirs[..libc_depth].iter().map(|&at| at as usize).collect()));
}

/// The stack that a thread of its own found.
static SMALL: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());

extern "C" fn look_in_thread() {
    let mut ours = [0usize; 64];
    let depth = capture(&mut ours);
    SMALL.lock().unwrap().extend_from_slice(&ours[..depth]);
}

/// Weir's alone: libc's would follow what was written over.
extern "C" fn look_alone() {
    let mut ours = [0usize; 64];
    let depth = capture(&mut ours);
    FOUND.with_borrow_mut(|found| found.0 = ours[..depth].to_vec());
}

/// A function of `tests/c/frames.c`; `None`: there is no compiler, which is said.
fn function(name: &str) -> Option<*mut c_void> {
    static LIBRARY: OnceLock<Option<usize>> = OnceLock::new();
    let library = (*LIBRARY.get_or_init(open))?;
    Some(symbol(library, name))
}

fn symbol(library: usize, name: &str) -> *mut c_void {
    let name = CString::new(name).unwrap();
    // SAFETY: a handle that dlopen gave, and a string.
    let at = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) };
    assert!(!at.is_null(), "{name:?}");
    at
}

fn open() -> Option<usize> {
    build("frames.c", &["-pthread"]).map(|library| load(&library))
}

/// Builds a library of a file in `tests/c`; `None`: there is no compiler, which is said.
fn build(file: &str, more: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(file);
    let name = format!("{file}{}.{}.so", more.concat(), std::process::id());
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new("cc");
    command.args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-w", "-shared", "-fPIC"]);
    let Ok(output) = command.args(more).arg(&source).arg("-o").arg(&library).output() else {
        weir_testing::skip!("tests/c/{file} needs the compiler cc; Debian has it in build-essential");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(library)
}

/// Loads it, and removes its file.
fn load(library: &Path) -> usize {
    let name = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: a library without constructors.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null());
    std::fs::remove_file(library).unwrap();
    handle as usize
}

/// Calls a function of `(callback, number)`, and gives both stacks that were found in it.
fn stacks_in(name: &str, callback: Callback, number: usize) -> Option<(Vec<usize>, Vec<usize>)> {
    // SAFETY: the functions of frames.c that are called by this have this signature, or leave the number alone.
    let f: extern "C" fn(Callback, usize) = unsafe { std::mem::transmute(function(name)?) };
    f(callback, number);
    Some(FOUND.take())
}

/// All frames but the first, which are two calls of one function, are the same.
fn are_the_same(name: &str, number: usize, least: usize) {
    let Some((ours, theirs)) = stacks_in(name, look, number) else { return };
    assert!(ours.len() >= least, "{name}: {ours:x?}");
    assert_eq!(ours[1..], theirs[1..], "{name}: {ours:x?} {theirs:x?}");
    assert!(ours[0].abs_diff(theirs[0]) < 4096, "{name}: {ours:x?} {theirs:x?}");
}

#[test]
fn functions_without_frame_pointers() {
    are_the_same("deep", 20, 22);
    are_the_same("aligned", 5, 8);
    are_the_same("large", 5, 8);
}

#[test]
fn at_most_what_there_is_room_for() {
    extern "C" fn look_short() {
        let mut ours = [0usize; 7];
        assert_eq!((capture(&mut ours[..6]), ours[6], capture(&mut ours[..0])), (6, 0, 0));
    }
    stacks_in("deep", look_short, 20);
}

#[test]
fn signal_handlers_on_both_stacks() {
    are_the_same("in_handler", 0, 6);
    are_the_same("in_handler", 1, 6);
}

#[test]
fn coroutines() {
    are_the_same("in_coroutine", 0, 6);
}

#[test]
fn the_smallest_thread() {
    let Some(deep) = function("deep").map(|at| at as usize) else { return };
    stacks_in("in_small_thread", look_in_thread, 0);
    let found = SMALL.lock().unwrap();
    assert!(found.len() >= 6, "{found:x?}");
    // Four calls of it, and the thread's function, which the compiler puts near.
    let count = found.iter().filter(|&&at| at.abs_diff(deep) < 4096).count();
    assert_eq!(count, 5, "{deep:x} {found:x?}");
}

#[test]
fn stacks_that_were_written_over_end() {
    for value in [0, 1, 0x1234, 0x4141_4141_4141_4141, usize::MAX, usize::MAX - 7, 1 << 46, look as *const () as usize]
    {
        let Some((ours, _)) = stacks_in("corrupt", look_alone, value) else { return };
        assert!((1..=64).contains(&ours.len()), "{value:x}: {ours:x?}");
        let (ours, _) = stacks_in("frame_pointer", look_alone, value).unwrap();
        assert!((1..=64).contains(&ours.len()), "{value:x}: {ours:x?}");
    }
}

/// Another library lies where one lay that was walked through: its frames have another size.
#[test]
fn a_library_in_the_place_of_another() {
    let mut addresses = Vec::new();
    // Another thread of this test program may map something in between, so more than one pair is tried.
    for bytes in ["-DBYTES=24", "-DBYTES=56"].repeat(10) {
        let Some(library) = build("replaced.c", &[bytes]) else { return };
        let handle = load(&library);
        let enter = symbol(handle, "enter");
        // SAFETY: the function has this signature.
        let enter: extern "C" fn(Callback) = unsafe { std::mem::transmute(enter) };
        // The second time by the rules that the first one kept.
        for _ in 0..2 {
            enter(look);
            let (ours, theirs) = FOUND.take();
            assert!(ours.len() > 3, "{bytes}: {ours:x?}");
            assert_eq!(ours[1..], theirs[1..], "{bytes}: {ours:x?} {theirs:x?}");
        }
        addresses.push(enter as usize);
        // SAFETY: nothing of the library is used any more.
        assert_eq!(unsafe { libc::dlclose(handle as *mut c_void) }, 0);
        if addresses.len() % 2 == 0 && addresses[addresses.len() - 2] == enter as usize {
            return;
        }
    }
    panic!("no library was loaded in the place of the one before: {addresses:x?}");
}
