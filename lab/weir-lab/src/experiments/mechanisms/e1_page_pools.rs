//! Page pools under pressure. Hundreds of volumes are attached to one server, each with a client of libnbd's (fio) that
//! reads in bursts with pauses. A program scans memory in the same cgroup. What is swapped in and out, by how long weir-nbd
//! squeezes its pools (0, 1, 10, 100 ms), and of nbdkit and qemu-nbd.
//!
//! The bursts come from the connection's own pool, and the pauses are just below the time after which it is given up. So
//! `no-pools` keeps nothing, and `long-pauses` are longer than that time. Swap is of the whole machine; weir-nbd's requests
//! under way are bounded; qemu-nbd has one export, to which all its clients are connected. Goal: 10 ms over 0, both ways at
//! least 98 % less. Root. --only takes the names of the rows.

use crate::harness::nbd::fio::{self, Fio};
use crate::harness::nbd::servers::{Kind, Server, make_volume};
use crate::harness::prelude::*;

#[derive(Clone, Copy)]
struct Size {
    volumes: usize,
    volume: u64,
    /// KiB of a request, requests of a burst, ms between bursts.
    request: u64,
    depth: u32,
    pause_ms: u32,
    /// Bytes that the server may have under way, that both may have, that the other scans, of swap.
    in_flight: u64,
    limit: u64,
    segment: u64,
    swap: u64,
    seconds: u32,
}

const FULL: Size = Size {
    volumes: 200,
    volume: 64 << 20,
    request: 128,
    depth: 32,
    pause_ms: 4000,
    in_flight: 32 << 20,
    limit: 512 << 20,
    segment: 320 << 20,
    swap: 2 << 30,
    seconds: 30,
};
const QUICK: Size = Size {
    volumes: 24,
    limit: 96 << 20,
    segment: 48 << 20,
    pause_ms: 1000,
    in_flight: 8 << 20,
    swap: 256 << 20,
    seconds: 6,
    ..FULL
};
const LONG_PAUSE_MS: u32 = 12_000;

/// A row: its name, the server, its options, and whether pauses are long.
type Subject = (&'static str, Kind, &'static [&'static str], bool);

const SUBJECTS: [Subject; 9] = [
    ("0", Kind::Weir, &["--squeeze-ms=0"], false),
    ("1", Kind::Weir, &["--squeeze-ms=1"], false),
    ("10", Kind::Weir, &["--squeeze-ms=10"], false),
    ("100", Kind::Weir, &["--squeeze-ms=100"], false),
    ("no-pools", Kind::Weir, &["--squeeze-ms=10", "--max-idle-pages=0"], false),
    ("0-long-pauses", Kind::Weir, &["--squeeze-ms=0"], true),
    ("10-long-pauses", Kind::Weir, &["--squeeze-ms=10"], true),
    ("nbdkit", Kind::Nbdkit, &[], false),
    ("qemu-nbd", Kind::Qemu, &[], false),
];

pub fn run(lab: &mut Lab) -> Result<()> {
    let chosen = lab.chosen(&SUBJECTS.map(|subject| subject.0))?;
    if lab.lacks(&[Need::Root, Need::Cgroups, fio::PROGRAM, Kind::Weir.need()]) {
        return Ok(());
    }
    let is_here = |name: &&str| SUBJECTS.iter().any(|(of, kind, ..)| of == name && kind.need().missing().is_none());
    let (here, absent): (Vec<&str>, Vec<&str>) = chosen.into_iter().partition(is_here);
    println!("Left out, as they are not here: {absent:?}\n");
    let _lock = machine::lock()?;
    let size = lab.pick(FULL, QUICK);
    let _swap = swap::make(&lab.args.swap_dir, size.swap)?;
    let folder = Folder::in_memory("e1")?;
    let (volumes, names) = (folder.below("volumes")?, (0..size.volumes).map(|n| format!("vol{n}")).collect::<Vec<_>>());
    make_volume(&volumes.join(&names[0]), size.volume)?;
    names[1..].iter().try_for_each(|name| std::fs::hard_link(volumes.join(&names[0]), volumes.join(name)))?;
    let case = format!(
        "{} volumes, bursts of {} x {} KiB each {} ms, a scan of {} MiB, a cgroup of {} MiB, {} s",
        size.volumes,
        size.depth,
        size.request,
        size.pause_ms,
        size.segment >> 20,
        size.limit >> 20,
        size.seconds
    );
    let measures = ["swapped in, MiB", "swapped out, MiB", "server at the end, MiB"].map(|name| less(name).mib());
    let measures = measures.into_iter().chain([more("served, MiB/s").mib()]).collect();
    let grid = lab.by_case(measures, &[case], &here, |_, name| {
        let subject = SUBJECTS.iter().find(|(of, ..)| of == name).unwrap_or(&SUBJECTS[0]);
        one(&folder, &volumes, &names, size, subject)
    });
    println!("{}", grid.versus(0, "10", "0").unwrap_or_default());
    Ok(())
}

fn one(folder: &Folder, volumes: &Path, names: &[String], mut size: Size, subject: &Subject) -> Result<Vec<f64>> {
    let (_, kind, options, is_long) = *subject;
    if is_long {
        size.pause_ms = LONG_PAUSE_MS;
        size.seconds = size.seconds.max(size.pause_ms * 5 / 1000);
    }
    let cgroup = Cgroup::make("e1", size.limit)?;
    let mut options: Vec<String> = options.iter().map(|option| option.to_string()).collect();
    if kind == Kind::Weir {
        let burst = (size.request << 10) * u64::from(size.depth);
        let bounds = ["--max-request=1M".into(), format!("--max-client-memory={burst}")];
        options.extend(bounds.into_iter().chain([format!("--max-memory={}", size.in_flight)]));
    }
    let mut server = Server::start(kind, volumes, names, &folder.at("socket"), &options, Some(&cgroup))?;
    let before = swapped()?;
    let fio = Fio::start(&folder.at("jobs"), &jobs(size, names, &server))?;
    // The pools are full first.
    std::thread::sleep(Duration::from_millis((size.pause_ms * 2).into()));
    let scan = plain_load(&format!("hog bytes={} pause_us=2000", size.segment))?;
    let _consumer = Program::first_phase("the other program", scan, Some(&cgroup))?;
    let outcome = fio.outcome()?;
    let after = swapped()?;
    server.check()?;
    let held = memory(server.child.pid())?.held();
    Ok(vec![after[0] - before[0], after[1] - before[1], held, outcome.bytes_a_second])
}

/// Each client begins at a time of its own, so that bursts come evenly.
fn jobs(size: Size, names: &[String], server: &Server) -> String {
    let Size { request, depth, pause_ms, volume, seconds, .. } = size;
    let head = format!(
        "[global]\nioengine=nbd\nthread=1\nrw=randread\nbs={request}k\niodepth={depth}\niodepth_batch_submit={depth}\n\
         thinktime={pause_ms}ms\nthinktime_blocks={depth}\nsize={volume}\ntime_based=1\nruntime={seconds}\nrandseed=1\n"
    );
    names.iter().enumerate().fold(head, |text, (number, name)| {
        let delay = pause_ms as usize * number / names.len();
        text + &format!("[{name}]\nuri={}\nstartdelay={delay}ms\n", server.uri(name))
    })
}
