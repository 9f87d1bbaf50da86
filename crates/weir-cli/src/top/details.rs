//! The process under the bar: the parts of its memory, who released what, the pressure around it, its resident set.

use super::figures::{short, stall_line};
use super::model::Model;
use super::sample::{CAUSES, OfWeir};
use crate::base::units::{bytes, nanoseconds};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Sparkline};

/// Lines that this takes.
pub const LINES: u16 = 8;
/// The levels of pressure.
const LEVELS: [&str; 3] = ["none", "some", "severe"];

/// Draws it.
pub fn draw(frame: &mut Frame, model: &Model, area: Rect) {
    let Some(process) = model.selected() else {
        return frame.render_widget(Block::new().borders(Borders::TOP), area);
    };
    let history = model.history(process);
    let [least, most] = [history.iter().min(), history.iter().max()].map(|it| bytes(it.copied().unwrap_or(0)));
    let mut lines = match &process.weir {
        Some(weir) => of_weir(weir, area.width),
        None => vec![
            Line::from("without Weir: `weir why` says what the kernel tells of it"),
            Line::default(),
            Line::default(),
        ],
    };
    lines.push(Line::from(match &model.group {
        Some((name, stall)) => stall_line(&format!("cgroup {name}"), Some(stall)),
        None => "its cgroup has no pressure of its own: the machine's is above".to_owned(),
    }));
    let time = model.interval.as_secs_f64() * history.len().saturating_sub(1) as f64;
    lines.push(Line::from(format!("resident set over {time:.0} s: from {least} to {most}")));
    let title = format!(" {} ({}) {} resident ", process.command, process.pid, bytes(process.resident_bytes));
    let block = Block::new().borders(Borders::TOP).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [text, graph] = Layout::vertical([Constraint::Length(5), Constraint::Min(0)]).areas(inner);
    frame.render_widget(Paragraph::new(lines), text);
    let begin = history.len().saturating_sub(graph.width.into());
    frame.render_widget(Sparkline::default().data(&history[begin..]).style(Style::new().fg(Color::Green)), graph);
}

/// The parts as a bar and in figures, and what was released.
fn of_weir(weir: &OfWeir, width: u16) -> Vec<Line<'static>> {
    let it = &weir.memory;
    let parts = [
        ("live", it.live_bytes, '#', Color::Green),
        ("idle", it.idle_bytes, '.', Color::Blue),
        ("fragmented", it.fragmented_bytes, '%', Color::Yellow),
        ("metadata", it.metadata_bytes, 'm', Color::Magenta),
        ("other", it.not_weirs_bytes, '=', Color::Gray),
    ];
    let columns = |bytes: u64| {
        (u128::from(width.saturating_sub(2)) * u128::from(bytes) / u128::from(it.resident_bytes.max(1))) as usize
    };
    let mut bar = vec![Span::raw("[")];
    let mut figures = Vec::new();
    for (name, held, mark, color) in parts {
        let style = Style::new().fg(color);
        bar.push(Span::styled(mark.to_string().repeat(columns(held)), style));
        figures.push(Span::styled(format!("{mark} {name} {}  ", short(held)), style));
    }
    bar.push(Span::raw("]"));
    if it.measured_ns_ago.is_none() {
        bar = vec![Span::raw("not measured yet: its heap is small, or its first window has not ended")];
        figures = vec![Span::raw("`weir why` has it measured")];
    }
    if let Some(ago) = it.measured_ns_ago.filter(|_| it.is_stale) {
        bar = vec![Span::raw(format!("unknown: measured {} ago, and changed since", nanoseconds(ago)))];
        figures = vec![Span::raw("`weir why` has it measured")];
    }
    let level = LEVELS.get(weir.pressure as usize).copied().unwrap_or("unknown");
    let released: String =
        CAUSES.iter().zip(weir.released).map(|(cause, bytes)| format!("  {cause} {}", short(bytes))).collect();
    vec![Line::from(bar), Line::from(figures), Line::from(format!("released{released}   pressure {level}"))]
}
