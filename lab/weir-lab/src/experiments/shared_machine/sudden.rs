//! Memory that comes to be short all of a sudden: a program whose cache fills its cgroup, without swap. Told is in how many
//! rounds the kernel killed a program, and what the cache held at last.
//!
//! *alone*: the cache is offered three times the limit at full speed. *own memory*: then the program takes 24 MiB for itself
//! at once. *neighbour*: then another program grows by 100 MiB a second to 60 % of the limit. A cache of a fixed size has so
//! many percent of the limit. --only takes weir, weir-glibc (on glibc's malloc), moka-25, moka-50, and the cases. Root.

use crate::harness::prelude::*;

const LIMIT: u64 = 512 << 20;
const BLOCK: u64 = 16 << 10;
const OWN: u64 = 24 << 20;
/// The neighbour's pause after each MiB, us: 100 MiB a second.
const PAUSE_US: u64 = 10_000;
const SUBJECTS: [&str; 4] = ["weir", "weir-glibc", "moka-25", "moka-50"];
const CASES: [&str; 3] = ["alone", "own memory", "neighbour"];
/// A phase takes a second or two.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn run(lab: &mut Lab) -> Result<()> {
    let only = lab.args.only.clone();
    if let Some(unknown) = only.iter().find(|word| !SUBJECTS.iter().chain(&CASES).any(|known| known == word)) {
        bail!("'{unknown}' is neither a cache nor a case: {}, {}", SUBJECTS.join(", "), CASES.join(", "));
    }
    let chosen = |all: &[&'static str]| -> Vec<&'static str> {
        let named: Vec<&str> = all.iter().copied().filter(|name| only.iter().any(|word| word == name)).collect();
        if named.is_empty() { all.to_vec() } else { named }
    };
    let (cases, subjects) = (chosen(&CASES), chosen(&SUBJECTS));
    let _lock = machine::lock()?;
    drop(Cgroup::make("trial", LIMIT)?);
    lab.args.subject = SUBJECTS[0].into();
    let measures = vec![less("killed"), told("held, MiB").mib()];
    let grid = lab.by_case(measures, &cases, &subjects, |case, subject| one(case, subject));
    for (subject, name) in subjects.iter().enumerate().filter(|(_, name)| name.starts_with("weir")) {
        let killed: f64 = (0..cases.len()).map(|case| grid.sample(case, subject, 0).0.iter().sum::<f64>()).sum();
        if killed > 0.0 && !lab.args.quick {
            lab.fail(format!("{name}: {killed} programs were killed"));
        }
    }
    Ok(())
}

fn one(case: &str, subject: &str) -> Result<Vec<f64>> {
    let (kind, percent) = subject.split_once('-').unwrap_or((subject, "0"));
    let program = if subject == "weir" { "weir-lab-cache-weir" } else { "weir-lab-cache" };
    let cgroup = Cgroup::make("sudden", LIMIT)?;
    // Where swap is not counted, the machine has to have none.
    let _ = cgroup.limit_swap(LIMIT, 0);
    let mut command = Command::new(beside(program)?);
    let size = LIMIT / 100 * percent.parse::<u64>().unwrap_or(0);
    command.args(["filler", &format!("cache={kind}"), &format!("bytes={size}"), &format!("block={BLOCK}")]);
    command.args([format!("total={}", 3 * LIMIT), format!("own={OWN}")]);
    let mut filler = Program::start("the program with a cache", command, Some(&cgroup))?;
    let mut is_alive = has_said(&mut filler)?;
    if is_alive && case == "own memory" {
        filler.go_on()?;
        is_alive = has_said(&mut filler)?;
    }
    if is_alive && case == "neighbour" {
        let hog = plain_load(&format!("hog bytes={} pause_us={PAUSE_US}", LIMIT / 10 * 6))?;
        let mut hog = Program::start("the neighbour", hog, Some(&cgroup))?;
        // Its own answer is the last of what it holds now.
        is_alive = has_said(&mut hog)? && filler.child.check("the program with a cache").is_ok();
        if is_alive {
            filler.go_on()?;
            is_alive = has_said(&mut filler)?;
        }
    }
    let held = filler.number("held").unwrap_or(0.0);
    Ok(vec![if is_alive { 0.0 } else { 1.0 }, held])
}

/// Whether it says its next line; else it was killed.
fn has_said(program: &mut Program) -> Result<bool> {
    match program.hears_in(PATIENCE) {
        Ok(true) => Ok(true),
        Ok(false) => bail!("it neither goes on nor ends"),
        Err(_) => Ok(false),
    }
}
