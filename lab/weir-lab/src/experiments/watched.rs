//! `watched`: what a busy process pays for being looked at ten times a second.
//!
//! One process does the same work again and again, on Weir; `weir stat --watch` looks at it all the time, or is stopped
//! by a signal. Its processor time is compared in pairs of phases, the looked-at one first in every other pair.

use crate::harness::args::RunArgs;
use crate::harness::child::{self, KilledOnDrop};
use crate::harness::phases::PhasedProgram;
use crate::harness::statistics::{Paired, Sample};
use crate::harness::tables::{Table, short, spread};
use crate::peers::{Allocator, WEIR};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Ten looks a second.
const INTERVAL: &str = "--watch=100ms";
/// Of a phase: half a second of work, and so five looks.
const STEPS: u64 = 25_000_000;
/// Time for the watcher to begin its looks.
const BEGINNING: Duration = Duration::from_millis(500);

/// Runs it and prints its table.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let weir = allocators.iter().find(|a| a.name == WEIR).ok_or("Weir is not here: cargo build --release")?;
    let beside = weir.preload.as_deref().and_then(Path::parent).map(|folder| folder.join("weir"));
    let weir_command =
        beside.filter(|file| file.exists()).ok_or("weir is not beside libweir.so: cargo build --release")?;
    let steps = if args.quick { STEPS / 100 } else { STEPS };
    let mut start = child::command(child::load_program()?, weir);
    start.args(["watched", &format!("steps={steps}")]);
    let mut program = PhasedProgram::start("the busy program", start, None)?;
    let watcher = Watcher::start(&weir_command, program.pid())?;
    let (mut alone, mut looked_at, mut ratios) = (Sample::default(), Sample::default(), Sample::default());
    for pair in 0..args.rounds {
        let mut ms = [0.0; 2];
        for is_looked_at in [pair % 2 == 0, pair % 2 == 1] {
            watcher.set(is_looked_at)?;
            program.next_phase()?;
            ms[usize::from(is_looked_at)] = program.number("cpu_ns")? / 1e6;
        }
        alone.push(ms[0]);
        looked_at.push(ms[1]);
        ratios.push(ms[1] / ms[0]);
    }
    let mut table = Table::new(["processor time of a phase, ms", "not looked at", "ten times a second"]);
    table.row([format!("{} pairs", args.rounds), spread(&alone, short), spread(&looked_at, short)]);
    let paired = Paired::of(&ratios);
    let (percent, interval) = ((paired.mean - 1.0) * 100.0, paired.interval * paired.mean * 100.0);
    println!("{table}\nDifference of the pairs: {percent:+.3} % ± {interval:.3} % (geometric mean, t-test at 95 %).");
    Ok(
        json!({ "alone_ms": alone.json(), "looked_at_ms": looked_at.json(), "ratio": paired.mean, "interval": paired.interval }),
    )
}

/// `weir stat --watch`.
struct Watcher(KilledOnDrop);

impl Watcher {
    fn start(weir: &Path, pid: u32) -> Result<Watcher, String> {
        let mut start = Command::new(weir);
        start.args(["stat", "--json", INTERVAL, &pid.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut watcher = KilledOnDrop::start(start, "weir stat")?;
        std::thread::sleep(BEGINNING);
        match watcher.0.try_wait() {
            Ok(None) => Ok(Watcher(watcher)),
            ended => Err(format!("weir stat ended: {ended:?}")),
        }
    }

    /// Lets it look, or stops it.
    fn set(&self, looks: bool) -> Result<(), String> {
        let signal = if looks { libc::SIGCONT } else { libc::SIGSTOP };
        // SAFETY: a signal to a child that has not been waited for.
        if unsafe { libc::kill(self.0.0.id() as libc::pid_t, signal) } == 0 {
            Ok(())
        } else {
            Err(format!("weir stat is gone: {}", std::io::Error::last_os_error()))
        }
    }
}
