//! `weir run`: a program with Weir as its malloc, watched from outside.

use crate::command_line::RunOptions;
use crate::failure::Failure;
use crate::output;
use crate::signals;
use crate::stats_file::StatsFile;
use crate::summary::{self, Summary, Totals};
use crate::trace::{self, Trace};
use crate::units::bytes;
use crate::{elf, library};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use weir::tunables::TABLE;

/// Between two looks at the program's resident set.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// What the tools read from the environment beside the settings.
const OTHER_VARIABLES: [&str; 4] = ["WEIR_LIB", "WEIR_STATS", "WEIR_PEERS_DIR", "WEIR_GUEST_KERNEL"];

/// How the program ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Exited(i32),
    Killed(i32),
}

/// What was seen of the resident set while the program ran.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    last: Option<u64>,
    peak: Option<u64>,
}

/// Runs the program; gives the status to exit with.
pub fn run(options: &RunOptions) -> Result<i32, Failure> {
    let library = library::find()?;
    let stats = StatsFile::create()?;
    // Opened first: an unwritable file should be known before an hour's run, not after.
    let json = options.json.as_deref().map(open_json).transpose()?;
    let mut trace = options.trace.as_deref().map(Trace::create).transpose()?;
    warn_of_settings();
    warn_of_obstacles(Path::new(&options.program[0]));
    let mut caught = signals::catch().map_err(|e| Failure::own(format!("cannot catch signals: {e}")))?;
    let started = Instant::now();
    let own_peak = own_peak_bytes();
    let program = spawn(options, &library, &stats)?;
    let (samples, (end, peak)) = watch(options, program, &stats, started, &mut caught, trace.as_mut());
    if let Some(mut trace) = trace {
        trace.follow(&stats);
        trace.finish()?;
    }
    let summary = Summary {
        program: options.program[0].to_string_lossy().into_owned(),
        exit_status: if let End::Exited(status) = end { Some(status) } else { None },
        signal: if let End::Killed(signal) = end { Some(signal) } else { None },
        elapsed_seconds: started.elapsed().as_secs_f64(),
        // The kernel counts what this process had at `fork` into its child's peak. Below that it says nothing, and
        // only a sample can, if the program lived long enough for one.
        peak_resident_bytes: if peak > own_peak { Some(peak) } else { samples.peak },
        peak_resident_bound_bytes: peak,
        last_resident_bytes: samples.last,
        limit_bytes: options.limit,
        totals: Totals::of(&stats),
    };
    drop(stats);
    if !options.quiet {
        output::say(format_args!("{summary}"));
    }
    if let (Some(mut file), Some(path)) = (json, options.json.as_deref()) {
        write_json(&mut file, &summary)
            .map_err(|e| Failure::own(format!("cannot write {}: {e}: is its disk full?", path.display())))?;
    }
    Ok(match end {
        End::Exited(status) => status,
        End::Killed(signal) => {
            signals::die_of(signal);
            128 + signal
        }
    })
}

/// Opens the file without emptying it: it is to lose nothing if the program cannot be run.
fn open_json(path: &Path) -> Result<File, Failure> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|e| Failure::own(format!("cannot write {}: {e}: give --json a file that can be made", path.display())))
}

fn write_json(file: &mut File, summary: &Summary) -> std::io::Result<()> {
    // Pipes and devices have no length, and need none.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    serde_json::to_writer_pretty(&mut *file, summary)?;
    file.write_all(b"\n")
}

/// Names what begins with `WEIR_` and is no setting: a misspelt one would have no effect, and nobody would know.
fn warn_of_settings() {
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        let Some(setting) = name.strip_prefix("WEIR_") else { continue };
        let known = TABLE.iter().any(|tunable| tunable.name.eq_ignore_ascii_case(setting));
        if !known && !OTHER_VARIABLES.contains(&name.as_str()) {
            output::say(format_args!("weir: warning: {name} is no setting, and ignored: see `weir settings`\n"));
        }
    }
}

fn warn_of_obstacles(program: &Path) {
    if let Some(why) = elf::resolve(program).and_then(|path| elf::preload_obstacle(&path)) {
        output::say(format_args!(
            "weir: warning: {why}: its own malloc cannot be replaced by preloading, so it runs without Weir\n"
        ));
    }
}

/// Largest resident set of this process so far.
fn own_peak_bytes() -> u64 {
    // SAFETY: the kernel fills a value of its type.
    unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_maxrss as u64 * 1024
    }
}

fn spawn(options: &RunOptions, library: &Path, stats: &StatsFile) -> Result<i32, Failure> {
    let (name, args) = (&options.program[0], &options.program[1..]);
    let mut command = Command::new(name);
    command.args(args).env("WEIR_STATS", stats.path());
    command.env("LD_PRELOAD", library::preload(library, std::env::var_os("LD_PRELOAD").as_deref()));
    if let Some(limit) = options.limit {
        command.env("WEIR_LIMIT", limit.to_string());
    }
    // SAFETY: reading the signal mask and setting it again in the child are both async-signal-safe, and the set is
    // a value of its type.
    unsafe {
        let mut mask = std::mem::zeroed::<libc::sigset_t>();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        // The standard library unblocks all signals in children; whoever blocked some meant the program.
        command.pre_exec(move || {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            Ok(())
        });
    }
    let child = command.spawn().map_err(|e| spawn_failure(Path::new(name), &e))?;
    Ok(child.id() as i32)
}

