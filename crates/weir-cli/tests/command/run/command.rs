//! `weir run` from outside, with a stand-in for the library: what it preloads is not what is tested here.

use super::bench::{Bench, Running, compile, followed, send, start, stderr, wait_until};

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use weir_testing::skip;

#[test]
fn the_programs_status_is_weirs() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(bench.run(&["--quiet", "--", "sh", "-c", "exit 42"]).status.code(), Some(42));
    let quiet = bench.run(&["--quiet", "true"]);
    assert_eq!((quiet.status.code(), stderr(&quiet)), (Some(0), String::new()));
    // The program's core is none of this test's; `weir` is allowed one, and does without.
    let mut killed = bench.weir(&["--quiet", "sh", "-c", "ulimit -c 0; kill -SEGV $$"]);
    // SAFETY: between fork and exec only the kernel is called; the limit is a value of its type.
    unsafe {
        killed.current_dir(bench.dir.path()).pre_exec(|| {
            let mut limit = std::mem::zeroed::<libc::rlimit>();
            libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit);
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
            Ok(())
        });
    }
    let killed = killed.status().unwrap();
    assert_eq!((killed.signal(), killed.core_dumped()), (Some(11), false));
}

#[test]
fn missing_and_unfit_programs() {
    let Some(bench) = Bench::new() else { return };
    let missing = bench.run(&["no-such-program-anywhere"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(stderr(&missing).contains("no-such-program-anywhere: program not found"), "{}", stderr(&missing));
    let plain = bench.dir.path().join("plain");
    std::fs::write(&plain, "x").unwrap();
    let unfit = bench.run(&[plain.to_str().unwrap()]);
    assert_eq!(unfit.status.code(), Some(126));
    assert!(stderr(&unfit).contains("not executable"));
    assert_eq!(bench.run(&["/"]).status.code(), Some(126));
    let script = bench.dir.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    Command::new("chmod").arg("+x").arg(&script).status().unwrap();
    let orphan = bench.run(&[script.to_str().unwrap()]);
    assert_eq!(orphan.status.code(), Some(127));
    assert!(stderr(&orphan).contains("interpreter"), "{}", stderr(&orphan));
}

#[test]
fn weirs_own_failures_are_125() {
    let Some(bench) = Bench::new() else { return };
    let no_library = bench.weir(&["true"]).env("WEIR_LIB", "/no/such.so").output().unwrap();
    assert_eq!(no_library.status.code(), Some(125));
    assert!(stderr(&no_library).starts_with("weir: library missing"), "{}", stderr(&no_library));
    let no_json = bench.run(&["--json", "/no/such/dir/x.json", "--", "sh", "-c", "echo ran"]);
    assert_eq!((no_json.status.code(), no_json.stdout.as_slice()), (Some(125), &b""[..]));
    // The file of statistics is open, and no other may be.
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 4; exec \"$0\" run --json x.json true", env!("CARGO_BIN_EXE_weir")]);
    let few = few.env("WEIR_LIB", &bench.library).current_dir(bench.dir.path()).output().unwrap();
    let said = "weir: cannot write x.json: too many files are open here: raise `ulimit -n`\n";
    assert_eq!((few.status.code(), stderr(&few).as_str()), (Some(125), said));
    for wrong in [&["--limit", "lots", "true"][..], &["--limit", "0", "true"], &["--no-such-option", "true"], &[]] {
        let refused = bench.run(wrong);
        assert_eq!((refused.status.code(), refused.stdout.as_slice()), (Some(125), &b""[..]), "{wrong:?}");
    }
}

