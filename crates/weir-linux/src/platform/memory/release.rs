//! How memory is released to the kernel. Private anonymous memory goes by `MADV_DONTNEED`, or by `MADV_FREE` in calm
//! times where the tunable `report_lazily` says so. Many ranges go by one `process_madvise` where the kernel lets a
//! process do that to itself.
//!
//! `MADV_FREE` only marks pages. They stay in the resident set, and charged, until the kernel runs short and finds
//! them. A page written to before that is kept with what it held, so such memory must not be taken for zero. The result
//! says so ([`Contents::Undefined`]). Under pressure it is never used: memory that the kernel must find first comes
//! late.
//!
//! Shared memory of a file is taken out of the file by `MADV_REMOVE`, which punches a hole.
//!
//! Locked memory (`mlock`, `mlockall`) is refused with `EINVAL`. `MADV_DONTNEED_LOCKED` would take it; but a
//! program locks memory to have no page faults, and gets none.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use weir_core::base::run::Run;
use weir_core::platform::{Contents, Released};

use crate::os::mman::{self, MADV_COLD, MADV_DONTNEED, MADV_FREE, MADV_REMOVE};
use crate::os::syscall::{Errno, retry};

/// Ranges in one call of `process_madvise` (the kernel's `UIO_MAXIOV` is 1024).
const RANGES: usize = 128;
/// Refusals in a row that a moment may explain: `EAGAIN`, or a kernel that is short itself. With more of them they last.
const PASSING: u32 = 2;

/// Releases memory, and remembers which calls the kernel refuses.
pub struct Releaser {
    /// `process_madvise` was refused where `madvise` was not, and will be again.
    no_batches: AtomicBool,
    /// The kernel lacks `MADV_FREE`.
    no_lazy: AtomicBool,
    /// Refusals that may pass, since the last release that went.
    passing: AtomicU32,
    /// The message why memory stays was written.
    said: AtomicBool,
    /// What writes it.
    say: fn(Errno),
}

impl Releaser {
    /// No call was refused yet. `say` is told why memory stays, once.
    pub const fn new(say: fn(Errno)) -> Self {
        let [no_batches, no_lazy, said] = [const { AtomicBool::new(false) }; 3];
        Self { no_batches, no_lazy, passing: AtomicU32::new(0), said, say }
    }

    /// Releases `runs`, which must be free, up to the first that is refused.
    pub fn release(&self, runs: &[Run], lazily: bool) -> Released {
        if lazily && !self.no_lazy.load(Relaxed) {
            let (done, refused) = self.advise(runs, MADV_FREE);
            if refused != Some(Errno::EINVAL) {
                return self.released(done, refused, Contents::Undefined);
            }
            // Locked, or a kernel without it (before 4.5): the eager way shows which.
            let (more, refused) = self.advise(&runs[done..], MADV_DONTNEED);
            if more > 0 {
                self.no_lazy.store(true, Relaxed);
            }
            return self.released(done + more, refused, Contents::Undefined);
        }
        let (done, refused) = self.advise(runs, MADV_DONTNEED);
        self.released(done, refused, Contents::Zero)
    }

    /// Advises the kernel that `runs` were not used of late (`MADV_COLD`, Linux 5.4). The kernel then splits each huge
    /// page that a run has a part of only. That frees its pages that are mapped no more: without it they stay charged
    /// until the kernel runs short. In addition, khugepaged passes over a range none of whose pages was used since.
    pub fn cool(&self, mut runs: &[Run]) {
        while !runs.is_empty() {
            // What is refused (locked memory, an old kernel) stays as it is.
            let (done, _) = self.advise(runs, MADV_COLD);
            runs = runs.get(done + 1..).unwrap_or_default();
        }
    }

    /// Takes shared `runs` out of the file that backs them; how many went, and why the next did not.
    pub fn punch_holes(&self, runs: &[Run]) -> (usize, Option<Errno>) {
        let refused = runs.iter().enumerate().find_map(|(done, &run)| Some((done, one(run, MADV_REMOVE).err()?)));
        let (done, why) = refused.map_or((runs.len(), None), |(done, why)| (done, Some(why)));
        self.note(done, why);
        (done, why)
    }

    fn released(&self, runs: usize, refused: Option<Errno>, contents: Contents) -> Released {
        self.note(runs, refused);
        Released { runs, contents, error: refused.map_or(0, |why| why.0 as u32) }
    }

    /// So many runs went, and why the next did not.
    fn note(&self, runs: usize, refused: Option<Errno>) {
        if runs > 0 && self.passing.load(Relaxed) > 0 {
            self.passing.store(0, Relaxed);
        }
        if let Some(why) = refused
            && self.is_to_be_said(why)
        {
            (self.say)(why);
        }
    }

    /// Whether the user is told of a refusal: once, and not of one that may pass.
    fn is_to_be_said(&self, why: Errno) -> bool {
        let may_pass = matches!(why, Errno::EAGAIN | Errno::ENOMEM);
        let is_lasting = !may_pass || self.passing.fetch_add(1, Relaxed) >= PASSING;
        is_lasting && !self.said.swap(true, Relaxed)
    }

    /// Advises `runs` in as few calls as the kernel takes; how many went, and why the next did not.
    fn advise(&self, runs: &[Run], advice: u32) -> (usize, Option<Errno>) {
        let mut done = 0;
        while done < runs.len() {
            let left = &runs[done..];
            let batch = if left.len() < 2 || self.no_batches.load(Relaxed) { 0 } else { batch(left, advice) };
            done += batch;
            if let Some(&next) = runs.get(done)
                && batch < left.len().min(RANGES)
            {
                // By itself, to see whether it is this range that is refused or calls of that kind.
                if let Err(why) = one(next, advice) {
                    return (done, Some(why));
                }
                if left.len() > 1 && batch == 0 {
                    self.no_batches.store(true, Relaxed);
                }
                done += 1;
            }
        }
        (done, None)
    }
}

