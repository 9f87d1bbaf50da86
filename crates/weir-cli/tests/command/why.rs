//! `weir why` on programs that hold memory, each for a reason that it must name.

use crate::subject::{Group, NO_STALLS, compiled, is_in_state, library, says, send, text, wait_for, weir};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempPath;
use weir_testing::{skip, wait_until};

/// A program that holds memory for one reason. Its file goes with it.
struct Case {
    child: Child,
    _program: Option<TempPath>,
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn compile(flags: &[&str]) -> Option<TempPath> {
    compiled("why.c", flags)
}

impl Case {
    /// One under Weir, with these settings.
    fn new(name: &str, settings: &[(&str, &str)]) -> Option<Self> {
        let program = compile(&[])?;
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", library()).envs(NO_STALLS).envs(settings.iter().copied()).arg(name);
        Some(Self::start(command, Some(program)))
    }

    /// One under Weir that goes on when its standard input ends.
    fn fed(name: &str) -> Option<Self> {
        let program = compile(&[])?;
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", library()).envs(NO_STALLS).arg(name).stdin(Stdio::piped());
        Some(Self::start(command, Some(program)))
    }

    fn start(mut command: Command, program: Option<TempPath>) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let case = Self { child, _program: program };
        assert_eq!(line, "ready\n");
        case
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// The report on it; with parts that must add up to the resident set.
    fn report(&self) -> Value {
        let before = self.resident();
        let report: Value = serde_json::from_str(&says(&["why", &self.pid(), "--json"])).unwrap();
        let after = self.resident();
        let resident = report["resident_bytes"].as_u64().unwrap();
        let parts = report["parts"].as_array().unwrap();
        assert_eq!(parts.iter().map(|part| part["bytes"].as_u64().unwrap()).sum::<u64>(), resident);
        let (least, most) = (before.min(after), before.max(after));
        let near = least.saturating_sub(least / 50 + (1 << 20))..=most + most / 50 + (1 << 20);
        assert!(near.contains(&resident), "{resident}; before {before}, after {after}");
        report
    }

    /// By the kernel.
    fn resident(&self) -> u64 {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id())).unwrap();
        let kib = |line: &str| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
        rollup.lines().find_map(kib).unwrap() << 10
    }

    /// Waits until the first cause is this one, for the most part of what was prepared; the report then.
    fn first_cause(&self, cause: &str, least_mib: u64) -> Value {
        // The text for people says the same. It is a look of its own: what passes may come between the two.
        let word = cause.replace('_', " ").to_uppercase();
        let word = match cause {
            "other_allocator" => "ANOTHER ALLOCATOR",
            "own_mapping" => "THE PROGRAM'S OWN MAPPINGS",
            "limit" => "LIMIT MISSED",
            "locked" => "LOCKED MEMORY",
            _ => &word,
        };
        let heading = format!("1. {word}: ");
        let (found, shown) = wait_for(&format!("{cause} of {least_mib} MiB to be first"), || {
            let (report, shown) = (self.report(), says(&["why", &self.pid()]));
            let first = &report["causes"][0];
            let is_so = first["cause"] == cause && first["bytes"].as_u64() >= Some(least_mib << 20);
            (is_so && shown.contains(&heading)).then_some((report, shown))
        });
        let resident = found["resident_bytes"].as_u64().unwrap();
        assert!(part(&found, "unexplained") <= resident / 50, "{found}");
        assert!(shown.lines().all(|line| line.len() < 200), "{shown}");
        found
    }
}

fn part(report: &Value, name: &str) -> u64 {
    let parts = report["parts"].as_array().unwrap();
    parts.iter().find(|part| part["part"] == name).map_or(0, |part| part["bytes"].as_u64().unwrap())
}

/// The first cause's cures.
fn cures(report: &Value) -> String {
    report["causes"][0]["cures"].to_string()
}

