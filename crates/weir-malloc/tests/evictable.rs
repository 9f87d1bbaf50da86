//! `weir.h`'s evictable caches, as a C program sees them.

mod common;
use common::{Kind, Mode, passes};

fn evictable(mode: Mode) {
    passes(Kind::C, "evictable.c", &[], mode);
}

in_all_modes! { evictable }
