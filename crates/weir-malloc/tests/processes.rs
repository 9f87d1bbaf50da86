//! Threads, forks, signals and other libraries around the heap.

mod common;
use common::{Kind, Mode, all_pass, compile, foreign, passes, run, succeeded};

/// How much of a race is run, as a string. All of it is run where the heap is as programs have it, half where it does
/// without restartable sequences. A quarter is run where only its reservations are smaller.
fn share(all: u32, mode: Mode) -> String {
    match mode {
        Mode::Plain => all.to_string(),
        Mode::NoRseq => all.div_ceil(2).to_string(),
        Mode::Limited(_) => all.div_ceil(4).to_string(),
    }
}

fn forks_and_spawns(mode: Mode) {
    passes(Kind::C, "forks.c", &[&share(150, mode)], mode);
}

fn thread_exits(mode: Mode) {
    passes(Kind::C, "thread_exits.c", &[], mode);
}

fn signal_storm(mode: Mode) {
    passes(Kind::C, "signals.c", &[&share(4, mode)], mode);
}

fn libraries_come_and_go(mode: Mode) {
    let Some(plugin) = compile(Kind::CLibrary, "plugin.c") else { return };
    passes(Kind::C, "plugins.c", &[plugin.to_str().expect("paths here are text")], mode);
}

fn urgent_signals(mode: Mode) {
    passes(Kind::C, "urgent.c", &[], mode);
}

fn sandboxes(mode: Mode) {
    passes(Kind::C, "sandbox.c", &[], mode);
    passes(Kind::C, "sandbox.c", &["late"], mode);
}

fn fork_in_a_handler(mode: Mode) {
    passes(Kind::C, "fork_in_handler.c", &[], mode);
}

/// Threads allocate under locks that `fork` takes, libc's and a program's.
fn fork_against_locks(mode: Mode) {
    for which in ["flush", "memory", "lines", "pipes", "names", "early", "late"] {
        passes(Kind::C, "fork_locks.c", &[which, &share(1500, mode)], mode);
    }
}

/// Handlers that were registered before Weir's take a lock under which other threads allocate.
fn fork_against_earlier_handlers(mode: Mode) {
    let (Some(library), Some(program)) =
        (compile(Kind::CLibraryFirst, "handlers_first.c"), compile(Kind::C, "fork_reversed.c"))
    else {
        return;
    };
    let output = run(&program, &[], mode, &[("ALSO_PRELOAD", library.into())]);
    succeeded(&format!("fork_reversed.c in mode {mode:?}"), &output);
}

fn own_thread(mode: Mode) {
    all_pass(Kind::C, "own_thread.c", &["vfork", "scheduling"], mode);
}

/// The background thread is not there when a program becomes something else, and starts again.
fn jails_and_rights(mode: Mode) {
    let all = ["jail-chroot", "jail-unshare", "jail-pivot", "jail-raw", "rights", "rights-raw", "groups", "namespaces"];
    all_pass(Kind::C, "thread_life.c", &all, mode);
}

fn the_thread_takes_nothing_from_the_program(mode: Mode) {
    let all = ["urgent", "main-last", "last-at-start", "other-last", "batch", "idle", "refused", "vfork", "handler"];
    all_pass(Kind::C, "thread_life.c", &all, mode);
}

/// Counted, not timed: of Weir's threads none is switched to for 5 s, whoever the program is.
#[test]
fn at_rest_nothing_wakes() {
    let all = ["rest-root", "rest-user", "rest-root-pending", "rest-user-pending"];
    all_pass(Kind::C, "thread_life.c", &all, Mode::Plain);
}

fn stress(mode: Mode) {
    // For a long run by hand, and to do again what failed, as far as the threads' order allows.
    let seconds = std::env::var("WEIR_STRESS_SECONDS").unwrap_or_else(|_| share(5, mode));
    let seed = std::env::var("WEIR_STRESS_SEED").unwrap_or_else(|_| {
        let since = std::time::UNIX_EPOCH.elapsed().expect("a clock past 1970");
        since.as_nanos().wrapping_mul(0x9e37_79b9).to_string()[..9].to_owned()
    });
    println!("WEIR_STRESS_SEED={seed}");
    passes(Kind::C, "stress.c", &[&seconds, &seed], mode);
}

in_all_modes! {
    forks_and_spawns thread_exits signal_storm libraries_come_and_go sandboxes urgent_signals fork_in_a_handler
    fork_against_locks fork_against_earlier_handlers own_thread jails_and_rights
    the_thread_takes_nothing_from_the_program stress
}

/// Preloaded after Weir, a wrapper of malloc sees nothing; both work.
#[test]
fn before_another_preload() {
    let (Some(beside), Some(program)) = (compile(Kind::CLibrary, "beside.c"), compile(Kind::C, "beside_main.c")) else {
        return;
    };
    if foreign() {
        weir_testing::skip!("no library to be beside of");
        return;
    }
    let output = run(&program, &["first"], Mode::Plain, &[("ALSO_PRELOAD", beside.into())]);
    succeeded("beside_main.c", &output);
}

/// Preloaded before Weir, a wrapper finds Weir's malloc as the next one.
#[test]
fn after_another_preload() {
    let (Some(beside), Some(program)) = (compile(Kind::CLibrary, "beside.c"), compile(Kind::C, "beside_main.c")) else {
        return;
    };
    if foreign() {
        weir_testing::skip!("no library to be beside of");
        return;
    }
    let output = run(&program, &["wrapped"], Mode::Plain, &[("PRELOAD_BEFORE", beside.into())]);
    succeeded("beside_main.c", &output);
}

/// Moved to a control group with a limit, a process releases what is idle as it comes near the limit.
#[test]
fn moved_to_another_group() {
    let Some(program) = compile(Kind::C, "moved.c") else { return };
    let output = run(&program, &[], Mode::Plain, &[("WEIR_IDLE_MS", "60000".into())]);
    succeeded("moved.c", &output);
}
