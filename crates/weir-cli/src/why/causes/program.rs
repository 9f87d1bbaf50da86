//! Causes in what the program itself, its libraries and the machine's policy make resident.

use super::cause::{Case, Cause, Finding};
use crate::base::output::printable_line;
use crate::base::units::bytes;
use crate::doctor::pymalloc;
use crate::why::mappings::Kind;
use crate::why::parts::Name;

/// Where empty huge pages are.
const HEAP: &str = "Weir's heap";
const OWN: &str = "the program's own mappings";
const BLOCKS: &str = "large blocks of malloc's";

pub fn huge_pages(case: &Case) -> Option<Finding> {
    let look = case.look;
    let huge: u64 = look.mappings.iter().map(|map| map.huge).sum();
    let empty = look.empty_bytes();
    let in_heap = look.empty(Kind::WeirHeap);
    let own = case.own_empty_bytes() + look.empty(Kind::Brk);
    let places = [(OWN, own), (BLOCKS, empty.saturating_sub(own + in_heap)), (HEAP, in_heap)];
    let where_to = places.into_iter().max_by_key(|&(_, bytes)| bytes)?.0;
    let says = format!(
        "about {} of the {} in huge pages hold zeros alone, most of it in {where_to}: the first touch of one byte \
         makes 2 MiB resident. The machine's policy is `{}`.",
        bytes(empty),
        bytes(huge),
        look.huge_page_policy
    );
    let asks = look.huge_page_policy == "madvise" && where_to == HEAP;
    let ours = asks.then_some("`weir ctl PID set huge_heap 0`, if the heap asks for huge pages");
    let program = [
        "the program's madvise(MADV_NOHUGEPAGE) for what it touches here and there, or no MADV_HUGEPAGE",
        "for this program alone: prctl(PR_SET_THP_DISABLE) before it starts",
    ];
    // Elsewhere only what asks for huge pages has them.
    let machine = (look.huge_page_policy == "always")
        .then_some("for the machine: `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`, as root");
    case.finding(Cause::HugePages, empty, says, ours.into_iter().chain(program).chain(machine))
}

pub fn other_allocator(case: &Case) -> Option<Finding> {
    let look = case.look;
    let name = look.allocator.as_ref()?;
    // What huge pages hold for nothing is told as such.
    let held = case.parts.bytes(Name::OwnMappings) + case.parts.bytes(Name::BrkHeap);
    let held = held.saturating_sub(case.own_empty_bytes() + look.empty(Kind::Brk));
    let beside = if look.weir.is_some() { "Weir is loaded, but" } else { "the process runs without Weir:" };
    let says = format!(
        "{beside} {name} serves the program, and holds {} at most. How much of it is free it tells only the program.",
        bytes(held)
    );
    let cure = match name.as_str() {
        pymalloc::NAME if look.weir.is_some() => pymalloc::CURE.into(),
        pymalloc::NAME => format!("start it by `weir run`, and {}", pymalloc::CURE.trim_start_matches("start it ")),
        "glibc's malloc" | "musl's malloc" => {
            "start it by `weir run PROGRAM`; of glibc, `malloc_trim(0)` releases it".into()
        }
        "jemalloc" => {
            "`mallctl(\"arena.4096.purge\")` releases it, `MALLOC_CONF=dirty_decay_ms:0` keeps none; or build \
                       the program without it"
                .into()
        }
        _ => "link the program with Weir, or without its allocator and start it by `weir run PROGRAM`".into(),
    };
    let cures = [format!("`weir doctor {}` says why Weir does not serve it", look.pid), cure];
    case.finding(Cause::OtherAllocator, held, says, cures)
}

pub fn own_mapping(case: &Case) -> Option<Finding> {
    let look = case.look;
    // Another allocator's memory is not told from other mappings.
    if look.allocator.is_some() {
        return None;
    }
    let own = case.parts.bytes(Name::OwnMappings);
    // What huge pages hold for nothing is told as such.
    let unexplained = own.saturating_sub(case.own_empty_bytes());
    // The kernel may have merged others with blocks of malloc's.
    let all_are_own =
        case.own_mappings().count() == look.mappings.iter().filter(|map| map.kind == Kind::Anonymous).count();
    let alone = if all_are_own { "" } else { " that can be its own alone" };
    let largest = case.own_mappings().max_by_key(|map| map.resident);
    let largest = largest.map_or(String::new(), |map| {
        let [resident, all] = [map.resident, map.address.1 - map.address.0].map(bytes);
        format!("; the largest{alone} is {:x}-{:x}, {resident} of {all} resident", map.address.0, map.address.1)
    });
    let zones = look.weir.as_ref().map_or(0, |weir| weir.zone_bytes);
    let given = format!("; {} of its mappings are zones that it gave Weir", bytes(zones));
    let given = if zones > 0 { given } else { String::new() };
    let says = format!("the program itself has mapped {} that no malloc knows of{largest}{given}.", bytes(own));
    let cures = [
        "the program's madvise(MADV_DONTNEED) or munmap of what it does not need now",
        "memory from malloc, or a page pool of Weir's, is released under pressure by itself",
    ];
    case.finding(Cause::OwnMapping, unexplained, says, cures)
}

pub fn locked(case: &Case) -> Option<Finding> {
    let locked = case.look.locked_bytes;
    let says = format!(
        "{} are locked by mlock or mlockall: they stay resident, and neither Weir nor the kernel can release them, \
         free or not.",
        bytes(locked)
    );
    let cures = [
        "the program's munlock or munlockall; MLOCK_ONFAULT and MCL_ONFAULT lock only what is touched",
        "a limit for what it may lock: `ulimit -l`, systemd's LimitMEMLOCK=",
    ];
    case.finding(Cause::Locked, locked, says, cures)
}

pub fn files(case: &Case) -> Option<Finding> {
    let files = case.parts.bytes(Name::Files);
    let largest = case.look.mappings.iter().filter(|map| map.kind == Kind::File).max_by_key(|map| map.resident)?;
    let name = largest.file.as_ref().map_or_else(String::new, |file| printable_line(&file.to_string_lossy()));
    let says = format!("{} of mapped files are resident, of {name} most, {}.", bytes(files), bytes(largest.resident));
    let cures = ["the kernel takes it back under pressure; the program's madvise(MADV_DONTNEED) or munmap"];
    case.finding(Cause::Files, files, says, cures)
}

pub fn shared(case: &Case) -> Option<Finding> {
    let shared = case.parts.bytes(Name::Shared);
    let says = format!("{} are memory that it may share with other processes: tmpfs, memfd, System V.", bytes(shared));
    let cures = ["remove the file or segment (`ipcs -m`, /dev/shm), or fallocate(FALLOC_FL_PUNCH_HOLE)"];
    case.finding(Cause::SharedMemory, shared, says, cures)
}

pub fn stacks(case: &Case) -> Option<Finding> {
    let stacks = case.parts.bytes(Name::Stacks);
    let count = case.look.mappings.iter().filter(|map| map.kind == Kind::Stack).count();
    let says = format!("{} are the stacks of {count} threads.", bytes(stacks));
    let cures = ["fewer threads, or less deep calls in them: a stack keeps what it once reached"];
    case.finding(Cause::Stacks, stacks, says, cures)
}

pub fn data(case: &Case) -> Option<Finding> {
    let data = case.parts.bytes(Name::Data);
    let says = format!("{} are variables of the program and its libraries.", bytes(data));
    case.finding(Cause::Data, data, says, ["smaller static tables in the program"])
}
