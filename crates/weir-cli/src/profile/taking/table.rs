//! The table of a process's profile, copied out of its memory: the process goes on, and does nothing for it.

use crate::inspect::memory_reader::{MOST_PLACES, read_memory};
use crate::inspect::page::rights;
use crate::profile::data::{Figures, Stack};
use rustix::io::Errno;
use std::collections::HashMap;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use weir_core::profile::layout::{self, FRAMES, Header, MAGIC, PROFILE_BYTES, VERSION};

/// Bytes of a page of Weir's, and how many of them the table is. The kernel's may have 16 or 64 KiB.
const PAGE: u64 = 4096;
const PAGES: u64 = (PROFILE_BYTES as u64).div_ceil(PAGE);
/// Bytes of an entry of `/proc/PID/pagemap`, of a page each; the bits that say that there is one.
const ENTRY: usize = 8;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const _: () = assert!(PROFILE_BYTES.is_multiple_of(PAGE as usize), "a table of whole pages");

/// A copy.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// 0: sampling is off.
    pub mean_bytes: u64,
    /// ns since 1970.
    pub began_ns: u64,
    pub samples: u64,
    pub lost_stacks: u64,
    pub lost_blocks: u64,
    pub stacks: Vec<Stack>,
}

/// The error where no table is found.
const STRANGE: &str = "there is no profile where its statistics say: they were overwritten";

/// Copies the table at `address` of process `pid`; none: it has not sampled yet. Else why it cannot be had.
pub fn read(pid: i32, address: u64) -> Result<Option<Table>, String> {
    if address == 0 {
        return Ok(None);
    }
    if !address.is_multiple_of(PAGE) || address.checked_add(PROFILE_BYTES as u64).is_none() {
        return Err(STRANGE.into());
    }
    let mut bytes = vec![0; PROFILE_BYTES];
    let why = |error: std::io::Error| match Errno::from_io_error(&error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            format!(
                "the kernel keeps its memory from you: {}, or set /proc/sys/kernel/yama/ptrace_scope to 0",
                rights()
            )
        }
        Some(Errno::SRCH) => "it has ended".into(),
        _ if error.kind() == std::io::ErrorKind::TimedOut => "it does not let its memory be read in time".into(),
        _ => STRANGE.into(),
    };
    for batch in written_pages(pid, address).chunks(MOST_PLACES) {
        let addresses: Vec<u64> = batch.iter().map(|page| address + page * PAGE).collect();
        let mut copied = vec![0; batch.len() * PAGE as usize];
        read_memory(pid, &addresses, &mut copied).map_err(why)?;
        for (page, from) in batch.iter().zip(copied.chunks_exact(PAGE as usize)) {
            let at = (page * PAGE) as usize;
            bytes[at..at + from.len()].copy_from_slice(from);
        }
    }
    parse(&bytes).map(Some)
}

/// The pages of the table that the process has written to, by number; the others hold zeros. To read one of those would
/// map it: it would count as resident in the process's figures from then on. Where the kernel does not tell, all of them.
fn written_pages(pid: i32, address: u64) -> Vec<u64> {
    let unit = procfs::page_size();
    let (first, end) = (address / unit, (address + PROFILE_BYTES as u64).div_ceil(unit));
    let mut entries = vec![0; (end - first) as usize * ENTRY];
    let read = std::fs::File::open(format!("/proc/{pid}/pagemap"))
        .and_then(|pagemap| pagemap.read_exact_at(&mut entries, first * ENTRY as u64));
    written(read.is_ok().then_some(&entries), address, unit)
}

/// The same by what the kernel says of each page of `unit` bytes, of its own, that the table lies in.
fn written(entries: Option<&Vec<u8>>, address: u64, unit: u64) -> Vec<u64> {
    let is_there = |entries: &Vec<u8>, page: u64| {
        let entry = (address + page * PAGE) / unit - address / unit;
        word(entries, entry as usize * ENTRY) & (PRESENT | SWAPPED) != 0
    };
    (0..PAGES).filter(|&page| entries.is_none_or(|entries| is_there(entries, page))).collect()
}

fn parse(bytes: &[u8]) -> Result<Table, String> {
    let (header, entries) = bytes.split_at(size_of::<Header>());
    if word(header, offset_of!(Header, magic)) != MAGIC {
        return Err(STRANGE.into());
    }
    // A number of 32 bits, and another beside it.
    let version = word(header, offset_of!(Header, version)) as u32;
    if version != VERSION {
        let why = "use the `weir` of the same release";
        return Err(format!("its profile has version {version}, this command reads {VERSION}: {why}"));
    }
    let of = |at: usize| word(header, at);
    Ok(Table {
        mean_bytes: of(offset_of!(Header, mean_bytes)),
        began_ns: of(offset_of!(Header, began_ns)),
        samples: of(offset_of!(Header, samples)),
        lost_stacks: of(offset_of!(Header, lost_stacks)),
        lost_blocks: of(offset_of!(Header, lost_blocks)),
        stacks: entries.chunks_exact(size_of::<layout::Stack>()).filter_map(stack).collect(),
    })
}