fn spawn_failure(program: &Path, error: &std::io::Error) -> Failure {
    let name = program.display();
    match error.kind() {
        ErrorKind::NotFound if elf::resolve(program).is_none() => {
            Failure::not_found(format!("{name}: program not found: check its name, or give a path with a slash"))
        }
        ErrorKind::NotFound => {
            Failure::not_found(format!("{name}: its interpreter is not found: check its first line or its loader"))
        }
        ErrorKind::PermissionDenied => {
            Failure::not_executable(format!("{name}: not executable: check its mode, and that it is no directory"))
        }
        _ => Failure::not_executable(format!("{name}: cannot be executed: {error}")),
    }
}

/// Samples and reports on a second thread while this one forwards signals and waits for the end.
fn watch(
    options: &RunOptions,
    program: i32,
    stats: &StatsFile,
    started: Instant,
    caught: &mut signals::Caught,
    trace: Option<&mut Trace>,
) -> (Samples, (End, u64)) {
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let sampler = scope.spawn(move || sample(program, options.stats_interval, stats, started, &is_over, trace));
        let ended = wait(program, caught);
        drop(over);
        (sampler.join().unwrap_or_default(), ended)
    })
}

fn sample(
    program: i32,
    interval: Option<Duration>,
    stats: &StatsFile,
    started: Instant,
    is_over: &Receiver<()>,
    mut trace: Option<&mut Trace>,
) -> Samples {
    let mut samples = Samples::default();
    let mut next_line = interval.map(|i| started + i);
    // At first it is still this program, about to execute the other.
    while !is_over_after(SAMPLE_INTERVAL, is_over, stats, trace.as_deref_mut()) {
        let resident = resident_bytes(program);
        if let Some(resident) = resident {
            samples.last = Some(resident);
            samples.peak = samples.peak.max(Some(peak_bytes(program).unwrap_or(resident)));
        }
        if let (Some(at), Some(interval)) = (next_line, interval)
            && Instant::now() >= at
        {
            print_line(stats, started, resident);
            next_line = Some((at + interval).max(Instant::now()));
        }
    }
    samples
}

/// Waits, following the trace if there is one; whether the program has ended.
fn is_over_after(time: Duration, is_over: &Receiver<()>, stats: &StatsFile, mut trace: Option<&mut Trace>) -> bool {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let step = if trace.is_some() { left.min(trace::LOOK) } else { left };
        if is_over.recv_timeout(step) != Err(RecvTimeoutError::Timeout) {
            return true;
        }
        if let Some(trace) = trace.as_deref_mut() {
            trace.follow(stats);
        }
        if Instant::now() >= end {
            return false;
        }
    }
}

fn print_line(stats: &StatsFile, started: Instant, resident: Option<u64>) {
    let t = Totals::of(stats);
    let (used, idle) = summary::now(stats);
    let g = &t.given_back_bytes;
    output::say(format_args!(
        "weir: {:.1} s: resident {}, used {}, idle {}, given back {} idle + {} pressure + {} limit, {} pressure events\n",
        started.elapsed().as_secs_f64(),
        resident.map_or("-".into(), bytes),
        bytes(used),
        bytes(idle),
        bytes(g.idle),
        bytes(g.pressure),
        bytes(g.limit),
        t.pressure_events,
    ));
}

fn resident_bytes(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    // A process that has ended but was not waited for has no memory, and says 0.
    (pages > 0).then_some(pages * 4096)
}

fn peak_bytes(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Forwards signals until the program ends; gives how, and the peak of its resident set.
fn wait(program: i32, caught: &mut signals::Caught) -> (End, u64) {
    loop {
        // First without waiting: it may have ended before its SIGCHLD could be caught.
        if let Some(ended) = reap(program) {
            return ended;
        }
        for origin in caught.wait() {
            if origin.signal != libc::SIGCHLD {
                signals::forward(&origin, program);
            }
        }
    }
}

/// Takes the program's changes of state; its end, if that is among them.
fn reap(program: i32) -> Option<(End, u64)> {
    let mut status = 0;
    // SAFETY: the kernel fills a status and a usage record of their types.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        let flags = libc::WNOHANG | libc::WUNTRACED;
        if libc::wait4(program, &raw mut status, flags, &raw mut usage) != program {
            return None;
        }
        usage
    };
    let peak = usage.ru_maxrss as u64 * 1024;
    if libc::WIFEXITED(status) {
        return Some((End::Exited(libc::WEXITSTATUS(status)), peak));
    }
    if libc::WIFSIGNALED(status) {
        return Some((End::Killed(libc::WTERMSIG(status)), peak));
    }
    if libc::WIFSTOPPED(status) {
        signals::stop_too();
    }
    None
}
