//! `weir stat PID` says what is true now, not what was measured before the memory changed.

mod subject;
use serde_json::Value;
use subject::{Subject, says, weir};
use weir_testing::wait_until;

fn stat(pid: &str) -> Value {
    serde_json::from_str(&says(&["stat", pid, "--json"])).unwrap()
}

/// What is idle stays for an hour, so that the process comes to rest with the figures of its peak, and is told to release it.
#[test]
fn the_process_measures_again_before_it_is_shown() {
    let Some(mut subject) = Subject::new(&[("WEIR_IDLE_MS", "3600000")]) else { return };
    let pid = subject.pid().to_string();
    subject.tell("hold 60");
    wait_until("the channel", || weir(&["ctl", &pid, "get", "limit"]).status.success());
    says(&["ctl", &pid, "report"]);
    subject.tell("drop");
    let report = stat(&pid);
    let of = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{report}"));
    assert!(of("live_bytes") < 8 << 20 && of("idle_bytes") > 40 << 20, "{report}");
    assert_eq!(of("idle_window_ns"), 3_600_000_000_000);
}

#[test]
fn a_process_that_is_stopped_is_not_waited_for() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    let pid = subject.pid().to_string();
    subject.tell("hold 60");
    wait_until("the channel", || weir(&["ctl", &pid, "get", "limit"]).status.success());
    let stopped = rustix::process::Pid::from_raw(subject.pid() as i32).unwrap();
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
    wait_until("it to be stopped", || stat(&pid)["not_asked"] == "it is stopped");
    rustix::process::kill_process(stopped, rustix::process::Signal::CONT).unwrap();
}
