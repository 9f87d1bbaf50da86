//! How long it takes to list a thousand processes with Weir, and to scrape them. It measures, and takes some GiB, so it
//! runs only when asked:
//!
//!     cargo test --release -p weir-cli --test many_processes -- --ignored --nocapture

mod subject;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use subject::{Subject, library, program, says};

const PROCESSES: usize = 1000;
/// One measurement at a time: another's processes would be listed too.
static ALONE: Mutex<()> = Mutex::new(());
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

/// The length of a scrape.
fn scrape(address: &str) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"# EOF\n"));
    answer.len()
}

/// Starts the processes, and measures: each of them has been told `line`.
fn measure(what: &str, line: &str, count: usize) {
    let Some(program) = program(&[]) else { return };
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut subjects: Vec<Subject> = (0..count)
        .map(|_| {
            let mut command = Command::new(&program);
            command.env("LD_PRELOAD", library()).env("WEIR_IDLE_MS", "100");
            let mut subject = Subject::start(command);
            subject.tell(line);
            subject
        })
        .collect();
    // What was freed is released, and all is calm.
    std::thread::sleep(Duration::from_secs(5));
    let all = says(&["stat"]);
    let is_listed = |subject: &&Subject| {
        let pid = subject.pid().to_string();
        all.lines().any(|line| line.contains(" subject-") && line.split_whitespace().any(|word| word == pid))
    };
    assert_eq!(subjects.iter().filter(is_listed).count(), count, "{all}");
    println!("{what}: weir stat lists {count}: {}", measured(|| timed(|| says(&["stat"])).1));
    let mut exporter = Command::new(env!("CARGO_BIN_EXE_weir"));
    let exporter = exporter.args(["export", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
    let mut exporter = exporter.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(exporter.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim_end().trim_start_matches("weir: metrics at http://").trim_end_matches("/metrics");
    let mut bytes = 0;
    let times = measured(|| {
        // A text that is younger than a second is served again.
        std::thread::sleep(Duration::from_millis(1100));
        let (length, time) = timed(|| scrape(address));
        bytes = length;
        time
    });
    println!("{what}: a scrape of {count}, {} MiB: {times}", bytes >> 20);
    println!("{what}: the same text again: {}", measured(|| timed(|| scrape(address)).1));
    exporter.kill().unwrap();
    exporter.wait().unwrap();
    subjects.iter_mut().for_each(Subject::kill);
    let _ = std::fs::remove_file(program);
}

#[test]
#[ignore = "it measures, and starts a thousand processes"]
fn a_thousand_processes_with_a_background_thread() {
    measure("with a thread", "hold 1", PROCESSES);
}

#[test]
#[ignore = "it measures, and starts a thousand processes"]
fn a_thousand_processes_whose_heap_is_small() {
    measure("small", "hold 0", PROCESSES);
}

/// That what is measured above works: the gate runs this one.
#[test]
fn a_few_processes_are_listed_and_scraped() {
    measure("a few", "hold 0", 5);
}
