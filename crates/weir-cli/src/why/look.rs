//! One look at a process: all that its page of statistics, its control channel and `/proc` tell about its memory.

use super::empty_pages;
use super::holders::{self, Holder};
use super::mappings::{self, Areas, Kind, Mapping};
use super::program_end;
use crate::around::cgroup::{self, Charged};
use crate::around::family::{self, Member};
use crate::around::mounts;
use crate::around::page_cache::{self, Cached};
use crate::base::descriptors::may_open;
use crate::base::failure::Failure;
use crate::base::output::printable_line;
use crate::base::units::monotonic_ns;
use crate::doctor::{other_allocator, pymalloc};
use crate::figures::idle_window::IdleWindow;
use crate::figures::less::Less;
use crate::figures::memory::Measured;
use crate::figures::rows;
use crate::inspect::asked::{self, Told};
use crate::inspect::control::PATIENCE;
use crate::inspect::memory_reader;
use crate::inspect::page::{self, Inspected, Missing};
use crate::processes::maps;
use crate::processes::program_file;
use procfs::process::MMapPath;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::tables::ZoneRow;
use weir_core::telemetry::tunables::{TABLE, parse_size};

/// Figures and settings that Weir tells.
#[derive(Clone, Debug, Default)]
pub struct OfWeir {
    /// Where its memory was, if that was measured.
    pub measured: Option<Measured>,
    /// How long ago, ns.
    pub measured_ns_ago: u64,
    /// Bytes that it handed out as pages and as blocks mapped singly.
    pub handed_out: u64,
    /// Handed-out memory that lies among the program's mappings: blocks mapped singly, and what is below 4 GiB.
    pub elsewhere: u64,
    /// Bytes of zones that the program made.
    pub zone_bytes: u64,
    pub has_thread: bool,
    /// Batches that the kernel refused to release.
    pub refused: u64,
    pub holders: Vec<Holder>,
    /// Values of settings, as far as they are told.
    pub settings: BTreeMap<String, u64>,
    /// For how long idle memory is kept now, if `idle_ms` is told.
    pub window: Option<IdleWindow>,
    /// What it would cost to have less memory.
    pub less: Option<Less>,
    /// Bytes that merging sparse pages would release, if it was asked.
    pub mergeable: Option<u64>,
    /// Why it could not be steered, and so not be told to measure.
    pub silent: Option<String>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub pid: i32,
    pub command: String,
    /// When it was started (ticks since the boot), and its program: a number may be another process's later.
    pub identity: (u64, Option<PathBuf>),
    pub at_ns: u64,
    pub mappings: Vec<Mapping>,
    /// Whether this user may not read where the stacks of its further threads are: they count as its own mappings.
    pub stacks_hidden: bool,
    /// None: it has no Weir, or not one that can be read.
    pub weir: Option<OfWeir>,
    /// Why there is none.
    pub without_weir: Option<String>,
    /// The allocator that serves the program beside Weir, or instead of it.
    pub allocator: Option<String>,
    pub page_table_bytes: u64,
    /// Locked by `mlock` or `mlockall`.
    pub locked_bytes: u64,
    pub huge_page_policy: String,
    pub descendants: Vec<Member>,
    pub charged: Option<Charged>,
    pub cached_files: Vec<Cached>,
}

/// Files that a look has open at the same time at most, beside the process's directory.
const FILES: usize = 8;

/// A program's path as it was when it began: the kernel adds to it where the file was removed or replaced since.
fn without_deletion(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_encoded_bytes().strip_suffix(b" (deleted)") {
        Some(path) => PathBuf::from(OsStr::from_bytes(path)),
        None => path,
    }
}

