//! The end of memory is an answer, not an accident.

mod common;
use common::{Kind, Mode, compile, passes, run, succeeded};

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
