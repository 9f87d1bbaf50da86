//! Empty pages in huge pages, beyond what the program wrote: pages of 4 KiB inside them that are all zeros.
//!
//! The kernel fills a huge page with zeros at the first touch of any of its 512 pages. All of it is resident from
//! then on. It cannot say which of them were written since. But a page without a byte other than zero hardly was.

use super::mappings::Mapping;
use crate::inspect::memory_reader::{PATIENCE, read_memory};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
/// Huge pages that are read at most, spread evenly: 64 MiB are read in some 20 ms.
const SAMPLE: usize = 32;
/// Places that are looked at for huge pages at most, in a mapping of which little may be resident.
const PLACES: u64 = 1 << 16;
/// A page is present, in an entry of `/proc/PID/pagemap`.
const PRESENT: u64 = 1 << 63;
/// It is mapped once. The kernel's huge page of zeros, which a read maps where nothing was written, never is.
const EXCLUSIVE: u64 = 1 << 56;

/// Estimated bytes of a mapping's huge pages that were never written.
pub fn empty_bytes(pid: i32, mapping: &Mapping) -> u64 {
    // Where only a part of it is in huge pages, the kernel does not tell which.
    if mapping.huge < HUGE || mapping.huge * 10 < mapping.resident * 9 {
        return 0;
    }
    let Ok(present) = File::open(format!("/proc/{pid}/pagemap")) else { return 0 };
    let first = mapping.address.0.next_multiple_of(HUGE);
    let places = mapping.address.1.saturating_sub(first) / HUGE;
    let apart = places.div_ceil(PLACES).max(1);
    let places = (0..places).step_by(apart as usize).map(|place| first + place * HUGE);
    let whole: Vec<(u64, bool)> = places.filter_map(|at| Some((at, is_exclusive(&present, at)?))).collect();
    let step = whole.len().div_ceil(SAMPLE).max(1);
    let (mut read, mut empty) = (0u64, 0u64);
    let mut content = vec![0; HUGE as usize];
    let begun = Instant::now();
    for &(at, is_exclusive) in whole.iter().step_by(step).take_while(|_| begun.elapsed() < PATIENCE) {
        // A page may have gone since, and another one not be had in time.
        if read_memory(pid, &[at], &mut content).is_err() {
            continue;
        }
        let zeros = content.chunks_exact(PAGE as usize).filter(|page| is_zero(page)).count() as u64 * PAGE;
        // The page of zeros is no memory of this process. The read above maps it, too, where a page has just gone.
        if is_exclusive || zeros < HUGE {
            read += HUGE;
            empty += zeros;
        }
    }
    (u128::from(mapping.huge) * u128::from(empty) / u128::from(read.max(1))) as u64
}

/// Whether all pages from here are mapped once; none if not all are present: reading one that is not would map it.
fn is_exclusive(pagemap: &File, at: u64) -> Option<bool> {
    let mut entries = [0; (HUGE / PAGE * 8) as usize];
    pagemap.read_exact_at(&mut entries, at / PAGE * 8).ok()?;
    let entries = entries.chunks_exact(8).map(|entry| u64::from_ne_bytes(entry.try_into().unwrap_or([0; 8])));
    let common = entries.fold(u64::MAX, |common, entry| common & entry);
    (common & PRESENT != 0).then_some(common & EXCLUSIVE != 0)
}

fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::mappings::Kind;

    #[test]
    fn what_was_only_read_is_no_memory_of_the_process() {
        const LENGTH: u64 = 4 * HUGE;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let begin = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LENGTH as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(begin, libc::MAP_FAILED);
        let first = (begin.addr() as u64).next_multiple_of(HUGE);
        let place = |index: u64| begin.with_addr((first + index * HUGE) as usize).cast::<u8>();
        // SAFETY: three huge pages from the first place on lie in the mapping, of which nobody else knows.
        unsafe {
            libc::madvise(place(0).cast(), 3 * HUGE as usize, libc::MADV_HUGEPAGE);
            place(0).write_bytes(1, HUGE as usize);
            assert_eq!(place(1).read_volatile(), 0);
            place(2).write(1);
        }
        let pid = std::process::id() as i32;
        let is_huge =
            File::open("/proc/self/pagemap").is_ok_and(|map| is_exclusive(&map, place(2).addr() as u64) == Some(true));
        let mapping = Mapping {
            kind: Kind::Anonymous,
            address: (begin.addr() as u64, begin.addr() as u64 + LENGTH),
            file: None,
            resident: 2 * HUGE,
            huge: 2 * HUGE,
            locked: 0,
            swapped: 0,
            empty: 0,
        };
        let found = empty_bytes(pid, &mapping);
        // SAFETY: it is not used after this.
        unsafe { libc::munmap(begin, LENGTH as usize) };
        if !is_huge {
            return weir_testing::skip!("the kernel gave no huge pages, or not for all");
        }
        assert_eq!(found, HUGE - PAGE);
    }
}
