//! Screens of a terminal as SVG, one below the other, each with a line above it.

use std::fmt::Write;

/// Of a character, in pixels.
const WIDTH: f64 = 7.8;
const HEIGHT: f64 = 16.0;
/// Around a screen, and for the line above it.
const MARGIN: f64 = 12.0;
const TITLE: f64 = 28.0;
/// A dark terminal's text and background, also on a light page.
const TEXT: &str = "#d6deeb";
const BACKGROUND: &str = "#0d1117";
/// The first sixteen colours, as xterm's readers have them, made lighter where a dark background needs it.
const PALETTE: [&str; 16] = [
    "#3b4252", "#ff6b6b", "#7ee787", "#e3b341", "#79b8ff", "#d2a8ff", "#56d4dd", "#c9d1d9", "#6e7681", "#ffa198",
    "#a5f3b0", "#f2cc60", "#a5d6ff", "#e2c5ff", "#b3f0ff", "#f0f6fc",
];

/// Draws them.
pub fn svg(pictures: &[(String, vt100::Screen)]) -> String {
    let columns = pictures.first().map_or(1, |(_, screen)| screen.size().1.get());
    let width = f64::from(columns) * WIDTH + 2.0 * MARGIN;
    let high = |rows: usize| rows as f64 * HEIGHT + 2.0 * MARGIN + TITLE;
    let height: f64 = pictures.iter().map(|(_, screen)| high(drawn_rows(screen).len())).sum();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<title>weir top beside redis, before and after another program needed memory\
         </title>\n<style>text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre}}\
         .title{{font:600 15px system-ui,sans-serif}}</style>\n<rect width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\" \
         fill=\"{BACKGROUND}\"/>\n"
    );
    let mut top = 0.0;
    for (title, screen) in pictures {
        let _ = writeln!(
            out,
            "<text class=\"title\" fill=\"{TEXT}\" x=\"{MARGIN}\" y=\"{:.0}\">{}</text>",
            top + 22.0,
            escaped(title)
        );
        let rows = drawn_rows(screen);
        for (at, &row) in rows.iter().enumerate() {
            draw_row(&mut out, screen, row, top + TITLE + MARGIN + at as f64 * HEIGHT);
        }
        top += high(rows.len());
    }
    out + "</svg>\n"
}

/// The rows of a screen but for blank ones after a blank one: a long list with few lines is a black box on the page.
fn drawn_rows(screen: &vt100::Screen) -> Vec<u16> {
    let is_blank = |row: u16| {
        let cells = (0..screen.size().1.get()).filter_map(|column| screen.cell(row, column));
        cells.into_iter().all(|cell| cell.contents().trim().is_empty() && !cell.inverse())
    };
    (0..screen.size().0.get()).filter(|&row| row == 0 || !is_blank(row) || !is_blank(row - 1)).collect()
}

/// What a stretch of characters looks like.
#[derive(Clone, PartialEq)]
struct Look {
    text: String,
    background: Option<String>,
    bold: bool,
}

fn draw_row(out: &mut String, screen: &vt100::Screen, row: u16, y: f64) {
    let mut column = 0;
    while let Some(look) = look_at(screen, row, column) {
        let begin = column;
        let mut text = String::new();
        while look_at(screen, row, column).as_ref() == Some(&look) {
            let shown = screen.cell(row, column).map(vt100::Cell::contents).unwrap_or_default();
            text += if shown.is_empty() { " " } else { shown };
            column += 1;
        }
        let x = MARGIN + f64::from(begin) * WIDTH;
        let width = f64::from(column - begin) * WIDTH;
        if let Some(color) = &look.background {
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{color}\"/>"
            );
        }
        if !text.trim().is_empty() {
            let weight = if look.bold { " font-weight=\"600\"" } else { "" };
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.0}\" textLength=\"{width:.1}\" fill=\"{}\"{weight}>{}</text>",
                y + HEIGHT - 4.0,
                look.text,
                escaped(&text)
            );
        }
    }
}

fn look_at(screen: &vt100::Screen, row: u16, column: u16) -> Option<Look> {
    let cell = screen.cell(row, column)?;
    let (text, background) = (color(cell.fgcolor()), color(cell.bgcolor()));
    let bold = cell.bold();
    Some(if cell.inverse() {
        let text_as_background = text.unwrap_or_else(|| TEXT.into());
        Look { text: background.unwrap_or_else(|| BACKGROUND.into()), background: Some(text_as_background), bold }
    } else {
        Look { text: text.unwrap_or_else(|| TEXT.into()), background, bold }
    })
}

fn color(color: vt100::Color) -> Option<String> {
    match color {
        vt100::Color::Default => None,
        vt100::Color::Idx(at @ 0..16) => Some(PALETTE[usize::from(at)].into()),
        // xterm's cube of 6 x 6 x 6, then greys.
        vt100::Color::Idx(at @ 16..232) => {
            let level = |part: u8| if part == 0 { 0 } else { 55 + 40 * part };
            let at = at - 16;
            Some(format!("#{:02x}{:02x}{:02x}", level(at / 36), level(at / 6 % 6), level(at % 6)))
        }
        vt100::Color::Idx(at) => Some(format!("#{0:02x}{0:02x}{0:02x}", 8 + 10 * (at - 232))),
        vt100::Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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
        assert_eq!(drawn_rows(parser.screen()), [0, 1]);
        parser.screen_mut().set_size(cells(5), cells(10));
        parser.process(b"\x1b[5;1Hend");
        assert_eq!(drawn_rows(parser.screen()), [0, 1, 4], "of three blank rows one");
        for part in ["a&lt;b", "one &amp; all", "fill=\"#ff6b6b\">red", "<rect x=\"58.8\"", "fill=\"#0d1117\">inv"] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
    }
}
