//! The state of the screen: the last sample, what came before it, and what the user has chosen.

use super::rows::{self, Order, Row};
use super::sample::{Process, Sample};
use crate::around::family::Identity;
use crate::around::stall::Stall;
use ratatui::widgets::TableState;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Resident sets that are kept of each process.
const HISTORY: usize = 240;

/// The meaning of the keys now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Table,
    Help,
    /// A text is typed that is looked for.
    Search(String),
    /// A text is typed that is filtered by, and the one from before.
    Filter(String),
    /// A column is chosen to sort by: its place.
    Sort(usize),
    /// Something is chosen to do: its place.
    Steer(usize),
    /// A request is to be confirmed, for these processes: whatever the bar is on by then.
    Confirm(Request, Vec<Identity>),
}

/// A request to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Trim,
    Drain,
}

impl Request {
    /// In the order of the menu.
    pub const ALL: [Self; 2] = [Self::Trim, Self::Drain];

    /// As the control channel has it, and what it does.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Trim => ("trim", "release what is idle, keep what will be wanted again"),
            Self::Drain => ("drain", "release all that is free, whatever it costs to get it again"),
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Model {
    pub sample: Sample,
    pub order: Order,
    pub mode: Mode,
    pub table: TableState,
    /// Rows that a page has.
    pub page: usize,
    pub tagged: HashSet<Identity>,
    /// The last answer, shown until a key is pressed.
    pub message: String,
    pub interval: Duration,
    /// The pressure in the selected process's cgroup, and the cgroup's name.
    pub group: Option<(String, Stall)>,
    selected: Option<Identity>,
    history: HashMap<Identity, VecDeque<u64>>,
}

impl Model {
    /// Before the first sample.
    pub fn new(interval: Duration, shows_all: bool) -> Self {
        Self { interval, page: 10, order: Order { shows_all, ..Order::default() }, ..Self::default() }
    }

    /// Takes a new sample. What has ended is forgotten.
    pub fn take(&mut self, sample: Sample) {
        let there: HashSet<Identity> = sample.processes.iter().map(Process::identity).collect();
        self.history.retain(|process, _| there.contains(process));
        self.tagged.retain(|process| there.contains(process));
        for process in &sample.processes {
            let history = self.history.entry(process.identity()).or_default();
            history.push_back(process.resident_bytes);
            if history.len() > HISTORY {
                history.pop_front();
            }
        }
        self.sample = sample;
        self.keep_selected();
    }

    /// The rows of the table.
    pub fn rows(&self) -> Vec<Row<'_>> {
        rows::rows(&self.sample.processes, &self.order)
    }

    /// The resident sets of a process, oldest first.
    pub fn history(&self, process: &Process) -> Vec<u64> {
        self.history.get(&process.identity()).map_or(Vec::new(), |history| history.iter().copied().collect())
    }

    /// The process under the bar.
    pub fn selected(&self) -> Option<&Process> {
        self.sample.processes.iter().find(|it| Some(it.identity()) == self.selected)
    }

    /// The processes that are steered: those tagged, or the one under the bar.
    pub fn chosen(&self) -> Vec<&Process> {
        if self.tagged.is_empty() {
            return self.selected().into_iter().collect();
        }
        self.sample.processes.iter().filter(|it| self.tagged.contains(&it.identity())).collect()
    }

    /// Moves the bar by so many rows.
    pub fn step(&mut self, by: isize) {
        let place = self.table.selected().unwrap_or(0).saturating_add_signed(by);
        self.select(place);
    }

    /// Puts the bar on a row, or on the last one.
    pub fn select(&mut self, place: usize) {
        let numbers: Vec<Identity> = self.rows().iter().map(|row| row.process.identity()).collect();
        let place = place.min(numbers.len().saturating_sub(1));
        self.selected = numbers.get(place).copied();
        self.table.select(self.selected.map(|_| place));
    }

    /// Puts the bar on the next row, from this one on or behind it, of which the name has the text.
    pub fn search(&mut self, text: &str, is_next: bool) {
        let rows = self.rows();
        let from = self.table.selected().unwrap_or(0) + usize::from(is_next);
        let found = (0..rows.len()).map(|n| (from + n) % rows.len()).find(|&n| rows::is_named(rows[n].process, text));
        match found {
            Some(place) if !text.is_empty() => self.select(place),
            _ => {}
        }
    }

    /// After the rows changed: the bar stays on its process, or where it was if that is gone.
    pub fn keep_selected(&mut self) {
        let place = self.rows().iter().position(|row| Some(row.process.identity()) == self.selected);
        self.select(place.or(self.table.selected()).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::example::process;

    fn model() -> Model {
        let mut model = Model::new(Duration::from_secs(1), true);
        model.take(Sample {
            processes: vec![process(1, 0, "a", 30, true), process(2, 1, "b", 20, true), process(3, 1, "ab", 10, true)],
            ..Sample::default()
        });
        model
    }

    #[test]
    fn the_bar_stays_on_its_process_and_within_the_table() {
        let mut model = model();
        let selected = |model: &Model| model.selected().map(|it| it.pid);
        assert_eq!(selected(&model), Some(1));
        model.step(1);
        assert_eq!(selected(&model), Some(2));
        let mut sample = model.sample.clone();
        sample.processes[1].resident_bytes = 50;
        model.take(sample.clone());
        assert_eq!((selected(&model), model.table.selected()), (Some(2), Some(0)));
        model.step(9);
        model.step(-1);
        assert_eq!(selected(&model), Some(1));
        sample.processes.remove(0);
        model.take(sample);
        assert_eq!(selected(&model), Some(3), "the one that took its place");
        model.take(Sample::default());
        assert_eq!((selected(&model), model.table.selected()), (None, None));
    }

    #[test]
    fn a_search_goes_round() {
        let mut model = model();
        let mut after = |text: &str, is_next| {
            model.search(text, is_next);
            model.selected().unwrap().pid
        };
        assert_eq!((after("B", false), after("b", true), after("b", true), after("x", true)), (2, 3, 2, 2));
    }

    #[test]
    fn history_is_bounded_and_forgotten_with_the_process() {
        let mut model = model();
        (0..300).for_each(|_| model.take(model.sample.clone()));
        let first = process(1, 0, "a", 30, true);
        assert_eq!(model.history(&first).len(), HISTORY);
        model.take(Sample::default());
        assert_eq!((model.history(&first).len(), model.tagged.len()), (0, 0));
    }
}
