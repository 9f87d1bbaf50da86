//! `weir run` over programs of many processes.

use super::bench::{Bench, compile, followed, send, start, stderr, wait_until};

use serde_json::Value;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use weir_testing::skip;

const MIB: u64 = 1 << 20;

/// Holds memory until its standard input ends: `hold MIB CHILDREN`; the children share what the parent touched and touch
/// as much more.
const HOLD: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void wait_for_end(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {}
}
int main(int argc, char **argv) {
    size_t bytes = (size_t)atoi(argv[1]) << 20;
    char *shared = malloc(bytes);
    memset(shared, 1, bytes);
    int children = atoi(argv[2]);
    for (int i = 0; i < children; i++) {
        if (fork() == 0) {
            char *own = malloc(bytes);
            memset(own, 2, bytes);
            wait_for_end();
            _exit(shared[9] + own[9] == 3 ? 0 : 1);
        }
    }
    wait_for_end();
    while (wait(0) > 0) {}
    return shared[9] - 1;
}
"#;

/// Figures of a line of `--stats-interval`.
struct Line {
    resident_mib: f64,
    processes: usize,
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once(" s: resident ")?;
        let (resident, rest) = rest.split_once(" in ")?;
        let (amount, unit) = resident.split_once(' ')?;
        let resident_mib = if unit == "MiB" { amount.parse().ok()? } else { 0.0 };
        Some(Self { resident_mib, processes: rest.split(' ').next()?.parse().ok()? })
    }
}

/// Enough is so many lines of which this is so.
fn times(count: u32, is_so: impl Fn(&Line) -> bool) -> impl FnMut(&Line) -> bool {
    let mut seen = 0;
    move |line| {
        seen += u32::from(is_so(line));
        seen >= count
    }
}

impl Bench {
    /// Runs a program, the standard input of which ends when enough was seen of it: its figures, and what was said.
    fn figures(&self, options: &[&str], program: &[&str], is_enough: impl FnMut(&Line) -> bool) -> (Value, Output) {
        self.figures_of(self.weir(&[]), options, program, is_enough)
    }

    fn figures_of(
        &self,
        mut command: Command,
        options: &[&str],
        program: &[&str],
        mut is_enough: impl FnMut(&Line) -> bool,
    ) -> (Value, Output) {
        let json = self.dir.path().join("figures.json");
        command.args(options).args(["--stats-interval", "50ms", "--json", json.to_str().unwrap(), "--"]).args(program);
        let output = followed(command, |line| Line::read(line).is_some_and(|line| is_enough(&line)));
        (serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap(), output)
    }
}

fn hold(bench: &Bench) -> Option<String> {
    compile(bench.dir.path(), "hold", HOLD, &["-O0"]).map(|path| path.to_str().unwrap().to_owned())
}

#[test]
fn resident_is_the_sum_and_shared_pages_count_once() {
    let Some(bench) = Bench::new() else { return };
    let Some(hold) = hold(&bench) else { return };
    // 3 children of 20 MiB each, and 20 that all four share: 80, where resident sets add up to 140 and one is 40.
    let script = format!("{hold} 20 3; true");
    let (figures, output) =
        bench.figures(&["--verbose"], &["sh", "-c", &script], |line| line.processes == 5 && line.resident_mib > 79.0);
    let peak = figures["peak_resident_bytes"].as_u64().unwrap();
    assert!((75 * MIB..100 * MIB).contains(&peak), "{peak}: {}", stderr(&output));
    assert_eq!((figures["peak"]["processes"].as_u64(), figures["peak"]["by_rss"].as_u64()), (Some(5), Some(0)));
    let largest = figures["peak"]["largest"].as_array().unwrap();
    assert!(largest.len() == 3 && largest.iter().all(|p| p["name"] == "hold" && p["pid"].as_u64() > Some(1)));
    assert!(stderr(&output).contains(" in 5 processes") && stderr(&output).contains("largest          hold "));
}

