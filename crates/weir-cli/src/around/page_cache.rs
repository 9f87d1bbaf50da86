//! The page cache of the files that a process has open: memory of the kernel's, which is in no resident set.

use super::mounts::{self, Mount};
use crate::base::json;
use crate::processes::child::{self, ask};
use crate::processes::regular::{self, Regular};
use procfs::process::Process;
use rustix::fs::{fstat, fstatfs};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Descriptors that are looked at, at most.
const DESCRIPTORS: usize = 1024;
/// Remote file systems, by the beginning of their name.
const REMOTE: [&str; 6] = ["fuse", "nfs", "cifs", "smb", "9p", "ceph"];
/// File systems of which the files are memory: tmpfs and hugetlbfs. A memfd is of one of these, and on no mount that is listed.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x9584_58f6];
/// The number of `cachestat(2)` (Linux 6.5 and later) on x86-64.
const CACHESTAT: libc::c_long = 451;
/// Bytes of a file that are mapped at a time, and at most, where its mapping has to be asked.
const MAPPED: (u64, u64) = (1 << 30, 64 << 30);

/// A file and how much of it the kernel keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cached {
    #[serde(serialize_with = "json::path")]
    pub path: PathBuf,
    pub bytes: u64,
}

/// The open files of a process that are in the page cache, largest first. Empty where the kernel does not tell.
pub fn of_open_files(process: &Process) -> Vec<Cached> {
    let own = Path::new("/proc").join(process.pid().to_string());
    let entries = std::fs::read_dir(own.join("fd")).into_iter().flatten().flatten().take(DESCRIPTORS);
    // Of a process with more mounts than are read it is not known which those are.
    let Some(left_out) = mounts::of(process.pid()).as_deref().map(left_out) else { return Vec::new() };
    // The name is told without the file system.
    let links: Vec<(PathBuf, PathBuf)> = entries
        .filter(|entry| mount_of(&own.join("fdinfo").join(entry.file_name())).is_some_and(|it| !left_out.contains(&it)))
        .filter_map(|entry| Some((entry.path(), entry.path().read_link().ok()?)))
        .collect();
    // A file may be on a mount that the process sees no more, or in layers above one that is remote.
    let asked = RefCell::default();
    let told = child::each(&links, |(_, path)| path.display().to_string(), |(link, _)| of_link(link, &asked));
    // A second child, after a file that did not answer, knows nothing of what the first asked.
    let mut seen = HashSet::new();
    let mut found: Vec<Cached> = links
        .into_iter()
        .zip(told)
        .filter_map(|((_, path), told)| Some((path, told?)))
        .filter(|&(_, (file, bytes))| seen.insert(file) && bytes > 0)
        .map(|(path, (_, bytes))| Cached { path, bytes })
        .collect();
    found.sort_by_key(|file| std::cmp::Reverse(file.bytes));
    found
}

/// The mounts of which no file is looked at. Some are of file systems on which that can wait for a server, or for a program of the
/// process's user. The files of others are memory, and no copy of a disk's.
fn left_out(mounts: &[Mount]) -> HashSet<i32> {
    let is_remote = |mount: &&Mount| REMOTE.iter().any(|start| mount.system.starts_with(start));
    mounts.iter().filter(|mount| is_remote(mount) || mount.is_in_memory()).map(|mount| mount.number).collect()
}

/// The number of the mount that an open file is on.
fn mount_of(information: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(information).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

/// A file by its device and its number.
type FileId = (u64, u64);

/// A file that was not asked yet, and bytes of it in the page cache.
fn of_link(link: &Path, asked: &RefCell<HashSet<FileId>>) -> Option<(FileId, u64)> {
    let found = regular::find(link)?;
    // Memory that a process holds is no copy of a disk's.
    if is_in_memory(&found) {
        return None;
    }
    let stat = ask(|| fstat(&found)).ok()?;
    let id = (stat.st_dev, stat.st_ino);
    if !asked.borrow_mut().insert(id) {
        return None;
    }
    let file = regular::open(&found).map(Regular::into_file)?;
    Some((id, ask(|| cached_bytes(&file))?))
}

fn is_in_memory(found: &OwnedFd) -> bool {
    ask(|| fstatfs(found)).is_ok_and(|system| IN_MEMORY.contains(&system.f_type))
}

/// Bytes of a file that are in the page cache.
fn cached_bytes(file: &File) -> Option<u64> {
    // Of the kernel's `struct cachestat_range`: from the beginning, and 0 for all.
    let range = [0u64; 2];
    // `struct cachestat`: pages in the cache, dirty, being written, evicted, evicted a short time ago.
    let mut pages = [0u64; 5];
    // SAFETY: the kernel reads the two words of the range, and writes at most the five words of the answer.
    let done = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0) };
    match (done, pages[0]) {
        (0, 0) => Some(mapped_bytes(file).unwrap_or(0)),
        (0, pages) => Some(pages * procfs::page_size()),
        _ => None,
    }
}

