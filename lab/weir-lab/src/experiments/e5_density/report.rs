//! E5's tables, with the document's own rows.

use super::measure::{FittedTenants, Memhog, Part};
use crate::harness::tables::{Table, mib, short, spread};

/// Prints one part.
pub fn print(part: &Part) {
    let size = |bytes: u64| mib(bytes as f64);
    println!(
        "## {}: tenants of {} MiB in a cgroup of {} MiB, with {} MiB of swap\n",
        part.name,
        size(part.tenant),
        size(part.limit),
        size(part.swap)
    );
    if part.counts.is_empty() {
        println!("{}", memhogs(part));
        println!(
            "Seconds, median (least..most), of an allocation of about a tenant's whole memory, written and freed.\n"
        );
    } else {
        println!("{}", counts(part));
        println!("Each allocates 4/5 of its memory, writes it, frees all of it and idles without ending.\n");
    }
}

fn counts(part: &Part) -> Table {
    let header = ["tenants on", "before the first swap", "MiB of an idle one", "MiB charged at the end", "MiB swapped"];
    let mut table = Table::new(header);
    for (label, result) in &part.counts {
        match result {
            Ok(count) => table.row(count_row(label, count)),
            Err(why) => table.row([label.as_str(), "failed", why]),
        }
    }
    table.row(["document, without hinting", "2 (appendix: 3)", "", "", "1,126"]);
    table.row(["document, with hinting", "5", "", "", "0"]);
    table
}

fn count_row(label: &str, count: &FittedTenants) -> [String; 5] {
    let fitted =
        if count.stopped_at_limit { format!("{}, and no swap", count.fitted) } else { count.fitted.to_string() };
    let [charged, swapped] = count.end.map(|bytes| mib(bytes as f64));
    [label.to_string(), fitted, spread(&count.idle, mib), charged, swapped]
}

fn memhogs(part: &Part) -> Table {
    let mut table =
        Table::new(["tenants on", "first, s", "second, s", "third, s", "third/first", "MiB swapped at the end"]);
    for (label, result) in &part.memhogs {
        match result {
            Ok(runs) => table.row(memhog_row(label, runs)),
            Err(why) => table.row([label.as_str(), "failed", why]),
        }
    }
    table.row(["document, without hinting", "47", "53", "215", "4.57", "3,584"]);
    table.row(["document, with hinting", "40", "44", "37", "0.93", "0"]);
    table
}

fn memhog_row(label: &str, runs: &Memhog) -> [String; 6] {
    let [first, second, third] = runs.turns.each_ref().map(|turn| spread(turn, short));
    let ratio = short(runs.turns[2].median() / runs.turns[0].median());
    [label.to_string(), first, second, third, ratio, spread(&runs.swapped, mib)]
}
