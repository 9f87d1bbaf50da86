//! What is run, and the lines that come of it.

use super::counters::{Counters, Line, own_seconds};
use super::postmark::{self, Work};
use super::setting::{Size, Test};
use super::small_zone::{self, Requests};
use super::stage::{Ground, Stage};
use crate::harness::args::RunArgs;
use crate::harness::cgroup::enter;
use crate::harness::child::{load_program, run as run_child};
use crate::harness::programs::find;
use crate::harness::rounds;
use crate::harness::statistics::Sample;
use crate::harness::swap;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The policies, as the setting `balance_policy` counts them; the first is what the others are compared with.
pub const POLICIES: [(&str, u64); 3] = [("all", 1), ("any", 0), ("25 %", 2)];

/// One policy's measurements of one test: each line's, in the table's order.
#[derive(Default)]
pub struct Column {
    /// By line.
    pub lines: Vec<(&'static str, Sample)>,
    /// Why it could not go on.
    pub failed: Option<String>,
}

impl Column {
    fn add(&mut self, lines: Vec<Line>) {
        for (name, value) in lines {
            match self.lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sample)) => sample.push(value),
                None => self.lines.push((name, Sample::from_iter([value]))),
            }
        }
    }

    /// A line's measurements.
    pub fn line(&self, name: &str) -> Sample {
        self.lines.iter().find(|(known, _)| *known == name).map(|(_, sample)| sample.clone()).unwrap_or_default()
    }
}

/// One test under all policies.
pub struct Done {
    /// Which.
    pub test: Test,
    /// In the order of [`POLICIES`].
    pub columns: Vec<Column>,
}

/// Rounds in which every policy has its turn, of each test.
pub fn all(args: &RunArgs, size: &Size, tests: &[Test]) -> Result<Vec<Done>, String> {
    let _swap = swap::make(&args.swap_dir, size.limit * 2)?;
    let ground = Ground::make(&args.swap_dir, size.disk)?;
    let mut done = Vec::new();
    for &test in tests {
        let mut columns: Vec<Column> = POLICIES.iter().map(|_| Column::default()).collect();
        for (round, turn) in rounds::of(args.rounds, POLICIES.len()) {
            let (name, policy) = POLICIES[turn];
            eprintln!("e7, {}, round {} of {}: {name}", test.name(), round + 1, args.rounds);
            let column = &mut columns[turn];
            if column.failed.is_some() {
                continue;
            }
            match one(&ground, size, test, policy) {
                Ok(lines) => column.add(lines),
                Err(why) => {
                    eprintln!("{name}: {why}");
                    column.failed = Some(why);
                }
            }
        }
        done.push(Done { test, columns });
    }
    Ok(done)
}

/// The modelled zones, each round with other places of the pages.
pub fn small_zones(rounds: u32, size: &Size) -> Vec<Done> {
    let cases = [(Test::SmallZone, Requests::Both), (Test::SmallZoneAlone, Requests::SmallAlone)];
    let of = |(test, requests)| {
        let column = |(_, policy)| {
            let mut column = Column::default();
            for round in 0..rounds {
                column.add(small_zone::run(policy, requests, size.ticks, round.into()).lines());
            }
            column
        };
        Done { test, columns: POLICIES.map(column).into() }
    };
    cases.map(of).into()
}

