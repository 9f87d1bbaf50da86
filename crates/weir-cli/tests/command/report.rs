//! `weir report`: pages made of what the other commands wrote, and of files that none of them did.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_testing::skip;

fn report(args: &[&str], files: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).arg("report").args(args).args(files).output().unwrap()
}

fn page(args: &[&str], files: &[&Path]) -> String {
    let output = report(args, files);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A refusal: one line that has all these words.
fn refused(files: &[&Path], words: &[&str]) -> Option<i32> {
    let output = report(&[], files);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && output.stdout.is_empty(), "{files:?} was read");
    assert!(said.lines().count() == 1 && said.starts_with("weir: "), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
    output.status.code()
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// A slip in the command costs no record of a run.
#[test]
fn a_file_that_is_read_is_not_written_over() {
    let files = Files::new();
    let text = run("a", 1024);
    let kept = files.write("kept.json", &text);
    let output = report(&["-o", kept.to_str().unwrap()], &[&kept]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), std::fs::read_to_string(&kept).unwrap()), (Some(2), text), "{said}");
    assert!(said.contains("--output names ") && said.contains("which is read"), "{said}");
}

/// As `weir run --json` writes it.
fn run(program: &str, pressure: u64) -> String {
    let reclaim = r#"{"direct_reclaims": 2565,
        "direct": {"pages_scanned": 1801142, "pages_reclaimed": 900, "cache_write_async": 1, "cache_write_sync": 0},
        "wake_requests": 5, "wakeups": 4,
        "balancer": {"pages_scanned": 10, "pages_reclaimed": 5, "cache_write_async": 0, "cache_write_sync": 0},
        "direct_stall_ns": 980000000, "balancer_active_ns": 1, "balancer_cpu_ns": 1, "hard_limit_failures": 0,
        "reliefs": 3}"#;
    format!(
        r#"{{
  "verdict": "All went well", "program": {}, "exit_status": 0, "signal": null, "elapsed_seconds": 12.5,
  "peak_resident_bytes": 104857600, "peak_resident_bound_bytes": 104857600, "last_resident_bytes": 1048576,
  "processes": 2, "given_back_bytes": {{"idle": 1024, "pressure": {pressure}, "limit": 0, "asked": 0}},
  "pressure_events": 7, "pressure_latency_p50_ns": 2048, "pressure_latency_max_ns": 4096,
  "reports": 30, "report_failures": 1, "refault_bytes": 4096, "refault_rate": 0.1, "huge_pages_given_whole": 3,
  "huge_pages_split": 4, "reclaim": {reclaim}, "free_hit_rate": 0.9912, "alloc_hit_rate": 0.9876
}}"#,
        serde_json::to_string(program).unwrap()
    )
}

/// As `weir trace` writes it: so many batches, a millisecond apart.
fn trace(batches: u64) -> String {
    let mut text = String::from("{\"lost\":3,\"pid\":7}\n");
    for i in 0..batches {
        let cause = ["idle", "pressure", "limit", "asked"][i as usize % 4];
        let batch = json!({
            "at_ns": 5_000_000_000 + i * 1_000_000, "blocks": 16, "bytes": 2 << 20, "kind": "whole", "ns": 1000 + i,
            "cause": cause, "pid": 7, "result": "ok", "zone": "normal/0",
        });
        writeln!(text, "{batch}").unwrap();
    }
    text
}

fn memory(live: u64, idle: u64) -> Value {
    json!({
        "resident_bytes": live + idle + (1 << 20), "live_bytes": live, "idle_bytes": idle, "fragmented_bytes": 0,
        "metadata_bytes": 1 << 20, "not_weirs_bytes": 0, "untouched_bytes": 0, "measured_ns_ago": 5,
    })
}

/// Both objects in one.
fn joined(mut one: Value, other: Value) -> Value {
    let Value::Object(more) = other else { unreachable!() };
    one.as_object_mut().unwrap().extend(more);
    one
}

