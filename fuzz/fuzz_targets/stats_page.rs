//! A page of statistics that a hostile process wrote, as `weir stat`, `top`, `why` and `trace` show it. Nothing panics or goes on
//! for ever, and no name steers the terminal or adds a line. The parts of the memory add up or are told as unknown.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the command uses more of it")]

#[path = "../../crates/weir-cli/src/around/mod.rs"]
mod around;
#[path = "../../crates/weir-cli/src/base/mod.rs"]
mod base;
#[path = "../../crates/weir-cli/src/command_line.rs"]
mod command_line;
#[path = "../../crates/weir-cli/src/doctor/mod.rs"]
mod doctor;
#[path = "../../crates/weir-cli/src/figures/mod.rs"]
mod figures;
#[path = "../../crates/weir-cli/src/inspect/mod.rs"]
mod inspect;
#[path = "../../crates/weir-cli/src/library.rs"]
mod library;
#[path = "../../crates/weir-cli/src/processes/mod.rs"]
mod processes;
#[path = "../../crates/weir-cli/src/stat/mod.rs"]
mod stat;
#[path = "../../crates/weir-cli/src/top/mod.rs"]
mod top;
#[path = "../../crates/weir-cli/src/trace.rs"]
mod trace;
#[path = "../../crates/weir-cli/src/why/mod.rs"]
mod why;

use arbitrary::{Result, Unstructured};
use figures::idle_window::IdleWindow;
use inspect::asked::Told;
use inspect::list::{Found, Seen};
use inspect::page::{Inspected, Page};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::mem::offset_of;
use std::time::Duration;
use top::rows::Column;
use weir_core::telemetry::name::NAME;
use weir_core::telemetry::stats::{MAGIC, PAGE_BYTES, Stats, VERSION};
use weir_core::telemetry::tables::{CacheRow, EvictableRow, Row, ZoneRow};

/// Changes of a page at most.
const CHANGES: usize = 200;
/// Words of a table's row at most.
const ROW: usize = 28;

fuzz_target!(|data: &[u8]| {
    // What is no such input is none.
    let _ = show(&mut Unstructured::new(data));
});

fn show(u: &mut Unstructured) -> Result<()> {
    let (what, column) = (u.int_in_range(0..=4u8)?, u.choose_index(Column::ALL.len())?);
    let (width, height) = (u.int_in_range(1..=150)?, u.int_in_range(1..=40)?);
    let (idle_ms, resident): (Option<u64>, u64) = (u.arbitrary()?, u.arbitrary()?);
    let command: String = u.arbitrary()?;
    let first = page(u)?;
    let Some(page) = Page::of(&first).filter(Page::is_good) else { return Ok(()) };
    match what {
        0 => stat(&first, idle_ms, &command),
        1 => list(page, resident, &command),
        2 => top(&page, Column::ALL[column], (width, height), &command),
        _ => {
            let mut second = first.clone();
            change(u, &mut second)?;
            match what {
                3 => why(&first, &second, idle_ms, resident, &command),
                _ => trace(&first, &second),
            }
        }
    }
    Ok(())
}

/// A page of this version, with some of its words changed.
fn page(u: &mut Unstructured) -> Result<Vec<u8>> {
    let mut bytes = vec![if u.ratio(1, 8)? { u.arbitrary()? } else { 0 }; PAGE_BYTES];
    if u.ratio(31, 32)? {
        put(&mut bytes, offset_of!(Stats, magic), &MAGIC.to_le_bytes());
        put(&mut bytes, offset_of!(Stats, version), &VERSION.to_le_bytes());
    }
    for table in tables() {
        // Its count, and the number of the write that ended last and began last.
        put(&mut bytes, table.start, &0u64.to_le_bytes());
        put(&mut bytes, table.end - 8, &0u64.to_le_bytes());
        put(&mut bytes, table.start + 8, &count(u)?.to_le_bytes());
    }
    change(u, &mut bytes)?;
    Ok(bytes)
}

fn tables() -> [std::ops::Range<usize>; 4] {
    let [zones, evictable, costs, caches] = [
        offset_of!(Stats, zones),
        offset_of!(Stats, evictable_caches),
        offset_of!(Stats, costs),
        offset_of!(Stats, caches),
    ];
    let size = |from: usize, table: usize| from..from + table;
    let zones = size(zones, evictable - zones);
    let evictable = size(evictable, costs - evictable);
    let costs = size(costs, caches - costs);
    // Behind the last one there may be room.
    [zones, evictable, size(caches, size_of_val_of_caches()), costs]
}

