//! What lies over the table: help, menus, and the question whether something is to be done.

use super::column::Column;
use super::keys;
use super::model::{Mode, Model, Request};
use super::sample::Process;
use crate::around::family::Identity;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Clear, Paragraph};

/// Processes that a question names.
const NAMED: usize = 3;

/// Draws what there is.
pub fn draw(frame: &mut Frame, model: &Model, area: Rect) {
    match &model.mode {
        Mode::Table | Mode::Search(_) | Mode::Filter(_) => {}
        Mode::Help => {
            let line = |(key, what): &(&str, &str)| Line::from(format!("{key:<19}{what}"));
            window(frame, area, "Help: any key ends it", keys::HELP.iter().map(line).collect());
        }
        Mode::Sort(place) => {
            let lines = Column::ALL.iter().map(|it| format!("{:<8} {}", it.name(), it.meaning())).collect();
            menu(frame, area, "Sort by (Enter, Esc)", lines, *place);
        }
        Mode::Steer(place) => {
            let lines = Request::ALL.iter().map(|it| format!("{:<6} {}", it.word(), it.meaning())).collect();
            let chosen: Vec<Identity> = model.chosen().into_iter().map(Process::identity).collect();
            menu(frame, area, &format!("Steer {} (Enter, Esc)", named(model, &chosen)), lines, *place);
        }
        Mode::Confirm(request, processes) => {
            let lines = vec![
                Line::from(format!("{} {}?", request.word(), named(model, processes))),
                Line::from(format!("It will {}.", request.meaning())),
                Line::from("y: yes; any other key: no"),
            ];
            window(frame, area, "Confirm", lines);
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
