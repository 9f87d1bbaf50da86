//! The parts of the screen below the table and over it: the process under the bar, help and menus. The question whether something
//! is to be done is one as well.

use super::keys;
use super::model::{Mode, Model, Request};
use super::rows::Column;
use super::sample::{OfWeir, Process};
use crate::around::family::Identity;
use crate::around::stall::Stall;
use crate::base::units::{bytes, nanoseconds};
use crate::figures::less::Less;
use crate::figures::level;
use crate::figures::memory::PARTS;
use crate::figures::released::CAUSES;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Sparkline};

/// Lines that the process under the bar takes.
pub const LINES: u16 = 9;
/// Processes that a question names.
const NAMED: usize = 3;
/// How the parts of its memory are drawn, in the order of [`PARTS`].
const MARKS: [(char, Color); 6] = [
    ('#', Color::Green),
    ('.', Color::Blue),
    ('%', Color::Yellow),
    ('~', Color::Cyan),
    ('m', Color::Magenta),
    ('=', Color::Gray),
];

/// Draws the process under the bar: the parts of its memory, who released what, the pressure around it, its resident set.
pub fn details(frame: &mut Frame, model: &Model, area: Rect) {
    let Some(process) = model.selected() else {
        return frame.render_widget(Block::new().borders(Borders::TOP), area);
    };
    let history = model.history(process);
    let [least, most] = [history.iter().min(), history.iter().max()].map(|it| bytes(it.copied().unwrap_or(0)));
    let mut lines = match &process.weir {
        Some(weir) => of_weir(weir, area.width),
        None => ["without Weir: `weir why` says what the kernel tells of it", "", "", ""].map(Line::from).to_vec(),
    };
    lines.push(Line::from(match &model.group {
        Some((name, stall)) => stall_line(&format!("cgroup {name}"), Some(stall)),
        None => "its cgroup has no pressure of its own: the machine's is above".to_owned(),
    }));
    let time = model.interval.as_secs_f64() * history.len().saturating_sub(1) as f64;
    lines.push(Line::from(format!("resident set over {time:.0} s: from {least} to {most}")));
    let title = format!(" {} ({}) {} resident ", process.command, process.pid, bytes(process.resident_bytes));
    let block = Block::new().borders(Borders::TOP).title(fitted(title.into(), area.width));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [text, graph] = Layout::vertical([Constraint::Length(6), Constraint::Min(0)]).areas(inner);
    let lines: Vec<Line> = lines.into_iter().map(|line| fitted(line, text.width)).collect();
    frame.render_widget(Paragraph::new(lines), text);
    let begin = history.len().saturating_sub(graph.width.into());
    frame.render_widget(Sparkline::default().data(&history[begin..]).style(Style::new().fg(Color::Green)), graph);
}

/// The parts as a bar and in figures, and what was released.
fn of_weir(weir: &OfWeir, width: u16) -> Vec<Line<'static>> {
    let it = &weir.memory;
    let whole = u128::from(it.resident_bytes.max(1));
    let columns = |bytes: u64| (u128::from(width.saturating_sub(2)) * u128::from(bytes) / whole) as usize;
    let (mut bar, mut figures) = (vec![Span::raw("[")], Vec::new());
    for ((name, held), (mark, color)) in PARTS.into_iter().zip(it.parts().unwrap_or_default()).zip(MARKS) {
        if name == "merged" && held == 0 {
            continue;
        }
        let name = if name == "not Weir's" { "other" } else { name };
        bar.push(Span::styled(mark.to_string().repeat(columns(held)), color));
        figures.push(Span::styled(format!("{mark} {name} {}  ", short(held)), color));
    }
    bar.push(Span::raw("]"));
    let unknown = match (it.measured_ns_ago, it.parts()) {
        (None, _) => {
            Some("not measured yet: its heap is small, its first window has not ended, or it was forked".to_owned())
        }
        (Some(ago), None) => Some(format!("unknown: measured {} ago, and changed since", nanoseconds(ago))),
        _ => None,
    };
    if let Some(why) = unknown {
        (bar, figures) = (vec![Span::raw(why)], vec![Span::raw("`weir why` has it measured")]);
    }
    let released = released_line(weir.released.all());
    let released = format!("{released}   pressure {}", level(weir.pressure));
    let less = weir.less.as_ref().map_or("nothing to spare, as far as is known".to_owned(), Less::to_string);
    vec![Line::from(bar), Line::from(figures), Line::from(released), Line::from(less)]
}

/// A line of the bytes released, by cause.
pub fn released_line(all: [u64; 4]) -> String {
    let each = CAUSES.iter().zip(all).map(|(cause, bytes)| format!("  {cause} {}", short(bytes)));
    format!("released{}", each.collect::<String>())
}

