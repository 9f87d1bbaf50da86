//! The mappings of a process, by kind: the lines of `/proc/PID/smaps`, whose resident bytes add up to the resident set.

use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::telemetry::stats::Stats;
use weir_linux::platform::memory::address_layout::{METADATA, WINDOWS};

/// The kind of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Where Weir hands out objects and runs.
    WeirHeap,
    /// Weir's own.
    WeirMetadata,
    /// Weir's pages of statistics.
    WeirPage,
    /// Private memory without a file: the program's, an allocator's other than Weir, or blocks that Weir maps singly.
    Anonymous,
    /// The heap that `brk` grows.
    Brk,
    Stack,
    /// Code and constants of programs and libraries, and what the kernel maps of its own.
    Code,
    /// Variables of programs and libraries.
    Data,
    File,
    /// Memory that processes share: tmpfs, memfd, System V.
    Shared,
}

/// A part of the resident set: a mapping, or the copied pages of a private mapping of a file.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub kind: Kind,
    pub address: (u64, u64),
    pub file: Option<PathBuf>,
    pub resident: u64,
    /// In huge pages.
    pub huge: u64,
    pub locked: u64,
    pub swapped: u64,
    /// Estimated: in huge pages, and holds zeros alone.
    pub empty: u64,
}

/// Where Weir's heap and its metadata lie in a process. Beside them the program may map what it likes.
#[derive(Clone, Debug, Default)]
pub struct Areas {
    heap: Range<u64>,
    metadata: Range<u64>,
}

impl Areas {
    /// As its Weir tells it.
    pub fn of(page: &Stats) -> Self {
        let range = |words: &[AtomicU64; 2]| words[0].load(Relaxed)..words[1].load(Relaxed);
        Self { heap: range(&page.heap_addresses), metadata: range(&page.metadata_addresses) }
    }

    /// All addresses at which they may lie: of a Weir that tells nothing.
    pub fn widest() -> Self {
        let range = |area: Range<usize>| area.start as u64..area.end as u64;
        Self { heap: range(WINDOWS), metadata: range(METADATA) }
    }
}

/// Bytes of a stack below its pointer at most: glibc's threads have 8 MiB where the limit for stacks is the usual one.
const STACK_BELOW: u64 = 8 << 20;
/// Bytes of a stack above its pointer at most: all frames lie there, and deep calls fill a stack.
const STACK_ABOVE: u64 = 8 << 20;

/// Sorts the mappings by kind. `stacks` are addresses in the stacks of threads, `in_memory` the devices of which the files are
/// memory (tmpfs), `areas` where Weir's memory is. `end_of` says where the variables end of the file that is mapped there.
pub fn sort(
    maps: &[MemoryMap],
    stacks: &[u64],
    in_memory: &HashSet<(i32, i32)>,
    areas: &Areas,
    mut end_of: impl FnMut(&MemoryMap) -> Option<u64>,
) -> Vec<Mapping> {
    let path = |map: &MemoryMap| match &map.pathname {
        MMapPath::Path(path) => Some(path.clone()),
        _ => None,
    };
    let is_code = |map: &&MemoryMap| map.perms.contains(MMPermissions::EXECUTE);
    let programs: HashSet<PathBuf> = maps.iter().filter(is_code).filter_map(path).collect();
    let mut sorted = Vec::new();
    // Where a program's or library's file ends that was mapped last: its variables that are zero at first follow, without
    // a name.
    let mut last: Option<&MemoryMap> = None;
    for map in maps {
        let file = path(map);
        let is_program = file.as_ref().is_some_and(|file| programs.contains(file) && !is_in_memory(file));
        let before = last.filter(|last| last.address.1 == map.address.0);
        if is_program {
            last = Some(map);
        }
        let kind = match &map.pathname {
            _ if is_program => Kind::Code,
            MMapPath::Anonymous if before.is_some() => Kind::Data,
            MMapPath::Anonymous => of_address(map, stacks, areas),
            MMapPath::Path(_) if in_memory.contains(&map.dev) => Kind::Shared,
            name => of_name(name),
        };
        add(&mut sorted, map, kind, file);
        if kind == Kind::Stack && map.pathname == MMapPath::Anonymous {
            cut_stacks(&mut sorted, stacks);
        }
        if let Some(end) = before.filter(|_| kind == Kind::Data).and_then(&mut end_of) {
            cut(&mut sorted, end);
        }
    }
    sorted
}

