//! `weir stat` and `weir doctor PID` on real processes under the real library.

use crate::subject::{
    Subject, is_in_state, is_root, library, program, says, send, text, wait_for, weir, weir_within,
    weir_without_memory, without_memory,
};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use weir_testing::{skip, wait_until};

fn figure(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"))
}

/// Whether Weir has measured so many MiB in use. Its tables of caches and zones follow a moment later.
fn holds(pid: u32, mib: std::ops::Range<u64>) -> Option<Value> {
    let output = weir(&["stat", &pid.to_string(), "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).ok()?;
    let is_measured = report["measured_ns_ago"].is_u64();
    (is_measured && mib.contains(&(figure(&report, "live_bytes") >> 20))).then_some(report)
}

/// A process that holds so many MiB, which it has measured.
fn holding(mib: u64) -> Option<Subject> {
    let mut subject = Subject::new(&[])?;
    subject.tell(&format!("hold {mib}"));
    wait_for("its memory in use", || holds(subject.pid(), mib - 2..mib + 10));
    Some(subject)
}

#[test]
fn the_parts_of_the_resident_set_add_up_and_follow_what_the_program_does() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    subject.tell("hold 60");
    // The size that is allocated.
    let cache = |report: &Value| {
        let caches = report["caches"].as_array().unwrap();
        caches.iter().find(|cache| cache["size"] == 24 << 10 && cache["used"].as_u64() >= Some(2560)).cloned()
    };
    let is_complete = |report: &Value| cache(report).is_some() && report["zones"][0]["used"].as_u64() >= Some(60 << 20);
    let report = wait_for("60 MiB in use", || holds(subject.pid(), 58..70).filter(is_complete));
    let parts = ["live_bytes", "idle_bytes", "fragmented_bytes", "metadata_bytes", "not_weirs_bytes"];
    let sum: u64 = parts.iter().map(|part| figure(&report, part)).sum();
    assert_eq!(sum, figure(&report, "resident_bytes"));
    // Code, data and stack of so small a program: what Weir has measured explains the rest.
    assert!(figure(&report, "not_weirs_bytes") < 8 << 20, "{report}");
    assert!(figure(&report, "metadata_bytes") > 0);
    assert_eq!(cache(&report).unwrap()["name"], "malloc 24576");
    subject.tell("drop");
    let report = wait_for("all released", || {
        let report = holds(subject.pid(), 0..3)?;
        let released = figure(&report["released_bytes"], "idle");
        (figure(&report, "resident_bytes") < 40 << 20 && released > 30 << 20).then_some(report)
    });
    assert!(report["times"][1]["count"].as_u64() > Some(0), "batches were released: {report}");
}

/// A long name of an evictable cache is cut between two characters.
#[test]
fn an_evictable_cache_has_as_much_of_its_name_as_fits() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    assert_eq!(subject.tell("evictable 20"), "done");
    let name = wait_for("its cache", || {
        let report = holds(subject.pid(), 18..30)?;
        Some(report["evictable_caches"].as_array()?.first()?["name"].as_str()?.to_string())
    });
    assert_eq!(name, "\u{4e00}\u{4e8c}\u{4e09}\u{56db}\u{4e94}\u{516d}\u{4e03}\u{516b}\u{4e5d}\u{5341}");
}

/// The page is in a file, which the kernel lets its user open where it refuses its memory.
#[test]
fn a_process_whose_memory_may_not_be_read_is_read_by_its_file() {
    let Some(subject) = holding(20) else { return };
    let Some(output) = weir_without_memory(&["stat", &subject.pid().to_string(), "--json"]) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(figure(&report, "live_bytes") > 18 << 20, "{report}");
    // The file cannot be found with these few.
    let pid = subject.pid().to_string();
    for files in 5..=8 {
        let Some(few) = without_memory(weir_within(files, &["stat", &pid])) else { return };
        let said = format!("weir: process {pid}: too many files are open here: raise `ulimit -n`\n");
        assert_eq!((few.status.code(), text(&few.stderr)), (Some(5), said), "{files}");
    }
    // Its heap is small: its page is in its memory alone.
    let Some(small) = Subject::new(&[]) else { return };
    let Some(refused) = weir_without_memory(&["stat", &small.pid().to_string()]) else { return };
    assert_eq!(refused.status.code(), Some(5));
    assert!(text(&refused.stderr).contains("its figures are private"), "{}", text(&refused.stderr));
}

