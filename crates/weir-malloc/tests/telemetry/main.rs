//! What can be seen of a program: its figures, its statistics file, its heap profile, and probes for tracers. The figures of
//! `weir_usage`, `mallinfo2` and `weir_ctl` are held against what the program holds and what the kernel counts.

#[path = "../common/mod.rs"]
mod common;
mod memory_probes;
mod profile;
mod statistics;

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
