//! The cost of squeezing at worst. Blocks of 4 KiB go, one at a time, onto a volume in memory of weir-nbd through a real client
//! (fio's, of libnbd). The pools keep 1,024 idle pages, or none.
//!
//! A server is started for each run, and the volume's pages are there before the time counts. Missed: of the runs of pages asked
//! of the pool, the part that it had not. Rounds go on until a difference of 3 % would be seen.

use crate::harness::nbd::fio::{self, Fio, Outcome};
use crate::harness::nbd::servers::{Kind, Server};
use crate::harness::prelude::*;
use std::io::Read;
use std::os::unix::net::UnixStream;

const LIMITS: [u64; 2] = [0, 1024];
const MOST_ROUNDS: u32 = 60;
const SEEN: f64 = 0.03;

pub fn run(lab: &mut Lab) -> Result<()> {
    if lab.lacks(&[fio::PROGRAM, Kind::Weir.need()]) {
        return Ok(());
    }
    let _lock = machine::lock()?;
    let (bytes, least) = (lab.pick(512u64 << 20, 32 << 20), lab.args.rounds);
    let folder = Folder::in_memory("e2")?;
    // By limit: rates, requests, and the part that was missed; and the ratios of the rates.
    let mut arms: [[Sample; 3]; 2] = Default::default();
    let mut ratios = Sample::default();
    while ratios.0.len() < lab.pick(MOST_ROUNDS, least) as usize {
        if ratios.0.len() >= least as usize && Paired::of(&ratios).interval <= SEEN {
            break;
        }
        let round = ratios.0.len();
        for (_, turn) in turns(2, 2).skip(2 * (round % 2)).take(2) {
            eprintln!("e2, round {}: max_idle_pages {}", round + 1, LIMITS[turn]);
            let figures = one(&folder, LIMITS[turn], bytes)?;
            arms[turn].iter_mut().zip(figures).for_each(|(sample, figure)| sample.0.push(figure));
        }
        ratios.0.push(arms[0][0].0[round] / arms[1][0].0[round]);
    }
    let row = |(limit, [rate, requests, missed]): (u64, &[Sample; 3])| {
        let figures = [rate.min(), rate.max(), rate.median(), rate.mean(), rate.stddev()].map(short);
        let counts = [limit.to_string(), count(requests.median()), format!("{:.2} %", missed.median() * 100.0)];
        counts.into_iter().chain(figures).collect()
    };
    let head = ["max_idle_pages", "requests", "missed", "MB/s: least", "most", "median", "mean", "stddev"];
    println!("## {} MiB\n\n{}", bytes >> 20, table(head, LIMITS.into_iter().zip(&arms).map(row)));
    println!("0 over 1024, by {} rounds: {}.\n", ratios.0.len(), Paired::of(&ratios));
    lab.note("mb_s", json!(arms.each_ref().map(|arm| arm[0].json())));
    lab.note("verdict", Paired::of(&ratios).to_string().into());
    Ok(())
}

fn one(folder: &Folder, limit: u64, bytes: u64) -> Result<[f64; 3]> {
    let control = folder.at("control");
    let options = [format!("--max-idle-pages={limit}"), format!("--control={}", control.display())];
    let mut server = Server::weir(&folder.at("socket"), &[format!("ram=memory:{bytes}")], &options)?;
    write(folder, &server, bytes, 1 << 20)?;
    let before = pools(&control)?;
    let outcome = write(folder, &server, bytes, 4096)?;
    let after = pools(&control)?;
    server.check()?;
    let missed = (after[1] - before[1]) / (after[0] - before[0]);
    Ok([outcome.bytes_a_second / 1e6, outcome.requests, missed])
}

fn write(folder: &Folder, server: &Server, bytes: u64, request: u64) -> Result<Outcome> {
    let uri = server.uri("ram");
    let jobs = format!("[dd]\nioengine=nbd\nuri={uri}\nrw=write\nbs={request}\nsize={bytes}\niodepth=1\nend_fsync=1\n");
    Fio::start(&folder.at("jobs"), &jobs)?.outcome()
}

/// How often pools were asked, and had nothing.
fn pools(control: &Path) -> Result<[f64; 2]> {
    let mut text = String::new();
    UnixStream::connect(control)?.read_to_string(&mut text)?;
    let report: Value = serde_json::from_str(&text).context("weir-nbd's figures")?;
    let figure = |name: &str| report["pools"][name].as_f64().with_context(|| format!("weir-nbd says no {name}"));
    Ok([figure("gets")?, figure("misses")?])
}
