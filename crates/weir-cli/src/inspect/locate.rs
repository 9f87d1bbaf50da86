//! Where a process's page of statistics lies.
//!
//! A process with a background thread has it in a memfd, of which the mapping's name says that it is there. The thread has
//! the file open, in a descriptor table of its own: `/proc/PID/task/TID/fd/N`. Under `weir run` the file is that of
//! `weir run`. Without either the page is in the data of the library, or of a program that has Weir built in. It is recognised
//! by its first words.

use super::memory_reader;
use crate::processes::regular::{self, Regular};
use memchr::memmem;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, MemoryMaps, Process};
use rustix::fs::{AtFlags, MemfdFlags, StatxFlags, memfd_create};
use std::fs::File;
use std::io::{self, BufRead};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The file of a process's own, as it is mapped.
const OWN: &str = "memfd:weir-page (deleted)";
/// The file of `weir run`, as it is mapped.
pub const OF_RUN: &str = crate::processes::stats_file::NAME_IN_MAPS;
/// Threads with the name of Weir's that are looked at, and descriptors of each: Weir has one, with less than 32. A process may
/// have any number of both, to keep who looks at it busy.
const MOST_THREADS: usize = 4;
const MOST_DESCRIPTORS: usize = 256;
/// Files that are open at the same time at most while a shared page is looked for: two directories, and the file twice.
pub const FILES: usize = 4;
/// The name of the background thread.
const THREAD: &str = "weir";

/// The names by which a process is known to have Weir.
const NAMES: [&[u8]; 2] = [b"/libweir", b"/memfd:weir-"];
/// Bytes of the lines of a `maps` file that [`lines`] takes at most: some hundred. A process may have any number of them.
const MOST_LINES: usize = 16 << 10;

/// Whether the text of a `maps` file has a name of Weir's in it.
pub fn names_weir(maps: &[u8]) -> bool {
    NAMES.iter().any(|name| memmem::find(maps, name).is_some())
}

/// The lines of a `maps` file that tell where the page is: those of Weir's files and of the program's own, and what follows them
/// without a name. Who looks at many processes, or for long, holds no more of each: a process may have 65,530 mappings.
pub fn lines(mut maps: impl BufRead, program: Option<&Path>) -> io::Result<Vec<u8>> {
    let program = program.map(|program| program.as_os_str().as_bytes());
    let (mut lines, mut line, mut is_ours) = (Vec::new(), Vec::new(), false);
    while maps.read_until(b'\n', &mut line)? > 0 {
        let has_name = line.contains(&b'/') || line.contains(&b'[');
        let is_named = || names_weir(&line) || program.is_some_and(|program| line.trim_ascii_end().ends_with(program));
        is_ours = if has_name { is_named() } else { is_ours };
        if is_ours && lines.len() + line.len() <= MOST_LINES {
            lines.append(&mut line);
        }
        line.clear();
    }
    Ok(lines)
}

/// A shared mapping that holds the page.
pub struct SharedPage {
    /// Where it begins in the process.
    pub address: u64,
    offset: u64,
    inode: u64,
    is_own: bool,
}

/// The mapping of the page, if it is shared.
pub fn shared_page(maps: &MemoryMaps) -> Option<SharedPage> {
    maps.iter().find_map(|map| {
        let name = name_of(map)?;
        let is_page = map.perms.contains(MMPermissions::WRITE) && (name == OWN || name == OF_RUN) && is_in_memory(map);
        // The first page of the file of `weir run` hands out the others.
        (is_page && (name == OWN || map.offset > 0)).then(|| SharedPage {
            address: map.address.0,
            offset: map.offset,
            inode: map.inode,
            is_own: name == OWN,
        })
    })
}

impl SharedPage {
    /// Opens the file, if the kernel lets this user; and where the page begins in it.
    pub fn open(&self, process: &Process) -> Option<(File, u64)> {
        let found = if self.is_own { self.in_thread(process) } else { self.in_run(process) };
        found.map(|file| (file, self.offset))
    }

