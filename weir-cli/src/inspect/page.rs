//! A process's page of statistics, copied: the process goes on, and does nothing for it.

use super::locate;
use procfs::process::{MemoryMaps, Process};
use procfs::{FromBufRead, ProcError};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::{MAGIC, PAGE_BYTES, Stats, VERSION};
use weir_core::telemetry::tables::{CacheRow, EvictableRow, ZoneRow};

/// How often a copy is made again that has a table which was being written.
const TRIES: usize = 20;
/// Bytes of the kernel's pages: Weir's page of statistics begins at one.
const KERNEL_PAGE: u64 = 4096;
/// Places that are looked at by one call; the kernel takes 1024.
const BATCH: usize = 512;
/// Bytes of a `maps` file that are read at most: 65,530 mappings (`vm.max_map_count`) of files with paths of usual length. A
/// process may have them with paths of any length, which are not to fill the memory of who looks at it.
const MOST_TEXT: u64 = 16 << 20;
/// Bytes of data that are searched at most for a page that is not shared.
const SEARCHED: u64 = 256 << 20;

/// A copy.
pub struct Page(Box<Stats>);

#[cfg(test)]
impl Page {
    /// One of a process that wrote this byte everywhere.
    pub fn filled(byte: u8) -> Self {
        copy_by(|bytes| {
            bytes.fill(byte);
            Ok(())
        })
        .unwrap()
    }
}

impl Deref for Page {
    type Target = Stats;
    fn deref(&self) -> &Stats {
        &self.0
    }
}

/// Why there is none.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is no such process, or not any more.
    NoProcess,
    /// The process is another user's, or guards itself.
    NotAllowed,
    /// The process has no Weir.
    NotLoaded,
    /// Weir is there, but its page is not shared (yet), and the kernel does not let this user read the process's memory.
    NotShared,
    /// It is of another version of Weir.
    OtherVersion(u32),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => f.write_str("there is no such process, or it has no memory any more"),
            Self::NotAllowed => f.write_str("it may not be looked into: it is another user's, or guards itself; run this as root"),
            Self::NotLoaded => f.write_str("it runs without Weir: `weir doctor PID` says why"),
            Self::NotShared => f.write_str(
                "its figures are private: its heap is still small, or `publish` or `background` is 0; root can read them",
            ),
            Self::OtherVersion(version) => {
                write!(f, "its Weir has statistics of version {version}, this command those of {VERSION}: use the `weir` of the same release")
            }
        }
    }
}

/// A process, as far as it can be looked into.
pub struct Inspected {
    pub process: Process,
    pub maps: MemoryMaps,
}

impl Inspected {
    /// Looks at what process `pid` has mapped.
    pub fn new(pid: i32) -> Result<Self, Missing> {
        Self::of(pid, &maps_of(pid).map_err(|error| of_proc(error.into()))?)
    }

    /// The same by the text of the process's `maps` file.
    pub fn of(pid: i32, maps: &[u8]) -> Result<Self, Missing> {
        let process = Process::new(pid).map_err(of_proc)?;
        let maps = MemoryMaps::from_buf_read(maps).map_err(of_proc)?;
        // It has ended, and its parent has not heard of it yet; or it is a thread of the kernel.
        if maps.0.is_empty() {
            return Err(Missing::NoProcess);
        }
        Ok(Self { process, maps })
    }

    /// Copies its page.
    pub fn page(&self) -> Result<Page, Missing> {
        let mut page = self.copy()?;
        for _ in 0..TRIES {
            if is_whole(&page) {
                break;
            }
            page = self.copy()?;
        }
        let (magic, version) = (page.0.magic.load(Relaxed), page.0.version.load(Relaxed));
        match (magic == MAGIC, version == VERSION) {
            (true, true) => Ok(page),
            (true, false) => Err(Missing::OtherVersion(version)),
            (false, _) => Err(Missing::NotLoaded),
        }
    }

