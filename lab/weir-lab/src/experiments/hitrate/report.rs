//! The tables: hit rates with the best peer of each row, costs, and throughput.

use super::caches::{MOKA, SUBJECTS};
use super::measure::Row;
use super::speed::{Costs, Throughput};
use crate::harness::tables::{Table, short, spread};

/// Points below the best peer that are allowed.
const ALLOWED: f64 = 0.5;

/// The peers that keep to their size: all but moka as it comes.
fn held() -> impl Iterator<Item = usize> + Clone {
    (1..SUBJECTS.len()).filter(|&at| SUBJECTS[at].name != MOKA)
}

/// Prints the hit rates.
pub fn print(rows: &[Row]) {
    let names = SUBJECTS.iter().map(|subject| subject.name);
    let columns = ["trace", "entries"].into_iter().chain(names).chain(["moka holds, %", "best peer", "weir less it"]);
    let mut table = Table::new(columns);
    for row in rows {
        let (difference, best) = row.against(held());
        let rates = row.rates.iter().map(|rate| format!("{rate:.2}"));
        let ends = [format!("{:.0}", row.moka_held), SUBJECTS[best].name.into(), format!("{difference:+.2}")];
        table.row([row.trace.clone(), row.entries.to_string()].into_iter().chain(rates).chain(ends));
    }
    let mean = |at: usize| rows.iter().map(|row| row.rates[at]).sum::<f64>() / rows.len().max(1) as f64;
    let means = (0..SUBJECTS.len()).map(|at| format!("{:.2}", mean(at)));
    table.row(["mean".to_string(), String::new()].into_iter().chain(means));
    println!("## Hit rates, %, at equal numbers of entries\n\n{table}");
    println!("`moka` as it comes holds more than its size until its maintenance runs (\"moka holds\": the most seen);");
    println!("`moka held` runs it after each insertion. The best peer is the best that keeps to its size.\n");
    verdict("the best peer that keeps to its size", rows, held());
    verdict("the best peer, moka as it comes among them", rows, 1..SUBJECTS.len());
    let best_mean = held().map(mean).fold(0.0, f64::max);
    println!("Mean over all rows: {:.2} %, the best single peer's {best_mean:.2} %.\n", mean(0));
}

fn verdict(whom: &str, rows: &[Row], peers: impl Iterator<Item = usize> + Clone) {
    let differences: Vec<f64> = rows.iter().map(|row| row.against(peers.clone()).0).collect();
    let within = differences.iter().filter(|&&difference| difference >= -ALLOWED).count();
    let above = differences.iter().filter(|&&difference| difference > 0.0).count();
    let worst = differences.iter().copied().fold(f64::INFINITY, f64::min);
    println!(
        "Against {whom}: within {ALLOWED} points or better in {within} of {} rows, better in {above}; at worst {worst:+.2}.\n",
        rows.len()
    );
}

/// Prints what operations cost.
pub fn print_costs(costs: &[Costs]) {
    let mut table = Table::new(["cache"].into_iter().chain(costs.iter().map(|costs| costs.what)));
    for (at, subject) in SUBJECTS.iter().enumerate() {
        let cells = costs.iter().map(|costs| spread(&costs.samples[at], short));
        table.row(std::iter::once(subject.name.to_string()).chain(cells));
    }
    println!("## One thread, ns an operation: median (least..most)\n\n{table}");
    println!("Keys of the hits by Zipf 0.99. `lru` is one list with a lock.\n");
}

/// Prints what several threads do at once.
pub fn print_throughput(all: &[Throughput]) {
    let threads = all.iter().map(|row| format!("{} threads", row.threads));
    let mut table = Table::new(["cache".to_string()].into_iter().chain(threads));
    for (at, subject) in SUBJECTS.iter().enumerate() {
        let cells = all.iter().map(|row| spread(&row.samples[at], short));
        table.row(std::iter::once(subject.name.to_string()).chain(cells));
    }
    println!("## Millions of operations a second, all threads: median (least..most)\n\n{table}");
    println!("Get by Zipf 0.99 of twice as many keys as the cache holds, and insert what is missed.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_peer_is_none_that_exceeds_its_size() {
        // The last, moka as it comes, is best.
        let row =
            Row { trace: "t".into(), entries: 1, rates: vec![5.0, 1.0, 6.0, 2.0, 3.0, 4.0, 9.0], moka_held: 150.0 };
        let (difference, best) = row.against(held());
        assert_eq!((difference, SUBJECTS[best].name), (-1.0, "foyer s3fifo"));
        assert_eq!(row.against(1..SUBJECTS.len()).0, -4.0);
    }
}
