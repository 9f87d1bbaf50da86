//! Which pages of the heap have memory that this process has for itself, by the page table (`/proc/thread-self/pagemap`).
//!
//! An entry says of a page whether it is there, and whether another process has it too: a forked child, or the parent. The kernel's
//! merging counts as another. To write to what is shared copies it.

use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES};

use crate::os::fd;
use crate::os::file::own::OwnFile;
use crate::os::rights::sandbox::Sandbox;
use crate::os::syscall::{Errno, Result};

/// Bits of an entry: the page is there; no other process maps it.
const OWN: u64 = 1 << 63 | 1 << 56;
/// Bytes of an entry.
const ENTRY: usize = size_of::<u64>();

/// The pages of `run`, a whole pageblock, that are this process's alone: bit i % 64 of word i / 64 for page i. An error: it cannot
/// be told. For a thread with a descriptor table of its own. The entries are 4 KiB, on that thread's stack alone.
#[inline(never)]
pub(super) fn own_pages(run: Run) -> Result<[u64; PAGEBLOCK_PAGES / 64]> {
    if Sandbox::look()?.is_programs_own() {
        return Err(Errno::EPERM);
    }
    let mut entries = [0u8; PAGEBLOCK_PAGES * ENTRY];
    let file = OwnFile::PAGEMAP.open()?;
    let got = fd::pread(file, &mut entries, (run.addr / PAGE * ENTRY) as u64);
    let _ = fd::close(file);
    if run.len != PAGEBLOCK || got? != entries.len() {
        return Err(Errno::EINVAL);
    }
    let (entries, _) = entries.as_chunks::<ENTRY>();
    let is_own = |entry: &[u8; ENTRY]| u64::from_ne_bytes(*entry) & OWN == OWN;
    let word =
        |entries: &[[u8; ENTRY]]| entries.iter().rev().fold(0, |word, entry| word << 1 | u64::from(is_own(entry)));
    let mut words = [0; PAGEBLOCK_PAGES / 64];
    words.iter_mut().zip(entries.chunks(64)).for_each(|(to, entries)| *to = word(entries));
    Ok(words)
}