/// As `weir stat PID --json --watch` writes it.
fn stat(samples: u64, command: &str) -> String {
    let sample = |i: u64| {
        let level = ["none", "some", "severe"][(i / 10) as usize % 3];
        let times = json!({
            "of": "release of a batch", "count": 3, "median_ns": 8, "p99_ns": 8, "most_ns": 8, "histogram": [0, 0, 3],
        });
        let cache = json!({
            "name": "malloc 24576", "size": 24576, "used": 9, "slab_bytes": 4096, "trimmed_bytes": 1, "drained_bytes": 0,
        });
        let others = json!({
            "pid": 7, "command": command, "at_ns": 5_000_000_000 + i * 10_000_000, "background_thread": true,
            "pressure": level,
            "released_bytes": {"idle": 1, "pressure": 2, "limit": 3, "asked": 4}, "touched_again_bytes": 0,
            "times": [times], "zones": [], "caches": [cache], "evictable_caches": [], "left_out": 0,
        });
        format!("{}\n", joined(memory((i % 50) << 20, 2 << 20), others))
    };
    (0..samples).map(sample).collect()
}

#[test]
fn files_of_one_run_are_one_column_with_all_its_pictures() {
    let files = Files::new();
    let all = [
        files.write("a.json", run("redis-server", 4096)),
        files.write("a.trace", trace(500)),
        files.write("a.stat", stat(300, "redis")),
    ];
    let html = page(&[], &all.each_ref().map(PathBuf::as_path));
    assert_eq!(html.matches("<section>").count(), 1);
    for words in [
        "redis-server",
        "All went well",
        "resident set over time",
        "memory released over time",
        "histogram of times",
        "Direct reclaim pages scanned",
        "1801142",
        "malloc 24576",
        "class=\"pressure severe\"",
        "3 batches are not in the traces",
        "prefers-color-scheme: dark",
        "98.76 %",
    ] {
        assert!(html.contains(words), "{words}");
    }
    // Five parts, each drawn once; all four causes.
    (0..5).for_each(|part| assert!(html.contains(&format!("<path class=\"part{part}\"")), "part {part}"));
    (0..4).for_each(|cause| assert!(html.contains(&format!("<rect class=\"cause{cause}\"")), "cause {cause}"));
    // Nothing that a browser would fetch or run.
    for word in ["<script", "<link", "<img", "<iframe", "url(", "@import", "http://", "https://", "href=", "src="] {
        assert!(!html.contains(word), "{word}");
    }
}

#[test]
fn files_of_one_kind_are_beside_each_other() {
    let files = Files::new();
    let names = [files.write("a.json", run("one", 1 << 30)), files.write("b.json", run("two", 1 << 31))];
    let pair = names.each_ref().map(PathBuf::as_path);
    let html = page(&[], &pair);
    assert_eq!(html.matches("<section>").count(), 2);
    assert!(html.contains("<td>1.0 GiB</td><td>2.0 GiB</td>"), "{html}");
    let markdown = page(&["--format", "markdown"], &pair);
    assert!(markdown.contains("| under pressure | 1.0 GiB | 2.0 GiB |"), "{markdown}");
    assert!(markdown.contains("|  | a.json | b.json |\n| --- | ---: | ---: |"), "{markdown}");
}

#[test]
fn markdown_has_the_same_figures() {
    let files = Files::new();
    let all = [
        files.write("a.json", run("redis", 4096)),
        files.write("a.trace", trace(500)),
        files.write("a.stat", stat(300, "redis")),
    ];
    let markdown = page(&["--format", "markdown"], &all.each_ref().map(PathBuf::as_path));
    for words in ["| Direct reclaims | 2565 |", "█", "#", "| whole | 500 |", "Times: release of a batch. 3 in all"] {
        assert!(markdown.contains(words), "{words}: {markdown}");
    }
    let is_zero = |line: &str| ["| 0 |", "| 0 B |", "| 0.0 s |"].iter().any(|end| line.ends_with(end));
    assert!(!markdown.lines().any(is_zero), "a row says that there was nothing: {markdown}");
    // The trace has the same times, which are shown where nothing else has them.
    let markdown = page(&["--format", "markdown"], &[&all[1]]);
    assert!(markdown.contains("Times: release of a batch. 500 in all"), "{markdown}");
    let lost = page(&[], &[&files.write("lost", "{\"lost\":3,\"pid\":7}\n")]);
    assert!(lost.contains("3 batches are not in the traces") && !lost.contains("NaN"), "{lost}");
}

