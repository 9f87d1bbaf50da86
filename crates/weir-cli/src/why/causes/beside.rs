//! Causes beside the resident set: memory that is taken for the process's and is in no part of it.

use super::cause::{Case, Cause, Finding};
use crate::base::output::printable_line;
use crate::base::units::bytes;
use crate::why::parts::Name;

const PAGE_CACHE_CURES: [&str; 2] = [
    "none is needed: `free` counts it as available, and reclaim takes it first",
    "the program's posix_fadvise(POSIX_FADV_DONTNEED) when it has read a file once, or O_DIRECT",
];

pub fn page_tables(case: &Case) -> Option<Finding> {
    let tables = case.look.page_table_bytes;
    let says = format!(
        "the kernel's page tables for it take {} beside the resident set: its memory is touched here and there in a \
         large range, and every 2 MiB of that cost 4 KiB.",
        bytes(tables)
    );
    let cures = [
        "the program's munmap of what it left: madvise alone keeps the tables",
        "keep what is used close together; huge pages need no such tables",
    ];
    case.finding(Cause::PageTables, tables, says, cures)
}

pub fn children(case: &Case) -> Option<Finding> {
    let mut all: Vec<_> = case.look.descendants.iter().collect();
    all.sort_by_key(|member| std::cmp::Reverse(member.resident_bytes));
    let sum = all.iter().map(|member| member.resident_bytes).sum();
    let name = |it: &&crate::around::family::Member| {
        format!("{} ({}) {}", printable_line(&it.command), it.pid, bytes(it.resident_bytes))
    };
    let says = format!(
        "its {} child processes have resident sets of {} in all, which do not count to this one (pages that they share \
         count in each): {}.",
        all.len(),
        bytes(sum),
        all.iter().take(3).map(name).collect::<Vec<_>>().join(", ")
    );
    let cures = all.first().map(|it| format!("look at the child: `weir why {}`", it.pid));
    case.finding(Cause::Children, sum, says, cures)
}

/// Memory that is taken for the process's, and is the kernel's copy of files.
pub fn page_cache(case: &Case) -> Option<Finding> {
    let files = &case.look.cached_files;
    let mapped = case.parts.bytes(Name::Files) + case.parts.bytes(Name::Code);
    let cached = files.iter().map(|file| file.bytes).sum::<u64>().saturating_sub(mapped);
    let most = files.first()?;
    let says = format!(
        "{} are the kernel's page cache of files that it has open: in no resident set, and taken back for whoever \
         needs memory; {} has most, {}.",
        bytes(cached),
        printable_line(&most.path.to_string_lossy()),
        bytes(most.bytes)
    );
    case.finding(Cause::PageCache, cached, says, PAGE_CACHE_CURES)
}

pub fn page_cache_of_group(case: &Case) -> Option<Finding> {
    let group = case.look.charged.as_ref()?;
    let [all, cached] = [group.bytes, group.page_cache_bytes].map(bytes);
    let says = format!(
        "of the {all} that are charged to its cgroup {cached} are the kernel's page cache: in no resident set, and \
         taken back for whoever needs memory."
    );
    case.finding(Cause::CgroupPageCache, group.page_cache_bytes, says, PAGE_CACHE_CURES)
}
