//! What is run, and the measurements that come of it.

use super::figures::{FIGURES, IDLE, Peak, Run};
use crate::harness::child::{self, load_program};
use crate::harness::json::by_name;
use crate::harness::phases::{PhasedProgram, load};
use crate::harness::proc_files::ProcessMemory;
use crate::harness::statistics::Sample;
use crate::peers::Allocator;
use serde_json::{Map, Value, json};
use std::process::Command;
use std::time::Duration;

/// For warming: 100 times what it takes where the machine has the memory.
const WARM_LIMIT: Duration = Duration::from_secs(300);

/// A kind of block, by what it is to Weir.
pub struct Kind {
    /// As in `--only`.
    pub name: &'static str,
    /// Bytes of a block.
    pub block: u64,
    /// What it is.
    pub about: &'static str,
}

const fn kind(name: &'static str, block: u64, about: &'static str) -> Kind {
    Kind { name, block, about }
}

/// One size of each kind: the sizes of a kind are alike in what is measured.
pub const KINDS: [Kind; 4] = [
    kind("objects", 64, "objects of 64 B"),
    kind("slabs", 2 << 10, "objects of 2 KiB"),
    kind("runs", 64 << 10, "runs of 64 KiB"),
    kind("blocks", 8 << 20, "blocks of 8 MiB, mapped on their own"),
];

/// How large the heap is, and how far the walk over it goes.
#[derive(Clone, Copy)]
pub struct Size {
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Of a walk. A step takes about 0.1 to 0.2 us with 4 GiB.
    steps: u64,
}

impl Size {
    /// 4 GiB and a walk of about a second; or a heap that a small machine has room for, and an eighth of the walk.
    pub fn of(quick: bool) -> Size {
        if quick { Size { bytes: 512 << 20, steps: 1 << 20 } } else { Size { bytes: 4 << 30, steps: 8 << 20 } }
    }
}

/// What one allocator came to with one kind of block in one setting.
#[derive(Default)]
pub struct Cell {
    /// In the order of [`FIGURES`].
    pub samples: [Sample; FIGURES.len()],
    /// Why it could not go on.
    pub failed: Option<String>,
}

/// A setting and a kind, and the cells in the allocators' order.
pub struct Row {
    /// The kernel's word for the setting of huge pages.
    pub mode: String,
    /// The kind of its blocks.
    pub kind: &'static Kind,
    /// In the allocators' order.
    pub cells: Vec<Cell>,
}

/// The name of [`asking`] in tables.
pub const ASKING: &str = "weir, huge_heap";

/// Weir with a heap that asks for huge pages. In `always`, where it changes nothing, it shows by how much runs differ.
pub fn asking(weir: &Allocator) -> Allocator {
    Allocator { name: ASKING.to_string(), env: &[("WEIR_HUGE_HEAP", "1")], ..weir.clone() }
}

/// One run: fill, free, fill, free three of four.
pub fn measure(kind: &Kind, size: Size, allocator: &Allocator, cell: &mut Cell) -> Result<(), String> {
    let words = [
        "huge-heap".to_string(),
        format!("bytes={}", size.bytes),
        format!("block={}", kind.block),
        format!("steps={}", size.steps),
    ];
    let mut program = PhasedProgram::start("huge-heap", load(allocator, &words)?, None)?;
    let base = program.memory()?;
    warm(size)?;
    program.next_phase()?;
    let first = peak(&program, base)?;
    program.next_phase()?;
    let second = peak(&program, base)?;
    let free_ns = program.number("free_ns")?;
    program.next_phase()?;
    let rest = program.memory_at(IDLE)?.rss.saturating_sub(base.rss) as f64;
    let run = Run { peaks: [first, second], free_ns, rest };
    for (figure, sample) in FIGURES.iter().zip(&mut cell.samples) {
        sample.push((figure.of)(&run));
    }
    Ok(())
}

/// Has the machine hold memory for the heap, and a quarter more, that was in use a moment ago. A virtual machine may have given
/// free memory back to its host (free page reporting, after 2 s), and the first to touch it again waits for the host: up to
/// 10 us a page, for 0.4 to 2 us without that. Who pays would depend on whose turn was before. In huge pages, or those
/// who ask for huge pages would get others: the kernel does not put single pages together at once.
fn warm(size: Size) -> Result<(), String> {
    let mut command = Command::new(load_program()?);
    command.args(["hog", &format!("bytes={}", size.bytes / 4 * 5), "times=1", "huge=1"]);
    child::run(command, WARM_LIMIT, "hog").map(drop)
}

fn peak(program: &PhasedProgram, base: ProcessMemory) -> Result<Peak, String> {
    let now = program.memory()?;
    let (fill_ns, step_ns) = (program.number("fill_ns")?, program.number("step_ns")?);
    let above = |now: u64, base: u64| now.saturating_sub(base) as f64;
    Ok(Peak { rss: above(now.rss, base.rss), huge: above(now.huge, base.huge), fill_ns, step_ns })
}

/// All measurements, and what failed of the subject.
pub fn as_json(names: &[&str], subject: &str, rounds: u32, size: Size, rows: &[Row]) -> Value {
    let cell = |cell: &Cell| {
        let told = FIGURES.iter().zip(&cell.samples).map(|(figure, sample)| (figure.key.to_string(), sample.json()));
        json!({ "figures": Value::Object(told.collect::<Map<_, _>>()), "failed": cell.failed })
    };
    let row = |row: &Row| {
        let cells = by_name(names, &row.cells, cell);
        json!({ "huge_pages": row.mode, "kind": row.kind.name, "block": row.kind.block, "cells": cells })
    };
    let at = names.iter().position(|name| *name == subject);
    let failed = at.and_then(|at| rows.iter().find_map(|row| Some((row, row.cells[at].failed.as_ref()?))));
    json!({ "runs": rounds, "bytes": size.bytes, "rows": rows.iter().map(row).collect::<Vec<_>>(),
            "failed": failed.map(|(row, why)| format!("{}, {}: {why}", row.mode, row.kind.name)) })
}