/// An entry that is in use.
fn stack(entry: &[u8]) -> Option<Stack> {
    let depth = word(entry, offset_of!(layout::Stack, depth)).min(FRAMES as u64) as usize;
    let figures = Figures {
        allocated_objects: word(entry, offset_of!(layout::Stack, allocated_objects)),
        allocated_bytes: word(entry, offset_of!(layout::Stack, allocated_bytes)),
        live_objects: word(entry, offset_of!(layout::Stack, live_objects)),
        live_bytes: word(entry, offset_of!(layout::Stack, live_bytes)),
    };
    let frames = (0..depth).map(|i| word(entry, offset_of!(layout::Stack, frames) + i * size_of::<u64>())).collect();
    (depth > 0 && !figures.is_empty()).then_some(Stack { frames, figures, grown_bytes: 0 })
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

/// The stacks of a later table: allocations since the earlier one, and how much more of each is live than then.
pub fn since(before: &Table, after: &Table) -> Vec<Stack> {
    let old: HashMap<&[u64], &Figures> =
        before.stacks.iter().map(|stack| (stack.frames.as_slice(), &stack.figures)).collect();
    let none = Figures::default();
    let change = |stack: &Stack| {
        let (old, new) = (old.get(stack.frames.as_slice()).copied().unwrap_or(&none), &stack.figures);
        let grown = i128::from(new.live_bytes) - i128::from(old.live_bytes);
        Stack {
            frames: stack.frames.clone(),
            figures: Figures {
                allocated_objects: new.allocated_objects.saturating_sub(old.allocated_objects),
                allocated_bytes: new.allocated_bytes.saturating_sub(old.allocated_bytes),
                ..*new
            },
            grown_bytes: grown.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
        }
    };
    after.stacks.iter().map(change).filter(|stack| !stack.figures.is_empty() || stack.grown_bytes != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bytes: &mut [u8], at: usize, value: u64) {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    fn stack_of(frames: &[u64], figures: [u64; 4]) -> Stack {
        let [allocated_objects, allocated_bytes, live_objects, live_bytes] = figures;
        let figures = Figures { allocated_objects, allocated_bytes, live_objects, live_bytes };
        Stack { frames: frames.to_vec(), figures, grown_bytes: 0 }
    }

    #[test]
    fn entries_in_use_are_read_and_no_others() {
        let mut bytes = vec![0; PROFILE_BYTES];
        assert_eq!(parse(&bytes).err().as_deref(), Some(STRANGE));
        set(&mut bytes, 0, MAGIC);
        assert!(parse(&bytes).unwrap_err().starts_with("its profile has version 0, "));
        set(&mut bytes, offset_of!(Header, version), u64::from(VERSION) | 7 << 32);
        set(&mut bytes, offset_of!(Header, mean_bytes), 1 << 19);
        let entry = |number: usize| size_of::<Header>() + number * size_of::<layout::Stack>();
        for (number, depth) in [(5, 2), (6, 0), (7, 1 << 40)] {
            set(&mut bytes, entry(number) + offset_of!(layout::Stack, depth), depth);
            set(&mut bytes, entry(number) + offset_of!(layout::Stack, live_bytes), 100 + number as u64);
            set(&mut bytes, entry(number) + offset_of!(layout::Stack, frames) + 8, 0xabc);
        }
        let table = parse(&bytes).unwrap();
        assert_eq!((table.mean_bytes, table.stacks.len()), (1 << 19, 2));
        assert_eq!(table.stacks[0], stack_of(&[0, 0xabc], [0, 0, 0, 105]));
        assert_eq!(table.stacks[1].frames.len(), FRAMES);
    }

    #[test]
    fn a_page_of_the_kernels_may_be_several_of_the_tables() {
        let mut entries = vec![0; 2048 * ENTRY];
        set(&mut entries, 0, PRESENT);
        set(&mut entries, 2 * ENTRY, SWAPPED);
        assert_eq!(written(Some(&vec![0; PAGES as usize * ENTRY]), 1 << 30, PAGE), [0; 0]);
        assert_eq!(written(None, 1 << 30, PAGE).len(), PAGES as usize);
        assert_eq!(written(Some(&entries), 1 << 30, 16 << 10), [0, 1, 2, 3, 8, 9, 10, 11]);
        // A table that begins inside a page of the kernel's.
        assert_eq!(written(Some(&entries), (1 << 30) + 3 * PAGE, 16 << 10), [0, 5, 6, 7, 8]);
    }

    #[test]
    fn a_difference_is_what_was_allocated_since_and_what_grew() {
        let table = |stacks: &[Stack]| Table { stacks: stacks.to_vec(), ..Table::default() };
        let before = table(&[stack_of(&[1, 2], [10, 1000, 4, 400]), stack_of(&[3], [1, 10, 1, 10])]);
        let after = table(&[stack_of(&[1, 2], [15, 1500, 3, 300]), stack_of(&[4], [1, 70, 1, 70])]);
        let [first, second] = since(&before, &after).try_into().unwrap();
        assert_eq!(first, Stack { grown_bytes: -100, ..stack_of(&[1, 2], [5, 500, 3, 300]) });
        assert_eq!(second, Stack { grown_bytes: 70, ..stack_of(&[4], [1, 70, 1, 70]) });
        let wild = table(&[stack_of(&[1, 2], [0, 0, 0, u64::MAX])]);
        assert_eq!(since(&before, &wild)[0].grown_bytes, i64::MAX);
    }
}
