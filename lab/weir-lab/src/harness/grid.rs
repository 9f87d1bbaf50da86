//! A grid of measurements, and its tables, with verdicts against the best of the others. Each case is measured on each
//! subject, in rounds in which every subject has its turn. So none always runs after the same other.

use crate::harness::statistics::{Sample, geometric_mean, student};
use anyhow::Result;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

/// A measure: its name, how a figure is shown, and which of two is better.
pub struct Measure {
    pub name: String,
    pub show: fn(f64) -> String,
    /// Whether less is better, if either is.
    is_less_better: Option<bool>,
    /// A case counts in a geometric mean if the middle subject has so much.
    counts_from: f64,
}

/// A measure of which less is better.
pub fn less(name: impl Into<String>) -> Measure {
    Measure { name: name.into(), show: count, is_less_better: Some(true), counts_from: 0.0 }
}

/// A measure of which more is better.
pub fn more(name: impl Into<String>) -> Measure {
    Measure { is_less_better: Some(false), ..less(name) }
}

/// A measure that is only told.
pub fn told(name: impl Into<String>) -> Measure {
    Measure { is_less_better: None, ..less(name) }
}

impl Measure {
    /// The measure as one of bytes, which are shown in MiB.
    pub fn mib(self) -> Measure {
        Measure { show: mib, ..self }
    }

    /// In geometric means only from so much on.
    pub fn from(self, counts_from: f64) -> Measure {
        Measure { counts_from, ..self }
    }
}

