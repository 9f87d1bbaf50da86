//! The ways in which a container's limit is lowered.

use crate::base::cgroup_v2::Group;
use std::time::{Duration, Instant};

/// How long the one who lowers a limit waits until what is charged has fallen below it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// How long what is charged stays at most at the limit before `memory.max` is written. A release under way falls by some
/// 2 MiB a millisecond; written in the midst of it, `memory.max` leaves the next request what little is free just then, and
/// the kernel kills for it (19 of 50 rounds, measured without this wait).
const SETTLED: Duration = Duration::from_millis(10);

/// How the limit is lowered.
enum Way {
    /// `memory.max` is written. The kernel reclaims within the call, and kills if it finds too little.
    AtOnce,
    /// `memory.high` is written, which kills none; `memory.max` once what is charged has been below it for [`SETTLED`].
    HighFirst,
}

/// One case.
pub struct Case {
    /// As in the table.
    pub name: &'static str,
    /// Time between the last free of the peak and the new limit.
    pub idle: Duration,
    /// Whether the container may swap.
    pub swap: bool,
    way: Way,
}

/// All of them.
pub const CASES: [Case; 3] = [
    Case { name: "max, after 10 s", idle: Duration::from_secs(10), swap: false, way: Way::AtOnce },
    Case { name: "max, after 10 s, with swap", idle: Duration::from_secs(10), swap: true, way: Way::AtOnce },
    Case { name: "high then max, after 0.1 s", idle: Duration::from_millis(100), swap: false, way: Way::HighFirst },
];

impl Case {
    /// Lowers the limit to `target`. The seconds until no more is charged and `memory.max` is set; none if that did not
    /// come about.
    pub fn lower(&self, group: &Group, target: u64) -> Result<Option<f64>, String> {
        let start = Instant::now();
        let (first, settled) = match self.way {
            Way::AtOnce => ("memory.max", Duration::ZERO),
            Way::HighFirst => ("memory.high", SETTLED),
        };
        group.write(first, &target.to_string())?;
        // When more was charged for the last time; the start, if it never was.
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
            std::thread::sleep(LOOK);
        }
        if matches!(self.way, Way::HighFirst) {
            group.write("memory.max", &target.to_string())?;
            group.write("memory.high", "max")?;
        }
        Ok(Some(start.elapsed().as_secs_f64()))
    }
}
