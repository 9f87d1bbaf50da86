//! Forks of signal handlers that interrupted a fork.

mod common;
use common::{Kind, Mode, compile, describe, run};

fn a_handler_forks_in_a_fork(mode: Mode) {
    let (Some(library), Some(program)) =
        (compile(Kind::CLibraryFirst, "fork_interrupts.c"), compile(Kind::C, "fork_in_fork.c"))
    else {
        return;
    };
    let output = run(&program, &[], mode, &[("ALSO_PRELOAD", library.into())]);
    assert!(output.status.success(), "in mode {mode:?}: {}", describe(&output));
}

in_all_modes! { a_handler_forks_in_a_fork }
