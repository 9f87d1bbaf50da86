//! Why the resident set is as large as it is: rules, each of which looks for one cause.

use super::growth::Growth;
use super::look::Look;
use super::mappings::Kind;
use super::parts::{Name, Parts};
use crate::base::output::printable_line;
use crate::base::units::{bytes, nanoseconds};
use serde::Serialize;

/// What can hold memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Growth,
    Fragmentation,
    Retained,
    ReportingOff,
    HugePages,
    OtherAllocator,
    OwnMapping,
    Locked,
    Limit,
    PageTables,
    Metadata,
    Children,
    /// Of files that the process has open.
    PageCache,
    /// Of all that the process's cgroup did with files.
    CgroupPageCache,
    /// The program uses it: nothing is wrong.
    InUse,
    Files,
    SharedMemory,
    Stacks,
    Data,
}

/// A cause that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub cause: Cause,
    pub bytes: u64,
    /// In plain words.
    pub says: String,
    /// What would release the memory: commands, settings, calls.
    pub cures: Vec<String>,
}

/// What the rules go by.
pub struct Case<'a> {
    pub look: &'a Look,
    pub parts: &'a Parts,
    pub growth: Option<&'a Growth>,
}

/// The least that is worth a word, bytes, and as a share of the resident set: 1 / SHARE.
const LEAST: u64 = 1 << 20;
const SHARE: u64 = 20;
/// The least growth between two looks that is told, bytes: what a program at rest moves is less.
const LEAST_GROWTH: u64 = 64 << 10;

/// All causes that apply: first what is out of the ordinary, largest first, then what the program just uses.
pub fn find(case: &Case) -> Vec<Finding> {
    let rules: [fn(&Case) -> Option<Finding>; 18] = [
        fragmentation,
        idle,
        huge_pages,
        other_allocator,
        own_mapping,
        locked,
        limit,
        page_tables,
        metadata,
        children,
        page_cache,
        page_cache_of_group,
        in_use,
        files,
        shared,
        stacks,
        data,
        growth,
    ];
    let mut found: Vec<Finding> = rules.iter().filter_map(|rule| rule(case)).collect();
    found.sort_by_key(|it| (it.cause.rank(), std::cmp::Reverse(it.bytes)));
    found
}

impl Cause {
    /// Growth ends in trouble whatever its size; the last ones are what every program has.
    fn rank(self) -> u32 {
        match self {
            Self::Growth => 0,
            Self::CgroupPageCache => 3,
            Self::InUse | Self::Files | Self::SharedMemory | Self::Stacks | Self::Data => 2,
            _ => 1,
        }
    }

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Growth => "growth",
            Self::Fragmentation => "fragmentation",
            Self::Retained => "retained",
            Self::ReportingOff => "reporting off",
            Self::HugePages => "huge pages",
            Self::OtherAllocator => "another allocator",
            Self::OwnMapping => "the program's own mappings",
            Self::Locked => "locked memory",
            Self::Limit => "limit missed",
            Self::PageTables => "page tables",
            Self::Metadata => "metadata",
            Self::Children => "children",
            Self::PageCache => "page cache",
            Self::CgroupPageCache => "page cache of the cgroup",
            Self::InUse => "in use",
            Self::Files => "mapped files",
            Self::SharedMemory => "shared memory",
            Self::Stacks => "stacks",
            Self::Data => "static data",
        }
    }
}

impl Case<'_> {
    fn is_large(&self, bytes: u64) -> bool {
        bytes >= LEAST.max(self.parts.resident_bytes() / SHARE)
    }

    /// A finding about so many bytes, if they are worth it.
    fn finding(&self, cause: Cause, bytes: u64, says: String, cures: Vec<String>) -> Option<Finding> {
        self.is_large(bytes).then_some(Finding { cause, bytes, says, cures })
    }

    /// A command for this process.
    fn ctl(&self, request: &str, what: &str) -> String {
        let silent = self.look.weir.as_ref().and_then(|weir| weir.silent.as_deref());
        match silent {
            None => format!("`weir ctl {} {request}`: {what}", self.look.pid),
            Some(why) => format!("start it anew so that `weir ctl` can {request} ({why}): {what}"),
        }
    }
}

