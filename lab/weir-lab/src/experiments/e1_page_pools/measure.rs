//! The runs: each subject in turn, the pages swapped meanwhile.

use super::load::{Size, jobs};
use crate::harness::cgroup::Cgroup;
use crate::harness::child::load_program;
use crate::harness::fio::{Fio, Outcome};
use crate::harness::folder::Folder;
use crate::harness::nbd_servers::{Exports, Kind, Server};
use crate::harness::phases::PhasedProgram;
use crate::harness::proc_files::{SwapTraffic, memory};
use crate::harness::statistics::Sample;
use crate::harness::{rounds, swap};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// A server in a setting.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// As `--only` and the tables have it.
    pub name: &'static str,
    pub kind: Kind,
    /// Of weir-nbd.
    pub squeeze_ms: Option<u64>,
    /// Of weir-nbd: pools keep no page. It shows what pools cost and earn under this load.
    pub keeps_nothing: bool,
    /// Between two bursts of a client, if it is another pause than the others have.
    pub pause_ms: Option<u32>,
}

const fn squeezed(name: &'static str, ms: u64) -> Subject {
    Subject { name, kind: Kind::Weir, squeeze_ms: Some(ms), keeps_nothing: false, pause_ms: None }
}

/// A pause in which weir-nbd's connections give their pools up (after 5 to 10 s of quiet), so that there is little to squeeze.
const LONG_PAUSE_MS: u32 = 12_000;

/// All of them: weir-nbd without squeezing, then by its duration; without pools; with pauses in which pools are given up; the
/// others.
pub const SUBJECTS: [Subject; 9] = [
    squeezed("0", 0),
    squeezed("1", 1),
    squeezed("10", 10),
    squeezed("100", 100),
    Subject { keeps_nothing: true, ..squeezed("no-pools", 10) },
    Subject { pause_ms: Some(LONG_PAUSE_MS), ..squeezed("0-long-pauses", 0) },
    Subject { pause_ms: Some(LONG_PAUSE_MS), ..squeezed("10-long-pauses", 10) },
    Subject { kind: Kind::Nbdkit, squeeze_ms: None, ..squeezed("nbdkit", 0) },
    Subject { kind: Kind::Qemu, squeeze_ms: None, ..squeezed("qemu-nbd", 0) },
];

/// What a subject came to.
pub struct Done {
    pub subject: Subject,
    pub pages_in: Sample,
    pub pages_out: Sample,
    /// MiB a second that the clients read.
    pub served: Sample,
    /// Resident and swapped out at the end, bytes.
    pub held: Sample,
    pub failed: Option<String>,
}

/// Runs all subjects, in turn.
pub fn all(swap_dir: &Path, rounds: u32, size: &Size, subjects: &[Subject]) -> Result<Vec<Done>, String> {
    let _swap = swap::make(swap_dir, size.swap)?;
    let folder = Folder::in_memory("e1")?;
    make_volumes(&folder, size)?;
    let none = |&subject: &Subject| Done {
        subject,
        pages_in: Sample::default(),
        pages_out: Sample::default(),
        served: Sample::default(),
        held: Sample::default(),
        failed: None,
    };
    let mut all: Vec<Done> = subjects.iter().map(none).collect();
    for (round, turn) in rounds::of(rounds, subjects.len()) {
        let done = &mut all[turn];
        eprintln!("e1, round {} of {rounds}: {}", round + 1, done.subject.name);
        if done.failed.is_some() {
            continue;
        }
        match one(&folder, size, done.subject) {
            Ok(run) => {
                eprintln!(
                    "e1, {}: {} pages in, {} out; {:.1} MiB/s",
                    done.subject.name,
                    run.swap.pages_in,
                    run.swap.pages_out,
                    run.fio.bytes_a_second / f64::from(1 << 20)
                );
                done.pages_in.push(run.swap.pages_in as f64);
                done.pages_out.push(run.swap.pages_out as f64);
                done.served.push(run.fio.bytes_a_second / f64::from(1 << 20));
                done.held.push(run.held as f64);
            }
            Err(why) => {
                eprintln!("{}: {why}", done.subject.name);
                done.failed = Some(why);
            }
        }
    }
    Ok(all)
}

fn make_volumes(folder: &Folder, size: &Size) -> Result<(), String> {
    let volumes = folder.at("volumes");
    let make = || {
        std::fs::create_dir(&volumes)?;
        let names = size.names();
        let first = volumes.join(&names[0]);
        let mut file = std::fs::File::create(&first)?;
        // Not zeroes: what could be seen as a hole would be no data.
        let block: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8 + 1).collect();
        for _ in 0..size.volume >> 20 {
            file.write_all(&block)?;
        }
        names[1..].iter().try_for_each(|name| std::fs::hard_link(&first, volumes.join(name)))
    };
    make().map_err(|why: std::io::Error| format!("cannot make the volumes in {}: {why}", volumes.display()))
}

struct Run {
    swap: SwapTraffic,
    fio: Outcome,
    held: u64,
}

fn one(folder: &Folder, size: &Size, subject: Subject) -> Result<Run, String> {
    let size = &match subject.pause_ms {
        // So long that each client reads some bursts beside the other program.
        Some(pause_ms) => Size { pause_ms, seconds: size.seconds.max(pause_ms * 5 / 1000), ..*size },
        None => Size { ..*size },
    };
    let cgroup = Cgroup::make("e1", size.limit)?;
    let (volumes, names) = (folder.at("volumes"), size.names());
    let exports = Exports { folder: &volumes, names: &names };
    let mut options = subject.squeeze_ms.map_or(Vec::new(), |ms| options(size, ms));
    if subject.keeps_nothing {
        options.push("--max-idle-pages=0".into());
    }
    let mut server = Server::start(subject.kind, &exports, &folder.at("socket"), &options, Some(&cgroup))?;
    let before = SwapTraffic::now()?;
    // The clients first, so that the pools are full when the other program comes.
    let fio = Fio::start(&folder.at("jobs"), &jobs(size, &server))?;
    std::thread::sleep(std::time::Duration::from_millis((size.pause_ms * 2).into()));
    let consumer = consumer(size, &cgroup)?;
    let outcome = fio.outcome()?;
    let swap = SwapTraffic::now()?.since(before);
    server.check()?;
    let held = memory(server.pid())?.held();
    drop(consumer);
    Ok(Run { swap, fio: outcome, held })
}

/// Of weir-nbd.
fn options(size: &Size, squeeze_ms: u64) -> Vec<String> {
    let (burst, in_flight) = (size.request * u64::from(size.depth), size.in_flight);
    let bounds =
        ["--max-request=1M".into(), format!("--max-client-memory={burst}"), format!("--max-memory={in_flight}")];
    bounds.into_iter().chain([format!("--squeeze-ms={squeeze_ms}")]).collect()
}

/// Scans its segment until it is dropped.
fn consumer(size: &Size, cgroup: &Cgroup) -> Result<PhasedProgram, String> {
    let mut command = Command::new(load_program()?);
    command.args(["scan", &format!("bytes={}", size.segment), "block=1048576"]);
    command.arg(format!("pause_us={}", size.pause_us));
    PhasedProgram::start("the other program", command, Some(cgroup))
}
