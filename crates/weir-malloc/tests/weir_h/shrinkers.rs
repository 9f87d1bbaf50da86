//! `weir.h`'s shrinkers and subscribers to memory pressure, as C and C++ programs see them.

use crate::common::{Kind, Mode, compile, describe, passes, run, succeeded};
use crate::passing;

passing! {
    plain: "shrinkers.c", "plain";
    one_does_not_return: "shrinkers.c", "stuck";
    the_only_one_does_not_return: "shrinkers.c", "stuck_alone";
    one_that_is_unregistered_asks_for_its_figures: "shrinkers.c", "asking";
    one_unregisters_itself: "shrinkers.c", "self";
    the_programs_own_thread_serves: "shrinkers.c", "queue";
    a_queue_is_destroyed_in_use: "shrinkers.c", "destroyed";
    pressure_and_relief: "shrinkers.c", "pressure";
    what_a_thread_takes_counts_at_once: "shrinkers.c", "growth";
    forked_children: "shrinkers.c", "forked";
    wrong_arguments: "shrinkers.c", "refused";
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
    for arguments in [&[][..], &["queue"]] {
        let output = run(&program, arguments, Mode::Plain, &[]);
        if !succeeded("throws.cpp", &output) {
            return;
        }
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains("weir: the callback \"bad\" panicked"), "{}", describe(&output));
        assert_eq!(message.matches("panicked").count(), 1);
    }
}
