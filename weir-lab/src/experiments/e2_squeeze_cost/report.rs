//! E2's table: the document's, with this run's figures.

use super::client::Client;
use super::measure::LIMITS;
use crate::harness::statistics::{Sample, student};
use crate::harness::tables::Table;
use serde_json::{Value, json};

/// The document's figures: Min, Max, Median, Avg, Stddev.
const DOCUMENT: [[f64; 5]; 2] = [[417.0, 423.0, 420.0, 419.4, 2.509_980_1], [414.0, 425.0, 416.0, 417.8, 4.438_468_2]];

/// Prints it.
pub fn print(client: Client, bytes: u64, done: &[Sample; 2]) {
    println!(
        "{} MiB of zeroes in blocks of 4 KiB onto a volume in memory of weir-nbd, to the end of the flush; MB/s.\n\
         Client: {}. The volume's pages are new in every run, as a server is started for each.\n",
        bytes >> 20,
        client.name()
    );
    println!("{}", table(done));
    println!("0 over 1024: {}. Document: no difference proven at 95.0 % confidence.\n", student(&done[0], &done[1]));
}

fn table(done: &[Sample; 2]) -> Table {
    let mut table = Table::new(["max_idle_pages", "Min", "Max", "Median", "Avg", "Stddev", "document: Median", "Avg"]);
    for ((limit, sample), document) in LIMITS.iter().zip(done).zip(DOCUMENT) {
        let figures = [sample.min(), sample.max(), sample.median(), sample.mean(), sample.stddev()];
        let shown = |value: f64| if value.is_nan() { "-".into() } else { format!("{value:.1}") };
        let document = [document[2], document[3]];
        table.row(std::iter::once(limit.to_string()).chain(figures.into_iter().chain(document).map(shown)));
    }
    table
}

/// Everything that was measured.
pub fn as_json(client: Client, bytes: u64, done: &[Sample; 2]) -> Value {
    let [squeezed, kept] = done.each_ref().map(Sample::json);
    json!({ "client": client.name(), "bytes": bytes, "mb_s": { "0": squeezed, "1024": kept },
            "verdict": student(&done[0], &done[1]).to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_five_figures_and_the_documents_two() {
        let done = [[1.0, 2.0, 6.0].into_iter().collect(), Sample::default()];
        let text = table(&done).to_string();
        let cells: Vec<&str> = text.lines().nth(2).unwrap_or_default().split('|').map(str::trim).collect();
        assert_eq!(cells[1..9], ["0", "1.0", "6.0", "2.0", "3.0", "2.6", "420.0", "419.4"]);
    }
}
