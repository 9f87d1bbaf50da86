//! One guest for each program and allocator, and the rows that come of it.

use super::files::Program;
use crate::experiments::redis::with_glibc_by_name;
use crate::guest::kernel::GuestKernel;
use crate::guest::{Image, Machine, add_disk, count_instructions};
use crate::harness::child;
use crate::harness::statistics::Sample;
use crate::peers::{Allocator, WEIR};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// The program's data and its peak, four times as much, on an allocator that needs twice that, and the guest's kernel.
const GUEST_OF_DATA: u64 = 12;
const GUEST_AT_LEAST: u64 = 256;
/// The limit has to hold within so many seconds, and requests to take at most so much longer.
const SOON: f64 = 1.0;
const SLOWER: f64 = 1.0 / 0.95;

/// How much and how often.
pub struct Setting {
    /// Rounds of each program and allocator.
    pub rounds: u32,
    /// MiB of data that stay.
    pub mib: u64,
}

/// One program on one allocator in one case.
pub struct Row {
    /// The program.
    pub program: &'static str,
    /// The allocator.
    pub allocator: String,
    /// How the limit was lowered.
    pub case: String,
    /// What the guest said of each round.
    pub rounds: Vec<Value>,
    /// Why there are none, or no more.
    pub failed: Option<String>,
}

impl Setting {
    /// MiB of the guest's memory.
    pub fn guest_mib(&self) -> u64 {
        (self.mib * GUEST_OF_DATA).max(GUEST_AT_LEAST)
    }

    /// Bytes of the guest's swap.
    pub fn swap(&self) -> u64 {
        self.guest_mib() * MIB
    }

    /// Booting takes a minute on a busy machine, a round less than one.
    fn limit(&self) -> Duration {
        Duration::from_secs(120 + 60 * u64::from(self.rounds))
    }
}

/// The rows of one program on one allocator.
pub(super) fn one(
    program: &Program,
    allocator: &Allocator,
    setting: &Setting,
    machine: (&GuestKernel, &Path),
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let new = |case: &str| Row {
        program: program.name,
        allocator: allocator.name.clone(),
        case: case.into(),
        rounds: Vec::new(),
        failed: None,
    };
    let told = match guest(program, allocator, setting, machine) {
        Ok(told) => told,
        Err(why) => return vec![Row { failed: Some(why), ..new("") }],
    };
    for round in told {
        let case = round["case"].as_str().unwrap_or_default().to_string();
        match rows.iter_mut().find(|row| row.case == case) {
            Some(row) => row.rounds.push(round),
            None => rows.push(Row { rounds: vec![round], ..new(&case) }),
        }
    }
    if rows.is_empty() {
        rows.push(Row { failed: Some("the guest said nothing".into()), ..new("") });
    }
    rows
}

/// Runs the guest; what it said of each round.
fn guest(
    program: &Program,
    allocator: &Allocator,
    setting: &Setting,
    (kernel, disk): (&GuestKernel, &Path),
) -> Result<Vec<Value>, String> {
    let mut allocator = with_glibc_by_name(vec![allocator.clone()])?.remove(0);
    if program.has_weir && allocator.name == WEIR {
        allocator.preload = None;
    }
    let image = Image::build_with(kernel, &allocator, &[], |image| (program.add)(image, &allocator))?;
    let words = [
        "live-shrink".to_string(),
        format!("program={}", program.name),
        format!("rounds={}", setting.rounds),
        format!("mib={}", setting.mib),
    ];
    let machine = Machine { mib: setting.guest_mib(), reporting: false, translations: 256 };
    let mut command = image.command(machine, &words);
    add_disk(&mut command, disk);
    count_instructions(&mut command);
    let finished = child::run(command, setting.limit(), "the guest")?;
    let parse = |line: &str| serde_json::from_str(line).map_err(|why| format!("the guest said '{line}': {why}"));
    finished.output.lines().map(parse).collect()
}

/// Whether a round is what is wanted: no kill, no swap, soon, and as fast as before.
fn has_passed(round: &Value) -> bool {
    let is = |key: &str, most: f64| round[key].as_f64().is_some_and(|value| value <= most);
    let ratio = slower(round);
    is("kills", 0.0) && is("swapped_pages", 0.0) && is("done_s", SOON) && ratio.is_some_and(|ratio| ratio <= SLOWER)
}

/// Time of the requests after, over the time before.
fn slower(round: &Value) -> Option<f64> {
    Some(round["after_s"].as_f64()? / round["before_s"].as_f64()?)
}

impl Row {
    /// A figure of all rounds that have it.
    pub fn sample(&self, key: &str) -> Sample {
        self.rounds.iter().filter_map(|round| round[key].as_f64()).collect()
    }

    /// Throughput after, as a share of that before.
    pub fn throughput(&self) -> Sample {
        self.rounds.iter().filter_map(|round| Some(1.0 / slower(round)?)).collect()
    }

    /// Rounds in which the limit never came to hold, though nothing was killed.
    pub fn refused(&self) -> usize {
        let refused = |round: &&Value| round["done_s"].is_null() && round["kills"] == 0;
        self.rounds.iter().filter(refused).count()
    }

    /// Rounds with a kill.
    pub fn killed(&self) -> usize {
        self.rounds.iter().filter(|round| round["kills"] != 0).count()
    }

    /// Rounds that are what is wanted.
    pub fn passed(&self) -> usize {
        self.rounds.iter().filter(|round| has_passed(round)).count()
    }
}

pub(super) fn as_json(rows: &[Row], setting: &Setting) -> Value {
    let row = |row: &Row| {
        json!({ "program": row.program, "allocator": row.allocator, "case": row.case, "rounds": row.rounds,
                "passed": row.passed(), "failed": row.failed })
    };
    let weir = || rows.iter().filter(|row| row.allocator == WEIR);
    let broken = weir().find_map(|row| {
        let why = row.failed.clone();
        let few = (row.passed() < row.rounds.len())
            .then(|| format!("{}, {}: {} of {} rounds", row.program, row.case, row.passed(), row.rounds.len()));
        why.or(few)
    });
    json!({ "mib": setting.mib, "rows": rows.iter().map(row).collect::<Vec<_>>(), "failed": broken })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_passes_only_without_kill_and_swap_soon_and_as_fast_as_before() {
        let good = json!({ "kills": 0, "swapped_pages": 0, "done_s": 0.9, "before_s": 1.0, "after_s": 1.05 });
        assert!(has_passed(&good));
        for (key, value) in [
            ("kills", json!(1)),
            ("swapped_pages", json!(1)),
            ("done_s", json!(1.1)),
            ("done_s", json!(null)),
            ("after_s", json!(1.06)),
            ("after_s", json!(null)),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert!(!has_passed(&bad), "{bad}");
        }
    }

    #[test]
    fn a_refused_round_is_one_without_a_kill_in_which_the_limit_never_held() {
        let round = |kills: u64, done: Option<f64>| json!({ "kills": kills, "done_s": done });
        let rounds = vec![round(0, None), round(1, None), round(0, Some(0.1))];
        let row = Row { program: "p", allocator: "a".into(), case: "c".into(), rounds, failed: None };
        assert_eq!((row.refused(), row.killed(), row.passed()), (1, 1, 0));
    }
}
