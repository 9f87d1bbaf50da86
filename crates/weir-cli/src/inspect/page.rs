//! A process's page of statistics, copied: the process goes on, and does nothing for it.

use super::locate;
use super::memory_reader::{MOST_PLACES, PATIENCE, read_each, read_memory};
use crate::base::descriptors::{TOO_MANY, is_too_many, may_open};
use crate::base::failure::{Failure, Kind};
use crate::processes::{clock, maps};
use procfs::ProcError;
use procfs::process::{MemoryMaps, Process};
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use weir_core::base::cost::Cost;
use weir_core::telemetry::stats::{MAGIC, PAGE_BYTES, Stats, VERSION};
use weir_core::telemetry::tables::{CacheRow, EvictableRow, ZoneRow};

/// How often a copy is made again that has a table which was being written.
const TRIES: usize = 20;
/// Bytes of the kernel's pages: Weir's page of statistics begins at one.
const KERNEL_PAGE: u64 = 4096;
/// Bytes of data that are searched at most for a page that is not shared.
const SEARCHED: u64 = 256 << 20;

/// How far behind the beginning of the library's data the page lay that was searched for last.
static USUAL_PLACE: AtomicU64 = AtomicU64::new(u64::MAX);

/// A copy.
pub struct Page(Box<Stats>);

impl Page {
    /// One of so many bytes; `None`: there is no memory.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let copied = |to: &mut [u8]| {
            to.copy_from_slice(bytes);
            Ok(())
        };
        copy_by(copied).ok()
    }

    /// Whether it is a page of this version, of which no table was being written.
    pub fn is_good(&self) -> bool {
        self.is_ours() && is_whole(self)
    }

    /// Whether it is a page of this version. Tables that were being written are empty.
    pub fn is_ours(&self) -> bool {
        self.magic.load(Relaxed) == MAGIC && self.version.load(Relaxed) == VERSION
    }

    /// A good one of a process, from where it lies in its memory. None: in all of the tries some table was being written.
    pub fn whole(pid: i32, address: u64) -> Option<Self> {
        let mut bytes = vec![0; PAGE_BYTES];
        (0..TRIES).find_map(|_| {
            read_memory(pid, &[address], &mut bytes).ok()?;
            Self::of(&bytes).filter(Self::is_good).map(|page| page.in_time_of(pid))
        })
    }

    /// With the times of a process by this process's clock.
    fn in_time_of(self, pid: i32) -> Self {
        let behind = clock::ahead(pid).saturating_neg();
        for time in [&self.measured.at, &self.measured.begun, &self.pressure_heard_at] {
            // 0 is no time: it says that something never was.
            let at = time.load(Relaxed);
            if at > 0 {
                time.store(at.saturating_add_signed(behind).max(1), Relaxed);
            }
        }
        self
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
    /// The process's memory is not to be had in time: its pages are a file system's or a thread's that does not answer.
    NotAnswering,
    /// The process has another version of Weir.
    OtherVersion(u32),
    /// This process may open no further file, by which it would look at the other.
    TooManyFiles,
}

/// What a user does who may not look into a process. A container's root may lack the right.
pub fn rights() -> &'static str {
    // SAFETY: touches no memory.
    if unsafe { libc::geteuid() } == 0 {
        "root here lacks CAP_SYS_PTRACE: start the container with it (--cap-add SYS_PTRACE), or run this as the process's user \
         (docker exec -u UID)"
    } else {
        "run this as root"
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => f.write_str("there is no such process, or it has no memory any more"),
            Self::NotAllowed => {
                write!(f, "it may not be looked into: it is another user's, or guards itself; {}", rights())
            }
            Self::NotLoaded => f.write_str("it runs without Weir: `weir doctor PID` says why"),
            Self::NotShared => write!(
                f,
                "its figures are private: its heap is still small, or `publish` or `background` is 0; to read them, {}",
                rights()
            ),
            Self::NotAnswering => write!(
                f,
                "a page of its memory was not there after {} s: the machine is busy, or what that page comes from is slow",
                PATIENCE.as_secs()
            ),
            Self::OtherVersion(version) => {
                write!(
                    f,
                    "its Weir has statistics of version {version}, this command those of {VERSION}: use the `weir` of the same release"
                )
            }
            Self::TooManyFiles => f.write_str(TOO_MANY),
        }
    }
}

