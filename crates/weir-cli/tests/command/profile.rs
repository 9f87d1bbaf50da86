//! `weir profile` on programs that allocate, read again by programs that nobody here wrote.

use crate::subject::{Subject, hold_listener, library, says, send, text, wait_for, weir};
use object::Object;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use weir_testing::{PATIENCE, compiles, skip, wait_until};

/// Samples are taken each so many bytes on average: of a MiB that leaks some 16.
const MEAN: &str = "65536";

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/leak.c")
}

/// The number of the line with this mark.
fn line_of(mark: &str) -> usize {
    let text = std::fs::read_to_string(source()).unwrap();
    1 + text.lines().position(|line| line.contains(&format!("/* {mark} */"))).unwrap()
}

/// A program that leaks a MiB each time that it is told to.
struct Leak {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    directory: tempfile::TempDir,
}

impl Leak {
    /// With these settings; none if this machine has no compiler.
    fn new(settings: &[(&str, &str)]) -> Option<Self> {
        // `nohup`, and a shell without a terminal, ignore some of them for the tests and all that these start.
        for signal in ENDING {
            // SAFETY: no handler is set.
            assert_ne!(unsafe { libc::signal(signal, libc::SIG_DFL) }, libc::SIG_ERR);
        }
        let directory = tempfile::tempdir().unwrap();
        let program = compiled(&directory.path().join("leak"))?;
        let mut command = Command::new(program);
        // Each sample, however slow a library it is that was built for tests.
        command.env("LD_PRELOAD", library()).env("WEIR_PROFILE_PERCENT", "0").envs(settings.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut leak = Self { child, stdin, stdout, directory };
        assert_eq!(leak.hears(), "ready\n");
        Some(leak)
    }

    fn hears(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    fn leaks(&mut self, times: usize) {
        for _ in 0..times {
            writeln!(self.stdin.as_mut().unwrap(), "leak").unwrap();
            assert_eq!(self.hears(), "done\n");
        }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Waits until it listens to who would steer it.
    fn waits_for_control(self) -> Self {
        wait_for("its control channel", || weir(&["ctl", &self.pid(), "get", "report"]).status.success().then_some(()));
        self
    }
}

impl Drop for Leak {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn compiled(program: &Path) -> Option<PathBuf> {
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O1", "-fno-builtin", "-w", "-Wl,--build-id"]).arg(source()).arg("-o").arg(program);
    compiles(&mut compiler).then(|| program.to_path_buf())
}

/// Checks the names of the leak's line and its callers, as text has them.
fn names_the_leak(shown: &str) {
    let place = |function: &str, mark: &str| format!("{function}  {}:{}", source().display(), line_of(mark));
    let flat = shown.lines().skip_while(|line| !line.contains("FUNCTION")).nth(1).unwrap_or_default();
    assert!(flat.contains(&place("leak_one", "LEAK")), "{shown}");
    let stack: Vec<&str> = shown.lines().skip_while(|line| !line.starts_with("1. ")).skip(1).map(str::trim).collect();
    let wanted = [place("leak_one", "LEAK"), place("through", "INLINED"), place("work", "CALL")];
    assert_eq!(stack[..3], wanted, "{shown}");
}

/// A command that takes a profile until it gets a signal, and has its first copy of the table: what leaks before that has not
/// grown since. It says how far it is, on a terminal.
fn recording(leak: &Leak, options: &[&str]) -> Child {
    recording_for(leak, &[&["--seconds", "3600"], options].concat(), 3600)
}

/// As [`recording`], with options by which it takes so many seconds.
fn recording_for(leak: &Leak, options: &[&str], seconds: u32) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["profile", &leak.pid()]).args(options);
    let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&outer).unwrap();
    unlockpt(&outer).unwrap();
    let name = ptsname(&outer, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let inner = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let profile = command.stdout(Stdio::piped()).stderr(inner).spawn().unwrap();
    let (says, said) = std::sync::mpsc::channel();
    // All is read, so that it never waits for a reader.
    let lines = BufReader::new(std::fs::File::from(outer)).split(b'(');
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|part| drop(says.send(text(&part)))));
    let progress = said.recv_timeout(PATIENCE).unwrap();
    assert!(progress.contains(&format!(" of {seconds} s, ")), "{progress}");
    profile
}

