//! `weir doctor`: what works on this machine, and whether a running process has Weir.

mod check;
mod machine;
pub mod other_allocator;
mod process;
pub mod pymalloc;

use crate::base::failure::Failure;
use crate::base::json;
use crate::base::output::{self, printable_line};
use check::{Check, State};

/// Looks at everything and prints it. Status 1 if Weir cannot work here, or does not work in the process.
pub fn doctor(pid: Option<i32>, is_json: bool) -> Result<i32, Failure> {
    let checks = pid.map_or_else(|| Ok(machine::checks()), process::checks)?;
    if is_json {
        output::print(&json::pretty(&checks)?)?;
    } else {
        output::print(&table(&checks))?;
    }
    Ok(i32::from(checks.iter().any(|c| c.state == State::Fatal)))
}

/// What was found that is longer, as a reason, puts what follows out of its column.
const WIDEST: usize = 60;

fn table(checks: &[Check]) -> String {
    let width = |pick: fn(&Check) -> usize| checks.iter().map(pick).max().unwrap_or(0);
    let (names, founds) = (width(|c| c.name.chars().count()), width(|c| c.found.chars().count()).min(WIDEST));
    let row = |c: &Check| {
        let state = match c.state {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Fatal => "FATAL",
        };
        format!("{:<names$}  {state:<7}  {:<founds$}  {}\n", c.name, printable_line(&c.found), c.effect)
    };
    checks.iter().map(row).collect()
}