/// Bytes of the table of caches: that of the type.
fn size_of_val_of_caches() -> usize {
    fn size<T>(_: impl Fn(&Stats) -> &T) -> usize {
        size_of::<T>()
    }
    size(|stats| &stats.caches)
}

fn count(u: &mut Unstructured) -> Result<u64> {
    if u.ratio(1, 16)? { u.arbitrary() } else { u.int_in_range(0..=20) }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn change(u: &mut Unstructured, bytes: &mut [u8]) -> Result<()> {
    for _ in 0..CHANGES {
        if u.is_empty() {
            break;
        }
        match u.int_in_range(0..=7u8)? {
            0 => {
                // A name, or what is none, somewhere in a table.
                let table = &tables()[u.choose_index(4)?];
                let at = table.start + 24 + 8 * u.int_in_range(0..=ROW * 4)?;
                let length = u.int_in_range(0..=NAME)?;
                let name = u.bytes(length.min(u.len()))?;
                if at + name.len() <= table.end - 8 {
                    put(bytes, at, name);
                }
            }
            1 => {
                let field = *u.choose(&[
                    offset_of!(Stats, measured),
                    offset_of!(Stats, given_back),
                    offset_of!(Stats, pressure_latency),
                    offset_of!(Stats, release_times),
                    offset_of!(Stats, trace),
                    offset_of!(Stats, patience),
                    offset_of!(Stats, mapped_bytes),
                    offset_of!(Stats, page_bytes),
                ])?;
                put(bytes, field + 8 * u.int_in_range(0..=5)?, &word(u)?.to_le_bytes());
            }
            2 => {
                let table = &tables()[u.choose_index(4)?];
                let at = table.start + 8 * u.int_in_range(1..=ROW * 4)?;
                if at + 8 <= table.end - 8 {
                    put(bytes, at, &word(u)?.to_le_bytes());
                }
            }
            _ => {
                let at = 8 * u.choose_index(PAGE_BYTES / 8)?;
                // Not the words by which a page is known: most inputs would be no page.
                if at >= offset_of!(Stats, pid) {
                    put(bytes, at, &word(u)?.to_le_bytes());
                }
            }
        }
    }
    Ok(())
}

fn word(u: &mut Unstructured) -> Result<u64> {
    Ok(match u.int_in_range(0..=3u8)? {
        0 => u.int_in_range(0..=300)?,
        1 => 1 << u.int_in_range(0..=63)?,
        2 => u64::MAX - u.int_in_range(0..=2u64)?,
        _ => u.arbitrary()?,
    })
}

/// This process: who is looked at.
fn inspected() -> Inspected {
    Inspected::new(std::process::id() as i32).expect("it is there")
}

thread_local! {
    static OWN: Inspected = inspected();
}

fn told(page: Page, idle_ms: Option<u64>, why: &str) -> Told {
    let settings = idle_ms.map(|ms| ("idle_ms".to_owned(), ms)).into_iter().collect();
    let mergeable = idle_ms.map(|ms| ms.wrapping_mul(4096));
    Told { page, settings, mergeable, silent: Some(why.to_owned()) }
}

fn stat(bytes: &[u8], idle_ms: Option<u64>, command: &str) {
    let report = |bytes: &[u8]| {
        let page = Page::of(bytes).expect("it was one");
        OWN.with(|own| stat::report::Report::of(own, told(page, idle_ms, command)))
    };
    let shown = report(bytes);
    for has_all in [false, true] {
        check_text(&shown.text(has_all));
    }
    check_json(&base::json::pretty(&shown).expect("it is written"));
    // Names choose nothing but themselves: without them there are as many lines.
    let nameless = report(&without_names(bytes));
    assert_eq!(shown.text(true).lines().count(), nameless.text(true).lines().count());
}

fn list(page: Page, resident: u64, command: &str) {
    let memory = figures::memory::Memory::of(&page, resident, 1 << 40);
    assert!(memory.parts().is_none_or(|parts| parts.iter().sum::<u64>() == resident));
    check_text(&memory.to_string());
    check_text(&IdleWindow::of(resident, &page).to_string());
    let process = procfs::process::Process::new(std::process::id() as i32).expect("it is there");
    let mut stat = process.stat().expect("it is there");
    stat.comm = command.to_owned();
    let seen = Seen { stat, page, address: None };
    let found = Found { readable: vec![seen], others: Vec::new(), not_allowed: 0, not_opened: Vec::new() };
    let table = figures::processes::Table::of(found);
    check_text(&table.to_string());
    assert_eq!(table.to_string().lines().count(), 2);
    check_json(&base::json::line(&table).expect("it is written"));
}

/// The page with no name in its rows.
fn without_names(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let words = |index: usize| [ZoneRow::WORDS, EvictableRow::WORDS, CacheRow::WORDS][index];
    // Points of the cost curve have no names.
    for (index, table) in tables().into_iter().take(3).enumerate() {
        let rows = (table.len() - 32) / (8 * words(index));
        (0..rows).for_each(|row| bytes[table.start + 24 + row * 8 * words(index)..][..NAME].fill(0));
    }
    bytes
}

fn top(page: &Page, column: Column, (width, height): (u16, u16), command: &str) {
    let resident = 64 << 20;
    let process = |pid: i32| top::sample::Process {
        pid,
        started: 1,
        parent: pid - 1,
        command: base::output::printable_line(command),
        resident_bytes: resident,
        weir: Some(top::sample::of_weir(page, resident)),
    };
    let mut model = top::model::Model::new(Duration::from_secs(1), true);
    (model.order.column, model.order.is_tree) = (column, width % 2 == 0);
    let (processes, machine) = ((1..=3).map(process).collect(), [1 << 30, 1 << 29]);
    model.take(top::sample::Sample { processes, unknown: 1, machine, stall: None });
    let Ok(text) = top::drawn(&mut model, width, height);
    check_text(&text);
    assert_eq!(text.lines().count(), usize::from(height));
}

fn why(first: &[u8], second: &[u8], idle_ms: Option<u64>, resident: u64, command: &str) {
    let look = |bytes: &[u8]| {
        let page = Page::of(bytes).filter(Page::is_good)?;
        let kinds = [why::mappings::Kind::WeirHeap, why::mappings::Kind::Anonymous, why::mappings::Kind::WeirMetadata];
        let mapping = |(nth, kind): (usize, why::mappings::Kind)| why::mappings::Mapping {
            kind,
            address: (nth as u64, nth as u64 + 1),
            file: None,
            // As the kernel tells it, which has less than 2^47.
            resident: (resident >> 17) >> (8 * nth),
            huge: 0,
            locked: 0,
            swapped: 0,
            empty: 0,
        };
        Some(why::look::Look {
            pid: 7,
            command: command.to_owned(),
            at_ns: resident,
            mappings: kinds.into_iter().enumerate().map(mapping).collect(),
            weir: Some(why::look::OfWeir::of(told(page, idle_ms, command))),
            ..why::look::Look::default()
        })
    };
    let (Some(first), Some(second)) = (look(first), look(second)) else { return };
    let growth = why::growth::Growth::between(&first, &second);
    for growth in [None, Some(growth)] {
        let report = why::report::Report::of(&second, growth);
        check_text(&report.to_string());
        let json = check_json(&base::json::pretty(&report).expect("it is written"));
        let parts =
            json["parts"].as_array().expect("its parts").iter().map(|part| part["bytes"].as_u64().expect("bytes"));
        assert_eq!(parts.sum::<u64>(), second.mappings.iter().map(|map| map.resident).sum::<u64>());
    }
}

fn trace(first: &[u8], second: &[u8]) {
    let (Some(first), Some(second)) = (Page::of(first), Page::of(second)) else { return };
    let mut next = first.trace.recorded().saturating_sub(64);
    for _ in 0..2 {
        let text = trace::lines(1, &first, &second, &mut next);
        check_text(&text);
        assert!(text.lines().count() <= 65, "a line for each event, and one of those that were lost");
        text.lines().for_each(|line| drop(check_json(line)));
    }
}

/// Checks that nothing is there that could steer a terminal.
fn check_text(text: &str) {
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    assert!(!text.contains(['\u{202e}', '\u{2066}', '\u{2028}', '\u{200f}']), "{text:?}");
}

/// Checks that the text can be read, and that its breakdown adds up or is unknown.
fn check_json(text: &str) -> Value {
    check_text(text);
    let value: Value = serde_json::from_str(text).expect("JSON");
    let known = |name: &str| value[name].as_u64();
    if let Some(live) = known("live_bytes") {
        let names = ["idle_bytes", "fragmented_bytes", "metadata_bytes", "not_weirs_bytes"];
        let sum: u64 = names.iter().map(|name| known(name).expect("all or none")).sum();
        assert_eq!(Some(live + sum), known("resident_bytes"));
    }
    value
}
