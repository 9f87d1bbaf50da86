//! What else is in a process and around it: other libraries, sanitizers, sandboxes, a debugger.

mod changes;
#[path = "../common/mod.rs"]
mod common;
mod deepbind;
mod libraries;
mod sandboxes;
mod sanitizers;

use common::{Kind, Mode, compile, describe, run};

/// A debugger steps through the program.
#[test]
fn malloc_and_free_end_though_each_step_aborts_their_section() {
    let Some(program) = compile(Kind::C, "stepped.c") else { return };
    let output = run(&program, &[], Mode::Plain, &[]);
    if weir_testing::program_skipped("stepped.c", &output) {
        return;
    }
    assert!(output.status.success(), "{}", describe(&output));
}
