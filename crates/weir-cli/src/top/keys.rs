//! The effect of each key: the keys of htop.

use super::model::{Mode, Model, Request};
use super::rows::Column;
use super::sample::Process;
use crate::around::family::Identity;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// All keys, for the help.
pub const HELP: [(&str, &str); 15] = [
    ("Up Down PgUp PgDn", "move the bar; Home and End too, and j"),
    ("Space", "tag the process; U: untag all"),
    ("F1 h ?", "this help"),
    ("F3 /", "search by name or number; F3 again: the next one"),
    ("F4 \\", "show only what has a text in its name or number"),
    ("F5 t", "tree of parents and children"),
    ("F6 > .", "choose what to sort by; I: the other way round"),
    ("M N P", "sort by resident set, number, released bytes"),
    ("a", "also processes without Weir"),
    ("F9 k", "steer the tagged processes, or the one under the bar"),
    ("Ctrl-L", "draw the screen anew"),
    ("Ctrl-Z", "suspend"),
    ("F10 q Ctrl-C", "quit"),
    ("", ""),
    ("LIVE IDLE FRAG", "in use; free; free beside objects in use. OTHER: not Weir's"),
];

/// A thing to do beside changing the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    Quit,
    Suspend,
    Redraw,
    /// Tell these processes.
    Steer(Request, Vec<Identity>),
}

/// Takes a key.
pub fn press(model: &mut Model, key: KeyEvent) -> Effect {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => return Effect::Quit,
        KeyCode::Char('z') if is_control => return Effect::Suspend,
        KeyCode::Char('l') if is_control => return Effect::Redraw,
        KeyCode::Char(_) if is_control => return Effect::None,
        KeyCode::F(10) => return Effect::Quit,
        _ => {}
    }
    model.message.clear();
    let mode = std::mem::replace(&mut model.mode, Mode::Table);
    match mode {
        Mode::Table => in_table(model, key.code),
        // Any key ends it.
        Mode::Help => Effect::None,
        Mode::Search(text) => in_search(model, key.code, text),
        Mode::Filter(before) => in_filter(model, key.code, before),
        Mode::Sort(place) => in_sort(model, key.code, place),
        Mode::Steer(place) => in_steer(model, key.code, place),
        Mode::Confirm(request, processes) => match key.code {
            KeyCode::Char('y' | 'Y') => Effect::Steer(request, processes),
            _ => Effect::None,
        },
    }
}

fn in_table(model: &mut Model, code: KeyCode) -> Effect {
    let page = model.page.max(1) as isize;
    match code {
        KeyCode::Char('q') => return Effect::Quit,
        KeyCode::F(1) | KeyCode::Char('h' | '?') => model.mode = Mode::Help,
        KeyCode::F(3) | KeyCode::Char('/') => model.mode = Mode::Search(String::new()),
        KeyCode::F(4) | KeyCode::Char('\\') => model.mode = Mode::Filter(model.order.filter.clone()),
        KeyCode::F(5) | KeyCode::Char('t') => {
            model.order.is_tree = !model.order.is_tree;
            model.keep_selected();
        }
        KeyCode::F(6) | KeyCode::Char('>' | '.' | '<' | ',') => {
            let place = Column::ALL.iter().position(|&column| column == model.order.column);
            model.mode = Mode::Sort(place.unwrap_or(0));
        }
        KeyCode::F(9) | KeyCode::Char('k') if !model.chosen().is_empty() => model.mode = Mode::Steer(0),
        KeyCode::Char('I') => {
            model.order.is_reversed = !model.order.is_reversed;
            model.keep_selected();
        }
        KeyCode::Char('M') => sort_by(model, Column::Resident),
        KeyCode::Char('N') => sort_by(model, Column::Pid),
        KeyCode::Char('P') => sort_by(model, Column::Released),
        KeyCode::Char('a') => {
            model.order.shows_all = !model.order.shows_all;
            model.keep_selected();
        }
        KeyCode::Char(' ') => {
            if let Some(process) = model.selected().map(Process::identity)
                && !model.tagged.remove(&process)
            {
                model.tagged.insert(process);
            }
            model.step(1);
        }
        KeyCode::Char('U') => model.tagged.clear(),
        KeyCode::Up => model.step(-1),
        KeyCode::Down | KeyCode::Char('j') => model.step(1),
        KeyCode::PageUp => model.step(-page),
        KeyCode::PageDown => model.step(page),
        KeyCode::Home => model.select(0),
        KeyCode::End => model.select(usize::MAX),
        _ => {}
    }
    Effect::None
}