#[test]
fn fragmentation_after_a_peak() {
    let Some(case) = Case::new("fragmentation", &[]) else { return };
    let report = case.first_cause("fragmentation", 25);
    let said = report["causes"][0]["says"].as_str().unwrap();
    assert!(said.contains("malloc 512 (5."), "the size is named: {said}");
    assert_eq!(report["holders"][0]["name"], "malloc 512");
}

/// Memory that the program freed stays, as the window for it is an hour; the cure that is named cures it.
#[test]
fn freed_memory_that_is_retained() {
    let Some(case) = Case::new("idle", &[("WEIR_IDLE_MS", "3600000")]) else { return };
    let report = case.first_cause("retained", 25);
    // A depot keeps at most 1 MiB of a size, beside CPUs' buckets. The rest is free pages.
    let depot = &report["holders"][0];
    let cached = depot["cached_bytes"].as_u64().unwrap();
    assert!(depot["name"] == "malloc 32768" && (512 << 10..4 << 20).contains(&cached), "{depot}");
    assert!(report["causes"][0]["says"].as_str().unwrap().contains("most of it of malloc 32768"), "{report}");
    assert!(cures(&report).contains(&format!("weir ctl {} drain", case.pid())) && cures(&report).contains("idle_ms"));
    says(&["ctl", &case.pid(), "drain"]);
    let after = wait_for("drained", || Some(case.report()).filter(|after| part(after, "idle") < 4 << 20));
    assert!(after["causes"].as_array().unwrap().iter().all(|cause| cause["cause"] != "retained"), "{after}");
}

#[test]
fn a_huge_page_policy() {
    let Some(case) = Case::new("huge", &[]) else { return };
    let report = case.report();
    if report["within"]["huge_pages_bytes"].as_u64() < Some(60 << 20) {
        return skip!("the kernel gave no huge pages, or not for all: {}", report["within"]);
    }
    // 32 pages of 4 KiB were written of 64 MiB.
    let report = case.first_cause("huge_pages", 60);
    assert!(cures(&report).contains("MADV_NOHUGEPAGE"));
}

/// Returns what `weir why` says with two looks at a process, between which `change` is made. `weir why` is stopped
/// meanwhile, so its second look comes after the change, however long that takes.
fn looked_at_twice(pid: &str, change: impl FnOnce()) -> Output {
    for seconds in [1, 4, 16, 64, 256] {
        let mut why = Command::new(env!("CARGO_BIN_EXE_weir"));
        why.args(["why", pid, "--json", &format!("--growth={seconds}s")]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut why = why.spawn().unwrap();
        let call = || std::fs::read_to_string(format!("/proc/{}/syscall", why.id())).unwrap();
        // It sleeps between its looks.
        let sleeps = || call().starts_with(&format!("{} ", libc::SYS_clock_nanosleep));
        let has_ended = || is_in_state(why.id(), 'Z');
        wait_until("its sleep", || sleeps() || has_ended());
        send(libc::SIGSTOP, why.id());
        wait_until("its stop", || is_in_state(why.id(), 'T') || has_ended());
        if sleeps() {
            change();
            send(libc::SIGCONT, why.id());
            return why.wait_with_output().unwrap();
        }
        // So busy is the machine that it has looked again already.
        why.kill().unwrap();
        why.wait().unwrap();
    }
    panic!("its sleep is over before it is seen");
}

#[test]
fn a_leak_shows_between_two_looks() {
    let Some(mut case) = Case::fed("leak") else { return };
    let measured = || case.report()["measured_ns_ago"].is_u64().then(|| part(&case.report(), "live"));
    let before = wait_for("measured", measured);
    let output = looked_at_twice(&case.pid(), || {
        drop(case.child.stdin.take());
        wait_for("the leak", || (part(&case.report(), "live") > before + (1 << 20)).then_some(()));
    });
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["causes"][0]["cause"], "growth", "{report}");
    assert!(report["growth"]["live_bytes"].as_i64() > Some(1 << 20), "{}", report["growth"]);
    // 1,000 bytes are served by the size class of 1,024.
    assert_eq!(report["growth"]["holders"][0][0], "malloc 1024", "{}", report["growth"]);
    let one_look = case.report();
    assert!(one_look["causes"].as_array().unwrap().iter().all(|cause| cause["cause"] != "growth"));
}

