//! The report that `weir why` prints.

use super::causes;
use super::causes::cause::{Case, Finding};
use super::growth::Growth;
use super::holders::{self, Holder};
use super::look::Look;
use super::parts::{Part, Parts};
use crate::around::cgroup::Charged;
use crate::base::output::printable_line;
use crate::base::table::{head, row};
use crate::base::units::{bytes, nanoseconds};
use crate::figures::less::Less;
use serde::Serialize;
use std::fmt;

/// Columns of a line of text.
const WIDTH: usize = 100;
/// The note where stacks cannot be told from other mappings.
const STACKS_HIDDEN: &str = "the stacks of further threads count as its own mappings: only root, or who may trace it \
                             (/proc/sys/kernel/yama/ptrace_scope), sees where they are";
/// The widths of a holder's columns, behind a blank.
const HOLDERS: [isize; 7] = [1, -32, 10, 10, 10, 10, 10];

/// See the module.
#[derive(Serialize)]
pub struct Report {
    pid: i32,
    command: String,
    /// The sum of the parts.
    resident_bytes: u64,
    parts: Vec<Part>,
    /// Figures within the resident set.
    within: Within,
    /// Not in the resident set.
    beside: Beside,
    /// How long ago Weir measured its part, ns; none: it did not, or there is no Weir.
    measured_ns_ago: Option<u64>,
    /// Why it could not be told to measure now.
    not_asked: Option<String>,
    /// Why there are no figures of Weir's.
    without_weir: Option<String>,
    allocator: Option<String>,
    /// Whether the stacks of further threads are among the program's own mappings, as this user may not read where they are.
    stacks_hidden: bool,
    /// The caches and sizes that hold most.
    holders: Vec<Holder>,
    growth: Option<Growth>,
    causes: Vec<Finding>,
    /// What it would cost to have less memory.
    less: Option<Less>,
}

#[derive(Serialize)]
struct Within {
    huge_pages_bytes: u64,
    /// In huge pages, and zeros alone: estimated.
    empty_bytes: u64,
    locked_bytes: u64,
}

#[derive(Serialize)]
struct Beside {
    page_tables_bytes: u64,
    swapped_bytes: u64,
    children: usize,
    children_resident_bytes: u64,
    /// Page cache of files that it has open.
    page_cache_bytes: u64,
    cgroup: Option<Charged>,
}

impl Report {
    /// The report of a look, and of what grew up to it.
    pub fn of(look: &Look, growth: Option<Growth>) -> Self {
        let parts = Parts::of(look);
        let causes = causes::find(&Case { look, parts: &parts, growth: growth.as_ref() });
        let weir = look.weir.as_ref();
        Self {
            pid: look.pid,
            command: printable_line(&look.command),
            resident_bytes: parts.resident_bytes(),
            within: Within {
                huge_pages_bytes: look.mappings.iter().map(|map| map.huge).sum(),
                empty_bytes: look.empty_bytes(),
                locked_bytes: look.locked_bytes,
            },
            beside: Beside {
                page_tables_bytes: look.page_table_bytes,
                swapped_bytes: look.mappings.iter().map(|map| map.swapped).sum(),
                children: look.descendants.len(),
                children_resident_bytes: look.descendants.iter().map(|member| member.resident_bytes).sum(),
                page_cache_bytes: look.cached_files.iter().map(|file| file.bytes).sum(),
                cgroup: look.charged.clone(),
            },
            measured_ns_ago: weir.filter(|weir| weir.measured.is_some()).map(|weir| weir.measured_ns_ago),
            not_asked: weir.and_then(|weir| weir.silent.clone()),
            without_weir: look.without_weir.clone(),
            allocator: look.allocator.clone(),
            stacks_hidden: look.stacks_hidden,
            holders: weir.map_or(Vec::new(), |weir| holders::largest(&weir.holders)),
            parts: parts.0,
            growth,
            causes,
            less: weir.and_then(|weir| weir.less),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}): {} resident", self.command, self.pid, bytes(self.resident_bytes))?;
        self.write_notes(f)?;
        writeln!(f, "\n  {:<13} {:>10} {:>8}  {:<36} RELEASED BY", "PART", "BYTES", "SHARE", "WHAT")?;
        for Part { part, bytes: held, what, release } in &self.parts {
            let share = *held as f64 * 100.0 / self.resident_bytes.max(1) as f64;
            writeln!(f, "  {:<13} {:>10} {share:>6.1} %  {what:<36} {release}", part.word(), bytes(*held))?;
        }
        writeln!(f, "  {:<13} {:>10} {:>6.1} %", "resident", bytes(self.resident_bytes), 100.0)?;
        let Within { huge_pages_bytes, empty_bytes, locked_bytes } = self.within;
        let [huge, empty, locked] = [huge_pages_bytes, empty_bytes, locked_bytes].map(bytes);
        writeln!(f, "  of it in huge pages {huge} (about {empty} of zeros alone), locked {locked}")?;
        let it = &self.beside;
        let [tables, swapped, children, cache] =
            [it.page_tables_bytes, it.swapped_bytes, it.children_resident_bytes, it.page_cache_bytes].map(bytes);
        writeln!(
            f,
            "  beside it: page tables {tables}, swapped out {swapped}, {} child processes {children}, page cache of \
             open files {cache}",
            it.children
        )?;
        if let Some(group) = &it.cgroup {
            let [all, cache, kernel] = [group.bytes, group.page_cache_bytes, group.kernel_bytes].map(bytes);
            let limit = group.limit_bytes.map_or("no limit".into(), |limit| format!("limit {}", bytes(limit)));
            writeln!(f, "  its cgroup: {all}, of it page cache {cache}, the kernel's {kernel}; {limit}")?;
        }
        self.write_holders(f)?;
        writeln!(f, "\nWHY")?;
        self.causes.iter().enumerate().try_for_each(|(number, it)| write_finding(f, number + 1, it))?;
        if self.causes.is_empty() {
            writeln!(f, "  no part of it is large: there is little to release")?;
        }
        match &self.less {
            Some(less) => write_wrapped(f, "\n", &less.to_string()),
            None => Ok(()),
        }
    }
}

