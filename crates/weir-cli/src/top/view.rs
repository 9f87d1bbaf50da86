//! The screen: the machine, the table, the process under the bar, and the keys.

use super::model::{Mode, Model};
use super::panels::{self, short, stall_line};
use super::rows::{Column, Row};
use super::sample::Process;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

/// Lines above the table, below it, and for the keys.
const HEAD: u16 = 3;
const KEYS: u16 = 1;
/// Rows of a screen without the table's lines but with its head.
pub const AROUND: u16 = HEAD + 1 + panels::LINES + KEYS;
/// Screens with fewer lines have no details; with fewer than this no head either.
const LEAST_FOR_DETAILS: u16 = AROUND + 3;
const LEAST_FOR_HEAD: u16 = 8;
/// Looks that are shown beside a process.
const SHORT_HISTORY: usize = 10;
/// Columns that the columns before the name take, by their places in [`Column::ALL`]; behind them the looks.
const WIDTHS: [u16; 8] = [7, 6, 6, 6, 6, 6, 6, SHORT_HISTORY as u16];
const HISTORY: usize = 7;
/// Which of them go first where there is no room: the looks, what is not Weir's, fragmented, released, idle, live.
const DROPPED: [usize; 6] = [HISTORY, 5, 4, 6, 3, 2];
/// Columns that the name is to have.
const LEAST_FOR_NAME: u16 = 8;
/// Heights of a bar in eighths of a line.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws all.
pub fn draw(frame: &mut Frame, model: &mut Model) {
    let area = frame.area();
    let head = if area.height >= LEAST_FOR_HEAD { HEAD } else { 0 };
    let below = if area.height >= LEAST_FOR_DETAILS { panels::LINES } else { 0 };
    let heights = [head, 0, below, KEYS.min(area.height)].map(Constraint::Length);
    let [head, table, below, keys] =
        Layout::vertical([heights[0], Constraint::Min(0), heights[2], heights[3]]).areas(area);
    let lines: Vec<Line> = head_lines(model).into_iter().map(|line| panels::fitted(line, head.width)).collect();
    frame.render_widget(Paragraph::new(lines), head);
    draw_table(frame, model, table);
    if below.height > 0 {
        panels::details(frame, model, below);
    }
    frame.render_widget(Paragraph::new(panels::fitted(key_line(model), keys.width)), keys);
    panels::overlay(frame, model, area);
}

fn head_lines(model: &Model) -> Vec<Line<'static>> {
    let sample = &model.sample;
    let with_weir = sample.processes.iter().filter(|it| it.weir.is_some());
    let [total, used] = sample.machine.map(short);
    let count = with_weir.clone().count();
    let unknown = if sample.unknown > 0 { format!(", {} unknown", sample.unknown) } else { String::new() };
    let all = sample.processes.len();
    let counts = format!("  {count} of {all} processes have Weir{unknown}   machine {used} of {total} used");
    let mut title = vec!["weir top".bold(), Span::raw(counts)];
    if !model.order.filter.is_empty() {
        title.push(format!("   filter: {}", model.order.filter).yellow());
    }
    let released = with_weir.filter_map(|it| Some(it.weir.as_ref()?.released.all()));
    let released = released.fold([0u64; 4], |sum, it| std::array::from_fn(|i| sum[i].saturating_add(it[i])));
    vec![
        Line::from(title),
        Line::from(stall_line("pressure  machine", sample.stall.as_ref())),
        Line::from(panels::released_line(released)),
    ]
}

fn draw_table(frame: &mut Frame, model: &mut Model, area: Rect) {
    let shown = shown(area.width);
    let widths = shown.iter().map(|&place| Constraint::Length(WIDTHS[place])).chain([Constraint::Fill(1)]);
    model.page = area.height.saturating_sub(1).into();
    let heads = Column::ALL.map(|column| {
        let mark = match (column == model.order.column, model.order.is_reversed) {
            (false, _) => "",
            (true, false) => "v",
            (true, true) => "^",
        };
        format!("{}{mark}", column.words().0)
    });
    let [pid, resident, live, idle, fragmented, other, released, command] = heads;
    let mut cells = [pid, resident, live, idle, fragmented, other, released].map(right).to_vec();
    cells.push(Cell::from("OVER TIME"));
    let cells = shown.iter().map(|&place| cells[place].clone()).chain([Cell::from(command)]);
    let head = TableRow::new(cells).style(Style::new().add_modifier(Modifier::BOLD).fg(Color::Cyan));
    let lines: Vec<TableRow> = model.rows().iter().map(|row| table_row(model, row, &shown)).collect();
    let empty = lines.is_empty();
    let table = Table::new(lines, widths)
        .header(head)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut model.table);
    if empty && area.height > 1 {
        let lines: Vec<Line> = why_empty(model).into_iter().map(|say| panels::fitted(say.into(), area.width)).collect();
        let height = (lines.len() as u16).min(area.height - 1);
        frame.render_widget(Paragraph::new(lines), Rect { y: area.y + 1, height, ..area });
    }
}