fn fragmentation(case: &Case) -> Option<Finding> {
    let fragmented = case.parts.bytes(Name::Fragmented);
    let mut holders = case.look.weir.as_ref()?.holders.clone();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.beside_bytes()));
    let worst: Vec<String> = holders
        .iter()
        .filter(|holder| holder.beside_bytes() > 0)
        .take(3)
        .map(|it| format!("{} ({} in use of {})", it.name, bytes(it.used_bytes), bytes(it.held_bytes)))
        .collect();
    let says = format!(
        "{} are free but lie beside objects that are in use on the same pages, as after a peak of which a few objects \
         were left: {}.",
        bytes(fragmented),
        if worst.is_empty() { "no one cache stands out".into() } else { worst.join(", ") }
    );
    let cures = vec![
        "free the objects that were left of the peak, or allocate what lives long before it or from an object cache of \
         its own (`weir::ObjectCache`, `weir_cache_create`)"
            .into(),
        "new allocations of the same sizes fill it first: it is not lost, and need not grow".into(),
    ];
    case.finding(Cause::Fragmentation, fragmented, says, cures)
}

/// Free memory that could be released, and is not.
fn idle(case: &Case) -> Option<Finding> {
    let weir = case.look.weir.as_ref()?;
    let idle = case.parts.bytes(Name::Idle);
    let cached: u64 = weir.holders.iter().map(|holder| holder.cached_bytes).sum();
    let mut holders = weir.holders.clone();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.cached_bytes));
    let deepest = holders.first().filter(|holder| holder.cached_bytes > 0).map(|holder| &holder.name);
    let place = match deepest {
        Some(name) => {
            format!(", of them {} in depots and CPUs' buckets, most of it of {name}", bytes(cached.min(idle)))
        }
        None => String::new(),
    };
    let free = format!("{} are free and could be released{place}", bytes(idle));
    let setting = |name| case.look.setting(name);
    if setting("report") == Some(0) {
        let says = format!("{free}; the setting `report` is 0, so that Weir releases nothing.");
        let cures =
            vec![case.ctl("set report 1", "Weir releases what is idle again; for good, leave `WEIR_REPORT=0` out")];
        return case.finding(Cause::ReportingOff, idle, says, cures);
    }
    if setting("background").is_some_and(|mode| mode != 1) && !weir.has_thread {
        // Without a thread much is not measured: what is free of it stays, too.
        let unmeasured = case.parts.bytes(Name::HeapUnmeasured);
        let says = format!(
            "{free}, and {} of its heap are not measured; the setting `background` is not 1, so that no thread releases \
             what is free while the program allocates nothing, and no pressure is heard.",
            bytes(unmeasured)
        );
        let cures = vec!["start it without `WEIR_BACKGROUND`, or let the program call `weir_trim`".into()];
        return case.finding(Cause::ReportingOff, idle + unmeasured, says, cures);
    }
    let window = setting("idle_ms").unwrap_or(0).saturating_mul(1_000_000);
    let mut says =
        format!("{free}; Weir keeps what the program used at its peak of the last {}.", nanoseconds(window.max(1)));
    if weir.refused > 0 {
        says += &format!(" The kernel refused {} batches, as it does for locked memory.", weir.refused);
    }
    let mut cures = vec![
        case.ctl("trim", "releases what is idle, and caches down to what they will want again"),
        case.ctl("drain", "releases all that is free"),
    ];
    if window > 10_000_000_000 {
        cures.push(case.ctl("set idle_ms 300", "releases it by itself within a second; that is the default"));
    }
    case.finding(Cause::Retained, idle, says, cures)
}

