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
    let whole: Vec<u64> = places.filter(|&at| is_whole(&present, at)).collect();
    let step = whole.len().div_ceil(SAMPLE).max(1);
    let (mut read, mut empty) = (0u64, 0u64);
    let mut content = vec![0; HUGE as usize];
    let begun = Instant::now();
    for &at in whole.iter().step_by(step).take_while(|_| begun.elapsed() < PATIENCE) {
        // A page may have gone since, and another one not be had in time.
        if read_memory(pid, &[at], &mut content).is_ok() {
            read += HUGE;
            empty += content.chunks_exact(PAGE as usize).filter(|page| is_zero(page)).count() as u64 * PAGE;
        }
    }
    (u128::from(mapping.huge) * u128::from(empty) / u128::from(read.max(1))) as u64
}

/// Whether all pages from here are present: reading one that is not would map it.
fn is_whole(pagemap: &File, at: u64) -> bool {
    let mut entries = [0; (HUGE / PAGE * 8) as usize];
    let is_present = |entry: &[u8]| u64::from_ne_bytes(entry.try_into().unwrap_or([0; 8])) & PRESENT != 0;
    pagemap.read_exact_at(&mut entries, at / PAGE * 8).is_ok() && entries.chunks_exact(8).all(is_present)
}

fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|&byte| byte == 0)
}
