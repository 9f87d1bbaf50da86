//! `weir shrink` on groups of real processes: a cgroup of this machine's, and a directory that is like one of version 2.

use crate::subject::{Group, NO_STALLS, Subject, hold_listener, library, program, resident, text, wait_for, weir};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use weir_testing::skip;

const MIB: u64 = 1 << 20;
/// Bounds are no part of what is tested: a busy machine takes its time.
const TIMEOUT: &str = "2m";

/// A group with a limit.
struct Limited(Group);

impl Limited {
    /// Starts the program of these tests inside.
    fn start(&self, with_weir: bool) -> Option<Subject> {
        let program = program(&[])?;
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$1\""]).arg(&self.0.0).arg(&program);
        if with_weir {
            command.envs(NO_STALLS).env("LD_PRELOAD", library());
        }
        Some(Subject::start(command))
    }

    fn limit(&self) -> u64 {
        let limit = ["memory.max", "memory.limit_in_bytes"]
            .iter()
            .find_map(|file| fs::read_to_string(self.0.0.join(file)).ok());
        limit.unwrap().trim().parse().unwrap_or(u64::MAX)
    }
}

macro_rules! group {
    () => {
        match Group::new(&["memory.max", "memory.limit_in_bytes"]).map(Limited) {
            Some(group) => group,
            None => return skip!("this user cannot make a cgroup with a memory limit"),
        }
    };
}

/// One whose channel is open, that keeps what is idle.
fn steered(mut subject: Subject, first: &str) -> Subject {
    assert_eq!(subject.tell("hold 12"), "done");
    let pid = subject.pid().to_string();
    wait_for("the channel", || weir(&["ctl", &pid, "set", "idle_ms", "3600000"]).status.success().then_some(()));
    assert_eq!(subject.tell(first), "done");
    subject
}

/// Runs it; its exit status, what it says on standard error, and its table.
fn shrink(group: &Path, to: &str) -> (Option<i32>, String, Value) {
    let output = weir(&["shrink", "--cgroup", group.to_str().unwrap(), "--to", to, "--timeout", TIMEOUT, "--json"]);
    (output.status.code(), text(&output.stderr), serde_json::from_slice(&output.stdout).unwrap_or_default())
}

fn process(outcome: &Value, pid: u32) -> &Value {
    let processes = outcome["processes"].as_array().unwrap();
    processes.iter().find(|it| it["pid"] == pid).unwrap_or_else(|| panic!("{pid} is missing: {outcome}"))
}

#[test]
fn idle_memory_goes_first_then_caches_and_who_is_not_on_weir_is_left_alone() {
    let group = group!();
    let (Some(idle), Some(cache), Some(other)) = (group.start(true), group.start(true), group.start(false)) else {
        return;
    };
    let (mut idle, mut cache, mut other) = (steered(idle, "hold 100"), steered(cache, "cache 100"), other);
    assert_eq!((idle.tell("drop"), other.tell("hold 40")), ("done".into(), "done".into()));
    // What is idle is enough.
    let (status, said, outcome) = shrink(&group.0.0, "220M");
    assert_eq!((status, said.as_str(), group.limit()), (Some(0), "", 220 * MIB), "{outcome}");
    assert!(process(&outcome, idle.pid())["given_bytes"].as_u64() > Some(90 * MIB), "{outcome}");
    assert!(resident(cache.pid()) > 100 * MIB, "its cache was not needed: {outcome}");
    // Then the cache has to give.
    let (status, said, outcome) = shrink(&group.0.0, "110M");
    assert_eq!((status, said.as_str(), group.limit()), (Some(0), "", 110 * MIB), "{outcome}");
    assert!(resident(cache.pid()) < 80 * MIB, "{outcome}");
    let told = process(&outcome, other.pid());
    assert!(told["not_asked"].as_str().unwrap().starts_with("it runs without Weir"), "{outcome}");
    assert!(resident(other.pid()) >= 40 * MIB && told["resident_bytes"].as_u64() >= Some(40 * MIB), "{outcome}");
    assert_eq!(cache.tell("hold 0"), "done", "all are alive");
    assert_eq!(other.tell("hold 0"), "done");
}

