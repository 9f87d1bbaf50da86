//! A program on another allocator whose first call is one of the crate's: there was no use of the heap before.

use std::process::Command;

use weir::settings;

/// Set in the process that this test starts, where nothing has used the heap.
const IDLE_MS: &str = "WEIR_IDLE_MS";

#[test]
fn settings_of_the_environment_are_there_for_the_first_call_and_come_over_none() {
    if std::env::var_os(IDLE_MS).is_none() {
        let own = std::env::current_exe().unwrap();
        let name = std::thread::current().name().unwrap().to_owned();
        for first in ["get", "set", "set_number"] {
            let mut command = Command::new(&own);
            let output = command.args(["--exact", &name]).env(IDLE_MS, "700").env("FIRST", first).output().unwrap();
            assert!(output.status.success(), "{first}: {}", String::from_utf8_lossy(&output.stdout));
        }
        return;
    }
    match &*std::env::var("FIRST").unwrap() {
        "get" => return assert_eq!(settings::get("idle_ms"), Ok(700)),
        "set" => settings::set("idle_ms", "500").unwrap(),
        _ => settings::set_number("idle_ms", 500).unwrap(),
    }
    drop(weir::PagePool::builder("first").build().unwrap());
    assert_eq!(settings::get("idle_ms"), Ok(500));
}
