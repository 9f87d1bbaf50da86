//! What a look at a process's heap profile leaves of the process's own figures.

mod subject;
use subject::{Subject, says, wait_for};

fn metadata(pid: &str) -> u64 {
    let report = says(&["ctl", pid, "report", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    report["metadata"].as_u64().unwrap()
}

/// The table is of 9 MB, of which the process has written some pages: to read the others would map them.
#[test]
fn the_process_has_no_more_memory_than_before() {
    let Some(mut subject) = Subject::new(&[("WEIR_PROFILE_BYTES", "65536")]) else { return };
    subject.tell("hold 60");
    let pid = subject.pid().to_string();
    wait_for("its control channel", || subject::weir(&["ctl", &pid, "report"]).status.success().then_some(()));
    let before = metadata(&pid);
    assert!(says(&["profile", &pid]).contains("subject"));
    let after = metadata(&pid);
    assert!(after < before + (1 << 20), "{before} bytes of metadata before, {after} after");
}
