//! Processes of a frozen cgroup, which answer nothing: it is said at once, and what thaws them.

use crate::subject::{Freezer, says, steered, text, weir};
use serde_json::Value;
use std::fs;
use weir_testing::skip;

macro_rules! freezer {
    () => {
        match Freezer::new() {
            Some(freezer) => freezer,
            None => return skip!("this user cannot make a cgroup that freezes"),
        }
    };
}

/// What is said of the group: a kernel has one version or the other.
fn is_told(said: &str, freezer: &Freezer) -> bool {
    let group = freezer.directory.display();
    let thaws = [("THAWED", "freezer.state"), ("0", "cgroup.freeze")];
    thaws.iter().any(|(word, file)| {
        said.contains(&format!("frozen with the cgroup {group}: `echo {word} > {group}/{file}` thaws it"))
    })
}

#[test]
fn one_that_is_frozen_is_not_waited_for() {
    let Some(subject) = steered() else { return };
    let freezer = freezer!();
    freezer.freeze(&[subject.pid()]);
    let pid = subject.pid().to_string();
    for args in [&["ctl", &pid, "trim"][..], &["profile", &pid]] {
        let output = weir(args);
        let said = text(&output.stderr);
        let is_told = is_told(&said, &freezer) && said.lines().count() == 1;
        assert!(output.status.code() == Some(6) && is_told, "{args:?}: {said}");
    }
    // What it last measured is shown.
    for command in ["stat", "why"] {
        let report: Value = serde_json::from_str(&says(&[command, &pid, "--json"])).unwrap();
        let why = report["not_asked"].as_str().unwrap_or_default();
        assert!(why.starts_with("it is frozen") && is_told(why, &freezer), "{command}: {report}");
    }
}

/// A directory that is like a group of version 2, far above what it is to be below.
fn group(pids: &[u32]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let pids: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
    for (name, text) in [("memory.max", "max"), ("memory.current", "1073741824"), ("cgroup.procs", &pids)] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

#[test]
fn of_a_group_that_is_frozen_nobody_is_asked_for_memory() {
    let (Some(frozen), Some(other)) = (steered(), steered()) else { return };
    let freezer = freezer!();
    freezer.freeze(&[frozen.pid()]);
    let shrink = |group: &tempfile::TempDir| {
        weir(&["shrink", "--cgroup", group.path().to_str().unwrap(), "--to", "64M", "--json"])
    };
    let output = shrink(&group(&[frozen.pid()]));
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count(), output.stdout.len()), (Some(6), 1, 0), "{said}");
    assert!(is_told(&said, &freezer), "{said}");
    // The others are asked.
    let output = shrink(&group(&[frozen.pid(), other.pid()]));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |pid: u32| outcome["processes"].as_array().unwrap().iter().find(|it| it["pid"] == pid).unwrap();
    assert!(is_told(of(frozen.pid())["not_asked"].as_str().unwrap(), &freezer), "{outcome}");
    assert!(of(other.pid())["not_asked"].is_null(), "{outcome}");
}
