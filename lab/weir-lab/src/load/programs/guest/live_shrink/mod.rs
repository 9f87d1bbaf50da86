//! The first process of a guest that has cgroup v2. A container that has peaked and idles gets a limit little above what it
//! has in use, many times.
//!
//! Each time a program is started anew. It loads its data and idles, and what its group is charged then is "in use". It
//! serves a fixed number of requests, peaks, frees what the peak needed, and idles; the limit is lowered; it serves as
//! many requests again. One line of JSON a round and case.

mod lines;
mod redis;
mod subject;

use crate::base::guest::group;
use crate::base::prelude::*;
use lines::Lines;
use redis::Redis;
use std::thread::sleep;
use subject::Subject;

/// The group's limit before it is lowered, in sizes of the data.
const FIRST_LIMIT: u64 = 8;
const SETTLE: Duration = Duration::from_secs(10);
/// Times that the requests are served in a measurement.
const WINDOWS: u32 = 3;
/// How long the limit may not hold, how often that is looked at, and for how long no more may be charged.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(1);
const SETTLED: Duration = Duration::from_millis(10);

/// Weir's command, where the program is on Weir.
const COMMAND: &str = "/weir";

/// How a limit is lowered.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// `memory.max` is written.
    Max,
    /// `memory.high`, and `memory.max` once usage has settled.
    HighThenMax,
    /// `weir shrink`: processes are asked first.
    Asked,
    /// `memory.max` is written before the peak: what a container does that never had more.
    BeforePeak,
}

/// A way to lower the limit: its name, how long the container idles before, and whether it may swap.
type Case = (&'static str, Duration, bool, Way);

const CASES: [Case; 6] = [
    ("max, after 10 s", Duration::from_secs(10), false, Way::Max),
    ("max, after 10 s, with swap", Duration::from_secs(10), true, Way::Max),
    ("high then max, after 0.1 s", Duration::from_millis(100), false, Way::HighThenMax),
    ("asked, after 0.1 s", Duration::from_millis(100), false, Way::Asked),
    ("asked, after 10 s", Duration::from_secs(10), false, Way::Asked),
    ("max, before the peak", Duration::from_millis(100), false, Way::BeforePeak),
];

pub fn main(words: &Words) -> Result<()> {
    // SAFETY: the path ends with a zero byte.
    let failed = unsafe { libc::swapon(c"/dev/vda".as_ptr(), 0) };
    ensure!(failed == 0, "cannot swap to /dev/vda: {}", std::io::Error::last_os_error());
    let (program, bytes) = (words.text("program")?, words.number("mib")? << 20);
    let can_ask = std::path::Path::new(COMMAND).exists();
    for _ in 0..words.number("rounds")? {
        for case in CASES.into_iter().filter(|(.., way)| can_ask || *way != Way::Asked) {
            println!("{}", round(program, bytes, case)?);
        }
    }
    Ok(())
}

fn round(program: &str, bytes: u64, case: Case) -> Result<String> {
    let group = group(program)?;
    group.write("memory.max", bytes * FIRST_LIMIT)?;
    let mut subject: Box<dyn Subject> = match program {
        "redis" => Box::new(Redis::start(&group, bytes as usize)?),
        "python" => Box::new(Lines::python(&group, bytes)?),
        "cache" => Box::new(Lines::cache(&group, bytes)?),
        _ => bail!("no program is called '{program}'"),
    };
    subject.load()?;
    sleep(SETTLE);
    let in_use = group.number("memory.current")?;
    let swapped = swapped_pages();
    let mut told = format!("\"case\":\"{}\",\"in_use\":{in_use}", case.0);
    if let Err(why) = steps(&mut *subject, &group, case, in_use / 5 * 6, &mut told) {
        told += &format!(",\"why\":{:?}", format!("{why:#}"));
    }
    let kills = group.field("memory.events", "oom_kill");
    told += &format!(",\"kills\":{kills},\"swapped_pages\":{}", swapped_pages() - swapped);
    drop(subject);
    std::fs::remove_dir(&group.0)?;
    Ok(format!("{{{told}}}"))
}

fn steps(subject: &mut dyn Subject, group: &Group, case: Case, target: u64, told: &mut String) -> Result<()> {
    let (_, idle, swap, way) = case;
    subject.work()?; // Warms up.
    *told += &format!(",\"before_s\":{}", windows(subject)?);
    if way == Way::BeforePeak {
        group.write("memory.max", target)?;
    }
    subject.peak()?;
    sleep(idle);
    *told += &format!(",\"held\":{},\"peak\":{}", group.number("memory.current")?, group.number("memory.peak")?);
    group.write("memory.swap.max", if swap { "max" } else { "0" })?;
    let done =
        if way == Way::Asked { Some(ask(group, target)?) } else { lower(group, target, way == Way::HighThenMax)? };
    if let Some(seconds) = done {
        *told += &format!(",\"done_s\":{seconds}");
        *told += &format!(",\"after_s\":{}", windows(subject)?);
        return Ok(());
    }
    bail!("{} is charged, not {target}; {}", group.number("memory.current")?, whereabouts(group)?)
}

/// Where in the kernel the group's threads are: the name, the function and the system call of each, and its page faults so far.
fn whereabouts(group: &Group) -> Result<String> {
    let mut told = String::new();
    for process in std::fs::read_to_string(group.0.join("cgroup.procs"))?.lines() {
        for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?.path();
            let read = |file| std::fs::read_to_string(thread.join(file)).unwrap_or_default();
            let faults = read("stat").rsplit(") ").next().and_then(|rest| rest.split(' ').nth(7).map(String::from));
            let words = [read("comm"), read("wchan"), read("syscall"), faults.unwrap_or_default()];
            told += &format!("{}; ", words.map(|word| word.trim().to_owned()).join(", "));
        }
    }
    Ok(told)
}

/// Seconds until the processes have given and the limit is set.
fn ask(group: &Group, target: u64) -> Result<f64> {
    let start = Instant::now();
    let mut command = std::process::Command::new(COMMAND);
    command.args([
        "shrink",
        "--timeout",
        &format!("{}s", PATIENCE.as_secs()),
        "--to",
        &format!("{}K", target >> 10),
        "--cgroup",
    ]);
    let output = command.arg(&group.0).output()?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(seconds)
}

/// Seconds until the group is charged no more than the target; none if it is longer than it may.
fn lower(group: &Group, target: u64, high_first: bool) -> Result<Option<f64>> {
    let start = Instant::now();
    let (first, settled) = if high_first { ("memory.high", SETTLED) } else { ("memory.max", Duration::ZERO) };
    group.write(first, target)?;
    let mut above = start;
    loop {
        let now = Instant::now();
        if group.number("memory.current")? > target {
            above = now;
        } else if above == start || now - above >= settled {
            break;
        }
        if now - start > PATIENCE {
            return Ok(None);
        }
        sleep(LOOK);
    }
    if high_first {
        group.write("memory.max", target)?;
        group.write("memory.high", "max")?;
    }
    Ok(Some(start.elapsed().as_secs_f64()))
}

fn windows(subject: &mut dyn Subject) -> Result<f64> {
    let start = Instant::now();
    (0..WINDOWS).try_for_each(|_| subject.work())?;
    Ok(start.elapsed().as_secs_f64())
}

fn swapped_pages() -> u64 {
    Group("/proc".into()).field("vmstat", "pswpout")
}
