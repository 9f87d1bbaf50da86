//! `weir.h` as C programs see it: object caches, page pools, zones, evictable caches, shrinkers, and blocks that a program moves.

#[path = "../common/mod.rs"]
mod common;
mod header;
mod object_caches;
mod page_pools;
mod shrinkers;

use common::{Kind, Mode, passes};

fn caches(mode: Mode) {
    passes(Kind::C, "caches.c", &[], mode);
}

fn evictable(mode: Mode) {
    passes(Kind::C, "evictable.c", &[], mode);
}

fn moves(mode: Mode) {
    passes(Kind::C, "moves.c", &[], mode);
}

fn moving(mode: Mode) {
    passes(Kind::C, "moving.c", &[], mode);
}

fn settings_and_figures_by_name(mode: Mode) {
    passes(Kind::C, "ctl.c", &[], mode);
}

fn zones(mode: Mode) {
    passes(Kind::C, "zones.c", &[], mode);
}

/// A locked zone that the kernel refuses costs caches nothing.
#[test]
fn a_locked_zone_that_cannot_be() {
    passes(Kind::C, "locked.c", &[], Mode::Plain);
}

in_all_modes! { caches evictable moves moving settings_and_figures_by_name zones }
