//! Features of this machine, read without changing anything: for the engine's choices and for `weir doctor`.

use crate::os::file::path::FixedPath;
use crate::os::file::text::{after, chosen, list_bits, list_count, number, words};
use crate::os::mman::{self, MADV_DONTNEED};
use crate::os::page;
use crate::os::{fd, futex, tasks};
use weir_core::base::run::Run;
use weir_core::base::units::PAGE;

/// When the kernel backs memory with huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Wherever a range is large enough.
    Always,
    /// Where advised.
    Madvise,
    /// Never.
    Never,
    /// The kernel has no transparent huge pages.
    Absent,
}

impl HugePages {
    /// Whether memory that came in huge pages comes in single ones under this mode. It may have asked for them (`on_advice`).
    pub(crate) fn ends(self, on_advice: bool) -> bool {
        match self {
            Self::Always => false,
            Self::Madvise => !on_advice,
            Self::Never => true,
            // It is not known: the file is not there, or not to be opened.
            Self::Absent => false,
        }
    }
}

/// CPUs that can ever come online, and one more than the highest of their numbers: the size of tables by CPU.
pub fn possible_cpus() -> Option<(usize, usize)> {
    let mut buf = [0u8; 256];
    let (count, highest) = list_count(fd::read_file(c"/sys/devices/system/cpu/possible", &mut buf).ok()?)?;
    Some((usize::try_from(count).ok()?, usize::try_from(highest).ok()? + 1))
}

/// NUMA nodes online: how many, and the highest of their numbers. `None` where the kernel has no such list.
pub fn online_nodes() -> Option<(usize, usize)> {
    let mut buf = [0u8; 256];
    let (count, highest) = list_count(fd::read_file(c"/sys/devices/system/node/online", &mut buf).ok()?)?;
    Some((usize::try_from(count).ok()?, usize::try_from(highest).ok()?))
}

/// The mode of transparent huge pages. Those of a kernel with longer pages are longer than a pageblock: it counts as one without.
pub fn huge_pages() -> HugePages {
    let Some(files) = ModeFiles::open() else { return HugePages::Absent };
    let mode = files.mode();
    files.close();
    mode
}

/// The files that say whether the kernel counts all that is mapped, used or not, open as [`ModeFiles`] are.
pub(crate) struct CountFiles {
    /// `vm.overcommit_memory`: at 2 it counts against what all processes may have.
    overcommit: Option<i32>,
    /// The process's limits.
    limits: Option<i32>,
}

impl CountFiles {
    pub(crate) fn open() -> Self {
        let open = |path| fd::open(path, fd::O_RDONLY).ok();
        Self { overcommit: open(c"/proc/sys/vm/overcommit_memory"), limits: open(c"/proc/self/limits") }
    }

    /// What they say now; no where they say nothing.
    pub(crate) fn are_mappings_counted(&self) -> bool {
        let mut buf = [0u8; 4096];
        let mut says = |file: Option<i32>, what: fn(&[u8]) -> bool| {
            let len = file.and_then(|file| fd::pread(file, &mut buf, 0).ok());
            len.and_then(|len| buf.get(..len)).is_some_and(what)
        };
        says(self.overcommit, |text| number(text) == Some(2)) || says(self.limits, limits_mappings)
    }
}

/// Whether `RLIMIT_AS` or `RLIMIT_DATA` limits what is mapped, by the text of the process's limits.
fn limits_mappings(text: &[u8]) -> bool {
    let soft = |key: &[u8]| words(after(text, key)?).next();
    [&b"Max address space "[..], b"Max data size "]
        .iter()
        .any(|key| soft(key).is_some_and(|bytes| bytes != b"unlimited"))
}

/// The files that say the mode, open: they can be read again where no file may be opened any more.
pub(crate) struct ModeFiles {
    /// Of all huge pages.
    all: i32,
    /// Of those of 2 MiB, which decides unless it says that it inherits (Linux 6.8).
    own: Option<i32>,
}

impl ModeFiles {
    pub(crate) fn open() -> Option<Self> {
        let open = |path| fd::open(path, fd::O_RDONLY).ok();
        if page::bytes() != PAGE {
            return None;
        }
        let all = open(c"/sys/kernel/mm/transparent_hugepage/enabled")?;
        Some(Self { all, own: open(c"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled") })
    }