#[test]
fn the_programs_own_options_are_left_to_it() {
    let Some(bench) = Bench::new() else { return };
    let output = bench.run(&["--quiet", "sh", "-c", "echo $0 $@", "--json", "--limit", "--", "-q"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--json --limit -- -q\n");
}

#[test]
fn a_full_standard_error_costs_the_summary_and_not_the_status() {
    let Some(bench) = Bench::new() else { return };
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    // Lines are to be written meanwhile; how many is all the same.
    let status = bench.weir(&["--stats-interval", "10ms", "sh", "-c", "sleep 0.2; exit 77"]).stderr(full).status();
    assert_eq!(status.unwrap().code(), Some(77));
}

#[test]
fn the_hard_limit_is_the_programs_setting_and_the_table_of_reclaim_is_printed_when_asked_for() {
    let Some(bench) = Bench::new() else { return };
    let limited = bench.run(&["--quiet", "--reclaim", "--hard-limit", "64M", "sh", "-c", "echo $WEIR_HARD_LIMIT"]);
    assert_eq!(String::from_utf8_lossy(&limited.stdout), format!("{}\n", 64 << 20));
    let table = stderr(&limited);
    assert!(table.starts_with("weir: Reclaim Statistics\n") && table.contains("Balancer pages scanned"), "{table}");
    let plain = bench.run(&["sh", "-c", "echo :$WEIR_HARD_LIMIT:"]);
    assert_eq!(String::from_utf8_lossy(&plain.stdout), "::\n");
    assert!(!stderr(&plain).contains("Reclaim Statistics"));
    assert_eq!(bench.run(&["--hard-limit", "lots", "true"]).status.code(), Some(125));
}

#[test]
fn the_environment_is_set_and_preloads_are_kept() {
    let Some(bench) = Bench::new() else { return };
    let other = compile(bench.dir.path(), "libother.so", "int other;", &["-shared", "-fPIC"]).unwrap();
    let script = "echo $LD_PRELOAD $WEIR_LIMIT; test -e $WEIR_STATS";
    let output = bench.weir(&["--limit", "64M", "--", "sh", "-c", script]).env("LD_PRELOAD", &other).output().unwrap();
    assert!(output.status.success());
    let expected = format!("{}:{} {}\n", bench.library.display(), other.display(), 64 << 20);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn the_summary_counts_processes_even_killed_ones() {
    let Some(bench) = Bench::new() else { return };
    let json = bench.dir.path().join("out.json");
    let script = "sh -c 'kill -9 $$'; cat /dev/null; exit 3";
    let output = bench.run(&["--verbose", "--json", json.to_str().unwrap(), "--", "bash", "-c", script]);
    assert_eq!(output.status.code(), Some(3));
    let text = stderr(&output);
    assert!(
        text.contains("given back       9.0 MiB (idle 9.0 MiB") && text.contains("processes        3 used Weir"),
        "{text}"
    );
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(value["processes"], 3);
    assert_eq!(value["exit_status"], 3);
    assert_eq!(value["given_back_bytes"]["idle"], 9 << 20);
    assert!(value["peak_resident_bound_bytes"].as_u64().unwrap() > 100_000);
}

#[test]
fn a_program_that_cannot_be_run_costs_no_earlier_result() {
    let Some(bench) = Bench::new() else { return };
    let [json, trace] = ["kept.json", "kept.trace"].map(|name| bench.dir.path().join(name));
    for file in [&json, &trace] {
        std::fs::write(file, "earlier, and longer than what comes after it".repeat(100)).unwrap();
    }
    let options = ["--json", json.to_str().unwrap(), "--trace", trace.to_str().unwrap(), "--"];
    let run = |program| bench.run(&[&options[..], &[program]].concat()).status.code();
    assert_eq!(run("no-such-program-anywhere"), Some(127));
    for file in [&json, &trace] {
        assert!(std::fs::read_to_string(file).unwrap().starts_with("earlier"), "{}", file.display());
    }
    assert_eq!(run("true"), Some(0));
    assert!(!std::fs::read_to_string(&trace).unwrap().contains("earlier"));
    serde_json::from_slice::<serde_json::Value>(&std::fs::read(&json).unwrap()).unwrap();
}

#[test]
fn two_results_in_one_file_are_refused() {
    let Some(bench) = Bench::new() else { return };
    let at = |name: &str| bench.dir.path().join(name).display().to_string();
    std::fs::write(at("kept"), "earlier").unwrap();
    std::os::unix::fs::symlink(at("kept"), at("link")).unwrap();
    for [one, other] in [["--json", "--report"], ["--report", "--trace"], ["--json", "--trace"]] {
        let output = bench.run(&[one, &at("kept"), other, &at("link"), "--", "sh", "-c", "echo ran"]);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]));
        assert!(stderr(&output).contains(&format!("{one} and {other} are one file")), "{}", stderr(&output));
        assert_eq!(std::fs::read_to_string(at("kept")).unwrap(), "earlier");
    }
}

