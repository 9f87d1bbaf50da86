//! A running process's profile: sampling is switched on if it is off, waited for, read, and switched back.

use super::switch::Switch;
use super::table::{self, Table};
use crate::base::failure::{Failure, Kind};
use crate::base::output;
use crate::base::units::bytes;
use crate::command_line::ProfileOptions;
use crate::inspect::locate;
use crate::inspect::page::Inspected;
use crate::processes::maps;
use crate::processes::signals::{self, Noted};
use crate::profile::data::Profile;
use crate::profile::symbols::mappings::{self, Mapping};
use std::io::IsTerminal;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The mean that sampling is switched on with, bytes: the same as that of gperftools and Go, which cost little with it.
const MEAN_BYTES: u64 = 512 << 10;
/// How long it is waited, if sampling was off or of another mean. A leak of 1 MiB/s has some 60 samples then.
const SECONDS: u32 = 30;
/// How long a process may take from the answer of its control channel to a table with samples on.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks whether the wait is over.
const TICK: Duration = Duration::from_millis(100);
/// Looks between two copies of the table: what there is of a process that ends meanwhile.
const TICKS_A_COPY: u32 = 10;

/// A copy of the process's table and mappings.
struct Copy {
    table: Table,
    mappings: Vec<Mapping>,
}

/// Takes the profile of process `pid`. A signal ends the wait for samples, and before that this process, once sampling is as it
/// was and `clean_up` has been called.
pub fn record(pid: i32, options: &ProfileOptions, clean_up: impl FnOnce()) -> Result<Profile, Failure> {
    let pid = maps::living(pid);
    let ending = Noted::ending().map_err(|error| Failure::of_weir(format!("cannot catch signals: {error}")))?;
    let taken = take(pid, options, &ending);
    if let (Err(_), Some(signal)) = (&taken, ending.signal()) {
        clean_up();
        signals::die_of(signal);
    }
    signals::release();
    taken
}

fn take(pid: i32, options: &ProfileOptions, ending: &Noted) -> Result<Profile, Failure> {
    let (inspected, page) = Inspected::with_page(pid).map_err(|why| why.of(pid))?;
    if locate::library(&inspected.maps).is_none() {
        return Err(Failure::of(
            Kind::Refused,
            format!(
                "process {pid}: Weir is built into the program (`#[global_allocator]`, libweir.a), and call stacks are \
                 known only of what goes through libweir.so: link the program with that, or build it without Weir and \
                 start it by `weir run --profile NAME`"
            ),
        ));
    }
    let subject = subject(pid, &inspected);
    let present = table::read(pid, page.profile.load(Relaxed)).map_err(|why| failed(pid, why))?;
    let has_samples = present.as_ref().is_some_and(|table| table.samples > 0);
    let mean = present.as_ref().map_or(0, |table| table.mean_bytes);
    let wanted = options.bytes.unwrap_or(if mean == 0 { MEAN_BYTES } else { mean });
    let switch = (mean != wanted).then(|| Switch::set(pid, &page, wanted, options.keep_on)).transpose()?;
    let first = if switch.is_some() { begun(pid, wanted, ending)? } else { copy(pid)? };
    // What was sampled before that is of another mean, or there is none.
    let seconds = options.seconds.unwrap_or(if switch.is_some() { SECONDS } else { 0 });
    if seconds == 0 {
        return Ok(whole(first, subject));
    }
    // What sampling found before it was switched on now is of another time: what is live of it has not grown since.
    let began = now_ns();
    let time = Duration::from_secs(seconds.into());
    let (last, waited, has_ended) = wait(pid, time, &first, ending)?;
    drop(switch);
    let mut profile = of(&last, subject);
    profile.stacks = table::since(&first.table, &last.table);
    profile.samples = last.table.samples.saturating_sub(first.table.samples);
    (profile.began_ns, profile.duration_ns, profile.has_growth) = (began, waited.as_nanos() as u64, true);
    (profile.mean_bytes, profile.notes) = (first.table.mean_bytes, [profile.notes, changed(&first, &last)].concat());
    if mean == 0 {
        let before = match has_samples {
            true => "samples were taken before for a part of the time: what they found and lives is in it, and no more",
            false => "no samples were taken before: what was allocated then is not in it",
        };
        profile.notes.push(before.into());
    }
    if has_ended {
        profile.notes.push("the process ended meanwhile: these are its figures of up to a second before".into());
    } else if waited + 2 * TICK * TICKS_A_COPY < time && ending.signal().is_none() {
        profile.notes.push("it could not be read any more after that: what came later is not in it".into());
    }
    Ok(profile)
}

/// A note where the sampling was changed meanwhile.
fn changed(first: &Copy, last: &Copy) -> Vec<String> {
    match (first.table.mean_bytes, last.table.mean_bytes) {
        (before, after) if before == after => Vec::new(),
        (_, 0) => vec!["sampling was switched off meanwhile: what was allocated after that is not in it".into()],
        (before, after) => {
            let [before, after] = [before, after].map(bytes);
            vec![format!("sampling was changed meanwhile, from one each {before} to one each {after}")]
        }
    }
}

/// The profile since sampling began, of a process that samples already.
fn whole(copy: Copy, subject: String) -> Profile {
    let mut profile = of(&copy, subject);
    profile.began_ns = copy.table.began_ns;
    profile.duration_ns = now_ns().saturating_sub(copy.table.began_ns);
    profile.samples = copy.table.samples;
    profile.stacks = copy.table.stacks;
    profile
}