#[test]
fn the_limit_says_who_exceeded_it_and_by_how_much() {
    let Some(bench) = Bench::new() else { return };
    let Some(hold) = hold(&bench) else { return };
    // Ten lines at intervals of 50 ms that tell of more than the limit.
    let is_enough = times(10, |line| line.resident_mib > 39.0);
    let (figures, output) = bench.figures(&["--limit", "16M"], &[&hold, "40", "0"], is_enough);
    let limit = &figures["limit"];
    let over = limit["exceeded_by_bytes"].as_u64().unwrap();
    assert!((24 * MIB..30 * MIB).contains(&over), "{over}");
    let (above, all) = (limit["exceeded_seconds"].as_f64().unwrap(), figures["elapsed_seconds"].as_f64().unwrap());
    assert!(0.0 < above && above <= all && limit["by"]["name"] == "hold", "{above} of {all} s: {limit}");
    assert!(stderr(&output).contains("16.0 MiB a process, exceeded by hold "), "{}", stderr(&output));
    let (kept, output) = bench.figures(&["--limit", "64M"], &[&hold, "20", "0"], |line| line.resident_mib > 19.0);
    assert_eq!(kept["limit"]["exceeded_by_bytes"], 0);
    assert!(stderr(&output).contains("never exceeded"));
}

/// Nothing waits for it but `weir`, and it may end before a sample shows it.
#[test]
fn an_orphan_that_ended_counts_for_the_limit() {
    let Some(bench) = Bench::new() else { return };
    let source = "#include <stdlib.h>\n#include <string.h>\n\
        int main(void) { char *p = malloc(60 << 20); memset(p, 1, 60 << 20); return p[9] - 1; }";
    let Some(large) = compile(bench.dir.path(), "large", source, &["-O0"]) else { return };
    // The shell's child goes at once. The orphan is there until `weir` has waited for it.
    let waits = "(read -r orphan; while kill -0 $orphan 2>/dev/null; do sleep 0.01; done)";
    let script = format!("((({}; :) & echo $!) | {waits})", large.to_str().unwrap());
    let said = stderr(&bench.run(&["--limit", "32M", "--", "sh", "-c", &script]));
    assert!(said.contains("32.0 MiB a process, exceeded"), "{said}");
}

#[test]
fn a_daemon_is_followed_and_outlives_the_run() {
    let Some(bench) = Bench::new() else { return };
    let Some(hold) = hold(&bench) else { return };
    // Its parent ends at once, so that it is an orphan. It ends with the reader of the pipe.
    let dir = bench.dir.path().display();
    assert!(Command::new("mkfifo").arg(bench.dir.path().join("fifo")).status().unwrap().success());
    let open = std::fs::OpenOptions::new().read(true).write(true).open(bench.dir.path().join("fifo")).unwrap();
    let script = format!("(setsid {hold} 30 0 <{dir}/fifo >{dir}/said 2>&1 & echo $! >{dir}/daemon); cat");
    let (figures, output) = bench.figures(&[], &["sh", "-c", &script], |line| line.resident_mib > 30.0);
    assert!(figures["peak_resident_bytes"].as_u64() > Some(30 * MIB), "{figures}");
    assert_eq!(figures["left_running"][0]["name"], "hold", "{}", stderr(&output));
    let daemon = std::fs::read_to_string(bench.dir.path().join("daemon")).unwrap();
    assert!(Path::new("/proc").join(daemon.trim()).exists(), "it was ended with the run");
    drop(open);
}

#[test]
fn with_wait_the_run_ends_with_its_last_process() {
    let Some(bench) = Bench::new() else { return };
    let [done, go, json, program] = ["done", "go", "figures.json", "program"].map(|name| bench.dir.path().join(name));
    let has_ended = || !Path::new("/proc").join(std::fs::read_to_string(&program).unwrap().trim()).exists();
    let (go_on, program) = (go.display(), &program);
    let orphan = format!("until [ -e {go_on} ]; do sleep 0.05; done; echo x >{}", done.display());
    let script = format!("(setsid sh -c '{orphan}' &); echo $$ >{}; READY; exit 5", program.display());
    let mut child = start(&bench, &["--quiet", "--wait", "--json", json.to_str().unwrap()], &script);
    wait_until("the program's end", has_ended);
    std::fs::write(&go, "").unwrap();
    assert_eq!((child.wait().code(), done.exists()), (Some(5), true));
    let figures: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!((&figures["exit_status"], figures["left_running"].as_array().map(Vec::len)), (&Value::from(5), Some(0)));
    std::fs::remove_file(bench.dir.path().join("ready")).unwrap();
    let script = format!("(setsid sleep 3600 &); echo $$ >{}; READY; exit 6", program.display());
    let mut child = start(&bench, &["--quiet", "--wait"], &script);
    // Once the program has ended, what is left gets the signal.
    wait_until("the program's end", has_ended);
    send(libc::SIGTERM, child.id());
    assert_eq!(child.wait().code(), Some(6));
}