impl Missing {
    /// The error of a command on process `pid`.
    pub fn of(&self, pid: i32) -> Failure {
        let kind = match self {
            Self::NoProcess => Kind::NotFound,
            Self::NotAllowed | Self::NotShared | Self::TooManyFiles => Kind::Refused,
            Self::NotLoaded | Self::OtherVersion(_) => Kind::NoWeir,
            Self::NotAnswering => Kind::NotAnswering,
        };
        Failure::of(kind, format!("process {pid}: {self}"))
    }
}

/// A process, as far as it can be looked into.
pub struct Inspected {
    pub process: Process,
    pub maps: MemoryMaps,
}

impl Inspected {
    /// Looks at what process `pid` has mapped. Where its main thread has ended, `process` is another of its threads.
    pub fn new(pid: i32) -> Result<Self, Missing> {
        let process = Process::new(maps::living(pid)).map_err(of_proc)?;
        let maps = mapped(&process)?;
        Ok(Self { process, maps })
    }

    /// As [`Self::new`], with the mappings alone that its page may be in.
    pub fn narrow(pid: i32) -> Result<Self, Missing> {
        let living = maps::living(pid);
        let process = Process::new(living).map_err(of_proc)?;
        let program = process.exe().ok();
        let mut maps = BufReader::new(maps::open(&process).map_err(of_proc)?);
        if maps.fill_buf().is_ok_and(<[u8]>::is_empty) {
            return Err(Missing::NoProcess);
        }
        Self::narrowed(living, maps, program.as_deref())
    }

    /// Looks again at what the same process has mapped. Its directory in `/proc` is open: another process that has its number
    /// by now has another directory.
    pub fn look_again(&mut self) -> Result<(), Missing> {
        self.maps = mapped(&self.process)?;
        Ok(())
    }

    /// With a copy of its page.
    pub fn with_page(pid: i32) -> Result<(Self, Page), Missing> {
        let inspected = Self::new(pid)?;
        let page = inspected.page()?;
        Ok((inspected, page))
    }

    /// Takes what is needed of the process's `maps` file, which has a line at least.
    pub fn narrowed(pid: i32, maps: impl BufRead, program: Option<&Path>) -> Result<Self, Missing> {
        let process = Process::new(pid).map_err(of_proc)?;
        let lines = locate::lines(maps, program).map_err(|error| of_proc(error.into()))?;
        Ok(Self { process, maps: maps::parse(&lines).map_err(of_proc)? })
    }

    /// Copies its page.
    pub fn page(&self) -> Result<Page, Missing> {
        let begun = Instant::now();
        let mut page = self.copy()?;
        for _ in 0..TRIES {
            if is_whole(&page) || begun.elapsed() > PATIENCE {
                break;
            }
            page = self.copy()?;
        }
        let (magic, version) = (page.0.magic.load(Relaxed), page.0.version.load(Relaxed));
        match (magic == MAGIC, version == VERSION) {
            (true, true) => Ok(page.in_time_of(self.process.pid())),
            (true, false) => Err(Missing::OtherVersion(version)),
            (false, _) => Err(Missing::NotLoaded),
        }
    }

