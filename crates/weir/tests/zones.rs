//! Zones of real memory: what is free in them leaves, what is in use stays, and locked memory does neither.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use weir::zone::{BLOCK, MAX_RUN, Zone, ZoneError};
use weir_linux::os::mman;
use weir_linux::os::syscall::{Errno, check, syscall2, syscall3};
use weir_testing::{skip, wait_until};

mod common;
#[path = "common/forked.rs"]
mod forked;
use forked::{Forked, in_forked};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// Resident pages of a zone.
fn resident(zone: &Zone) -> usize {
    let mut pages = vec![0u8; zone.size() / PAGE];
    mman::mincore(zone.as_ptr().as_ptr(), &mut pages, PAGE).unwrap();
    pages.iter().filter(|&&page| page & 1 == 1).count()
}

/// Fills the zone, and frees all but the first of each eight runs; those are returned with their fill.
fn use_it(zone: &Zone) -> Vec<(weir::zone::Pages<'_>, u8)> {
    let mut runs: Vec<_> = std::iter::from_fn(|| zone.alloc(128 << 10)).collect();
    assert_eq!(runs.len(), zone.size() / (128 << 10));
    for (i, run) in runs.iter_mut().enumerate() {
        run.fill(i as u8 | 1);
    }
    let kept = runs.into_iter().enumerate().filter(|(i, _)| i % 8 == 0).map(|(i, run)| (run, i as u8 | 1));
    kept.collect()
}

/// One test at a time: they share one heap, and a trim is of all its zones.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Trims until this is so: the background thread may have the zone's blocks in its hands at the moment.
#[track_caller]
fn trim_until(what: &str, is_so: impl Fn() -> bool) {
    wait_until(what, || {
        weir::heap::trim();
        is_so()
    });
}

fn intact(kept: &[(weir::zone::Pages<'_>, u8)]) -> bool {
    kept.iter().all(|(run, byte)| run.filled().iter().all(|b| b == byte))
}

/// Whether a run reads as zero that nobody has written to.
fn came_as_zeros(mut run: weir::zone::Pages<'_>) -> bool {
    // SAFETY: here nothing is released lazily, and the files are nobody else's: what is read does not change.
    unsafe { run.advance(run.capacity()) };
    run.filled().iter().all(|&byte| byte == 0)
}

/// A zone of a file that this test alone has.
fn file_zone(fd: &OwnedFd, size: usize) -> Result<Zone, ZoneError> {
    // SAFETY: open, nobody else's, and of the length that it was made with.
    unsafe { Zone::from_memfd(weir::Fd::borrow_raw(fd.as_raw_fd()), size) }
}

/// A zone of 4 MiB in a file, for as long as the process lives.
fn lasting() -> Option<&'static Zone> {
    Some(Box::leak(Box::new(file_zone(&memfd(4 * MIB)?, 4 * MIB).unwrap())))
}

fn memfd(len: usize) -> Option<OwnedFd> {
    memfd_with(0, len)
}

/// With flags beside close-on-exec.
fn memfd_with(flags: u32, len: usize) -> Option<OwnedFd> {
    let (name, flags) = (c"zone".as_ptr() as usize, (flags | 1) as usize);
    // SAFETY: the name is a C string; the call gives a new descriptor.
    let made = check(unsafe { syscall2(linux_raw_sys::general::__NR_memfd_create, name, flags) });
    let Ok(fd) = made else {
        skip!("memfd_create says {made:?}");
        return None;
    };
    // SAFETY: a new descriptor, which nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    std::fs::File::from(fd.try_clone().unwrap()).set_len(len as u64).unwrap();
    Some(fd)
}

fn blocks_of(fd: &OwnedFd) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::File::from(fd.try_clone().unwrap()).metadata().unwrap().blocks() * 512
}