/// One range by itself.
pub fn one(run: Run, advice: u32) -> Result<(), Errno> {
    // SAFETY: the engine has isolated the run, so its contents are not needed and no allocation can return it.
    retry(|| unsafe { mman::madvise(run.addr as *mut u8, run.len, advice) })
}

/// Up to `RANGES` runs by as few calls as do; how many went.
fn batch(runs: &[Run], advice: u32) -> usize {
    let runs = &runs[..runs.len().min(RANGES)];
    let mut done = 0;
    while done < runs.len() {
        // SAFETY: the engine has isolated the runs, so their contents are not needed and no allocation can return them.
        match retry(|| unsafe { mman::process_madvise(&runs[done..], advice) }) {
            Ok(bytes) => match finish_torn(&runs[done..], bytes, advice) {
                0 => break,
                n => done += n,
            },
            Err(_) => break,
        }
    }
    done
}

/// How many of `runs` went with the first `bytes` of them; one that went in part is advised whole.
fn finish_torn(runs: &[Run], mut bytes: usize, advice: u32) -> usize {
    let fits = |run: &&Run| {
        let fits = run.len <= bytes;
        bytes -= if fits { run.len } else { 0 };
        fits
    };
    let whole = runs.iter().take_while(fits).count();
    match runs.get(whole) {
        Some(&torn) if bytes > 0 && one(torn, advice).is_ok() => whole + 1,
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;
    use crate::os::mman::MAP_NORESERVE;
    use crate::platform::machine;
    use weir_core::base::units::PAGE;

    /// `pages` written pages and, of every second, a run.
    fn memory(pages: usize) -> (usize, std::vec::Vec<Run>) {
        let at = mman::mmap_anonymous(pages * PAGE, MAP_NORESERVE).unwrap();
        // SAFETY: just mapped.
        unsafe { at.write_bytes(7, pages * PAGE) };
        let at = at as usize;
        (at, (0..pages).step_by(2).map(|i| Run { addr: at + i * PAGE, len: PAGE }).collect())
    }

    fn byte(at: usize) -> u8 {
        // SAFETY: of a mapping made by `memory`.
        unsafe { *(at as *const u8) }
    }

    #[test]
    fn runs_go_and_what_lies_between_stays() {
        let (at, runs) = memory(600);
        let released = Releaser::new(messages::memory_stays_resident).release(&runs, false);
        assert_eq!(released, Released { runs: 300, contents: Contents::Zero, error: 0 });
        assert!((0..600).all(|i| byte(at + i * PAGE) == if i % 2 == 0 { 0 } else { 7 }));
    }

    #[test]
    fn a_locked_page_stops_them_and_the_batch_is_not_given_up_for_it() {
        let (at, runs) = memory(64);
        let locked = (at + 20 * PAGE) as *mut u8;
        if let Err(why) = mman::mlock(locked, PAGE) {
            weir_testing::skip!("mlock says {why} (ulimit -l)");
            return;
        }
        let give_back = Releaser::new(messages::memory_stays_resident);
        let released = give_back.release(&runs, false);
        assert_eq!((released.runs, released.error), (10, Errno::EINVAL.0 as u32));
        assert_eq!(give_back.no_batches.load(Relaxed), !machine::process_madvise());
        assert_eq!((byte(at + 18 * PAGE), byte(at + 20 * PAGE)), (0, 7));
        assert_eq!(give_back.release(&runs[11..], false).runs, 21);
        let lazily = give_back.release(&runs, true);
        assert_eq!((lazily.runs, lazily.error), (10, Errno::EINVAL.0 as u32));
        assert!(!give_back.no_lazy.load(Relaxed));
    }

    #[test]
    fn a_refusal_is_told_once_it_lasts_and_once_in_all() {
        for passing in [Errno::EAGAIN, Errno::ENOMEM] {
            let give_back = Releaser::new(messages::memory_stays_resident);
            let (_, runs) = memory(4);
            let two = || [give_back.is_to_be_said(passing), give_back.is_to_be_said(passing)];
            assert_eq!(two(), [false; 2], "it may go the next time");
            assert_eq!(give_back.release(&runs, false).runs, 2);
            assert_eq!(two(), [false; 2], "what goes ends it");
            assert_eq!(two(), [true, false]);
            assert!(!give_back.is_to_be_said(Errno::EINVAL));
        }
        let give_back = Releaser::new(messages::memory_stays_resident);
        assert_eq!([give_back.is_to_be_said(Errno::EINVAL), give_back.is_to_be_said(Errno::EPERM)], [true, false]);
    }

    #[test]
    fn what_is_cooled_keeps_its_contents_and_a_locked_page_holds_up_no_other() {
        let (at, runs) = memory(64);
        let locked = (at + 20 * PAGE) as *mut u8;
        let is_locked = mman::mlock(locked, PAGE).is_ok();
        Releaser::new(messages::memory_stays_resident).cool(&runs);
        Releaser::new(messages::memory_stays_resident).cool(&[]);
        assert!((0..64).all(|i| byte(at + i * PAGE) == 7), "a page is locked: {is_locked}");
    }

    #[test]
    fn what_goes_lazily_has_undefined_contents() {
        let (at, runs) = memory(64);
        let released = Releaser::new(messages::memory_stays_resident).release(&runs, true);
        assert_eq!(released, Released { runs: 32, contents: Contents::Undefined, error: 0 });
        assert!([0, 7].contains(&byte(at)));
    }
}
