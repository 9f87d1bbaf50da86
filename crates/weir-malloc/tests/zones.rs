//! `weir.h`'s zones, as a C program sees them.

mod common;
use common::{Kind, Mode, passes};

fn zones(mode: Mode) {
    passes(Kind::C, "zones.c", &[], mode);
}

in_all_modes! { zones }