fn huge_pages(case: &Case) -> Option<Finding> {
    let look = case.look;
    let huge: u64 = look.mappings.iter().map(|map| map.huge).sum();
    let where_to =
        if look.empty_in_heap_bytes * 2 > look.empty_bytes { "Weir's heap" } else { "the program's own mappings" };
    let says = format!(
        "about {} of the {} in huge pages hold zeros alone, most of it in {where_to}: the first touch of one byte makes \
         2 MiB resident. The machine's policy is `{}`.",
        bytes(look.empty_bytes),
        bytes(huge),
        look.huge_page_policy
    );
    let cures = vec![
        "the program's madvise(MADV_NOHUGEPAGE) for what it touches here and there, or no MADV_HUGEPAGE".into(),
        "for this program alone: prctl(PR_SET_THP_DISABLE) before it starts".into(),
        "for the machine: `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`, as root".into(),
    ];
    case.finding(Cause::HugePages, look.empty_bytes, says, cures)
}

fn other_allocator(case: &Case) -> Option<Finding> {
    let look = case.look;
    let name = look.allocator.as_ref()?;
    // What huge pages hold for nothing is told as such.
    let held = case.parts.bytes(Name::OwnMappings) + case.parts.bytes(Name::BrkHeap);
    let held = held.saturating_sub(look.empty_bytes - look.empty_in_heap_bytes);
    let beside = if look.weir.is_some() { "Weir is loaded, but" } else { "the process runs without Weir:" };
    let says = format!(
        "{beside} {name} serves the program, and holds {} at most. How much of that is free it tells only to the program.",
        bytes(held)
    );
    let mut cures = vec![format!("`weir doctor {}` says why Weir does not serve it", look.pid)];
    cures.push(match name.as_str() {
        "glibc's malloc" | "musl's malloc" => {
            "start it by `weir run PROGRAM`; of glibc, `malloc_trim(0)` releases it".into()
        }
        "jemalloc" => {
            "`mallctl(\"arena.4096.purge\")` releases it, `MALLOC_CONF=dirty_decay_ms:0` keeps none; or build \
                       the program without it"
                .into()
        }
        _ => "link the program with Weir, or without its allocator and start it by `weir run PROGRAM`".into(),
    });
    case.finding(Cause::OtherAllocator, held, says, cures)
}

fn own_mapping(case: &Case) -> Option<Finding> {
    let look = case.look;
    // Another allocator's memory is not told from other mappings.
    if look.allocator.is_some() {
        return None;
    }
    let own = case.parts.bytes(Name::OwnMappings);
    // What huge pages hold for nothing is told as such.
    let unexplained = own.saturating_sub(look.empty_bytes - look.empty_in_heap_bytes);
    let largest = look.mappings.iter().filter(|map| map.kind == Kind::Anonymous).max_by_key(|map| map.resident)?;
    let zones = look.weir.as_ref().map_or(0, |weir| weir.zone_bytes);
    let says = format!(
        "the program itself has mapped {} that no malloc knows of; the largest is {:x}-{:x}, {} of {} resident{}.",
        bytes(own),
        largest.address.0,
        largest.address.1,
        bytes(largest.resident),
        bytes(largest.address.1 - largest.address.0),
        if zones > 0 {
            format!("; {} of its mappings are zones that it gave Weir", bytes(zones))
        } else {
            String::new()
        }
    );
    let cures = vec![
        "the program's madvise(MADV_DONTNEED) or munmap of what it does not need now".into(),
        "memory from malloc, or a page pool of Weir's, is released under pressure by itself".into(),
    ];
    case.finding(Cause::OwnMapping, unexplained, says, cures)
}

fn locked(case: &Case) -> Option<Finding> {
    let locked = case.look.locked_bytes;
    let says = format!(
        "{} are locked by mlock or mlockall: they stay resident, and neither Weir nor the kernel can release them, free \
         or not.",
        bytes(locked)
    );
    let cures = vec![
        "the program's munlock or munlockall; mlock2(MLOCK_ONFAULT) and mlockall(MCL_ONFAULT) lock only what is touched".into(),
        "a limit for what it may lock: `ulimit -l`, systemd's LimitMEMLOCK=".into(),
    ];
    case.finding(Cause::Locked, locked, says, cures)
}

