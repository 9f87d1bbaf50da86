//! Checks of this machine: what works on it, and what Weir does without what does not.

use super::check::Check;
use crate::base::units::bytes;
use rustix::process::{Resource, getrlimit};
use std::path::Path;
use weir_core::base::units::PAGE;
use weir_core::platform::cpu_table::MAX_CPUS;
use weir_core::telemetry::tunables::Tunables;
use weir_linux::os::process::auxiliary;
use weir_linux::os::syscall::Errno;
use weir_linux::os::{fd, mman};
use weir_linux::platform::machine::{self, HugePages};
use weir_linux::pressure::group::cgroup::{GroupDir, GroupFile, Membership, Version};
use weir_linux::pressure::group::memcg;
use weir_linux::pressure::psi::{self, Kind, Threshold};

fn check(name: &'static str, good: bool, found: impl Into<String>, with: &'static str, without: &'static str) -> Check {
    Check::of(name, good, found, if good { with } else { without })
}

/// Looks at everything.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![kernel(), pages(), library(), rseq(), mm_cid(), membarrier(), address_space(), overcommit()];
    checks.extend([
        huge_pages(),
        khugepaged(),
        same_page_merging(),
        process_madvise(),
        locked_memory(),
        numa(),
        zones(),
        system_psi(),
    ]);
    checks.extend(group_checks());
    checks.extend([descriptors(), deepbind()]);
    checks
}

/// The fate of libraries that a program opens with `RTLD_DEEPBIND`.
fn deepbind() -> Check {
    let is_left = std::env::var("WEIR_DEEPBIND").is_ok_and(|value| value != "0");
    let found = if is_left { "left to `dlopen` (WEIR_DEEPBIND)" } else { "cleared by `dlopen`" };
    let with = "libraries opened so (PHP's extensions) share the heap; WEIR_DEEPBIND=1 leaves the bit";
    let without = "a library opened so takes libc's `free`: the first block it frees of the program's ends the process";
    check("RTLD_DEEPBIND", !is_left, found, with, without)
}

fn number_in(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Major and minor version of a release of the kernel.
fn kernel_version(release: &str) -> Option<(u64, u64)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel() -> Check {
    let version = kernel_version(rustix::system::uname().release().to_str().unwrap_or_default());
    let found = version.map_or("unknown".into(), |(major, minor)| format!("Linux {major}.{minor}"));
    // A guess, from the files that container engines leave.
    let marks = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
    let place = if marks.iter().any(|mark| Path::new(mark).exists()) { ", in a container" } else { "" };
    let without = "older than 6.13: some of what is below is slower or absent";
    check("kernel", version >= Some((6, 13)), found + place, "all that Weir uses is in it", without)
}

fn library() -> Check {
    let path = crate::library::find();
    let found = path.as_ref().map_or_else(|why| why.to_string(), |path| path.display().to_string());
    check("libweir.so", path.is_ok(), found, "`weir run` preloads it", "`weir run` fails")
}

/// The registration made by glibc: offset from the thread pointer, and size.
fn glibc_rseq() -> Option<(isize, u32)> {
    // SAFETY: looks up symbols by name; if they exist, glibc defines them as a ptrdiff_t and an unsigned int
    // that do not change after start.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        (!offset.is_null() && !size.is_null()).then(|| (offset.read(), size.read()))
    }
}

fn rseq() -> Check {
    let glibc = glibc_rseq();
    let found = match glibc {
        Some((_, 0)) => "switched off (glibc.pthread.rseq=0, or refused by a sandbox)".into(),
        Some((offset, size)) => format!("registered by libc, offset {offset}, size {size}"),
        None => "libc registers none (glibc before 2.35, or another libc): each thread does, unless WEIR_RSEQ=0".into(),
    };
    let (with, without) =
        ("per-CPU buckets without locks", "per-CPU buckets behind a lock: about 25 ns more for a malloc and free");
    if let Some(most) = most_cpus().filter(|&most| most > MAX_CPUS) {
        let found = format!("not used: this kernel may have {most} CPUs, more than {MAX_CPUS}");
        return check("rseq", false, found, with, without);
    }
    check("rseq", glibc.is_none_or(|(_, size)| size > 0), found, with, without)
}

