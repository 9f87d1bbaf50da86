//! `weir top`: processes with Weir on a screen that is kept up to date.
//!
//! | part | what it does |
//! |---|---|
//! | [`sample`] | looks at all processes and the machine |
//! | [`model`] | what is shown: the last sample, the history, what the user has chosen |
//! | [`rows`] | which processes are shown, in which order, as a tree |
//! | [`keys`] | what each key does |
//! | [`view`], [`panels`] | draw |
//! | [`screen`] | takes the terminal over, gives it back, and ends the program with it |
//! | [`steer`] | tells processes to release memory |

#[cfg(test)]
mod drawn_tests;
mod keys;
pub mod model;
mod panels;
pub mod rows;
pub mod sample;
mod screen;
mod steer;
mod view;

use crate::base::failure::{Failure, Kind};
use crate::base::output;
use crate::command_line::TopOptions;
use keys::Effect;
use model::Model;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use sample::Sample;
use screen::{Screen, Signals};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use steer::Steering;

/// How long a key, a signal or an answer waits at most.
const SLICE: Duration = Duration::from_millis(100);
/// The screen of `--once` where there is no terminal that says how wide it is; the lines are as many as are needed.
const WIDTH: u16 = 80;
const LEAST_HEIGHT: u16 = 24;
const MOST_HEIGHT: u16 = 10_000;

/// Shows the screen until it is left.
pub fn top(options: &TopOptions) -> Result<i32, Failure> {
    let mut model = Model::new(options.delay, options.all);
    if options.once {
        model.take(Sample::now());
        follow_group(&mut model);
        return output::print(&text(&mut model)?).map(|()| 0);
    }
    if !std::io::stdout().is_terminal() {
        let why = "top: standard output is no terminal: `weir top --once` prints one screen as text";
        return Err(Failure::of(Kind::Usage, why.into()));
    }
    // One that knows no sequences, or says nothing of itself.
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        let why = "top: the terminal shows plain text only (TERM): `weir top --once` prints one screen as text";
        return Err(Failure::of(Kind::Usage, why.into()));
    }
    let failed = |error: std::io::Error| Failure::of_weir(format!("top: the terminal cannot be used: {error}"));
    let signals = Signals::new().map_err(failed)?;
    screen::watch_end(&signals.end).map_err(failed)?;
    let ended = watch(&mut model, &signals);
    // What fails first on a terminal that has gone, and with which error, differs from run to run.
    let has_gone = ended.is_err() && screen::has_gone();
    match signals.end.signal().or(has_gone.then_some(libc::SIGHUP)) {
        Some(signal) => screen::end_by(signal),
        None => ended.map(|()| 0).map_err(failed),
    }
}

/// Draws, and does what the keys say, until one of them or a signal ends it.
fn watch(model: &mut Model, signals: &Signals) -> std::io::Result<()> {
    let mut screen = Screen::take()?;
    let steering = Steering::new();
    let mut due = Instant::now();
    let mut is_changed = true;
    while signals.end.signal().is_none() {
        if Instant::now() >= due {
            model.take(Sample::now());
            // What was missed, as while it was stopped, is not made up for.
            due = Instant::now() + model.interval;
            is_changed = true;
        }
        if let Some(answer) = steering.answer() {
            model.message = answer;
            is_changed = true;
        }
        if is_changed {
            follow_group(model);
            screen.terminal.draw(|frame| view::draw(frame, model))?;
        }
        let effect = if signals.stop.take() { Some(Effect::Suspend) } else { next_effect(model, due)? };
        is_changed = effect.is_some();
        match effect {
            None | Some(Effect::None) => {}
            Some(Effect::Quit) => break,
            Some(Effect::Redraw) => {
                // `clear` asks the terminal where the cursor is, which not every terminal answers. A new size does not.
                let area = screen.terminal.size()?.into();
                screen.terminal.resize(area)?;
            }
            Some(Effect::Steer(request, pids)) => model.message = steering.tell(request, pids),
            Some(Effect::Suspend) => {
                drop(screen);
                screen::suspend()?;
                screen = Screen::take()?;
            }
        }
    }
    Ok(())
}

/// Waits until the next look is due, but not for long. None: nothing came from the terminal.
fn next_effect(model: &mut Model, due: Instant) -> std::io::Result<Option<Effect>> {
    if !event::poll(SLICE.min(due.saturating_duration_since(Instant::now())))? {
        return Ok(None);
    }
    Ok(Some(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => keys::press(model, key),
        // A new size is seen as the screen is drawn.
        _ => Effect::None,
    }))
}

fn follow_group(model: &mut Model) {
    model.group = model.selected().map(|it| it.pid).and_then(sample::stall_of_group);
}

/// One screen as text, with a line for every process.
fn text(model: &mut Model) -> Result<String, Failure> {
    let rows = u16::try_from(model.rows().len()).unwrap_or(MOST_HEIGHT).saturating_add(view::AROUND);
    let width = ratatui::crossterm::terminal::size().map_or(WIDTH, |(width, _)| width);
    let width = if std::io::stdout().is_terminal() { width.max(WIDTH) } else { WIDTH };
    let lines = drawn(model, width, rows.clamp(LEAST_HEIGHT, MOST_HEIGHT));
    lines.map_err(|error| Failure::of_weir(format!("top: {error}")))
}

/// The screen of this size as text.
pub fn drawn(model: &mut Model, width: u16, height: u16) -> Result<String, std::convert::Infallible> {
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| view::draw(frame, model))?;
    let buffer = terminal.backend().buffer();
    let line = |row: &[ratatui::buffer::Cell]| {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    };
    Ok(buffer.content.chunks(usize::from(width.max(1))).map(line).collect())
}
