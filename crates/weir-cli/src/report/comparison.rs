//! The runs that a page is about.

use super::column::Column;
use super::reading;
use crate::base::failure::Failure;
use std::path::PathBuf;

/// All that a report tells.
pub struct Comparison {
    /// A run each.
    pub columns: Vec<Column>,
    /// What was wrong with a file.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Files of different kinds are one run; of one kind, runs beside each other, in the order in which they are given.
    pub fn read(files: &[PathBuf]) -> Result<Self, Failure> {
        let mut runs = Self { columns: Vec::new(), notes: Vec::new() };
        for path in files {
            let (contents, note) = reading::read(path)?;
            runs.notes.extend(note);
            let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            match runs.columns.iter_mut().find(|column| column.lacks(contents.kind())) {
                Some(column) => column.take(file, contents),
                None => {
                    let mut column = Column::default();
                    column.take(file, contents);
                    runs.columns.push(column);
                }
            }
        }
        let lost: u64 =
            runs.columns.iter().filter_map(|it| it.trace.as_ref()).fold(0, |sum, it| sum.saturating_add(it.lost));
        if lost > 0 {
            runs.notes.push(format!("{lost} batches are not in the traces: they came faster than they were read."));
        }
        Ok(runs)
    }
}
