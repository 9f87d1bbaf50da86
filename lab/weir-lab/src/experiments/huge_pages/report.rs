//! The tables: one a setting and kind of block, and the subject against the best peer in each cost.

use super::figures::FIGURES;
use super::measure::{ASKING, Cell, Row, Size};
use crate::harness::statistics::student;
use crate::harness::tables::{Table, spread};

/// Prints them.
pub fn print(names: &[&str], subject: &str, size: Size, rows: &[Row]) {
    println!(
        "A heap of {} MiB in blocks of one size, each wholly written: filled, walked, freed, at once filled again, walked;\n\
         then three of four blocks are freed at random. Median (least..most) of the runs. Processor time; a page is one of\n\
         4 KiB of the blocks. A step is a load of a random line of the heap by the address that the last one held.\n",
        size.bytes >> 20
    );
    for row in rows {
        println!("## Huge pages `{}`, {}\n\n{}", row.mode, row.kind.about, table(names, &row.cells));
    }
    let runs = rows.iter().flat_map(|row| &row.cells).map(|cell| cell.samples[0].len()).max().unwrap_or(0);
    let is_compared = names.len() > 1 && runs > 1;
    if let Some(at) = names.iter().position(|name| *name == subject).filter(|_| is_compared) {
        println!("## {subject} against the best peer in each cost\n\n{}", verdicts(names, at, rows));
    }
    println!("A quarter of the blocks is in use after the frees: {} MiB.", size.bytes >> 22);
}

fn table(names: &[&str], cells: &[Cell]) -> Table {
    let mut table = Table::new(std::iter::once("allocator").chain(FIGURES.iter().map(|figure| figure.title)));
    for (name, cell) in names.iter().zip(cells) {
        let mut row = vec![name.to_string()];
        match &cell.failed {
            Some(_) => row.push("failed".into()),
            None => row.extend(FIGURES.iter().zip(&cell.samples).map(|(figure, sample)| spread(sample, figure.show))),
        }
        table.row(row);
    }
    table
}

fn verdicts(names: &[&str], at: usize, rows: &[Row]) -> Table {
    let costs = || FIGURES.iter().enumerate().filter(|(_, figure)| figure.is_cost);
    let header = ["huge pages", "blocks"].into_iter().chain(costs().map(|(_, figure)| figure.title));
    let mut table = Table::new(header);
    // The subject in another setting is no peer of its own; it is the last.
    let peers = names.len() - usize::from(names.contains(&ASKING));
    for row in rows {
        let verdict = |figure: usize| match best_peer(&row.cells[..peers], at, figure) {
            Some(best) if row.cells[at].failed.is_none() => {
                let of = |index: usize| &row.cells[index].samples[figure];
                format!("{}: {}", names[best], student(of(at), of(best)))
            }
            _ => "-".into(),
        };
        let cells = costs().map(|(figure, _)| verdict(figure));
        table.row([row.mode.clone(), row.kind.name.into()].into_iter().chain(cells));
    }
    table
}

/// The allocator with the least median, the subject and those that failed left out.
fn best_peer(cells: &[Cell], subject: usize, figure: usize) -> Option<usize> {
    let median = |index: usize| cells[index].samples[figure].median();
    let peers = (0..cells.len()).filter(|&index| index != subject && cells[index].failed.is_none());
    peers.min_by(|&a, &b| median(a).total_cmp(&median(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_peer_has_the_least_median_and_did_not_fail() {
        let cell = |value: f64, failed: Option<&str>| {
            let mut cell = Cell { failed: failed.map(String::from), ..Cell::default() };
            cell.samples[0].push(value);
            cell
        };
        let cells = [cell(1.0, None), cell(4.0, None), cell(3.0, None), cell(2.0, Some("crashed"))];
        assert_eq!(best_peer(&cells, 0, 0), Some(2));
        assert_eq!(best_peer(&cells[..1], 0, 0), None);
    }
}
