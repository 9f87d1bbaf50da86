//! Limits of the system are met as well as the C library meets them.

mod common;
use common::{Kind, Mode, compile, describe, run};

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
fn a_process_that_has_allocated_can_be_locked() {
    met("lock");
}
