//! Screens of a terminal as SVG, one below the other, each with a line above it.

use std::fmt::Write;
use vt100::{Cell, Color, Screen};

/// Draws the screens. What a cell looks like is said again in escapes, for each run of cells of one look.
pub fn svg(pictures: &[(String, Screen)]) -> String {
    let mut text = String::new();
    for (title, screen) in pictures {
        let _ = writeln!(text, "\x1b[0;1m{title}\x1b[0m\n");
        for row in drawn_rows(screen) {
            let mut last = String::new();
            for cell in (0..screen.size().1.get()).filter_map(|column| screen.cell(row, column)) {
                let look = look(cell);
                if look != last {
                    text += &look;
                }
                last = look;
                text += if cell.contents().is_empty() { " " } else { cell.contents() };
            }
            text += "\x1b[0m\n";
        }
        text += "\n";
    }
    anstyle_svg::Term::new().render_svg(&text)
}

/// The rows that are drawn: of blank rows in a row, one.
fn drawn_rows(screen: &Screen) -> Vec<u16> {
    let is_blank = |row: u16| {
        let mut cells = (0..screen.size().1.get()).filter_map(|column| screen.cell(row, column));
        cells.all(|cell| cell.contents().trim().is_empty() && !cell.inverse())
    };
    (0..screen.size().0.get()).filter(|&row| row == 0 || !is_blank(row) || !is_blank(row - 1)).collect()
}

/// The escapes that make a cell look as it does.
fn look(cell: &Cell) -> String {
    let color = |kind: u8, color: Color| match color {
        Color::Default => String::new(),
        Color::Idx(at) => format!(";{kind};5;{at}"),
        Color::Rgb(red, green, blue) => format!(";{kind};2;{red};{green};{blue}"),
    };
    let (bold, inverse) = (if cell.bold() { ";1" } else { "" }, if cell.inverse() { ";7" } else { "" });
    format!("\x1b[0{bold}{inverse}{}{}m", color(38, cell.fgcolor()), color(48, cell.bgcolor()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZero;

    #[test]
    fn colours_and_text_are_drawn_and_escaped() {
        let cells = |count| NonZero::new(count).unwrap();
        let mut parser = vt100::Parser::new(cells(2), cells(10), 0);
        parser.process(b"a<b\x1b[31mred\x1b[0;7minv");
        let drawn = svg(&[("one & all".into(), parser.screen().clone())]);
        for part in ["a&lt;b", "one &amp; all", ">red</tspan>", ">inv</tspan>", "<svg"] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        parser.screen_mut().set_size(cells(5), cells(10));
        parser.process(b"\x1b[5;1Hend");
        assert_eq!(drawn_rows(parser.screen()), [0, 1, 4], "of three blank rows one");
    }
}