    /// Copies the pages of some processes: by one reading of all, and one by one of what that did not find.
    pub fn pages(some: &[Self]) -> Vec<Result<Page, Missing>> {
        let mut pages: Vec<_> = some.iter().map(|_| None).collect();
        let places = some.iter().enumerate().filter_map(|(nth, it)| Some((nth, it.process.pid(), it.likely_place()?)));
        let (nths, from): (Vec<_>, Vec<_>) = places.map(|(nth, pid, address)| (nth, (pid, address))).unzip();
        read_each(&from, PAGE_BYTES, |place, bytes| {
            let good = bytes.ok().and_then(Page::of).filter(Page::is_good);
            pages[nths[place]] = good.map(|page| page.in_time_of(from[place].0));
            true
        });
        pages.into_iter().zip(some).map(|(page, it)| page.map_or_else(|| it.page(), Ok)).collect()
    }

    /// Where the page lies, if it is shared. Else where it lies if this process has the library and the place in it of the process
    /// that was searched last: a guess, unless the page was read.
    pub fn likely_place(&self) -> Option<u64> {
        if let Some(shared) = locate::shared_page(&self.maps) {
            return Some(shared.address);
        }
        let address = self.library_data()?.checked_add(USUAL_PLACE.load(Relaxed))?;
        let ranges = locate::private_ranges(&self.maps, None);
        ranges.iter().any(|&(begin, end)| begin <= address && address < end).then_some(address)
    }

    /// Where the library's data begin.
    fn library_data(&self) -> Option<u64> {
        Some(locate::private_ranges(&self.maps, None).first()?.0)
    }

    fn copy(&self) -> Result<Page, Missing> {
        let copied = self.copy_of_number();
        // What is read by number is not to be had of a process that ends meanwhile, or is another's that has the number.
        let has_ended = || matches!(mapped(&self.process), Err(Missing::NoProcess));
        match copied {
            Err(Missing::NotShared | Missing::NotLoaded) if has_ended() => Err(Missing::NoProcess),
            Ok(page) => self.process.stat().map(|_| page).map_err(of_proc),
            copied => copied,
        }
    }

    /// A copy of the page of the process that has the number now.
    fn copy_of_number(&self) -> Result<Page, Missing> {
        if let Some(shared) = locate::shared_page(&self.maps) {
            // One call; but the kernel may refuse it to all but the process's debugger (Yama), and then not the file.
            match self.copy_from(shared.address) {
                Ok(page) => return Ok(page),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(Missing::NotAnswering),
                Err(error) if is_too_many(&error) => return Err(Missing::TooManyFiles),
                Err(_) => {}
            }
            let why = || if may_open(locate::FILES) { Missing::NotShared } else { Missing::TooManyFiles };
            let (file, offset) = shared.open(&self.process).ok_or_else(why)?;
            return copy_by(|bytes| file.read_exact_at(bytes, offset)).map_err(|_| Missing::NotShared);
        }
        let program = self.process.exe().ok();
        let ranges = locate::private_ranges(&self.maps, program.as_deref());
        match self.search(&ranges) {
            Ok(Some(page)) => Ok(page),
            Ok(None) => Err(Missing::NotLoaded),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Missing::NotAnswering),
            Err(error) if is_too_many(&error) => Err(Missing::TooManyFiles),
            Err(_) if locate::library(&self.maps).is_some() => Err(Missing::NotShared),
            Err(_) => Err(Missing::NotLoaded),
        }
    }

    fn copy_from(&self, address: u64) -> io::Result<Page> {
        copy_by(|bytes| read_memory(self.process.pid(), &[address], bytes))
    }

    /// Looks for the page's first words where it may begin.
    fn search(&self, ranges: &[(u64, u64)]) -> io::Result<Option<Page>> {
        let places = ranges.iter().flat_map(|&(begin, end)| (begin..end).step_by(KERNEL_PAGE as usize));
        let mut places = places.take((SEARCHED / KERNEL_PAGE) as usize);
        let begun = Instant::now();
        loop {
            // Each of many batches may take a little less than is waited for one.
            if begun.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let batch: Vec<u64> = places.by_ref().take(MOST_PLACES).collect();
            if batch.is_empty() {
                return Ok(None);
            }
            let mut words = vec![0; batch.len() * 8];
            read_memory(self.process.pid(), &batch, &mut words)?;
            let is_magic = |word: &&[u8]| **word == MAGIC.to_ne_bytes();
            let found = batch.iter().zip(words.chunks_exact(8)).find(|(_, word)| is_magic(word));
            if let Some((&address, _)) = found {
                if let Some(place) = self.library_data().and_then(|begin| address.checked_sub(begin)) {
                    USUAL_PLACE.store(place, Relaxed);
                }
                return self.copy_from(address).map(Some);
            }
        }
    }
}