/// Why the table has no row.
fn why_empty(model: &Model) -> Vec<String> {
    let unknown = model.sample.unknown;
    match (model.order.filter.is_empty(), model.order.shows_all) {
        (false, _) => vec!["no process has that in its name: F4 changes it".into()],
        (true, true) => vec!["no process was found".into()],
        (true, false) if unknown > 0 => vec![
            "no process with Weir was found that may be looked into".into(),
            format!("{unknown} could not be: `weir stat` says why; root may look into all"),
        ],
        (true, false) => vec!["no process with Weir was found: `weir run PROGRAM` starts one".into()],
    }
}

/// The places of the columns before the name that a screen of this width has room for: a number is never cut.
fn shown(width: u16) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..WIDTHS.len()).collect();
    for dropped in DROPPED {
        let needed: u16 = shown.iter().map(|&place| WIDTHS[place] + 1).sum::<u16>() + LEAST_FOR_NAME;
        if needed <= width {
            break;
        }
        shown.retain(|&place| place != dropped);
    }
    shown
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

fn table_row(model: &Model, row: &Row, shown: &[usize]) -> TableRow<'static> {
    let process = row.process;
    let figure = |column: Column| match column {
        Column::Pid => process.pid.to_string(),
        _ => column.bytes(process).map_or("-".into(), short),
    };
    let cell = |&place: &usize| match place {
        HISTORY => Cell::from(bars(&model.history(process))),
        _ => right(figure(Column::ALL[place])),
    };
    let name = format!("{}{}", indent(row.depth), process.command);
    let cells = shown.iter().map(cell).chain([Cell::from(name)]);
    TableRow::new(cells).style(style(model, process))
}

fn indent(depth: usize) -> String {
    match depth {
        0 => String::new(),
        // Deeper than that there would be no room for names.
        _ => format!("{}`- ", "  ".repeat(depth.min(12) - 1)),
    }
}

fn style(model: &Model, process: &Process) -> Style {
    let pressure = process.weir.as_ref().map(|weir| weir.pressure);
    match pressure {
        _ if model.tagged.contains(&process.identity()) => Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
        Some(0) => Style::new(),
        Some(1) => Style::new().fg(Color::Magenta),
        Some(_) => Style::new().fg(Color::Red),
        None => Style::new().add_modifier(Modifier::DIM),
    }
}

/// The last resident sets as bars, the highest of them full.
fn bars(history: &[u64]) -> String {
    let last = &history[history.len().saturating_sub(SHORT_HISTORY)..];
    let most = last.iter().max().copied().unwrap_or(0).max(1);
    let bar = |&bytes: &u64| BARS[((u128::from(bytes) * 8).div_ceil(u128::from(most)) as usize).clamp(1, 8) - 1];
    last.iter().map(bar).collect()
}

fn key_line(model: &Model) -> Line<'static> {
    if !model.message.is_empty() {
        return Line::from(model.message.clone()).bold();
    }
    match &model.mode {
        Mode::Search(text) => return Line::from(format!("Search: {text}_   F3 the next one, Enter or Esc ends")),
        Mode::Filter(_) => {
            return Line::from(format!("Filter: {}_   Enter keeps it, Esc drops it", model.order.filter));
        }
        _ => {}
    }
    let keys = [
        ("F1", "Help"),
        ("F3", "Search"),
        ("F4", "Filter"),
        ("F5", if model.order.is_tree { "List" } else { "Tree" }),
        ("F6", "Sort"),
        ("F9", "Steer"),
        ("a", if model.order.shows_all { "Weir's" } else { "All" }),
        ("F10", "Quit"),
    ];
    let spans =
        keys.into_iter().flat_map(|(key, what)| [Span::raw(key), Span::raw(format!("{what:<7}")).black().on_cyan()]);
    Line::from(spans.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_screen_has_fewer_columns_and_whole_ones() {
        assert_eq!([shown(200).len(), shown(80).len(), shown(40).len()], [8, 8, 4]);
        assert_eq!((shown(40), shown(20)), (vec![0, 1, 2, 3], vec![0, 1]));
    }

    #[test]
    fn bars_rise_to_the_most() {
        assert_eq!(bars(&[1, 50, 100]), "▁▄█");
        assert_eq!((bars(&[]), bars(&[0, 0])), (String::new(), "▁▁".into()));
        assert_eq!(bars(&[5; 99]).chars().count(), SHORT_HISTORY);
    }
}
