//! Features of this machine, read without changing anything: for the engine's choices and for `weir doctor`.

use crate::os::file::text::{chosen, list_count, number};
use crate::os::mman::{self, MADV_DONTNEED};
use crate::os::syscall::{check, syscall1};
use crate::os::{fd, futex, process, tasks};
use core::ffi::CStr;
use linux_raw_sys::general as sys;
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

/// NUMA nodes online; 1 where the kernel has no such list.
pub fn numa_nodes() -> usize {
    online_nodes().map_or(1, |(count, _)| count)
}

/// The mode of transparent huge pages.
pub fn huge_pages() -> HugePages {
    let mut buf = [0u8; 64];
    let text = fd::read_file(c"/sys/kernel/mm/transparent_hugepage/enabled", &mut buf).ok();
    match text.and_then(chosen) {
        Some(b"always") => HugePages::Always,
        Some(b"madvise") => HugePages::Madvise,
        Some(_) => HugePages::Never,
        None => HugePages::Absent,
    }
}

/// How hard a fault works for a huge page (`always`, `defer`, `defer+madvise`, `madvise`, `never`).
pub fn huge_page_defrag(buf: &mut [u8; 64]) -> Option<&[u8]> {
    chosen(fd::read_file(c"/sys/kernel/mm/transparent_hugepage/defrag", buf).ok()?)
}

/// How many pages of 512 may be missing for khugepaged to make a huge page of the rest. Above 0 it may fill again
/// what was given back in part.
pub fn max_ptes_none() -> Option<u64> {
    number_in(c"/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none")
}

/// `vm.overcommit_memory`: 0 heuristic, 1 always, 2 never more than there is.
pub fn overcommit() -> Option<u64> {
    number_in(c"/proc/sys/vm/overcommit_memory")
}

/// `vm.max_map_count`: mappings that a process may have.
pub fn max_map_count() -> Option<u64> {
    number_in(c"/proc/sys/vm/max_map_count")
}

fn number_in(path: &CStr) -> Option<u64> {
    let mut buf = [0u8; 32];
    number(fd::read_file(path, &mut buf).ok()?)
}

/// The limit of address space, if there is one, bytes.
pub fn address_space_limit() -> Option<u64> {
    process::getrlimit(process::RLIMIT_AS).ok().map(|(soft, _)| soft).filter(|&soft| soft != u64::MAX)
}

/// Bytes of the rseq area that the kernel fills in (28 and more: with `mm_cid`); `None` before Linux 6.3.
pub fn rseq_feature_size() -> Option<u64> {
    process::auxiliary_from_proc(u64::from(linux_raw_sys::auxvec::AT_RSEQ_FEATURE_SIZE))
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

/// Major and minor version of the kernel.
pub fn kernel_version() -> Option<(u64, u64)> {
    /// `struct new_utsname`: six strings of 65 bytes; the third is the release.
    const STRING: usize = 65;
    let mut names = [0u8; 6 * STRING];
    // SAFETY: the kernel fills six strings of 65 bytes.
    check(unsafe { syscall1(sys::__NR_uname, names.as_mut_ptr() as usize) }).ok()?;
    parse_release(&names[2 * STRING..3 * STRING])
}

fn parse_release(release: &[u8]) -> Option<(u64, u64)> {
    let mut parts = release.split(|b| !b.is_ascii_digit());
    Some((number(parts.next()?)?, number(parts.next()?)?))
}

/// A guess at whether this is a container, from the files that container engines leave.
pub fn in_container() -> bool {
    [c"/.dockerenv", c"/run/.containerenv", c"/run/systemd/container"].iter().any(|path| fd::stat(path).is_ok())
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
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn this_machine_answers() {
        let (count, size) = possible_cpus().unwrap();
        assert!(count >= 1 && size >= count && count >= crate::os::tasks::affinity_count().unwrap());
        assert!(numa_nodes() >= 1);
        assert!(kernel_version().unwrap() >= (3, 0));
        assert!(overcommit().unwrap() <= 2);
        let _ = (huge_pages(), max_ptes_none(), process_madvise(), membarrier_rseq(), in_container());
        let _ = (address_space_limit(), rseq_feature_size(), max_map_count(), huge_page_defrag(&mut [0; 64]));
    }

    #[test]
    fn releases() {
        assert_eq!(parse_release(b"6.18.44-x86\0\0"), Some((6, 18)));
        assert_eq!(parse_release(b"7.0\0"), Some((7, 0)));
        assert_eq!(parse_release(b"\0"), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>) {
            let _ = parse_release(&text);
        }
    }
}