/// Its shrinker frees a MiB in 50 ms: what is asked for takes it more than ten rounds.
#[test]
fn who_gives_slowly_is_waited_for() {
    let group = group!();
    let Some(slow) = group.start(true) else { return };
    let mut slow = steered(slow, "slow cache 80");
    let (status, said, outcome) = shrink(&group.0.0, "40M");
    assert_eq!((status, said.as_str(), group.limit()), (Some(0), "", 40 * MIB), "{outcome}");
    assert_eq!(outcome["missing_bytes"], 0, "{outcome}");
    assert!(outcome["took_ns"].as_u64() >= Some(2_000_000_000), "{outcome}");
    assert_eq!(slow.tell("hold 0"), "done", "it is alive");
}

#[test]
fn what_evictable_caches_hold_says_who_is_asked() {
    let group = group!();
    let (Some(live), Some(cache)) = (group.start(true), group.start(true)) else { return };
    let (mut live, cache) = (steered(live, "hold 80"), steered(cache, "evictable 80"));
    let before = resident(cache.pid());
    assert!(before > 80 * MIB, "{before}");
    let (status, said, outcome) = shrink(&group.0.0, "150M");
    assert_eq!((status, said.as_str(), group.limit()), (Some(0), "", 150 * MIB), "{outcome}");
    assert!(
        (8 * MIB..80 * MIB).contains(&process(&outcome, cache.pid())["given_bytes"].as_u64().unwrap()),
        "{outcome}"
    );
    assert!(resident(live.pid()) > 80 * MIB, "{outcome}");
    assert_eq!(live.tell("hold 0"), "done");
}

#[test]
fn the_cache_that_costs_least_gives() {
    let group = group!();
    let (Some(dear), Some(cheap)) = (group.start(true), group.start(true)) else { return };
    let (dear, cheap) = (steered(dear, "evictable 80 50"), steered(cheap, "evictable 80"));
    let to = (resident(dear.pid()) + resident(cheap.pid()) - 40 * MIB) >> 20;
    let (status, said, outcome) = shrink(&group.0.0, &format!("{to}M"));
    assert_eq!((status, said.as_str(), group.limit()), (Some(0), "", to * MIB), "{outcome}");
    let given = [dear, cheap].map(|it| process(&outcome, it.pid())["given_bytes"].as_u64().unwrap());
    assert!(given[0] < 5 * MIB && given[1] > 35 * MIB, "{outcome}");
}

#[test]
fn a_cache_gives_way_to_what_its_program_takes_at_once_below_the_new_limit() {
    let group = group!();
    let Some(cache) = group.start(true) else { return };
    let mut cache = steered(cache, "evictable 150");
    let (status, said, outcome) = shrink(&group.0.0, "80M");
    assert_eq!((status, said.as_str(), group.limit()), (Some(0), "", 80 * MIB), "{outcome}");
    // 17 MiB, where some 5 are left. Its memory was released just now, and lies in huge pages as far as it was not.
    assert_eq!(cache.tell("hold 9"), "done", "it was killed: {outcome}");
}

