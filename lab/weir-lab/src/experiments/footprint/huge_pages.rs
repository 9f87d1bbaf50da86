//! Huge pages behind a heap of one size of block, kind by kind and in both settings of the kernel. Told is the share of it that
//! they are behind, and what filling it costs. So is what a random walk over it costs (the proxy of misses in the data TLB).
//!
//! Filled, walked, freed, at once filled again, walked; then three of four blocks are freed at random, and it idles for 3 s.
//! Processor time; a page is one of 4 KiB of the blocks. A step is a load of a random line of the heap by the address that the
//! last one held. Before each heap another process uses as much memory, in huge pages, and ends. The option --only takes objects
//! (64 B), slabs (2 KiB), runs (64 KiB), blocks (8 MiB), madvise, always. Root for both settings.

use crate::harness::prelude::*;

const KINDS: [(&str, u64); 4] = [("objects", 64), ("slabs", 2 << 10), ("runs", 64 << 10), ("blocks", 8 << 20)];
const IDLE: f64 = 3.0;

pub fn run(lab: &mut Lab) -> Result<()> {
    let kinds = KINDS.map(|kind| kind.0);
    let chosen = lab.chosen(&[&kinds[..], &MODES].concat())?;
    // Of kinds and of settings all are chosen where none is named.
    let of = |all: &[&'static str]| -> Vec<&'static str> {
        let named: Vec<&str> = all.iter().copied().filter(|name| chosen.contains(name)).collect();
        if named.is_empty() { all.to_vec() } else { named }
    };
    let (kinds, modes) = (of(&kinds), of(&MODES));
    let _lock = machine::lock()?;
    let (bytes, steps) = lab.pick((4u64 << 30, 8 << 20), (512 << 20, 1 << 20));
    let mut allocators = lab.allocators.clone();
    allocators.extend(lab.weir().ok().map(|weir| weir.with("weir, huge_heap".into(), &[("WEIR_HUGE_HEAP", "1")])));
    lab.for_huge_pages(&modes, |lab, mode| {
        let measures = ["first", "second"].into_iter().flat_map(|peak| {
            let costs = [less(format!("{peak} fill, ns a page")), less(format!("{peak} walk, ns a step"))];
            [told(format!("{peak} peak: in huge pages, %"))].into_iter().chain(costs)
        });
        let rest = [less("frees, ns a page"), less("peak, MiB").mib(), less("3 s after the frees, MiB").mib()];
        let cases: Vec<String> = kinds.iter().map(|kind| format!("huge pages {mode}, {kind}")).collect();
        lab.by_case(measures.chain(rest).collect(), &cases, &allocators, |case, allocator| {
            let block = KINDS.iter().find(|kind| case.ends_with(kind.0)).map_or(64, |kind| kind.1);
            let command = load(allocator, &format!("huge-heap bytes={bytes} block={block} steps={steps}"))?;
            let mut program = Program::first_phase("huge-heap", command, None)?;
            let base = program.memory()?;
            told_by(plain_load(&format!("hog bytes={} times=1 huge=1", bytes / 4 * 5))?, 300, "hog")?;
            program.next_phase()?;
            let (mut figures, first) = peak(&program, base)?;
            program.next_phase()?;
            let (more, second) = peak(&program, base)?;
            figures.extend(more.into_iter().chain([program.number("free_ns")?, first.max(second)]));
            program.next_phase()?;
            figures.push(program.memory_at(IDLE)?.rss - base.rss);
            Ok(figures)
        });
        Ok(())
    })
}

/// The share in huge pages, the fill and the walk; and the resident set.
fn peak(program: &Program, base: ProcessMemory) -> Result<(Vec<f64>, f64)> {
    let now = program.memory()?;
    let (rss, huge) = (now.rss - base.rss, now.huge - base.huge);
    let share = if rss > 0.0 { 100.0 * huge / rss } else { 0.0 };
    Ok((vec![share, program.number("fill_ns")?, program.number("step_ns")?], rss))
}
