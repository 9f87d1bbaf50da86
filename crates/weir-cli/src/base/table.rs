//! Lines of tables for people.

/// A line of cells, each in its column. A width is the least number of characters; where it is negative, the text is to the
/// left.
pub fn row<const COLUMNS: usize>(widths: [isize; COLUMNS], cells: [String; COLUMNS]) -> String {
    let cell = |(width, cell): (isize, String)| match (width < 0, width.unsigned_abs()) {
        (true, width) => format!("{cell:<width$}"),
        (false, width) => format!("{cell:>width$}"),
    };
    let line = widths.into_iter().zip(cells).map(cell).collect::<Vec<_>>().join(" ");
    line.trim_end().to_owned() + "\n"
}

/// The line above it.
pub fn head<const COLUMNS: usize>(widths: [isize; COLUMNS], names: [&str; COLUMNS]) -> String {
    row(widths, names.map(String::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_as_wide_as_their_columns() {
        assert_eq!(row([-4, 3, -4], ["é", "12", "x"].map(String::from)), "é     12 x\n");
        assert_eq!(head([2, -1], ["LONG", ""]), "LONG\n");
    }
}
