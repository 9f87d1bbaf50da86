//! Threads and signals around the heap: the program's threads, their ends, and the background thread of Weir's own.

#[path = "../common/mod.rs"]
mod common;
use common::{Kind, Mode, all_pass, passes, passes_with, share};

passing! {
    thread_exits: "thread_exits.c";
    urgent_signals: "urgent.c";
}

fn signal_storm(mode: Mode) {
    passes(Kind::C, "signals.c", &[&share(4, mode)], mode);
}

fn own_thread(mode: Mode) {
    all_pass(Kind::C, "own_thread.c", &["vfork", "scheduling", "callbacks"], mode);
}

/// The background thread is not there when a program becomes something else, and starts again.
fn jails_and_rights(mode: Mode) {
    let all = [
        "jail-chroot",
        "jail-unshare",
        "jail-pivot",
        "jail-raw",
        "rights",
        "rights-raw",
        "groups",
        "namespaces",
        "pid-namespace",
        "unshared-worker",
    ];
    all_pass(Kind::C, "thread_life.c", &all, mode);
}

fn the_thread_takes_nothing_from_the_program(mode: Mode) {
    let ends = [
        "main-last",
        "main-last-callbacks",
        "last-at-start",
        "other-last",
        "main-last-below",
        "other-last-below",
        "killed",
        "killed-strict",
        "limit-alone",
    ];
    let without_files = ["limit", "strict", "jail", "jail-at-once"].map(|how| format!("last-without-files-{how}"));
    let others = ["urgent", "batch", "idle", "refused", "refused-rseq", "vfork", "handler", "start"];
    let without_files = without_files.each_ref().map(String::as_str);
    let all = [&ends[..], &without_files, &others].concat();
    all_pass(Kind::C, "thread_life.c", &all, mode);
}

/// The listener is tried again after ten seconds.
#[test]
fn what_a_limit_refused_is_there_later() {
    all_pass(Kind::C, "thread_life.c", &["few-threads"], Mode::Plain);
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

#[test]
fn stress_with_a_zone_a_cpu() {
    passes_with(Kind::C, "stress.c", &["3", "1"], Mode::Plain, &[("WEIR_ZONE_CPUS", "1".into())]);
}

in_all_modes! { signal_storm own_thread jails_and_rights the_thread_takes_nothing_from_the_program stress }

/// The kernel lists a thread as it ran for some microseconds after it has cleared what reports the thread's end.
#[test]
fn the_main_thread_ends_alone_as_weirs_begins() {
    passes(Kind::C, "main_exits.c", &[], Mode::Plain);
}

/// In the other modes it would wait for nothing: where there are no restartable sequences, none is aborted.
#[test]
fn threads_that_abort_each_others_sections() {
    passes(Kind::C, "aborts.c", &[], Mode::Plain);
}