#[test]
fn private_memory_leaves_and_reads_as_zero_again() {
    let _alone = alone();
    let zone = Zone::anonymous(16 * MIB).unwrap();
    let kept = use_it(&zone);
    trim_until("what is free to leave", || resident(&zone) == 2 * MIB / PAGE);
    assert!(intact(&kept));
    assert!(zone.alloc(64 << 10).is_some_and(|run| run.was_zero() && came_as_zeros(run)));
}

#[test]
fn memory_that_the_program_locked_stays_and_says_so_until_it_is_unlocked() {
    let _alone = alone();
    let zone = Zone::anonymous(2 * MIB).unwrap();
    let (run, _) = use_it(&zone).remove(0);
    let (at, len) = (run.as_ptr() as *mut u8, run.capacity());
    if let Err(why) = mman::mlock(at, len) {
        return skip!("{why} (ulimit -l)");
    }
    assert!(zone.is_reported());
    drop(run);
    trim_until("the lock to be noticed", || !zone.is_reported());
    // SAFETY: a call on memory of the zone, which changes no contents.
    assert_eq!(unsafe { libc::munlock(at.cast(), len) }, 0);
    trim_until("it to leave", || zone.is_reported() && resident(&zone) == 0);
}

#[test]
fn a_file_gets_holes_where_it_is_free() {
    let _alone = alone();
    let Some(fd) = memfd(16 * MIB) else { return };
    let zone = file_zone(&fd, 16 * MIB).unwrap();
    let kept = use_it(&zone);
    trim_until("holes where it is free", || blocks_of(&fd) == 2 * MIB as u64);
    assert!(intact(&kept) && zone.is_reported());
    assert!(zone.alloc(4096).is_some_and(came_as_zeros));
    assert_eq!(file_zone(&fd, 18 * MIB).err(), Some(ZoneError::FileTooShort { size: 18 * MIB, file: 16 << 20 }));
}

/// A file system of so many bytes, for as long as it lives.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn of(bytes: usize) -> Option<Self> {
        let at = std::env::temp_dir().join(format!("weir-zones-{}", std::process::id()));
        std::fs::create_dir(&at).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"]).arg(&at);
        let why = match mount.output() {
            Ok(said) if said.status.success() => return Some(Self(at)),
            Ok(said) => String::from_utf8_lossy(&said.stderr).trim().to_owned(),
            Err(why) => why.to_string(),
        };
        std::fs::remove_dir(&at).unwrap();
        skip!("no file system can be mounted: {why}");
        None
    }

    fn file(&self, name: &str) -> OwnedFd {
        let how = std::fs::OpenOptions::new().read(true).write(true).create_new(true).clone();
        how.open(self.0.join(name)).unwrap().into()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).output();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// What is free is out of the file, and others take the space. A touch of what has none would end the process.
#[test]
fn a_file_on_a_full_file_system_has_no_memory() {
    let _alone = alone();
    let Some(mounted) = Mounted::of(8 * MIB) else { return };
    let (fd, other) = (mounted.file("zone"), std::fs::File::from(mounted.file("other")));
    std::fs::File::from(fd.try_clone().unwrap()).set_len(8 * MIB as u64).unwrap();
    let zone = file_zone(&fd, 8 * MIB).unwrap();
    zone.alloc(4 * MIB).unwrap().fill(1);
    trim_until("all to leave", || blocks_of(&fd) == 0);
    (&other).write_all(&vec![2; 7 * MIB]).unwrap();
    // The second time the engine has had these pages back.
    for _ in 0..2 {
        assert!(zone.alloc(4 * MIB).is_none());
        assert_eq!((blocks_of(&fd), zone.usage().used_bytes), (0, 0), "the part that got memory gave it back");
    }
    let fill = |mut run: weir::zone::Pages<'_>| {
        run.fill(3);
        run.into_raw()
    };
    let runs: Vec<_> = std::iter::from_fn(|| zone.alloc(64 << 10)).map(fill).collect();
    assert_eq!(runs.len(), 16, "the last MiB");
    // SAFETY: runs of this zone's, each turned back once.
    runs.into_iter().for_each(|run| drop(unsafe { zone.pages_from_raw(run) }));
    other.set_len(0).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| zone.alloc(MIB)).map(fill).collect();
    assert_eq!((all.len(), blocks_of(&fd)), (8, 8 * MIB as u64));
}

