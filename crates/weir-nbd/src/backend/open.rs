//! Opening volumes.

use super::data_map::DataMap;
use super::flush::Flusher;
use super::medium::{ALIGNMENT, Direct, Medium};
use super::volume::{Kind, Volume, Zeroes};
use super::volume_lock::VolumeLock;
use crate::base::Failure;
use crate::base::size::Size;
use crate::buffers::Buffer;
use crate::cache::{BlockCache, FileId};
use crate::io::Inline;
use rustix::fs::{self, FileType, MemfdFlags, Mode, OFlags};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where a volume is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file or a block device. A file that is not there, or is empty, gets `create` bytes, all of them a hole.
    Path { path: PathBuf, create: Option<Size> },
    /// Memory of this size, taken as it is written.
    Memory(Size),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { path, .. } => write!(f, "{}", path.display()),
            Self::Memory(size) => write!(f, "memory:{size}"),
        }
    }
}

impl Source {
    /// It leads to the same bytes, whatever is to be made where nothing is.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Path { path, .. }, Self::Path { path: other, .. }) => path == other,
            _ => self == other,
        }
    }

    /// Descriptors that it needs at most.
    pub fn descriptors(&self) -> usize {
        match self {
            // The file, and the same for direct I/O.
            Self::Path { .. } => 2,
            Self::Memory(_) => 1,
        }
    }

    /// Opens it. Files and block devices use `cache`, if there is one; memory has nothing to gain by it.
    pub fn open(&self, read_only: bool, cache: Option<&Arc<BlockCache>>) -> Result<Volume, Failure> {
        match self {
            Self::Path { path, create } => {
                self.check_type()?;
                let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
                let flags = access | OFlags::CLOEXEC;
                let opened = match (fs::open(path, flags, Mode::empty()), create) {
                    (Err(rustix::io::Errno::NOENT), Some(size)) => {
                        create_file(path, OFlags::CREATE | OFlags::EXCL, size.0)
                    }
                    (Ok(file), Some(size)) if matches!(Volume::inspect(&file), Ok((_, Kind::File, 0))) => {
                        create_file(path, OFlags::empty(), size.0)
                    }
                    (opened, _) => opened,
                };
                let opened = opened.map_err(Failure::because(self));
                Volume::new(opened?, read_only, cache, self).map_err(Failure::because(self))
            }
            Self::Memory(size) => {
                let file = fs::memfd_create("weir-nbd", MemfdFlags::CLOEXEC).map_err(Failure::because(self))?;
                fs::ftruncate(&file, size.0).map_err(Failure::because(self))?;
                let volume = Volume::new(file, read_only, None, self).map_err(Failure::because(self))?;
                Ok(Volume { kind: Kind::Memory, ..volume })
            }
        }
    }

    /// Before it is opened: that of a pipe would wait for its other end.
    fn check_type(&self) -> Result<(), Failure> {
        let Self::Path { path, .. } = self else { return Ok(()) };
        match fs::stat(path).map(|found| FileType::from_raw_mode(found.st_mode)) {
            // The error of opening it says more.
            Err(_) | Ok(FileType::RegularFile | FileType::BlockDevice) => Ok(()),
            Ok(_) => Err(Failure::new(format!("{self}: neither a file nor a block device"))),
        }
    }
}

/// Makes a file of `size` bytes, also of the empty one that a start has left which ended in the midst of this. A link to nothing is
/// no place for one: what it leads to may be mounted later. A power cut leaves
/// it and its name: what is written to it later may be flushed, and its clients rely on that.
fn create_file(path: &Path, how: OFlags, size: u64) -> rustix::io::Result<OwnedFd> {
    // For writing, also where it will only be read: it gets its size through this.
    let file = fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | how, Mode::RUSR | Mode::WUSR)?;
    // Another program may have filled it meanwhile.
    if fs::fstat(&file)?.st_size == 0 {
        fs::ftruncate(&file, size)?;
        fs::fsync(&file)?;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let opened = fs::open(folder, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty());
    if let Err(why) = opened.and_then(fs::fsync) {
        // Not every file system does that, and not every folder can be read.
        tracing::warn!("{}: a power cut may take its name: {why}", path.display());
    }
    Ok(file)
}

