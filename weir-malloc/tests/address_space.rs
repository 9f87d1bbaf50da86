//! Blocks mapped on their own, and where in the address space they and the heap come to lie.

mod common;
use common::{Kind, Mode, compile, describe, passes, run};

/// The program gave the kernel advice on a part of a block, which made several mappings of one.
fn advised_blocks(mode: Mode) {
    passes(Kind::C, "advised.c", &[], mode);
}

/// mmap's area from a third of the address space upwards, as `setarch -L` has it.
fn legacy_layout(mode: Mode) {
    layout("legacy", mode);
}

/// mmap's area below a sixth of the address space (in old kernels, the legacy layout), as `ulimit -s unlimited` has it.
fn unlimited_stack(mode: Mode) {
    layout("stack", mode);
}

fn layout(name: &str, mode: Mode) {
    let Some(program) = compile(Kind::C, "layouts.c") else { return };
    let output = run(&program, &[name], mode, &[]);
    if output.status.code() == Some(77) {
        println!("SKIPPED: {}", String::from_utf8_lossy(&output.stdout).trim());
        return;
    }
    assert!(output.status.success(), "layouts.c {name} in mode {mode:?}: {}", describe(&output));
}

in_all_modes! { advised_blocks legacy_layout unlimited_stack }

/// Freed blocks are kept for the next; that may cost little at the peak.
#[test]
fn peaks() {
    for pattern in ["doubling", "doubling-in-turn", "eighths-in-turn", "bursts", "beside-a-sparse-table"] {
        passes(Kind::C, "peaks.c", &[pattern], Mode::Plain);
    }
}