fn sort_by(model: &mut Model, column: Column) {
    model.order.column = column;
    model.order.is_reversed = false;
    model.keep_selected();
}

fn in_search(model: &mut Model, code: KeyCode, mut text: String) -> Effect {
    match code {
        KeyCode::Esc | KeyCode::Enter => return Effect::None,
        KeyCode::F(3) | KeyCode::Down => model.search(&text, true),
        _ => {
            edit(&mut text, code);
            model.search(&text, false);
        }
    }
    model.mode = Mode::Search(text);
    Effect::None
}

fn in_filter(model: &mut Model, code: KeyCode, before: String) -> Effect {
    match code {
        KeyCode::Enter => return Effect::None,
        KeyCode::Esc => {
            model.order.filter = before;
            model.keep_selected();
            return Effect::None;
        }
        _ => edit(&mut model.order.filter, code),
    }
    model.keep_selected();
    model.mode = Mode::Filter(before);
    Effect::None
}

fn edit(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Char(c) if text.chars().count() < 40 => text.push(c),
        KeyCode::Backspace => drop(text.pop()),
        _ => {}
    }
}

fn in_sort(model: &mut Model, code: KeyCode, place: usize) -> Effect {
    match moved(code, place, Column::ALL.len()) {
        Menu::At(place) => model.mode = Mode::Sort(place),
        Menu::Chosen => sort_by(model, Column::ALL[place]),
        Menu::Left => {}
    }
    Effect::None
}

fn in_steer(model: &mut Model, code: KeyCode, place: usize) -> Effect {
    match moved(code, place, Request::ALL.len()) {
        Menu::At(place) => model.mode = Mode::Steer(place),
        Menu::Chosen => {
            let processes = model.chosen().into_iter().map(Process::identity).collect();
            model.mode = Mode::Confirm(Request::ALL[place], processes);
        }
        Menu::Left => {}
    }
    Effect::None
}

enum Menu {
    At(usize),
    Chosen,
    Left,
}