impl Report {
    fn write_notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ago) = self.measured_ns_ago.filter(|&ago| ago > 1_000_000_000) {
            writeln!(f, "Weir measured its part {} ago", nanoseconds(ago))?;
        }
        if let Some(why) = &self.not_asked {
            writeln!(f, "it could not be told to measure now: {why}")?;
        }
        if let Some(why) = &self.without_weir {
            writeln!(f, "Weir's figures are missing: {why}")?;
        }
        if let Some(name) = &self.allocator {
            writeln!(f, "its allocator: {name}")?;
        }
        match self.stacks_hidden {
            true => writeln!(f, "{STACKS_HIDDEN}"),
            false => Ok(()),
        }
    }

    fn write_holders(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holders.is_empty() {
            return Ok(());
        }
        let names = ["", "HELD MOST BY", "BYTES", "IN USE", "CACHED", "IN SLABS", "OBJECTS"];
        write!(f, "\n{}", head(HOLDERS, names))?;
        self.holders.iter().try_for_each(|it| {
            let [held, used, cached, slabs] =
                [it.held_bytes, it.used_bytes, it.cached_bytes, it.in_slabs_bytes].map(bytes);
            let objects = if it.objects == 0 { "-".to_owned() } else { it.objects.to_string() };
            f.write_str(&row(HOLDERS, [String::new(), it.name.clone(), held, used, cached, slabs, objects]))
        })
    }
}

fn write_finding(f: &mut fmt::Formatter<'_>, number: usize, it: &Finding) -> fmt::Result {
    let mut says = it.says.clone();
    if let Some(first) = says.get(..1) {
        says = first.to_uppercase() + &says[1..];
    }
    write_wrapped(f, &format!("{number:>2}. "), &format!("{}: {says}", it.cause.word().to_uppercase()))?;
    it.cures.iter().try_for_each(|cure| write_wrapped(f, "    - ", cure))
}

/// A text in lines of at most [`WIDTH`] columns, where its words allow.
fn write_wrapped(f: &mut fmt::Formatter<'_>, begin: &str, text: &str) -> fmt::Result {
    let mut line = begin.to_owned();
    let indent = " ".repeat(begin.len());
    for word in text.split(' ') {
        if line.len() + word.len() > WIDTH && line.trim_start().len() > begin.trim_start().len() {
            writeln!(f, "{}", line.trim_end())?;
            line.clone_from(&indent);
        }
        line += word;
        line.push(' ');
    }
    writeln!(f, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_that_are_hidden_are_said_to_be() {
        for stacks_hidden in [false, true] {
            let report = Report::of(&Look { stacks_hidden, ..Look::default() }, None);
            assert_eq!(report.to_string().lines().any(|line| line == STACKS_HIDDEN), stacks_hidden, "{report}");
            assert_eq!(serde_json::to_value(&report).unwrap()["stacks_hidden"], stacks_hidden);
        }
    }
}