/// One more than the highest number that a CPU can ever have.
fn most_cpus() -> Option<usize> {
    machine::possible_cpus().map(|(_, most)| most)
}

/// Bytes of the rseq area that the kernel fills in; not there before Linux 6.3.
fn rseq_features() -> Option<usize> {
    const AT_RSEQ_FEATURE_SIZE: u32 = 27;
    auxiliary(AT_RSEQ_FEATURE_SIZE).filter(|&size| size > 0)
}

/// Whether these have the number of the thread among those of its process.
fn has_mm_cid() -> bool {
    rseq_features() >= Some(28)
}

fn mm_cid() -> Check {
    let found = rseq_features().map_or("not offered".into(), |s| format!("{s} bytes of rseq features"));
    let with = "as many buckets as threads run at once, not as CPUs exist";
    let without = "buckets by CPU number: more of them on large machines; one zone for all CPUs of a NUMA node";
    check("mm_cid", has_mm_cid(), found, with, without)
}

fn membarrier() -> Check {
    let good = machine::membarrier_rseq();
    let with = "buckets of sleeping CPUs can be drained";
    let found = if good { "restarts rseq" } else { "absent (before Linux 5.10) or refused" };
    check("membarrier", good, found, with, "buckets behind a lock, so that they can be drained at all")
}

fn address_space() -> Check {
    let limit = getrlimit(Resource::As).current;
    let found = limit.map_or("no limit".into(), |limit| format!("limit {}", bytes(limit)));
    let without = "the heap grows until all that the program maps comes to it; nothing is reserved";
    check(
        "address space",
        limit.is_none(),
        found + " (RLIMIT_AS)",
        "the heap is mapped as it grows; nothing is reserved",
        without,
    )
}

fn overcommit() -> Check {
    let mode = number_in("/proc/sys/vm/overcommit_memory");
    let found = mode.map_or("unknown".into(), |m| format!("vm.overcommit_memory={m}"));
    let with = "mappings are charged as they are touched";
    let without = "where it is 2, what is mapped is charged, touched or not; a quiet heap unmaps what it released";
    check("overcommit", mode.is_some_and(|m| m < 2), found, with, without)
}

/// Kernels of arm64 may have longer pages than the heap has.
fn pages() -> Check {
    let bytes = weir_linux::os::page::bytes();
    let without =
        "memory goes back in pages of the kernel's; huge pages and merging (WEIR_HUGE_HEAP, WEIR_MERGE) are not used";
    check("pages", bytes == PAGE, format!("{} KiB", bytes >> 10), "memory goes back page by page", without)
}

fn huge_pages() -> Check {
    let mode = machine::huge_pages();
    // The mode in brackets, of those that there are.
    let defrag = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/defrag").unwrap_or_default();
    let defrag = defrag.split(['[', ']']).nth(1).unwrap_or_default();
    let found = match mode {
        HugePages::Absent => "absent".into(),
        _ => format!("{mode:?}, defrag {defrag}").to_lowercase(),
    };
    let with = match mode {
        HugePages::Always => "behind all of the heap; whole huge pages are released first",
        _ => "behind blocks of more than 4 MiB that are filled; WEIR_HUGE_HEAP=1 asks for them behind all of the heap",
    };
    let good = matches!(mode, HugePages::Always | HugePages::Madvise);
    check("huge pages", good, found, with, "small pages only; releasing takes more calls")
}

fn khugepaged() -> Check {
    let none = number_in("/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none");
    let found = none.map_or("unknown".into(), |n| format!("khugepaged/max_ptes_none={n}"));
    let good = none.is_none_or(|n| n == 0);
    let without = "khugepaged may fill a block released in part: whole blocks are released first. 0 would stop it";
    check("khugepaged", good, found, "memory that was released in part stays so", without)
}