fn of(copy: &Copy, subject: String) -> Profile {
    let mut notes = Vec::new();
    let Table { lost_stacks, lost_blocks, .. } = copy.table;
    if lost_stacks > 0 {
        notes.push(format!(
            "{lost_stacks} samples are not in it: the process has more call stacks than there is room for"
        ));
    }
    if lost_blocks > 0 {
        notes.push(format!(
            "{lost_blocks} samples count as allocated alone: the process has more live blocks than there is room for"
        ));
    }
    Profile { subject, mappings: copy.mappings.clone(), mean_bytes: copy.table.mean_bytes, notes, ..Profile::default() }
}

/// The time of the day, ns since 1970.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn failed(pid: i32, why: impl std::fmt::Display) -> Failure {
    Failure::of_weir(format!("process {pid}: {why}"))
}

fn subject(pid: i32, inspected: &Inspected) -> String {
    let command = inspected.process.stat().map_or_else(|_| "?".into(), |stat| stat.comm);
    format!("process {pid} ({})", output::printable_line(&command))
}

/// A copy of the table as it is now, and what is mapped.
fn copy(pid: i32) -> Result<Copy, Failure> {
    let (inspected, page) = Inspected::with_page(pid).map_err(|why| why.of(pid))?;
    let table = table::read(pid, page.profile.load(Relaxed)).map_err(|why| failed(pid, why))?;
    let table = table.ok_or_else(|| failed(pid, "it has taken no samples yet"))?;
    Ok(Copy { table, mappings: mappings::executable(&inspected.maps) })
}

/// The first copy in which sampling is on, with the mean that was set.
fn begun(pid: i32, wanted: u64, ending: &Noted) -> Result<Copy, Failure> {
    let asked = Instant::now();
    loop {
        let copy = copy(pid);
        match copy {
            _ if ending.signal().is_some() => return Err(failed(pid, "a signal came before its first sample")),
            Ok(copy) if copy.table.mean_bytes == wanted => return Ok(copy),
            Err(why) if asked.elapsed() > PATIENCE => return Err(why),
            // Another mean was set since.
            Ok(copy) if copy.table.mean_bytes > 0 && asked.elapsed() > PATIENCE => return Ok(copy),
            Ok(_) if asked.elapsed() > PATIENCE => {
                return Err(failed(pid, "it was told to take samples, and takes none: `weir doctor PID` may say why"));
            }
            _ => std::thread::sleep(TICK),
        }
    }
}

/// Waits for samples, which Ctrl-C ends; the last copy, how long it took, and whether the process has ended.
fn wait(pid: i32, time: Duration, first: &Copy, ending: &Noted) -> Result<(Copy, Duration, bool), Failure> {
    let last = copies(pid, time, first, ending, || copy(pid));
    show(format_args!(""));
    last
}

fn copies(
    pid: i32,
    time: Duration,
    first: &Copy,
    ending: &Noted,
    mut copy: impl FnMut() -> Result<Copy, Failure>,
) -> Result<(Copy, Duration, bool), Failure> {
    let began = Instant::now();
    let mut last = None;
    for tick in 1.. {
        let left = time.saturating_sub(began.elapsed());
        std::thread::sleep(TICK.min(left));
        let is_over = left <= TICK || ending.signal().is_some();
        if !is_over && tick % TICKS_A_COPY != 0 {
            continue;
        }
        let waited = began.elapsed();
        let copy = match copy() {
            Ok(copy) if copy.table.began_ns != first.table.began_ns => {
                return Err(failed(pid, "it has begun another program meanwhile: profile it again"));
            }
            Ok(copy) => copy,
            Err(why) => {
                // It has ended, and with it its memory; or it runs another program, without Weir.
                let has_ended = [Kind::NotFound, Kind::NoWeir].map(|kind| kind as i32).contains(&why.status);
                if has_ended || is_over {
                    return last.map(|(copy, waited)| (copy, waited, has_ended)).ok_or(why);
                }
                continue;
            }
        };
        if is_over {
            return Ok((copy, waited, false));
        }
        let samples = copy.table.samples.saturating_sub(first.table.samples);
        let [seconds, all] = [waited, time].map(|time| time.as_secs());
        show(format_args!("process {pid}: {seconds} of {all} s, {samples} samples (Ctrl-C ends it early) "));
        last = Some((copy, waited));
    }
    Err(failed(pid, "nothing was read"))
}

/// A line in place of the last one, on a terminal.
fn show(line: std::fmt::Arguments) {
    if std::io::stderr().is_terminal() {
        output::say(format_args!("\r\x1b[K{line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_fails_does_not_end_the_wait_of_a_process_that_lives() {
        let copy = |samples| Copy { table: Table { samples, ..Table::default() }, mappings: Vec::new() };
        let failure = |kind| Err(Failure::of(kind, String::new()));
        let none = Noted::of([]).unwrap();
        let mut answers = [Ok(copy(1)), failure(Kind::NotAnswering), Ok(copy(2)), failure(Kind::NotFound)].into_iter();
        let (last, _, has_ended) =
            copies(1, Duration::from_secs(3600), &copy(0), &none, || answers.next().unwrap()).unwrap();
        assert_eq!((last.table.samples, has_ended, answers.len()), (2, true, 0));
        // At the end of the time there is nothing more to wait for.
        let late = copies(1, Duration::ZERO, &copy(0), &none, || failure(Kind::NotAnswering));
        assert_eq!(late.err().map(|why| why.status), Some(Kind::NotAnswering as i32));
    }
}