#[test]
fn the_table_for_people_names_the_same_parts() {
    let Some(subject) = holding(20) else { return };
    let shown = wait_for("the caches", || {
        Some(says(&["stat", &subject.pid().to_string()])).filter(|shown| shown.contains("malloc 24576"))
    });
    for name in ["live", "idle", "fragmented", "metadata", "not Weir's", "resident", "pressure", "ZONE", "CACHE"] {
        assert!(shown.contains(name), "{name} is missing:\n{shown}");
    }
    let list = says(&["stat"]);
    assert!(list.lines().any(|line| line.trim_start().starts_with(&format!("{} ", subject.pid()))), "{list}");
    let list: Value = serde_json::from_str(&says(&["stat", "--json"])).unwrap();
    assert!(list["processes"].as_array().unwrap().iter().any(|process| process["pid"] == subject.pid()));
}

#[test]
fn watching_prints_again_and_again_until_the_process_ends() {
    let Some(mut subject) = holding(20) else { return };
    let mut command = Command::new("timeout");
    command.args(["300", env!("CARGO_BIN_EXE_weir"), "stat", &subject.pid().to_string(), "--json", "--watch=50ms"]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let is_json = |line: &String| serde_json::from_str::<Value>(line).is_ok();
    assert_eq!(lines.by_ref().take(3).filter(is_json).count(), 3);
    subject.kill();
    assert_eq!(lines.find(|line| !is_json(line)), None);
    let said = text(&watch.wait_with_output().unwrap().stderr);
    assert!(said.contains("there is no such process"), "{said}");
}

#[test]
fn a_trace_has_a_line_for_each_batch_until_the_process_ends() {
    let Some(mut subject) = holding(60) else { return };
    let mut command = Command::new("timeout");
    command.args(["300", env!("CARGO_BIN_EXE_weir"), "trace", &subject.pid().to_string()]);
    let mut trace = command.stdout(Stdio::piped()).spawn().unwrap();
    subject.tell("drop");
    let mut released = 0;
    for line in BufReader::new(trace.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(event["pid"], subject.pid(), "{event}");
        released += event["bytes"].as_u64().unwrap_or(0);
        if released > 30 << 20 {
            subject.kill();
        }
    }
    assert!(trace.wait().unwrap().success() && released > 30 << 20);
}

/// By the number that was asked for, as others see it: not by the one that it has in its namespace.
#[test]
fn a_trace_of_a_process_in_a_container_has_the_number_outside() {
    let Some(program) = program(&[]) else { return };
    let container = ["--pid", "--fork"];
    if !Command::new("unshare").args(container).arg("true").status().is_ok_and(|status| status.success()) {
        return skip!("no namespace can be made here");
    }
    let mut command = Command::new("unshare");
    command.args(container).args(["--kill-child", "--"]).arg(&program).env("LD_PRELOAD", library());
    let mut subject = Subject::start(command);
    subject.tell("hold 60");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", subject.pid()));
    let Ok(children) = children else { return skip!("this kernel tells of no children") };
    let pid = children.split_whitespace().next().unwrap();
    wait_for("its page", || weir(&["ctl", pid, "get", "limit"]).status.success().then_some(()));
    let mut command = Command::new("timeout");
    command.args(["300", env!("CARGO_BIN_EXE_weir"), "trace", pid]);
    let mut trace = command.stdout(Stdio::piped()).spawn().unwrap();
    subject.tell("drop");
    let mut lines = BufReader::new(trace.stdout.take().unwrap()).lines();
    let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(event["pid"].to_string(), pid, "{event}");
    subject.kill();
    lines.for_each(drop);
    assert!(trace.wait().unwrap().success());
}

#[test]
fn a_stopped_process_is_said_to_be_stopped() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    subject.tell("hold 20");
    let pid = subject.pid().to_string();
    assert!(!says(&["doctor", &pid]).contains("stopped"));
    send(libc::SIGSTOP, subject.pid());
    wait_for("its stop", || is_in_state(subject.pid(), 'T').then_some(()));
    let said = text(&weir(&["doctor", &pid]).stdout);
    assert!(said.contains(&format!("stopped, by a signal or a debugger: `kill -CONT {pid}`")), "{said}");
}

