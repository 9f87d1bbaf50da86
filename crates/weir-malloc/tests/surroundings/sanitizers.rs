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
    // The program, or a copy that is open and has no name any more.
    const NAMELESS: &str =
        r#"cp "$0" "$0.copy" && exec 9<"$0.copy" && rm "$0.copy" && LD_PRELOAD=$THEN exec /proc/self/fd/9 "$@""#;
    let run = |preload: &Path, is_nameless: bool| {
        let mut command = Command::new("timeout");
        command.arg(crate::common::PATIENCE_S);
        match is_nameless {
            true => command.args(["sh", "-c", NAMELESS]).env("THEN", preload),
            false => command.arg("env").arg(format!("LD_PRELOAD={}", preload.display())),
        };
        // Where a sanitizer cannot see other threads' registers (a container without ptrace) it finds no leaks, but fails.
        command.env("SAID", "this").env("ASAN_OPTIONS", "detect_leaks=0").env("LSAN_OPTIONS", "detect_leaks=0");
        command.arg(&program).args(["one", "two words"]).output().expect("timeout and env are there")
    };
    let plain = run(Path::new(""), false);
    if !plain.status.success() {
        return weir_testing::skip!("{flags:?} does not run here: {}", describe(&plain));
    }
    for is_nameless in [false, true] {
        let preloaded = run(library, is_nameless);
        let about = format!("{flags:?}, without a name: {is_nameless}: {}", describe(&preloaded));
        assert!(preloaded.status.success(), "{about}");
        assert_eq!(preloaded.stdout, plain.stdout, "{about}");
        let said = String::from_utf8_lossy(&preloaded.stderr);
        assert_eq!(said.contains("runs without Weir"), goes, "{about}");
        assert_eq!(said.lines().count(), usize::from(goes), "{about}");
    }
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
