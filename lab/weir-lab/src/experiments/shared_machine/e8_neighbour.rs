//! The neighbour: a process that once peaked and idles, and another in its cgroup that needs the memory.
//!
//! A peaks in blocks of 16 B to 256 KiB from 4 threads; other threads free 95 % of it at random; A goes idle. First A has no
//! limit. Then A is in a cgroup of 1.2 times the peak, where B needs as much as that twice.
//!
//! Then A is told of pressure, without a neighbour, in two ways. One is systemd's MEMORY_PRESSURE_WATCH (`heard`: A had the FIFO
//! open). The other is a cgroup whose limit falls 1/16 of the peak below what A uses. Both come 0.1 s after the frees. `held` is
//! resident and swapped; swap traffic is the machine's. Root for the cgroups, the swap file and the second setting of huge pages.

use crate::harness::prelude::*;

/// How A peaks.
#[derive(Clone)]
struct Setting {
    bytes: u64,
    mix: String,
    /// Seconds after the frees.
    looks: Vec<f64>,
}

impl Setting {
    fn limit(&self) -> u64 {
        self.bytes * 12 / 10
    }

    /// A at its peak.
    fn peak(&self, allocator: &Allocator, cgroup: Option<&Cgroup>, fifo: Option<&PressureFifo>) -> Result<Program> {
        let mut command = load(allocator, &format!("neighbour bytes={} mix={}", self.bytes, self.mix))?;
        fifo.into_iter().for_each(|fifo| fifo.name_to(&mut command));
        Program::first_phase("A", command, cgroup)
    }

    /// Memory that A holds before an event, and 0.1 s and 1 s after it.
    fn told(&self, mut a: Program, event: impl FnOnce() -> Result<()>) -> Result<[f64; 4]> {
        a.next_phase()?;
        let (before, told) = (a.memory_at(0.1)?, Instant::now());
        event()?;
        sleep_until(told, 0.1);
        let soon = a.memory()?;
        sleep_until(told, 1.0);
        Ok([before.held(), soon.held(), a.memory()?.held(), soon.rss])
    }
}

pub fn run(lab: &mut Lab) -> Result<()> {
    let _lock = machine::lock()?;
    let (bytes, looks) = lab.pick((1 << 30, vec![0.1, 1.0, 10.0]), (256 << 20, vec![0.1, 1.0]));
    let setting = Setting { bytes, mix: lab.args.mix.clone(), looks };
    let shared = Cgroup::make("trial", setting.limit()).and_then(|_| swap::make(&lab.args.swap_dir, bytes * 2));
    if let Err(why) = &shared {
        lab.skips("the neighbour and the pressure of a cgroup", vec![format!("{why:#}")]);
    }
    let found = machine::huge_pages()?;
    let modes: &[&str] = if found == "always" || lab.args.quick { &[&found] } else { &[&found, "always"] };
    lab.for_huge_pages(modes, |lab, mode| {
        alone(lab, mode, &setting);
        if shared.is_ok() {
            neighbour(lab, mode, &setting);
        }
        fifo(lab, mode, &setting);
        if shared.is_ok() {
            cgroup(lab, mode, &setting);
        }
        Ok(())
    })
}

fn resident(looks: &[f64]) -> impl Iterator<Item = crate::harness::grid::Measure> {
    looks.iter().map(|seconds| less(format!("resident {seconds} s after, MiB")).mib())
}

/// The peak, what is live, and the looks.
fn idle(a: &mut Program, looks: &[f64]) -> Result<Vec<f64>> {
    let peak = a.memory()?.held();
    a.next_phase()?;
    let mut figures = vec![peak, a.number("free_ns")? / 1e9, a.number("live")?];
    for &seconds in looks {
        figures.push(a.memory_at(seconds)?.rss);
    }
    Ok(figures)
}

