//! E6's second half: what a report does to huge pages, by the kernel's own counters.

use crate::harness::huge_pages;
use crate::harness::phases::{PhasedProgram, load};
use crate::harness::proc_files::{ProcessMemory, vmstat};
use crate::peers::Allocator;
use serde_json::{Value, json};

/// The kernel's counters of huge pages that are broken up.
pub const COUNTERS: [&str; 3] = ["thp_split_page", "thp_split_pmd", "thp_deferred_split_page"];

/// How long the program idles until it is looked at again.
const IDLE: f64 = 3.0;

/// One program under one setting of huge pages.
pub struct Huge {
    /// The kernel's word.
    pub thp: String,
    /// Which program, with which settings.
    pub case: &'static str,
    /// Right after its frees (before the report), and after it idled.
    pub memory: [ProcessMemory; 2],
    /// What [`COUNTERS`] counted in between, the whole machine's.
    pub splits: [u64; 3],
    /// At the peak.
    pub peak: ProcessMemory,
}

impl Huge {
    /// For files that others read.
    pub fn json(&self) -> Value {
        let memory = |m: &ProcessMemory| json!({ "rss": m.rss, "huge": m.huge });
        let splits: serde_json::Map<_, _> =
            COUNTERS.iter().zip(self.splits).map(|(name, count)| (name.to_string(), count.into())).collect();
        json!({ "thp": self.thp, "case": self.case, "peak": memory(&self.peak), "before": memory(&self.memory[0]),
                "after": memory(&self.memory[1]), "splits": splits })
    }
}

/// Both programs, with huge pages everywhere and only where they are advised.
pub fn run(subject: &Allocator, quick: bool) -> Result<Vec<Huge>, String> {
    let _lock = crate::harness::exclusive::lock()?;
    let mut all = Vec::new();
    let found = huge_pages::found()?;
    for word in ["always", "madvise"] {
        let guard = if word == found { Ok(None) } else { huge_pages::set(word).map(Some) };
        let _guard = match guard {
            Ok(guard) => guard,
            Err(why) => {
                println!("Huge pages '{word}' are left out: {why}.\n");
                continue;
            }
        };
        let bytes = if quick { 64u64 << 20 } else { 512 << 20 };
        eprintln!("e6, huge pages {word}");
        let stripes = ["stripes".to_string(), format!("bytes={bytes}"), "block=65536".into(), "stripe=8388608".into()];
        all.push(one(subject, word, "stripes of 8 MiB freed", &stripes)?);
        let mixed = ["neighbour".to_string(), format!("bytes={bytes}"), "mix=even-bytes".into()];
        all.push(one(subject, word, "95 % freed at random", &mixed)?);
    }
    Ok(all)
}

fn one(subject: &Allocator, thp: &str, case: &'static str, words: &[String]) -> Result<Huge, String> {
    let mut program = PhasedProgram::start(case, load(subject, words)?, None)?;
    let peak = program.memory()?;
    let counted = counters()?;
    program.next_phase()?;
    let before = program.memory()?;
    let after = program.memory_at(IDLE)?;
    let now = counters()?;
    let splits = std::array::from_fn(|index| now[index] - counted[index]);
    Ok(Huge { thp: thp.into(), case, memory: [before, after], splits, peak })
}

fn counters() -> Result<[u64; 3], String> {
    let mut all = [0; 3];
    for (slot, name) in all.iter_mut().zip(COUNTERS) {
        *slot = vmstat(name)?;
    }
    Ok(all)
}
