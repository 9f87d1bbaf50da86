//! Causes beside the resident set: memory that is taken for the process's and is in no part of it.

use super::cause::{Case, Cause, Finding};
use super::parts::Name;
use crate::base::output::printable_line;
use crate::base::units::bytes;

pub fn page_tables(case: &Case) -> Option<Finding> {
    let tables = case.look.page_table_bytes;
    let says = format!(
        "the kernel's page tables for it take {} beside the resident set: its memory is touched here and there in a \
         large range, and every 2 MiB of that cost 4 KiB.",
        bytes(tables)
    );
    let cures = vec![
        "the program's munmap of what it left: madvise alone keeps the tables".into(),
        "keep what is used close together; huge pages need no such tables".into(),
    ];
    case.finding(Cause::PageTables, tables, says, cures)
}

pub fn children(case: &Case) -> Option<Finding> {
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
    case.finding(Cause::PageCache, cached, says, page_cache_cures())
}

pub fn page_cache_of_group(case: &Case) -> Option<Finding> {
    let group = case.look.charged.as_ref()?;
    let cached = group.page_cache_bytes;
    let says = format!(
        "of the {} that are charged to its cgroup {} are the kernel's page cache: in no resident set, and taken back \
         for whoever needs memory.",
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