    fn copy(&self) -> Result<Page, Missing> {
        if let Some(shared) = locate::shared_page(&self.maps) {
            // One call; but the kernel may refuse it to all but the process's debugger (Yama), and then not the file.
            if let Some(page) = self.copy_from(shared.address) {
                return Ok(page);
            }
            let (file, offset) = shared.open(&self.process).ok_or(Missing::NotShared)?;
            return copy_by(|bytes| file.read_exact_at(bytes, offset)).map_err(|_| Missing::NotShared);
        }
        let program = self.process.exe().ok();
        let ranges = locate::private_ranges(&self.maps, program.as_deref());
        match self.search(&ranges) {
            Ok(Some(page)) => Ok(page),
            Ok(None) => Err(Missing::NotLoaded),
            Err(_) if locate::library(&self.maps).is_some() => Err(Missing::NotShared),
            Err(_) => Err(Missing::NotLoaded),
        }
    }

    fn copy_from(&self, address: u64) -> Option<Page> {
        copy_by(|bytes| read_memory(self.process.pid(), &[address], bytes)).ok()
    }

    /// Looks for the page's first words where it may begin.
    fn search(&self, ranges: &[(u64, u64)]) -> io::Result<Option<Page>> {
        let places = ranges.iter().flat_map(|&(begin, end)| (begin..end).step_by(KERNEL_PAGE as usize));
        let mut places = places.take((SEARCHED / KERNEL_PAGE) as usize);
        loop {
            let batch: Vec<u64> = places.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(None);
            }
            let mut words = vec![0; batch.len() * 8];
            read_memory(self.process.pid(), &batch, &mut words)?;
            let is_magic = |word: &&[u8]| **word == MAGIC.to_ne_bytes();
            let found = batch.iter().zip(words.chunks_exact(8)).find(|(_, word)| is_magic(word));
            if let Some((&address, _)) = found {
                return Ok(self.copy_from(address));
            }
        }
    }
}

/// Whether no table of it was being written.
fn is_whole(page: &Stats) -> bool {
    page.caches.read::<CacheRow>().is_some()
        && page.zones.read::<ZoneRow>().is_some()
        && page.evictable_caches.read::<EvictableRow>().is_some()
}

fn copy_by(read: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Page> {
    let mut page = Box::new(MaybeUninit::<Stats>::zeroed());
    // SAFETY: the box has so many bytes, all of them initialised, and nobody else uses it.
    read(unsafe { std::slice::from_raw_parts_mut(page.as_mut_ptr().cast(), PAGE_BYTES) })?;
    // SAFETY: it holds atomic integers alone, for which any bytes are a value.
    Ok(Page(unsafe { Box::from_raw(Box::into_raw(page).cast()) }))
}

/// Fills `bytes` with equal parts from each of the addresses in a process's memory.
pub fn read_memory(pid: i32, addresses: &[u64], bytes: &mut [u8]) -> io::Result<()> {
    let part = bytes.len() / addresses.len();
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote: Vec<_> =
        addresses.iter().map(|&address| libc::iovec { iov_base: address as *mut _, iov_len: part }).collect();
    // SAFETY: the kernel writes only inside `bytes`, and reads the two lists with the lengths given.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), remote.len() as u64, 0) };
    match usize::try_from(read) {
        Ok(read) if read == bytes.len() => Ok(()),
        // A page of the data that cannot be read, such as one beyond the end of its file.
        Ok(_) => Err(Errno::FAULT.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The text of a process's `maps` file: its first [`MOST_TEXT`] bytes.
pub fn maps_of(pid: i32) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(format!("/proc/{pid}/maps"))?.take(MOST_TEXT).read_to_end(&mut text)?;
    Ok(text)
}

fn of_proc(error: ProcError) -> Missing {
    match error {
        ProcError::PermissionDenied(_) => Missing::NotAllowed,
        _ => Missing::NoProcess,
    }
}
