//! `weir run`: a program with Weir as its malloc, watched from outside.

mod profiles;
mod sampler;
mod summary;
mod trace;
mod verdict;
mod watch;

use crate::base::descriptors::{TOO_MANY, is_too_many};
use crate::base::failure::Failure;
use crate::base::sink::{self, ResultFile};
use crate::base::{json, output};
use crate::command_line::RunOptions;
use crate::figures::run::{Summary, Totals};
use crate::library;
use crate::processes::maps;
use crate::processes::program_file;
use crate::processes::reap::{self, ProgramEnd, ReapedProgram};
use crate::processes::signals;
use crate::processes::stats_file::StatsFile;
use crate::processes::tree::ProcessTree;
use crate::report;
use procfs::process::Process;
use profiles::Profiles;
use sampler::Sampler;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use trace::Trace;
use weir_core::telemetry::tunables::TABLE;

/// Variables that the tools read beside the settings.
const OTHER_VARIABLES: [&str; 5] =
    ["WEIR_LIB", "WEIR_STATS", profiles::VARIABLE, "WEIR_PEERS_DIR", "WEIR_GUEST_KERNEL"];

/// Samples from which on they tell of a program too small for the kernel's own count.
const ENOUGH_SAMPLES: u32 = 3;

/// Runs the program; gives the status to exit with.
pub fn run(options: &RunOptions) -> Result<i32, Failure> {
    let library = library::find()?;
    let stats = StatsFile::create().map_err(|e| Failure::of_weir(format!("no memory for statistics: {e}")))?;
    // Opened first: an unwritable file should be known before an hour's run, not after.
    let json_file = options.json.as_deref().map(|path| ResultFile::open("--json", path)).transpose()?;
    let page_file = options.report.as_deref().map(|path| ResultFile::open("--report", path)).transpose()?;
    let mut trace = options.trace.as_deref().map(Trace::open).transpose()?;
    let results = [("--json", &options.json), ("--report", &options.report), ("--trace", &options.trace)];
    sink::are_apart(&results.map(|(option, path)| (option, path.as_deref())))?;
    let profiles = options.profile.as_deref().map(Profiles::named).transpose()?;
    warn_of_settings();
    warn_of_obstacles(Path::new(&options.program[0]));
    warn_of_silence(&stats);
    let mut caught = signals::catch().map_err(|e| Failure::of_weir(format!("cannot catch signals: {e}")))?;
    let mut sampler = Sampler::new(ProcessTree::new(), options.limit, &library);
    reap::adopt_orphans();
    let started = Instant::now();
    let own_peak = own_peak_bytes();
    let program = spawn(options, &library, &stats, profiles.as_ref())?;
    if let Some(trace) = &mut trace {
        trace.begin();
    }
    let ended = watch::watch(options, program, &stats, &mut sampler, &mut caught, trace.as_mut());
    let mut results = Vec::new();
    results.extend(trace.map(|mut trace| {
        trace.follow(&stats);
        trace.finish()
    }));
    let curve = std::mem::take(&mut sampler.curve);
    let summary = summarise(options, &stats, sampler, ended, own_peak, started);
    if !options.quiet {
        let text = if options.verbose { summary.to_string() } else { summary.brief() };
        output::say(format_args!("{}", output::printable(&text)));
    }
    if let Some(profiles) = profiles.filter(|_| !options.quiet) {
        output::say(format_args!("{}", profiles.written()));
    }
    if options.reclaim {
        output::say(format_args!("{}", summary.totals.reclaim.table(summary.elapsed_seconds)));
    }
    results.extend(json_file.map(|sink| json::pretty(&summary).and_then(|text| sink.write(&text))));
    results.extend(page_file.map(|sink| sink.write(report::of_run(summary, curve))));
    // One that cannot be written costs neither the others nor the program's end.
    let failures: Vec<Failure> = results.into_iter().filter_map(Result::err).collect();
    failures.iter().for_each(|failure| output::say(format_args!("{}", output::error_line(failure))));
    Ok(match ended.end {
        // A success is to have all results.
        ProgramEnd::Exited(0) => failures.first().map_or(0, |failure| failure.status),
        ProgramEnd::Exited(status) => status,
        ProgramEnd::Killed(signal) => {
            signals::die_of(signal);
            128 + signal
        }
    })
}

fn summarise(
    options: &RunOptions,
    stats: &StatsFile,
    mut sampler: Sampler,
    ended: ReapedProgram,
    own_peak: u64,
    started: Instant,
) -> Summary {
    // The kernel counts what this process had at `fork` into its child's peak. A peak below
    // that is known only from a sample, if the program ran long enough for one.
    let counted = Some(ended.peak).filter(|&peak| peak > own_peak);
    // A few samples may all be of the time before the program was itself.
    let is_sampled = sampler.samples >= ENOUGH_SAMPLES || sampler.last.as_ref().is_some_and(|sum| sum.processes > 1);
    if counted.is_none() && !is_sampled {
        (sampler.peak, sampler.last) = (None, None);
    }
    let peak = sampler.peak.as_ref().map(|peak| peak.bytes);
    let is_seen = verdict::is_seen(counted, sampler.most_high.max(peak.unwrap_or(0)));
    // The last sample tells of the end, unless the program peaked after it. A child that was waited for before may have
    // been what peaked: then it is not known.
    let last = sampler.last.as_ref().filter(|_| is_seen || sampler.has_waited);
    let mut summary = Summary {
        program: options.program[0].to_string_lossy().into_owned(),
        exit_status: if let ProgramEnd::Exited(status) = ended.end { Some(status) } else { None },
        signal: if let ProgramEnd::Killed(signal) = ended.end { Some(signal) } else { None },
        elapsed_seconds: started.elapsed().as_secs_f64(),
        peak_resident_bytes: counted.map(|bytes| bytes.saturating_sub(sampler.most_shared)).max(peak),
        peak_resident_bound_bytes: ended.peak,
        peak: sampler.peak.unwrap_or_default(),
        last_resident_bytes: last.map(|last| last.bytes),
        last_processes: last.map_or(0, |last| last.processes),
        last_heap: last.and_then(|last| last.heap),
        left_running: sampler.tree.alive(),
        limit: options.limit.map(|limit| sampler.excess.of(limit, counted, ended.peak)),
        without_weir: sampler.without.named,
        more_without_weir: sampler.without.more,
        uncounted: sampler.uncounted.named,
        more_uncounted: sampler.uncounted.more,
        no_counters: stats.obstacle(),
        no_samples: sampler.obstacle,
        totals: Totals::of(stats),
        verdict: String::new(),
    };
    summary.verdict = verdict::of(&summary, is_seen);
    summary
}

