//! The order of a report's page: the curve of the resident set comes first, and what is zero is left out.

mod subject;
use std::process::Command;

#[test]
fn the_curve_is_first_and_there_are_no_rows_of_zeros() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("stat.json");
    let sample = |at: u64, resident: u64| {
        serde_json::json!({
            "pid": 7, "command": "server", "at_ns": at, "resident_bytes": resident, "live_bytes": resident / 2,
            "idle_bytes": resident / 2, "fragmented_bytes": 0, "metadata_bytes": 0, "not_weirs_bytes": 0,
            "pressure": "none", "released_bytes": {"idle": 5 << 20, "pressure": 0, "limit": 0, "asked": 0},
            "touched_again_bytes": 0, "times": [],
            "caches": [
                {"name": "malloc 64", "size": 64, "used": 9, "slab_bytes": 1 << 20, "trimmed_bytes": 0, "drained_bytes": 0},
                {"name": "malloc 80", "size": 80, "used": 0, "slab_bytes": 0, "trimmed_bytes": 0, "drained_bytes": 0},
            ],
        })
        .to_string()
    };
    // Of the second one no parts are known.
    let unknown =
        sample(2_000_000_000, 9 << 20).replace(&format!("\"live_bytes\":{}", (9 << 20) / 2), "\"live_bytes\":null");
    std::fs::write(&file, [sample(1_000_000_000, 30 << 20), unknown].join("\n")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("report").arg(&file).output().unwrap();
    let html = String::from_utf8(output.stdout).unwrap();
    let place = |part: &str| html.find(part).unwrap_or_else(|| panic!("{part}: {html}"));
    assert!(place("Resident set over time") < place("<table"), "{html}");
    assert!(html.contains("5.0 MiB") && html.contains("malloc 64"), "{html}");
    for zero in ["malloc 80", "under pressure", "at a limit", "when asked", "touched again soon after"] {
        assert!(!html.contains(zero), "{zero}: {html}");
    }
}

#[test]
fn a_run_writes_its_page_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let (page, json) = (directory.path().join("page.html"), directory.path().join("run.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["run", "--quiet", "--report"]).arg(&page).arg("--json").arg(&json).args(["--", "sleep", "0.5"]);
    assert!(command.env("WEIR_LIB", subject::library()).status().unwrap().success());
    let html = std::fs::read_to_string(page).unwrap();
    let run: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert!(html.contains("Resident set over time") && html.contains("<path class=\"whole\""), "{html}");
    assert!(html.contains(run["verdict"].as_str().unwrap()), "{run} {html}");
}
