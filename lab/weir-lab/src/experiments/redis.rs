//! What redis-server keeps after FLUSHALL.
//!
//! Debian's binary links the shared libjemalloc and calls malloc by its plain name, so a preloaded allocator serves
//! it; only the purge by which it helps itself (`mallctl`) still goes to a jemalloc: it does nothing for any other
//! allocator, and empties the jemalloc rows. For glibc
//! the C library's own object is preloaded. The row `(as packaged)` is the binary as it comes, purge and all.

use crate::harness::args::RunArgs;
use crate::harness::child::{KilledOnDrop, command};
use crate::harness::owner;
use crate::harness::phases::sleep_until;
use crate::harness::proc_files::memory;
use crate::harness::resp::{self, Client};
use crate::harness::statistics::{Sample, student};
use crate::harness::tables::{Table, mib, spread};
use crate::peers::{Allocator, libc_object, package_version};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(10);
const PIPELINE: usize = 256;

/// What one run saw, bytes and seconds.
struct Run {
    full: f64,
    flush: f64,
    after: Vec<f64>,
}

/// Runs it and prints its table.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let server = find_server()?;
    let (bytes, looks): (usize, &[f64]) =
        if args.quick { (64_000_000, &[0.1, 1.0]) } else { (500_000_000, &[0.1, 1.0, 2.0, 10.0]) };
    let rounds = args.rounds;
    let rows = with_packaged(allocators)?;
    let mut runs: Vec<Result<Vec<Run>, String>> = rows.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..rounds as usize {
        for turn in 0..rows.len() {
            let chosen = (round + turn) % rows.len();
            eprintln!("redis, round {} of {rounds}: {}", round + 1, rows[chosen].name);
            let so_far = std::mem::replace(&mut runs[chosen], Ok(Vec::new()));
            runs[chosen] = so_far.and_then(|mut so_far| {
                so_far.push(one(&server, &rows[chosen], bytes, looks)?);
                Ok(so_far)
            });
        }
    }
    let version = package_version("redis-server");
    println!(
        "redis-server {version}, {} MB of values of 16 B to 16 KiB; MiB, medians (least..most)\n",
        bytes / 1_000_000
    );
    println!("{}", table(&rows, &runs, looks));
    println!(
        "Redis itself purges the rows of jemalloc and `(as packaged)`: it calls jemalloc's own function for that."
    );
    print_verdict(&rows, &args.subject, &runs);
    Ok(as_json(&rows, &args.subject, &runs, looks, &version))
}

fn find_server() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("redis-server")).find(|file| file.exists());
    found.ok_or_else(|| "redis-server is not here: apt-get install redis-server".into())
}

/// glibc by name, as redis links another malloc; and the binary as it comes.
fn with_packaged(allocators: Vec<Allocator>) -> Result<Vec<Allocator>, String> {
    let mut allocators = with_glibc_by_name(allocators)?;
    allocators.push(Allocator { name: "(as packaged)".into(), preload: None, version: String::new(), env: &[] });
    Ok(allocators)
}

/// Programs may link another malloc: then glibc's has to be preloaded like any.
pub fn with_glibc_by_name(mut allocators: Vec<Allocator>) -> Result<Vec<Allocator>, String> {
    for glibc in allocators.iter_mut().filter(|allocator| allocator.preload.is_none()) {
        glibc.preload = Some(libc_object()?);
    }
    Ok(allocators)
}

fn one(server: &Path, allocator: &Allocator, bytes: usize, looks: &[f64]) -> Result<Run, String> {
    let directory = std::env::temp_dir().join(owner::name("-redis"));
    let undo = directory.clone();
    let _gone = crate::harness::restore::on_end(move || drop(std::fs::remove_dir_all(undo)));
    std::fs::create_dir_all(&directory).map_err(|why| format!("cannot make {}: {why}", directory.display()))?;
    let socket = directory.join("socket");
    let mut start = command(server, allocator);
    start.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"]);
    start.arg("--unixsocket").arg(&socket).arg("--dir").arg(&directory);
    start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    end_with_the_harness(&mut start);
    let server = KilledOnDrop::start(start, "redis-server")?;
    let mut client = Client::connect(&socket, START_LIMIT)?;
    fill(&mut client, bytes)?;
    let full = memory(server.0.id())?.rss as f64;
    let begin = Instant::now();
    client.all_ok(b"*1\r\n$8\r\nFLUSHALL\r\n", 1)?;
    let end = Instant::now();
    let mut after = Vec::new();
    for &seconds in looks {
        sleep_until(end, seconds);
        after.push(memory(server.0.id())?.rss as f64);
    }
    Ok(Run { full, flush: (end - begin).as_secs_f64(), after })
}