#[test]
fn a_program_that_became_another_did_not_grow() {
    let mut child =
        Command::new("sh").args(["-c", "read line; exec sleep 3600"]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id().to_string();
    let output = looked_at_twice(&pid, || {
        drop(child.stdin.take());
        let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        wait_until("the other program", || name() == "sleep\n");
    });
    let _ = child.kill();
    let _ = child.wait();
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("is another program than at the first look"), "{said}");
}

#[test]
fn a_program_at_rest_does_not_grow() {
    let Some(case) = Case::new("live", &[]) else { return };
    // Nothing is out of the ordinary.
    case.first_cause("in_use", 38);
    let report: Value = serde_json::from_str(&says(&["why", &case.pid(), "--json", "--growth=1s"])).unwrap();
    assert!(report["causes"].as_array().unwrap().iter().all(|cause| cause["cause"] != "growth"), "{report}");
}

/// The kernel merges the memory of a thread, of Weir's own too, with a block just above it.
#[test]
fn a_block_beside_a_stack() {
    for (name, least_mib) in [("block", 64), ("stack-in-block", 70)] {
        let Some(case) = Case::new(name, &[]) else { return };
        let report = case.first_cause("in_use", least_mib);
        let [live, stacks, own] = ["live", "stacks", "own_mappings"].map(|name| part(&report, name));
        assert!(live >= least_mib << 20 && stacks < 1 << 20 && own < 1 << 20, "{report}");
        // The figures are those of `weir stat`.
        let stat: Value = serde_json::from_str(&says(&["stat", &case.pid(), "--json"])).unwrap();
        let of_stat = |name: &str| stat[name].as_u64().unwrap();
        assert!(of_stat("live_bytes").abs_diff(live) < 1 << 20, "{stat} {report}");
        assert!(of_stat("idle_bytes").abs_diff(part(&report, "idle")) < 1 << 20, "{stat} {report}");
    }
}

