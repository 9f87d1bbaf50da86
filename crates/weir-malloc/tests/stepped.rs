//! A program under a debugger that steps through it.

mod common;
use common::{Kind, Mode, compile, describe, run};

#[test]
fn malloc_and_free_end_though_each_step_aborts_their_section() {
    let Some(program) = compile(Kind::C, "stepped.c") else { return };
    let output = run(&program, &[], Mode::Plain, &[]);
    if weir_testing::program_skipped("stepped.c", &output) {
        return;
    }
    assert!(output.status.success(), "{}", describe(&output));
}
