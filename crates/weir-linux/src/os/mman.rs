//! Address space: mappings and advice, as `sys/mman.h` names them.

use crate::os::syscall::{Result, check, syscall2, syscall3, syscall4, syscall5, syscall6};
use linux_raw_sys::general as sys;
use weir_core::base::run::Run;

pub use linux_raw_sys::general::{
    MADV_COLD, MADV_COLLAPSE, MADV_DODUMP, MADV_DONTDUMP, MADV_DONTFORK, MADV_DONTNEED, MADV_DONTNEED_LOCKED,
    MADV_FREE, MADV_HUGEPAGE, MADV_MERGEABLE, MADV_NOHUGEPAGE, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_REMOVE,
    MADV_UNMERGEABLE, MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_HUGETLB, MAP_NORESERVE,
    MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_NONE, PROT_READ,
    PROT_WRITE,
};

/// The calling thread itself, as a pidfd. The *thread*, not its group: the group's leader may have exited
/// while other threads run on, and then has no address space any more.
pub const PIDFD_SELF: i32 = sys::PIDFD_SELF_THREAD;

/// `mmap(2)`.
///
/// # Safety
/// With `MAP_FIXED` the range must be the caller's to replace.
pub unsafe fn mmap(addr: *mut u8, len: usize, prot: u32, flags: u32, fd: i32, offset: u64) -> Result<*mut u8> {
    // SAFETY: without MAP_FIXED a new mapping overlaps nothing; with it the caller owns the range.
    let ret = unsafe {
        syscall6(
            sys::__NR_mmap,
            addr as usize,
            len,
            prot as usize,
            flags as usize,
            fd as isize as usize,
            offset as usize,
        )
    };
    check(ret).map(|at| at as *mut u8)
}

/// New private zeroed memory, readable and writable, wherever the kernel likes.
pub fn mmap_anonymous(len: usize, more_flags: u32) -> Result<*mut u8> {
    debug_assert!(more_flags & (MAP_FIXED | MAP_SHARED) == 0);
    // SAFETY: no MAP_FIXED, so nothing that exists is replaced.
    unsafe { mmap(core::ptr::null_mut(), len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more_flags, -1, 0) }
}

/// `munmap(2)`.
///
/// # Safety
/// Nothing may use the range any more.
pub unsafe fn munmap(addr: *mut u8, len: usize) -> Result<()> {
    // SAFETY: the caller owns the range and gives it up.
    check(unsafe { syscall2(sys::__NR_munmap, addr as usize, len) }).map(drop)
}

/// `mremap(2)`; `new_addr` counts only with `MREMAP_FIXED`.
///
/// # Safety
/// The old range must be the caller's, and with `MREMAP_FIXED` the new one as well.
pub unsafe fn mremap(addr: *mut u8, old: usize, new: usize, flags: u32, new_addr: *mut u8) -> Result<*mut u8> {
    // SAFETY: the caller owns both ranges.
    let ret = unsafe { syscall5(sys::__NR_mremap, addr as usize, old, new, flags as usize, new_addr as usize) };
    check(ret).map(|at| at as *mut u8)
}

/// `mprotect(2)`.
///
/// # Safety
/// The range must be the caller's, and no code may use it in a way that the new protection refuses.
pub unsafe fn mprotect(addr: *mut u8, len: usize, prot: u32) -> Result<()> {
    // SAFETY: the caller owns the range.
    check(unsafe { syscall3(sys::__NR_mprotect, addr as usize, len, prot as usize) }).map(drop)
}

/// `madvise(2)`.
///
/// # Safety
/// Where the advice discards contents, they must not be needed.
pub unsafe fn madvise(addr: *mut u8, len: usize, advice: u32) -> Result<()> {
    // SAFETY: the caller owns the range and answers for its contents.
    check(unsafe { syscall3(sys::__NR_madvise, addr as usize, len, advice as usize) }).map(drop)
}

/// `process_madvise(2)` on this process: one call for many ranges. Gives the bytes advised, which may be fewer
/// than asked for. Advice that discards contents needs Linux 6.13 or later; earlier ones say `EINVAL` or `EBADF`.
///
/// # Safety
/// Where the advice discards contents, they must not be needed.
pub unsafe fn process_madvise(ranges: &[Run], advice: u32) -> Result<usize> {
    // SAFETY: the vector, whose entries are laid out as the kernel's `iovec`, is valid for the call; the caller answers
    // for the ranges in it.
    let ret = unsafe {
        syscall5(
            sys::__NR_process_madvise,
            PIDFD_SELF as isize as usize,
            ranges.as_ptr() as usize,
            ranges.len(),
            advice as usize,
            0,
        )
    };
    check(ret)
}