#[test]
fn the_page_goes_where_it_is_told() {
    let files = Files::new();
    let (from, to) = (files.write("a.trace", trace(5)), files.0.path().join("page.html"));
    assert_eq!(page(&["--output", to.to_str().unwrap()], &[&from]), "");
    assert!(std::fs::read_to_string(to).unwrap().ends_with("</html>\n"));
}

/// The contents of a file are text, wherever they come to stand.
#[test]
fn nothing_in_a_file_becomes_part_of_the_page() {
    let files = Files::new();
    let evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&</title></style></svg>| [x](javascript:3)";
    let traced = trace(3).replace("\"kind\":\"whole\"", &format!("\"kind\":{}", serde_json::to_string(evil).unwrap()));
    let names = [
        files.write("<b>run.json", run(evil, 0)),
        files.write("trace", traced),
        files
            .write("stat", stat(3, evil).replace("malloc 24576", "<script>").replace("release of a batch", "<script>")),
    ];
    let names = names.each_ref().map(PathBuf::as_path);
    let html = page(&[], &names);
    for word in ["<script", "<img", "<b>", "onerror=alert(2)>\""] {
        assert!(!html.contains(word), "{word}");
    }
    assert_eq!([html.matches("</title>").count() > 0, html.matches("</style>").count() == 1], [true, true]);
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    let markdown = page(&["--format", "markdown"], &names);
    assert!(!markdown.contains("<script") && !markdown.contains("[x](") && !markdown.contains("<b>"), "{markdown}");
}

#[test]
fn files_that_are_none_are_refused_by_one_line() {
    let files = Files::new();
    let path = |name: &str, text: &[u8]| files.write(name, text);
    assert_eq!(refused(&[&files.0.path().join("missing")], &["missing", "cannot be read"]), Some(3));
    assert_eq!(refused(&[files.0.path()], &["cannot be read"]), Some(125));
    refused(&[&path("empty", b"")], &["empty", "is empty"]);
    refused(&[&path("blank", b" \n\n")], &["is empty"]);
    refused(&[&path("text", b"hello\n")], &["damaged, or no JSON"]);
    refused(&[&path("binary", &[0x7f, b'E', b'L', b'F', 0, 0xff])], &["damaged, or no JSON"]);
    refused(&[&path("other", b"{\"a\":1}\n")], &["record 1 is none of `weir run --json`"]);
    refused(&[&path("number", b"17\n")], &["is none of"]);
    refused(&[&path("cut", &run("x", 1).as_bytes()[..300])], &["cut short"]);
    refused(&[&path("half", &trace(1).as_bytes()[..9])], &["cut short"]);
    refused(&[&path("damaged", (trace(3) + "{\"at_ns\":}\n" + &trace(3)).as_bytes())], &["damaged", "line 5"]);
    refused(&[&path("later", (trace(3) + "{\"x\":1}\n").as_bytes())], &["is none of"]);
    refused(
        &[&path("mixed", (trace(3) + &stat(1, "x")).as_bytes())],
        &["mixes", "weir run --trace", "weir stat --json"],
    );
    refused(&[&path("runs", (run("x", 1) + &run("y", 1)).as_bytes())], &["several runs"]);
    refused(&[&path("deep", "[".repeat(100_000).as_bytes())], &["damaged"]);
    refused(&[&path("negative", trace(1).replace("2097152", "-1").as_bytes())], &["is none of"]);
    // A record that never ends is not kept in memory.
    refused(&[&path("endless", [b"{\"pid\":1,\"x\":\"", &b"x".repeat(17 << 20)[..]].concat().as_slice())], &["16 MiB"]);
}