#[test]
fn what_a_file_held_before_is_not_taken_for_zero() {
    let _alone = alone();
    let Some(fd) = memfd(2 * MIB) else { return };
    use std::os::unix::fs::FileExt;
    std::fs::File::from(fd.try_clone().unwrap()).write_all_at(&[7; 8192], 0).unwrap();
    let zone = file_zone(&fd, 2 * MIB).unwrap();
    assert!(!zone.alloc(8192).unwrap().was_zero());
}

/// `memfd_create`'s: the file may be sealed.
const MFD_ALLOW_SEALING: u32 = 2;

fn seal(fd: &OwnedFd, seals: usize) -> Result<usize, Errno> {
    const F_ADD_SEALS: usize = 1033;
    let fcntl = linux_raw_sys::general::__NR_fcntl;
    // SAFETY: seals a file; no memory is involved.
    check(unsafe { syscall3(fcntl, fd.as_raw_fd() as usize, F_ADD_SEALS, seals) })
}

#[test]
fn a_sealed_file_keeps_its_memory_and_loses_nothing() {
    let _alone = alone();
    const F_SEAL_FUTURE_WRITE: usize = 16;
    let Some(fd) = memfd_with(MFD_ALLOW_SEALING, 4 * MIB) else { return };
    let zone = file_zone(&fd, 4 * MIB).unwrap();
    match seal(&fd, F_SEAL_FUTURE_WRITE) {
        Err(Errno::EINVAL) => return skip!("the kernel knows no F_SEAL_FUTURE_WRITE (Linux 5.1 does)"),
        sealed => drop(sealed.expect("a file that may be sealed")),
    }
    let kept = use_it(&zone);
    let refused = weir::stats::process().release_failures;
    trim_until("the kernel to refuse a hole", || weir::stats::process().release_failures > refused);
    assert!(intact(&kept));
    assert_eq!(blocks_of(&fd), 4 * MIB as u64);
    // What the kernel did not take can be had again, and is not taken for zero.
    let again: Vec<_> = std::iter::from_fn(|| zone.alloc(128 << 10)).collect();
    assert_eq!(again.len() + kept.len(), 4 * MIB / (128 << 10));
    assert!(again.iter().all(|run| !run.was_zero()));
}

/// Before Linux 6.12 such a refusal left a hole where the mapping was to replace another, and the thread's was put there.
#[test]
fn a_zone_that_the_kernel_refuses_takes_no_mapping_of_another_thread_away() {
    let _alone = alone();
    const F_SEAL_WRITE: usize = 8;
    let Some(fd) = memfd_with(MFD_ALLOW_SEALING, 2 * MIB) else { return };
    seal(&fd, F_SEAL_WRITE).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let at = mman::mmap_anonymous(2 * MIB, 0).unwrap();
                // SAFETY: bytes of the mapping, which is this thread's alone.
                (0..2 * MIB).step_by(64 << 10).for_each(|offset| unsafe { at.add(offset).write_volatile(7) });
                // SAFETY: as above; nothing refers to it afterwards.
                unsafe { mman::munmap(at, 2 * MIB) }.unwrap();
            }
        });
        let is_refused = (0..2000).all(|_| file_zone(&fd, 2 * MIB).is_err());
        is_over.store(true, Relaxed);
        assert!(is_refused);
    });
}

/// Huge pages of 2 MiB in the system's pool, for as long as it lives.
struct Pool {
    before: u64,
}

impl Pool {
    const SIZE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