/// Whether no table of it was being written, nor a measurement.
fn is_whole(page: &Stats) -> bool {
    let (never, is_found) = (page.measured.at.load(Relaxed) == 0, page.measured.found().is_some());
    (never || is_found)
        && page.caches.read::<CacheRow>().is_some()
        && page.zones.read::<ZoneRow>().is_some()
        && page.evictable_caches.read::<EvictableRow>().is_some()
        && page.costs.read::<Cost>().is_some()
}

fn copy_by(read: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Page> {
    let mut page = Box::new(MaybeUninit::<Stats>::zeroed());
    // SAFETY: the box has so many bytes, all of them initialised, and nobody else uses it.
    read(unsafe { std::slice::from_raw_parts_mut(page.as_mut_ptr().cast(), PAGE_BYTES) })?;
    // SAFETY: it holds atomic integers alone, for which any bytes are a value.
    Ok(Page(unsafe { Box::from_raw(Box::into_raw(page).cast()) }))
}

/// What a process has mapped.
fn mapped(process: &Process) -> Result<MemoryMaps, Missing> {
    living(maps::maps(process))
}

/// Mappings, of which a living program has some. There are none of one that has ended, and of a thread of the kernel.
pub fn living(maps: Result<MemoryMaps, ProcError>) -> Result<MemoryMaps, Missing> {
    maps.map_err(of_proc).and_then(|maps| if maps.0.is_empty() { Err(Missing::NoProcess) } else { Ok(maps) })
}

/// Why a file of `/proc` cannot be read.
pub(super) fn of_proc(error: ProcError) -> Missing {
    match error {
        ProcError::PermissionDenied(_) => Missing::NotAllowed,
        ProcError::Io(error, _) if is_too_many(&error) => Missing::TooManyFiles,
        _ => Missing::NoProcess,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that waits for its end.
    fn waiting() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Its maps were read before, and name the library.
    #[test]
    fn a_process_that_ends_during_a_look_is_gone_and_not_private() {
        for maps in
            [&b"41000-43000 rw-p 00001000 08:01 6 /lib/libweir.so\n"[..], b"41000-43000 rw-p 0 08:01 6 /bin/cat\n"]
        {
            let child = waiting();
            let mut inspected = Inspected::narrowed(child.id() as i32, maps, Some(Path::new("/bin/cat"))).unwrap();
            end(child);
            assert_eq!(inspected.page().err(), Some(Missing::NoProcess));
            assert_eq!(inspected.look_again(), Err(Missing::NoProcess));
        }
    }

    #[test]
    fn the_number_of_one_that_has_ended_leads_to_no_other() {
        let child = waiting();
        let mut inspected = Inspected::new(child.id() as i32).unwrap();
        end(child);
        // This process stands for one that got the number since, and has a page.
        let page = Box::new(Stats::new());
        page.magic.store(MAGIC, Relaxed);
        page.version.store(VERSION, Relaxed);
        let at = std::ptr::from_ref(&*page) as u64;
        inspected.process.pid = std::process::id() as i32;
        assert!(inspected.copy_from(at).is_ok_and(|page| page.is_good()));
        let program = format!("{:x}-{:x} rw-p 0 08:01 6 /lib/libweir.so\n", at & !4095, at + PAGE_BYTES as u64);
        inspected.maps = maps::parse(program.as_bytes()).unwrap();
        assert_eq!(inspected.page().err(), Some(Missing::NoProcess));
        assert_eq!(inspected.look_again(), Err(Missing::NoProcess));
    }
}