    /// The mode that they say now.
    pub(crate) fn mode(&self) -> HugePages {
        let says = |file: i32| {
            let mut buf = [0u8; 64];
            let text = fd::pread(file, &mut buf, 0).ok().and_then(|len| buf.get(..len));
            text.and_then(chosen).and_then(mode_named)
        };
        self.own.and_then(says).or_else(|| says(self.all)).unwrap_or(HugePages::Absent)
    }

    fn close(self) {
        for file in [Some(self.all), self.own].into_iter().flatten() {
            let _ = fd::close(file);
        }
    }
}

/// `None`: another file says it.
fn mode_named(name: &[u8]) -> Option<HugePages> {
    match name {
        b"always" => Some(HugePages::Always),
        b"madvise" => Some(HugePages::Madvise),
        b"inherit" => None,
        _ => Some(HugePages::Never),
    }
}

/// Whether a fence can restart other threads' restartable sequences.
pub fn membarrier_rseq() -> bool {
    use futex::command::{PRIVATE_EXPEDITED_RSEQ, QUERY, REGISTER_PRIVATE_EXPEDITED_RSEQ};
    let needed = PRIVATE_EXPEDITED_RSEQ | REGISTER_PRIVATE_EXPEDITED_RSEQ;
    futex::membarrier(QUERY, 0, 0).is_ok_and(|mask| mask & needed == needed)
}

/// Whether one call can release many ranges of this process. Tried on a page made for it.
pub fn process_madvise() -> bool {
    let Ok(page) = mman::mmap_anonymous(PAGE, 0) else { return false };
    // SAFETY: the page was just mapped and only this function has its address.
    unsafe {
        let works = mman::process_madvise(&[Run { addr: page as usize, len: PAGE }], MADV_DONTNEED) == Ok(PAGE);
        let _ = mman::munmap(page, PAGE);
        works
    }
}

/// One more than the highest number of a NUMA node; 1 where there is one node or the kernel does not say.
pub fn node_count() -> usize {
    if fd::stat(c"/sys/devices/system/node/node1").is_err() {
        return 1;
    }
    online_nodes().map_or(1, |(_, highest)| highest + 1)
}

/// Words of a mask of CPUs.
const MASK_WORDS: usize = 128;

/// How many threads use one part of each NUMA node, and how many parts each has, if `zone_cpus` threads that run at once are to
/// share one.
pub fn parts(zone_cpus: usize, numa_nodes: usize) -> (usize, usize) {
    let mut own = [0; MASK_WORDS];
    match tasks::affinity(&mut own) {
        Ok(_) => parts_of(&own, zone_cpus, numa_nodes, node_cpus),
        Err(_) => (1, 1),
    }
}

/// [`parts`] of a process that runs on all CPUs of `own`: its threads spread over the NUMA nodes that these are of. It may be bound
/// to some, and a node may be of memory alone.
fn parts_of(
    own: &[u64],
    zone_cpus: usize,
    numa_nodes: usize,
    cpus_of: impl Fn(usize) -> Option<[u64; MASK_WORDS]>,
) -> (usize, usize) {
    let cpus = own.iter().map(|word| word.count_ones() as usize).sum::<usize>();
    let meets = |cpus: [u64; MASK_WORDS]| cpus.iter().zip(own).any(|(node, own)| node & own != 0);
    // So few CPUs share one part wherever they are.
    let reached = match numa_nodes {
        1 => 1,
        _ if cpus <= zone_cpus => 1,
        _ => (0..numa_nodes).filter(|&node| cpus_of(node).is_some_and(meets)).count().max(1),
    };
    let threads = zone_cpus * reached;
    (threads, cpus.div_ceil(threads).max(1))
}

/// The CPUs of a NUMA node; `None`: it has none, or the kernel does not say.
pub(crate) fn node_cpus(node: usize) -> Option<[u64; MASK_WORDS]> {
    let (mut list, mut cpus) = ([0; 1024], [0; MASK_WORDS]);
    let path = FixedPath::format(format_args!("/sys/devices/system/node/node{node}/cpulist"))?;
    list_bits(fd::read_file(path.as_c_str(), &mut list).ok()?, &mut cpus)?;
    Some(cpus)
}

/// A bound above every CPU index of this machine; `usize::MAX` where the kernel does not say.
pub(crate) fn cpus_bound() -> usize {
    // The kernel fills as many bytes as its CPU masks have, which is the bound, in bits; it refuses a shorter buffer.
    tasks::affinity(&mut [0; 128]).map_or(usize::MAX, |words| words * 64)
}

#[cfg(test)]
mod tests {
    use super::HugePages::{Absent, Always, Madvise, Never};
    use super::*;

