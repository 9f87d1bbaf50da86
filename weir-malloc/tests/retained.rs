//! What stays resident after a peak.

mod common;
use common::{Kind, Mode, passes};

fn a_peak_leaves_nothing_behind(mode: Mode) {
    passes(Kind::C, "retained.c", &[], mode);
}

in_all_modes! { a_peak_leaves_nothing_behind }
