//! Work on what may be hostile, by a child of this process: the kernel bounds its memory and its time.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// What a child told.
pub struct Told {
    /// Bytes that were read of it.
    pub bytes: u64,
    /// Whether it came to its end.
    pub is_whole: bool,
}

/// Has a child do the work, which may take so much more memory than this process has, and so much time in whole seconds. What the
/// child tells is read up to `most` bytes, and handed to `hear` as it comes. Where the child is ended before, by the kernel or
/// by a fault of its own, what it had told stays.
pub fn tell<T: Serialize + DeserializeOwned>(
    memory: u64,
    time: Duration,
    most: u64,
    work: impl FnOnce(&mut dyn FnMut(&T)),
    hear: impl FnMut(T),
) -> std::io::Result<Told> {
    let (reader, mut writer) = pipe()?;
    // SAFETY: the child works on copies, and ends below. Tests alone have other threads in this process, and the child has
    // none of those. It takes no lock that one of them may hold but those of malloc, which the C library keeps usable in a
    // child.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(reader);
        let is_bound = bound(memory, time).is_ok();
        let mut tell = |it: &T| {
            let line = serde_json::to_string(it).unwrap_or_default() + "\n";
            // Without a reader there is nobody to tell: SIGPIPE, or the next line, ends it.
            let _ = writer.write_all(line.as_bytes());
        };
        let done =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| is_bound.then(|| work(&mut tell)).is_some()));
        // SAFETY: ends the child without what is to be done at this process's end.
        unsafe { libc::_exit(i32::from(!done.unwrap_or(false))) }
    }
    drop(writer);
    if child < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut limited = reader.take(most);
    let lines = serde_json::Deserializer::from_reader(std::io::BufReader::new(&mut limited)).into_iter();
    lines.map_while(Result::ok).for_each(hear);
    let (bytes, has_told_all) = (most - limited.limit(), limited.limit() > 0);
    let mut status = 0;
    // SAFETY: a child that was not waited for, so that its number is not another's; the kernel fills a value of its type.
    unsafe {
        if !has_told_all {
            libc::kill(child, libc::SIGKILL);
        }
        libc::waitpid(child, &raw mut status, 0);
    }
    Ok(Told { bytes, is_whole: has_told_all && status == 0 })
}

/// The file by which the kernel chooses what it kills where memory ends, and the number of the first.
const KILLED_FIRST: (&str, &str) = ("/proc/self/oom_score_adj", "1000");

/// Bounds this process, which says nothing more for itself and leaves no core.
fn bound(memory: u64, time: Duration) -> std::io::Result<()> {
    let has = procfs::process::Process::myself().and_then(|own| own.statm()).map_err(std::io::Error::other)?;
    let limit = |most: u64| libc::rlimit { rlim_cur: most, rlim_max: most };
    let (address_space, none) = (limit((has.size * procfs::page_size()).saturating_add(memory)), limit(0));
    // Where memory ends all the same, it ends this process and not the one that is profiled.
    let _ = std::fs::write(KILLED_FIRST.0, KILLED_FIRST.1);
    let null = File::options().write(true).open("/dev/null")?;
    // SAFETY: system calls on this process, which read values of their types.
    unsafe {
        libc::dup2(null.as_raw_fd(), 2);
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        // None is 0: that would be without end.
        libc::alarm(time.as_secs().max(1) as u32);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        match libc::setrlimit(libc::RLIMIT_AS, &raw const address_space) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(memory: u64, most: u64, work: impl FnOnce(&mut dyn FnMut(&u64))) -> (Vec<u64>, bool) {
        let mut all = Vec::new();
        let told = tell(memory, Duration::from_secs(300), most, work, |number| all.push(number)).unwrap();
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
    fn it_has_so_much_time() {
        let work = |_: &mut dyn FnMut(&u64)| {
            loop {
                std::hint::black_box(0);
            }
        };
        let told = tell::<u64>(64 << 20, Duration::from_secs(1), 1 << 20, work, drop);
        assert!(!told.unwrap().is_whole);
    }
}