#[test]
fn as_pid_1_orphans_are_reaped() {
    let Some(bench) = Bench::new() else { return };
    // SAFETY: the call has no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return skip!("only root can make a PID namespace");
    }
    // Whoever is in the file has begun. Where /proc is the outer namespace's, it tells nothing of their numbers.
    let ended = bench.dir.path().join("ended").display().to_string();
    let script = "for i in 1 2 3 4 5; do (setsid sh -c 'echo $$ >>ENDED' &) ; done; \
                  is_done() { [ $(wc -l <ENDED) = 5 ] && for p in $(cat ENDED); do [ ! -e PROC/$p ] || return 1; done; }; \
                  i=0; until is_done || [ $i = 6000 ]; do sleep 0.05; i=$((i + 1)); done; \
                  echo zombies $(cat /proc/[0-9]*/stat | grep -c ') Z ') pid $$; exit 9";
    for mount_proc in [&["--mount-proc"][..], &[]] {
        let script =
            script.replace("ENDED", &ended).replace("PROC", if mount_proc.is_empty() { "/no" } else { "/proc" });
        std::fs::write(&ended, "").unwrap();
        let mut command = Command::new("unshare");
        command.args(["--fork", "--pid"]).args(mount_proc).arg(env!("CARGO_BIN_EXE_weir"));
        command.args(["run", "--", "sh", "-c", &script]).env("WEIR_LIB", &bench.library);
        let output = command.output().unwrap();
        if output.status.code() == Some(1) {
            return skip!("unshare is refused here: {}", stderr(&output));
        }
        assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !mount_proc.is_empty() {
            assert!(said.contains("zombies 0 pid 2"), "{said}");
        }
        // Where /proc is the outer namespace's, this process and its tree are found all the same.
        assert!(stderr(&output).contains(" used Weir") && stderr(&output).contains("peak "), "{}", stderr(&output));
    }
    // A signal that ends the program cannot end PID 1: the status tells.
    let mut command = Command::new("unshare");
    command.args([
        "--fork",
        "--pid",
        "--mount-proc",
        env!("CARGO_BIN_EXE_weir"),
        "run",
        "-q",
        "sh",
        "-c",
        "kill -TERM $$",
    ]);
    assert_eq!(command.env("WEIR_LIB", &bench.library).status().unwrap().code(), Some(128 + libc::SIGTERM));
}

/// An orphan starts another process under the program's number, which is free by then.
#[test]
fn a_process_that_has_the_programs_number_later_is_not_the_program() {
    let Some(bench) = Bench::new() else { return };
    // SAFETY: the call has no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return skip!("only root can make a PID namespace");
    }
    let [orphan, said] = ["orphan", "said"].map(|name| bench.dir.path().join(name).display().to_string());
    let script = "until [ ! -e /proc/$1 ]; do sleep 0.05; done\n\
                  echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid || { echo refused >SAID; exit; }\n\
                  sh -c 'echo $$ >SAID; exit 7' &\n";
    std::fs::write(&orphan, script.replace("SAID", &said)).unwrap();
    let program = format!("echo $$ >{said}.program; (setsid sh {orphan} $$ &); exit 5");
    let mut command = Command::new("unshare");
    command.args(["--fork", "--pid", "--mount-proc", env!("CARGO_BIN_EXE_weir"), "run", "--quiet", "--wait", "--"]);
    let output = command.args(["sh", "-c", &program]).env("WEIR_LIB", &bench.library).output().unwrap();
    if output.status.code() == Some(1) {
        return skip!("unshare is refused here: {}", stderr(&output));
    }
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let [program, other] = ["said.program", "said"].map(|name| std::fs::read_to_string(bench.dir.path().join(name)));
    let other = other.unwrap();
    if other.trim() == "refused" {
        return skip!("no process can be given a number here");
    }
    assert_eq!(other, program.unwrap(), "{}", stderr(&output));
}