/// The signals that a process catches.
fn caught(pid: u32) -> Vec<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    let caught = u64::from_str_radix(caught, 16).unwrap();
    ENDING.into_iter().filter(|signal| caught >> (signal - 1) & 1 == 1).collect()
}

/// Signals that end a command.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

#[test]
fn sampling_is_switched_off_whichever_signal_ends_the_command() {
    let Some(leak) = Leak::new(&[]) else { return };
    let mut leak = leak.waits_for_control();
    for signal in ENDING {
        let mut profile = recording(&leak, &["--bytes", MEAN]);
        leak.leaks(60);
        send(signal, profile.id());
        let mut shown = String::new();
        profile.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
        assert!(profile.wait().unwrap().success(), "signal {signal}");
        names_the_leak(&shown);
        assert!(says(&["ctl", &leak.pid(), "get", "profile_bytes"]).contains(" 0"), "signal {signal} leaves it on");
    }
}

/// Its parent, this test, does not wait for it: its number stays.
#[test]
fn a_process_that_ends_meanwhile_is_not_said_to_go_on_sampling() {
    let Some(leak) = Leak::new(&[]) else { return };
    let mut leak = leak.waits_for_control();
    leak.leaks(100);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["profile", &leak.pid(), "--seconds", "3600", "--bytes", "1K"]);
    let profile = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("sampling", || says(&["ctl", &leak.pid(), "get", "profile_bytes"]).contains(" 1 KiB").then_some(()));
    send(libc::SIGKILL, leak.pid().parse().unwrap());
    let output = profile.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(!said.contains("goes on sampling") && !said.contains("panicked"), "{said}");
    assert!(output.status.code().is_some(), "{said}");
}

/// It has connected to a process whose listener is held, and so has changed nothing yet.
#[test]
fn a_signal_before_the_first_sample_ends_the_command_and_leaves_nothing_on() {
    let Some(leak) = Leak::new(&[]) else { return };
    let leak = leak.waits_for_control();
    let Some(listener) = hold_listener(leak.child.id()) else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let file = leak.file("never.txt");
    let mut profile = command.args(["profile", &leak.pid(), "--seconds", "3600", "-o", &file]).spawn().unwrap();
    let call = || std::fs::read_to_string(format!("/proc/{}/syscall", profile.id())).unwrap();
    wait_until("its wait", || call().starts_with(&format!("{} ", libc::SYS_recvfrom)));
    assert_eq!(caught(profile.id()), ENDING);
    // As a terminal that is closed has it.
    send(libc::SIGHUP, profile.id());
    send(libc::SIGHUP, profile.id());
    drop(listener);
    assert_eq!(profile.wait().unwrap().signal(), Some(libc::SIGHUP));
    assert!(!Path::new(&file).exists(), "nothing was sampled");
    assert!(says(&["ctl", &leak.pid(), "get", "profile_bytes"]).contains(" 0"), "it is off");
}