    fn read(path: &str) -> Option<u64> {
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// At least so many free ones; says so if there cannot be.
    fn with(pages: u64) -> Option<Pool> {
        let (before, free) = (Self::read(Self::SIZE)?, Self::read(Self::FREE)?);
        let wanted = before + pages.saturating_sub(free);
        let grown = wanted == before || std::fs::write(Self::SIZE, wanted.to_string()).is_ok();
        let pool = Pool { before };
        if grown && Self::read(Self::FREE)? >= pages {
            return Some(pool);
        }
        skip!("the system's pool has too few huge pages (root, or vm.nr_hugepages={wanted}, would do)");
        None
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::SIZE, self.before.to_string());
    }
}

/// As many as are free now.
fn free_in_pool() -> u64 {
    Pool::read(Pool::FREE).unwrap_or(0)
}

#[test]
fn an_empty_pool_of_huge_pages_is_no_memory() {
    let _alone = alone();
    let _pages = weir_testing::lock("huge pages");
    let Some(_pool) = Pool::with(2) else { return };
    // More than the pool has, by a half.
    let zone = Zone::hugetlb(free_in_pool() as usize * BLOCK * 3 / 2 / BLOCK * BLOCK).unwrap();
    let mut runs: Vec<_> = std::iter::from_fn(|| zone.alloc(BLOCK)).collect();
    assert!(runs.len() >= 2 && runs.len() * BLOCK < zone.size());
    runs.iter_mut().for_each(|run| run.fill(5));
    drop(runs);
    trim_until("all to leave", || resident(&zone) == 0);
}

#[test]
fn what_an_empty_pool_refuses_is_not_idle() {
    let _alone = alone();
    let _pages = weir_testing::lock("huge pages");
    if free_in_pool() > 0 {
        return skip!("the system's pool has huge pages");
    }
    let released = || weir::stats::process().released_trim_bytes;
    let zone = Zone::hugetlb(8 * MIB).unwrap();
    trim_until("what other tests left to leave", || {
        let before = released();
        weir::heap::trim();
        released() == before
    });
    let before = released();
    // Within a huge page, as one, and over the ends of three.
    for bytes in [1, MIB, BLOCK, MAX_RUN - PAGE, MAX_RUN] {
        if zone.alloc(bytes).is_some() {
            return skip!("the system makes huge pages as they are wanted");
        }
        let usage = zone.usage();
        assert_eq!((usage.used_bytes, usage.idle_bytes), (0, 0), "{bytes} bytes");
        weir::heap::trim();
    }
    assert_eq!(released(), before);
}

#[test]
fn a_file_in_huge_pages_gives_them_back_to_the_pool() {
    let _alone = alone();
    let _pages = weir_testing::lock("huge pages");
    let Some(_pool) = Pool::with(4) else { return };
    const MFD_HUGETLB: u32 = 4;
    let before = free_in_pool();
    let Some(fd) = memfd_with(MFD_HUGETLB, 8 * MIB) else { return };
    let zone = file_zone(&fd, 8 * MIB).unwrap();
    assert_eq!(free_in_pool(), before, "none is taken before it is handed out");
    let mut first = zone.alloc(MIB).unwrap();
    first.fill(9);
    let rest: Vec<_> = std::iter::from_fn(|| zone.alloc(MIB)).collect();
    assert_eq!((rest.len(), free_in_pool()), (7, before - 4));
    drop(rest);
    // The huge page that is in use in part stays.
    trim_until("three of four to leave", || free_in_pool() == before - 1);
    assert!(first.filled().iter().all(|&b| b == 9));
    drop(first);
    trim_until("all to leave", || free_in_pool() == before);
    assert!(zone.is_reported());
    assert!(zone.alloc(BLOCK).is_some_and(came_as_zeros));
}

#[test]
fn huge_pages_go_whole_or_not_at_all() {
    let _alone = alone();
    let _pages = weir_testing::lock("huge pages");
    let Some(_pool) = Pool::with(4) else { return };
    let zone = Zone::hugetlb(8 * MIB).unwrap();
    let mut first = zone.alloc(MIB).unwrap();
    first.fill(9);
    let rest: Vec<_> = std::iter::from_fn(|| zone.alloc(MIB)).collect();
    assert_eq!(rest.len(), 7);
    drop(rest);
    // The huge page that is in use in part stays.
    trim_until("three of four to leave", || resident(&zone) == BLOCK / PAGE);
    assert!(first.filled().iter().all(|&b| b == 9));
    drop(first);
    trim_until("all to leave", || resident(&zone) == 0);
}