/// One run, from an empty file system on.
fn one(ground: &Ground, size: &Size, test: Test, policy: u64) -> Result<Vec<Line>, String> {
    let mut stage = Stage::make(ground, size, policy)?;
    let before = Counters::now(stage.page().stats()?)?;
    let (own, start) = (own_seconds(), Instant::now());
    let folder = stage.folder();
    let own_lines = match test {
        Test::Postmark => postmark(&stage, &size.work, &folder),
        _ => stream(&stage, size.stream, &folder),
    };
    let (elapsed, own) = (start.elapsed().as_secs_f64(), own_seconds() - own);
    let after = Counters::now(stage.page().stats()?)?;
    // If the server has not survived, that is the reason for all else.
    let cache = stage.cache()?;
    let mut lines = own_lines?;
    // Postmark counts whole seconds.
    let amounts: Vec<Line> = lines.extract_if(.., |(name, _)| name.starts_with("megabytes")).collect();
    for (name, rate) in
        [("megabytes read", "Read, MB/s of the whole time"), ("megabytes written", "Written, MB/s of the whole time")]
    {
        lines.extend(amounts.iter().find(|(known, _)| *known == name).map(|(_, amount)| (rate, amount / elapsed)));
    }
    lines.extend(after.lines(&before, elapsed, own));
    let number = |key: &str| cache[key].as_f64().unwrap_or(f64::NAN);
    let (hits, misses) = (number("hits"), number("misses"));
    lines.push(("Block cache at the end, MiB", number("bytes") / f64::from(1 << 20)));
    lines.push(("Block cache, hits of 100 blocks read", 100.0 * hits / (hits + misses)));
    Ok(lines)
}

const LIMIT: Duration = Duration::from_secs(1200);

fn postmark(stage: &Stage, work: &Work, folder: &Path) -> Result<Vec<Line>, String> {
    let commands = folder.with_file_name("commands");
    std::fs::write(&commands, work.commands(folder)).map_err(|why| format!("postmark's commands: {why}"))?;
    // Of a device that fails it complains without end; that the server has ended is found out below.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$1\" 2>/dev/null"]);
    command.arg(find("postmark").ok_or("postmark is not here")?).arg(&commands);
    enter(&mut command, &stage.client);
    let said = postmark::parse(&run_child(command, LIMIT, "postmark")?.output)?;
    Ok(vec![
        ("Transactions per second", said.transactions),
        ("Data megabytes read per second", said.read[1]),
        ("Data megabytes written per second", said.written[1]),
        ("Files created alone per second", said.created[0]),
        ("Files create/transact per second", said.created[1]),
        ("Files deleted alone per second", said.deleted[0]),
        ("Files delete/transact per second", said.deleted[1]),
        ("megabytes read", said.read[0]),
        ("megabytes written", said.written[0]),
    ])
}

fn stream(stage: &Stage, [bytes, times]: [u64; 2], folder: &Path) -> Result<Vec<Line>, String> {
    let mut command = Command::new(load_program()?);
    command.arg("stream").arg(format!("file={}", folder.join("stream").display()));
    command.args([format!("bytes={bytes}"), format!("times={times}"), "block=65536".into()]);
    enter(&mut command, &stage.client);
    let finished = run_child(command, LIMIT, "the stream")?;
    let said: Value = serde_json::from_str(finished.output.trim()).map_err(|why| format!("the stream: {why}"))?;
    let number = |key: &str| said[key].as_f64().ok_or_else(|| format!("the stream said no '{key}'"));
    let rate = |ns: f64| bytes as f64 * times as f64 / 1e6 / (ns / 1e9);
    Ok(vec![("Read, MB/s", rate(number("read_ns")?)), ("Written, MB/s", rate(number("write_ns")?))])
}

/// Everything that was measured.
pub fn as_json(size: &Size, done: &[Done]) -> Value {
    let column = |column: &Column| {
        let lines: serde_json::Map<_, _> =
            column.lines.iter().map(|(name, sample)| (name.to_string(), sample.json())).collect();
        json!({ "lines": lines, "failed": column.failed })
    };
    let test = |done: &Done| {
        let columns = POLICIES.iter().map(|(name, _)| name.to_string()).zip(done.columns.iter().map(column));
        (done.test.name().to_string(), Value::from(columns.collect::<serde_json::Map<_, _>>()))
    };
    let failed = done.iter().flat_map(|done| &done.columns).find_map(|column| column.failed.clone());
    json!({ "limit": size.limit, "segment": size.segment, "disk": size.disk, "client_limit": size.client_limit,
            "tests": done.iter().map(test).collect::<serde_json::Map<_, _>>(), "failed": failed })
}