#[test]
fn a_leak_is_found_to_its_line_in_a_process_that_took_no_samples() {
    let Some(leak) = Leak::new(&[]) else { return };
    let mut leak = leak.waits_for_control();
    let mut profile = recording(&leak, &["--bytes", MEAN]);
    assert!(says(&["ctl", &leak.pid(), "--json", "get", "profile_bytes"]).contains(MEAN));
    // Another mean would be taken for what it was before by whichever ends last.
    let other = weir(&["profile", &leak.pid(), "--bytes", "1M", "--seconds", "1"]);
    let said = text(&other.stderr);
    assert!(other.status.code() == Some(5) && said.contains("another `weir profile`"), "{said}");
    leak.leaks(60);
    // As Ctrl-C.
    send(libc::SIGINT, profile.id());
    let mut shown = String::new();
    profile.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert!(profile.wait().unwrap().success());
    names_the_leak(&shown);
    assert!(shown.contains("note: no samples were taken before"), "{shown}");
    // What is freed at once is not live, and has been allocated.
    assert!(!shown.contains(&format!("leak.c:{}", line_of("FREED"))), "{shown}");
    assert!(says(&["ctl", &leak.pid(), "get", "profile_bytes"]).contains(" 0"), "it is switched off again");
    // A second one has what the first one found and lives.
    let again = says(&["profile", &leak.pid(), "--seconds", "1"]);
    names_the_leak(&again);
    assert!(again.contains("note: samples were taken before for a part of the time"), "{again}");
    assert!(!again.contains("no samples were taken before"), "{again}");
}

#[test]
fn a_process_that_samples_is_read_at_once_in_every_format() {
    let Some(mut leak) = Leak::new(&[("WEIR_PROFILE_BYTES", MEAN)]) else { return };
    leak.leaks(10);
    let pid = leak.pid();
    names_the_leak(&says(&["profile", &pid]));
    let allocated = says(&["profile", &pid, "--allocated"]);
    assert!(allocated.contains(&format!("leak.c:{}", line_of("FREED"))), "{allocated}");
    let collapsed = says(&["profile", &pid, "--format", "collapsed"]);
    assert!(collapsed.lines().any(|line| line.contains("main;work;through;leak_one ")), "{collapsed}");
    let page = leak.file("page.html");
    says(&["profile", &pid, "-o", &page]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("leak_one "), "{page}");
    let file = leak.file("heap.pb.gz");
    says(&["profile", &pid, "--output", &file]);
    assert!(std::fs::read(file).unwrap().starts_with(&[0x1f, 0x8b]), "it is packed by gzip");
}

#[test]
#[ignore = "nightly: needs go, which builds its pprof first"]
fn gos_pprof_reads_the_profile_of_a_process() {
    let Some(mut leak) = Leak::new(&[("WEIR_PROFILE_BYTES", MEAN)]) else { return };
    leak.leaks(10);
    let file = leak.file("heap.pb.gz");
    says(&["profile", &leak.pid(), "--output", &file]);
    let Some(top) = pprof(&["-top", "-lines", &file]) else { return };
    let line = format!("leak_one {}:{}", source().display(), line_of("LEAK"));
    assert!(top.lines().any(|it| it.ends_with(&line)) && top.contains("Type: inuse_space"), "{top}");
    let allocated = pprof(&["-top", "-sample_index=alloc_space", &file]).unwrap();
    assert!(allocated.contains("work") && allocated.contains("leak_one"), "{allocated}");
}

/// Output of Go's pprof; none if there is no Go here.
fn pprof(arguments: &[&str]) -> Option<String> {
    let output = Command::new("go").args(["tool", "pprof"]).args(arguments).output();
    let output = output.inspect_err(|error| skip!("no go ({error}); Debian has it in golang-go")).ok()?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout))
}

#[test]
fn a_time_of_a_process_that_samples_is_the_difference() {
    let Some(mut leak) = Leak::new(&[("WEIR_PROFILE_BYTES", MEAN)]) else { return };
    leak.leaks(10);
    let shown = says(&["profile", &leak.pid(), "--seconds", "1"]);
    // It allocates nothing meanwhile; what it leaked before is live.
    names_the_leak(&shown);
    assert!(shown.contains("+0 B since the beginning"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("allocated") && line.ends_with("0 B in 0 objects")), "{shown}");
}