fn limit(case: &Case) -> Option<Finding> {
    let limit = case.look.setting("limit").filter(|&limit| limit > 0)?;
    let resident = case.parts.resident_bytes();
    let over = resident.checked_sub(limit)?;
    let idle = case.parts.bytes(Name::Idle);
    let says = format!(
        "the limit is {}, and the resident set {}: {} cannot be released, as they are in use, fragmented or not Weir's; \
         memory in use is never refused for `limit`.",
        bytes(limit),
        bytes(resident),
        bytes(resident - idle)
    );
    let cures = vec![
        "let the program hold less: caches of its own as `weir::EvictableCache`, or a shrinker, shrink under the limit"
            .into(),
        format!("a limit that it can keep: `weir ctl {} set limit SIZE`", case.look.pid),
        "`hard_limit`, or the cgroup's memory.max, if allocations are to fail instead".into(),
    ];
    // However small the excess is, somebody set the limit.
    (over > 0).then_some(Finding { cause: Cause::Limit, bytes: over, says, cures })
}

fn page_tables(case: &Case) -> Option<Finding> {
    let tables = case.look.page_table_bytes;
    let says = format!(
        "the kernel's page tables for it take {} beside the resident set: its memory is touched here and there in a large \
         range, and every 2 MiB of that cost 4 KiB.",
        bytes(tables)
    );
    let cures = vec![
        "the program's munmap of what it left: madvise alone keeps the tables".into(),
        "keep what is used close together; huge pages need no such tables".into(),
    ];
    case.finding(Cause::PageTables, tables, says, cures)
}

fn metadata(case: &Case) -> Option<Finding> {
    let metadata = case.parts.bytes(Name::Metadata);
    let says = format!("{} are Weir's own: tables of its heap, and what waits in depots.", bytes(metadata));
    let cures = vec![
        case.ctl("drain", "releases the buckets of depots, and with them what they take"),
        "it grows with the heap's peak and with the number of caches and CPUs".into(),
    ];
    case.finding(Cause::Metadata, metadata, says, cures)
}

fn children(case: &Case) -> Option<Finding> {
    let all = &case.look.descendants;
    let sum = all.iter().map(|member| member.resident_bytes).sum();
    let mut largest: Vec<_> = all.iter().collect();
    largest.sort_by_key(|member| std::cmp::Reverse(member.resident_bytes));
    let named: Vec<String> = largest
        .iter()
        .take(3)
        .map(|it| format!("{} ({}) {}", printable_line(&it.command), it.pid, bytes(it.resident_bytes)))
        .collect();
    let says = format!(
        "its {} child processes have resident sets of {} in all, which do not count to this one (pages that they share \
         count in each): {}.",
        all.len(),
        bytes(sum),
        named.join(", ")
    );
    let cures = largest.first().map(|it| format!("look at the child: `weir why {}`", it.pid)).into_iter().collect();
    case.finding(Cause::Children, sum, says, cures)
}

/// Memory that is taken for the process's, and is the kernel's copy of files.
fn page_cache(case: &Case) -> Option<Finding> {
    let files = &case.look.cached_files;
    let mapped = case.parts.bytes(Name::Files) + case.parts.bytes(Name::Code);
    let cached = files.iter().map(|file| file.bytes).sum::<u64>().saturating_sub(mapped);
    let most = files.first()?;
    let says = format!(
        "{} are the kernel's page cache of files that it has open: in no resident set, and taken back for whoever needs \
         memory; {} has most, {}.",
        bytes(cached),
        printable_line(&most.path.to_string_lossy()),
        bytes(most.bytes)
    );
    case.finding(Cause::PageCache, cached, says, page_cache_cures())
}

