//! The figures of a C program against what it holds and what the kernel counts: `weir_usage`, `mallinfo2`, `weir_ctl`.

mod common;
use common::{Kind, LIMITED, Mode, compile, run, succeeded};

/// With huge pages as the machine has them, and without any: with restartable sequences, without, and in little address
/// space.
#[test]
fn the_parts_add_up_to_what_is_resident() {
    let Some(program) = compile(Kind::C, "figures.c") else { return };
    for arguments in [&[][..], &["no huge pages"]] {
        for mode in [Mode::Plain, Mode::NoRseq, LIMITED] {
            succeeded(&format!("figures.c {arguments:?} in mode {mode:?}"), &run(&program, arguments, mode, &[]));
        }
    }
}
