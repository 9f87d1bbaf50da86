//! The table of power-cut.

use super::drive::Cut;
use super::rounds::{Done, Load, SERVERS};
use crate::harness::tables::Table;

/// Prints it.
pub fn print(all: &[Done]) {
    println!(
        "weir-nbd over a drive with a volatile cache (nbdfuse on nbdkit). `killed`: the server gets SIGKILL, and all that it \
         wrote has\nreached the drive. `power`: the drive loses power as well, before or after the server, and of what was not \
         flushed any\nsectors are lost. Then what was answered, and flushed or forced after it, has to be there.\n"
    );
    let mut table =
        Table::new(["load; weir-nbd's options", "killed", "power", "answers", "flushes", "looked at", "lost"]);
    for load in Load::ALL {
        for server in SERVERS {
            let of: Vec<&Done> = all.iter().filter(|done| done.load == load && done.server == server).collect();
            if !of.is_empty() {
                table.row(row(load, server, &of));
            }
        }
    }
    println!("{table}");
}

fn row(load: Load, server: &[&str], of: &[&Done]) -> [String; 7] {
    let rounds = |cut: Cut| of.iter().filter(|done| done.cut == cut).count().to_string();
    let sum = |value: fn(&Done) -> u64| of.iter().map(|done| value(done)).sum::<u64>().to_string();
    [
        format!("{}; {}", load.name(), server.join(" ")),
        rounds(Cut::Kill),
        rounds(Cut::Power),
        sum(|done| done.answers.requests),
        sum(|done| done.answers.flushes),
        sum(|done| done.checked as u64),
        of.iter().filter(|done| done.wrong.is_some()).count().to_string(),
    ]
}