#[test]
fn killed_it_leaves_no_file_and_its_program_goes_on() {
    let Some(bench) = Bench::new() else { return };
    let went_on = bench.dir.path().join("went on");
    let go = bench.dir.path().join("go");
    let script = format!(
        "READY; until [ -e '{}' ]; do sleep 0.05; done; cat /dev/null; touch '{}'",
        go.display(),
        went_on.display()
    );
    let mut child = start(&bench, &["--quiet"], &script);
    send(libc::SIGKILL, child.id());
    assert_eq!(child.wait().signal(), Some(libc::SIGKILL));
    std::fs::write(go, "").unwrap();
    assert_eq!(bench.litter(child.id()), Vec::<std::path::PathBuf>::new());
    wait_until("the program to end by itself", || went_on.exists());
}

#[test]
fn statistics_need_no_place_to_write_and_no_program_needs_them() {
    let Some(bench) = Bench::new() else { return };
    let output = bench.weir(&["sh", "-c", "exit 4"]).env("TMPDIR", "/no/such").output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("1 used Weir"), "{}", stderr(&output));
    // A limit on the length of files, which ends whoever goes beyond it.
    let script = format!("ulimit -f 1; exec {} run -- sh -c 'exit 4'", env!("CARGO_BIN_EXE_weir"));
    let limited = Command::new("sh").args(["-c", &script]).env("WEIR_LIB", &bench.library).output().unwrap();
    assert_eq!(limited.status.code(), Some(4), "{}", stderr(&limited));
    assert!(
        stderr(&limited).starts_with("weir: warning: no statistics of the program's processes: cannot make a memfd")
    );
}

/// The limit leaves no room for a thread's stack.
#[test]
fn a_program_runs_though_no_thread_can_watch_it() {
    let Some(bench) = Bench::new() else { return };
    let script = format!("ulimit -d 2000; exec {} run -- sh -c 'exit 4'", env!("CARGO_BIN_EXE_weir"));
    let mut command = Command::new("sh");
    // A backtrace that finds no memory waits for itself.
    command.args(["-c", &script]).env("WEIR_LIB", &bench.library).env("RUST_BACKTRACE", "0");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let said = "or less; it was not measured (cannot start a thread: ";
    assert!(stderr(&output).contains(said) && stderr(&output).contains("1 used Weir"), "{}", stderr(&output));
}

#[test]
fn processes_without_weir_are_named() {
    let Some(bench) = Bench::new() else { return };
    let waits = "#include <unistd.h>\nint main(void) { char c; while (read(0, &c, 1) > 0); return 0; }";
    let own = "#include <stddef.h>\n#include <string.h>\n#include <unistd.h>\nstatic char a[64 << 20];\nstatic size_t n;\n\
        void *malloc(size_t s) { n += (s + 15) & ~15ul; return a + n - ((s + 15) & ~15ul); }\nvoid free(void *p) {}\n\
        int main(void) { char c; memset(malloc(20 << 20), 1, 20 << 20); while (read(0, &c, 1) > 0); return 0; }";
    let Some(own) = compile(bench.dir.path(), "own", own, &["-O0", "-fno-builtin"]) else { return };
    let Some(fixed) = compile(bench.dir.path(), "fixed", waits, &["-static"]) else { return };
    let script = "exec 3<&0; OWN <&3 & FIXED <&3 & env -u LD_PRELOAD cat <&3 >&2 & wait; true";
    let script = script.replace("OWN", own.to_str().unwrap()).replace("FIXED", fixed.to_str().unwrap());
    // Each is judged by its first sample, and one that might still load it again after 200 ms.
    let (figures, output) = judged("cat", "without_weir", |count| {
        let is_enough = times(count, |line| line.processes == 4 && line.resident_mib > 19.0);
        bench.figures(&[], &["sh", "-c", &script], is_enough)
    });
    let why = |name: &str| reason(&figures, "without_weir", name);
    assert_eq!(why("fixed"), "is statically linked", "{figures}");
    assert_eq!(why("own"), "has a malloc of its own");
    assert!(why("cat").starts_with("did not load it"));
    assert_eq!(why("sh"), "");
    assert!(figures["verdict"].as_str().unwrap().contains("without Weir: "), "{}", stderr(&output));
}

/// Why this process is in this list of the figures; nothing if it is not.
fn reason(figures: &Value, list: &str, name: &str) -> String {
    let all = figures[list].as_array().unwrap();
    all.iter().find(|p| p["name"] == name).map_or("", |p| p["why"].as_str().unwrap()).to_owned()
}