    /// In the descriptor table of the background thread.
    fn in_thread(&self, process: &Process) -> Option<File> {
        let task = PathBuf::from(format!("/proc/{}/task", process.pid()));
        let threads = task.read_dir().ok()?.flatten().map(|entry| entry.path());
        let is_weirs =
            |path: &PathBuf| std::fs::read(path.join("comm")).is_ok_and(|name| name.trim_ascii() == THREAD.as_bytes());
        threads.filter(is_weirs).take(MOST_THREADS).find_map(|thread| self.in_table(&thread.join("fd")))
    }

    fn in_table(&self, table: &Path) -> Option<File> {
        let entries = table.read_dir().ok()?.flatten().take(MOST_DESCRIPTORS).map(|entry| entry.path());
        let is_page =
            |link: &PathBuf| link.read_link().is_ok_and(|to| to.as_os_str().as_bytes().ends_with(OWN.as_bytes()));
        entries.filter(is_page).find_map(|link| self.open_if_same(&link))
    }

    /// Where the process's environment says.
    fn in_run(&self, process: &Process) -> Option<File> {
        let named = memory_reader::variable(process.pid(), "WEIR_STATS")?;
        // As `weir run` has it: a path of the process's own choice may lead to a server that never answers.
        let (pid, number) = named.to_str()?.strip_prefix("/proc/")?.split_once("/fd/")?;
        let (pid, number) = (pid.parse::<u32>().ok()?, number.parse::<u32>().ok()?);
        let link = PathBuf::from(format!("/proc/{pid}/fd/{number}"));
        let is_memfd = link.read_link().is_ok_and(|to| to.as_os_str().as_bytes().ends_with(OF_RUN.as_bytes()));
        is_memfd.then(|| self.open_if_same(&link)).flatten()
    }

    /// The environment and the names of descriptors are the process's to choose, and root may look at it. So what is there is
    /// opened only once it is known to be that file.
    fn open_if_same(&self, path: &Path) -> Option<File> {
        let found = regular::find(path)?;
        // A file system in user space is not asked: it may never answer.
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(&found, "", how, StatxFlags::BASIC_STATS).ok()?;
        let device = (stat.stx_dev_major as i32, stat.stx_dev_minor as i32);
        let is_it = stat.stx_nlink == 0 && stat.stx_ino == self.inode && memfd_device() == Some(device);
        is_it.then(|| regular::open(&found)).flatten().map(Regular::into_file)
    }
}

/// The places where the page may begin in a process that does not share it. These are the pages of its library's data, or of
/// the program's own.
pub fn private_ranges(maps: &MemoryMaps, program: Option<&Path>) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let (mut is_ours, mut end) = (false, 0);
    for map in maps.iter() {
        match &map.pathname {
            MMapPath::Path(path) => is_ours = is_library(path) || program.is_some_and(|program| program == path),
            // What follows the data of a file at once, without a name, is the part of it that is zero at first. Looking at
            // other memory of the program's would make page tables for it.
            MMapPath::Anonymous if map.address.0 == end => {}
            _ => is_ours = false,
        }
        end = map.address.1;
        if is_ours && map.perms.contains(MMPermissions::WRITE) {
            ranges.push(map.address);
        }
    }
    ranges
}

/// The path of Weir's library in the mappings, if it is there.
pub fn library(maps: &MemoryMaps) -> Option<PathBuf> {
    maps.iter().find_map(|map| match &map.pathname {
        MMapPath::Path(path) if is_library(path) => Some(path.clone()),
        _ => None,
    })
}

/// Whether a mapped file is Weir's library, under any name that it is installed by.
fn is_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libweir.so"))
}

/// Whether it maps a memfd. Another file system may have a file of the same name, and let who reads the memory wait for ever.
fn is_in_memory(map: &MemoryMap) -> bool {
    memfd_device() == Some(map.dev)
}

