//! `weir.h` as C programs see it: object caches, page pools, zones, evictable caches, shrinkers, and blocks that a program moves.

#[path = "../common/mod.rs"]
mod common;
mod header;
mod object_caches;
mod page_pools;
mod shrinkers;

use common::{Kind, Mode, passes};

passing! {
    caches: "caches.c";
    evictable: "evictable.c";
    moves: "moves.c";
    moving: "moving.c";
    refused_finalizer: "refused_fini.c";
    settings_and_figures_by_name: "ctl.c";
    zones: "zones.c";
}

/// A locked zone that the kernel refuses costs caches nothing.
#[test]
fn a_locked_zone_that_cannot_be() {
    passes(Kind::C, "locked.c", &[], Mode::Plain);
}