/// Digits that say something.
pub fn short(value: f64) -> String {
    match value.abs() {
        x if x.is_nan() => "-".into(),
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A number with k, M or G.
pub fn count(value: f64) -> String {
    match value {
        x if x == 0.0 || (x.fract() == 0.0 && x.abs() < 1e4) => format!("{x}"),
        x if x >= 1e9 => format!("{}G", short(x / 1e9)),
        x if x >= 1e6 => format!("{}M", short(x / 1e6)),
        x if x >= 1e4 => format!("{}k", short(x / 1e3)),
        x => short(x),
    }
}

/// Bytes in MiB.
pub fn mib(bytes: f64) -> String {
    match bytes / f64::from(1 << 20) {
        mib if mib.is_nan() => "-".into(),
        mib if mib.abs() < 10.0 => format!("{mib:.1}"),
        mib => format!("{mib:.0}"),
    }
}

/// A table in Markdown, all columns but the first to the right.
pub fn table(head: impl IntoIterator<Item = impl ToString>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(head.into_iter().map(|cell| cell.to_string()));
    rows.into_iter().for_each(|row| _ = table.add_row(row));
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("{table}\n")
}

/// The results of a subject in a case.
#[derive(Default)]
pub struct Cell {
    /// In the order of the measures.
    pub samples: Vec<Sample>,
    pub failed: Option<String>,
}

/// The measurements of an experiment, or of a part of one.
pub struct Grid {
    pub measures: Vec<Measure>,
    pub cases: Vec<String>,
    pub subjects: Vec<String>,
    /// By case, then by subject.
    pub cells: Vec<Vec<Cell>>,
}

impl Grid {
    /// Measures each case on each subject. A subject that fails in a case is not asked again there.
    pub fn measure<C: ToString, S: ToString>(
        measures: Vec<Measure>,
        rounds: u32,
        cases: &[C],
        subjects: &[S],
        mut one: impl FnMut(&C, &S) -> Result<Vec<f64>>,
    ) -> Grid {
        let names = |all: &[S]| all.iter().map(S::to_string).collect::<Vec<_>>();
        let mut grid = Grid { measures, cases: Vec::new(), subjects: names(subjects), cells: Vec::new() };
        for case in cases {
            let empty = || Cell { samples: vec![Sample::default(); grid.measures.len()], failed: None };
            let mut cells: Vec<Cell> = subjects.iter().map(|_| empty()).collect();
            for (round, turn) in turns(rounds, subjects.len()) {
                let (cell, name) = (&mut cells[turn], &grid.subjects[turn]);
                if cell.failed.is_some() {
                    continue;
                }
                eprintln!("{}, round {} of {rounds}: {name}", case.to_string(), round + 1);
                match one(case, &subjects[turn]) {
                    Ok(figures) => cell.samples.iter_mut().zip(figures).for_each(|(sample, of)| sample.0.push(of)),
                    Err(why) => {
                        eprintln!("{name}: {why:#}");
                        cell.failed = Some(format!("{why:#}"));
                    }
                }
            }
            grid.cases.push(case.to_string());
            grid.cells.push(cells);
        }
        grid
    }

    /// The subject of a name.
    pub fn subject(&self, name: &str) -> Option<usize> {
        self.subjects.iter().position(|subject| subject == name)
    }

    pub fn sample(&self, case: usize, subject: usize, measure: usize) -> &Sample {
        &self.cells[case][subject].samples[measure]
    }

    /// A subject against another, by all measures of which one value is better than another.
    pub fn versus(&self, case: usize, subject: &str, reference: &str) -> Option<String> {
        let (a, b) = (self.subject(subject)?, self.subject(reference)?);
        if !self.has_rounds() {
            return None;
        }
        let judged = self.measures.iter().enumerate().filter(|(_, measure)| measure.is_less_better.is_some());
        let verdict = |(at, measure): (usize, &Measure)| {
            let verdict = student(self.sample(case, a, at), self.sample(case, b, at));
            format!("- {subject} against {reference}, {}: {verdict}\n", measure.name)
        };
        Some(judged.map(verdict).collect())
    }

    /// One round proves nothing.
    fn has_rounds(&self) -> bool {
        self.cells.iter().flatten().flat_map(|cell| &cell.samples).any(|sample| sample.0.len() > 1)
    }

    fn median(&self, case: usize, subject: usize, measure: usize) -> Option<f64> {
        let cell = &self.cells[case][subject];
        Some(cell.samples[measure].median()).filter(|median| cell.failed.is_none() && !median.is_nan())
    }

    /// The best of the others by a measure. "weir, with a setting" is no rival of "weir".
    fn best(&self, case: usize, measure: usize, but: Option<usize>) -> Option<usize> {
        let sign = if self.measures[measure].is_less_better? { 1.0 } else { -1.0 };
        let is_its = |name: &str| but.is_some_and(|but| name.split(", ").next() == Some(&self.subjects[but]));
        let others = (0..self.subjects.len()).filter(|&subject| !is_its(&self.subjects[subject]));
        let medians = others.filter_map(|subject| Some((subject, sign * self.median(case, subject, measure)?)));
        medians.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(subject, _)| subject)
    }

    /// The best of the others, and the subject against it.
    fn verdict(&self, case: usize, measure: usize, subject: usize) -> Option<[String; 2]> {
        let best = self.best(case, measure, Some(subject))?;
        self.median(case, subject, measure)?;
        let verdict = student(self.sample(case, subject, measure), self.sample(case, best, measure));
        Some([self.subjects[best].clone(), verdict])
    }

    fn shown(&self, case: usize, subject: usize, measure: usize) -> String {
        let cell = &self.cells[case][subject];
        if cell.failed.is_some() { "failed".into() } else { cell.samples[measure].spread(self.measures[measure].show) }
    }

    /// A table a case: a row for each subject, a column for each measure.
    pub fn by_case(&self, of: Option<&str>) -> String {
        let (at, mut text) = (of.and_then(|name| self.subject(name)), String::new());
        for (case, name) in self.cases.iter().enumerate() {
            let cells = |subject| (0..self.measures.len()).map(move |measure| self.shown(case, subject, measure));
            let row = |subject: usize| [self.subjects[subject].clone()].into_iter().chain(cells(subject)).collect();
            let mut rows: Vec<Vec<String>> = (0..self.subjects.len()).map(row).collect();
            if let Some(at) = at.filter(|_| rows.len() > 1 && self.has_rounds()) {
                let verdict = |measure| self.verdict(case, measure, at).map_or("".into(), |words| words.join(": "));
                let verdicts = (0..self.measures.len()).map(verdict);
                rows.push([format!("{} against the best", self.subjects[at])].into_iter().chain(verdicts).collect());
            }
            let head = std::iter::once("").chain(self.measures.iter().map(|measure| measure.name.as_str()));
            text += &format!("## {name}\n\n{}\n", table(head, rows));
        }
        text + &self.failures()
    }

    /// A table for each measure, with a row for each case and a column for each subject. Then geometric means follow of
    /// ratios to the best of the others, and to glibc.
    pub fn by_measure(&self, of: Option<&str>) -> String {
        let at = of.and_then(|name| self.subject(name)).filter(|_| self.subjects.len() > 1);
        let mut text = String::new();
        for (measure, Measure { name, is_less_better, .. }) in self.measures.iter().enumerate() {
            let all = 0..self.subjects.len();
            let mut rows: Vec<Vec<String>> = Vec::new();
            for (case, name) in self.cases.iter().enumerate() {
                let cells = all.clone().map(|subject| self.shown(case, subject, measure));
                let verdict = at.and_then(|at| self.verdict(case, measure, at));
                rows.push([name.clone()].into_iter().chain(cells).chain(verdict.into_iter().flatten()).collect());
            }
            for (to, reference) in [("the best", None), ("glibc", Some("glibc"))] {
                let reference = |case| match reference {
                    Some(name) => self.subject(name),
                    None => self.best(case, measure, at),
                };
                let means = all.clone().map(|subject| self.mean(measure, subject, reference).map_or("-".into(), short));
                if self.cases.len() > 1 && is_less_better.is_some() && (to != "glibc" || self.subject(to).is_some()) {
                    rows.push([format!("geometric mean to {to}")].into_iter().chain(means).collect());
                }
            }
            let verdict = at.map(|at| ["best".to_string(), format!("{} against it", self.subjects[at])]);
            let head = ["".to_string()].into_iter().chain(self.subjects.clone()).chain(verdict.into_iter().flatten());
            text += &format!("## {name}\n\n{}\n", table(head, rows));
        }
        text + &self.failures()
    }

    fn mean(&self, measure: usize, subject: usize, reference: impl Fn(usize) -> Option<usize>) -> Option<f64> {
        geometric_mean((0..self.cases.len()).filter_map(|case| {
            let median = |subject| self.median(case, subject, measure).filter(|median| *median > 0.0);
            let middle = (0..self.subjects.len()).filter_map(median).collect::<Sample>().median();
            let ratio = median(subject)? / median(reference(case)?)?;
            (middle >= self.measures[measure].counts_from).then_some(ratio)
        }))
    }

    /// Who failed, and why.
    fn failures(&self) -> String {
        let cells = self.cases.iter().zip(&self.cells).flat_map(|(case, cells)| {
            self.subjects.iter().zip(cells).map(move |(subject, cell)| (case, subject, cell.failed.as_ref()))
        });
        cells.filter_map(|(case, subject, why)| Some(format!("{case}: {subject} failed: {}\n", why?))).collect()
    }

    /// The failures of the subject, or of any where the subject is none of these.
    pub fn failed(&self, subject: &str) -> Option<String> {
        let at = self.subject(subject);
        let counts = |index: &usize| at.is_none_or(|at| at == *index);
        self.cases.iter().zip(&self.cells).find_map(|(case, cells)| {
            let cells = cells.iter().enumerate().filter(|(index, _)| counts(index));
            cells.map(|(_, cell)| cell).find_map(|cell| Some(format!("{case}: {}", cell.failed.as_ref()?)))
        })
    }

    pub fn json(&self) -> Value {
        let cell = |cell: &Cell| {
            let samples = self.measures.iter().zip(&cell.samples).map(|(of, sample)| (of.name.clone(), sample.json()));
            json!({ "measures": samples.collect::<Map<_, _>>(), "failed": cell.failed })
        };
        let row = |cells: &Vec<Cell>| self.subjects.iter().cloned().zip(cells.iter().map(cell)).collect::<Map<_, _>>();
        self.cases.iter().cloned().zip(self.cells.iter().map(|cells| row(cells).into())).collect::<Map<_, _>>().into()
    }
}

/// Rounds and turns: the order shifts by one from round to round.
pub fn turns(rounds: u32, count: usize) -> impl Iterator<Item = (u32, usize)> {
    (0..rounds).flat_map(move |round| (0..count).map(move |turn| (round, (round as usize + turn) % count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_turn_a_round_and_the_order_shifts() {
        assert_eq!(turns(2, 3).collect::<Vec<_>>(), [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 0)]);
    }

    #[test]
    fn digits_that_say_something() {
        assert_eq!([1234.5, 12.34, 1.234].map(short), ["1234", "12.3", "1.23"]);
        assert_eq!([15_549_548.0, 67_517.0, 845.2, 7.0, f64::NAN].map(count), ["15.5M", "67.5k", "845", "7", "-"]);
        assert_eq!([1.25, 512.4].map(|n| mib(n * 1_048_576.0)), ["1.2", "512"]);
    }

    /// Two cases on four subjects, of which the last fails.
    fn grid() -> Grid {
        let times = [[1.0, 3.0, 2.0, 0.5], [800.0, 100.0, 400.0, 0.5]];
        Grid::measure(vec![less("time"), more("rate")], 2, &[0, 1], &["weir", "glibc", "b", "c"], |&case, &subject| {
            anyhow::ensure!(subject != "c", "crashed");
            let at = ["weir", "glibc", "b"].iter().position(|name| *name == subject).unwrap();
            Ok(vec![times[case][at], 1.0 / times[case][at]])
        })
    }

    #[test]
    fn the_best_is_never_the_subject_nor_one_that_failed() {
        let grid = grid();
        assert_eq!([0, 1].map(|measure| grid.best(0, measure, Some(0))), [Some(2), Some(2)]);
        assert_eq!((grid.best(0, 0, None), grid.best(1, 0, Some(0))), (Some(0), Some(1)));
        assert_eq!((grid.failed("weir"), grid.failed("none")), (None, Some("0: crashed".into())));
    }

    #[test]
    fn means_are_of_ratios_case_by_case() {
        let mean = |counts_from: f64| {
            let mut grid = grid();
            grid.measures[0].counts_from = counts_from;
            grid.mean(0, 0, |case| grid.best(case, 0, Some(0))).unwrap()
        };
        assert!((mean(0.0) - 2.0).abs() < 1e-9, "of 1/2 and 8");
        assert!((mean(10.0) - 8.0).abs() < 1e-9, "of 8 alone");
    }

    #[test]
    fn tables_have_figures_verdicts_and_failures() {
        let (by_case, by_measure) = (grid().by_case(Some("weir")), grid().by_measure(Some("weir")));
        for part in
            ["## 0", "800 (800..800)", "failed", "weir against the best", "b: -50.0 % ± 0.0 %", "c failed: crashed"]
        {
            assert!(by_case.contains(part), "{part}: {by_case}");
        }
        for part in ["## time", "geometric mean to the best", "to glibc", "weir against it", "+700.0 %"] {
            assert!(by_measure.contains(part), "{part}: {by_measure}");
        }
    }
}
