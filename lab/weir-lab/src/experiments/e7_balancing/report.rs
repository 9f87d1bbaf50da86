//! E7's tables.

use super::document;
use super::measure::{Column, Done, POLICIES};
use super::setting::{Size, Test};
use crate::harness::statistics::{Verdict, student};
use crate::harness::tables::{Table, count};

/// Prints each test's table.
pub fn print(size: &Size, done: &[Done]) {
    println!(
        "weir-nbd with a block cache without a bound, and a program that scans {} MiB of anonymous memory in blocks of 1 MiB,\n\
         in one memory cgroup of {} MiB, with swap. The export is an ext4 file system by nbdfuse and a loop device; its\n\
         users have a cgroup of their own, of {} MiB, so that the kernel's cache of it stays small. Medians; differences of\n\
         means by Student's t at 95 %. kswapd stands for Weir's balancer; Weir writes no anonymous memory. Counters of\n\
         faults, pages and swap are the machine's.\n",
        size.segment >> 20,
        size.limit >> 20,
        size.client_limit >> 20
    );
    for done in done {
        println!("## {}\n\n{}", done.test.name(), table(done));
        for ((name, _), column) in POLICIES.iter().zip(&done.columns) {
            if let Some(why) = &column.failed {
                println!("{name} failed: {why}\n");
            }
        }
    }
}

/// Prints the tables of the modelled zones.
pub fn small_zones(done: &[Done]) {
    println!(
        "Weir's balancer over two modelled zones, 16 MiB full of single cached pages and 128 MiB full of\n\
         cached objects of 128 KiB and of pages in use between free ones; a request for 128 KiB every millisecond, each held for 40. Needlessly: reclaimed from the\n\
         small zone while it has enough for single pages, and the large one can serve the request.\n"
    );
    for done in done.iter().filter(|done| !Test::ALL.contains(&done.test)) {
        println!("## {}\n\n{}", done.test.name(), table(done));
    }
}

fn table(done: &Done) -> Table {
    let [(all, _), (any, _), (quarter, _)] = POLICIES;
    let mut table = Table::new([
        done.test.name().to_string(),
        all.into(),
        any.into(),
        format!("{any} over {all}"),
        quarter.into(),
        format!("{quarter} over {all}"),
        "document: all".into(),
        "any".into(),
    ]);
    let [before, any, quarter] = &done.columns[..] else { return table };
    let longest = [before, any, quarter].into_iter().max_by_key(|column| column.lines.len()).unwrap_or(before);
    for (line, _) in &longest.lines {
        table.row(row(done.test, line, before, any, quarter));
    }
    table
}

fn row(test: Test, line: &str, before: &Column, any: &Column, quarter: &Column) -> Vec<String> {
    let median = |column: &Column| count(column.line(line).median());
    let over = |column: &Column| match student(&column.line(line), &before.line(line)) {
        Verdict::NoDifference => "none proven".to_string(),
        Verdict::TooFew => "-".into(),
        // Of nothing, no share.
        Verdict::Differs { difference, reference: 0.0, .. } => format!("{:+}", difference.round()),
        verdict => verdict.to_string(),
    };
    let document = document::figures(test, line);
    let of = |at: usize| document.map_or_else(|| "-".into(), |figures| count(figures[at]));
    vec![line.into(), median(before), median(any), over(any), median(quarter), over(quarter), of(0), of(1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::statistics::Sample;

    fn column(values: &[f64]) -> Column {
        let lines = vec![("Kswapd wakeups", values.iter().copied().collect::<Sample>())];
        Column { lines, failed: None }
    }

    #[test]
    fn a_line_has_its_verdicts_and_the_documents_figures() {
        let (before, more) = (column(&[10.0, 11.0, 9.0]), column(&[20.0, 21.0, 19.0]));
        let cells = row(Test::Postmark, "Kswapd wakeups", &before, &more, &before);
        assert_eq!(cells[..3], ["Kswapd wakeups", "10.0", "20.0"]);
        assert!(cells[3].starts_with("+100.0 %"), "{cells:?}");
        assert_eq!(cells[4..], ["10.0", "none proven", "2177", "2174"]);
        let none = column(&[0.0, 0.0, 0.0]);
        assert_eq!(row(Test::Streaming, "Kswapd wakeups", &none, &more, &none)[3], "+20");
    }
}