impl Look {
    /// Looks at process `pid` now.
    pub fn at(pid: i32) -> Result<Self, Failure> {
        let inspected = Inspected::new(pid).map_err(|why| why.of(pid))?;
        // What cannot be read counts as not there: without files the figures would be wrong, and nothing would say so.
        if !may_open(FILES) {
            return Err(Missing::TooManyFiles.of(pid));
        }
        let told = asked::read_with(&inspected, PATIENCE, true).map(|told| match told.silent {
            Some(_) => Told { settings: settings_of_start(&inspected), ..told },
            None => told,
        });
        let areas = match &told {
            Ok(told) => Areas::of(&told.page),
            Err(Missing::NotLoaded) => Areas::default(),
            Err(_) => Areas::widest(),
        };
        let has_weir = !matches!(told, Err(Missing::NotLoaded));
        let without_weir = told.as_ref().err().filter(|why| **why != Missing::NotLoaded).map(Missing::to_string);
        let weir = told.ok().map(OfWeir::of);
        let process = &inspected.process;
        let mapped = page::living(maps::smaps(process)).map_err(|why| why.of(pid))?;
        let mounts = mounts::of(process.pid()).unwrap_or_default();
        let in_memory = mounts.iter().filter(|mount| mount.is_in_memory()).map(|mount| mount.device).collect();
        let stacks = mappings::stack_pointers(pid);
        let known = stacks.as_deref().unwrap_or_default();
        // The first time for the list of those that are asked for, so that a child is asked once.
        let mut asked = Vec::new();
        mappings::sort(&mapped.0, known, &in_memory, &areas, |map| {
            asked.push(map.clone());
            None
        });
        let mut ends = program_end::of_each(pid, &asked).into_iter();
        let mappings = mappings::sort(&mapped.0, known, &in_memory, &areas, |_| ends.next().flatten());
        let status = maps::status(process).ok();
        let figure =
            |pick: fn(&procfs::process::Status) -> Option<u64>| status.as_ref().and_then(pick).unwrap_or(0) << 10;
        let all = family::everybody();
        let stat = process.stat().map_err(|_| Missing::NoProcess.of(pid))?;
        let mut look = Self {
            pid,
            identity: (stat.starttime, process.exe().ok().map(without_deletion)),
            command: stat.comm,
            at_ns: monotonic_ns(),
            without_weir,
            // Of one that cannot be read it is unknown what it serves.
            allocator: if has_weir && weir.is_none() { None } else { allocator(&inspected, weir.as_ref(), &mappings) },
            weir,
            page_table_bytes: figure(|status| status.vmpte),
            locked_bytes: mappings.iter().map(|map| map.locked).sum(),
            huge_page_policy: policy(),
            descendants: family::descendants(&all, pid).into_iter().cloned().collect(),
            charged: cgroup::charged(process),
            cached_files: page_cache::of_open_files(process),
            mappings,
            stacks_hidden: stacks.is_none(),
        };
        let is_memory = |map: &&mut Mapping| matches!(map.kind, Kind::Anonymous | Kind::WeirHeap | Kind::Brk);
        for mapping in look.mappings.iter_mut().filter(is_memory) {
            mapping.empty = empty_pages::empty_bytes(pid, mapping);
        }
        Ok(look)
    }

    /// Resident bytes of the mappings of a kind.
    pub fn resident(&self, kind: Kind) -> u64 {
        self.mappings.iter().filter(|map| map.kind == kind).map(|map| map.resident).sum()
    }

    /// Estimated bytes in huge pages that hold zeros alone.
    pub fn empty_bytes(&self) -> u64 {
        self.mappings.iter().map(|map| map.empty).sum()
    }

    /// The part of that in mappings of a kind.
    pub fn empty(&self, kind: Kind) -> u64 {
        self.mappings.iter().filter(|map| map.kind == kind).map(|map| map.empty).sum()
    }

    /// The value of a setting of its Weir.
    pub fn setting(&self, name: &str) -> Option<u64> {
        self.weir.as_ref()?.settings.get(name).copied()
    }
}