/// The last mapping is of variables up to `end` at most. The kernel has merged a mapping of the program's with them that follows:
/// what cannot be of the variables is of that.
fn cut(sorted: &mut Vec<Mapping>, end: u64) {
    let Some(data) = sorted.last_mut() else { return };
    let (begin, last) = data.address;
    if end < last && split(sorted, end.saturating_sub(begin), (end, last)) {
        let data = sorted.len() - 2;
        sorted[data].address.1 = end;
    }
}

/// The last mapping has stacks in it. The kernel merges a stack with what the program maps beside it, and a stack may lie inside a
/// block of malloc's: what is too far from every stack pointer is of another. What is no larger than a stack is one.
fn cut_stacks(sorted: &mut Vec<Mapping>, stacks: &[u64]) {
    let Some(&Mapping { address: (begin, end), .. }) = sorted.last() else { return };
    if end - begin <= STACK_BELOW + STACK_ABOVE {
        return;
    }
    let mut inside: Vec<u64> = stacks.iter().copied().filter(|pointer| (begin..end).contains(pointer)).collect();
    inside.sort_unstable();
    let reach = |pointer: u64| (pointer.saturating_sub(STACK_BELOW).max(begin), (pointer + STACK_ABOVE).min(end));
    let (mut at, mut most, mut largest) = (begin, 0, (begin, begin));
    // The end of the mapping is the end of the last gap.
    for (from, to) in inside.into_iter().map(reach).chain([(end, end)]) {
        let from = from.max(at);
        if from - at > largest.1 - largest.0 {
            largest = (at, from);
        }
        most += to - from;
        at = to;
    }
    split(sorted, most, largest);
}

/// Leaves the last mapping `most` resident bytes. The others become a mapping of the program's own, at `address`; `false`: there
/// are none.
fn split(sorted: &mut Vec<Mapping>, most: u64, address: (u64, u64)) -> bool {
    let Some(whole) = sorted.last_mut().filter(|whole| whole.resident > most) else { return false };
    let rest = |of: u64| of.saturating_sub(most);
    let own = Mapping {
        kind: Kind::Anonymous,
        address,
        resident: rest(whole.resident),
        huge: rest(whole.huge),
        locked: rest(whole.locked),
        swapped: rest(whole.swapped),
        empty: 0,
        file: None,
    };
    for (figure, own) in [
        (&mut whole.resident, own.resident),
        (&mut whole.huge, own.huge),
        (&mut whole.locked, own.locked),
        (&mut whole.swapped, own.swapped),
    ] {
        *figure -= own;
    }
    sorted.push(own);
    true
}

/// Adds a mapping; the copied pages of a private mapping of a file as a part of its own.
fn add(sorted: &mut Vec<Mapping>, map: &MemoryMap, kind: Kind, file: Option<PathBuf>) {
    let of = |name: &str| map.extension.map.get(name).copied().unwrap_or(0);
    let (resident, anonymous) = (of("Rss"), of("Anonymous").min(of("Rss")));
    let copied = match kind {
        Kind::Code if file.is_some() => Some(Kind::Data),
        Kind::File | Kind::Shared => Some(Kind::Anonymous),
        _ => None,
    };
    let whole = Mapping {
        kind,
        address: map.address,
        resident,
        huge: of("AnonHugePages") + of("ShmemPmdMapped") + of("FilePmdMapped"),
        locked: of("Locked"),
        swapped: of("Swap"),
        empty: 0,
        file,
    };
    match copied.filter(|_| anonymous > 0) {
        Some(kind) => {
            let locked = whole.locked.min(anonymous);
            let clean = Mapping {
                resident: resident - anonymous,
                huge: 0,
                locked: whole.locked - locked,
                swapped: 0,
                ..whole.clone()
            };
            sorted.extend([clean, Mapping { kind, resident: anonymous, locked, ..whole }]);
        }
        None => sorted.push(whole),
    }
}