#[test]
fn what_is_whole_of_a_file_that_is_cut_short_is_shown() {
    let files = Files::new();
    let text = trace(50);
    let cut = files.write("cut.trace", &text[..text.len() - 40]);
    let html = page(&[], &[&cut]);
    assert!(html.contains("The last record of ") && html.contains("is cut short"), "{html}");
    assert!(html.contains("<td>49</td>"), "49 batches are whole");
}

#[test]
fn a_trace_of_a_program_that_released_nothing_is_no_obstacle() {
    let files = Files::new();
    let names = [files.write("a.json", run("x", 0)), files.write("a.trace", ""), files.write("b.json", run("y", 1))];
    let names = names.each_ref().map(PathBuf::as_path);
    for format in ["html", "markdown"] {
        let page = page(&["--format", format], &names);
        assert!(
            page.contains("is empty, as a trace is of what released nothing") && page.contains("a.json, a.trace"),
            "{page}"
        );
        assert!(!page.contains("released over time") && !page.contains("what was released |"), "{page}");
    }
}

#[test]
fn any_numbers_are_drawn() {
    let files = Files::new();
    let most = u64::MAX.to_string();
    let trace = trace(40).replace("2097152", &most).replace("\"ns\":10", &format!("\"ns\":{most},\"x\":10"));
    let stat = stat(16, "x").replace("2097152", &most).replace("[0,0,3]", &format!("[{most},{most}]"));
    let zeros = r#"{"at_ns":0,"cause":"new","kind":"","bytes":0,"ns":0,"pid":0,"result":"","zone":"","blocks":0}"#;
    let later = zeros.replace("\"at_ns\":0", &format!("\"at_ns\":{most}"));
    let html =
        page(&[], &[&files.write("t", trace), &files.write("s", stat), &files.write("z", zeros.to_owned() + &later)]);
    assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
}

/// As long as a page is made of them, large files cost time alone.
#[test]
fn a_large_file_makes_a_page_of_the_usual_size() {
    let files = Files::new();
    let html = page(&[], &[&files.write("t", trace(30_000)), &files.write("s", stat(5_000, "x"))]);
    assert!(html.len() < 2 << 20, "{} bytes", html.len());
    assert!(html.contains("<td>30000</td>"));
}

/// Recorded before samples had times.
#[test]
fn samples_without_times_are_numbered() {
    let files = Files::new();
    let without = |line: &str| {
        let mut sample: Value = serde_json::from_str(line).unwrap();
        sample.as_object_mut().unwrap().remove("at_ns").unwrap();
        format!("{sample}\n")
    };
    let text: String = stat(30, "x").lines().map(without).collect();
    let html = page(&[], &[&files.write("s", text)]);
    assert!(html.contains("sample 20"), "{html}");
}

#[test]
fn a_table_of_all_processes_is_one_picture() {
    let files = Files::new();
    let unmeasured = json!({"resident_bytes": 3 << 20, "live_bytes": null, "idle_bytes": null});
    let line = |at: u64| {
        let all = [("a", 1, memory(8 << 20, 0)), ("b", 2, memory(0, 8 << 20)), ("c", 3, unmeasured.clone())]
            .map(|(command, pid, memory)| joined(memory, json!({"pid": pid, "command": command, "released_bytes": 9})));
        json!({"at_ns": at, "processes": all, "unreadable": [], "not_allowed": 0})
    };
    let file = files.write("s", format!("{}\n{}\n", line(1), line(1_000_000_000)));
    let html = page(&[], &[&file]);
    assert!(html.contains("21.0 MiB") && html.contains("b (2)"), "{html}");
    let markdown = page(&["--format", "markdown"], &[&file]);
    assert!(markdown.contains("| c \\(3\\) | 3.0 MiB | unknown | unknown | 9 B |"), "{markdown}");
}