/// Warns of variables that begin with `WEIR_` and are no setting: a misspelt one has no effect.
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
    if let Some(why) = program_file::resolve(program).and_then(|path| program_file::preload_obstacle(&path)) {
        output::say(format_args!(
            "weir: warning: {why}: its own malloc cannot be replaced by preloading, so it runs without Weir\n"
        ));
    }
}

fn warn_of_silence(stats: &StatsFile) {
    if let Some(why) = stats.obstacle() {
        output::say(format_args!("weir: warning: no statistics of the program's processes: {why}\n"));
    }
}

/// Largest resident set of this process so far. What `getrusage` says is the other bound: it may be that of the process which
/// executed this one, and larger.
fn own_peak_bytes() -> u64 {
    let of_this = || maps::status(&Process::myself().ok()?).ok()?.vmhwm;
    let peak = of_this().unwrap_or_else(|| {
        // SAFETY: the kernel fills a value of its type.
        unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage.ru_maxrss as u64
        }
    });
    peak * 1024
}

fn spawn(options: &RunOptions, library: &Path, stats: &StatsFile, profiles: Option<&Profiles>) -> Result<i32, Failure> {
    let (name, args) = (&options.program[0], &options.program[1..]);
    let mut command = Command::new(name);
    command.args(args);
    match stats.path() {
        Some(path) => command.env("WEIR_STATS", path),
        None => command.env_remove("WEIR_STATS"),
    };
    command.env("LD_PRELOAD", library::preload(library, std::env::var_os("LD_PRELOAD").as_deref()));
    if let Some(profiles) = profiles {
        command.env(profiles::VARIABLE, profiles.name());
    }
    if let Some(limit) = options.limit {
        command.env("WEIR_LIMIT", limit.to_string());
    }
    if let Some(limit) = options.hard_limit {
        command.env("WEIR_HARD_LIMIT", limit.to_string());
    }
    // SAFETY: reading the signal mask, setting it again in the child and ignoring signals there are async-signal-safe. The set
    // is a value of its type.
    unsafe {
        let mut mask = std::mem::zeroed::<libc::sigset_t>();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        // The standard library unblocks all signals in children, and resets one; the program gets the mask and the ignored signals
        // that `weir` was started with.
        command.pre_exec(move || {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            signals::ignore_as_begun();
            Ok(())
        });
    }
    let child = command.spawn().map_err(|e| spawn_failure(Path::new(name), &e))?;
    Ok(child.id() as i32)
}

fn spawn_failure(program: &Path, error: &std::io::Error) -> Failure {
    let name = program.display();
    match error.kind() {
        ErrorKind::NotFound if program_file::resolve(program).is_none() => {
            Failure::not_found(format!("{name}: program not found: check its name, or give a path with a slash"))
        }
        ErrorKind::NotFound => {
            Failure::not_found(format!("{name}: its interpreter is not found: check its first line or its loader"))
        }
        // Not EPERM, by which the kernel refuses rights that the program has a claim to.
        ErrorKind::PermissionDenied if error.raw_os_error() == Some(libc::EACCES) => {
            Failure::not_executable(format!("{name}: not executable: check its mode, and that it is an ordinary file"))
        }
        _ if is_too_many(error) => Failure::of_weir(format!("{name}: cannot be started: {TOO_MANY}")),
        _ if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)) => Failure::of_weir(format!(
            "{name}: no process can be started: {error}: see `ulimit -u`, the limits of the cgroup and free memory"
        )),
        _ => Failure::not_executable(format!("{name}: cannot be executed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::failure::WEIR_FAILED;

    #[test]
    fn each_refusal_of_the_kernel_has_its_own_words() {
        let failure = |errno| spawn_failure(Path::new("/bin/sh"), &std::io::Error::from_raw_os_error(errno));
        let said = |errno| failure(errno).to_string();
        assert!(said(libc::EACCES).contains("check its mode"), "{}", said(libc::EACCES));
        assert!(said(libc::EPERM).contains("cannot be executed: Operation not permitted"), "{}", said(libc::EPERM));
        // The program is not to blame.
        let own = [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE].map(|errno| failure(errno).status);
        assert_eq!(own, [WEIR_FAILED; 4]);
        assert!(said(libc::EAGAIN).contains("no process can be started"), "{}", said(libc::EAGAIN));
    }
}