    #[test]
    fn memory_comes_in_single_pages_once_the_mode_says_so() {
        let ends = |on_advice| [Always, Madvise, Never, Absent].map(|mode: HugePages| mode.ends(on_advice));
        assert_eq!(ends(false), [false, true, true, false]);
        assert_eq!(ends(true), [false, false, true, false]);
    }

    /// Files with such texts.
    fn mode_of(all: &str, own: Option<&str>) -> HugePages {
        let file = |text: &str| {
            // SAFETY: the name is a C string; the call gives a new descriptor.
            let file = unsafe { libc::memfd_create(c"mode".as_ptr(), 0) };
            fd::write(file, text.as_bytes()).unwrap();
            file
        };
        let files = ModeFiles { all: file(all), own: own.map(file) };
        let mode = files.mode();
        files.close();
        mode
    }

    #[test]
    fn the_mode_of_huge_pages_of_this_size_decides_unless_it_inherits() {
        const ALL: [&str; 3] = ["[always] madvise never\n", "always [madvise] never\n", "always madvise [never]\n"];
        let with = |own: Option<&str>| ALL.map(|all| mode_of(all, own));
        assert_eq!(with(None), [Always, Madvise, Never]);
        assert_eq!(with(Some("always [inherit] madvise never\n")), [Always, Madvise, Never]);
        assert_eq!(with(Some("always inherit madvise [never]\n")), [Never; 3]);
        assert_eq!(with(Some("[always] inherit madvise never\n")), [Always; 3]);
        assert_eq!(mode_of("", None), Absent);
    }

    #[test]
    fn a_limit_of_addresses_or_of_data_counts_what_is_mapped() {
        let text = |data: &str, addresses: &str| {
            std::format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max data size             {data:<20} unlimited            bytes     \n\
                 Max stack size            8388608              unlimited            bytes     \n\
                 Max address space         {addresses:<20} unlimited            bytes     \n"
            )
        };
        let counts = |data, addresses| limits_mappings(text(data, addresses).as_bytes());
        assert!(counts("419430400", "unlimited") && counts("unlimited", "419430400"));
        assert!(!counts("unlimited", "unlimited") && !limits_mappings(b""));
    }

    /// The parts of a process that may use the first `cpus` CPUs, on a machine of NUMA nodes with these: the first CPU of each, and
    /// the one behind its last.
    fn parts_on(cpus: usize, nodes: &[(usize, usize)]) -> usize {
        let mask = |(first, end): (usize, usize)| {
            let mut mask = [0; MASK_WORDS];
            (first..end).for_each(|cpu| mask[cpu / 64] |= 1 << (cpu % 64));
            mask
        };
        let cpus_of = |node: usize| nodes.get(node).copied().filter(|&(first, end)| first < end).map(mask);
        parts_of(&mask((0, cpus)), 16, nodes.len(), cpus_of).1
    }

    #[test]
    fn numa_nodes_have_parts_where_more_than_16_cpus_share_one() {
        let of_one = [1, 16, 17, 64].map(|cpus| parts_on(cpus, &[(0, cpus)]));
        assert_eq!(of_one, [1, 1, 2, 4]);
        assert_eq!(parts_on(128, &[(0, 64), (64, 128)]), 4);
        assert_eq!(parts_on(64, &[(0, 8), (8, 16), (16, 24), (24, 32), (32, 40), (40, 48), (48, 56), (56, 64)]), 1);
    }

    #[test]
    fn only_nodes_with_cpus_that_the_process_may_use_count() {
        assert_eq!(parts_on(64, &[(0, 64), (64, 128)]), 4, "it is bound to one of two");
        assert_eq!(parts_on(64, &[(0, 64), (0, 0)]), 4, "the second is of memory alone");
        assert_eq!(parts_on(32, &[(0, 16), (16, 32), (32, 48), (48, 64)]), 1, "it is bound to two of four");
        assert_eq!(parts_on(64, &[(0, 0), (0, 0)]), 4, "the kernel does not say");
    }

    #[test]
    fn this_machine_answers() {
        let (count, size) = possible_cpus().unwrap();
        assert!(count >= 1 && size >= count && count >= crate::os::tasks::affinity_count().unwrap());
        assert!(node_count() >= online_nodes().map_or(1, |(count, _)| count));
        let _ = (huge_pages(), process_madvise(), membarrier_rseq(), CountFiles::open().are_mappings_counted());
        assert!(node_cpus(0).is_none_or(|cpus| cpus.iter().any(|&word| word > 0)));
        assert_eq!(node_cpus(usize::MAX), None);
    }
}