/// Shares of time in which tasks waited for memory.
pub fn stall_line(name: &str, stall: Option<&Stall>) -> String {
    let Some(Stall { some, full }) = stall else { return format!("{name}: the kernel tells of none") };
    let three = |shares: &[f64; 3]| shares.map(|share| format!("{share:.1}")).join(" ");
    format!("{name}  some {} %  full {} %  (10 s, 1 min, 5 min)", three(some), three(full))
}

/// A line that has room for all of it. Else its last column says that it is cut, so that no number looks like a smaller one.
pub fn fitted(mut line: Line<'static>, width: u16) -> Line<'static> {
    let room = usize::from(width);
    if line.width() <= room {
        return line;
    }
    let (mut taken, mut fits) = (1, Vec::new());
    for span in std::mem::take(&mut line.spans) {
        let is_room = |c: &char| {
            taken += Span::raw(c.to_string()).width();
            taken <= room
        };
        let text: String = span.content.chars().take_while(is_room).collect();
        fits.push(Span::styled(text, span.style));
    }
    fits.push(Span::raw("…"));
    line.spans(fits)
}

/// Bytes in at most five columns: three digits and a unit.
pub fn short(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut units = ['K', 'M', 'G', 'T', 'P', 'E'].into_iter().peekable();
    // What would be written with four digits is written in the next unit.
    while value >= 999.5 && units.len() > 1 {
        value /= 1024.0;
        units.next();
    }
    let unit = units.next().unwrap_or('E');
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// Draws what lies over the table.
pub fn overlay(frame: &mut Frame, model: &Model, area: Rect) {
    match &model.mode {
        Mode::Table | Mode::Search(_) | Mode::Filter(_) => {}
        Mode::Help => {
            let line = |(key, what): &(&str, &str)| Line::from(format!("{key:<19}{what}"));
            window(frame, area, "Help: any key ends it", keys::HELP.iter().map(line).collect());
        }
        Mode::Sort(place) => {
            let lines = Column::ALL.iter().map(|it| it.words()).map(|(name, is)| format!("{name:<8} {is}")).collect();
            menu(frame, area, "Sort by (Enter, Esc)", lines, *place);
        }
        Mode::Steer(place) => {
            let lines =
                Request::ALL.iter().map(|it| it.words()).map(|(word, does)| format!("{word:<6} {does}")).collect();
            let chosen: Vec<Identity> = model.chosen().into_iter().map(Process::identity).collect();
            menu(frame, area, &format!("Steer {} (Enter, Esc)", named(model, &chosen)), lines, *place);
        }
        Mode::Confirm(request, processes) => {
            let (word, does) = request.words();
            let asks = [format!("{word} {}?", named(model, processes)), format!("It will {does}.")];
            let lines = asks.map(Line::from).into_iter().chain(["y: yes; any other key: no".into()]);
            window(frame, area, "Confirm", lines.collect());
        }
    }
}

/// Processes in words.
fn named(model: &Model, processes: &[Identity]) -> String {
    let of = |process| model.sample.processes.iter().find(|it| it.identity() == process);
    let command = |process| of(process).map_or("ended", |it| it.command.as_str());
    let name = |&process: &Identity| format!("{} ({})", command(process), process.pid);
    let names: Vec<String> = processes.iter().take(NAMED).map(name).collect();
    match processes.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn menu(frame: &mut Frame, area: Rect, title: &str, lines: Vec<String>, place: usize) {
    let style = |at: usize| if at == place { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    window(frame, area, title, lines.into_iter().enumerate().map(|(at, line)| Line::styled(line, style(at))).collect());
}

/// A window in the middle, as large as its text, or as the screen.
fn window(frame: &mut Frame, area: Rect, title: &str, lines: Vec<Line>) {
    let longest = lines.iter().map(Line::width).max().unwrap_or(0).max(title.chars().count() + 2);
    let width = u16::try_from(longest + 4).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = Block::new().borders(Borders::ALL).title(format!(" {title} "));
    frame.render_widget(Paragraph::new(lines).block(block), place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_cut_says_so() {
        let line = Line::from(vec![Span::raw("released "), Span::raw("128M"), Span::raw(" é")]);
        let cut = |width| fitted(line.clone(), width).to_string();
        assert_eq!([cut(15), cut(12), cut(11), cut(1)], ["released 128M é", "released 12…", "released 1…", "…"]);
    }

    #[test]
    fn bytes_take_four_columns() {
        let written = [0, 999, 1000, 1536, 10 << 20, 1000 << 20, 5 << 30, u64::MAX].map(short);
        assert_eq!(written, ["0B", "999B", "1.0K", "1.5K", "10M", "1.0G", "5.0G", "16E"]);
        for shift in 0..64 {
            assert!(short((1 << shift) - 1).len() <= 5 && short(1 << shift).len() <= 5);
        }
    }
}