impl OfWeir {
    /// The figures in a process's answer; its settings may have to be those of its start.
    pub fn of(told: Told) -> Self {
        let (page, window) = (&told.page, told.window());
        let measured = Measured::of(page);
        let (zones, _) = rows::<ZoneRow, _>(&page.zones);
        let low = zones.iter().filter(|zone| zone.name().starts_with("LOW32")).map(|zone| zone.bytes);
        let blocks = page.mapped_bytes.load(Relaxed);
        Self {
            measured: measured.map(|(measured, _)| measured),
            measured_ns_ago: measured.map_or(0, |(_, at)| monotonic_ns().saturating_sub(at)),
            handed_out: page.page_bytes.load(Relaxed).saturating_add(blocks),
            elsewhere: low.fold(blocks, u64::saturating_add),
            zone_bytes: page.zone_bytes.load(Relaxed),
            has_thread: page.background.load(Relaxed) != 0,
            refused: page.report_failures.load(Relaxed),
            holders: holders::all(page),
            less: Less::of(page),
            window,
            settings: told.settings,
            mergeable: told.mergeable,
            // The process may have said it, and is to add no line.
            silent: told.silent.map(|why| printable_line(&why)),
        }
    }
}

/// The settings that the process was started with.
fn settings_of_start(inspected: &Inspected) -> BTreeMap<String, u64> {
    let Ok(environment) = memory_reader::environment(inspected.process.pid()) else { return BTreeMap::new() };
    let value = |name: &str| {
        let start = format!("WEIR_{}=", name.to_uppercase());
        environment.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(start.as_bytes())).and_then(parse_size)
    };
    TABLE.iter().map(|setting| (setting.name.to_owned(), value(setting.name).unwrap_or(setting.default))).collect()
}

/// Bytes of anonymous memory from which on it counts that little of it is Weir's.
const LARGE: u64 = 1 << 20;

/// The name of the allocator that the program's memory comes from, if that is not Weir.
fn allocator(inspected: &Inspected, weir: Option<&OfWeir>, mappings: &[Mapping]) -> Option<String> {
    let others: u64 =
        mappings.iter().filter(|map| matches!(map.kind, Kind::Anonymous | Kind::Brk)).map(|map| map.resident).sum();
    if others >= LARGE
        && pymalloc::serves(inspected.process.pid(), &inspected.maps, inspected.process.exe().ok().as_deref())
    {
        return Some(pymalloc::NAME.to_owned());
    }
    // A program that Weir serves may have another allocator in it that it uses for other things.
    if weir.is_some_and(|weir| weir.handed_out >= others / 4 || others < LARGE) {
        return None;
    }
    if let Some(name) = other_allocator::loaded(&inspected.maps) {
        return Some(name.to_owned());
    }
    if let Some(name) = other_allocator::linked_into(inspected.process.pid()) {
        return Some(name);
    }
    if weir.is_some() {
        // It serves the program, which has mappings of its own.
        return None;
    }
    let has = |start: &str| {
        inspected.maps.iter().any(|map| match &map.pathname {
            MMapPath::Path(path) => path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start)),
            _ => false,
        })
    };
    Some(match program_file::asked(inspected.process.pid(), program_file::unfitness_of) {
        Some(why) => format!("an allocator of its own: the program {why}"),
        None if has("ld-musl") => "musl's malloc".to_owned(),
        None if has("libc.so.6") || has("libc-2.") => "glibc's malloc".to_owned(),
        None => "an allocator of its own".to_owned(),
    })
}

/// The machine's policy for huge pages, as the kernel says it: `always`, `madvise` or `never`.
fn policy() -> String {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or_else(|| "unknown".to_owned(), |(chosen, _)| chosen.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::page::Page;
    use weir_core::telemetry::stats::PAGE_BYTES;

    #[test]
    fn a_process_that_refuses_to_be_told_adds_no_line() {
        let page = Page::of(&[0; PAGE_BYTES]).unwrap();
        let weir = OfWeir::of(Told {
            page,
            settings: BTreeMap::new(),
            mergeable: None,
            silent: Some("not\nnow\u{1b}".into()),
        });
        assert_eq!(weir.silent.as_deref(), Some("not?now?"));
    }
}
