//! Seccomp filters of exactly the calls that docs/design/being-malloc.md lists, and the lack of each of them.

use crate::common::{self, Kind, Mode, compile, foreign, run, succeeded};
use crate::in_all_modes;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PROGRAM: &str = "every thread of the program";
const STARTER: &str = "besides, with `background` = 1";
const GUARDING: &str = "every thread of the program, with `guard_every`";
const BACKGROUND: &str = "besides, the background thread";

/// Calls without which libc's own functions in the test fail: nothing is Weir's to do about that.
const LIBCS: [&str; 5] = ["mmap", "futex", "exit", "munmap", "rseq"];
/// Calls that a kernel may not know, of those.
const NEW: [&str; 9] = [
    "process_madvise",
    "membarrier",
    "close_range",
    "eventfd2",
    "pidfd_open",
    "kcmp",
    "mincore",
    "clone",
    "futex_waitv",
];

/// The calls of the table's rows of these names.
fn listed(rows: &[&str]) -> Vec<String> {
    let design = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/being-malloc.md");
    let text = std::fs::read_to_string(design).expect("being-malloc.md lies beside the crates");
    let mut calls: Vec<String> = Vec::new();
    for row in rows {
        let start = format!("| {row} | ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        let line = line.unwrap_or_else(|| panic!("being-malloc.md has no row {row:?} under System calls"));
        calls.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    calls.sort();
    calls.dedup();
    calls
}

fn program() -> Option<PathBuf> {
    if foreign() {
        weir_testing::skip!("the lists are Weir's");
        return None;
    }
    compile(Kind::C, "strict.c")
}

fn passes(how: &str, rest_ms: u32, calls: &[String], background: &str) {
    passes_guarded(how, rest_ms, calls, background, "0");
}

/// Checks as [`passes`] does, with one allocation in `every` guarded.
fn passes_guarded(how: &str, rest_ms: u32, calls: &[String], background: &str, every: &str) {
    let Some(program) = program() else { return };
    let rest = rest_ms.to_string();
    let arguments: Vec<&str> = [how, &rest].into_iter().chain(calls.iter().map(String::as_str)).collect();
    // A limit below what the program uses is pressure, severe and without end.
    let extra =
        [("WEIR_BACKGROUND", background.into()), ("WEIR_LIMIT", "20M".into()), ("WEIR_GUARD_EVERY", every.into())];
    let output = run(&program, &arguments, Mode::Plain, &extra);
    succeeded(&format!("background={background} {arguments:?}"), &output);
}

fn one_of_the_programs_own(mode: Mode) {
    common::passes(Kind::C, "sandbox.c", &[], mode);
    common::passes(Kind::C, "sandbox.c", &["late"], mode);
}

in_all_modes! { one_of_the_programs_own }

/// The background thread is killed, as it begins and as it runs.
#[test]
fn memory_goes_back_though_the_thread_was_killed() {
    if foreign() {
        return weir_testing::skip!("it is Weir's thread");
    }
    common::passes(Kind::C, "sandbox.c", &["killed"], Mode::Plain);
    common::passes(Kind::C, "sandbox.c", &["killed-late"], Mode::Plain);
}

#[test]
fn without_the_thread_there_are_memory_calls_alone() {
    passes("before", 500, &listed(&[PROGRAM]), "0");
}

#[test]
fn guarding_makes_its_own_calls() {
    passes_guarded("before", 500, &listed(&[PROGRAM, GUARDING]), "0", "10");
}

/// Long enough for triggers to be armed.
#[test]
fn the_list_is_enough_for_the_thread_that_starts_under_it() {
    passes("before", 12_000, &listed(&[PROGRAM, STARTER, BACKGROUND]), "1");
}

#[test]
fn the_list_is_enough_for_the_thread_that_was_there() {
    passes("tsync", 2_000, &listed(&[PROGRAM, STARTER, BACKGROUND]), "1");
}

/// Each call in turn is refused, from before the thread is started: the results are right, and nothing spins.
fn refused(how: &str, calls: &[String]) {
    let next = AtomicUsize::new(0);
    // Most of its time a program rests, and several do so together.
    let work = || {
        while let Some(call) = calls.get(next.fetch_add(1, Relaxed)) {
            passes(how, 300, std::slice::from_ref(call), "1");
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn each_call_may_be_refused() {
    let calls = listed(&[PROGRAM, STARTER, BACKGROUND]);
    refused("refuse", &calls.into_iter().filter(|call| !LIBCS.contains(&call.as_str())).collect::<Vec<_>>());
}

#[test]
fn each_call_may_be_unknown() {
    refused("nosys", &NEW.map(str::to_owned));
}

/// The thread sleeps in that call as it is refused, by another number than filters mostly have.
#[test]
fn the_call_that_the_thread_sleeps_in_may_be_refused_later() {
    passes("refuse-late", 2_000, &["futex_waitv".to_owned()], "1");
}

/// What is said to be refused for now is not asked for again and again.
#[test]
fn advice_may_be_put_off_for_ever() {
    refused("again", &["madvise", "process_madvise"].map(str::to_owned));
}