#[test]
fn locked_memory_stays_and_says_so() {
    let _alone = alone();
    let zone = match Zone::locked(2 * MIB) {
        Ok(zone) => zone,
        Err(why) => return skip!("{why} (ulimit -l)"),
    };
    assert!(!zone.is_reported());
    drop(use_it(&zone));
    weir::heap::trim();
    assert_eq!(resident(&zone), 2 * MIB / PAGE);
    assert_eq!(zone.usage().idle_bytes, 2 * MIB);
    // Pages that were used before are not taken for zero.
    assert!(!zone.alloc(4096).unwrap().was_zero());
}

/// The memory is resident as a whole, so that all of it counts as it is made.
#[test]
fn locked_memory_beyond_the_hard_limit_is_refused() {
    let _alone = alone();
    weir::settings::set("hard_limit", "16M").unwrap();
    let refused = Zone::locked(64 * MIB).map(drop);
    weir::settings::set("hard_limit", "0").unwrap();
    match refused.expect_err("more than the limit") {
        ZoneError::Os(why) if why.errno() != Errno::ENOMEM.0 => skip!("{why} (ulimit -l)"),
        why => assert!(why.to_string().contains("ENOMEM")),
    }
}

#[test]
fn lengths_and_runs_have_limits() {
    let _alone = alone();
    for len in [0, PAGE, 2 * MIB + PAGE, usize::MAX / BLOCK * BLOCK] {
        assert_eq!(Zone::anonymous(len).err(), Some(ZoneError::Size { size: len }));
    }
    // It is a multiple, and too much: the number of a page has 32 bits.
    for len in [1 << 44, (16 << 40) + (4 << 20), 1 << 62] {
        let why = Zone::anonymous(len).map(drop).unwrap_err();
        assert_eq!(why, ZoneError::Size { size: len });
        let bounds = format!("from {BLOCK} to {}", (1_usize << 44) - BLOCK);
        assert!(why.to_string().ends_with(&bounds), "{why}");
    }
    let zone = Zone::anonymous(8 * MIB).unwrap();
    assert!(zone.alloc(0).is_none() && zone.alloc(MAX_RUN + 1).is_none() && zone.alloc_aligned(1, 3).is_none());
    assert!(zone.alloc_aligned(1, MAX_RUN).is_some_and(|run| run.as_ptr().addr().is_multiple_of(MAX_RUN)));
    // SAFETY: no descriptor at all, so that nothing is mapped.
    let none = unsafe { Zone::from_memfd(weir::Fd::borrow_raw(-1), 2 * MIB) };
    let Err(ZoneError::Os(why)) = none else { panic!("a zone of no file") };
    assert_eq!((why.errno(), why.to_string()), (Errno::EBADF.0, "EBADF (9)".to_owned()));
}