#[test]
fn a_forked_child_has_a_page_of_its_own() {
    let Some(mut subject) = holding(60) else { return };
    let child: u32 = subject.tell("fork").parse().unwrap();
    let of_child = wait_for("the child's 30 MiB", || holds(child, 28..40));
    assert_eq!(of_child["pid"], child);
    // The parent's figures are its own still.
    assert!(holds(subject.pid(), 58..70).is_some());
    send(libc::SIGKILL, child);
}

#[test]
fn a_program_that_closes_all_descriptors_is_read_all_the_same() {
    let Some(mut subject) = holding(20) else { return };
    subject.tell("descriptors");
    subject.tell("hold 30");
    wait_for("50 MiB in use", || holds(subject.pid(), 48..60));
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", subject.pid())).unwrap().count();
    assert_eq!(descriptors, 3, "the program sees none of Weir's");
}

/// The numbers are those of the background thread's own table.
#[test]
fn descriptors_of_the_program_over_those_of_weir_and_of_what_it_executes_are_its_own() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    let before = subject.tell("execute");
    subject.tell("hold 20");
    wait_for("20 MiB in use", || holds(subject.pid(), 18..30));
    assert_eq!(subject.tell("execute"), before, "a program inherits none of Weir's");
    subject.tell("occupy");
    subject.tell("hold 30");
    wait_for("50 MiB in use", || holds(subject.pid(), 48..60));
    subject.tell("descriptors");
    let pid = subject.pid().to_string();
    wait_for("the channel", || weir(&["ctl", &pid, "get", "limit"]).status.success().then_some(()));
}

#[test]
fn a_process_whose_main_thread_has_ended_is_read_and_steered() {
    let Some(mut subject) = crate::subject::steered() else { return };
    let (pid, number) = (subject.pid().to_string(), subject.pid());
    subject.tell("leave");
    wait_until("the main thread's end", || is_in_state(number, 'Z'));
    assert_eq!(says(&["ctl", &pid, "set", "limit", "1G"]), "limit 1 GiB\n");
    let live = figure(&stat(&pid), "live_bytes");
    assert!((20 << 20..30 << 20).contains(&live), "{live}");
    assert!(says(&["doctor", &pid]).contains("the thread runs"));
    says(&["why", &pid]);
    // It is in the list by the number of a thread that goes on, which all commands take as well.
    let all = stat_of_all();
    let listed = |it: &&Value| std::path::Path::new(&format!("/proc/{pid}/task/{}", it["pid"])).exists();
    let number = all["processes"].as_array().unwrap().iter().find(listed).expect("it is listed")["pid"].to_string();
    assert_eq!(says(&["ctl", &number, "get", "limit"]), "limit 1 GiB\n");
    let top = says(&["top", "--once"]);
    assert!(top.lines().any(|line| line.split_whitespace().any(|word| word == number)), "{number}: {top}");
}

fn stat_of_all() -> Value {
    serde_json::from_str(&says(&["stat", "--json"])).unwrap()
}

