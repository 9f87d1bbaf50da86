//! Tables in Markdown, their columns aligned so that they read well raw.

use crate::harness::statistics::Sample;

/// A table: the first column to the left, all others to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Table {
        Table { rows: vec![header.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row; a missing cell is empty.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.rows[0].len(), String::new());
        self.rows.push(row);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 { write!(f, "| {cell:<width$} ")? } else { write!(f, "| {cell:>width$} ")? }
            }
            writeln!(f, "|")?;
            if number == 0 {
                for (column, &width) in widths.iter().enumerate() {
                    if column == 0 {
                        write!(f, "|{:-<1$}", "", width + 2)?
                    } else {
                        write!(f, "|{:-<1$}:", "", width + 1)?
                    }
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// Three significant digits; at most two decimals.
pub fn short(value: f64) -> String {
    match value.abs() {
        x if x.is_nan() => "-".into(),
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// As [`short`], thousands, millions and milliards by their letters.
pub fn count(value: f64) -> String {
    match value {
        x if x >= 1e9 => format!("{}G", short(x / 1e9)),
        x if x >= 1e6 => format!("{}M", short(x / 1e6)),
        x if x >= 1e4 => format!("{}k", short(x / 1e3)),
        x => short(x),
    }
}

/// Bytes as MiB, to a tenth below ten.
pub fn mib(bytes: f64) -> String {
    let mib = bytes / f64::from(1 << 20);
    if mib.is_nan() {
        "-".into()
    } else if mib < 10.0 {
        format!("{mib:.1}")
    } else {
        format!("{mib:.0}")
    }
}

/// The median, and from where to where the measurements lie if there are more than one.
pub fn spread(sample: &Sample, show: impl Fn(f64) -> String) -> String {
    if sample.len() < 2 {
        return show(sample.median());
    }
    format!("{} ({}..{})", show(sample.median()), show(sample.min()), show(sample.max()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["name", "n"]);
        table.row(["a", "1,000"]);
        assert_eq!(table.to_string(), "| name |     n |\n|------|------:|\n| a    | 1,000 |\n");
    }

    #[test]
    fn digits_that_say_something() {
        assert_eq!((short(1234.5), short(12.34), short(1.234)), ("1234".into(), "12.3".into(), "1.23".into()));
        assert_eq!(
            (count(15_549_548.0), count(67_517.0), count(845.2)),
            ("15.5M".into(), "67.5k".into(), "845".into())
        );
        assert_eq!((mib(1048576.0 * 1.25), mib(1048576.0 * 512.4)), ("1.2".into(), "512".into()));
    }
}
