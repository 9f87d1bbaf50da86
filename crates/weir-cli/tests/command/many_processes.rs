//! Many processes with Weir are listed, and scraped. How long that takes of a thousand is measured, which takes some GiB,
//! so that this runs only when asked:
//!
//!     cargo test --release -p weir-cli --test many_processes -- --ignored --nocapture

use crate::subject::{Subject, library, program, says, text, weir_within};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROCESSES: usize = 1000;
/// How often each is measured.
const ROUNDS: usize = 15;

/// The median of some times, and the shortest.
fn measured(mut once: impl FnMut() -> Duration) -> String {
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| once()).collect();
    times.sort();
    format!("median {:.1} ms, least {:.1} ms", times[ROUNDS / 2].as_secs_f64() * 1e3, times[0].as_secs_f64() * 1e3)
}

fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = what();
    (done, began.elapsed())
}

/// The metrics.
fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"# EOF\n"));
    String::from_utf8(answer).unwrap()
}

/// The command, to which no more files are open at first than those that it needs itself. The limit may be raised.
fn weir_with_few_files(args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 20; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_weir")]).args(args);
    command
}

/// So many processes, each of which has been told `line`, and an exporter.
struct Many {
    subjects: Vec<Subject>,
    exporter: Child,
    address: String,
    /// Others' processes would be listed too, and take the time of theirs.
    _alone: weir_testing::Lock,
}

impl Many {
    fn start(line: &str, count: usize) -> Option<Self> {
        let program = program(&[])?;
        let alone = weir_testing::lock("processes");
        let subject = || {
            let mut command = Command::new(&program);
            command.env("LD_PRELOAD", library()).env("WEIR_IDLE_MS", "100");
            let mut subject = Subject::start(command);
            subject.tell(line);
            subject
        };
        let subjects = (0..count).map(|_| subject()).collect();
        // More than there are: the machine may have others with Weir, and those that are left out are the smallest.
        let mut exporter = weir_with_few_files(&["export", "--listen", "127.0.0.1:0", "--max-processes", "1000000"]);
        let mut exporter = exporter.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(exporter.stderr.take().unwrap()).read_line(&mut said).unwrap();
        let address = said.trim_end().trim_start_matches("weir: metrics at http://").trim_end_matches("/metrics");
        Some(Self { subjects, exporter, address: address.to_owned(), _alone: alone })
    }

    /// Demands that each is in the list, and in the metrics.
    fn are_listed_and_scraped(&self) {
        let output = |args| String::from_utf8(weir_with_few_files(args).output().unwrap().stdout).unwrap();
        let (all, metrics, top) = (output(&["stat"]), scrape(&self.address), output(&["top", "--once"]));
        for subject in &self.subjects {
            let pid = subject.pid().to_string();
            let is_its = |line: &str| line.contains(" subject-") && line.split_whitespace().any(|word| word == pid);
            assert!(all.lines().any(is_its), "{pid}: {all}");
            assert!(top.lines().any(is_its), "{pid}: {top}");
            assert!(metrics.contains(&format!("weir_resident_bytes{{pid=\"{pid}\"")), "{pid}: {metrics}");
        }
    }

    /// Prints how long each takes.
    fn measure(&self, what: &str) {
        let count = self.subjects.len();
        println!("{what}: weir stat lists {count}: {}", measured(|| timed(|| says(&["stat"])).1));
        let mut bytes = 0;
        let times = measured(|| {
            // A text that is younger than a second is served again.
            std::thread::sleep(Duration::from_millis(1100));
            let (text, time) = timed(|| scrape(&self.address));
            bytes = text.len();
            time
        });
        println!("{what}: a scrape of {count}, {} MiB: {times}", bytes >> 20);
        println!("{what}: the same text again: {}", measured(|| timed(|| scrape(&self.address)).1));
    }
}

impl Drop for Many {
    fn drop(&mut self) {
        let _ = self.exporter.kill();
        let _ = self.exporter.wait();
    }
}

#[test]
#[ignore = "nightly: it measures, and starts a thousand processes"]
fn a_thousand_processes_with_a_background_thread() {
    measure("with a thread", "hold 1");
}

#[test]
#[ignore = "nightly: it measures, and starts a thousand processes"]
fn a_thousand_processes_whose_heap_is_small() {
    measure("small", "hold 0");
}

fn measure(what: &str, line: &str) {
    let Some(many) = Many::start(line, PROCESSES) else { return };
    // What was freed is released, and all is calm.
    std::thread::sleep(Duration::from_secs(5));
    many.are_listed_and_scraped();
    many.measure(what);
}

#[test]
fn few_files_are_enough_for_many_processes_and_too_few_are_told_of() {
    let Some(many) = Many::start("hold 1", 40) else { return };
    let within = |files, args: &[&str]| weir_within(files, args).output().unwrap();
    let stat: Value = serde_json::from_slice(&within(16, &["stat", "--json"]).stdout).unwrap();
    let is_listed = |pid: u32| stat["processes"].as_array().unwrap().iter().any(|it| it["pid"] == pid);
    assert!(many.subjects.iter().all(|subject| is_listed(subject.pid())), "{stat}");
    assert_eq!(stat["too_many_files"], 0, "{stat}");
    // A process's directory is open, and there is none left for who reads its memory.
    let table = text(&within(4, &["stat"]).stdout);
    let told = "processes could not be looked at: too many files are open here: raise `ulimit -n`\n";
    assert!(table.contains(told) && !table.contains("no process with Weir"), "{table}");
    let pid = many.subjects[0].pid().to_string();
    for args in [&["why", &pid][..], &["ctl", &pid, "get"], &["stat", &pid], &["doctor", &pid]] {
        // `why` opens more than the others, and shows no figure of what it cannot open.
        for files in if args[0] == "why" { 4..=6 } else { 4..=4 } {
            let output = within(files, args);
            let said = format!("weir: process {pid}: too many files are open here: raise `ulimit -n`\n");
            assert_eq!((output.status.code(), text(&output.stderr)), (Some(5), said), "{files}: {args:?}");
        }
    }
    let output = within(16, &["why", &pid]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{}", text(&output.stdout));
}

#[test]
fn some_processes_are_listed_and_scraped() {
    let Some(many) = Many::start("hold 0", 24) else { return };
    many.are_listed_and_scraped();
}
