//! The first process of a guest that has cgroup v2: an idle heap and a process that needs memory, in one group with a
//! limit.
//!
//! For each case A allocates and frees, and keeps what it freed, as no calm window ends meanwhile. Then B, in the same
//! group and directly from the kernel, needs more than is left below the limit. Without swap only A can release it, when
//! the group's files report the pressure. At `memory.max` the kernel kills at once if it can reclaim nothing, too early
//! for any report: there A has become calm by itself before. One line of JSON a case.

use crate::base::cgroup_v2::{Group, mount_hierarchy};
use crate::base::process::resident_in_statm;
use crate::base::userland::environment;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The limit, what A allocates, and what B does.
const LIMIT: u64 = 256 * MIB;
const A: u64 = 150 * MIB;
const B: u64 = 180 * MIB;
/// An hour: no calm window ends meanwhile.
const NO_CALM: (&str, &str) = ("WEIR_IDLE_MS", "3600000");
const PATIENCE: Duration = Duration::from_secs(30);

/// One case: what limits, whether it is A's own group or one above, for how long A has been idle, and whether calm
/// windows end meanwhile.
struct LimitCase {
    name: &'static str,
    file: &'static str,
    above: bool,
    idle: Duration,
    calm: bool,
}

const CASES: [LimitCase; 4] = [
    LimitCase { name: "memory.high", file: "memory.high", above: false, idle: Duration::from_secs(2), calm: false },
    LimitCase {
        name: "memory.high, long idle",
        file: "memory.high",
        above: false,
        idle: Duration::from_secs(15),
        calm: false,
    },
    LimitCase {
        name: "memory.high of the group above",
        file: "memory.high",
        above: true,
        idle: Duration::from_secs(2),
        calm: false,
    },
    LimitCase {
        name: "memory.max, at rest",
        file: "memory.max",
        above: false,
        idle: Duration::from_secs(6),
        calm: true,
    },
];

/// Runs all of them.
pub fn main() -> Result<(), String> {
    mount_hierarchy()?;
    for (number, case) in CASES.iter().enumerate() {
        let line = run(case, &Group::make(&number.to_string())?)?;
        println!("{line}");
    }
    Ok(())
}

fn run(case: &LimitCase, limited: &Group) -> Result<String, String> {
    let below = if case.above {
        limited.allow_memory()?;
        Some((limited.make_child("a")?, limited.make_child("b")?))
    } else {
        None
    };
    let (group_of_a, group_of_b) = below.as_ref().map_or((limited, limited), |(a, b)| (a, b));
    limited.write(case.file, &LIMIT.to_string())?;
    let words = ["neighbour".into(), "keep=50".into(), "mix=even-counts".into(), format!("bytes={A}")];
    let mut command = Command::new("/init");
    command.args(words).envs(environment()).envs((!case.calm).then_some(NO_CALM)).stdin(Stdio::piped());
    let mut a = group_of_a.start(command.stdout(Stdio::piped()))?;
    phase(&mut a)?;
    next(&mut a)?;
    phase(&mut a)?;
    std::thread::sleep(case.idle);
    let before = resident(&a);
    let began = Instant::now();
    let mut b = Command::new("/init");
    b.args(["hog".to_string(), format!("bytes={B}"), "times=1".into()]).stdout(Stdio::piped());
    let mut b = group_of_b.start(&mut b)?;
    let ended = wait(&mut b);
    let took = began.elapsed();
    let after = resident(&a);
    let events = limited.events();
    let survived = a.try_wait().is_ok_and(|status| status.is_none());
    let _ = a.kill();
    let _ = a.wait();
    Ok(format!(
        "{{\"case\":\"{}\",\"idle_s\":{},\"b_ms\":{},\"b_done\":{ended},\"a_lives\":{survived},\"a_before\":{before},\
         \"a_after\":{after},\"high\":{},\"max\":{},\"oom_kill\":{}}}",
        case.name,
        case.idle.as_secs(),
        took.as_millis(),
        events.high,
        events.max,
        events.oom_kill
    ))
}

/// Reads the line that ends a phase.
fn phase(child: &mut Child) -> Result<(), String> {
    let pipe = child.stdout.as_mut().ok_or("no output")?;
    let mut byte = [0];
    while byte[0] != b'\n' {
        if pipe.read(&mut byte).unwrap_or(0) == 0 {
            return Err("the first program ended before its time".into());
        }
    }
    Ok(())
}

fn next(child: &mut Child) -> Result<(), String> {
    let pipe = child.stdin.as_mut().ok_or("no input")?;
    pipe.write_all(b"\n").map_err(|why| format!("the first program is gone: {why}"))
}

/// Whether it ended well, in its time.
fn wait(child: &mut Child) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Ok(Some(status)) = child.try_wait() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// Bytes; 0 of one that is gone.
fn resident(child: &Child) -> u64 {
    let statm = fs::read(format!("/proc/{}/statm", child.id())).unwrap_or_default();
    resident_in_statm(&statm).unwrap_or(0)
}