#[test]
fn a_process_of_ten_thousand_threads_is_read() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    let threads: u32 = subject.tell("threads 10000").parse().unwrap();
    if threads < 10_000 {
        skip!("with {threads} threads alone: no more may be made here");
    }
    subject.tell("hold 20");
    // The background thread is the last of them.
    let report = wait_for("20 MiB in use", || holds(subject.pid(), 18..30));
    assert_eq!(report["background_thread"], true);
}

/// Under `weir run` the page is in its file; the same command reads it.
#[test]
fn a_process_under_weir_run_is_read_as_well() {
    let Some(program) = program(&[]) else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["run", "--quiet", "--"]).arg(&program).env("WEIR_LIB", library());
    let mut subject = Subject::start(command);
    subject.tell("hold 20");
    let children = format!("/proc/{0}/task/{0}/children", subject.pid());
    let Ok(children) = std::fs::read_to_string(children) else {
        return skip!("this kernel tells of no children");
    };
    let pid: u32 = children.split_whitespace().next().unwrap().parse().unwrap();
    wait_for("20 MiB in use", || holds(pid, 18..30));
    send(libc::SIGKILL, pid);
}

#[test]
fn a_real_program_is_loaded_and_serving() {
    let script = "held = [bytes(1000 + i % 9) for i in range(30000)]\nprint('ready', flush=True)\ninput()";
    let mut command = Command::new("python3");
    command.args(["-c", script]).env("LD_PRELOAD", library()).env("PYTHONMALLOC", "malloc");
    let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        return skip!("no python3");
    };
    let mut line = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    let pid = child.id();
    let has_caches = |report: &Value| report["caches"].as_array().unwrap().len() > 10;
    wait_for("30 MiB in use", || holds(pid, 28..80).filter(has_caches));
    let doctor = weir(&["doctor", &pid.to_string()]);
    assert!(doctor.status.success() && text(&doctor.stdout).contains("loaded and serving"), "{}", text(&doctor.stdout));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_program_with_an_allocator_linked_in_is_told_apart() {
    let Some(program) = program(&["-DOWN_ALLOCATOR"]) else { return };
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", library());
    let mut subject = Subject::start(command);
    subject.tell("hold 20");
    let doctor = weir(&["doctor", &subject.pid().to_string(), "--json"]);
    let checks: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert!(checks[0]["found"].as_str().unwrap().starts_with("loaded: "), "{checks}");
    assert_eq!((doctor.status.code(), &checks[1]["state"]), (Some(1), &Value::from("fatal")), "{checks}");
    assert!(checks[1]["effect"].as_str().unwrap().contains("an allocator of its own"), "{checks}");
}