/// As [`cached_bytes`], by what a mapping of the file says: in an overlay, as containers have, the pages are another file's, and
/// `cachestat` finds none. Only of files of this user's: of others' the kernel says that all is there.
fn mapped_bytes(file: &File) -> Option<u64> {
    let meta = file.metadata().ok()?;
    // SAFETY: takes and changes nothing.
    if meta.uid() != unsafe { libc::geteuid() } {
        return None;
    }
    let (chunk, most) = MAPPED;
    let (end, mut bytes) = (meta.len().min(most), 0);
    for from in (0..end).step_by(chunk as usize) {
        let len = chunk.min(end - from) as usize;
        let mut pages = vec![0u8; len.div_ceil(procfs::page_size() as usize)];
        // SAFETY: a mapping where there is none, which nothing reads; the kernel writes a byte a page of it to `pages`.
        let done = unsafe {
            let (none, fd) = (std::ptr::null_mut(), file.as_raw_fd());
            let at = libc::mmap(none, len, libc::PROT_READ, libc::MAP_SHARED, fd, from as libc::off_t);
            if at == libc::MAP_FAILED {
                return None;
            }
            let done = libc::mincore(at, len, pages.as_mut_ptr());
            libc::munmap(at, len);
            done
        };
        if done != 0 {
            return None;
        }
        bytes += pages.iter().filter(|&&page| page & 1 == 1).count() as u64 * procfs::page_size();
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_on_servers_and_in_memory_are_left_out() {
        let systems = ["ext4", "fuse.sshfs", "nfs4", "tmpfs", "devtmpfs", "ramfs", "overlay"];
        let mount = |(number, system): (i32, &str)| Mount { number, device: (0, number), system: system.into() };
        let mounts: Vec<Mount> = (0..).zip(systems).map(mount).collect();
        assert_eq!(left_out(&mounts), HashSet::from([1, 2, 3, 4, 5]));
    }

    #[test]
    fn a_memfd_is_not_in_the_cache() {
        let memfd = rustix::fs::memfd_create("a_memfd_is_not_in_the_cache", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(memfd);
        file.write_all(&vec![7; 3 << 20]).unwrap();
        let found = of_open_files(&Process::myself().unwrap());
        let named = |cached: &Cached| cached.path.to_string_lossy().contains("a_memfd_is_not_in_the_cache");
        assert!(!found.iter().any(named), "{found:?}");
    }

    #[test]
    fn a_file_just_written_is_in_the_cache_and_counted_once() {
        let own = Process::myself().unwrap();
        // On the disk that this test was built on: files in a tmpfs are another matter.
        let disk = std::env::current_exe().unwrap();
        let mut file = tempfile::NamedTempFile::new_in(disk.parent().unwrap()).unwrap();
        let device = file.as_file().metadata().unwrap().dev();
        let device = (libc::major(device) as i32, libc::minor(device) as i32);
        if mounts::of(own.pid()).unwrap().iter().any(|mount| mount.device == device && mount.is_in_memory()) {
            return weir_testing::skip!("temporary files are in memory");
        }
        file.write_all(&vec![7; 3 << 20]).unwrap();
        if cached_bytes(file.as_file()).is_none() {
            return weir_testing::skip!("this kernel has no cachestat (Linux 6.5 does)");
        }
        let second = File::open(file.path()).unwrap();
        let name = file.path().file_name();
        let found: Vec<_> = of_open_files(&own).into_iter().filter(|it| it.path.file_name() == name).collect();
        assert_eq!(found.iter().map(|it| it.bytes).collect::<Vec<_>>(), [3 << 20]);
        drop(second);
    }
}
