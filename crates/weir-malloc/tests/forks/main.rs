//! Forks and spawns, also against locks, earlier handlers, and the forks of signal handlers.

#[path = "../common/mod.rs"]
mod common;
use common::{Kind, Mode, compile, describe, passes, passes_with, run, share, succeeded};

fn forks_and_spawns(mode: Mode) {
    passes(Kind::C, "forks.c", &[&share(150, mode)], mode);
}

#[test]
fn forks_of_a_heap_with_a_zone_a_cpu() {
    passes_with(Kind::C, "forks.c", &["40"], Mode::Plain, &[("WEIR_ZONE_CPUS", "1".into())]);
}

passing! {
    /// Of a program of one thread, beside the background thread.
    forks_of_one_thread: "fork_alone.c";
    /// Past the handlers: `_Fork`.
    forks_without_handlers: "fork_bare.c";
    fork_in_a_handler: "fork_in_handler.c";
    /// A child finalizes objects of its parent's caches without its parent's threads.
    a_child_gives_initialised_objects_back: "fork_fini.c";
    /// No mapping is left for a child to replace its parent's counters by.
    as_many_mappings_as_may_be: "many_mappings.c";
}

/// By libc's `clone`, past `fork`.
fn copies_by_clone(mode: Mode) {
    passes(Kind::C, "clones.c", &[&share(12, mode)], mode);
}

/// Threads allocate under locks that `fork` takes, libc's and a program's.
fn fork_against_locks(mode: Mode) {
    for which in ["flush", "memory", "lines", "pipes", "names", "early", "late"] {
        passes(Kind::C, "fork_locks.c", &[which, &share(600, mode)], mode);
    }
}

/// Handlers that were registered before Weir's take a lock under which other threads allocate.
fn fork_against_earlier_handlers(mode: Mode) {
    let (Some(library), Some(program)) =
        (compile(Kind::CLibraryFirst, "handlers_first.c"), compile(Kind::C, "fork_reversed.c"))
    else {
        return;
    };
    for arguments in [&[][..], &["undumpable"]] {
        let output = run(&program, arguments, mode, &[("ALSO_PRELOAD", library.clone().into())]);
        succeeded(&format!("fork_reversed.c {arguments:?} in mode {mode:?}"), &output);
    }
}

/// Signal handlers that interrupted a fork.
fn a_handler_forks_in_a_fork(mode: Mode) {
    let (Some(library), Some(program)) =
        (compile(Kind::CLibraryFirst, "fork_interrupts.c"), compile(Kind::C, "fork_in_fork.c"))
    else {
        return;
    };
    let output = run(&program, &[], mode, &[("ALSO_PRELOAD", library.into())]);
    assert!(output.status.success(), "in mode {mode:?}: {}", describe(&output));
}

in_all_modes! {
    forks_and_spawns copies_by_clone fork_against_locks fork_against_earlier_handlers a_handler_forks_in_a_fork
}