#[test]
fn another_mean_takes_samples_of_its_own() {
    let Some(mut leak) = Leak::new(&[("WEIR_PROFILE_BYTES", "1048576")]) else { return };
    leak.leaks(10);
    let mut leak = leak.waits_for_control();
    let mut profile = recording_for(&leak, &["--bytes", MEAN], 30);
    let pid = leak.pid();
    let mean = || says(&["ctl", &pid, "--json", "get", "profile_bytes"]);
    assert!(mean().contains(MEAN));
    leak.leaks(60);
    send(libc::SIGINT, profile.id());
    let mut shown = String::new();
    profile.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert!(profile.wait().unwrap().success());
    assert!(shown.contains("since the beginning"), "{shown}");
    wait_until("the mean as it was", || mean().contains("1048576"));
}

#[test]
fn sampling_that_others_change_meanwhile_is_noted_and_left_as_they_set_it() {
    let Some(leak) = Leak::new(&[("WEIR_PROFILE_BYTES", MEAN)]) else { return };
    let mut leak = leak.waits_for_control();
    leak.leaks(10);
    for (options, set, note) in [
        (&[][..], "0", "sampling was switched off meanwhile"),
        (&["--bytes", MEAN], "1048576", "from one each 64.0 KiB to one each 1.0 MiB"),
    ] {
        let mut profile = recording(&leak, options);
        says(&["ctl", &leak.pid(), "set", "profile_bytes", set]);
        leak.leaks(1);
        send(libc::SIGINT, profile.id());
        let mut shown = String::new();
        profile.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
        assert!(profile.wait().unwrap().success() && shown.contains(note), "{shown}");
        assert!(says(&["ctl", &leak.pid(), "--json", "get", "profile_bytes"]).contains(&format!(": {set}\n")));
    }
}

/// Runs a program that leaks under `weir run --profile`; its directory, and the command that it is told to read the
/// profile by.
fn profiled_to_its_end() -> Option<(tempfile::TempDir, String)> {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(&directory.path().join("leak"))?;
    let name = directory.path().join("heap");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["run", "--profile"]).arg(&name).arg("--").arg(program);
    command.env("WEIR_LIB", library()).env("WEIR_PROFILE_BYTES", MEAN).env("WEIR_PROFILE_PERCENT", "0");
    let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(&b"leak\n".repeat(10)).unwrap();
    let output = run.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let command =
        said.lines().find_map(|line| line.split_once("read one: weir ")).unwrap_or_else(|| panic!("{said}")).1;
    Some((directory, command.to_owned()))
}

#[test]
fn the_file_that_a_process_writes_at_its_end_is_read() {
    let Some((_directory, command)) = profiled_to_its_end() else { return };
    names_the_leak(&says(&command.split(' ').collect::<Vec<_>>()));
    let file = command.split_once(' ').unwrap().1;
    let refused = weir(&["profile", file, "--seconds", "1"]);
    assert!(text(&refused.stderr).contains("are for a running process"), "{}", text(&refused.stderr));
}

