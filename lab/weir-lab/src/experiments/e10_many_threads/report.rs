//! E10's tables: what every allocator holds above the program without malloc, by the number of threads.

use super::measure::{Cell, LOOKS, Row};
use crate::harness::statistics::{Sample, student};
use crate::harness::tables::{Table, mib, spread};

/// Prints them.
pub fn print(names: &[&str], subject: &str, rows: &[Row]) {
    for (look, seconds) in LOOKS.iter().enumerate() {
        let when = if *seconds == 0.0 { "when all sleep".to_string() } else { format!("{seconds} s later") };
        println!(
            "## MiB above the program without malloc, {when}: median (least..most)\n\n{}",
            table(names, rows, look)
        );
        if let Some(at) = names.iter().position(|name| *name == subject) {
            println!("{}", verdicts(names, at, rows, look));
        }
    }
    println!(
        "Each thread allocates 200 blocks of 16 B to 8 KiB (evenly random), touches every page, frees all, sleeps;"
    );
    println!("stacks of 64 KiB. `none` is the program itself, whole.");
}

fn header(rows: &[Row], first: &str) -> Table {
    Table::new(std::iter::once(first.to_string()).chain(rows.iter().map(|row| format!("{} threads", row.threads))))
}

fn table(names: &[&str], rows: &[Row], look: usize) -> Table {
    let mut table = header(rows, "allocator");
    let base = |row: &Row| row.none.resident[look].median();
    for (index, name) in names.iter().enumerate() {
        let cells = rows.iter().map(|row| shown(&row.cells[index], look, base(row)));
        table.row(std::iter::once(name.to_string()).chain(cells));
    }
    let none = rows.iter().map(|row| shown(&row.none, look, 0.0));
    table.row(std::iter::once("none".to_string()).chain(none));
    table
}

fn shown(cell: &Cell, look: usize, base: f64) -> String {
    if let Some(why) = &cell.failed {
        // Left out for lack of memory is no failure of the allocator; the reason gives the bytes it would need.
        return if why.starts_with("would need") { why.clone() } else { "failed".into() };
    }
    let sample = &cell.resident[look];
    spread(sample, |value| mib(value - base))
}

/// The subject against the best peer, resident sets less the program's own.
fn verdicts(names: &[&str], at: usize, rows: &[Row], look: usize) -> Table {
    let mut table = header(rows, &format!("{} against the best peer", names[at]));
    let above = |row: &Row, cell: &Cell| -> Sample {
        let base = row.none.resident[look].median();
        cell.resident[look].values().map(|value| value - base).collect()
    };
    let cells = rows.iter().map(|row| {
        let tried = |&index: &usize| index != at && row.cells[index].failed.is_none();
        let peers = (0..names.len()).filter(tried).map(|index| (index, above(row, &row.cells[index])));
        match peers.min_by(|a, b| a.1.median().total_cmp(&b.1.median())) {
            Some((best, sample)) if row.cells[at].failed.is_none() => {
                format!("{}: {}", names[best], student(&above(row, &row.cells[at]), &sample))
            }
            _ => "-".into(),
        }
    });
    let cells: Vec<String> = cells.collect();
    table.row(std::iter::once(String::new()).chain(cells));
    table
}
