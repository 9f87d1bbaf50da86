//! The steps of every test here: build the library, compile a small program, run it with the library preloaded.
//!
//! Malloc is replaced from outside, as users do it. The library is never linked into the tests: their own malloc
//! stays the system's, so a broken heap fails a test rather than the harness.
//!
//! `WEIR_TEST_LIBRARY=/path/to/lib.so` tests another library, and `WEIR_TEST_LIBRARY=system` the C library itself:
//! that is how the tests are tested.
#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

/// The ways in which every program is run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mode {
    /// As it is.
    Plain,
    /// glibc does not register restartable sequences: Weir has to do without.
    NoRseq,
    /// With a limited address space, in KiB: Weir's reservations have to shrink.
    Limited(u64),
}

/// How long a program may take, s: only one that hangs is ended. Its own alarms, in `check.h`, come before it.
pub const PATIENCE_S: &str = "600";

/// Four GiB of address space: less than the heap would like to reserve.
pub const LIMITED: Mode = Mode::Limited(4 << 20);

/// Makes a module of three tests, one for each mode, of a function that takes one.
#[macro_export]
macro_rules! in_all_modes {
    ($($name:ident)*) => {$(
        mod $name {
            #[test]
            fn plain() {
                super::$name($crate::common::Mode::Plain);
            }
            #[test]
            fn no_rseq() {
                super::$name($crate::common::Mode::NoRseq);
            }
            #[test]
            fn limited() {
                super::$name($crate::common::LIMITED);
            }
        }
    )*};
}

