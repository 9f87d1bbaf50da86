//! Work on what may be hostile, by a child of this process: its time is bounded, and the kernel bounds its memory.
//!
//! A file of another process's may lie on a server that is gone, or in a file system in user space. A call on it may then wait for
//! ever, and the kernel may let nothing end that wait. A thread that waits so keeps its process from ending. So a child makes all
//! such calls ([`ask`]), and says before each that it may wait. Where it waits for too long it is left behind. It has nothing
//! open of this process's but the pipe, so that readers of this process's output see its end.

use crate::base::output;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long one call on a file may take. A disk at rest needs a second, a busy one some tenths.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Files that did not answer in that time, after which no others are asked.
pub const MOST_SILENT: usize = 3;
/// How long the files of one question take together ([`each`]). A program of 512 MiB is read from a slow disk.
const TIME: Duration = Duration::from_secs(10);
/// Bytes that are told in answer to one question at most: of 65,530 mappings, some 20 each.
const MOST_TOLD: u64 = 4 << 20;
/// Memory that a child takes for one question ([`each`]) at most: a file of a process's own making may ask for more. A GiB of a
/// file is mapped at a time.
const MEMORY: u64 = 2 << 30;
/// How long a child that was killed is waited for.
const KILLED: Duration = Duration::from_millis(100);
/// What the child says before a call that may wait, and after it. Both are blanks between what it tells.
const WAITS: u8 = b' ';
const GOES_ON: u8 = b'\n';

/// In a child: where it says that it waits.
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// Names of files that did not answer, which are not asked again.
static SILENT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Makes a call that waits for a file for as long as that likes. In a child it is bounded.
pub fn ask<T>(call: impl FnOnce() -> T) -> T {
    say(WAITS);
    let answer = call();
    say(GOES_ON);
    answer
}

fn say(mark: u8) {
    let pipe = PIPE.load(Relaxed);
    if pipe >= 0 {
        // SAFETY: writes a byte that is there. Without a reader there is no one to tell.
        unsafe { libc::write(pipe, (&raw const mark).cast(), 1) };
    }
}

/// What a child told.
pub struct Told {
    /// Bytes that were read of it.
    pub bytes: u64,
    /// Whether it came to its end.
    pub is_whole: bool,
    /// Whether it waited for a file for too long.
    pub is_silent: bool,
}

/// Has a child do the work on each, and gives what it tells of them in their order; none also of a file that does not answer. Such
/// files are named on standard error.
pub fn each<Q, T: Serialize + DeserializeOwned>(
    all: &[Q],
    name: impl Fn(&Q) -> String,
    work: impl Fn(&Q) -> Option<T>,
) -> Vec<Option<T>> {
    let known = || SILENT.lock().unwrap_or_else(|panicked| panicked.into_inner());
    let until = Instant::now() + TIME;
    let (mut answers, mut failed) = (Vec::new(), Vec::new());
    while answers.len() < all.len() && failed.len() < MOST_SILENT && Instant::now() < until {
        let (rest, before) = (&all[answers.len()..], known().clone());
        let all_of = |tell: &mut dyn FnMut(&Option<T>)| {
            bound_memory(MEMORY);
            let is_new = |it: &&Q| !before.contains(&name(it));
            rest.iter().for_each(|it| tell(&Some(it).filter(is_new).and_then(&work)));
        };
        let time = until.saturating_duration_since(Instant::now());
        let told = tell(time, MOST_TOLD, all_of, |answer| answers.push(answer));
        if answers.len() < all.len() {
            let file = name(&all[answers.len()]);
            answers.push(None);
            if told.is_ok_and(|told| told.is_silent) {
                known().insert(file.clone());
            }
            failed.push(file);
        }
    }
    let left_out = all.len() - answers.len();
    answers.resize_with(all.len(), || None);
    if !failed.is_empty() {
        let others = if left_out > 0 { format!(" ({left_out} more were not asked)") } else { String::new() };
        let names = output::printable_line(&failed.join(", "));
        output::say(format_args!("weir: warning: not to be read in time, and left out: {names}{others}\n"));
    }
    answers
}

