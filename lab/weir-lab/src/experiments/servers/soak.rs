//! The soak: everything at once for long, under pressure. Threads allocate, resize and pass on; buffers grow; streams are
//! written, read and flushed; children are forked; signals come in; what is left of many blocks is read. Meanwhile pressure
//! events come every 50 ms by systemd's protocol, the group's limit is met, and the process is moved between groups. Huge pages
//! are `madvise` and `always`.
//!
//! It looks for corruption, for what stands still, and for a resident set that grows from cycle to cycle. That set is of the end
//! of a cycle, where nothing is held. The part `merging` has the setting `merge` 2, and the kernel merges pages. The options are
//! --only plain,merging and --minutes N, of all parts and settings. Root for all of it.

use crate::harness::prelude::*;
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};

const KINDS: [&str; 6] = ["blocks", "growths", "streams", "forks", "signals", "survivors"];
/// As it is, and with the setting `merge` while the kernel merges.
const PARTS: [&str; 2] = ["plain", "merging"];
const EVENT_GAP: Duration = Duration::from_millis(50);
/// Events from one squeeze of the group to the next, and from one move to the next.
const SQUEEZE: u64 = 4;
const MOVE: u64 = 20;
const LIMIT: u64 = 1 << 30;
/// Cycles that tell whether it grows; and what it may grow, as bytes and as a part of the mean.
const ENOUGH: usize = 5;
const GROWTH: (f64, f64) = (8.0 * 1_048_576.0, 0.1);

/// The outcome of a phase.
#[derive(Default)]
struct Phase {
    done: [u64; KINDS.len()],
    /// Events heard, squeezes, moves.
    pressure: [u64; 3],
    resident: Vec<f64>,
    /// The most pages that the kernel had merged.
    merged: f64,
    /// Why it ended before its time.
    ended: Option<(&'static str, String)>,
}

pub fn run(lab: &mut Lab) -> Result<()> {
    let _lock = machine::lock()?;
    let groups = [0, 1].map(|i| Cgroup::make(&format!("soak-{i}"), LIMIT));
    let groups = match groups {
        [Ok(a), Ok(b)] => Some([a, b]),
        [Err(why), _] | [_, Err(why)] => {
            lab.skips("groups", vec![format!("{why:#}")]);
            None
        }
    };
    let seconds = lab.args.minutes.map_or(lab.pick(30 * 60, 20), |minutes| u64::from(minutes) * 60);
    let parts = lab.chosen(&PARTS)?;
    let time = Duration::from_secs(seconds) / (parts.len() * MODES.len()) as u32;
    for part in parts {
        let subject = lab.allocator(&lab.args.subject)?;
        let (subject, _merging) = match part {
            "merging" => match machine::switch_merging_on() {
                Ok(guard) => (subject.with("merging".into(), &[("WEIR_MERGE", "2")]), Some(guard)),
                Err(why) => {
                    lab.skips(part, vec![format!("{why:#}")]);
                    continue;
                }
            },
            _ => (subject, None),
        };
        lab.for_huge_pages(&MODES, |lab, mode| {
            let name = format!("{part}, huge pages {mode}");
            eprintln!("soak, {name}: {} s", time.as_secs());
            let phase = phase(lab, &subject, groups.as_ref(), time)?;
            tell(lab, &name, &phase);
            Ok(())
        })?;
    }
    Ok(())
}

fn tell(lab: &mut Lab, name: &str, phase: &Phase) {
    let (word, why) = verdict(phase);
    let resident = |value: Option<&f64>| value.map_or("-".into(), |bytes| mib(*bytes));
    let counts = phase.done.iter().chain(&phase.pressure).map(|number| count(*number as f64));
    let ends = [count(phase.merged), resident(phase.resident.first()), resident(phase.resident.last()), word.into()];
    let row = [phase.resident.len().to_string()].into_iter().chain(counts).chain(ends).collect();
    let rest = ["events", "at the limit", "moves", "pages merged", "resident first, MiB", "last, MiB", "verdict"];
    println!("## {name}\n\n{}{why}.\n", table(["cycles"].into_iter().chain(KINDS).chain(rest), [row]));
    lab.note(
        name,
        json!({ "done": phase.done, "pressure": phase.pressure, "merged": phase.merged, "resident": phase.resident,
                "verdict": word }),
    );
    if word != "sound" {
        lab.fail(format!("{name}: {word}: {why}"));
    }
}

fn phase(lab: &Lab, subject: &Allocator, groups: Option<&[Cgroup; 2]>, time: Duration) -> Result<Phase> {
    let (words, patience) = lab.pick(("work=3000 rest=500", 30), ("work=600 rest=200", 8));
    let mut fifo = PressureFifo::make()?;
    let mut command = load(subject, &format!("soak {words}"))?;
    command.process_group(0).stderr(Stdio::piped());
    fifo.name_to(&mut command);
    let mut program = Program::start("soak", command, None)?;
    let (mut phase, mut moved, mut inside) = (Phase::default(), [Instant::now(); KINDS.len()], 0);
    let end = Instant::now() + time;
    for beat in 1.. {
        let next = Instant::now() + EVENT_GAP;
        phase.pressure[0] += u64::from(fifo.send());
        if let Some(groups) = groups {
            if beat % MOVE == 1 {
                inside = 1 - inside;
                phase.pressure[2] += u64::from(groups[inside].take_in(program.child.pid()).is_ok());
            }
            if beat % SQUEEZE == 0 {
                groups[inside].squeeze(LIMIT)?;
                phase.pressure[1] += 1;
            }
        }
        while let now = Instant::now()
            && now < next
        {
            match program.hears_in(next - now) {
                Ok(false) => break,
                Ok(true) => {
                    phase.merged = phase.merged.max(proc_files::merged_pages(program.child.pid()));
                    let is_cycle = program.said["line"] == "cycle";
                    for (kind, done) in numbers(&program.said["done"]).into_iter().enumerate() {
                        if phase.done[kind] != done as u64 || is_cycle {
                            (phase.done[kind], moved[kind]) = (done as u64, Instant::now());
                        }
                    }
                    if is_cycle {
                        phase.resident.push(program.memory()?.rss);
                        if Instant::now() >= end {
                            kill_group(&program);
                            return Ok(phase);
                        }
                        program.go_on()?;
                    }
                }
                Err(_) => {
                    phase.ended = Some(ended(program)?);
                    return Ok(phase);
                }
            }
        }
        let stuck = KINDS.iter().zip(&moved).filter(|(_, moved)| moved.elapsed().as_secs() > patience);
        let stuck: Vec<&str> = stuck.map(|(kind, _)| *kind).collect();
        if !stuck.is_empty() {
            let places = waiting_places(program.child.pid());
            phase.ended =
                Some(("HANG", format!("no {} for {patience} s; threads wait in: {places}", stuck.join(", no "))));
            kill_group(&program);
            return Ok(phase);
        }
    }
    Ok(phase)
}

/// Its children are of its process group.
fn kill_group(program: &Program) {
    let group = nix::unistd::Pid::from_raw(program.child.pid() as i32);
    let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
}

/// Why it ended.
fn ended(mut program: Program) -> Result<(&'static str, String)> {
    let mut said = String::new();
    let mut complaints = program.child.0.stderr.take().context("no complaints")?;
    let (_, status) = program.rest()?;
    std::io::Read::read_to_string(&mut complaints, &mut said)?;
    let said = said.lines().take(3).collect::<Vec<_>>().join("; ");
    Ok(match status.signal() {
        Some(libc::SIGKILL) => ("FAILED", format!("it was killed (a limit of memory, perhaps) {said}")),
        Some(signal) => ("CORRUPT", format!("it died of signal {signal}: {said}")),
        None => ("FAILED", format!("it ended before its time: {said}")),
    })
}

/// In which functions of the kernel how many threads wait.
fn waiting_places(pid: u32) -> String {
    let mut places = BTreeMap::<String, u32>::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let text = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let place = Some(text("wchan")).filter(|place| !place.is_empty() && place != "0");
        *places.entry(format!("{} {}", text("comm").trim(), place.unwrap_or("user space".into()))).or_default() += 1;
    }
    places.iter().map(|(place, count)| format!("{place} ({count})")).collect::<Vec<_>>().join(", ")
}