/// Whether the kernel merges equal pages, which is root's to switch.
fn same_page_merging() -> Check {
    let read = |name: &str| std::fs::read_to_string(format!("/sys/kernel/mm/ksm/{name}")).ok();
    let found = match (read("run"), read("pages_to_scan"), read("sleep_millisecs")) {
        (Some(run), Some(pages), Some(ms)) => {
            format!("ksm/run={}, {} pages each {} ms", run.trim(), pages.trim(), ms.trim())
        }
        _ => "not in this kernel, or hidden".into(),
    };
    let good = read("run").is_some_and(|run| run.trim() == "1");
    let with = "WEIR_MERGE=1 has pages of which few objects are left merged: `weir why PID` says what that releases";
    let without = match read("run") {
        Some(_) => "WEIR_MERGE=1 does nothing; as root: echo 1 > /sys/kernel/mm/ksm/run (off is the kernel's default)",
        None => "WEIR_MERGE=1 does nothing",
    };
    check("same-page merging", good, found, with, without)
}

fn process_madvise() -> Check {
    let good = machine::process_madvise();
    let found = if good { "works on oneself" } else { "refused (before Linux 6.13, or a sandbox)" };
    let without = "one madvise a range: 5 times the cost for single pages";
    check("process_madvise", good, found, "many ranges released by one call", without)
}

/// Whether locked memory can be released: tried on a page of this process.
fn locked_memory() -> Check {
    const LEN: usize = 4096;
    let tried = mman::mmap_anonymous(LEN, 0).map(|at| {
        let locked = mman::mlock(at, LEN);
        // SAFETY: the page mapped above; its contents are not needed.
        let taken = unsafe { mman::madvise(at, LEN, mman::MADV_DONTNEED) };
        // SAFETY: the whole mapping made above; no pointer into it is used after this.
        let _ = unsafe { mman::munmap(at, LEN) };
        (locked, taken)
    });
    let (is_tried, found) = match tried {
        Ok((Ok(()), Err(e))) => (true, format!("not released ({e})")),
        Ok((Ok(()), Ok(()))) => (true, "released all the same".into()),
        Ok((Err(e), _)) | Err(e) => (false, format!("cannot be tried ({e})")),
    };
    let effect =
        "a program that locks its memory (mlockall) keeps all of it: nothing is released, and that is said once";
    Check::of("locked memory", is_tried, found, effect)
}

fn numa() -> Check {
    let nodes = machine::online_nodes().map_or(1, |(count, _)| count);
    let found = format!("{nodes} node{}", if nodes == 1 { "" } else { "s" });
    check("NUMA", true, found, "a node's memory serves its own CPUs first; one balancer for all nodes", "")
}

/// The zones of a process that is started as this one was.
fn zones() -> Check {
    let zone_cpus = Tunables::new().zone_cpus.get() as usize;
    let nodes = machine::node_count();
    let parts = if has_mm_cid() { machine::parts(zone_cpus, nodes).1 } else { 1 };
    let found = format!("{} at most for a process on these CPUs, by default", nodes * parts);
    check(
        "zones",
        true,
        found,
        "each serves up to `zone_cpus` (16) threads that run at once, where mm_cid is there",
        "",
    )
}

const WITHOUT_PSI: &str = "no stalls are reported: limits and their headroom are read instead";

fn system_psi() -> Check {
    let open = || fd::open(c"/proc/pressure/memory", fd::O_RDWR | fd::O_NONBLOCK);
    let readable = fd::stat(c"/proc/pressure/memory").is_ok();
    pressure_file("PSI, system", readable, open)
}

fn pressure_file(name: &'static str, readable: bool, open: impl Fn() -> Result<i32, Errno>) -> Check {
    let wanted = Threshold { kind: Kind::Some, stall_us: 70_000, window_us: 1_000_000 };
    match psi::arm(open, wanted) {
        Ok(armed) => {
            let _ = fd::close(armed.fd);
            let window = format!("trigger, window {} s", armed.threshold.window_us / 1_000_000);
            let without = "without CAP_SYS_RESOURCE windows are multiples of 2 s: reported up to a second later";
            check(name, armed.threshold == wanted, window, "woken when tasks wait for memory", without)
        }
        Err(e) if readable && e != Errno::EOPNOTSUPP => {
            check(name, false, format!("read only ({e})"), "", "read every 250 ms while the heap is warm")
        }
        Err(e) => check(name, false, format!("absent ({e})"), "", WITHOUT_PSI),
    }
}

