//! Weir's lines go to standard error or to a log, and never into a file or a connection that has number 2 by then.

use crate::common::{Kind, Mode, compile, foreign, run, succeeded};

#[test]
fn what_has_number_two_by_then_gets_a_line_only_if_it_is_a_log() {
    if foreign() {
        weir_testing::skip!("the lines are Weir's");
        return;
    }
    let Some(program) = compile(Kind::C, "standard_error.c") else { return };
    for which in
        ["data", "log", "same", "pipe", "unread", "full", "connection", "journal", "own-data", "own-log", "alone"]
    {
        let output = run(&program, &[which], Mode::Plain, &[("WEIR_ABORT_ON_MISUSE", "0".into())]);
        succeeded(&format!("standard_error.c {which}"), &output);
    }
}
