//! The first process of a guest that has cgroup v2: an idle heap and a process that needs memory, in one group with a
//! limit.
//!
//! For each case A allocates and frees, and keeps what it freed, as no calm window ends meanwhile. Then B, in the same
//! group and directly from the kernel, needs more than is left below the limit. Without swap only A can release it, when
//! the group's files report the pressure. At `memory.max` the kernel kills at once if it can reclaim nothing, too early
//! for any report: there A has become calm by itself before. One line of JSON a case.

use crate::base::guest::{Started, environment, group};
use crate::base::prelude::*;
use std::ffi::CString;
use std::process::{Child, Command, Stdio};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 256 * MIB;
const A: u64 = 150 * MIB;
const B: u64 = 180 * MIB;
const NO_CALM: (&str, &str) = ("WEIR_IDLE_MS", "3600000");
const PATIENCE: Duration = Duration::from_secs(30);

/// A case: its name, the file of the limit, and whether that is of the group above. Then A's seconds of idleness, and
/// whether A may become calm by itself.
type LimitCase = (&'static str, &'static str, bool, u64, bool);

const CASES: [LimitCase; 4] = [
    ("memory.high", "memory.high", false, 2, false),
    ("memory.high, long idle", "memory.high", false, 15, false),
    ("memory.high of the group above", "memory.high", true, 2, false),
    ("memory.max, at rest", "memory.max", false, 6, true),
];

pub fn main() -> Result<()> {
    for (number, case) in CASES.into_iter().enumerate() {
        println!("{}", run(case, &group(&number.to_string())?)?);
    }
    Ok(())
}

fn run((name, file, above, idle, calm): LimitCase, limited: &Group) -> Result<String> {
    let below = |name| -> Result<Group> {
        if !above {
            return Ok(Group(limited.0.clone()));
        }
        limited.write("cgroup.subtree_control", "+memory")?;
        Group::make(&limited.0, name)
    };
    let (group_of_a, group_of_b) = (below("a")?, below("b")?);
    limited.write(file, LIMIT)?;
    let mut command = Command::new("/init");
    command.args(["neighbour", "keep=50", "mix=even-counts", &format!("bytes={A}")]);
    command.envs(environment()).envs((!calm).then_some(NO_CALM)).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut a = Started::new(&group_of_a, &mut command)?;
    a.hear()?;
    a.tell(b"\n")?;
    a.hear()?;
    std::thread::sleep(Duration::from_secs(idle));
    let statm = CString::new(format!("/proc/{}/statm", a.0.id()))?;
    let (before, began) = (resident(&statm), Instant::now());
    let mut command = Command::new("/init");
    command.args(["hog", &format!("bytes={B}"), "times=1"]).stdout(Stdio::piped());
    let done = is_done(&mut Started::new(&group_of_b, &mut command)?.0);
    let (took, after) = (began.elapsed().as_millis(), resident(&statm));
    let lives = a.0.try_wait().is_ok_and(|status| status.is_none());
    drop(a);
    let [high, max, kills] = ["high", "max", "oom_kill"].map(|name| limited.field("memory.events", name));
    Ok(format!(
        "{{\"case\":\"{name}\",\"b_ms\":{took},\"b_done\":{},\"a_lives\":{},\"a_before\":{before},\"a_after\":{after},\
         \"events\":{},\"kills\":{kills}}}",
        u8::from(done),
        u8::from(lives),
        high + max
    ))
}

/// Whether the child comes to a good end in its time.
fn is_done(child: &mut Child) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Ok(Some(status)) = child.try_wait() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}
