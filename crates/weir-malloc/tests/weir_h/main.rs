//! `weir.h` as C programs see it: object caches, page pools, zones, evictable caches, shrinkers, and blocks that a program moves.

#[path = "../common/mod.rs"]
mod common;
mod header;
mod object_caches;
mod page_pools;
mod shrinkers;

use common::{Kind, Mode, all_pass, passes};

passing! {
    caches: "caches.c";
    evictable: "evictable.c";
    moves: "moves.c";
    moving: "moving.c";
    refused_finalizer: "refused_fini.c";
    settings_and_figures_by_name: "ctl.c";
    zones: "zones.c";
}

/// A thread that is cancelled in a callback leaves nothing behind that others wait for.
#[test]
fn a_thread_is_cancelled_in_a_callback() {
    all_pass(Kind::C, "cancelled.c", &["ctor", "dtor", "init", "fini", "on_evict", "scan"], Mode::Plain);
}

/// A locked zone that the kernel refuses costs caches nothing.
#[test]
fn a_locked_zone_that_cannot_be() {
    passes(Kind::C, "locked.c", &[], Mode::Plain);
}
