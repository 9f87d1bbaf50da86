//! Where the variables of a program or library end: what the kernel maps behind its file is merged with a mapping that happens to
//! follow.

use procfs::process::{MMapPath, MemoryMap};
use std::fs::File;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Bytes of a 64-bit ELF file's header, and of one of its program headers.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
/// Program headers that are looked at: linkers write some ten.
const SEGMENTS: usize = 64;
/// A segment that is mapped (`PT_LOAD`).
const LOAD: u32 = 1;
const PAGE: u64 = 4096;

/// The end of the variables of the file of which `map` is a part, in that process's addresses; `None`: the file cannot be read, or
/// does not say.
pub fn of(map: &MemoryMap) -> Option<u64> {
    let MMapPath::Path(path) = &map.pathname else { return None };
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    // In another mount namespace the name may be another file's.
    let found = file.metadata().ok()?;
    if !found.is_file() || found.st_ino() != map.inode {
        return None;
    }
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).ok()?;
    let is_elf_64 = header.starts_with(b"\x7fELF\x02\x01") && usize::from(half(&header, 0x36)) == SEGMENT;
    let count = usize::from(half(&header, 0x38)).min(SEGMENTS);
    let mut segments = vec![0; count * SEGMENT];
    file.read_exact_at(&mut segments, word(&header, 0x20)).ok()?;
    // A page of the file may have the end of one segment and the beginning of the next.
    segments.chunks(SEGMENT).filter(|_| is_elf_64).filter_map(|segment| end(segment, map)).max()
}

/// The end in memory of a segment of which `map` is a part.
fn end(segment: &[u8], map: &MemoryMap) -> Option<u64> {
    let [offset, in_file, in_memory] = [8, 32, 40].map(|at| word(segment, at));
    let is_of = u32::from_le_bytes(segment[..4].try_into().ok()?) == LOAD
        && (offset & !(PAGE - 1)..offset.checked_add(in_file)?).contains(&map.offset);
    // `map` begins less than a page before the segment, or inside.
    let begin = map.address.0.wrapping_add(offset).wrapping_sub(map.offset);
    is_of.then(|| begin.wrapping_add(in_memory)).and_then(|end| end.checked_next_multiple_of(PAGE))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use procfs::process::{MMPermissions, Process};
    use std::hint::black_box;
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    #[test]
    fn the_variables_of_a_program_end_behind_the_last_of_them() {
        static LARGE: [AtomicU8; 1 << 20] = [const { AtomicU8::new(0) }; 1 << 20];
        black_box(&LARGE).iter().step_by(4096).for_each(|byte| byte.store(1, Relaxed));
        let (begin, end) = (LARGE.as_ptr().addr() as u64, LARGE.as_ptr_range().end.addr() as u64);
        let maps = Process::myself().unwrap().maps().unwrap();
        let before = maps.iter().filter(|map| map.address.0 <= begin && map.perms.contains(MMPermissions::WRITE));
        let found = before.filter_map(super::of).max().expect("the program's own file");
        assert!((end..end + (1 << 20)).contains(&found), "{found:x} for {begin:x} to {end:x}");
    }
}
