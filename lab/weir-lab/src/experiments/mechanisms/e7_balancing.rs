//! Balancing: an export of weir-nbd beside a program that scans anonymous memory in the same memory cgroup, with swap. The
//! server's requests and blocks lie in a small zone of locked memory first, and then in NORMAL. Requests ask for runs of pages,
//! cached blocks of one page fill both zones, and dirty ones wait for their disk. When is the node balanced for a run: when all
//! zones are (`all`), when any is (`any`), when a quarter is (`25 %`)? What it costs is seen by the blocks that leave the small
//! zone.
//!
//! `postmark` (Debian's) runs on a file system: ext4 by nbdfuse and a loop device. Their users have a cgroup of their own, so
//! that the kernel's cache of it stays small. `streaming` writes and reads the export from end to end, a MiB at a time, by fio's
//! own client. Reclaim's counters are the server's, from `weir export`. Root.

use crate::harness::nbd::block_device::Mounted;
use crate::harness::nbd::fio::{self, Fio};
use crate::harness::nbd::servers::{self, Kind, Server};
use crate::harness::prelude::*;
use std::io::Read as _;
use std::os::unix::net::UnixStream;

/// Policies by their number.
const POLICIES: [(&str, u64); 3] = [("all", 1), ("any", 0), ("25 %", 2)];
/// Counters that are told of the server, each by the reclaimer where that is told apart.
const COUNTERS: [(&str, &str); 10] = [
    ("direct_reclaims_total", ""),
    ("scanned_bytes_total", "direct"),
    ("reclaimed_bytes_total", "direct"),
    ("balancer_wake_requests_total", ""),
    ("balancer_wakeups_total", ""),
    ("scanned_bytes_total", "balancer"),
    ("reclaimed_bytes_total", "balancer"),
    ("direct_stall_seconds_sum", ""),
    ("balancer_active_seconds_total", ""),
    ("balancer_cpu_seconds_total", ""),
];
/// The figures of the small zone, as the server reports them.
const SMALL_ZONE: &str = "blocks evicted from the small zone";

#[derive(Clone, Copy)]
struct Size {
    limit: u64,
    client_limit: u64,
    segment: u64,
    disk: u64,
    /// The small zone.
    locked: u64,
    /// Files and transactions of postmark; bytes and times of the stream.
    files: [u32; 2],
    stream: [u64; 2],
}

const FULL: Size = Size {
    limit: 384 << 20,
    client_limit: 64 << 20,
    segment: 192 << 20,
    disk: 1 << 30,
    locked: 64 << 20,
    files: [4000, 16_000],
    stream: [512 << 20, 4],
};
const QUICK: Size = Size {
    limit: 192 << 20,
    client_limit: 48 << 20,
    segment: 96 << 20,
    disk: 512 << 20,
    locked: 32 << 20,
    files: [1000, 1500],
    stream: [192 << 20, 1],
};

fn run_all(lab: &mut Lab, parts: &[&str]) -> Result<()> {
    let _lock = machine::lock()?;
    let (size, weir) = (lab.pick(FULL, QUICK), lab.weir_command()?);
    let _swap = swap::make(&lab.args.swap_dir, size.limit * 2)?;
    let folder = Folder::make(&lab.args.swap_dir, "e7")?;
    servers::make_volume(&folder.at("disk"), size.disk)?;
    for part in parts {
        let mut measures: Vec<_> = match *part {
            "postmark" => ["transactions/s", "read, MB/s", "written, MB/s"].map(more).into(),
            _ => ["read, MB/s", "written, MB/s"].map(more).into(),
        };
        measures.push(less("elapsed, s"));
        measures.push(less(SMALL_ZONE));
        measures.extend(["swapped in, MiB", "swapped out, MiB"].map(|name| less(name).mib()));
        measures.extend(COUNTERS.map(|(name, by)| told(format!("{name} {by}"))));
        let names = POLICIES.map(|policy| policy.0);
        let grid = lab.by_measure(measures, &[*part], &names, |part, name| {
            let policy = POLICIES.iter().find(|policy| policy.0 == *name).map_or(0, |policy| policy.1);
            one(&folder, &weir, size, part, policy)
        });
        ["any", "25 %"].into_iter().filter_map(|name| grid.versus(0, name, "all")).for_each(|line| println!("{line}"));
    }
    Ok(())
}

pub fn run(lab: &mut Lab) -> Result<()> {
    let mut parts = lab.chosen(&["postmark", "streaming"])?;
    let needs = [Need::Root, Need::Cgroups, Kind::Weir.need(), fio::PROGRAM];
    let is_lacking = lab.lacks(&[&needs[..], &BLOCK_DEVICE].concat());
    if parts.contains(&"postmark")
        && lab.skips("postmark", Need::Program("postmark", "postmark").missing().into_iter().collect())
    {
        parts.retain(|part| *part != "postmark");
    }
    if is_lacking { Ok(()) } else { run_all(lab, &parts) }
}

