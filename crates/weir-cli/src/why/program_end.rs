//! Where the variables of a program or library end: what the kernel maps behind its file is merged with a mapping that happens to
//! follow.

use crate::processes::child::{self, ask};
use crate::processes::regular;
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use procfs::process::{MMapPath, MemoryMap};
use rustix::fs::fstat;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Program headers that are looked at: linkers write some ten.
const SEGMENTS: usize = 64;
const PAGE: u64 = 4096;

/// The ends of the variables of the files of which these are parts. A child reads the files.
pub fn of_each(pid: i32, maps: &[MemoryMap]) -> Vec<Option<u64>> {
    let name = |map: &MemoryMap| match &map.pathname {
        MMapPath::Path(path) => path.display().to_string(),
        _ => String::new(),
    };
    child::each(maps, name, |map| of(pid, map))
}

/// The end of the variables of the file of which `map` is a part, in addresses of the process; `None`: the file cannot be read, or
/// does not say.
fn of(pid: i32, map: &MemoryMap) -> Option<u64> {
    let MMapPath::Path(path) = &map.pathname else { return None };
    // In another mount namespace the name may be another file's, or none. The kernel lets root alone follow the link.
    let is_it = |found: &OwnedFd| ask(|| fstat(found)).is_ok_and(|stat| stat.st_ino == map.inode);
    let link = || regular::find(Path::new(&format!("/proc/{pid}/map_files/{:x}-{:x}", map.address.0, map.address.1)));
    let found = regular::find(path).filter(is_it).or_else(|| link().filter(is_it))?;
    let data = ReadCache::new(regular::open(&found)?);
    let header = FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &data).ok()?.iter().take(SEGMENTS);
    // A page of the file may have the end of one segment and the beginning of the next.
    segments.filter(|segment| segment.p_type(endian) == PT_LOAD).filter_map(|segment| end(segment, endian, map)).max()
}

/// The end in memory of a segment of which `map` is a part.
fn end(
    segment: &impl ProgramHeader<Endian = Endianness, Word = u64>,
    endian: Endianness,
    map: &MemoryMap,
) -> Option<u64> {
    let (offset, in_file) = (segment.p_offset(endian), segment.p_filesz(endian));
    let is_of = (offset & !(PAGE - 1)..offset.checked_add(in_file)?).contains(&map.offset);
    // `map` begins less than a page before the segment, or inside.
    let begin = map.address.0.wrapping_add(offset).wrapping_sub(map.offset);
    is_of.then(|| begin.wrapping_add(segment.p_memsz(endian))).and_then(|end| end.checked_next_multiple_of(PAGE))
}

#[cfg(test)]
mod tests {
    use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};
    use std::hint::black_box;
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    #[test]
    fn the_variables_of_a_program_end_behind_the_last_of_them() {
        static LARGE: [AtomicU8; 1 << 20] = [const { AtomicU8::new(0) }; 1 << 20];
        black_box(&LARGE).iter().step_by(4096).for_each(|byte| byte.store(1, Relaxed));
        let (begin, end) = (LARGE.as_ptr().addr() as u64, LARGE.as_ptr_range().end.addr() as u64);
        let maps = Process::myself().unwrap().maps().unwrap();
        let before = maps.iter().filter(|map| map.address.0 <= begin && map.perms.contains(MMPermissions::WRITE));
        let before: Vec<_> = before.cloned().collect();
        let pid = std::process::id() as i32;
        let found = before.iter().filter_map(|map| super::of(pid, map)).max().expect("the program's own file");
        assert!((end..end + (1 << 20)).contains(&found), "{found:x} for {begin:x} to {end:x}");
        if std::fs::read_dir("/proc/self/map_files").unwrap().flatten().any(|link| link.metadata().is_err()) {
            return weir_testing::skip!("only root follows a mapping to its file");
        }
        // As a container has them, of which the names are none here.
        let unnamed = |map: MemoryMap| match map.pathname {
            MMapPath::Path(_) => MemoryMap { pathname: MMapPath::Path("/no/such".into()), ..map },
            _ => map,
        };
        let of_container = before.into_iter().map(unnamed).filter_map(|map| super::of(pid, &map)).max();
        assert_eq!(of_container, Some(found));
    }
}