#[test]
fn no_result_is_written_over_what_the_program_writes() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.dir.path().join("output");
    for option in ["--json", "--report", "--trace"] {
        for (stream, file) in [("output", "/dev/stdout"), ("error", "/dev/stderr"), ("output", path.to_str().unwrap())]
        {
            std::fs::write(&path, "earlier\n").unwrap();
            let log = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
            let mut weir = bench.weir(&[option, file, "--", "sh", "-c", "echo ran"]);
            let weir = if stream == "output" { weir.stdout(log) } else { weir.stderr(log) };
            let output = weir.output().unwrap();
            let kept = std::fs::read_to_string(&path).unwrap();
            let said =
                if stream == "output" { stderr(&output) } else { kept.strip_prefix("earlier\n").unwrap().into() };
            assert!(
                said.starts_with(&format!("weir: standard {stream} and {option} are one file, {file}: ")),
                "{said}"
            );
            assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
            assert!(stream == "error" || kept == "earlier\n", "{kept}");
        }
    }
}

#[test]
fn a_result_that_nothing_reads_is_told_so() {
    let Some(bench) = Bench::new() else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = bench.weir(&["--quiet", "--json", "-", "true"]).stdout(writer).output().unwrap();
    let said = "weir: cannot write -: Broken pipe (os error 32): nothing reads it any more\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(125), said));
    let full = bench.run(&["--quiet", "--json", "/dev/full", "true"]);
    assert!(stderr(&full).ends_with(": is its disk full?\n"), "{}", stderr(&full));
}

#[test]
fn a_result_that_cannot_be_written_costs_neither_the_others_nor_the_programs_end() {
    let Some(bench) = Bench::new() else { return };
    let (json, page) = (bench.dir.path().join("all.json"), bench.dir.path().join("all.html"));
    let [json_name, page_name] = [&json, &page].map(|path| path.to_str().unwrap());
    let run = |options: &[&str], script| bench.run(&[options, &["--", "sh", "-c", script]].concat());
    let failed = run(&["--quiet", "--json", "/dev/full", "--report", page_name], "exit 7");
    assert_eq!(failed.status.code(), Some(7));
    assert!(stderr(&failed).contains("weir: cannot write /dev/full: "), "{}", stderr(&failed));
    assert!(std::fs::metadata(&page).unwrap().len() > 0);
    let killed = run(&["--quiet", "--report", "/dev/full", "--json", json_name], "kill -KILL $$");
    assert_eq!(killed.status.signal(), Some(libc::SIGKILL));
    assert!(std::fs::metadata(&json).unwrap().len() > 0);
    assert_eq!(run(&["--quiet", "--json", "/dev/full"], "exit 0").status.code(), Some(125));
}

#[test]
fn a_misspelt_setting_is_named() {
    let Some(bench) = Bench::new() else { return };
    let output = bench.weir(&["-q", "true"]).env("WEIR_LIMITS", "1G").env("WEIR_LIMIT", "1G").output().unwrap();
    assert_eq!(stderr(&output), "weir: warning: WEIR_LIMITS is no setting, and ignored: see `weir settings`\n");
}

#[test]
fn what_was_not_counted_has_no_rate() {
    let Some(bench) = Bench::new() else { return };
    let text = stderr(&bench.run(&["--verbose", "true"]));
    assert!(text.contains("allocations none counted, frees none counted"), "{text}");
}

#[test]
fn the_peak_is_the_programs_and_not_weirs() {
    let Some(bench) = Bench::new() else { return };
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
        int main(void) { char *p = malloc(50 << 20); memset(p, 1, 50 << 20); return getchar() == 1 ? p[9] : 0; }";
    let Some(large) = compile(bench.dir.path(), "large", source, &["-O0"]) else { return };
    let json = bench.dir.path().join("peak.json");
    let options = ["--quiet", "--json", json.to_str().unwrap(), "--stats-interval", "50ms", "--"];
    let peak = || {
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        value["peak_resident_bytes"].as_u64().unwrap()
    };
    let resident = |line: &str| line.split_once("resident ")?.1.split_once(" MiB")?.0.parse::<f64>().ok();
    let run = bench.weir(&[&options[..], &[large.to_str().unwrap()]].concat());
    assert!(followed(run, |line| resident(line).is_some_and(|mib| mib > 49.0)).status.success());
    let large = peak();
    // The kernel's own count of a process's pages is behind by up to some dozen for each CPU.
    assert!((49 << 20..60 << 20).contains(&large), "{large}");
    let cat = bench.weir(&[&options[..], &["cat"]].concat());
    // Enough lines for enough samples.
    let mut lines = 0;
    let is_enough = |line: &str| {
        lines += u32::from(line.contains("resident") && line.contains("in 1 process"));
        lines >= 40
    };
    assert!(followed(cat, is_enough).status.success());
    let small = peak();
    assert!((100_000..4 << 20).contains(&small), "{small}");
}

