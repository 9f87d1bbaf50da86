//! E2's table: the document's, with this run's figures.

use super::client::REQUEST;
use super::measure::{Arm, Done, LIMITS, SEEN};
use crate::harness::statistics::Paired;
use crate::harness::tables::Table;
use serde_json::{Value, json};

/// The document's figures: Median, Avg.
const DOCUMENT: [[f64; 2]; 2] = [[420.0, 419.4], [416.0, 417.8]];

/// Prints it.
pub fn print(bytes: u64, done: &Done) {
    println!(
        "{} MiB in blocks of {REQUEST} B, one at a time, onto a volume in memory of weir-nbd, to the end of the flush; MB/s.\n\
         Client: fio's nbd engine (libnbd). A server is started for each run, and the volume's pages are there before the\n\
         time counts. Missed: of the runs of pages asked of the pool, the part that it had not.\n",
        bytes >> 20,
    );
    println!("{}", table(&done.arms));
    println!(
        "0 over 1024, by {} rounds: {}. Rounds go on until a difference of {:.0} % would be seen. Document: no difference \
         proven at 95.0 % confidence.\n",
        done.ratios.len(),
        Paired::of(&done.ratios),
        SEEN * 100.0
    );
}

fn table(arms: &[Arm; 2]) -> Table {
    let mut table = Table::new([
        "max_idle_pages",
        "requests",
        "missed",
        "Min",
        "Max",
        "Median",
        "Avg",
        "Stddev",
        "document: Median",
        "Avg",
    ]);
    for ((limit, arm), document) in LIMITS.iter().zip(arms).zip(DOCUMENT) {
        let rate = &arm.rate;
        let figures = [rate.min(), rate.max(), rate.median(), rate.mean(), rate.stddev()];
        let shown = |value: f64| if value.is_nan() { "-".into() } else { format!("{value:.1}") };
        let counts = [format!("{:.0}", arm.requests.median()), format!("{:.2} %", arm.missed.median() * 100.0)];
        let cells = std::iter::once(limit.to_string()).chain(counts);
        table.row(cells.chain(figures.into_iter().chain(document).map(shown)));
    }
    table
}

/// Everything that was measured.
pub fn as_json(bytes: u64, done: &Done) -> Value {
    let [squeezed, kept] = done
        .arms
        .each_ref()
        .map(|arm| json!({ "mb_s": arm.rate.json(), "requests": arm.requests.json(), "missed": arm.missed.json() }));
    json!({ "bytes": bytes, "arms": { "0": squeezed, "1024": kept }, "verdict": Paired::of(&done.ratios).to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_counts_the_five_figures_and_the_documents_two() {
        let sample = |values: &[f64]| values.iter().copied().collect();
        let arm = Arm { rate: sample(&[1.0, 2.0, 6.0]), requests: sample(&[8.0]), missed: sample(&[0.5]) };
        let text = table(&[arm, Arm::default()]).to_string();
        let cells: Vec<&str> = text.lines().nth(2).unwrap_or_default().split('|').map(str::trim).collect();
        assert_eq!(cells[1..11], ["0", "8", "50.00 %", "1.0", "6.0", "2.0", "3.0", "2.6", "420.0", "419.4"]);
    }
}
