//! Huge pages behind the heap of a program that asks for them (`huge_heap`), where the system gives them when asked.

use crate::common::{Kind, Mode, compile, foreign, run, succeeded};
use std::path::{Path, PathBuf};

/// The program, where the system gives huge pages to those who ask.
fn program() -> Option<PathBuf> {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !mode.contains("[madvise]") || foreign() {
        weir_testing::skip!("needs the library, and huge pages that are `madvise` (mode: {})", mode.trim());
        return None;
    }
    compile(Kind::C, "huge_heap.c")
}

/// The numbers that it says; none where there are no huge pages, which is said.
fn said(program: &Path, arguments: &[&str], at_start: &str) -> Vec<i64> {
    // A heap that grows dense asks by itself.
    let settings = [("WEIR_HUGE_HEAP", at_start.into()), ("WEIR_HUGE_BLOCKS", "0".into())];
    let output = run(program, arguments, Mode::Plain, &settings);
    if !succeeded("huge_heap.c", &output) {
        return Vec::new();
    }
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn the_heap_is_in_huge_pages_while_it_asks() {
    let Some(program) = program() else { return };
    for (at_start, first) in [("1", true), ("0", false)] {
        let parts = said(&program, &[], at_start);
        if parts.is_empty() {
            return;
        }
        // Of 48 MiB. A part ends in the pageblock in which the next one begins, and the machine may be out of huge pages for a
        // moment.
        let are_huge: Vec<bool> = parts.iter().map(|&kib| kib > 24 << 10).collect();
        assert_eq!(are_huge, [first, false, true], "{parts:?} KiB with {at_start} at the start");
    }
}

#[test]
fn a_program_that_switches_huge_pages_off_gets_its_free_pages_released() {
    let Some(program) = program() else { return };
    // It waits until a quarter is released.
    let [peak] = said(&program, &["off"], "1")[..] else { panic!("a number") };
    assert!(peak > 60_000, "{peak} KiB at the peak");
}

#[test]
fn where_the_machine_switches_huge_pages_off_free_pages_are_released() {
    let Some(program) = program() else { return };
    let said = said(&program, &["mode"], "0");
    assert!(said.first().is_none_or(|&peak| peak > 60_000), "{said:?} KiB at the peak");
}