fn one(folder: &Folder, weir: &Path, size: Size, part: &str, policy: u64) -> Result<Vec<f64>> {
    let (shared, client) = (Cgroup::make("e7-shared", size.limit)?, Cgroup::make("e7-client", size.client_limit)?);
    let socket = folder.at("socket");
    let control = folder.at("control");
    let options = [
        "--cache=auto".into(),
        "--write-back".into(),
        format!("--locked-memory={}", size.locked),
        format!("--control={}", control.display()),
    ];
    let mut command = servers::weir(&socket, &options)?;
    command
        .arg(format!("--export=disk={}", folder.at("disk").display()))
        .env("WEIR_BALANCE_POLICY", policy.to_string());
    shared.group.enter(&mut command);
    let mut server = Server::run(Kind::Weir, command, &socket)?;
    let mount = || Mounted::make(&folder.below("fuse")?, &folder.below("mnt")?, &server.uri("disk"), true);
    let mounted = (part == "postmark").then(mount).transpose()?;
    let scan = plain_load(&format!("hog bytes={} pause_us=2000", size.segment))?;
    let _consumer = Program::first_phase("the consumer", scan, Some(&shared))?;
    let (before, swaps, start) = (counters(weir, &server.child)?, swapped()?, Instant::now());
    let mut figures = match &mounted {
        Some(mounted) => postmark(folder, &mounted.at, size, &client)?,
        None => stream(folder, &server.uri("disk"), size, &client)?,
    };
    figures.push(start.elapsed().as_secs_f64());
    figures.push(evicted_from_small_zone(&control)?);
    let swaps_after = swapped()?;
    figures.extend([0, 1].map(|way| swaps_after[way] - swaps[way]));
    figures.extend(counters(weir, &server.child)?.iter().zip(before).map(|(after, before)| after - before));
    server.check()?;
    Ok(figures)
}

/// Blocks that left the small zone since the server's start, as it says.
fn evicted_from_small_zone(control: &Path) -> Result<f64> {
    let mut report = String::new();
    UnixStream::connect(control)?.read_to_string(&mut report)?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    report["locked"]["evicted_blocks"].as_f64().context("the server says nothing of its locked memory")
}

/// The counters of one process, of what `weir export` says of all.
fn counters(weir: &Path, server: &KilledOnDrop) -> Result<Vec<f64>> {
    let output = Command::new(weir).args(["export", "--once"]).output()?;
    let (text, pid) = (String::from_utf8_lossy(&output.stdout).into_owned(), format!("pid=\"{}\"", server.pid()));
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(&pid)).collect();
    ensure!(!lines.is_empty(), "weir export says nothing of the server");
    let of = |(name, by): (&str, &str)| -> f64 {
        let is_it = |line: &&&str| line.starts_with(&format!("weir_{name}")) && (by.is_empty() || line.contains(by));
        lines.iter().filter(is_it).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    Ok(COUNTERS.map(of).into())
}

fn postmark(folder: &Folder, at: &Path, size: Size, client: &Cgroup) -> Result<Vec<f64>> {
    let [files, transactions] = size.files;
    let commands = format!(
        "set location {}\nset number {files}\nset size 4096 200000\nset transactions {transactions}\n\
         set subdirectories 10\nset read 4096\nset write 4096\nset seed 42\nrun\nquit\n",
        at.display()
    );
    std::fs::write(folder.at("commands"), commands)?;
    let mut command = system("postmark")?;
    command.arg(folder.at("commands"));
    client.group.enter(&mut command);
    parse(&run_child(command, Duration::from_secs(1200), "postmark")?.output)
}

/// Transactions, and megabytes read and written a second.
fn parse(said: &str) -> Result<Vec<f64>> {
    let rate = |what: &str| {
        let line = said.lines().find(|line| line.contains(what) && line.trim_end().ends_with("per second)"));
        let rate = line.and_then(|line| line.rsplit_once('(')?.1.split(' ').next()?.parse::<f64>().ok());
        rate.with_context(|| format!("postmark did not end well, or did too little: no '{what}'"))
    };
    Ok(vec![rate("of transactions")?, rate("megabytes read")?, rate("megabytes written")?])
}

/// The export written, made durable, and read again, each so many times: rates of reading and of writing.
fn stream(folder: &Folder, uri: &str, size: Size, client: &Cgroup) -> Result<Vec<f64>> {
    let [bytes, times] = size.stream;
    let mut rates = [0.0; 2];
    for _ in 0..times {
        for (rate, how) in rates.iter_mut().zip(["read", "write"]).rev() {
            let jobs = format!(
                "[stream]\nioengine=nbd\nthread=1\nuri={uri}\nrw={how}\nbs=1m\nsize={bytes}\niodepth=8\nend_fsync=1\n"
            );
            let fio = Fio::start(&folder.at("jobs"), &jobs)?;
            client.take_in(fio.pid())?;
            *rate += fio.outcome()?.bytes_a_second / 1e6 / times as f64;
        }
    }
    Ok(rates.into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn postmarks_lines_are_read() {
        let said = "Time:\n\t12 seconds total\n\t10 seconds of transactions (30 per second)\n\nFiles:\n\t344 created (28 per \
                    second)\n\nData:\n\t48.60 megabytes read (4.05 megabytes per second)\n\t133.40 megabytes written (11.12 \
                    megabytes per second)\npm>";
        assert_eq!(super::parse(said).unwrap(), [30.0, 4.05, 11.12]);
        assert!(super::parse(&said.replace("48.60 megabytes", "48.60 kilobytes")).is_err());
    }
}