/// By its build id another machine would name functions of the file that was mapped.
#[test]
fn a_program_that_was_replaced_since_lends_its_build_id_to_no_profile() {
    let Some((directory, command)) = profiled_to_its_end() else { return };
    let profile = command.split_once(' ').unwrap().1;
    let program = directory.path().join("leak");
    let bytes = std::fs::read(&program).unwrap();
    let id = object::File::parse(bytes.as_slice()).unwrap().build_id().unwrap().expect("one was asked for").to_vec();
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let written = |format: &str| {
        let output = weir(&["profile", profile, "--format", format]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (output.stdout, text(&output.stderr))
    };
    let pprof = || {
        let (packed, said) = written("pprof");
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
        (text(&bytes), said)
    };
    let note = format!("{} cannot be read, or is not the file that was mapped", program.display());
    let (shown, said) = pprof();
    assert!(shown.contains(&id) && !shown.contains(&note) && !said.contains(&note), "{said}");
    let copy = directory.path().join("copy");
    std::fs::copy(&program, &copy).unwrap();
    std::fs::rename(&copy, &program).unwrap();
    let (shown, said) = pprof();
    assert!(!shown.contains(&id) && shown.contains(&note), "{shown:?}");
    for said in [said, written("collapsed").1] {
        assert!(said.lines().any(|line| line.starts_with(&format!("weir: note: {note}"))), "{said}");
    }
}

/// The reader that knows this form for longest.
#[test]
#[ignore = "nightly: needs go, which builds its pprof first"]
fn gos_pprof_reads_the_file_that_a_process_writes_at_its_end() {
    let Some((_directory, command)) = profiled_to_its_end() else { return };
    let Some(top) = pprof(&["-top", command.split_once(' ').unwrap().1]) else { return };
    assert!(top.contains("leak_one"), "{top}");
}

#[test]
fn what_cannot_be_profiled_is_said_in_a_line() {
    let refused = |args: &[&str], status: i32, say: &str| {
        let output = weir(&[&["profile"], args].concat());
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(status) && said.contains(say) && said.lines().count() == 1, "{said}");
    };
    refused(&["999999999"], 3, "there is no such process");
    refused(&[&std::process::id().to_string()], 4, "runs without Weir");
    refused(&["no/such/file"], 3, "cannot read no/such/file");
    let more_than_the_setting_can_be = weir(&["profile", "1", "--bytes", "2T"]);
    let said = text(&more_than_the_setting_can_be.stderr);
    assert!(more_than_the_setting_can_be.status.code() == Some(2) && said.contains("profile_bytes"), "{said}");
    refused(&["Cargo.toml"], 125, "does not begin with `heap profile:`");
    let hostile = tempfile::NamedTempFile::new().unwrap();
    let line = "\u{1b}[31mEVIL\u{7}".to_owned() + &"x".repeat(100_000);
    std::fs::write(hostile.path(), format!("heap profile: 1: 2 [3: 4] @ heap_v2/1\n{line}\nMAPPED_LIBRARIES:\n"))
        .unwrap();
    let said = text(&weir(&["profile", hostile.path().to_str().unwrap()]).stderr);
    assert!(said.contains("line 2 is no stack: `?[31mEVIL?x") && said.len() < 2000, "{said}");
    let Some(leak) = Leak::new(&[("WEIR_CONTROL", "0")]) else { return };
    wait_for("its page", || {
        let said = text(&weir(&["profile", &leak.pid(), "--seconds", "1"]).stderr);
        (said.contains("`control` is 0") && said.contains("WEIR_PROFILE_BYTES=524288")).then_some(())
    });
    let leak = Leak::new(&[]).unwrap().waits_for_control();
    let [new, kept] = ["new.txt", "kept.txt"].map(|name| leak.file(name));
    std::fs::write(&kept, "earlier").unwrap();
    for file in [&new, &kept] {
        refused(&[&leak.pid(), "--seconds", "1", "--bytes", "1G", "-o", file], 125, "no samples in 1 s");
    }
    assert!(!Path::new(&new).exists());
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "earlier");
}

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
    wait_for("its control channel", || weir(&["ctl", &pid, "report"]).status.success().then_some(()));
    let before = metadata(&pid);
    assert!(says(&["profile", &pid]).contains("subject"));
    let after = metadata(&pid);
    assert!(after < before + (1 << 20), "{before} bytes of metadata before, {after} after");
}

/// A file's name chooses the format, and `-` is none.
#[test]
fn standard_output_gets_text_by_either_name() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "heap profile: 1: 64 [1: 64] @ heap_v2/1\n1: 64 [1: 64] @ 0x1000\nMAPPED_LIBRARIES:\n")
        .unwrap();
    let file = file.path().to_str().unwrap();
    assert_eq!(says(&["profile", file, "-o", "-"]), says(&["profile", file]));
}