fn of_name(name: &MMapPath) -> Kind {
    match name {
        MMapPath::Path(path) if is_weirs(path) => Kind::WeirPage,
        MMapPath::Path(path) if is_in_memory(path) => Kind::Shared,
        MMapPath::Path(_) => Kind::File,
        MMapPath::Vsys(_) => Kind::Shared,
        MMapPath::Other(name) if name.starts_with("anon_shmem") => Kind::Shared,
        MMapPath::Other(name) if name.starts_with("anon:") => Kind::Anonymous,
        MMapPath::Heap => Kind::Brk,
        MMapPath::Stack | MMapPath::TStack(_) => Kind::Stack,
        // What the kernel maps of its own, such as the vDSO.
        _ => Kind::Code,
    }
}

fn of_address(map: &MemoryMap, stacks: &[u64], areas: &Areas) -> Kind {
    let (begin, end) = map.address;
    if areas.heap.contains(&begin) {
        Kind::WeirHeap
    } else if areas.metadata.contains(&begin) {
        Kind::WeirMetadata
    } else if stacks.iter().any(|pointer| (begin..end).contains(pointer)) {
        Kind::Stack
    } else {
        Kind::Anonymous
    }
}

/// The pages of statistics.
fn is_weirs(path: &Path) -> bool {
    path.to_string_lossy().starts_with("/memfd:weir-")
}

fn is_in_memory(path: &Path) -> bool {
    let path = path.to_string_lossy();
    ["/memfd:", "/dev/shm/", "/dev/zero (deleted)", "/SYSV"].iter().any(|start| path.starts_with(start))
}

/// The stack pointers of a process's threads, as far as they wait in the kernel. That of a thread that runs is not told. None:
/// this user may read none, of more threads than the first, of which the kernel names the stack.
pub fn stack_pointers(pid: i32) -> Option<Vec<u64>> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    pointers(threads.map(|thread| std::fs::read_to_string(thread.path().join("syscall"))))
}

