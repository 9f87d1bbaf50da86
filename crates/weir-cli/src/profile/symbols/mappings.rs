//! The executable mappings of a process: the files that its call stacks lead through.

use procfs::process::{MMPermissions, MMapPath, MemoryMap, MemoryMaps};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The words that the kernel writes behind the name of a file that has none any more.
const DELETED: &[u8] = b" (deleted)";

/// An executable mapping of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Where it begins in the file.
    pub offset: u64,
    pub inode: u64,
    pub path: PathBuf,
    /// Whether the file was removed or replaced since it was mapped.
    pub is_deleted: bool,
}

impl Mapping {
    /// The file's name without its folder.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(|| "?".into(), |name| name.to_string_lossy().into_owned())
    }

    /// Where in the file an address is.
    pub fn file_offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.offset)
    }
}

/// The executable mappings of files, by address.
pub fn executable(maps: &MemoryMaps) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = maps.iter().filter_map(of).collect();
    found.sort_by_key(|mapping| mapping.start);
    found
}

/// Which of them an address is in.
pub fn find(mappings: &[Mapping], address: u64) -> Option<usize> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    let at = after.checked_sub(1)?;
    (address < mappings[at].end).then_some(at)
}

fn of(map: &MemoryMap) -> Option<Mapping> {
    let MMapPath::Path(path) = &map.pathname else { return None };
    if !map.perms.contains(MMPermissions::EXECUTE) {
        return None;
    }
    let bytes = path.as_os_str().as_bytes();
    let living = bytes.strip_suffix(DELETED);
    Some(Mapping {
        start: map.address.0,
        end: map.address.1,
        offset: map.offset,
        inode: map.inode,
        path: living.map_or_else(|| path.clone(), |bytes| std::ffi::OsStr::from_bytes(bytes).into()),
        is_deleted: living.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;

    #[test]
    fn an_address_leads_to_its_file_and_the_place_in_it() {
        let maps = "\
            10000-11000 r--p 00000000 08:01 5    /bin/program\n\
            11000-13000 r-xp 00001000 08:01 5    /bin/program\n\
            13000-14000 rw-p 00003000 08:01 5    /bin/program\n\
            40000-41000 r-xp 00000000 08:01 6    /lib/old.so (deleted)\n\
            50000-51000 r-xp 00000000 00:00 0 \n\
            60000-61000 r-xp 00000000 00:00 0    [vdso]\n";
        let found = executable(&MemoryMaps::from_buf_read(maps.as_bytes()).unwrap());
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].name().as_str(), found[0].is_deleted), ("program", false));
        assert_eq!((found[1].name().as_str(), found[1].is_deleted), ("old.so", true));
        let places = [0x10fff, 0x11000, 0x12fff, 0x13000, 0x40000, 0x50000, u64::MAX];
        assert_eq!(places.map(|place| find(&found, place)), [None, Some(0), Some(0), None, Some(1), None, None]);
        assert_eq!(found[0].file_offset(0x11010), 0x1010);
    }
}
