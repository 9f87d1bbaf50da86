//! Programs with a sanitizer, which has a malloc of its own, under the preloaded library.

use crate::common::{describe, foreign, library};
use std::path::Path;
use std::process::Command;

/// The program runs as without the library, says so if the library had to go, and is not watched less.
fn runs(flags: &[&str], goes: bool) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surroundings/c/sanitized.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sanitized{}", flags.concat().replace('=', "_")));
    let compiler =
        Command::new("cc").args(flags).args(["-g", "-O1", "-pthread", "-o"]).arg(&program).arg(source).output();
    match compiler {
        Ok(output) if output.status.success() => {}
        _ => return weir_testing::skip!("no compiler with {flags:?}; Debian has them in gcc"),
    }
    let Some(library) = library().filter(|_| !foreign()) else {
        return weir_testing::skip!("the C library steps aside by itself");
    };
    let run = |preload: &Path| {
        let mut command = Command::new("timeout");
        command.args([crate::common::PATIENCE_S, "env"]).arg(format!("LD_PRELOAD={}", preload.display()));
        // Where a sanitizer cannot see other threads' registers (a container without ptrace) it finds no leaks, but fails.
        command.env("SAID", "this").env("ASAN_OPTIONS", "detect_leaks=0").env("LSAN_OPTIONS", "detect_leaks=0");
        command.arg(&program).args(["one", "two words"]).output().expect("timeout and env are there")
    };
    let (plain, preloaded) = (run(Path::new("")), run(library));
    if !plain.status.success() {
        return weir_testing::skip!("{flags:?} does not run here: {}", describe(&plain));
    }
    assert!(preloaded.status.success(), "{flags:?}: {}", describe(&preloaded));
    assert_eq!(preloaded.stdout, plain.stdout, "{flags:?}: {}", describe(&preloaded));
    let said = String::from_utf8_lossy(&preloaded.stderr);
    assert_eq!(said.contains("runs without Weir"), goes, "{flags:?}: {said}");
    assert_eq!(said.lines().count(), usize::from(goes), "{flags:?}: {said}");
}

#[test]
fn threads() {
    runs(&["-fsanitize=thread"], true);
}

#[test]
fn addresses() {
    runs(&["-fsanitize=address"], true);
}

#[test]
fn leaks() {
    runs(&["-fsanitize=leak"], true);
}

#[test]
fn behaviour() {
    runs(&["-fsanitize=undefined"], false);
}

/// Their malloc is the program's, and comes first by itself.
#[test]
fn linked_into_the_program() {
    runs(&["-fsanitize=thread", "-static-libtsan"], false);
    runs(&["-fsanitize=address", "-static-libasan"], false);
}
