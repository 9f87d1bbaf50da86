//! `weir.h`'s shrinkers and subscribers to memory pressure, as C and C++ programs see them.

use crate::common::{Kind, Mode, compile, describe, passes, run, succeeded};
use crate::in_all_modes;

fn plain(mode: Mode) {
    passes(Kind::C, "shrinkers.c", &["plain"], mode);
}

fn one_does_not_return(mode: Mode) {
    passes(Kind::C, "shrinkers.c", &["stuck"], mode);
}

fn one_unregisters_itself(mode: Mode) {
    passes(Kind::C, "shrinkers.c", &["self"], mode);
}

fn the_programs_own_thread_serves(mode: Mode) {
    passes(Kind::C, "shrinkers.c", &["queue"], mode);
}

fn a_queue_is_destroyed_in_use(mode: Mode) {
    passes(Kind::C, "shrinkers.c", &["destroyed"], mode);
}

fn pressure_and_relief(mode: Mode) {
    passes(Kind::C, "shrinkers.c", &["pressure"], mode);
}

fn forked_children(mode: Mode) {
    passes(Kind::C, "shrinkers.c", &["forked"], mode);
}

fn wrong_arguments(mode: Mode) {
    passes(Kind::C, "shrinkers.c", &["refused"], mode);
}

in_all_modes! {
    plain one_does_not_return one_unregisters_itself the_programs_own_thread_serves a_queue_is_destroyed_in_use
    pressure_and_relief forked_children wrong_arguments
}

/// A thread of Weir's that has just been made is not taken for the program's last one.
#[test]
fn the_programs_last_thread_ends_while_threads_for_callbacks_begin() {
    passes(Kind::C, "last_thread.c", &[], Mode::Plain);
}

/// An exception that is thrown ends before it reaches a frame of Weir's.
#[test]
fn an_exception_disables_one_and_is_named() {
    let Some(program) = compile(Kind::Cxx, "throws.cpp") else { return };
    let output = run(&program, &[], Mode::Plain, &[]);
    if !succeeded("throws.cpp", &output) {
        return;
    }
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("weir: the callback \"bad\" panicked"), "{}", describe(&output));
    assert_eq!(message.matches("panicked").count(), 1);
}
