//! Messages of the library about an environment that it does not understand.

use crate::common::{Mode, foreign, run};
use std::ffi::OsString;
use std::path::Path;

/// The text that `sh -c script` and its children say on standard error, under the library.
fn said(script: &str, variables: &[(&str, &str)]) -> Option<Vec<String>> {
    if foreign() {
        weir_testing::skip!("the messages are Weir's");
        return None;
    }
    let variables: Vec<(&str, OsString)> = variables.iter().map(|&(name, value)| (name, value.into())).collect();
    let output = run(Path::new("/bin/sh"), &["-c", script], Mode::Plain, &variables);
    assert!(output.status.success(), "{}", crate::common::describe(&output));
    Some(String::from_utf8_lossy(&output.stderr).lines().map(str::to_owned).collect())
}

#[test]
fn a_name_that_is_none() {
    let Some(lines) = said("true", &[("WEIR_LIMTI", "1G"), ("WEIR_NOTHING_LIKE_IT", "1"), ("WEIR_TEST_OWN", "1")])
    else {
        return;
    };
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("WEIR_LIMTI") && line.contains("WEIR_LIMIT?")), "{lines:?}");
    assert!(
        lines.iter().any(|line| line.contains("WEIR_NOTHING_LIKE_IT") && line.contains("weir settings")),
        "{lines:?}"
    );
}

/// A build has thousands of processes: the first says it.
#[test]
fn children_are_silent() {
    let script = "for i in 1 2 3; do /bin/true; /bin/sh -c '/bin/true; /bin/true'; done";
    let Some(lines) = said(script, &[("WEIR_LIMTI", "1G")]) else { return };
    assert_eq!(lines.len(), 1, "{lines:?}");
    // Set by the program itself, it is new to its children.
    let lines = said("export WEIR_LIMTI=1; /bin/true; /bin/true", &[]).unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn children_are_silent_about_values() {
    let script = "for i in 1 2 3; do /bin/true; /bin/sh -c '/bin/true; /bin/true'; done";
    let Some(lines) = said(script, &[("WEIR_IDLE_MS", "5"), ("WEIR_CHECK", "often"), ("WEIR_BACKGROUND", "2")]) else {
        return;
    };
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("WEIR_BACKGROUND=2")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("WEIR_IDLE_MS=5")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("WEIR_CHECK=often")), "{lines:?}");
}

/// A shell hands variables on in any order: long ones lie before and after the others.
#[test]
fn children_of_large_environments_are_silent() {
    let (long, longer) = ("x".repeat(5_000), "x".repeat(9_000));
    let script = "for i in 1 2 3; do /bin/true; /bin/sh -c '/bin/true; /bin/true'; done";
    let mut variables = vec![("WEIR_LIMTI", "1G"), ("WEIR_IDLE_MS", "5")];
    variables.extend(["A", "E", "I", "O"].map(|name| (name, &*long)));
    variables.extend(["B", "F", "K", "Z"].map(|name| (name, &*longer)));
    let Some(lines) = said(script, &variables) else { return };
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn a_watch_that_cannot_be_used() {
    for (watch, lines_said) in
        [("/no/such/file", 1), ("/dev/zero", 1), ("relative", 1), ("/dev/null", 0), ("", 0), ("/proc/self/stat", 0)]
    {
        let Some(lines) = said("/bin/true", &[("MEMORY_PRESSURE_WATCH", watch)]) else { return };
        assert_eq!(lines.len(), lines_said, "{watch}: {lines:?}");
        assert!(lines.iter().all(|line| line.contains("MEMORY_PRESSURE_WATCH")), "{watch}: {lines:?}");
    }
}