/// Has a child do the work, which may take so much time in whole seconds. What the child tells is read up to `most` bytes, and handed
/// to `hear` as it comes. Where the child is ended before, by the kernel or by a fault of its own, or does not answer, what it had
/// told stays.
pub fn tell<T: Serialize + DeserializeOwned>(
    time: Duration,
    most: u64,
    work: impl FnOnce(&mut dyn FnMut(&T)),
    hear: impl FnMut(T),
) -> io::Result<Told> {
    let (reader, mut writer) = pipe()?;
    // SAFETY: whoever started this command may have had children ignored, of which the kernel then tells no end.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: the child works on copies, and ends below. Tests alone have other threads in this process, and the child has
    // none of those. It takes no lock that one of them may hold but those of malloc, which the C library keeps usable in a
    // child.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(reader);
        let is_apart = leave_parent(writer.as_raw_fd(), time).is_ok();
        let mut tell = |it: &T| {
            let line = serde_json::to_string(it).unwrap_or_default() + "\n";
            // Without a reader there is no one to tell: SIGPIPE, or the next line, ends it.
            let _ = writer.write_all(line.as_bytes());
        };
        let done =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| is_apart.then(|| work(&mut tell)).is_some()));
        // SAFETY: ends the child without what is to be done at this process's end.
        unsafe { libc::_exit(i32::from(!done.unwrap_or(false))) }
    }
    drop(writer);
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    let heard = Heard { pipe: reader, until: Instant::now() + time + PATIENCE, waits: false, is_late: false };
    let mut limited = heard.take(most);
    let lines = serde_json::Deserializer::from_reader(io::BufReader::new(&mut limited)).into_iter();
    lines.map_while(Result::ok).for_each(hear);
    let (bytes, Heard { waits, is_late, .. }) = (most - limited.limit(), limited.get_ref());
    let has_told_all = limited.limit() > 0 && !is_late;
    if !has_told_all {
        // SAFETY: a child that was not waited for, so that its number is not another's.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let status = wait(child, if has_told_all { PATIENCE } else { KILLED });
    Ok(Told { bytes, is_whole: has_told_all && status == Some(0), is_silent: *is_late && *waits })
}

/// How a child ended. None: it does not in that time, and is left to whoever adopts it.
fn wait(child: i32, time: Duration) -> Option<i32> {
    let (begun, mut status) = (Instant::now(), 0);
    loop {
        // SAFETY: a child that was not waited for; the kernel fills a value of its type.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if begun.elapsed() <= time => std::thread::sleep(Duration::from_micros(200)),
            ended => return (ended == child).then_some(status),
        }
    }
}

/// What a child tells, up to the time that it has.
struct Heard {
    pipe: PipeReader,
    until: Instant,
    /// Whether the child was about to wait for a file when it was last heard of.
    waits: bool,
    /// Whether it had no time left.
    is_late: bool,
}

impl Read for Heard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let now = Instant::now();
        let until = if self.waits { self.until.min(now + PATIENCE) } else { self.until };
        let mut file = libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        loop {
            let left = until.saturating_duration_since(Instant::now()).as_millis().min(i32::MAX as u128) as i32;
            // SAFETY: the kernel reads and writes the one value.
            match unsafe { libc::poll(&raw mut file, 1, left) } {
                0 => {
                    self.is_late = true;
                    return Ok(0);
                }
                1.. => break,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
        let read = self.pipe.read(buffer)?;
        self.waits = buffer[..read].last().map_or(self.waits, |&last| last == WAITS);
        Ok(read)
    }
}

/// The file by which the kernel chooses what it kills where memory ends, and the number of the first.
const KILLED_FIRST: (&str, &str) = ("/proc/self/oom_score_adj", "1000");