/// What was seen of it, if anything, was seen before it was itself.
#[test]
fn of_a_program_that_ended_at_once_a_bound_is_known() {
    let Some(bench) = Bench::new() else { return };
    let json = bench.dir.path().join("short.json");
    // However slow the machine is, it is not sampled often each time.
    for _ in 0..100 {
        let said = stderr(&bench.run(&["--limit", "1M", "--json", json.to_str().unwrap(), "--", "true"]));
        assert!(!said.contains("never exceeded"), "{said}");
        let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        if said.contains(" or less; the program ended before it was measured") {
            assert!(figures["peak_resident_bytes"].is_null() && said.contains("peak under "), "{said}{figures}");
            return;
        }
    }
    panic!("each run was sampled");
}

/// The program grows once it was sampled, frees nothing, and ends at once. However slow the machine is, one of the runs is
/// not sampled meanwhile: samples are ten times as far apart as it takes to grow on an idle one. Who started `weir` has more.
#[test]
fn a_program_that_only_grew_is_not_said_to_have_gone_down() {
    let Some(bench) = Bench::new() else { return };
    let source = "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
        int main(void) { char c; read(0, &c, 1); char *p = malloc(40 << 20); memset(p, 1, 40 << 20); return p[9] - 1; }";
    let Some(program) = compile(bench.dir.path(), "grows", source, &["-O0"]) else { return };
    let json = bench.dir.path().join("grows.json");
    let (held, mut last) = (vec![1u8; 64 << 20], String::new());
    let options = ["--json", json.to_str().unwrap(), "--stats-interval", "500ms", "--", program.to_str().unwrap()];
    for _ in 0..100 {
        let said = stderr(&followed(bench.weir(&options), |line| line.contains("in 1 process")));
        assert!(!said.contains("went down"), "{said}");
        let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        last.clone_from(&said);
        if said.contains("the program ended before it was measured again") {
            assert!(figures["last_resident_bytes"].is_null() && said.contains("last sample none\n"), "{said}{figures}");
            return;
        }
    }
    panic!("each run was sampled at its end, with {} bytes here: {last}", held.len());
}

/// What was larger than all that was sampled may have been a child that ended before.
#[test]
fn a_child_that_no_sample_shows_leaves_the_last_sample_as_it_is() {
    let Some(bench) = Bench::new() else { return };
    let json = bench.dir.path().join("child.json");
    let script = "head -c 40000000 /dev/zero | tail -c 39000000 >/dev/null; cat | cat | cat; true";
    let options = ["--json", json.to_str().unwrap(), "--stats-interval", "50ms", "--", "sh", "-c", script];
    let said = stderr(&followed(bench.weir(&options), |line| line.contains("in 4 processes")));
    let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert!(figures["last_resident_bytes"].is_u64(), "{said}{figures}");
}

#[test]
fn lines_come_at_intervals() {
    let Some(bench) = Bench::new() else { return };
    let mut lines = 0;
    let output = followed(bench.weir(&["--quiet", "--stats-interval", "100ms", "--", "cat"]), |line| {
        lines += usize::from(line.contains("resident"));
        lines >= 5
    });
    let said = stderr(&output);
    let seconds = |line: &str| line.strip_prefix("weir: ")?.split_once(" s: resident ")?.0.parse::<f64>().ok();
    let at: Vec<f64> = said.lines().map(|line| seconds(line).unwrap_or_else(|| panic!("{line}"))).collect();
    // One for each interval that has passed, and none before: later is as good.
    assert!(at.len() >= 5 && at.iter().zip(1..).all(|(&at, line)| at > f64::from(line) * 0.1 - 0.01), "{said}");
}

#[test]
fn where_the_memory_is_has_the_words_of_the_header() {
    let Some(bench) = Bench::new() else { return };
    let json = bench.dir.path().join("out.json");
    let words = "live 5.0 MiB, idle 6.0 MiB, fragmented 7.0 MiB, merged 8.0 MiB, metadata 9.0 MiB";
    let wanted = format!("in 1 process, {words}, given back");
    let options = ["--verbose", "--stats-interval", "100ms", "--json", json.to_str().unwrap(), "--", "cat"];
    // Each line has a sample of its own, and one process needs three.
    let mut lines = 0;
    let is_enough = |line: &str| {
        lines += u32::from(line.contains(&wanted));
        lines >= 3
    };
    let text = stderr(&followed(bench.weir(&options), is_enough));
    assert!(text.contains(&wanted), "{text}");
    assert!(text.contains(&format!("heap             {words} at the last sample")), "{text}");
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    for heap in [&value["last_heap"], &value["peak"]["heap"]] {
        let of = |name: &str| heap[name].as_u64().unwrap() >> 20;
        let names = ["live_bytes", "idle_bytes", "fragmented_bytes", "merged_bytes", "metadata_bytes"];
        assert_eq!(names.map(of), [5, 6, 7, 8, 9]);
    }
}

