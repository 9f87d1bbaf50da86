//! The first process of a guest that has cgroup v2: a container that has peaked and idles gets a limit little above what
//! it has in use, many times.
//!
//! Each time a program is started anew. It loads its data and idles, and what its group is charged then is "in use". It
//! serves a fixed number of requests, peaks, frees what the peak needed, and idles; the limit is lowered; it serves as
//! many requests again. One line of JSON a round and case.

mod cases;
mod lines;
mod redis;
mod subject;

use crate::base::args::{number, read_words};
use crate::base::cgroup_v2::{Group, mount_hierarchy};
use cases::{CASES, Case};
use lines::Lines;
use redis::Redis;
use std::path::Path;
use std::time::Duration;
use subject::{Data, Subject};

const MIB: u64 = 1 << 20;
/// The container's limit before, in multiples of its data: above every peak.
const FIRST_LIMIT: u64 = 8;
/// Until what the start and the load left idle has come back, where an allocator does that by itself.
const SETTLE: Duration = Duration::from_secs(10);
/// What a round's requests are served in: the first of these follows the lowering at once.
const WINDOWS: u32 = 3;
/// The disk that the harness gives the guest for swap.
const SWAP: &std::ffi::CStr = c"/dev/vda";

/// A program in its group.
struct Container {
    group: Group,
    subject: Box<dyn Subject>,
    in_use: u64,
}

/// `live-shrink program=NAME rounds=N mib=N`
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut program, mut rounds, mut mib) = (String::new(), 1, 32);
    read_words(args, "program, rounds, mib", |key, value| {
        match key {
            "program" => program = value.into(),
            "rounds" => rounds = number(value)?,
            "mib" => mib = number(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    mount_hierarchy()?;
    swap_on()?;
    let data = Data { bytes: mib * MIB };
    for round in 0..rounds {
        for case in &CASES {
            let mut container = Container::start(&program, data)?;
            let outcome = container.lower(case);
            println!("{}", outcome.line(&program, case, round, container.in_use));
            container.end()?;
        }
    }
    Ok(())
}

fn start(program: &str, group: &Group, data: Data) -> Result<Box<dyn Subject>, String> {
    match program {
        "redis" => Ok(Box::new(Redis::start(group, data)?)),
        "python" => Ok(Box::new(Lines::python(group, data)?)),
        "cache" => Ok(Box::new(Lines::cache(group, data)?)),
        _ => Err(format!("no program is called '{program}'")),
    }
}

fn swap_on() -> Result<(), String> {
    if !Path::new("/dev/vda").exists() {
        return Err("the guest has no disk to swap to".into());
    }
    // SAFETY: a C string; the kernel checks the rest.
    if unsafe { libc::swapon(SWAP.as_ptr(), 0) } != 0 {
        return Err(format!("cannot swap: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}

/// What one lowering came to.
#[derive(Default)]
struct Outcome {
    held: u64,
    peak: u64,
    target: u64,
    /// Seconds until the limit held; none where it never did.
    done: Option<f64>,
    kills: u64,
    swapped_pages: u64,
    /// Seconds of the requests before and after.
    before: f64,
    after: Option<f64>,
    why: String,
}

impl Container {
    fn start(program: &str, data: Data) -> Result<Container, String> {
        let group = Group::make(program)?;
        group.write("memory.max", &(data.bytes * FIRST_LIMIT).to_string())?;
        let mut subject = start(program, &group, data)?;
        subject.load()?;
        std::thread::sleep(SETTLE);
        let in_use = group.number("memory.current")?;
        Ok(Container { group, subject, in_use })
    }

    fn lower(&mut self, case: &Case) -> Outcome {
        let mut outcome = Outcome { target: self.in_use + self.in_use / 5, ..Outcome::default() };
        let swapped = swapped_pages();
        if let Err(why) = self.steps(case, &mut outcome) {
            outcome.why = why;
        }
        outcome.kills = self.group.events().oom_kill;
        outcome.swapped_pages = swapped_pages() - swapped;
        outcome
    }

    fn steps(&mut self, case: &Case, outcome: &mut Outcome) -> Result<(), String> {
        // The first requests fault in what the start left out.
        self.subject.work()?;
        outcome.before = self.windows()?;
        self.subject.peak()?;
        std::thread::sleep(case.idle);
        outcome.held = self.group.number("memory.current")?;
        outcome.peak = self.group.number("memory.peak")?;
        self.group.write("memory.swap.max", if case.swap { "max" } else { "0" })?;
        outcome.done = case.lower(&self.group, outcome.target)?;
        if outcome.done.is_some() {
            outcome.after = Some(self.windows()?);
        }
        Ok(())
    }

    fn windows(&mut self) -> Result<f64, String> {
        (0..WINDOWS).map(|_| self.subject.work()).sum()
    }

    /// Ends the program, then its group.
    fn end(self) -> Result<(), String> {
        drop(self.subject);
        self.group.remove()
    }
}

impl Outcome {
    fn line(&self, program: &str, case: &Case, round: u64, in_use: u64) -> String {
        let number = |value: Option<f64>| value.map_or("null".into(), |value| format!("{value:.6}"));
        format!(
            "{{\"program\":\"{program}\",\"case\":\"{}\",\"round\":{round},\"in_use\":{in_use},\"peak\":{},\"held\":{},\
             \"target\":{},\"done_s\":{},\"kills\":{},\"swapped_pages\":{},\"before_s\":{:.6},\"after_s\":{},\
             \"why\":\"{}\"}}",
            case.name,
            self.peak,
            self.held,
            self.target,
            number(self.done),
            self.kills,
            self.swapped_pages,
            self.before,
            number(self.after),
            self.why.replace(['"', '\\', '\n'], " ")
        )
    }
}

/// Pages that the guest has written to swap since its boot.
fn swapped_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("pswpout ")?.parse().ok());
    count.unwrap_or(0)
}