fn page_cache_of_group(case: &Case) -> Option<Finding> {
    let group = case.look.charged.as_ref()?;
    let cached = group.page_cache_bytes;
    let says = format!(
        "of the {} that are charged to its cgroup {} are the kernel's page cache: in no resident set, and taken back for \
         whoever needs memory.",
        bytes(group.bytes),
        bytes(cached)
    );
    case.finding(Cause::CgroupPageCache, cached, says, page_cache_cures())
}

fn page_cache_cures() -> Vec<String> {
    vec![
        "none is needed: `free` counts it as available, and reclaim takes it first".into(),
        "the program's posix_fadvise(POSIX_FADV_DONTNEED) when it has read a file once, or O_DIRECT".into(),
    ]
}

fn in_use(case: &Case) -> Option<Finding> {
    let live = case.parts.bytes(Name::Live);
    let most = case.look.weir.as_ref()?.holders.iter().max_by_key(|holder| holder.used_bytes);
    let most = most.map_or(String::new(), |it| format!(", most of it ({}) of {}", bytes(it.used_bytes), it.name));
    let says = format!("the program holds {} of objects{most}.", bytes(live));
    let cures = vec![
        "the program frees it, or keeps less".into(),
        format!("`weir why {} --growth` says whether it grows, as a leak does", case.look.pid),
    ];
    case.finding(Cause::InUse, live, says, cures)
}

fn files(case: &Case) -> Option<Finding> {
    let files = case.parts.bytes(Name::Files);
    let largest = case.look.mappings.iter().filter(|map| map.kind == Kind::File).max_by_key(|map| map.resident)?;
    let name = largest.file.as_ref().map_or_else(String::new, |file| printable_line(&file.to_string_lossy()));
    let says = format!("{} of mapped files are resident, of {name} most, {}.", bytes(files), bytes(largest.resident));
    let cures = vec!["the kernel takes it back under pressure; the program's madvise(MADV_DONTNEED) or munmap".into()];
    case.finding(Cause::Files, files, says, cures)
}

fn shared(case: &Case) -> Option<Finding> {
    let shared = case.parts.bytes(Name::Shared);
    let says = format!("{} are memory that it may share with other processes: tmpfs, memfd, System V.", bytes(shared));
    let cures = vec!["remove the file or segment (`ipcs -m`, /dev/shm), or fallocate(FALLOC_FL_PUNCH_HOLE)".into()];
    case.finding(Cause::SharedMemory, shared, says, cures)
}

fn stacks(case: &Case) -> Option<Finding> {
    let stacks = case.parts.bytes(Name::Stacks);
    let count = case.look.mappings.iter().filter(|map| map.kind == Kind::Stack).count();
    let says = format!("{} are the stacks of {count} threads.", bytes(stacks));
    let cures = vec!["fewer threads, or less deep calls in them: a stack keeps what it once reached".into()];
    case.finding(Cause::Stacks, stacks, says, cures)
}

fn data(case: &Case) -> Option<Finding> {
    let data = case.parts.bytes(Name::Data);
    let says = format!("{} are variables of the program and its libraries.", bytes(data));
    case.finding(Cause::Data, data, says, vec!["smaller static tables in the program".into()])
}