/// `mincore(2)`: fills one byte a page, of which bit 0 says resident.
pub fn mincore(addr: *mut u8, pages: &mut [u8], page_bytes: usize) -> Result<()> {
    let len = pages.len() * page_bytes;
    // SAFETY: the call only reads page tables and writes `pages.len()` bytes of `pages`.
    check(unsafe { syscall3(sys::__NR_mincore, addr as usize, len, pages.as_mut_ptr() as usize) }).map(drop)
}

/// `mbind(2)` of a range to preferred nodes, given as a bit mask of at most 1024 nodes.
pub fn mbind_preferred(addr: *mut u8, len: usize, nodes: &[u64; 16]) -> Result<()> {
    const MPOL_PREFERRED: usize = 1;
    // SAFETY: a policy changes no contents; the mask is valid for the 1024 bits named.
    let ret =
        unsafe { syscall6(sys::__NR_mbind, addr as usize, len, MPOL_PREFERRED, nodes.as_ptr() as usize, 1025, 0) };
    check(ret).map(drop)
}

/// Whether the thread has a memory policy of the program's making (`set_mempolicy`, `numactl`): neither the default nor "my node".
pub fn has_policy() -> bool {
    // `MPOL_DEFAULT` and `MPOL_LOCAL`; and the bits that are flags of a mode (`MPOL_MODE_FLAGS`).
    const NOT_OF_THE_PROGRAM: [u32; 2] = [0, 4];
    const MODE_FLAGS: u32 = 0xe000;
    let mut mode = 0u32;
    // SAFETY: the kernel writes one number.
    let asked = check(unsafe { syscall6(sys::__NR_get_mempolicy, (&raw mut mode) as usize, 0, 0, 0, 0, 0) });
    asked.is_ok() && !NOT_OF_THE_PROGRAM.contains(&(mode & !MODE_FLAGS))
}

/// `mlock2(2)` with `MLOCK_ONFAULT` left out: the whole range is made resident and stays so.
pub fn mlock(addr: *mut u8, len: usize) -> Result<()> {
    // SAFETY: locking changes no contents.
    check(unsafe { syscall4(sys::__NR_mlock2, addr as usize, len, 0, 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::syscall::Errno;

    const LEN: usize = 1 << 16;

    #[test]
    fn discarded_memory_reads_zero() {
        let at = mmap_anonymous(LEN, MAP_NORESERVE).unwrap();
        // SAFETY: `at` was just mapped, is LEN long, and only this test has its address.
        unsafe {
            at.write(1);
            madvise(at, LEN, MADV_DONTNEED).unwrap();
            assert_eq!(at.read(), 0);
            let at = mremap(at, LEN, 2 * LEN, MREMAP_MAYMOVE, core::ptr::null_mut()).unwrap();
            mprotect(at, LEN, PROT_NONE).unwrap();
            munmap(at, 2 * LEN).unwrap();
        }
    }

    #[test]
    fn a_vector_of_ranges_goes_in_one_call() {
        let at = mmap_anonymous(LEN, 0).unwrap();
        // SAFETY: both ranges lie in the mapping just made, which only this test uses.
        unsafe {
            at.write_bytes(1, LEN);
            let two = [Run { addr: at as usize, len: 4096 }, Run { addr: at as usize + 8192, len: 4096 }];
            match process_madvise(&two, MADV_DONTNEED) {
                Ok(bytes) => {
                    assert_eq!(bytes, 8192);
                    assert_eq!([at.read(), at.add(4096).read(), at.add(8192).read()], [0, 1, 0]);
                }
                Err(e) => weir_testing::skip!("process_madvise on oneself says {e}"),
            }
            munmap(at, LEN).unwrap();
        }
    }

    #[test]
    fn errors_come_as_numbers() {
        // SAFETY: an unaligned address is refused before anything happens.
        let ret = unsafe { madvise(core::ptr::without_provenance_mut(1), 4096, MADV_DONTNEED) };
        assert_eq!(ret, Err(Errno::EINVAL));
    }

    #[test]
    fn a_policy_of_the_programs_is_known() {
        assert!(!has_policy());
        let (interleave, nodes) = (3, [1u64]);
        // SAFETY: the policy is this thread's, which is the test's own.
        let set = check(unsafe { syscall3(sys::__NR_set_mempolicy, interleave, nodes.as_ptr() as usize, 64) });
        // A kernel without NUMA has no policies, and a sandbox may refuse them.
        assert_eq!(has_policy(), set.is_ok());
    }
}
