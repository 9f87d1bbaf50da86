//! E14: what a program's group is charged for after a peak of which few blocks are left at random, on every page nearly one.
//!
//! A case has blocks of each of its sizes, so many bytes a size, each with contents of its own. Then all but one in so many are
//! freed at random, and the program rests. Charged: the usage of its memory cgroup, less what the group has before the first
//! block. ksmd: processor time of the kernel's merging thread.
//!
//! Then it reads all blocks and compares (the experiment fails where one is wrong), writes to one in ten, and reads them again.
//! The kernel's merging is on, and looks at 2,000 pages each 20 ms, while a case runs with the setting `merge`: root.

use crate::harness::prelude::*;

/// Sizes, one kept in so many, and the name.
const CASES: [(&str, u64, &str); 3] = [
    ("512+1024+2048", 20, "1 in 20 of 512 B, 1 KiB and 2 KiB"),
    ("64+128+256", 16, "1 in 16 of 64, 128 and 256 B"),
    ("128+256+512", 4, "1 in 4 of 128, 256 and 512 B"),
];
const KSM: &str = "/sys/kernel/mm/ksm";

pub fn run(lab: &mut Lab) -> Result<()> {
    let _lock = machine::lock()?;
    if let Err(why) = Cgroup::make("trial", 8 << 30) {
        lab.skips("all of it", vec![format!("{why:#}")]);
        return Ok(());
    }
    let (bytes, looks) = lab.pick((100u64 << 20, vec![1.0, 10.0, 60.0]), (20 << 20, vec![1.0, 10.0]));
    let mut subjects = lab.allocators.clone();
    let weir = lab.weir()?;
    subjects.push(weir.with("weir, merge 1".into(), &[("WEIR_MERGE", "1")]));
    subjects.push(weir.with("weir, merge 2".into(), &[("WEIR_MERGE", "2")]));
    let measures = [told("live, MiB").mib(), less("charged at the peak, MiB").mib()];
    let after = looks.iter().map(|seconds| less(format!("charged {seconds} s after, MiB")).mib());
    let costs = [
        less("own CPU since the frees, s"),
        less("ksmd CPU, s"),
        less("us a write"),
        less("charged after writes, MiB").mib(),
    ];
    let cases: Vec<&str> = CASES.iter().map(|case| case.2).collect();
    let measures: Vec<Measure> = measures.into_iter().chain(after).chain(costs).collect();
    lab.by_case(measures, &cases, &subjects, |name, allocator| {
        let (sizes, keep, _) = CASES.iter().find(|case| case.2 == *name).context("a case")?;
        let _merging = if allocator.name.contains("merge") { Some(switch_merging_on()?) } else { None };
        let cgroup = Cgroup::make("sparse", 8 << 30)?;
        let command = load(allocator, &format!("sparse bytes={bytes} sizes={sizes} keep={keep}"))?;
        let mut program = Program::first_phase("sparse", command, Some(&cgroup))?;
        let base = cgroup.usage()? as f64;
        program.next_phase()?;
        let peak = cgroup.usage()? as f64 - base;
        program.next_phase()?;
        let (mut figures, cpu, ksmd) = (vec![program.number("live")?, peak], cpu(&program)?, ksmd_seconds());
        for &seconds in &looks {
            sleep_until(program.since, seconds);
            figures.push(cgroup.usage()? as f64 - base);
        }
        figures.extend([self::cpu(&program)? - cpu, ksmd_seconds() - ksmd]);
        program.next_phase()?;
        ensure!(program.number("wrong")? == 0.0, "{} blocks are wrong", program.number("wrong")?);
        figures.extend([program.number("write_us")?, cgroup.usage()? as f64 - base]);
        Ok(figures)
    });
    Ok(())
}

fn cpu(program: &Program) -> Result<f64> {
    cpu_seconds(program.child.pid())
}

/// Processor time of the kernel's merging thread; 0 where there is none.
fn ksmd_seconds() -> f64 {
    static KSMD: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    let find = || proc_files::children(2).into_iter().find(|&pid| proc_files::is_named(pid, "ksmd"));
    KSMD.get_or_init(find).and_then(|pid| cpu_seconds(pid).ok()).unwrap_or(0.0)
}

/// Has the kernel merge pages, and fast, until the guard goes.
fn switch_merging_on() -> Result<restore::RestoreGuard> {
    let files = ["pages_to_scan", "run"].map(|name| format!("{KSM}/{name}"));
    let before = files.clone().map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let undo = files.clone();
    let guard = restore::on_end(move || {
        for (file, value) in undo.iter().zip(&before) {
            if let Err(why) = std::fs::write(file, value.trim()) {
                eprintln!("weir-lab: {file} stays changed: {why}");
            }
        }
    });
    for (file, value) in files.iter().zip(["2000", "1"]) {
        std::fs::write(file, value).with_context(|| format!("{file}: merging needs root"))?;
    }
    Ok(guard)
}