fn head() -> [crate::harness::grid::Measure; 3] {
    [less("held at the peak, MiB").mib(), less("freeing, s"), told("live, MiB").mib()]
}

fn alone(lab: &mut Lab, mode: &str, setting: &Setting) {
    let looks: Vec<f64> = setting.looks.iter().copied().chain(lab.args.later.map(f64::from)).collect();
    let allocators = lab.allocators.clone();
    let case = format!("Huge pages {mode}: idle, {} MiB, without a limit", setting.bytes >> 20);
    lab.by_case(head().into_iter().chain(resident(&looks)).collect(), &[case], &allocators, |_, allocator| {
        idle(&mut setting.peak(allocator, None, None)?, &looks)
    });
}

fn neighbour(lab: &mut Lab, mode: &str, setting: &Setting) {
    let mut subjects = lab.allocators.clone();
    let none = Allocator::none().with("(none: B alone)".into(), &[]);
    subjects.push(none.clone());
    let case = format!("Huge pages {mode}: idle, and its neighbour in a cgroup of {} MiB", setting.limit() >> 20);
    // B alone is no rival of what A is on.
    let b = ["B first, s", "B again, s", "swapped out, MiB", "swapped in, MiB"];
    let b = b.map(|name| if name.ends_with("MiB") { told(name).mib() } else { told(name) });
    lab.by_case(head().into_iter().chain(resident(&setting.looks)).chain(b).collect(), &[case], &subjects, |_, on| {
        let cgroup = Cgroup::make("neighbour", setting.limit())?;
        let mut figures = vec![f64::NAN; 3 + setting.looks.len()];
        let mut a = None;
        if on.name != none.name {
            figures = idle(a.insert(setting.peak(on, Some(&cgroup), None)?), &setting.looks)?;
        }
        let mut command = plain_load(&format!("hog bytes={} times=2", setting.bytes))?;
        cgroup.group.enter(&mut command);
        let before = swapped()?;
        let turns = numbers(&told_by(command, 480, "B")?["turns_ns"]);
        let after = swapped()?;
        let turns: [f64; 2] = turns.try_into().ok().context("B said no times")?;
        figures.extend(turns.map(|ns| ns / 1e9).into_iter().chain([after[1] - before[1], after[0] - before[0]]));
        Ok(figures)
    });
}

fn fifo(lab: &mut Lab, mode: &str, setting: &Setting) {
    let allocators = lab.allocators.clone();
    let names = ["held 0.1 s after, MiB", "1 s after, MiB"].map(|name| less(name).mib());
    let measures = [told("heard"), told("held before, MiB").mib()].into_iter().chain(names).collect();
    lab.by_case(measures, &[format!("Huge pages {mode}: an event of the FIFO's")], &allocators, |_, allocator| {
        let mut fifo = PressureFifo::make()?;
        let a = setting.peak(allocator, None, Some(&fifo))?;
        let mut heard = false;
        let [before, soon, later, _] = setting.told(a, || {
            heard = fifo.send();
            Ok(())
        })?;
        Ok(vec![f64::from(u8::from(heard)), before, soon, later])
    });
}

fn cgroup(lab: &mut Lab, mode: &str, setting: &Setting) {
    let allocators = lab.allocators.clone();
    let names = ["held 0.1 s after, MiB", "1 s after, MiB", "resident 0.1 s after, MiB"].map(|name| less(name).mib());
    let measures = [told("held before, MiB").mib()].into_iter().chain(names).collect();
    lab.by_case(
        measures,
        &[format!("Huge pages {mode}: the limit of its cgroup falls")],
        &allocators,
        |_, allocator| {
            let cgroup = Cgroup::make("pressure", setting.limit())?;
            let a = setting.peak(allocator, Some(&cgroup), None)?;
            let told = setting
                .told(a, || cgroup.limit(cgroup.usage()?.saturating_sub(setting.bytes / 16).max(setting.bytes / 64)))?;
            Ok(told.into())
        },
    );
}