fn group_checks() -> Vec<Check> {
    let groups = Membership::find();
    let mut checks = Vec::new();
    match groups.memory.as_ref().and_then(|group| GroupDir::open(group).ok()) {
        Some(dir) => {
            checks.push(group_version(&dir));
            checks.push(group_limits(&dir));
            dir.close();
        }
        None => checks.push(check("cgroup", false, "none found", "", "no group limits are watched")),
    }
    if let Some(dir) = groups.unified.as_ref().and_then(|group| GroupDir::open(group).ok()) {
        let mut buf = [0; 256];
        let readable = dir.read_file(0, GroupFile::Pressure, &mut buf).is_ok();
        let open = || dir.open_file(0, b"memory.pressure", fd::O_RDWR | fd::O_NONBLOCK);
        checks.push(pressure_file("PSI, own cgroup", readable, open));
        dir.close();
    }
    checks
}

fn group_version(dir: &GroupDir) -> Check {
    if dir.version == Version::V1 {
        let without = "limits are read; pressure_level is used if cgroup.event_control may be written";
        return check("cgroup", false, "version 1", "", without);
    }
    // The root has no such file, nor has a group without the memory controller.
    let events = dir.open_file(0, b"memory.events", fd::O_RDONLY).map(fd::close);
    let found = if events.is_ok() { "version 2" } else { "version 2, without memory.events" };
    let without = "no event of the group's wakes Weir: limits and stalls are read";
    check("cgroup", events.is_ok(), found, "memory.events wake Weir", without)
}

fn group_limits(dir: &GroupDir) -> Check {
    let limits = memcg::effective_limits(dir);
    let say = |name: &str, limit: Option<u64>| limit.map_or(format!("no {name}"), |l| format!("{name} {}", bytes(l)));
    let found = format!("{}, {}", say("max", limits.max), say("high", limits.high));
    check("cgroup limits", true, found, "headroom below the lowest of them is watched", "")
}

/// Tried on a thread of its own, which is where Weir needs it.
fn descriptors() -> Check {
    let work = || weir_linux::os::file::descriptor_table::private_table().is_ok();
    let tried = std::thread::Builder::new().spawn(work).map(|thread| thread.join().unwrap_or(false));
    let (with, without) = (
        "the program does not see the background thread's files",
        "no files are kept open; everything is read every 250 ms while warm",
    );
    let found = match &tried {
        Ok(true) => "close_range works".into(),
        Ok(false) => "close_range and unshare refused".into(),
        Err(why) => format!("cannot start a thread: {why}"),
    };
    check("own descriptors", matches!(tried, Ok(true)), found, with, without)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use weir_linux::os::file::path::FixedPath;
    use weir_linux::pressure::group::cgroup::Cgroup;

    #[test]
    fn events_wake_weir_where_there_are_some() {
        let top = tempfile::tempdir().unwrap();
        let path = FixedPath::from_parts(&[top.path().as_os_str().as_bytes()]).unwrap();
        let dir = GroupDir::open(&Cgroup { version: Version::V2, dir: path, depth: 0 }).unwrap();
        assert!(group_version(&dir).found.contains("without memory.events"));
        std::fs::write(top.path().join("memory.events"), "high 0\n").unwrap();
        let version = group_version(&dir);
        assert_eq!((&*version.found, version.effect), ("version 2", "memory.events wake Weir"));
        dir.close();
    }

    #[test]
    fn releases() {
        assert_eq!(kernel_version("6.18.44-x86"), Some((6, 18)));
        assert_eq!(kernel_version("7.0"), Some((7, 0)));
        assert_eq!(kernel_version(""), None);
        assert!(kernel_version(rustix::system::uname().release().to_str().unwrap()) >= Some((3, 0)));
    }

    #[test]
    fn everything_is_looked_at_once_and_says_what_it_means() {
        let checks = checks();
        let mut names: Vec<_> = checks.iter().map(|c| c.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), checks.len());
        assert!(checks.iter().all(|c| !c.effect.is_empty() && !c.found.is_empty()), "{checks:?}");
    }
}