/// The file system that memfds are in. Who looks at many processes asks first: later there may be too many files open for it.
pub fn memfd_device() -> Option<(i32, i32)> {
    static DEVICE: OnceLock<(i32, i32)> = OnceLock::new();
    let find = || {
        let file = memfd_create("weir", MemfdFlags::CLOEXEC).ok()?;
        let device = rustix::fs::fstat(file).ok()?.st_dev;
        Some((rustix::fs::major(device) as i32, rustix::fs::minor(device) as i32))
    };
    // Where it is not to be had now, it may be later.
    DEVICE.get().copied().or_else(|| find().map(|found| *DEVICE.get_or_init(|| found)))
}

fn name_of(map: &MemoryMap) -> Option<&str> {
    match &map.pathname {
        MMapPath::Path(path) => path.file_name()?.to_str(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_private_page_is_looked_for_in_the_data_of_the_library_alone() {
        let maps = "\
            10000-11000 rw-p 00000000 08:01 5    /bin/program\n\
            20000-30000 rw-p 00000000 00:00 0 \n\
            40000-41000 r-xp 00000000 08:01 6    /lib/libweir.so.0.1.0\n\
            41000-43000 rw-p 00001000 08:01 6    /lib/libweir.so.0.1.0\n\
            43000-45000 rw-p 00000000 00:00 0 \n\
            45000-46000 rw-p 00000000 00:00 0 \n\
            47000-99000 rw-p 00000000 00:00 0 \n\
            a0000-a1000 rw-p 00001000 08:01 7    /lib/libc.so.6\n\
            a1000-a2000 rw-p 00000000 00:00 0 \n";
        let maps = MemoryMaps::from_buf_read(maps.as_bytes()).unwrap();
        let of_library = [(0x41000, 0x43000), (0x43000, 0x45000), (0x45000, 0x46000)];
        assert_eq!(private_ranges(&maps, None), of_library);
        assert_eq!(private_ranges(&maps, Some(Path::new("/bin/program")))[0], (0x10000, 0x11000));
        assert_eq!(library(&maps).as_deref(), Some(Path::new("/lib/libweir.so.0.1.0")));
    }

    #[test]
    fn of_many_mappings_those_that_tell_of_the_page_are_held() {
        let named = "\
            10000-11000 rw-p 00000000 08:01 5    /bin/program\n\
            20000-30000 rw-p 00000000 00:00 0 \n";
        let ours = "\
            41000-43000 rw-p 00001000 08:01 6    /lib/libweir.so.0.1.0\n\
            43000-45000 rw-p 00000000 00:00 0 \n\
            50000-51000 rw-s 00001000 00:01 9    /memfd:weir-page (deleted)\n";
        let heap = "60000-61000 rw-p 00000000 00:00 0    [heap]\n62000-63000 rw-p 00000000 00:00 0 \n".repeat(30000);
        let text = [named, ours, &heap].concat();
        assert!(names_weir(text.as_bytes()) && !names_weir(named.as_bytes()));
        let lines = |text: &str, program: Option<&str>| {
            String::from_utf8(lines(text.as_bytes(), program.map(Path::new)).unwrap()).unwrap()
        };
        assert_eq!(lines(&text, None), ours);
        assert_eq!(lines(&text, Some("/bin/program")), [named, ours].concat());
        assert!((MOST_LINES / 2..=MOST_LINES).contains(&lines(&ours.repeat(30000), None).len()));
    }

    fn page(inode: u64) -> SharedPage {
        SharedPage { address: 0, offset: 0, inode, is_own: false }
    }

    #[test]
    fn only_a_file_without_a_name_is_opened_and_only_the_one_that_is_mapped() {
        let file = File::from(memfd_create("weir-page", MemfdFlags::CLOEXEC).unwrap());
        let inode = file.metadata().unwrap().ino();
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        assert!(page(inode).open_if_same(&path).is_some());
        assert!(page(inode + 1).open_if_same(&path).is_none());
        let dir = tempfile::tempdir().unwrap();
        let (fifo, named) = (dir.path().join("fifo"), dir.path().join(OWN));
        // An `open` of it would wait for a writer.
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::fs::write(&named, [0; 100]).unwrap();
        for path in [fifo, named] {
            assert!(page(path.metadata().unwrap().ino()).open_if_same(&path).is_none());
        }
    }
}
