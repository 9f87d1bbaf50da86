//! The sweep's judgement: by instructions, so that it is the same on a busy machine.

use super::cliffs::{Step, faults, is_cliff, steps};
use super::instructions::{PATTERNS, Series, count};
use super::known::{BY_CHANCE, KNOWN};
use crate::harness::tables::{Table, short};
use crate::peers::{Allocator, WEIR};

/// What was counted, by pattern, and what is wrong with it.
pub struct Judged {
    pub counted: Vec<(&'static str, Series)>,
    pub failed: Option<String>,
}

/// Counts all sizes of the subject and prints its cliffs. The rows are of Weir: another subject is shown, and not judged.
pub fn judge(subject: &Allocator) -> Result<Judged, String> {
    eprintln!("sweep: instructions of {}", subject.name);
    let counted: Vec<(&str, Series)> = PATTERNS.into_iter().map(|(name, _)| name).zip(count(subject)?).collect();
    println!("## Cliffs of {}, by instructions\n", subject.name);
    print(&counted);
    let of_pattern = |(pattern, series): &(&str, Series)| {
        let by_chance = |size| BY_CHANCE.iter().any(|(of, sizes)| of == pattern && sizes.contains(&size));
        faults(pattern, series, KNOWN, by_chance)
    };
    let faults: Vec<String> = counted.iter().flat_map(of_pattern).filter(|_| subject.name == WEIR).collect();
    faults.iter().for_each(|fault| println!("{fault}"));
    let failed = (!faults.is_empty()).then(|| format!("cliffs are not those of sweep/known.rs: {}", faults.join("; ")));
    Ok(Judged { counted, failed })
}

fn print(counted: &[(&str, Series)]) {
    let mut table = Table::new(["pattern", "size, B", "instructions", "to the size before", "known", "why"]);
    for (pattern, series) in counted {
        for step in steps(series) {
            let row = KNOWN.iter().find(|row| row.pattern == *pattern && row.size == step.size);
            if row.is_none() && !is_cliff(step) {
                continue;
            }
            let Step { size, factor, .. } = step;
            let (known, why) = row.map_or(("-".into(), ""), |row| (short(row.factor), row.why));
            table.row([pattern.to_string(), size.to_string(), short(series[&size]), short(factor), known, why.into()]);
        }
    }
    println!("{table}");
    println!("A replacement is a free and what makes the block anew; a system call counts as 1,000 instructions.\n");
}
