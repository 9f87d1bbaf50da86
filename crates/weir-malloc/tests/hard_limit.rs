//! Beyond `WEIR_HARD_LIMIT` allocations fail with ENOMEM, and the program lives.

mod common;
use common::{Kind, Mode, compile, run, succeeded};

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