/// No thread measures, and no window ends.
#[test]
fn a_heap_that_was_never_measured_is_told_as_unknown() {
    let Some(program) = crate::subject::program(&[]) else { return };
    // On a busy machine the last sample was seen to come after a measurement, once in many runs.
    let is_told = (0..5).any(|_| {
        let (text, value) = told_without_a_measurement(&program);
        assert!(text.contains(", heap unknown, given back"), "{text}");
        let is_unknown = text.contains("weir: heap             unknown: it was not measured\n");
        assert_eq!(value["last_heap"].is_null(), is_unknown, "{text}\n{value}");
        is_unknown && value["peak"]["heap"].is_null()
    });
    assert!(is_told);
}

/// What is told of a program of which the heap is not measured before it ends, as lines and in JSON.
fn told_without_a_measurement(program: &Path) -> (String, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    // The program is the last to end: a sample of a shell alone would have a heap that is known.
    let (pipe, program) = (folder.path().join("pipe"), program.display());
    let pipe = pipe.display();
    let hold = format!(
        "mkfifo '{pipe}'; exec 3<&0; {{ echo hold 20; cat <&3; }} >'{pipe}' & exec 3<&-; exec '{program}' <'{pipe}'"
    );
    command.args(["run", "--verbose", "--stats-interval", "100ms", "--json", json.to_str().unwrap(), "--"]);
    command.args(["sh", "-c", &hold]).env("WEIR_LIB", crate::subject::library()).env_remove("LD_PRELOAD");
    command.envs([("WEIR_BACKGROUND", "0"), ("WEIR_IDLE_MS", "3600000")]);
    let mut lines = 0;
    let is_enough = |line: &str| {
        lines += u32::from(line.contains("heap unknown"));
        lines >= 3
    };
    let text = stderr(&followed(command, is_enough));
    (text, serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap())
}

#[test]
fn signals_reach_the_program() {
    let Some(bench) = Bench::new() else { return };
    for (signal, name, status) in [(libc::SIGTERM, "TERM", 5), (libc::SIGUSR1, "USR1", 6), (libc::SIGINT, "INT", 7)] {
        let script = format!("trap 'exit {status}' {name}; READY; while :; do sleep 0.05; done");
        let mut child = start(&bench, &["--quiet"], &script);
        send(signal, child.id());
        assert_eq!(child.wait().code(), Some(status), "{name}");
        std::fs::remove_file(bench.dir.path().join("ready")).unwrap();
    }
}

/// Signals of a number that only a program's own code means something by.
#[test]
fn signals_of_real_time_reach_the_program() {
    let Some(bench) = Bench::new() else { return };
    let signal = libc::SIGRTMIN() + 3;
    let script = format!("trap 'exit 9' {signal}; READY; while :; do sleep 0.05; done");
    let mut child = start(&bench, &["--quiet"], &script);
    send(signal, child.id());
    assert_eq!(child.wait().code(), Some(9));
}

/// `alarm` outlives `exec`, and a child made by `fork` does not have it.
#[test]
fn an_alarm_that_was_set_before_reaches_the_program() {
    let Some(bench) = Bench::new() else { return };
    let (weir, ready) = (env!("CARGO_BIN_EXE_weir"), bench.dir.path().join("ready"));
    let script = format!("trap 'exit 11' ALRM; touch {}; while :; do sleep 0.05; done", ready.display());
    let exec = "import os, signal, sys; signal.alarm(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])";
    // However slow the machine is: one of these is after the program's first line.
    for seconds in [1, 4, 16, 64, 256] {
        let mut command = Command::new("python3");
        command.args(["-c", exec, &seconds.to_string(), weir, "run", "--quiet", "--", "sh", "-c", &script]);
        let Ok(output) = command.env("WEIR_LIB", &bench.library).output() else { return skip!("no python3") };
        if ready.exists() {
            return assert_eq!(output.status.code(), Some(11), "{}", stderr(&output));
        }
    }
    panic!("the program does not begin");
}

