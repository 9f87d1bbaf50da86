//! Limits: the system's are met as well as the C library meets them, and beyond `WEIR_HARD_LIMIT` allocations fail with ENOMEM.
//! The end of memory is an answer, not an accident.

use crate::common::{Kind, Mode, compile, describe, passes, run, succeeded};

fn met(limit: &str) {
    for mode in [Mode::Plain, Mode::NoRseq] {
        let Some(program) = compile(Kind::C, "limits.c") else { return };
        let output = run(&program, &[limit], mode, &[]);
        if !weir_testing::program_skipped("limits.c", &output) {
            assert!(output.status.success(), "limits.c {limit} in mode {mode:?}: {}", describe(&output));
        }
    }
}

#[test]
fn sizes_beyond_all_memory_are_null() {
    met("beyond");
}

#[test]
fn a_filled_and_freed_heap_serves_large_blocks_under_rlimit_as() {
    met("as");
}

#[test]
fn a_filled_and_freed_heap_serves_large_blocks_under_rlimit_data() {
    met("data");
}

#[test]
fn a_freed_heap_leaves_its_addresses_to_the_program_under_rlimit_as() {
    met("others-as");
}

#[test]
fn a_freed_heap_leaves_its_addresses_to_the_program_under_rlimit_data() {
    met("others-data");
}

#[test]
fn a_process_that_has_allocated_can_be_locked() {
    met("lock");
}

#[test]
fn a_process_that_locks_all_that_it_maps_has_little_mapped_ahead() {
    met("future");
}

/// The limit is there from the start: the heap reserves less.
#[test]
fn limited_from_the_start() {
    passes(Kind::C, "no_memory.c", &[], Mode::Limited(500 << 10));
}

/// The limit comes when the heap has reserved its address space already.
#[test]
fn limited_later() {
    let Some(program) = compile(Kind::C, "no_memory.c") else { return };
    let output = run(&program, &[], LATER, &[("TIGHT", "1".into())]);
    succeeded("limited later", &output);
}

const LATER: Mode = Mode::Limited(4 << 20);

/// Runs a program with a hard limit of 32 MiB.
fn at(mode: Mode, background: &str) {
    let Some(program) = compile(Kind::C, "hard_limit.c") else { return };
    let limit = (32 << 20).to_string();
    let environment = [("WEIR_HARD_LIMIT", limit.into()), ("WEIR_BACKGROUND", background.into())];
    let output = run(&program, &[], mode, &environment);
    succeeded(&format!("background {background}"), &output);
}

#[test]
fn every_way_to_get_memory_ends_in_enomem() {
    at(Mode::Plain, "1");
    at(Mode::NoRseq, "1");
}

#[test]
fn so_it_does_without_a_background_thread() {
    at(Mode::Plain, "0");
    at(Mode::Plain, "2");
}
