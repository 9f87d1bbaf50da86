//! The report as Markdown, for a place where pictures cannot be.

use super::column::{self, Column, Comparison, Table};
use super::reading::Stat;
use super::records::Pressure;
use crate::base::output::printable;
use crate::base::units::{bytes, nanoseconds};
use crate::figures::released::CAUSES;

/// Places of the line of blocks that stands for the picture of the resident set.
const PLACES: usize = 60;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The page.
pub fn page(runs: &Comparison) -> String {
    let names: Vec<String> = runs.columns.iter().map(|column| escaped(&column.name())).collect();
    let mut page = String::from("# Weir: what was released, when, and why\n");
    runs.notes.iter().for_each(|note| page += &format!("\n> {}\n", escaped(note)));
    let cell = |value: Option<String>| value.map_or("-".into(), |value| escaped(&value));
    let figures = column::compared(&runs.columns).map(|(name, values)| row(name, values.into_iter().map(cell)));
    page += &format!("\n{}{}", head("", &names), figures.collect::<String>());
    for (column, name) in runs.columns.iter().zip(&names) {
        page += &format!("\n## {name}\n{}", run(column));
    }
    page
}

fn run(column: &Column) -> String {
    let mut text = column.stat.as_ref().map_or_else(String::new, |stat| resident(stat));
    text += &column.kinds().map_or_else(String::new, |kinds| table(&kinds));
    if let Some(released) = column.released() {
        let rows = CAUSES
            .iter()
            .zip(released.all())
            .filter(|(_, size)| *size > 0)
            .map(|(cause, size)| row(cause, [bytes(size)]));
        text += &format!("\n{}{}", head("cause", &["released".into()]), rows.collect::<String>());
    }
    for (of, times) in column.times() {
        let below = [0.5, 0.99].map(|share| nanoseconds(times.below(share).unwrap_or(0)));
        let said = format!("{} in all, half below {}, 99 % below {}", times.count(), below[0], below[1]);
        text += &format!("\nTimes: {}. {said}.\n\n{}", escaped(&of), head("below", &["times".into()]));
        let counted = times.counts().iter().enumerate().filter(|(_, count)| **count > 0);
        counted.for_each(|(bucket, count)| text += &row(&nanoseconds(2 << bucket), [count.to_string()]));
    }
    [column.reclaim(), column.holders()].iter().flatten().for_each(|it| text += &table(it));
    text
}

fn table(it: &Table) -> String {
    let names: Vec<String> = it.names[1..].iter().map(ToString::to_string).collect();
    let line = |(name, values): &(String, Vec<String>)| row(&escaped(name), values.iter().cloned());
    format!("\n{}{}", head(it.names[0], &names), it.rows.iter().map(line).collect::<String>())
}

/// The resident set over time as a line of blocks, and the pressure below it.
fn resident(stat: &Stat) -> String {
    let points = stat.samples.points();
    let most = points.iter().map(|point| point.memory.resident_bytes).max().unwrap_or(0).max(1);
    let parts: Vec<_> = points.chunks(points.len().div_ceil(PLACES).max(1)).collect();
    let block = |part: &&[super::timeline::Point]| {
        let resident = part.iter().map(|point| point.memory.resident_bytes).max().unwrap_or(0);
        BLOCKS[(u128::from(resident) * 7 / u128::from(most)) as usize]
    };
    let level = |part: &&[super::timeline::Point]| match part.iter().map(|point| point.pressure).max() {
        Some(Pressure::Severe) => '#',
        Some(Pressure::Some) => '+',
        _ => ' ',
    };
    let [blocks, levels]: [String; 2] = [parts.iter().map(block).collect(), parts.iter().map(level).collect()];
    let most = bytes(most);
    format!(
        "\nResident set over time, at most {most}; below it pressure (+ some, # severe):\n\n    {blocks}\n    {}\n",
        levels.trim_end()
    )
}

fn head(first: &str, others: &[String]) -> String {
    row(first, others.iter().cloned()) + &row("---", others.iter().map(|_| "---:".to_owned()))
}

fn row(first: &str, others: impl IntoIterator<Item = String>) -> String {
    let others: String = others.into_iter().map(|value| format!(" {value} |")).collect();
    format!("| {first} |{others}\n")
}

/// Text of a file's, so that it is text here: nothing in it is Markdown or HTML or steers a terminal, and it stays on its line.
fn escaped(text: &str) -> String {
    let character = |c: char| match c {
        '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '#' | '+' | '!' | '|' | '~' => {
            format!("\\{c}")
        }
        '&' => "&amp;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        '\n' => " ".into(),
        c => c.into(),
    };
    printable(text).chars().map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn text_of_files_stays_text() {
        assert_eq!(escaped("a|b\n<script> [x](y) `&"), r"a\|b &lt;script&gt; \[x\]\(y\) \`&amp;");
        assert_eq!(escaped("a\u{1b}[2J\u{202e}\u{9b}"), r"a?\[2J??");
    }
}