/// The stack pointers in such texts, a thread each.
fn pointers(texts: impl Iterator<Item = io::Result<String>>) -> Option<Vec<u64>> {
    let texts: Vec<_> = texts.collect();
    let is_refused =
        |text: &io::Result<String>| text.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::PermissionDenied);
    if texts.len() > 1 && texts.iter().all(is_refused) {
        return None;
    }
    let pointer = |text: String| {
        // The last two words are the stack pointer and the instruction's address.
        let word = text.split_whitespace().rev().nth(1)?;
        u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
    };
    Some(texts.into_iter().flatten().filter_map(pointer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead;
    use procfs::process::MemoryMaps;

    /// As the kernel writes them, but for the blank behind the number of a mapping without a file.
    const SMAPS: &str = "\
55d0f0000000-55d0f0002000 r-xp 00000000 fe:00 11 /usr/bin/program
Rss: 8 kB
Anonymous: 0 kB
55d0f0002000-55d0f0003000 rw-p 00002000 fe:00 11 /usr/bin/program
Rss: 4 kB
Anonymous: 4 kB
55d0f0003000-55d0f0103000 rw-p 00000000 00:00 0
Rss: 1000 kB
Anonymous: 1000 kB
55d0f1000000-55d0f1100000 rw-p 00000000 00:00 0 [heap]
Rss: 100 kB
Anonymous: 100 kB
200000000000-200000400000 rw-p 00000000 00:00 0
Rss: 4096 kB
Anonymous: 4096 kB
AnonHugePages: 2048 kB
680000000000-680000400000 rw-p 00000000 00:00 0
Rss: 40 kB
Anonymous: 40 kB
7f0000000000-7f0000800000 rw-p 00000000 00:00 0
Rss: 16 kB
Anonymous: 16 kB
7f1000000000-7f1000800000 rw-p 00000000 00:00 0
Rss: 512 kB
Anonymous: 512 kB
Locked: 512 kB
7f2000000000-7f2000800000 rw-p 00000000 fe:00 12 /data/table
Rss: 600 kB
Anonymous: 200 kB
7f3000000000-7f3000800000 rw-s 00000000 00:01 13 /memfd:frames (deleted)
Rss: 60 kB
Anonymous: 0 kB
7f3100000000-7f3100008000 rw-s 00000000 00:01 14 /memfd:weir-page (deleted)
Rss: 20 kB
Anonymous: 0 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
Rss: 24 kB
Anonymous: 24 kB
7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0 [vdso]
Rss: 4 kB
Anonymous: 0 kB
";

    #[test]
    fn every_resident_page_has_one_kind() {
        let maps = MemoryMaps::from_read(SMAPS.replace(" 0\n", " 0 \n").as_bytes()).unwrap();
        let sorted = sort(&maps.0, &[0x7f00_0000_1000], &HashSet::new(), &Areas::widest(), |_| None);
        let kib = |kind| sorted.iter().filter(|map| map.kind == kind).map(|map| map.resident).sum::<u64>() >> 10;
        let kinds = [Kind::Code, Kind::Data, Kind::Brk, Kind::WeirHeap, Kind::WeirMetadata, Kind::WeirPage];
        assert_eq!(kinds.map(kib), [12, 1004, 100, 4096, 40, 20]);
        let kinds = [Kind::Stack, Kind::Anonymous, Kind::File, Kind::Shared];
        assert_eq!(kinds.map(kib), [40, 712, 400, 60]);
        let sum: u64 = sorted.iter().map(|map| map.resident).sum();
        assert_eq!(sum, maps.iter().map(|map| map.extension.map["Rss"]).sum::<u64>());
        assert_eq!(sorted.iter().map(|map| map.huge >> 10).sum::<u64>(), 2048);
        assert_eq!(sorted.iter().map(|map| map.locked >> 10).sum::<u64>(), 512);
    }

    /// 1,000 KiB follow a file whose variables end 64 KiB behind it.
    #[test]
    fn what_is_merged_behind_variables_is_the_programs_own() {
        let maps = MemoryMaps::from_read(SMAPS.replace(" 0\n", " 0 \n").as_bytes()).unwrap();
        let sorted = sort(&maps.0, &[], &HashSet::new(), &Areas::widest(), |map| Some(map.address.1 + (64 << 10)));
        let kib = |kind| sorted.iter().filter(|map| map.kind == kind).map(|map| map.resident).sum::<u64>() >> 10;
        assert_eq!([Kind::Data, Kind::Anonymous].map(kib), [68, 936 + 712 + 16]);
    }

    /// 30 of 40 MiB behind a thread's 128 KiB of stack; stacks in the midst of 100 MiB; one alone, of deep calls.
    #[test]
    fn what_is_merged_with_stacks_is_the_programs_own() {
        const SMAPS: &str = "\
7f0000000000-7f0002820000 rw-p 00000000 00:00 0
Rss: 30720 kB
Locked: 30720 kB
7f1000000000-7f1006400000 rw-p 00000000 00:00 0
Rss: 102400 kB
AnonHugePages: 102400 kB
7f2000000000-7f2000800000 rw-p 00000000 00:00 0
Rss: 8000 kB
";
        let maps = MemoryMaps::from_read(SMAPS.replace(" 0\n", " 0 \n").as_bytes()).unwrap();
        let stacks = [0x7f10_0300_0000, 0x7f00_0000_f000, 0x7f10_0310_0000, 0x7f20_0001_0000];
        let sorted = sort(&maps.0, &stacks, &HashSet::new(), &Areas::widest(), |_| None);
        let of = |kind, figure: fn(&Mapping) -> u64| {
            sorted.iter().filter(|map| map.kind == kind).map(|map| figure(map) >> 10).collect::<Vec<_>>()
        };
        assert_eq!(of(Kind::Stack, |map| map.resident), [8252, 17 << 10, 8000]);
        assert_eq!(of(Kind::Anonymous, |map| map.resident), [30720 - 8252, 83 << 10]);
        assert_eq!(of(Kind::Anonymous, |map| map.huge + map.locked), [30720 - 8252, 83 << 10]);
        assert_eq!(of(Kind::Anonymous, |map| map.address.0), [0x7f00_0080_f000 >> 10, 0x7f10_0390_0000 >> 10]);
    }

    /// What a process has written to its own copy is its own, and a program in memory is one as any other.
    #[test]
    fn a_file_in_a_tmpfs_is_shared_memory() {
        const SMAPS: &str = "\
7f0000000000-7f0000800000 r--s 00000000 00:2a 12 /mnt/table
Rss: 600 kB
Anonymous: 0 kB
7f1000000000-7f1000800000 rw-p 00000000 00:2a 13 /mnt/other
Rss: 300 kB
Anonymous: 100 kB
7f2000000000-7f2000800000 r--s 00000000 fe:2a 12 /data/table
Rss: 50 kB
Anonymous: 0 kB
7f3000000000-7f3000008000 r-xp 00000000 00:2a 14 /mnt/program
Rss: 8 kB
Anonymous: 0 kB
";
        let maps = MemoryMaps::from_read(SMAPS.as_bytes()).unwrap();
        let sorted = sort(&maps.0, &[], &HashSet::from([(0, 0x2a)]), &Areas::widest(), |_| None);
        let kib = |kind| sorted.iter().filter(|map| map.kind == kind).map(|map| map.resident).sum::<u64>() >> 10;
        let kinds = [Kind::Shared, Kind::Anonymous, Kind::File, Kind::Code];
        assert_eq!(kinds.map(kib), [800, 100, 50, 8]);
    }

    #[test]
    fn without_weir_its_addresses_mean_nothing() {
        let maps = MemoryMaps::from_read(SMAPS.replace(" 0\n", " 0 \n").as_bytes()).unwrap();
        let sorted = sort(&maps.0, &[], &HashSet::new(), &Areas::default(), |_| None);
        assert!(!sorted.iter().any(|map| map.kind == Kind::WeirHeap));
    }

    /// As Go's heap may lie, of which the beginning is random too.
    #[test]
    fn what_lies_beside_weirs_own_window_is_the_programs() {
        let stats = Stats::new();
        let areas = [&stats.heap_addresses, &stats.metadata_addresses];
        for (words, [begin, end]) in areas.into_iter().zip([[21 << 40, 25 << 40], [0x67ff << 32, 0x6800_0000_1000]]) {
            words[0].store(begin, Relaxed);
            words[1].store(end, Relaxed);
        }
        let maps = MemoryMaps::from_read(SMAPS.replace(" 0\n", " 0 \n").as_bytes()).unwrap();
        let sorted = sort(&maps.0, &[], &HashSet::new(), &Areas::of(&stats), |_| None);
        let kind = |at| sorted.iter().find(|map| map.address.0 == at).map(|map| map.kind);
        assert_eq!(kind(0x2000_0000_0000), Some(Kind::Anonymous));
        assert_eq!(kind(0x6800_0000_0000), Some(Kind::WeirMetadata));
    }

    #[test]
    fn stacks_are_hidden_where_every_thread_refuses() {
        let of = |texts: &[Result<&str, i32>]| {
            let text = |text: &Result<&str, i32>| text.map(str::to_owned).map_err(io::Error::from_raw_os_error);
            pointers(texts.iter().map(text))
        };
        let waits = Ok("230 0x0 0x0 0x7ffe5f0 0x0 0x0 0x0 0x7ffe5a0 0x7f1b2c\n");
        assert_eq!(of(&[waits, Ok("running\n"), Ok("-1 0x7ffe100 0x7f1b2c\n")]), Some(vec![0x7ff_e5a0, 0x7ff_e100]));
        assert_eq!(of(&[Err(libc::EPERM), Err(libc::EACCES)]), None);
        // The kernel names the stack of the first.
        assert_eq!((of(&[Err(libc::EPERM)]), of(&[])), (Some(Vec::new()), Some(Vec::new())));
        // One that has ended refuses nothing.
        assert_eq!(of(&[Err(libc::EPERM), Err(libc::ESRCH)]), Some(Vec::new()));
    }

    #[test]
    fn a_waiting_thread_tells_its_stack_pointer() {
        if let Err(why) = std::fs::read_to_string("/proc/self/syscall") {
            return weir_testing::skip!("/proc/self/syscall cannot be read: {why}");
        }
        let ((tell, told), (end, is_over)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let sleeper = std::thread::spawn(move || {
            let variable = 0u8;
            tell.send((&raw const variable).addr() as u64).unwrap();
            is_over.recv().is_ok()
        });
        let (own, variable) = (std::process::id() as i32, told.recv().unwrap());
        // It lies below the variable, by a few frames.
        let is_near = |pointer: u64| variable.wrapping_sub(pointer) < 64 << 10;
        weir_testing::wait_until("the thread to wait", || stack_pointers(own).into_iter().flatten().any(is_near));
        drop(end);
        sleeper.join().unwrap();
    }
}