#[test]
fn where_too_little_is_given_the_limit_stays_and_it_is_said_who_holds_what() {
    let group = group!();
    let (Some(live), Some(other)) = (group.start(true), group.start(false)) else { return };
    let (live, mut other) = (steered(live, "hold 60"), other);
    assert_eq!(other.tell("hold 60"), "done");
    let before = group.limit();
    let (status, said, outcome) = shrink(&group.0.0, "64M");
    assert_eq!((status, group.limit()), (Some(1), before), "{outcome}");
    assert!(said.starts_with("weir: ") && said.contains(" are missing below 64.0 MiB: the limit of "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(outcome["missing_bytes"].as_u64() > Some(40 * MIB), "{outcome}");
    assert!(process(&outcome, live.pid())["live_bytes"].as_u64() > Some(60 * MIB), "{outcome}");
    assert!(process(&outcome, other.pid())["live_bytes"].is_null(), "{outcome}");
}

/// 72 MiB of it are in use, so that its cache would go in vain.
#[test]
fn a_cache_is_not_emptied_where_all_of_it_would_not_do() {
    let Some(subject) = Subject::new(&[]) else { return };
    let mut subject = steered(subject, "evictable 60");
    assert_eq!(subject.tell("hold 60"), "done");
    let fake = Fake::of(&subject, &[]);
    let (status, said, outcome) = fake.while_charged(&subject, || shrink(fake.directory.path(), "32M"));
    assert_eq!((status, fake.limit().as_str()), (Some(1), "max\n"), "{outcome}");
    assert!(said.contains(" are missing below 32.0 MiB: the limit of "), "{said}");
    assert!(resident(subject.pid()) > 122 * MIB, "{outcome}");
    // With the cache it will do.
    let (status, _, outcome) = fake.while_charged(&subject, || shrink(fake.directory.path(), "110M"));
    assert_eq!((status, fake.limit().as_str()), (Some(0), "115343360"), "{outcome}");
}

/// A directory with the files of a group of version 2, in which the kernel's part is played by a thread.
struct Fake {
    directory: tempfile::TempDir,
    is_over: AtomicBool,
}

impl Fake {
    fn of(subject: &Subject, files: &[(&str, &str)]) -> Self {
        let fake = Self { directory: tempfile::tempdir().unwrap(), is_over: AtomicBool::new(false) };
        fake.write("memory.max", "max\n");
        fake.write("memory.stat", "anon 0\ninactive_file 0\n");
        fs::create_dir(fake.directory.path().join("below")).unwrap();
        fake.write("below/cgroup.procs", &format!("{}\n", subject.pid()));
        fake.charge(subject);
        files.iter().for_each(|(name, text)| fake.write(name, text));
        fake
    }

    /// A file is always whole.
    fn write(&self, name: &str, text: &str) {
        let (file, new) = (self.directory.path().join(name), self.directory.path().join("new"));
        fs::write(&new, text).and_then(|()| fs::rename(new, file)).unwrap();
    }

    fn charge(&self, subject: &Subject) {
        self.write("memory.current", &format!("{}\n", resident(subject.pid())));
    }

    /// Charges what the process has while `work` runs.
    fn while_charged<T>(&self, subject: &Subject, work: impl FnOnce() -> T) -> T {
        self.is_over.store(false, Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !self.is_over.load(Relaxed) {
                    self.charge(subject);
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let done = work();
            self.is_over.store(true, Relaxed);
            done
        })
    }

    fn limit(&self) -> String {
        fs::read_to_string(self.directory.path().join("memory.max")).unwrap()
    }
}

#[test]
fn a_group_of_version_2_and_those_below_it() {
    let Some(subject) = Subject::new(&[]) else { return };
    let subject = steered(subject, "cache 100");
    let fake = Fake::of(&subject, &[]);
    let (status, said, outcome) = fake.while_charged(&subject, || shrink(fake.directory.path(), "64M"));
    assert_eq!((status, said.as_str(), fake.limit().as_str()), (Some(0), "", "67108864"), "{outcome}");
    assert!(outcome["limit_before_bytes"].is_null(), "{outcome}");
    // The target has ended with the command: the cache may grow again.
    let mut subject = subject;
    assert_eq!(subject.tell("hold 100"), "done");
    thread::sleep(Duration::from_millis(600));
    assert!(resident(subject.pid()) > 100 * MIB, "nothing is asked of it any more");
}

#[test]
fn a_program_asks_by_a_call() {
    let Some(subject) = Subject::new(&[]) else { return };
    let subject = steered(subject, "cache 60");
    let fake = Fake::of(&subject, &[]);
    let call = || weir_cli::shrink::shrink(fake.directory.path(), 40 * MIB, Duration::from_secs(120));
    let outcome = fake.while_charged(&subject, call).unwrap();
    assert_eq!((outcome.missing_bytes, fake.limit().as_str()), (0, "41943040"), "{outcome}");
    assert!(outcome.processes[0].given_bytes > 20 * MIB, "{outcome}");
    let nothing = tempfile::tempdir().unwrap();
    let why = weir_cli::shrink::shrink(nothing.path(), MIB, Duration::ZERO).unwrap_err();
    assert_eq!(why.status, 3, "{why}");
}

#[test]
fn a_program_asks_and_leaves_the_limit_to_others() {
    let Some(subject) = Subject::new(&[]) else { return };
    let mut subject = steered(subject, "cache 60");
    let fake = Fake::of(&subject, &[]);
    let call = || weir_cli::shrink::give(fake.directory.path(), 40 * MIB, Duration::from_secs(120), || true);
    let given = fake.while_charged(&subject, call).unwrap();
    assert_eq!((given.outcome.missing_bytes, fake.limit().as_str()), (0, "max\n"), "{:?}", given.outcome);
    assert!(resident(subject.pid()) < 40 * MIB, "it has given before the answer came");
    // It stays below as long as the answer lives: what else it takes, its cache gives.
    drop(given);
    let before = resident(subject.pid());
    // This process has no Weir.
    let all = [(subject.pid() as i32, 10 * MIB), (std::process::id() as i32, MIB)];
    let asked = weir_cli::shrink::ask_each(&all);
    assert!(asked[0].is_ok());
    let why = asked[1].as_ref().err().unwrap();
    assert_eq!((why.status, why.to_string().lines().count()), (5, 1), "{why}");
    wait_for("the process to give", || (resident(subject.pid()) < before - 5 * MIB).then_some(()));
    drop(asked);
    weir_cli::ctl::set_each(&[subject.pid() as i32], "idle_ms", 1234).pop().unwrap().unwrap();
    assert!(text(&weir(&["ctl", &subject.pid().to_string(), "get", "idle_ms"]).stdout).contains("1s 234ms"));
    assert_eq!(subject.tell("hold 0"), "done");
}

/// The process goes on giving when it is too late, and while it is asked what it holds. It has 12 MiB that are no cache.
#[test]
fn what_is_missing_and_what_is_charged_are_of_one_moment() {
    let Some(subject) = Subject::new(&[]) else { return };
    let subject = steered(subject, "slow cache 80");
    let fake = Fake::of(&subject, &[]);
    let call = || weir_cli::shrink::shrink(fake.directory.path(), 8 * MIB, Duration::from_secs(1));
    let outcome = fake.while_charged(&subject, call).unwrap();
    assert_eq!(fake.limit(), "max\n", "{outcome}");
    assert_eq!(outcome.missing_bytes, outcome.charged_bytes + 1 - 8 * MIB, "{outcome}");
}

/// A kubelet sets a limit seconds after it was asked to, and by what was used some time before.
#[test]
fn a_cache_that_fills_while_others_are_to_set_the_limit_stays_below_it() {
    let Some(subject) = Subject::new(&[]) else { return };
    let mut subject = steered(subject, "hold 0");
    let fake = Fake::of(&subject, &[]);
    let call = || weir_cli::shrink::give(fake.directory.path(), 64 * MIB, Duration::from_secs(120), || true);
    let given = fake.while_charged(&subject, call).unwrap();
    assert_eq!(given.outcome.missing_bytes, 0, "{:?}", given.outcome);
    assert_eq!(subject.tell("evictable 120"), "done");
    let held = resident(subject.pid());
    assert!(held < 64 * MIB, "{held}");
    drop(given);
}

/// The connections of a process's threads that wait for an answer.
fn awaited(pid: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let calls = threads.filter_map(|thread| fs::read_to_string(thread.path().join("syscall")).ok());
    calls.filter(|call| call.starts_with(&format!("{} ", libc::SYS_recvfrom))).count()
}

/// Two processes that do not answer are waited for at the same time, and within the time that all have.
#[test]
fn who_does_not_answer_keeps_no_other_waiting() {
    let (Some(one), Some(two)) = (Subject::new(&[]), Subject::new(&[])) else { return };
    let subjects = [steered(one, "hold 0"), steered(two, "hold 0")];
    let [Some(_first), Some(_second)] = subjects.each_ref().map(|subject| hold_listener(subject.pid())) else { return };
    let directory = tempfile::tempdir().unwrap();
    let pids: String = subjects.iter().map(|subject| format!("{}\n", subject.pid())).collect();
    for (name, text) in [("memory.max", "max"), ("memory.current", "1073741824"), ("cgroup.procs", &pids)] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let group = directory.path().to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["shrink", "--cgroup", group, "--to", "64M", "--timeout", TIMEOUT, "--json"]);
    let mut shrink = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("both", || {
        assert!(shrink.try_wait().unwrap().is_none(), "it waited for one after the other");
        (awaited(shrink.id()) == 2).then_some(())
    });
    let output = shrink.wait_with_output().unwrap();
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    for subject in &subjects {
        let why = process(&outcome, subject.pid())["not_asked"].as_str().unwrap();
        assert!(why.contains("has not answered for 3s"), "{outcome}");
    }
    // No less: a socket's wait does not end before its time.
    assert!(outcome["took_ns"].as_u64() >= Some(3_000_000_000), "the connections are part of it: {outcome}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn nor_does_who_takes_no_setting() {
    let (Some(one), Some(two)) = (Subject::new(&[]), Subject::new(&[])) else { return };
    let subjects = [steered(one, "hold 0"), steered(two, "hold 0")];
    let [Some(_first), Some(_second)] = subjects.each_ref().map(|subject| hold_listener(subject.pid())) else { return };
    let pids = subjects.each_ref().map(|subject| subject.pid() as i32);
    let setting = thread::spawn(move || weir_cli::ctl::set_each(&pids, "merge", 1));
    wait_for("both", || {
        assert!(!setting.is_finished(), "it waited for one after the other");
        (awaited(std::process::id()) >= 2).then_some(())
    });
    for set in setting.join().unwrap() {
        assert!(set.unwrap_err().to_string().contains("has not answered for 3s"));
    }
}

/// It has two files open for each, and its limit may be raised.
#[test]
fn as_many_processes_are_asked_as_there_may_be_files() {
    let subjects: Vec<Subject> = (0..12).map_while(|_| Subject::new(&[])).map(|it| steered(it, "hold 0")).collect();
    if subjects.len() < 12 {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let pids: String = subjects.iter().map(|subject| format!("{}\n", subject.pid())).collect();
    for (name, text) in [("memory.max", "max"), ("memory.current", "1073741824"), ("cgroup.procs", &pids)] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 20; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_weir"), "shrink", "--cgroup"]);
    command.arg(directory.path()).args(["--to", "1M", "--timeout", TIMEOUT, "--json"]);
    let outcome: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    for subject in &subjects {
        assert_eq!(process(&outcome, subject.pid())["not_asked"], Value::Null, "{outcome}");
    }
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let nothing = tempfile::tempdir().unwrap();
    let (status, said, _) = shrink(nothing.path(), "64M");
    assert_eq!((status, said.lines().count()), (Some(3), 1), "{said}");
    assert!(said.contains("it has neither memory.max nor memory.limit_in_bytes"), "{said}");
    let (status, said, _) = shrink(nothing.path(), "64");
    assert_eq!(status, Some(2), "{said}");
}