impl Volume {
    /// The volume of a file that was opened as `source`.
    fn new(file: OwnedFd, read_only: bool, cache: Option<&Arc<BlockCache>>, source: &Source) -> Result<Self, Failure> {
        let file = Arc::new(file);
        let unknown = Failure::because::<rustix::io::Errno>("its size");
        let (found, kind, size) = Self::inspect(&file).map_err(unknown)?;
        // `st_blocks` counts units of 512 bytes on every file system.
        let is_sparse = (found.st_blocks as u64) < size.div_ceil(512);
        let data = (kind == Kind::File).then(|| Arc::new(DataMap::new(size, !is_sparse)));
        let inline = Inline::probe(&file);
        let id = identity(&found);
        // A file that is in memory is not copied there once more.
        let cached = cache.filter(|_| inline != Inline::Always).map(|cache| cache.file(id));
        // Others can open a path too.
        let (writes, is_alone) = (!read_only, cached.is_some());
        let takes_lock = matches!(source, Source::Path { .. }) && (writes || is_alone);
        let lock = takes_lock.then(|| VolumeLock::take(&file, id, source, writes, is_alone)).transpose()?;
        let direct = cached.as_ref().and_then(|cached| {
            let direct = Arc::new(open_direct(&file, read_only)?);
            Some(Direct { file: direct, turns: cached.turns().clone() })
        });
        let medium = Arc::new(Medium { file, direct, inline, _lock: lock.flatten() });
        // Dirty blocks of this file are another export's: its flusher writes them, and this file cannot be written.
        let written_back = cached.clone().filter(|_| !read_only);
        let flusher = Arc::new(Flusher::new(medium.clone(), written_back, id));
        if flusher.failed().is_some() {
            tracing::warn!("{source}: a flush of it has failed, and every one will until the server is started anew");
        }
        let known = cached.as_ref().map_or_else(Arc::<AtomicU64>::default, |cached| cached.size().clone());
        known.fetch_max(size, Relaxed);
        Ok(Self { medium, cached, kind, size: known, read_only, data, flusher })
    }

    /// The source's path leads to another file by now: who opens it anew gets that one. Where nothing is found, it does not.
    pub fn is_replaced(&self, source: &Source) -> bool {
        let Source::Path { path, .. } = source else { return false };
        match (fs::stat(path), fs::fstat(&self.medium.file)) {
            (Ok(there), Ok(open)) => identity(&there) != identity(&open),
            _ => false,
        }
    }

    /// Finds what the file is, and how large.
    fn inspect(file: &OwnedFd) -> rustix::io::Result<(fs::Stat, Kind, u64)> {
        let found = fs::fstat(file)?;
        let (kind, size) = match FileType::from_raw_mode(found.st_mode) {
            FileType::BlockDevice => {
                let sector = fs::ioctl_blksszget(file)?;
                let zeroes = zeroes_of(found.st_rdev);
                (Kind::BlockDevice { sector, zeroes }, fs::seek(file, fs::SeekFrom::End(0))?)
            }
            _ => (Kind::File, found.st_size as u64),
        };
        Ok((found, kind, size))
    }
}

/// How the block device, or the one that it is a partition of, makes zeroes. Where nothing says that it has a command, it has none.
/// Linux before 6.17 does not say whether that is fast: there it is taken to be.
fn zeroes_of(device: u64) -> Zeroes {
    let of_it = format!("/sys/dev/block/{}:{}", fs::major(device), fs::minor(device));
    let can = |what: &str| {
        let most = |queue| std::fs::read_to_string(format!("{of_it}/{queue}/{what}")).ok();
        most("queue").or_else(|| most("../queue")).map(|most| most.trim() != "0")
    };
    match (can("write_zeroes_max_bytes"), can("write_zeroes_unmap_max_bytes")) {
        (Some(true), Some(false)) => Zeroes::ByCommand,
        (Some(true), _) => Zeroes::Fast,
        _ => Zeroes::AsData,
    }
}

pub(super) fn identity(found: &fs::Stat) -> FileId {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::BlockDevice => FileId { device: found.st_rdev, inode: None },
        _ => FileId { device: found.st_dev, inode: Some(found.st_ino) },
    }
}

/// Opens the file again, for direct I/O: what the server's own cache has needs no place in the kernel's. None where
/// the file system cannot do that.
fn open_direct(file: &OwnedFd, read_only: bool) -> Option<OwnedFd> {
    let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let direct = fs::open(path, access | OFlags::CLOEXEC | OFlags::DIRECT, Mode::empty()).ok()?;
    // Some file systems refuse only the reads, or need more alignment.
    let mut block = Buffer::zeroes(ALIGNMENT as usize).ok()?;
    rustix::io::pread(&direct, block.filled_mut(), 0).ok()?;
    Some(direct)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_no_place_for_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let [link, other] = ["link", "other"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink(&other, &link).expect("a link");
        let source = Source::Path { path: link, create: Some(Size(1 << 20)) };
        assert!(source.open(false, None).is_err());
        assert!(!other.exists());
    }
}
