//! What stays resident after a peak, and live after a long churn.

use crate::common::{Kind, Mode, compile, passes, run, succeeded};
use crate::passing;

passing! {
    a_peak_leaves_nothing_behind: "retained.c";
    a_long_churn_leaves_nothing_behind: "churn.c";
}

#[test]
fn one_large_block_of_a_small_process_goes() {
    passes(Kind::C, "at_rest.c", &["block"], Mode::Plain);
}

#[test]
fn what_is_cut_off_a_large_block_goes() {
    passes(Kind::C, "at_rest.c", &["end"], Mode::Plain);
}

#[test]
fn what_a_parent_had_idle_goes_in_its_child_too() {
    passes(Kind::C, "at_rest.c", &["child"], Mode::Plain);
}

/// Moved to a control group with a limit, a process releases what is idle as it comes near the limit.
#[test]
fn moved_to_another_group() {
    let Some(program) = compile(Kind::C, "moved.c") else { return };
    let output = run(&program, &[], Mode::Plain, &[("WEIR_IDLE_MS", "60000".into())]);
    succeeded("moved.c", &output);
}

/// Beside a full evictable cache a program takes blocks, runs and pages of a zone, and the kernel does not kill it.
#[test]
fn what_is_taken_beside_a_full_cache() {
    for kind in ["blocks", "runs", "zone"] {
        passes(Kind::C, "beside_cache.c", &[kind], Mode::Plain);
    }
}