/// The effect of a key in a menu of so many lines.
fn moved(code: KeyCode, place: usize, lines: usize) -> Menu {
    match code {
        KeyCode::Up => Menu::At(place.saturating_sub(1)),
        KeyCode::Down => Menu::At((place + 1).min(lines - 1)),
        KeyCode::Enter => Menu::Chosen,
        KeyCode::Esc | KeyCode::Char('q') => Menu::Left,
        _ => Menu::At(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::Sample;
    use crate::top::sample::example::process;
    use std::time::Duration;

    fn model() -> Model {
        let mut model = Model::new(Duration::from_secs(1), false);
        let processes = vec![
            process(1, 0, "init", 90, false),
            process(20, 1, "redis", 50, true),
            process(21, 20, "child", 60, true),
            process(30, 1, "shell", 10, true),
        ];
        model.take(Sample { processes, ..Sample::default() });
        model
    }

    fn ids(pids: &[i32]) -> Vec<Identity> {
        pids.iter().map(|&pid| Identity { pid, started: 0 }).collect()
    }

    fn keys(model: &mut Model, codes: &[KeyCode]) -> Effect {
        codes.iter().map(|&code| press(model, KeyEvent::new(code, KeyModifiers::NONE))).last().unwrap()
    }

    fn typed(model: &mut Model, text: &str) {
        text.chars().for_each(|c| drop(keys(model, &[KeyCode::Char(c)])));
    }

    fn shown(model: &Model) -> Vec<i32> {
        model.rows().iter().map(|row| row.process.pid).collect()
    }

    #[test]
    fn quitting_has_three_keys_everywhere() {
        for before in [KeyCode::Null, KeyCode::F(1), KeyCode::F(3), KeyCode::F(6), KeyCode::F(9)] {
            let mut model = model();
            keys(&mut model, &[before]);
            assert_eq!(press(&mut model, KeyEvent::new(KeyCode::F(10), KeyModifiers::NONE)), Effect::Quit);
            assert_eq!(press(&mut model, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Effect::Quit);
        }
        assert_eq!(keys(&mut model(), &[KeyCode::Char('q')]), Effect::Quit);
    }

    #[test]
    fn the_table_is_sorted_filtered_and_made_a_tree() {
        let mut model = model();
        assert_eq!(shown(&model), [21, 20, 30]);
        keys(&mut model, &[KeyCode::Char('I')]);
        assert_eq!(shown(&model), [30, 20, 21]);
        keys(&mut model, &[KeyCode::F(6), KeyCode::Up, KeyCode::Enter]);
        assert_eq!((model.order.column, shown(&model)), (Column::Pid, vec![20, 21, 30]));
        keys(&mut model, &[KeyCode::Char('M'), KeyCode::F(5)]);
        assert_eq!(shown(&model), [20, 21, 30]);
        keys(&mut model, &[KeyCode::Char('t'), KeyCode::Char('a')]);
        assert_eq!(shown(&model), [1, 21, 20, 30]);
        keys(&mut model, &[KeyCode::F(4)]);
        typed(&mut model, "shq");
        assert_eq!(shown(&model), [] as [i32; 0]);
        keys(&mut model, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!((shown(&model), model.mode.clone()), (vec![30], Mode::Table));
        keys(&mut model, &[KeyCode::F(4), KeyCode::Char('x'), KeyCode::Esc]);
        assert_eq!(shown(&model), [30], "what was filtered by before");
    }

    #[test]
    fn a_search_moves_the_bar_as_it_is_typed() {
        let mut model = model();
        keys(&mut model, &[KeyCode::Char('/')]);
        typed(&mut model, "sh");
        assert_eq!(model.selected().map(|it| it.pid), Some(30));
        keys(&mut model, &[KeyCode::Esc]);
        assert_eq!((model.mode.clone(), model.selected().map(|it| it.pid)), (Mode::Table, Some(30)));
    }

    #[test]
    fn a_process_that_got_the_number_of_one_that_ended_is_neither_tagged_nor_under_the_bar() {
        let mut model = model();
        keys(&mut model, &[KeyCode::Char(' '), KeyCode::Home]);
        assert_eq!((model.chosen().len(), model.selected().map(|it| it.pid)), (1, Some(21)));
        let mut sample = model.sample.clone();
        let again = sample.processes.iter_mut().find(|it| it.pid == 21).unwrap();
        (again.started, again.resident_bytes) = (1000, 1);
        model.take(sample);
        assert!(model.tagged.is_empty() && model.selected().map(|it| it.pid) != Some(21));
        let again = model.sample.processes.iter().find(|it| it.pid == 21).unwrap();
        assert_eq!(model.history(again), [1]);
    }

    #[test]
    fn nothing_is_released_before_it_is_confirmed() {
        let mut model = model();
        assert_eq!(keys(&mut model, &[KeyCode::F(9), KeyCode::Down, KeyCode::Enter]), Effect::None);
        assert_eq!(model.mode, Mode::Confirm(Request::Drain, ids(&[21])));
        assert_eq!(keys(&mut model, &[KeyCode::Enter]), Effect::None);
        assert_eq!(model.mode, Mode::Table);
        let all = [KeyCode::Char('k'), KeyCode::Enter, KeyCode::Char('y')];
        assert_eq!(keys(&mut model, &all), Effect::Steer(Request::Trim, ids(&[21])));
        // Those that are tagged, wherever the bar is.
        keys(&mut model, &[KeyCode::Char(' '), KeyCode::Char(' '), KeyCode::End]);
        let Effect::Steer(Request::Trim, mut chosen) = keys(&mut model, &all) else { panic!() };
        chosen.sort_unstable_by_key(|it| it.pid);
        assert_eq!(chosen, ids(&[20, 21]));
        keys(&mut model, &[KeyCode::Char('U')]);
        assert_eq!(keys(&mut model, &all), Effect::Steer(Request::Trim, ids(&[30])));
        // The process ends while it is asked about: no other one takes its place.
        keys(&mut model, &[KeyCode::F(9), KeyCode::Enter]);
        let mut sample = model.sample.clone();
        sample.processes.retain(|it| it.pid != 30);
        model.take(sample);
        assert_eq!(keys(&mut model, &[KeyCode::Char('y')]), Effect::Steer(Request::Trim, ids(&[30])));
        model.take(Sample::default());
        keys(&mut model, &[KeyCode::F(9)]);
        assert_eq!(model.mode, Mode::Table, "there is no process to steer");
    }
}
