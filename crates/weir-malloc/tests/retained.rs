//! Memory that stays resident after a peak, and live after a long churn.

mod common;
use common::{Kind, Mode, passes};

fn a_peak_leaves_nothing_behind(mode: Mode) {
    passes(Kind::C, "retained.c", &[], mode);
}

fn a_long_churn_leaves_nothing_behind(mode: Mode) {
    passes(Kind::C, "churn.c", &[], mode);
}

in_all_modes! { a_peak_leaves_nothing_behind a_long_churn_leaves_nothing_behind }
