//! The end of a process: it ends with its program's last thread, however that one ends.

mod common;
use common::{Kind, Mode, passes};

/// The kernel lists a thread as it ran for some microseconds after it has cleared what reports the thread's end.
#[test]
fn the_main_thread_ends_alone_as_weirs_begins() {
    passes(Kind::C, "main_exits.c", &[], Mode::Plain);
}