/// Makes tests in all modes of programs in C that are to pass: a test's name, its program, and that one's arguments.
#[macro_export]
macro_rules! passing {
    ($($(#[$about:meta])* $name:ident: $program:literal $(, $argument:literal)*;)*) => {
        $(
            $(#[$about])*
            fn $name(mode: $crate::common::Mode) {
                $crate::common::passes($crate::common::Kind::C, $program, &[$($argument),*], mode);
            }
        )*
        $crate::in_all_modes! { $($name)* }
    };
}

/// How a program is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    C,
    Cxx,
    /// A shared library in C, to be opened or preloaded by a program.
    CLibrary,
    /// One that asks to be initialised before all others, and preloaded after another of that kind is.
    CLibraryFirst,
    CxxLibrary,
}

/// Runs a program under the library and demands success.
pub fn passes(kind: Kind, name: &str, arguments: &[&str], mode: Mode) {
    passes_with(kind, name, arguments, mode, &[]);
}

/// [`passes`] with further variables in the program's environment.
pub fn passes_with(kind: Kind, name: &str, arguments: &[&str], mode: Mode, extra: &[(&str, OsString)]) {
    let Some(program) = compile(kind, name) else { return };
    succeeded(&format!("{name} {arguments:?} {extra:?} in mode {mode:?}"), &run(&program, arguments, mode, extra));
}

/// Demands that a program ended well. Whether it did what it is for: it may have skipped, which is said.
#[track_caller]
pub fn succeeded(what: &str, output: &Output) -> bool {
    if weir_testing::program_skipped(what, output) {
        return false;
    }
    assert!(output.status.success(), "{what}: {}", describe(output));
    true
}

/// Runs the program NAME with each of these arguments, at the same time: for programs that mostly sleep.
pub fn all_pass(kind: Kind, name: &str, arguments: &[&str], mode: Mode) {
    // Under the test's name, by which a skip is said.
    let test = std::thread::current().name().unwrap_or("main").to_owned();
    std::thread::scope(|scope| {
        for argument in arguments {
            let thread = std::thread::Builder::new().name(test.clone());
            thread.spawn_scoped(scope, || passes(kind, name, &[argument], mode)).expect("a thread");
        }
    });
}

/// How much of a race is run, as a string: all of it where the heap is as programs have it, half where it does without
/// restartable sequences, a quarter where only its reservations are smaller.
pub fn share(all: u32, mode: Mode) -> String {
    match mode {
        Mode::Plain => all.to_string(),
        Mode::NoRseq => all.div_ceil(2).to_string(),
        Mode::Limited(_) => all.div_ceil(4).to_string(),
    }
}

/// Runs a compiled program under the library; `extra` are further variables of its environment, and
/// `ALSO_PRELOAD` and `PRELOAD_BEFORE` are libraries after and before it.
pub fn run(program: &Path, arguments: &[&str], mode: Mode, extra: &[(&str, OsString)]) -> Output {
    run_under(library(), program, arguments, mode, extra)
}

/// Runs a compiled program under this library, or under none.
pub fn run_under(
    library: Option<&Path>,
    program: &Path,
    arguments: &[&str],
    mode: Mode,
    extra: &[(&str, OsString)],
) -> Output {
    let mut preload = OsString::new();
    let mut command = Command::new("timeout");
    // The shell sets the limit and then becomes the program, so that only the program is preloaded.
    command.args(["-k", "5", PATIENCE_S, "sh", "-c"]);
    let limit = if let Mode::Limited(kib) = mode { format!("ulimit -v {kib}; ") } else { String::new() };
    command.arg(format!("{limit}LD_PRELOAD=$WEIR_PRELOAD exec \"$0\" \"$@\""));
    command.arg(program).args(arguments);
    if let Some(library) = library {
        preload.push(library);
        command.env("EXPECT_WEIR", if env::var_os("WEIR_TEST_LIBRARY").is_some() { "0" } else { "1" });
    }
    for (name, value) in extra {
        match *name {
            "ALSO_PRELOAD" => {
                preload.push(":");
                preload.push(value);
            }
            "PRELOAD_BEFORE" => {
                let weir = std::mem::replace(&mut preload, value.clone());
                preload.push(":");
                preload.push(weir);
            }
            _ => {
                command.env(name, value);
            }
        }
    }
    if mode == Mode::NoRseq {
        command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    }
    command.env("WEIR_PRELOAD", preload);
    command.output().expect("timeout and sh are there")
}

/// Whether a run ended by the signal, which `timeout` reports as its own or by its exit code.
pub fn ended_by(output: &Output, signal: i32) -> bool {
    output.status.signal() == Some(signal) || output.status.code() == Some(128 + signal)
}

/// Text of what a failed run says.
pub fn describe(output: &Output) -> String {
    format!(
        "{}{}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        output.status.signal().map(|signal| format!(" (signal {signal})")).unwrap_or_default(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Whether the tests run on the C library's own malloc, where Weir's own messages cannot be expected.
pub fn foreign() -> bool {
    env::var_os("WEIR_TEST_LIBRARY").is_some()
}

/// The library under test.
pub fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| match env::var_os("WEIR_TEST_LIBRARY") {
            Some(name) if name == "system" => None,
            Some(path) => Some(path.into()),
            None => Some(weir_testing::build_library()),
        })
        .as_deref()
}

/// The library as it is installed: the one that `WEIR_TEST_RELEASE` names. Else it is what a release build left, if that is
/// newer than each file that it is made of. None otherwise, which is said: a build takes minutes, and is no test's to make.
pub fn optimised() -> Option<PathBuf> {
    if foreign() {
        weir_testing::skip!("another library is under test");
        return None;
    }
    if let Some(path) = env::var_os("WEIR_TEST_RELEASE") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "WEIR_TEST_RELEASE: there is no {}", path.display());
        return Some(path);
    }
    if env::var_os("WEIR_TEST_PROFILE").is_some_and(|profile| profile == "release") {
        return library().map(Path::to_owned);
    }
    let executable = env::current_exe().expect("a running test has a path");
    // target/PROFILE/deps/this-test
    let target = executable.ancestors().nth(3).expect("tests run from target/PROFILE/deps");
    let (library, manifest) = (target.join("release/libweir.so"), Path::new(env!("CARGO_MANIFEST_DIR")));
    let root = manifest.ancestors().nth(2).expect("the crates lie in one folder of the workspace");
    let parts = [
        "Cargo.toml",
        "Cargo.lock",
        "crates/weir-core/src",
        "crates/weir-linux/src",
        "crates/weir/src",
        "crates/weir-malloc/src",
    ];
    let newest = parts.iter().filter_map(|part| newest(&root.join(part))).max();
    let built = modified(&library);
    if built.is_none() || built < newest {
        let why = if built.is_none() { "there is no" } else { "older than its source is" };
        weir_testing::skip!("{why} {}: cargo build --release -p weir-malloc", library.display());
        return None;
    }
    Some(library)
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// When the newest file at or below a path was modified.
fn newest(path: &Path) -> Option<SystemTime> {
    let Ok(entries) = std::fs::read_dir(path) else { return modified(path) };
    entries.filter_map(|entry| newest(&entry.ok()?.path())).max()
}

/// Compiles a program of this test's `c` or `cxx` folder once; none if this machine has no compiler, which is said. Other programs
/// are compiled meanwhile.
pub fn compile(kind: Kind, name: &str) -> Option<PathBuf> {
    type Compiled = Arc<OnceLock<Option<PathBuf>>>;
    static DONE: Mutex<BTreeMap<String, Compiled>> = Mutex::new(BTreeMap::new());
    let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let compiled = done.entry(name.to_owned()).or_default().clone();
    drop(done);
    compiled.get_or_init(|| compile_now(kind, name)).clone()
}

fn compile_now(kind: Kind, name: &str) -> Option<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = manifest.join("tests");
    let (compiler, standard, folder) = match kind {
        Kind::C | Kind::CLibrary | Kind::CLibraryFirst => ("cc", "-std=gnu11", "c"),
        Kind::Cxx | Kind::CxxLibrary => ("g++", "-std=c++17", "cxx"),
    };
    // A name with a folder is another test program's.
    let own = tests.join(env!("CARGO_CRATE_NAME")).join(folder);
    let source = if name.contains('/') { tests.join(name) } else { own.join(name) };
    // Processes of one test run may compile the same file: each to a name of its own, and the last rename wins.
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace(['.', '/'], "_"));
    let unique = output.with_extension(std::process::id().to_string());
    let mut command = Command::new(compiler);
    // Without builtins the compiler may neither drop an allocation nor reason about what malloc returns.
    command.args([standard, "-O1", "-g", "-fno-builtin", "-pthread", "-w", "-I"]);
    command.arg(manifest.join("include")).arg("-I").arg(tests.join("common")).arg(&source).arg("-o").arg(&unique);
    if matches!(kind, Kind::CLibrary | Kind::CLibraryFirst | Kind::CxxLibrary) {
        command.args(["-shared", "-fPIC"]);
        if kind == Kind::CLibraryFirst {
            command.arg("-Wl,-z,initfirst");
        }
    } else {
        command.args(["-rdynamic", "-ldl"]);
    }
    match command.output() {
        Err(error) => {
            weir_testing::skip!("{name} needs the compiler {compiler} ({error}); Debian has it in build-essential");
            None
        }
        Ok(result) => {
            assert!(result.status.success(), "compiling {name}: {}", describe(&result));
            std::fs::rename(&unique, &output).expect("the target directory can be written");
            Some(output)
        }
    }
}