#[test]
fn another_allocator() {
    let Some(program) = compile(&[]) else { return };
    let mut command = Command::new(&program);
    command.arg("live").env_remove("LD_PRELOAD");
    let case = Case::start(command, Some(program));
    let report = case.first_cause("other_allocator", 38);
    assert_eq!(report["allocator"], "glibc's malloc");
    assert_eq!(report["holders"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_static_program() {
    let Some(program) = compile(&["-static"]) else { return };
    let mut command = Command::new(&program);
    command.arg("live").env("LD_PRELOAD", library());
    let case = Case::start(command, Some(program));
    let report = case.first_cause("other_allocator", 38);
    assert!(report["allocator"].as_str().unwrap().contains("statically linked"), "{}", report["allocator"]);
}

#[test]
fn an_allocator_inside_the_program() {
    let Some(program) = compile(&["-DOWN_ALLOCATOR"]) else { return };
    let mut command = Command::new(&program);
    command.arg("live").env("LD_PRELOAD", library());
    let case = Case::start(command, Some(program));
    let report = case.first_cause("other_allocator", 38);
    assert_eq!(report["allocator"], "jemalloc");
    assert!(
        report["causes"][0]["says"].as_str().unwrap().starts_with("Weir is loaded, but jemalloc serves"),
        "{report}"
    );
}

#[test]
fn a_mapping_of_the_programs_own() {
    let Some(case) = Case::new("own", &[]) else { return };
    let report = case.first_cause("own_mapping", 31);
    assert!((31 << 20..34 << 20).contains(&part(&report, "own_mappings")), "{report}");
    assert!(report["causes"][0]["says"].as_str().unwrap().contains("32.0 MiB of 32.0 MiB resident"), "{report}");
}

/// Go's heap begins anywhere below 64 TiB, so at times where that of Weir might.
#[test]
fn a_mapping_where_weirs_heap_might_be() {
    let Some(case) = Case::new("beside", &[]) else { return };
    let report = case.first_cause("own_mapping", 31);
    let [own, live, unexplained] = ["own_mappings", "live", "unexplained"].map(|name| part(&report, name));
    assert!((31 << 20..35 << 20).contains(&own) && live >= 15 << 19 && unexplained < 4 << 20, "{report}");
}

#[test]
fn memory_in_children() {
    let Some(case) = Case::new("child", &[]) else { return };
    let report = case.first_cause("children", 30);
    assert_eq!(report["beside"]["children"], 1);
    assert!(report["resident_bytes"].as_u64() < Some(16 << 20), "the parent is small: {report}");
    assert!(cures(&report).contains("weir why "));
}

#[test]
fn a_limit_missed() {
    let Some(case) = Case::new("live", &[("WEIR_LIMIT", "16M")]) else { return };
    let report = case.first_cause("limit", 20);
    assert!(report["causes"][0]["says"].as_str().unwrap().contains("the limit is 16.0 MiB"), "{report}");
}

#[test]
fn reporting_off() {
    let Some(case) = Case::new("idle", &[("WEIR_REPORT", "0")]) else { return };
    let report = case.first_cause("reporting_off", 25);
    assert!(cures(&report).contains("set report 1"), "{report}");
}

/// Nothing is measured then, but the setting explains what is not released.
#[test]
fn no_background_thread() {
    let Some(case) = Case::new("idle", &[("WEIR_BACKGROUND", "0")]) else { return };
    let report = case.report();
    assert!(report["not_asked"].as_str().is_some_and(|why| why.contains("background")), "{report}");
    assert_eq!(report["causes"][0]["cause"], "reporting_off", "{report}");
    assert!(report["causes"][0]["says"].as_str().unwrap().contains("`background` is 0"), "{report}");
}

#[test]
fn locked_memory() {
    let Some(program) = compile(&[]) else { return };
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", library()).arg("locked").stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let case = Case { child, _program: Some(program) };
    if line == "refused\n" {
        return skip!("this user may not lock 6 MiB (ulimit -l)");
    }
    let report = case.first_cause("locked", 6);
    assert!(report["within"]["locked_bytes"].as_u64() >= Some(6 << 20) && cures(&report).contains("munlock"));
}

#[test]
fn page_tables() {
    let Some(case) = Case::new("sparse", &[]) else { return };
    let report = case.report();
    let causes = report["causes"].as_array().unwrap();
    let found = causes.iter().position(|cause| cause["cause"] == "page_tables");
    assert!(found.is_some_and(|place| place < 2), "beside the mapping itself: {report}");
    assert!(report["beside"]["page_tables_bytes"].as_u64() >= Some(16 << 20), "{}", report["beside"]);
}

#[test]
fn a_page_cache_that_is_not_the_processes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("written");
    let Some(program) = compile(&[]) else { return };
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", library()).arg("file").arg(&file);
    let case = Case::start(command, Some(program));
    let report = case.report();
    if report["beside"]["page_cache_bytes"] == 0 {
        return skip!("this kernel tells nothing of the cache of open files (Linux 6.5 does)");
    }
    let report = case.first_cause("page_cache", 40);
    assert!(report["resident_bytes"].as_u64() < Some(16 << 20), "{report}");
    assert!(report["causes"][0]["says"].as_str().unwrap().contains("/written has most"), "{report}");
}

/// The memory that the cgroup is charged is told apart from what the process holds, also of a file that was
/// closed.
#[test]
fn a_page_cache_of_the_cgroup() {
    let Some(program) = compile(&[]) else { return };
    let Some(group) = Group::new(&["memory.stat"]) else {
        return skip!("this user cannot make a cgroup with memory figures");
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let enter = "echo $$ > \"$0/cgroup.procs\" && head -c 50331648 /dev/zero > \"$2\" && exec \"$1\" own";
    let mut command = Command::new("sh");
    command.args(["-c", enter]).arg(&group.0).arg(&program).arg(dir.path().join("written"));
    let case = Case::start(command, Some(program));
    let report = case.report();
    let charged = &report["beside"]["cgroup"];
    assert_eq!(charged["directory"].as_str(), group.0.to_str(), "{report}");
    let of = |name: &str| charged[name].as_u64().unwrap() >> 20;
    assert!((40..64).contains(&of("page_cache_bytes")) && (70..120).contains(&of("bytes")), "{charged}");
    let causes = report["causes"].as_array().unwrap();
    let place = |name: &str| causes.iter().position(|cause| cause["cause"] == name);
    assert!(place("cgroup_page_cache").unwrap() > place("other_allocator").unwrap(), "{report}");
    drop(case);
}

/// In a cgroup namespace, as containers have one, the group is what is mounted, and its path is `/`.
#[test]
fn a_cgroup_that_is_the_root_of_its_namespace() {
    let Some(program) = compile(&[]) else { return };
    let Some(group) = Group::new(&["memory.stat"]) else {
        return skip!("this user cannot make a cgroup with memory figures");
    };
    let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", enter]).arg(&group.0).arg(&program).arg("own");
    let case = Case::start(command, Some(program));
    let mounted = tempfile::tempdir().unwrap();
    let hierarchy = if group.0.join("memory.max").exists() { "cgroup2" } else { "cgroup -o memory" };
    let look = format!("mount -t {hierarchy} none \"$0\" || exit 77; exec \"$@\"");
    let mut command = Command::new("sh");
    command
        .args(["-c", enter])
        .arg(&group.0)
        .args(["unshare", "--cgroup", "--mount", "sh", "-c", &look])
        .arg(mounted.path());
    let output = command.args([env!("CARGO_BIN_EXE_weir"), "why", &case.pid(), "--json"]).output().unwrap();
    if let Some(1 | 77 | 127) = output.status.code() {
        return skip!("no namespace can be made with a cgroup file system: {}", text(&output.stderr));
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let charged = &report["beside"]["cgroup"];
    assert_eq!(charged["directory"].as_str(), mounted.path().to_str(), "{report}");
    assert!(charged["bytes"].as_u64() >= Some(32 << 20), "{charged}");
}

#[test]
fn who_cannot_be_looked_into_is_told_in_one_line() {
    let gone = weir(&["why", "2147483647"]);
    assert_eq!((gone.status.code(), text(&gone.stdout).len()), (Some(3), 0));
    assert_eq!(
        text(&gone.stderr),
        "weir: process 2147483647: there is no such process, or it has no memory any more\n"
    );
}

/// A stopped process answers nothing; what it last measured is shown, and it is not waited for.
#[test]
fn a_stopped_process_is_not_waited_for() {
    let Some(case) = Case::new("live", &[]) else { return };
    send(libc::SIGSTOP, case.child.id());
    wait_until("its stop", || is_in_state(case.child.id(), 'T'));
    assert_eq!(case.report()["not_asked"], "it is stopped");
}

/// Memory that Python's own allocator holds is named with its cure.
#[test]
fn pythons_own_allocator() {
    let python = |malloc: Option<&str>| {
        let mut command = Command::new("python3");
        command.args(["-c", "a = [[i] for i in range(1 << 19)]\nprint('ready', flush=True)\ninput()"]);
        command.env("LD_PRELOAD", library()).env_remove("PYTHONMALLOC").envs(malloc.map(|it| ("PYTHONMALLOC", it)));
        command.stdin(Stdio::piped());
        command
    };
    if python(None).arg("--version").output().is_err() {
        return skip!("no python3");
    }
    let own = Case::start(python(None), None);
    let cured = Case::start(python(Some("malloc")), None);
    for command in ["why", "doctor"] {
        let said = |case: &Case| text(&weir(&[command, &case.pid(), "--json"]).stdout);
        let shown = said(&own);
        assert!(shown.contains("pymalloc, Python's own allocator") && shown.contains("PYTHONMALLOC=malloc"), "{shown}");
        assert!(!said(&cured).contains("pymalloc"));
    }
}