#[test]
fn a_signal_that_ends_the_program_ends_weir_and_leaves_no_file() {
    let Some(bench) = Bench::new() else { return };
    let mut child = start(&bench, &["--quiet"], "READY; while :; do sleep 0.05; done");
    send(libc::SIGTERM, child.id());
    assert_eq!(child.wait().signal(), Some(libc::SIGTERM));
    assert_eq!(bench.litter(child.id()), Vec::<std::path::PathBuf>::new());
}

/// The thread that watches the program waits in a write when the program ends.
#[test]
fn a_signal_ends_weir_where_nothing_reads_what_it_writes() {
    let Some(bench) = Bench::new() else { return };
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: asks for a number.
    let room = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![b'x'; room as usize]).unwrap();
    let mut command = bench.weir(&["--quiet", "--stats-interval", "10ms", "--", "cat"]);
    let mut weir = Running(command.stdin(Stdio::piped()).stderr(writer).process_group(0).spawn().unwrap());
    if std::fs::read_to_string(format!("/proc/{}/syscall", weir.id())).is_err() {
        return skip!("the calls of another process are not shown here");
    }
    let writes = format!("{} 0x2 ", libc::SYS_write);
    let does_write = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("syscall")).is_ok_and(|call| call.starts_with(&writes))
    };
    let tasks = || std::fs::read_dir(format!("/proc/{}/task", weir.id())).unwrap().flatten();
    wait_until("a line that nothing reads", || tasks().any(does_write));
    drop(weir.0.stdin.take());
    let mut status = None;
    // Before the program has ended, the signal is the program's.
    wait_until("weir to end", || {
        send(libc::SIGTERM, weir.id());
        status = weir.0.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().signal(), Some(libc::SIGTERM));
}

#[test]
fn ignored_signals_stay_ignored() {
    let Some(bench) = Bench::new() else { return };
    let json = bench.dir.path().join("x");
    let weir = env!("CARGO_BIN_EXE_weir");
    let script = format!("trap '' HUP; {weir} run --quiet --json {} -- sh -c 'kill -HUP $$; exit 9'", json.display());
    let output = Command::new("sh").args(["-c", &script]).env("WEIR_LIB", &bench.library).output().unwrap();
    assert_eq!(output.status.code(), Some(9));
}

/// As in a service of systemd's, which ignores SIGPIPE.
#[test]
fn the_program_ignores_what_weir_was_told_to_ignore() {
    let Some(bench) = Bench::new() else { return };
    for action in [libc::SIG_IGN, libc::SIG_DFL] {
        let ignored = |mut command: Command| {
            // SAFETY: between fork and exec only the kernel is called.
            unsafe {
                command.pre_exec(move || {
                    for signal in [libc::SIGPIPE, libc::SIGCHLD, libc::SIGUSR2] {
                        libc::signal(signal, action);
                    }
                    Ok(())
                });
            }
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let program = ["grep", "SigIgn", "/proc/self/status"];
        let mut plain = Command::new(program[0]);
        plain.args(&program[1..]);
        let through = bench.weir(&[&["--quiet", "--"][..], &program].concat());
        let (plain, through) = (ignored(plain), ignored(through));
        assert!(plain.starts_with("SigIgn:") && plain == through, "{plain}{through}");
    }
}

#[test]
fn programs_that_cannot_be_helped_are_named_and_run() {
    let Some(bench) = Bench::new() else { return };
    let Some(fixed) = compile(bench.dir.path(), "fixed", "int main(void) { return 4; }", &["-static"]) else { return };
    let output = bench.run(&[fixed.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    let text = stderr(&output);
    assert!(text.contains("fixed is statically linked") && text.contains("none that used Weir"), "{text}");
    assert!(text.contains("no process used Weir"), "{text}");
}

#[test]
fn a_setuid_program_is_named() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.dir.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    // SAFETY: the call has no arguments.
    if unsafe { libc::getuid() } != 0 || std::os::unix::fs::chown(&program, Some(12_345), None).is_err() {
        return skip!("only root can make another's setuid program");
    }
    Command::new("chmod").arg("4755").arg(&program).status().unwrap();
    let output = bench.run(&[program.to_str().unwrap()]);
    assert!(stderr(&output).contains("program is setuid"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0));
}
