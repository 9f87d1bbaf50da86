//! Features of this machine, read without changing anything: for the engine's choices and for `weir doctor`.

use crate::os::file::text::{chosen, list_count, number};
use crate::os::mman::{self, MADV_DONTNEED};
use crate::os::page;
use crate::os::{fd, futex, tasks};
use weir_core::base::run::Run;
use weir_core::base::units::PAGE;

/// When the kernel backs memory with huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Wherever a range is large enough.
    Always,
    /// Where advised.
    Madvise,
    /// Never.
    Never,
    /// The kernel has no transparent huge pages.
    Absent,
}

impl HugePages {
    /// Whether memory that came in huge pages comes in single ones under this mode. It may have asked for them (`on_advice`).
    pub(crate) fn ends(self, on_advice: bool) -> bool {
        match self {
            Self::Always => false,
            Self::Madvise => !on_advice,
            Self::Never => true,
            // It is not known: the file is not there, or not to be opened.
            Self::Absent => false,
        }
    }
}

/// CPUs that can ever come online, and one more than the highest of their numbers: the size of tables by CPU.
pub fn possible_cpus() -> Option<(usize, usize)> {
    let mut buf = [0u8; 256];
    let (count, highest) = list_count(fd::read_file(c"/sys/devices/system/cpu/possible", &mut buf).ok()?)?;
    Some((usize::try_from(count).ok()?, usize::try_from(highest).ok()? + 1))
}

/// NUMA nodes online: how many, and the highest of their numbers. `None` where the kernel has no such list.
pub fn online_nodes() -> Option<(usize, usize)> {
    let mut buf = [0u8; 256];
    let (count, highest) = list_count(fd::read_file(c"/sys/devices/system/node/online", &mut buf).ok()?)?;
    Some((usize::try_from(count).ok()?, usize::try_from(highest).ok()?))
}

/// The mode of transparent huge pages. Those of a kernel with longer pages are longer than a pageblock: it counts as one without.
pub fn huge_pages() -> HugePages {
    let Some(file) = open_huge_pages() else { return HugePages::Absent };
    let mode = huge_pages_of(file);
    let _ = fd::close(file);
    mode
}

/// Whether the kernel counts all that is mapped, used or not, against what all processes may have (`vm.overcommit_memory` 2).
pub(crate) fn is_commit_strict() -> bool {
    let mut buf = [0u8; 16];
    fd::read_file(c"/proc/sys/vm/overcommit_memory", &mut buf).ok().and_then(number) == Some(2)
}

/// Opens the file that says the mode: it can be read again where no file may be opened any more.
pub(crate) fn open_huge_pages() -> Option<i32> {
    let has_them = page::bytes() == PAGE;
    has_them.then(|| fd::open(c"/sys/kernel/mm/transparent_hugepage/enabled", fd::O_RDONLY).ok()).flatten()
}

/// The mode that an open file says.
pub(crate) fn huge_pages_of(file: i32) -> HugePages {
    let mut buf = [0u8; 64];
    let text = fd::pread(file, &mut buf, 0).ok().and_then(|len| buf.get(..len));
    match text.and_then(chosen) {
        Some(b"always") => HugePages::Always,
        Some(b"madvise") => HugePages::Madvise,
        Some(_) => HugePages::Never,
        None => HugePages::Absent,
    }
}

/// Whether a fence can restart other threads' restartable sequences.
pub fn membarrier_rseq() -> bool {
    use futex::command::{PRIVATE_EXPEDITED_RSEQ, QUERY, REGISTER_PRIVATE_EXPEDITED_RSEQ};
    let needed = PRIVATE_EXPEDITED_RSEQ | REGISTER_PRIVATE_EXPEDITED_RSEQ;
    futex::membarrier(QUERY, 0, 0).is_ok_and(|mask| mask & needed == needed)
}

/// Whether one call can release many ranges of this process. Tried on a page made for it.
pub fn process_madvise() -> bool {
    let Ok(page) = mman::mmap_anonymous(PAGE, 0) else { return false };
    // SAFETY: the page was just mapped and only this function has its address.
    unsafe {
        let works = mman::process_madvise(&[Run { addr: page as usize, len: PAGE }], MADV_DONTNEED) == Ok(PAGE);
        let _ = mman::munmap(page, PAGE);
        works
    }
}

/// One more than the highest number of a NUMA node; 1 where there is one node or the kernel does not say.
pub(crate) fn node_count() -> usize {
    if fd::stat(c"/sys/devices/system/node/node1").is_err() {
        return 1;
    }
    online_nodes().map_or(1, |(_, highest)| highest + 1)
}

/// A bound above every CPU index of this machine; `usize::MAX` where the kernel does not say.
pub(crate) fn cpus_bound() -> usize {
    // The kernel fills as many bytes as its CPU masks have, which is the bound, in bits; it refuses a shorter buffer.
    tasks::affinity(&mut [0; 128]).map_or(usize::MAX, |words| words * 64)
}

#[cfg(test)]
mod tests {
    use super::HugePages::{Absent, Always, Madvise, Never};
    use super::*;

    #[test]
    fn memory_comes_in_single_pages_once_the_mode_says_so() {
        let ends = |on_advice| [Always, Madvise, Never, Absent].map(|mode: HugePages| mode.ends(on_advice));
        assert_eq!(ends(false), [false, true, true, false]);
        assert_eq!(ends(true), [false, false, true, false]);
    }

    #[test]
    fn this_machine_answers() {
        let (count, size) = possible_cpus().unwrap();
        assert!(count >= 1 && size >= count && count >= crate::os::tasks::affinity_count().unwrap());
        assert!(node_count() >= online_nodes().map_or(1, |(count, _)| count));
        let _ = (huge_pages(), process_madvise(), membarrier_rseq());
    }
}
