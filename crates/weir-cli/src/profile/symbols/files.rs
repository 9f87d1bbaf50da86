//! Opening the files that a process has mapped, wherever it sees them: in a container, or without a name any more.

use super::mappings::Mapping;
use crate::processes::child::ask;
use crate::processes::regular::{self, Regular};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, open, openat2, stat};
use rustix::io::{Errno, Result};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where separate debug information is, by build id and by the file's path: the place that gdb and distributions have for it.
const DEBUG: &str = "/usr/lib/debug";

/// The directory that paths begin at.
#[derive(Clone, Copy, Debug)]
pub enum Files {
    /// The root of a process.
    Of(i32),
    /// The root of this command.
    Own,
}

impl Files {
    /// Whether a name leads to what the process itself sees: it has not ended.
    pub fn are_its(self) -> bool {
        matches!(self, Self::Of(pid) if ask(|| Path::new(&format!("/proc/{pid}/root")).exists()))
    }

    /// The file of a mapping. The kernel tells its name as this command sees it, or where it does not, as the process does.
    pub fn mapped(self, mapping: &Mapping) -> Option<Regular> {
        let by_name = |files: Self| regular::open(&files.find(&mapping.path).filter(|_| !mapping.is_deleted)?);
        let Self::Of(pid) = self else { return by_name(self) };
        let is_it = |file: &Regular| is(file, mapping.inode);
        // The kernel lets root alone follow these; the program itself can be had by anybody who may look into it.
        let range = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
        let links = [range, format!("/proc/{pid}/exe")];
        let by_link = || links.iter().filter_map(|link| regular::open(&regular::find(Path::new(link))?)).find(is_it);
        let named = [self, Self::Own].into_iter().filter_map(by_name).find(is_it);
        // File systems made of layers may tell of a file two numbers.
        named.or_else(by_link).or_else(|| by_name(self))
    }

    /// Debug information that is kept apart from the file with this build id.
    pub fn debug(self, build_id: &[u8]) -> Option<Regular> {
        let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
        let path = PathBuf::from(format!("{DEBUG}/.build-id/{first:02x}/{}.debug", hex(rest)));
        [self, Self::Own].into_iter().find_map(|files| regular::open(&files.find(&path)?))
    }

    /// The file, by its path, with debug information that several files share (`dwz`).
    pub fn common_debug(self, path: &Path) -> Option<Regular> {
        [self, Self::Own].into_iter().find_map(|files| regular::open(&files.find(path)?))
    }

    /// Follows links as the process does: none leads out of its root.
    fn find(self, path: &Path) -> Option<OwnedFd> {
        let Self::Of(pid) = self else { return regular::find(path) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(root) = ask(|| open(format!("/proc/{pid}/root"), flags, Mode::empty())) else {
            // It has ended. Its files are where this command sees them, unless it was in a container.
            return if self.are_its() { None } else { regular::find(path) };
        };
        let call = |root: &OwnedFd, path: &Path| {
            openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
        };
        find_below(&root, path, call)
    }
}

/// What has this name below a root, by a call that keeps links in it. Linux before 5.6 has none, and a filter may refuse it: what
/// has the root of this command is found without.
fn find_below(root: &OwnedFd, path: &Path, call: impl Fn(&OwnedFd, &Path) -> Result<OwnedFd>) -> Option<OwnedFd> {
    match ask(|| call(root, path)) {
        Err(Errno::NOSYS | Errno::PERM) if is_own(root) => regular::find(path),
        found => found.ok(),
    }
}

/// Whether a directory is the root of this command.
fn is_own(root: &OwnedFd) -> bool {
    let place = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    ask(|| fstat(root)).is_ok_and(|root| stat("/").is_ok_and(|own| place(root) == place(own)))
}

/// The digits of a build id.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether it is the file with this number, on any device: the numbers of devices are not the same in a container.
pub fn is(file: &Regular, inode: u64) -> bool {
    file.stat().is_some_and(|stat| stat.st_ino == inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn regular_files_alone_are_opened_and_deleted_ones_by_their_number() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, file) = (dir.path().join("fifo"), dir.path().join("file"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::fs::write(&file, "x").unwrap();
        let own = Files::Of(std::process::id() as i32);
        let mapping = |path: &Path, is_deleted| Mapping { path: path.into(), is_deleted, ..Mapping::default() };
        for files in [own, Files::Own] {
            assert!(files.mapped(&mapping(&file, false)).is_some());
            assert!(files.mapped(&mapping(&fifo, false)).is_none());
            assert!(files.mapped(&mapping(&dir.path().join("none"), false)).is_none());
        }
        // This program, as if it had been replaced since it began.
        let inode = std::env::current_exe().unwrap().metadata().unwrap().ino();
        assert!(own.mapped(&Mapping { inode, ..mapping(&file, true) }).is_some());
        assert!(own.mapped(&Mapping { inode: inode + 1, ..mapping(&file, true) }).is_none());
    }

    /// A child, which ends with the test.
    struct Child(i32);

    impl Drop for Child {
        fn drop(&mut self) {
            // SAFETY: ends a child that was not waited for.
            unsafe {
                libc::kill(self.0, libc::SIGKILL);
                libc::waitpid(self.0, std::ptr::null_mut(), 0);
            }
        }
    }

    /// The process has another file of that name below its root.
    #[test]
    fn the_file_of_a_process_with_another_root_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let decoy = dir.path().join(own.strip_prefix("/").unwrap());
        std::fs::create_dir_all(decoy.parent().unwrap()).unwrap();
        std::fs::write(decoy, "x").unwrap();
        let root = std::ffi::CString::new(dir.path().as_os_str().as_bytes()).unwrap();
        // SAFETY: the child makes two system calls and waits for its end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: system calls on what its parent had.
            unsafe {
                if libc::chroot(root.as_ptr()) == 0 {
                    libc::pause();
                }
                libc::_exit(1)
            }
        }
        assert!(child > 0, "no child can be made");
        let _child = Child(child);
        // The kernel tells it without links.
        let path = dir.path().canonicalize().unwrap();
        let is_there = || std::fs::read_link(format!("/proc/{child}/root")).is_ok_and(|at| at == path);
        let has_ended =
            || std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| stat.contains(") Z "));
        weir_testing::wait_until("the child's other root", || is_there() || has_ended());
        let is_allowed = is_there();
        let mapping = Mapping { inode: own.metadata().unwrap().ino(), path: own, ..Mapping::default() };
        let found = Files::Of(child).mapped(&mapping).map(|file| is(&file, mapping.inode));
        if !is_allowed {
            return weir_testing::skip!("only root gives a process another root");
        }
        assert_eq!(found, Some(true));
    }

    #[test]
    fn without_the_call_that_keeps_links_below_a_root_files_of_the_own_root_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let root = |path: &Path| open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let finds = |at: &Path, error| find_below(&root(at), &file, |_, _| Err(error)).is_some();
        let own = Path::new("/");
        assert_eq!([Errno::NOSYS, Errno::PERM, Errno::NOENT].map(|error| finds(own, error)), [true, true, false]);
        // A container's root is another, and below it there may be another file of that name.
        assert!(!finds(dir.path(), Errno::NOSYS));
    }
}