/// In a browser without a network: no message on its console, which would say what the page's policy refused.
#[test]
#[ignore = "nightly: needs Chromium"]
fn a_browser_shows_it_and_has_nothing_to_say() {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| has(name)) else {
        return skip!("no Chromium, which would show the page (Debian has it in chromium)");
    };
    let files = Files::new();
    let names = [
        files.write("a.json", run("<b>", 4096)),
        files.write("a.trace", trace(500)),
        files.write("a.stat", stat(300, "<b>")),
    ];
    let html = files.write("page.html", page(&[], &names.each_ref().map(PathBuf::as_path)));
    let profile = format!("--user-data-dir={}", files.0.path().join("profile").display());
    let output = Command::new("timeout")
        .args(["300", browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", &profile])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"])
        .arg(format!("file://{}", html.display()))
        .output()
        .unwrap();
    let (dom, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() || !dom.contains("<html") {
        return skip!("{browser} does not run here: {said}");
    }
    let console: Vec<_> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
    assert!(dom.matches("<svg").count() > 10 && dom.contains("&lt;b&gt;"), "{dom}");
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The commands that write the files and the one that reads them are of one mind.
#[test]
fn what_a_real_run_wrote_is_read() {
    let files = Files::new();
    let [json, trace] = ["run.json", "run.trace"].map(|name| files.0.path().join(name));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["run", "--quiet", "--json"]).arg(&json).arg("--trace").arg(&trace).args(["--", "true"]);
    command.env("WEIR_LIB", crate::subject::library());
    assert!(command.status().unwrap().success());
    let html = page(&[], &[&json]);
    assert!(html.contains("exit status 0") && !html.contains("Direct reclaims"), "{html}");
    let Some(mut subject) = crate::subject::Subject::new(&[]) else { return };
    subject.tell("hold 20");
    let stat = crate::subject::says(&["stat", &subject.pid().to_string(), "--json"]);
    let table = crate::subject::says(&["stat", "--json"]);
    let html = page(&[], &[&files.write("stat", stat), &files.write("table", table)]);
    assert_eq!(html.matches("<section>").count(), 2);
}

#[test]
fn the_curve_is_first_and_there_are_no_rows_of_zeros() {
    let files = Files::new();
    let cache = |name: &str, size: u64, slab_bytes: u64| json!({"name": name, "size": size, "used": 9, "slab_bytes": slab_bytes, "trimmed_bytes": 0, "drained_bytes": 0});
    let sample = |at: u64, resident: u64| {
        json!({
            "pid": 7, "command": "server", "at_ns": at, "resident_bytes": resident, "live_bytes": resident / 2,
            "idle_bytes": resident / 2, "fragmented_bytes": 0, "metadata_bytes": 0, "not_weirs_bytes": 0,
            "pressure": "none", "released_bytes": {"idle": 5 << 20, "pressure": 0, "limit": 0, "asked": 0},
            "touched_again_bytes": 0, "times": [], "caches": [cache("malloc 64", 64, 1 << 20), cache("malloc 80", 80, 0)],
        })
        .to_string()
    };
    // Of the second one no parts are known.
    let unknown =
        sample(2_000_000_000, 9 << 20).replace(&format!("\"live_bytes\":{}", (9 << 20) / 2), "\"live_bytes\":null");
    let html = page(&[], &[&files.write("stat.json", [sample(1_000_000_000, 30 << 20), unknown].join("\n"))]);
    let place = |part: &str| html.find(part).unwrap_or_else(|| panic!("{part}: {html}"));
    assert!(place("Resident set over time") < place("<table"), "{html}");
    assert!(html.contains("5.0 MiB") && html.contains("malloc 64"), "{html}");
    for zero in ["malloc 80", "under pressure", "at a limit", "when asked", "touched again soon after"] {
        assert!(!html.contains(zero), "{zero}: {html}");
    }
}

#[test]
fn a_run_writes_its_page_by_itself() {
    let files = Files::new();
    let [page, json] = ["page.html", "run.json"].map(|name| files.0.path().join(name));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["run", "--quiet", "--report"]).arg(&page).arg("--json").arg(&json).args(["--", "sleep", "0.5"]);
    assert!(command.env("WEIR_LIB", crate::subject::library()).status().unwrap().success());
    let html = std::fs::read_to_string(page).unwrap();
    let run: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert!(html.contains("Resident set over time") && html.contains("<path class=\"whole\""), "{html}");
    assert!(html.contains(run["verdict"].as_str().unwrap()), "{run} {html}");
}
