//! How much of the caller's stack `malloc`, `free` and `realloc` use, on each slow path: the figures in
//! docs/design/being-malloc.md.
//!
//! Only an optimised library tells: `WEIR_TEST_RELEASE=/path/to/libweir.so` names one.

use crate::common::{Kind, compile, describe};
use std::ffi::{OsStr, OsString};
use std::process::Command;

/// The paths of `stack_use.c`. Each may come to reclaim by itself, where memory is short or the background thread gets no CPU. So
/// one bound, in bytes, holds for all. It is what docs/design/being-malloc.md asks of signal stacks and coroutines.
const PATHS: [&str; 7] = ["objects", "runs", "mapped", "grown", "limited", "hard", "trimmed"];
const MOST: usize = 4608;
/// Settings with which an allocation is sampled or guarded, and its stack is walked, and the bound with these.
const WATCHED: [&[(&str, &str)]; 2] =
    [&[("WEIR_PROFILE_BYTES", "1"), ("WEIR_PROFILE_PERCENT", "0")], &[("WEIR_GUARD_EVERY", "1")]];
const MOST_WATCHED: usize = 6144;

fn optimised() -> Option<OsString> {
    let library = std::env::var_os("WEIR_TEST_RELEASE");
    if library.is_none() {
        weir_testing::skip!(
            "WEIR_TEST_RELEASE names no optimised library, and one without optimisation takes more stack"
        );
    }
    library
}

/// Up to 8 KiB of the first thread's stack are left out by chance: each start is another one.
#[test]
fn a_program_starts_on_a_small_stack() {
    let Some(library) = optimised() else { return };
    let starts = |preload: &OsStr| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -s 16; LD_PRELOAD=$0 exec true"]).arg(preload).env_clear();
        (0..40).filter(|_| command.status().expect("sh is there").success()).count()
    };
    if starts(OsStr::new("")) < 40 {
        return weir_testing::skip!("no program starts on a stack of 16 KiB here");
    }
    assert_eq!(starts(&library), 40);
}

#[test]
fn stack_of_each_path() {
    let Some(library) = optimised() else { return };
    let Some(program) = compile(Kind::C, "stack_use.c") else { return };
    for path in PATHS {
        let plain = [("1", MOST, &[][..]), ("0", MOST, &[][..])];
        let watched = WATCHED.map(|settings| ("1", MOST_WATCHED, settings));
        for (background, most, settings) in plain.into_iter().chain(watched) {
            let mut command = Command::new("timeout");
            command.args(["200", "env"]).arg(&program).arg(path);
            // The dynamic linker's own stack is not counted.
            command.env("LD_BIND_NOW", "1").env("LD_PRELOAD", &library).env("WEIR_BACKGROUND", background);
            command.envs(settings.iter().copied());
            if path == "hard" {
                command.env("WEIR_HARD_LIMIT", "100M");
            }
            let output = command.output().expect("timeout is there");
            assert!(output.status.success(), "{path}: {}", describe(&output));
            let used: usize = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
            println!("{path}, background {background}, {settings:?}: {used} bytes of stack");
            assert!(
                used <= most,
                "{path}, background {background}, {settings:?}: {used} bytes of stack, more than {most}"
            );
        }
    }
}