/// Of a page that a child has too a write makes a second one; where the pool has none it would end the process.
#[test]
fn a_child_of_fork_takes_no_huge_pages_from_its_parent() {
    let _alone = alone();
    let _pages = weir_testing::lock("huge pages");
    let Some(_pool) = Pool::with(2) else { return };
    let zone = Zone::hugetlb((free_in_pool() as usize + 1) * BLOCK).unwrap();
    let mut runs: Vec<_> = std::iter::from_fn(|| zone.alloc(BLOCK)).collect();
    assert!(runs.len() >= 2);
    runs.iter_mut().for_each(|run| run.fill(5));
    let (mut written, mut writes) = std::io::pipe().unwrap();
    let child = Forked::runs(|| {
        assert!(zone.is_foreign() && zone.alloc(PAGE).is_none());
        let (at, anywhere) = (zone.as_ptr().as_ptr().cast(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping in a place where the child has none; the zone and its runs end in the child once, and
        // nothing else there uses them.
        unsafe {
            let new = libc::mmap(at, PAGE, libc::PROT_READ, anywhere | libc::MAP_FIXED_NOREPLACE, -1, 0);
            drop(std::ptr::read(&raw const runs));
            drop(std::ptr::read(&raw const zone));
            // What lies in the zone's place is not the zone's to unmap.
            assert!(new == at && libc::msync(at, PAGE, libc::MS_ASYNC) == 0);
        }
        written.read_exact(&mut [0]).unwrap();
    });
    for run in &runs {
        // SAFETY: the run is this test's, and as long as a block.
        unsafe { run.as_ptr().cast_mut().write_volatile(6) };
    }
    writes.write_all(&[0]).unwrap();
    child.ends_well();
    assert!(!zone.is_foreign() && runs.iter().all(|run| run.filled()[1] == 5));
}

/// A cache writes to its entries as it looks one up or evicts one.
#[test]
fn a_child_of_fork_leaves_a_cache_in_a_shared_zone_to_its_parent() {
    let _alone = alone();
    let Some(zone) = lasting() else { return };
    let cache = weir::EvictableCache::<u32, [u8; 1000]>::builder().zone(zone).build().unwrap();
    (0..100).for_each(|key| drop(cache.insert(key, [7; 1000]).unwrap()));
    in_forked(|| {
        assert!(cache.get(&1).is_none() && cache.insert(1, [8; 1000]).is_err());
        weir::heap::trim();
        assert_eq!(cache.evict(1 << 20), 0);
    });
    assert!((0..100).all(|key| cache.get(&key).is_some_and(|value| *value == [7; 1000])));
}

/// In a child: ends copies of what the parent has of a cache, and puts in what the parent is filling. Nothing of it is the child's.
fn ends_guards(cache: &weir::ByteCache, pinned: &weir::ByteEntry<'_>, fill: &weir::ByteFill<'_>) {
    // SAFETY: each ends once in this process, and nothing else uses them here.
    let (pinned, fill) = unsafe { (std::ptr::read(pinned), std::ptr::read(fill)) };
    let cloned = pinned.clone();
    drop(pinned);
    drop(cloned);
    let (fill, why) = fill.publish().unwrap_err();
    drop(fill);
    assert!(matches!(why, weir::Refusal::OutOfMemory) && cache.is_empty());
}

/// The count of who holds an entry lies beside it, in memory that the parent has too.
#[track_caller]
fn a_child_ends_guards_of(zone: &'static Zone, first: bool) {
    const LEN: usize = 100_000;
    let builder = weir::ByteCache::builder();
    let cache = if first { builder.zone_first(zone) } else { builder.zone(zone) }.build().unwrap();
    let pinned = cache.insert(b"pinned", &[7; LEN]).unwrap();
    let mut fill = cache.fill(b"filled", LEN).unwrap();
    fill.fill(8);
    assert!([pinned.as_ptr().as_ptr().addr(), fill.as_ptr().addr()].iter().all(|at| {
        let begin = zone.as_ptr().as_ptr().addr();
        (begin..begin + zone.size()).contains(at)
    }));
    in_forked(|| ends_guards(&cache, &pinned, &fill));
    // The parent has its own still, of which the entry lives on.
    assert!(cache.remove(b"pinned"));
    let filled = fill.publish().unwrap();
    // Few: a zone that is full has caches made smaller, also those of other tests.
    let others: Vec<_> = (0..10u32).map_while(|key| cache.insert(&key.to_ne_bytes(), &[9; LEN]).ok()).collect();
    assert!(others.len() > 1);
    assert!(pinned.iter().all(|&byte| byte == 7) && filled.iter().all(|&byte| byte == 8));
    drop((others, filled, pinned));
    assert!(!cache.is_in_use());
}

#[test]
fn a_child_of_fork_ends_guards_and_pins_stay_with_its_parent() {
    let _alone = alone();
    for first in [false, true] {
        let Some(zone) = lasting() else { return };
        a_child_ends_guards_of(zone, first);
    }
}

/// There the child has no memory that a guard could be looked up in.
#[test]
fn a_child_of_fork_ends_guards_where_the_memory_is_not_there() {
    let _alone = alone();
    let _pages = weir_testing::lock("huge pages");
    let Some(_pool) = Pool::with(2) else { return };
    a_child_ends_guards_of(Box::leak(Box::new(Zone::hugetlb(2 * BLOCK).unwrap())), false);
    weir::heap::trim();
}

thread_local! {
    /// The next call of [`fork_once`] forks.
    static FORKS: Cell<bool> = const { Cell::new(false) };
    /// The process is the child.
    static IS_CHILD: Cell<bool> = const { Cell::new(false) };
}

/// Forks where the thread is to; the parent goes on when the child has ended.
fn fork_once() {
    if !FORKS.replace(false) {
        return;
    }
    // SAFETY: the child ends without running handlers, as `forks_inside` has it.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        IS_CHILD.set(true);
        return;
    }
    let mut status = -1;
    // SAFETY: a child of this function's, and its variable.
    assert_eq!(unsafe { libc::waitpid(forked, &mut status, 0) }, forked);
    assert_eq!(status, 0);
}

/// What a call gives that forks inside. In the child it is to end as `is_right` says: the child ends with it.
#[track_caller]
fn forks_inside<T>(call: impl FnOnce() -> T, is_right: impl FnOnce(Result<T, &str>) -> bool) -> T {
    FORKS.set(true);
    let given = catch_unwind(AssertUnwindSafe(call));
    if IS_CHILD.get() {
        let is_right = match given {
            Ok(given) => is_right(Ok(given)),
            Err(said) => is_right(Err(said.downcast_ref::<&str>().copied().unwrap_or("?"))),
        };
        // SAFETY: the end of the child.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    assert!(!FORKS.get(), "it forked");
    given.unwrap_or_else(|said| std::panic::resume_unwind(said))
}

/// The entry to come is the parent's, and lies in memory that both have.
#[test]
fn a_child_of_a_fork_inside_a_load_or_an_insertion_leaves_the_entry_to_its_parent() {
    type Cache = weir::EvictableCache<u32, [u64; 8]>;
    let _alone = alone();
    let says =
        |given: Result<_, &str>| given.is_err_and(|said: &str| said.starts_with("the process forked inside this"));
    let value = || [if IS_CHILD.get() { 9 } else { 7 }; 8];
    let compute = || {
        fork_once();
        value()
    };
    let calls: [&dyn Fn(&Cache) -> u64; 5] = [
        &|cache| cache.get_or_insert_with(1, compute)[0],
        &|cache| cache.upsert_with(1, |_| compute())[0],
        &|cache| {
            let load = pin!(cache.get_or_insert_async(1, async { compute() }));
            let Poll::Ready(entry) = load.poll(&mut Context::from_waker(Waker::noop())) else { return 0 };
            entry[0]
        },
        // The weigher, or the closure of times, forks.
        &|cache| cache.get_or_insert_with(1, value)[0],
        &|cache| cache.insert(1, value()).unwrap()[0],
    ];
    for (at, call) in calls.iter().enumerate() {
        for is_first in [true, false] {
            let Some(zone) = lasting() else { return };
            let builder = Cache::builder();
            let builder = if is_first { builder.zone_first(zone) } else { builder.zone(zone) };
            let builder = builder.weigher(move |_, _| {
                if is_first {
                    fork_once();
                }
                PAGE
            });
            let times = |_: &u32, _: &[u64; 8]| {
                fork_once();
                weir::Expiry::default()
            };
            let cache = builder.expire_after(times).build().unwrap();
            assert_eq!(forks_inside(|| call(&cache), says), 7, "call {at}");
            assert_eq!(cache.get_copied(&1), Some([7; 8]));
            // Nobody else has a hold of it.
            assert_eq!((cache.evict(usize::MAX), cache.len()), (PAGE, 0), "call {at}");
        }
    }
}

/// A child whose own code is inside a load of its parent's asks for the key anew.
#[test]
fn a_child_of_a_fork_inside_a_load_may_load_the_key_itself() {
    let _alone = alone();
    let Some(zone) = lasting() else { return };
    let cache = weir::ByteCache::builder().zone(zone).build().unwrap();
    let fill = |value: &mut [u8]| {
        fork_once();
        if IS_CHILD.get() {
            let own = cache.get_or_fill(b"key", 5, |value: &mut [u8]| {
                value.fill(9);
                Ok::<(), ()>(())
            });
            return if own.is_ok_and(|own| own.is_ok_and(|own| own[..] == [9; 5])) { Err(()) } else { Ok(()) };
        }
        value.fill(7);
        Ok(())
    };
    let load = || cache.get_or_fill(b"key", 5, fill).map(Result::unwrap);
    let entry = forks_inside(load, |given| given.is_ok_and(|given| given.is_err())).unwrap();
    assert_eq!(entry[..], [7; 5]);
    drop(entry);
    assert!(!cache.is_in_use() && cache.contains(b"key"));
}

/// A value that is filled in place is given back, as where there is no memory.
#[test]
fn a_child_of_a_fork_as_a_filled_value_is_put_in_has_it_refused() {
    let _alone = alone();
    let Some(zone) = lasting() else { return };
    let told = |_: &[u8], _: &[u8], cause| {
        if matches!(cause, weir::RemovalCause::Room) {
            fork_once();
        }
    };
    // Entries weigh their pages, and a heavy one is as good as many.
    let builder = weir::ByteCache::builder().favour(weir::Favour::Bytes).shards(1).max_bytes(40 * PAGE);
    let cache = builder.zone(zone).on_evict(told).build().unwrap();
    (0..40u8).for_each(|key| drop(cache.insert(&[key], &[key; 10]).unwrap()));
    // More has to go for it than one shard gives up at a time.
    let mut fill = cache.fill(b"key", 29 * PAGE).unwrap();
    fill.fill(7);
    let is_refused = |given: Result<Result<weir::ByteEntry<'_>, (weir::ByteFill<'_>, weir::Refusal)>, &str>| {
        given.is_ok_and(|given| given.is_err_and(|(_, why)| matches!(why, weir::Refusal::OutOfMemory)))
    };
    let entry = forks_inside(|| fill.publish(), is_refused).map_err(|(_, why)| why).unwrap();
    assert!(entry.iter().all(|&byte| byte == 7));
    drop(entry);
    assert!(!cache.is_in_use() && cache.contains(b"key"));
}

#[test]
fn a_child_of_fork_leaves_a_shared_zone_to_its_parent() {
    let _alone = alone();
    let Some(fd) = memfd(4 * MIB) else { return };
    let zone = file_zone(&fd, 4 * MIB).unwrap();
    let own = Zone::anonymous(4 * MIB).unwrap();
    let mut kept = zone.alloc(MIB).unwrap();
    kept.fill(3);
    zone.alloc(2 * MIB).unwrap().fill(4);
    // The parent's background thread is not to give back meanwhile what the child must not.
    weir::settings::set("report", "0").unwrap();
    let before = blocks_of(&fd);
    in_forked(|| {
        assert!(zone.alloc(4096).is_none() && own.alloc(4096).is_some());
        weir::settings::set("report", "1").unwrap();
        weir::heap::trim();
        assert_eq!(kept.filled()[0], 3);
    });
    assert_eq!(blocks_of(&fd), before, "the child gave its parent's memory back");
    weir::settings::set("report", "1").unwrap();
    assert!(kept.filled().iter().all(|&b| b == 3));
    trim_until("what is free to leave", || blocks_of(&fd) == MIB as u64);
}