#[test]
fn redis_whose_allocator_is_a_library_is_served() {
    let linked_in =
        |program: &str| std::fs::read(program).is_ok_and(|it| it.windows(12).any(|it| it == b"<jemalloc>: "));
    if linked_in("/usr/bin/redis-server") {
        return skip!("this redis-server has its allocator linked in");
    }
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--unixsocket"]);
    let dir = tempfile::tempdir().unwrap();
    command.arg(dir.path().join("socket")).env("LD_PRELOAD", library()).stdout(Stdio::null());
    let Ok(mut child) = command.spawn() else { return skip!("no redis-server") };
    let pid = child.id().to_string();
    wait_for("redis to start", || dir.path().join("socket").exists().then_some(()));
    let doctor = weir(&["doctor", &pid, "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let checks: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let (library, allocations) = (&checks[0], &checks[1]);
    assert!(library["name"] == "library" && library["found"].as_str().unwrap().starts_with("loaded: "), "{checks}");
    // An allocator that is a library, as in Debian's, is not asked once Weir is preloaded.
    assert_eq!(
        (doctor.status.code(), allocations["effect"].as_str()),
        (Some(0), Some("loaded and serving")),
        "{checks}"
    );
}

#[test]
fn doctor_says_why_a_process_has_no_weir() {
    let Some(program) = program(&[]) else { return };
    let subject = Subject::start(Command::new(&program));
    let doctor = weir(&["doctor", &subject.pid().to_string()]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(text(&doctor.stdout).contains("was started without it"), "{}", text(&doctor.stdout));
    let stat = weir(&["stat", &subject.pid().to_string()]);
    assert_eq!((stat.status.code(), stat.stdout.len()), (Some(4), 0));
    assert!(text(&stat.stderr).contains("runs without Weir"), "{}", text(&stat.stderr));
    drop(subject);
    let gone = weir(&["doctor", "2147483647"]);
    let said = text(&gone.stderr);
    assert_eq!(
        (gone.status.code(), said.as_str()),
        (Some(3), "weir: there is no process 2147483647: check its number\n")
    );
    assert!(gone.stdout.is_empty());
    let mut ended = Command::new("true").spawn().unwrap();
    wait_until("its end", || is_in_state(ended.id(), 'Z'));
    let doctor = weir(&["doctor", &ended.id().to_string()]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(text(&doctor.stdout).contains("has ended  its parent"), "{}", text(&doctor.stdout));
    ended.wait().unwrap();
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        let doctor = weir(&["doctor", "2"]);
        assert_eq!(doctor.status.code(), Some(1));
        assert!(text(&doctor.stdout).contains("a thread of the kernel"), "{}", text(&doctor.stdout));
    }
    let Some(linked) = self::program(&["-static"]) else { return };
    let mut command = Command::new(&linked);
    command.env("LD_PRELOAD", library());
    let subject = Subject::start(command);
    let doctor = weir(&["doctor", &subject.pid().to_string()]);
    assert!(
        doctor.status.code() == Some(1) && text(&doctor.stdout).contains("statically linked"),
        "{}",
        text(&doctor.stdout)
    );
}

#[test]
fn settings_switch_page_and_channel_off_and_doctor_says_so() {
    let settings = [("WEIR_PUBLISH", "0"), ("WEIR_CONTROL", "0")];
    let Some(mut subject) = Subject::new(&settings) else { return };
    subject.tell("hold 20");
    let maps = || std::fs::read_to_string(format!("/proc/{}/maps", subject.pid())).unwrap();
    let pid = subject.pid().to_string();
    let doctor = wait_for("the thread", || {
        let doctor = text(&weir(&["doctor", &pid]).stdout);
        (doctor.contains("the thread runs") || !is_root()).then_some(doctor)
    });
    assert!(!maps().contains("weir-page"));
    if !is_root() {
        return skip!("what doctor says: only root reads the process's memory");
    }
    assert!(doctor.contains("`publish` is 0") && doctor.contains("`control` is 0"), "{doctor}");
}

/// A program that sets a filter is served, and Weir makes no call that the filter may not have.
#[test]
fn in_a_sandbox_of_the_programs_own_nothing_is_opened() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    if subject.tell("filter") != "done" {
        return skip!("no filter may be set here");
    }
    subject.tell("hold 20");
    if !is_root() {
        return skip!("only root reads the figures of such a process");
    }
    let pid = subject.pid().to_string();
    let doctor = wait_for("the thread", || {
        let doctor = text(&weir(&["doctor", &pid]).stdout);
        doctor.contains("the thread runs").then_some(doctor)
    });
    assert_eq!(doctor.matches("sandbox of its own").count(), 2, "{doctor}");
    wait_for("20 MiB in use", || holds(subject.pid(), 18..30));
}

/// There Weir cannot see whether a filter is in force.
#[test]
fn in_a_root_without_proc_nothing_is_opened_and_root_reads_the_page() {
    let Some(mut subject) = holding(20) else { return };
    let dir = tempfile::tempdir().unwrap();
    if subject.tell(&format!("chroot {}", dir.path().display())) != "done" {
        return skip!("only root may change its root");
    }
    subject.tell("hold 30");
    wait_for("50 MiB in use", || holds(subject.pid(), 48..60));
    let pid = subject.pid().to_string();
    let doctor = text(&weir(&["doctor", &pid]).stdout);
    assert_eq!(doctor.matches("a root without /proc").count(), 2, "{doctor}");
}

/// A container's filter leaves page and channel alone; one that the program adds to it ends them.
#[test]
fn a_filter_of_the_programs_own_on_top_of_its_starts_is_told_from_it() {
    let Some(mut subject) = Subject::filtered() else { return };
    subject.tell("hold 20");
    let pid = subject.pid().to_string();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    if !status.contains("Seccomp_filters:") {
        return skip!("this kernel does not count filters (Linux 5.9)");
    }
    wait_for("the channel", || weir(&["ctl", &pid, "get", "limit"]).status.success().then_some(()));
    assert_eq!(subject.tell("filter"), "done");
    let refused = wait_for("the channel's end", || {
        let output = weir(&["ctl", &pid, "get", "limit"]);
        let said = text(&output.stderr);
        (!output.status.success() && said.contains("sandbox of its own")).then_some(said)
    });
    assert!(!refused.is_empty());
    assert_eq!(subject.tell("hold 5"), "done");
}

#[test]
fn another_user_is_refused_and_told_why() {
    if !is_root() {
        return skip!("only root can become another user");
    }
    let Some(subject) = holding(20) else { return };
    let pid = subject.pid().to_string();
    // The build directory may not be open to others.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("weir");
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), &copy).unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for args in [&["stat", &pid][..], &["ctl", &pid, "trim"], &["doctor", &pid]] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(args);
        let Ok(output) = command.output() else { return skip!("no setpriv; Debian has it in util-linux") };
        let said = text(&output.stdout) + &text(&output.stderr);
        let is_told = said.contains("may not be looked into") && said.lines().count() == 1;
        assert!(output.status.code() == Some(5) && is_told, "{args:?}: {said}");
    }
}

