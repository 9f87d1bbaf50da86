//! Blocks that a C program moves by itself, as `weir.h` says.

mod common;
use common::{Kind, Mode, passes};

fn moving(mode: Mode) {
    passes(Kind::C, "moving.c", &[], mode);
}

in_all_modes! { moving }