fn end_with_the_harness(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

/// Values of sizes from 16 B to 16 KiB, equally many in each doubling, the same for every allocator.
fn fill(client: &mut Client, bytes: usize) -> Result<(), String> {
    let value = vec![b'w'; 16 << 10];
    let (mut sent, mut key, mut random) = (0, 0u64, 0x5eed_u64);
    while sent < bytes {
        let mut batch = Vec::new();
        for _ in 0..PIPELINE {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let base = 16usize << ((random >> 56) % 10);
            let size = base + (random >> 33) as usize % base;
            resp::command(&mut batch, &[b"SET", format!("key:{key}").as_bytes(), &value[..size]]);
            key += 1;
            sent += size;
        }
        client.all_ok(&batch, PIPELINE)?;
    }
    Ok(())
}

fn table(rows: &[Allocator], runs: &[Result<Vec<Run>, String>], looks: &[f64]) -> Table {
    let header = ["redis on", "resident, full", "FLUSHALL, s"].map(String::from);
    let mut table = Table::new(header.into_iter().chain(looks.iter().map(|seconds| format!("{seconds} s after"))));
    for (allocator, runs) in rows.iter().zip(runs) {
        let runs = match runs {
            Ok(runs) => runs,
            Err(why) => {
                eprintln!("{}: {why}", allocator.name);
                table.row([allocator.name.as_str(), "failed"]);
                continue;
            }
        };
        let mut row = vec![allocator.name.clone()];
        row.push(spread(&runs.iter().map(|run| run.full).collect(), mib));
        row.push(spread(&runs.iter().map(|run| run.flush).collect(), |s| format!("{s:.2}")));
        row.extend((0..looks.len()).map(|look| spread(&after(runs, look), mib)));
        table.row(row);
    }
    table
}

fn after(runs: &[Run], look: usize) -> Sample {
    runs.iter().map(|run| run.after[look]).collect()
}

/// The subject against the best peer at the last look; the packaged binary's own purge is no allocator's doing.
fn print_verdict(rows: &[Allocator], subject: &str, runs: &[Result<Vec<Run>, String>]) {
    let last = |index: usize| {
        let runs = runs[index].as_ref().ok()?;
        Some(after(runs, runs.first()?.after.len() - 1))
    };
    let Some(at) = rows.iter().position(|row| row.name == subject) else { return };
    let peers = (0..rows.len()).filter(|&i| i != at && rows[i].preload.is_some());
    let best = peers.filter_map(|i| Some((i, last(i)?))).min_by(|a, b| a.1.median().total_cmp(&b.1.median()));
    if let (Some(sample), Some((best, reference))) = (last(at), best) {
        println!(
            "{subject} against {}, the best peer at the last look: {}",
            rows[best].name,
            student(&sample, &reference)
        );
    }
}

fn as_json(
    rows: &[Allocator],
    subject: &str,
    runs: &[Result<Vec<Run>, String>],
    looks: &[f64],
    version: &str,
) -> Value {
    let run = |run: &Run| json!({ "full": run.full, "flush_s": run.flush, "after": run.after });
    let cells: serde_json::Map<_, _> = rows
        .iter()
        .zip(runs)
        .map(|(row, runs)| {
            let value = match runs {
                Ok(runs) => json!(runs.iter().map(run).collect::<Vec<_>>()),
                Err(why) => json!({ "failed": why }),
            };
            (row.name.clone(), value)
        })
        .collect();
    let failed = rows.iter().zip(runs).find(|(row, runs)| row.name == subject && runs.is_err());
    let why = failed.and_then(|(_, runs)| runs.as_ref().err());
    json!({ "redis": version, "looks_s": looks, "runs": cells, "failed": why })
}