/// Runs a program for ever more lines of figures, until this process was judged. Lines are as frequent
/// as samples, or more.
fn judged(name: &str, list: &str, mut run: impl FnMut(u32) -> (Value, Output)) -> (Value, Output) {
    for count in [10, 40, 160, 640] {
        let (figures, output) = run(count);
        if !reason(&figures, list, name).is_empty() {
            return (figures, output);
        }
    }
    run(2560)
}

#[test]
fn a_program_that_became_another_user_is_named() {
    let Some(bench) = Bench::new() else { return };
    // SAFETY: the call has no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return skip!("only root can become another user");
    }
    if !Command::new("setpriv").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip!("no setpriv; Debian has it in util-linux");
    }
    // Another user has to reach the library.
    let library = std::env::temp_dir().join(format!("libstandin-{}.so", std::process::id()));
    std::fs::copy(&bench.library, &library).unwrap();
    let become_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat"];
    // It is judged by its first sample, and again after 200 ms.
    let (figures, output) = judged("cat", "uncounted", |count| {
        let mut command = bench.weir(&[]);
        command.env("WEIR_LIB", &library);
        bench.figures_of(command, &[], &become_nobody, times(count, |line| line.processes == 1))
    });
    std::fs::remove_file(&library).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(figures["uncounted"][0]["name"], "cat", "{figures}");
    assert!(stderr(&output).contains("on Weir, but not counted: cat "), "{}", stderr(&output));
}

#[test]
fn json_to_standard_output_and_to_pipes() {
    let Some(bench) = Bench::new() else { return };
    let output = bench.run(&["--quiet", "--json", "-", "sh", "-c", "echo first; exit 3"]);
    let said = String::from_utf8(output.stdout).unwrap();
    let figures: Value = serde_json::from_str(said.strip_prefix("first\n").unwrap()).unwrap();
    assert_eq!((output.status.code(), &figures["exit_status"]), (Some(3), &Value::from(3)));
    let fifo = bench.dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let name = fifo.to_str().unwrap();
    for option in ["--json", "--trace"] {
        let refused = bench.run(&[option, name, "true"]);
        assert_eq!(refused.status.code(), Some(125), "it would wait for a reader");
        assert!(stderr(&refused).contains("nothing reads it"), "{}", stderr(&refused));
    }
    let reader = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
    assert_eq!(bench.run(&["--quiet", "--json", name, "true"]).status.code(), Some(0));
    let figures: Value = serde_json::from_str(&std::io::read_to_string(reader).unwrap()).unwrap();
    assert_eq!(figures["program"], "true");
    let refused = bench.run(&["--trace", "-", "true"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(stderr(&refused).contains("give --trace a file"), "{}", stderr(&refused));
}

#[test]
fn bad_units_are_refused_in_one_line() {
    let Some(bench) = Bench::new() else { return };
    for (option, value, say) in [
        ("--limit", "100", "100 what? write 100M"),
        ("--limit", "64K", "less than any program takes"),
        ("--stats-interval", "5", "5 what? write 5s"),
        ("--stats-interval", "1M", "1month"),
    ] {
        let refused = bench.run(&[option, value, "echo", "ran"]);
        let said = stderr(&refused);
        assert_eq!((refused.status.code(), refused.stdout.as_slice()), (Some(125), &b""[..]));
        assert!(said.starts_with("weir: --") && said.contains(say) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn children_of_a_former_program_are_not_counted() {
    let Some(bench) = Bench::new() else { return };
    let Some(hold) = hold(&bench) else { return };
    let script = format!(
        "exec 3<&0; {hold} 40 0 <&3 >&2 & \
         until [ $(cut -d ' ' -f 2 /proc/$!/statm) -gt 10240 ]; do sleep 0.05; done; \
         exec {} run \"$@\"",
        env!("CARGO_BIN_EXE_weir")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).env("WEIR_LIB", &bench.library);
    // So many lines are of enough samples.
    let (figures, _) = bench.figures_of(command, &["--quiet"], &["cat"], times(40, |line| line.processes > 0));
    assert!(figures["peak_resident_bytes"].as_u64() < Some(20 * MIB), "{figures}");
    assert_eq!(figures["peak"]["processes"], 1);
}