#[test]
fn a_near_miss_of_a_command_or_a_setting_is_answered_with_the_right_one() {
    for (wrong, right) in [(&["stta"][..], "stat"), (&["doctr"], "doctor"), (&["ctl", "1", "get", "limti"], "limit")] {
        let output = weir(wrong);
        let said = text(&output.stderr);
        let is_told = said.contains(&format!("'{right}'")) && said.lines().count() == 1;
        assert!(output.status.code() == Some(2) && is_told, "{wrong:?}: {said}");
    }
}

fn stat(pid: &str) -> Value {
    serde_json::from_str(&says(&["stat", pid, "--json"])).unwrap()
}

/// `weir stat PID` says what is true now, not what was measured before the memory changed. What is idle stays for an hour, so
/// that the process comes to rest with the figures of its peak. One that is stopped is not waited for.
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
    send(libc::SIGSTOP, subject.pid());
    wait_until("it to be stopped", || stat(&pid)["not_asked"] == "it is stopped");
    send(libc::SIGCONT, subject.pid());
}

#[test]
fn without_a_proc_it_is_not_said_that_there_are_no_processes() {
    let without = |command: &str| {
        let mut unshare = Command::new("unshare");
        let run = format!("mount -t tmpfs none /proc || exit 77; exec \"$0\" {command}");
        unshare.args(["--mount", "sh", "-c", &run, env!("CARGO_BIN_EXE_weir")]).output()
    };
    for command in ["stat", "stat 1", "why 1", "ctl 1 get"] {
        let Ok(output) = without(command) else { return skip!("there is no unshare") };
        if !matches!(output.status.code(), Some(0 | 3)) {
            return skip!("this user may mount nothing: {}", text(&output.stderr));
        }
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), ""), "{command}");
        assert!(text(&output.stderr).starts_with("weir: there is no /proc here"), "{}", text(&output.stderr));
    }
}