fn growth(case: &Case) -> Option<Finding> {
    let growth = case.growth?;
    let more = growth.bytes();
    if more < LEAST_GROWTH {
        return None;
    }
    let an_hour = (u128::from(more) * 3_600_000_000_000 / u128::from(growth.ns.max(1))).min(u64::MAX.into()) as u64;
    let sizes: Vec<String> =
        growth.holders.iter().map(|(name, more)| format!("{name} by {}", bytes(more.unsigned_abs()))).collect();
    let in_sizes = if sizes.is_empty() { String::new() } else { format!(": {}", sizes.join(", ")) };
    let says = format!(
        "what the program holds grew by {} in {}{in_sizes}. If it goes on, that is {} in an hour: a leak, or a cache \
         without a bound.",
        bytes(more),
        nanoseconds(growth.ns),
        bytes(an_hour)
    );
    let cures = vec![
        "find what allocates these sizes and does not free them: a heap profile, or a breakpoint on malloc with this size".into(),
        "look over a longer time to be sure: `--growth=1m`".into(),
        "until then a bound: `hard_limit`, or the cgroup's memory.max".into(),
    ];
    Some(Finding { cause: Cause::Growth, bytes: more, says, cures })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::look::OfWeir;
    use crate::why::mappings::Mapping;

    fn look(mappings: &[(Kind, u64)], measured: [u64; 5]) -> Look {
        let mapping = |&(kind, mib): &(Kind, u64)| Mapping {
            kind,
            address: (0, mib << 20),
            file: None,
            resident: mib << 20,
            huge: 0,
            locked: 0,
            swapped: 0,
        };
        let weir = OfWeir { measured: Some(measured.map(|mib| mib << 20)), ..OfWeir::default() };
        Look { pid: 7, weir: Some(weir), mappings: mappings.iter().map(mapping).collect(), ..Look::default() }
    }

    fn causes(look: &Look) -> Vec<Finding> {
        find(&Case { look, parts: &Parts::of(look), growth: None })
    }

    fn names(look: &Look) -> Vec<Cause> {
        causes(look).iter().map(|it| it.cause).collect()
    }

    #[test]
    fn what_is_out_of_the_ordinary_comes_first_and_what_is_small_not_at_all() {
        let maps =
            [(Kind::WeirHeap, 60), (Kind::WeirMetadata, 6), (Kind::Code, 3), (Kind::Stack, 1), (Kind::Anonymous, 4)];
        let mut look = look(&maps, [40, 12, 8, 6, 0]);
        assert_eq!(
            names(&look),
            [Cause::Retained, Cause::Fragmentation, Cause::Metadata, Cause::OwnMapping, Cause::InUse]
        );
        look.weir.as_mut().unwrap().measured = Some([60 << 20, 0, 0, 6 << 20, 0]);
        look.mappings.truncate(2);
        assert_eq!(names(&look), [Cause::Metadata, Cause::InUse]);
        let metadata = &causes(&look)[0];
        assert!(metadata.bytes == 6 << 20 && metadata.cures[0].starts_with("`weir ctl 7 drain`"), "{metadata:?}");
    }

    #[test]
    fn a_setting_explains_why_idle_memory_stays() {
        let mut look = look(&[(Kind::WeirHeap, 60)], [10, 50, 0, 0, 0]);
        assert_eq!(names(&look)[0], Cause::Retained);
        for (setting, value) in [("report", 0), ("background", 0), ("background", 2)] {
            look.weir.as_mut().unwrap().settings = [(setting.to_owned(), value)].into();
            assert_eq!(names(&look)[0], Cause::ReportingOff, "{setting}");
        }
    }

    #[test]
    fn a_limit_that_is_kept_is_no_cause() {
        let mut look = look(&[(Kind::WeirHeap, 60)], [60, 0, 0, 0, 0]);
        for (limit, is_missed) in [(0, false), (59 << 20, true), (60 << 20, false), (1 << 30, false)] {
            look.weir.as_mut().unwrap().settings = [("limit".to_owned(), limit)].into();
            assert_eq!(names(&look).contains(&Cause::Limit), is_missed, "{limit}");
        }
    }

    #[test]
    fn memory_is_not_explained_twice() {
        let mut look = look(&[(Kind::Anonymous, 64)], [0; 5]);
        assert_eq!(names(&look), [Cause::OwnMapping]);
        look.empty_bytes = 60 << 20;
        assert_eq!(names(&look), [Cause::HugePages, Cause::OwnMapping]);
        look.empty_bytes = 64 << 20;
        assert_eq!(names(&look), [Cause::HugePages]);
    }
}
