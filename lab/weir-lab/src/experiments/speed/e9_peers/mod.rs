//! The standard allocator workloads, and real programs, under every allocator, in rounds in which each has its turn: time, peak
//! resident set, page faults.
//!
//! Geometric means are of the ratios of medians to the best peer of each row in turn, and to glibc. A mean of 1.00 is equal, less
//! is better. Of peaks and faults, rows count where the middle allocator has 10 MiB and 1,000 faults. The option --only takes
//! workloads and programs that `weir-lab list` names. With --profiled, Weir is measured with its profiler on as well.

pub mod programs;

use crate::harness::prelude::*;
use programs::{PROGRAMS, Stage};

const START: &str = "start";
const LIMIT: Duration = Duration::from_secs(180);

/// A workload of the load program.
pub struct Workload {
    pub name: String,
    pub threads: u64,
    pub about: String,
}

/// The workloads that the load program has, and starting a program.
pub fn workloads() -> Result<Vec<Workload>> {
    let said = told_by(plain_load("list")?, 60, "weir-lab-load list")?;
    let of = |row: &Value| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
        Workload { name: text("name"), threads: row["threads"].as_u64().unwrap_or(1), about: text("about") }
    };
    let about = "run `true`: time from start to end; the resident set is that of `cat`".into();
    let start = Workload { name: START.into(), threads: 1, about };
    Ok(said.as_array().into_iter().flatten().map(of).chain([start]).collect())
}

pub fn run(lab: &mut Lab) -> Result<()> {
    let (known, mut allocators) = (workloads()?, lab.allocators.clone());
    if lab.args.profiled {
        allocators.push(lab.weir()?.with("weir, profiled".into(), &[("WEIR_PROFILE_BYTES", "512K")]));
    }
    let programs = PROGRAMS.iter().map(|program| program.name);
    let chosen: Vec<&str> = lab.chosen(&known.iter().map(|of| of.name.as_str()).chain(programs).collect::<Vec<_>>())?;
    let (workloads, programs): (Vec<&str>, Vec<&str>) =
        chosen.into_iter().partition(|name| known.iter().any(|workload| workload.name == *name));
    let size = lab.pick("ms=1000 permille=1000", "ms=120 permille=25");
    let starts = lab.pick(100, 10);
    if !workloads.is_empty() {
        lab.by_measure(measures(), &workloads, &allocators, |name, allocator| {
            if *name == START {
                return start(allocator, starts);
            }
            let Finished { output, minor_faults, .. } =
                run_child(load(allocator, &format!("{name} {size}"))?, LIMIT, name)?;
            let said: Value = serde_json::from_str(&output)?;
            Ok(vec![number(&said, "ns")? / number(&said, "ops")?, number(&said, "peak_kib")? * 1024.0, minor_faults])
        });
    }
    let (stage, allocators) = (Stage::make(lab.args.quick)?, with_glibc_by_name(allocators)?);
    let mut here = Vec::new();
    for program in PROGRAMS.iter().filter(|program| programs.contains(&program.name)) {
        if !lab.skips(program.name, program.missing()) {
            here.push(program);
        }
    }
    if !here.is_empty() {
        lab.by_measure(measures(), &here, &allocators, |program, allocator| {
            (program.run)(&stage, allocator).map(|figures| figures.into())
        });
    }
    Ok(())
}

fn measures() -> Vec<Measure> {
    let peak = less("Peak resident set, MiB").mib().from(10.0 * 1_048_576.0);
    vec![less("Time, ns an operation"), peak, less("Minor page faults").from(1_000.0)]
}

fn start(allocator: &Allocator, starts: u32) -> Result<Vec<f64>> {
    let (begin, mut faults) = (Instant::now(), 0.0);
    for _ in 0..starts {
        faults += run_child(under("true", allocator), LIMIT, "true")?.minor_faults;
    }
    let ns = begin.elapsed().as_nanos() as f64 / f64::from(starts);
    let mut cat = under("cat", allocator);
    cat.arg("/proc/self/status");
    let said = run_child(cat, LIMIT, "cat")?.output;
    let kib = said.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<f64>().ok());
    Ok(vec![ns, kib.context("no VmHWM")? * 1024.0, faults / f64::from(starts)])
}