/// Bounds this process's time. It says nothing more for itself, leaves no core, and closes all but its pipe.
fn leave_parent(pipe: i32, time: Duration) -> io::Result<()> {
    // Where memory ends all the same, it ends this process and not the one that is looked at.
    let _ = std::fs::write(KILLED_FIRST.0, KILLED_FIRST.1);
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: system calls on this process, which read a value of its type. No code of the child's uses what is closed.
    unsafe {
        for standard in 0..3 {
            libc::dup2(null.as_raw_fd(), standard);
        }
        std::mem::forget(null);
        for (first, last) in [(3, pipe - 1), (pipe + 1, i32::MAX)] {
            if first <= last && libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
                // Before Linux 5.9. With more of them than this some stay open.
                for number in first..=last.min(4095) {
                    libc::close(number);
                }
            }
        }
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        // None is 0: that would be without end.
        libc::alarm(time.as_secs().max(1) as u32);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
    }
    PIPE.store(pipe, Relaxed);
    Ok(())
}

/// Has this process, a child, take so much more memory than it has; `false`: the kernel does not bound it.
pub fn bound_memory(memory: u64) -> bool {
    let Ok(has) = procfs::process::Process::myself().and_then(|own| own.statm()) else { return false };
    let most = (has.size * procfs::page_size()).saturating_add(memory);
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a system call on this process, which reads a value of its type.
    unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(memory: u64, most: u64, work: impl FnOnce(&mut dyn FnMut(&u64))) -> (Vec<u64>, bool) {
        let mut all = Vec::new();
        let bounded = |tell: &mut dyn FnMut(&u64)| work(if bound_memory(memory) { tell } else { return });
        let told = tell(Duration::from_secs(300), most, bounded, |number| all.push(number)).unwrap();
        assert!(told.bytes <= most);
        (all, told.is_whole)
    }

    #[test]
    fn what_it_told_stays_however_it_ends() {
        let counts = |tell: &mut dyn FnMut(&u64)| (1..=3).for_each(|number| tell(&number));
        assert_eq!(numbers(64 << 20, 1 << 20, counts), (vec![1, 2, 3], true));
        let takes_too_much = |tell: &mut dyn FnMut(&u64)| {
            tell(&7);
            tell(&(vec![1u8; 1 << 30].len() as u64));
        };
        assert_eq!(numbers(64 << 20, 1 << 20, takes_too_much), (vec![7], false));
        let panics = |tell: &mut dyn FnMut(&u64)| {
            tell(&8);
            panic!("as a reader of files may");
        };
        assert_eq!(numbers(64 << 20, 1 << 20, panics), (vec![8], false));
        let tells_too_much = |tell: &mut dyn FnMut(&u64)| (0..1 << 20).for_each(|number| tell(&number));
        let (told, is_whole) = numbers(64 << 20, 1000, tells_too_much);
        assert!(!told.is_empty() && told.len() < 1000 && !is_whole, "{}", told.len());
    }

    #[test]
    fn the_kernel_kills_it_before_others() {
        let asks = |tell: &mut dyn FnMut(&u64)| {
            let text = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
            tell(&text.trim().parse().unwrap());
        };
        assert_eq!(numbers(64 << 20, 1 << 20, asks), (vec![1000], true));
    }

    #[test]
    fn a_file_that_does_not_answer_is_left_out_and_not_asked_again() {
        let work = |number: &u64| {
            if *number == 2 {
                ask(|| {
                    loop {
                        std::thread::park()
                    }
                })
            }
            (*number != 3).then_some(*number)
        };
        for all in [&[1, 2, 3, 4][..], &[2, 1]] {
            let wanted: Vec<_> = all.iter().map(|&number| (number % 3 == 1).then_some(number)).collect();
            assert_eq!(each(all, |number| format!("file {number}"), work), wanted);
        }
        assert_eq!(*SILENT.lock().unwrap(), BTreeSet::from(["file 2".to_owned()]));
    }

    #[test]
    fn it_has_so_much_time() {
        let work = |_: &mut dyn FnMut(&u64)| {
            loop {
                std::hint::black_box(0);
            }
        };
        let told = tell::<u64>(Duration::from_secs(1), 1 << 20, work, drop);
        assert!(!told.unwrap().is_whole);
    }
}