fn verdict(phase: &Phase) -> (&'static str, String) {
    if let Some(ended) = &phase.ended {
        return ended.clone();
    }
    let Some((grown, allowed)) = growth(&phase.resident) else {
        return ("sound", "Too few cycles to tell whether it grows".into());
    };
    let word = if grown > allowed { "GROWTH" } else { "sound" };
    (word, format!("It grew by {} MiB over the second half, {} are allowed", mib(grown), mib(allowed)))
}

/// By how much the line of least squares rises over the second half, and by how much it may.
fn growth(values: &[f64]) -> Option<(f64, f64)> {
    let half = &values[values.len() / 2..];
    if half.len() < ENOUGH {
        return None;
    }
    let n = half.len() as f64;
    let (middle, mean) = ((n - 1.0) / 2.0, half.iter().sum::<f64>() / n);
    let offsets = || (0..half.len()).map(|i| i as f64 - middle);
    let slope = offsets().zip(half).map(|(x, y)| x * (y - mean)).sum::<f64>() / offsets().map(|x| x * x).sum::<f64>();
    Some((slope * (n - 1.0), GROWTH.0 + GROWTH.1 * mean))
}

#[cfg(test)]
mod tests {
    use super::growth;

    #[test]
    fn a_leak_is_told_from_noise() {
        let mib = |value: f64| value * 1_048_576.0;
        let noise: Vec<f64> = (0..100).map(|i| mib(30.0 + f64::from(i * 7 % 5))).collect();
        let (grown, allowed) = growth(&noise).unwrap();
        assert!(grown.abs() < mib(0.5) && allowed > mib(11.0));
        let leak: Vec<f64> = noise.iter().zip(0..).map(|(value, i)| value + mib(0.5) * f64::from(i)).collect();
        assert!(growth(&leak).is_some_and(|(grown, allowed)| grown > allowed));
        let step: Vec<f64> = (0..100).map(|i| mib(if i < 40 { 10.0 } else { 60.0 })).collect();
        assert!(growth(&step).unwrap().0.abs() < 1.0 && growth(&noise[..8]).is_none());
    }
}
