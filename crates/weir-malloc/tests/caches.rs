//! `weir.h`'s object caches, as a C program sees them.

mod common;
use common::{Kind, Mode, passes};

fn caches(mode: Mode) {
    passes(Kind::C, "caches.c", &[], mode);
}

in_all_modes! { caches }
