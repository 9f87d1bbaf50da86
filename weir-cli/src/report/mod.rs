//! `weir report`: one page about one run or several, from what the other commands wrote.

mod chart;
mod column;
mod html;
mod markdown;
mod pictures;
mod reading;
mod records;
mod scale;
mod timeline;

use crate::base::failure::Failure;
use crate::base::output;
use crate::base::sink::ResultFile;
use crate::command_line::{ReportFormat, ReportOptions};
use column::Column;

/// All that a report tells.
pub struct Report {
    /// A run each.
    columns: Vec<Column>,
    /// What was wrong with a file.
    notes: Vec<String>,
}

/// Reads the files, and writes the page.
pub fn report(options: &ReportOptions) -> Result<i32, Failure> {
    let report = Report::read(&options.files)?;
    let page = match options.format {
        ReportFormat::Html => html::page(&report),
        ReportFormat::Markdown => markdown::page(&report),
    };
    let Some(path) = &options.output else { return output::print(&page).map(|()| 0) };
    let written = ResultFile::open("--output", path)?.write(&page);
    written.map(|()| 0).map_err(|error| Failure::of_weir(format!("cannot write {}: {error}", path.display())))
}

impl Report {
    /// Files of different kinds are one run; of one kind, runs beside each other, in the order in which they are given.
    fn read(files: &[std::path::PathBuf]) -> Result<Self, Failure> {
        let mut report = Self { columns: Vec::new(), notes: Vec::new() };
        for path in files {
            let (contents, note) = reading::read(path)?;
            report.notes.extend(note);
            let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            match report.columns.iter_mut().find(|column| column.lacks(contents.kind())) {
                Some(column) => column.take(file, contents),
                None => {
                    let mut column = Column::default();
                    column.take(file, contents);
                    report.columns.push(column);
                }
            }
        }
        let lost: u64 =
            report.columns.iter().filter_map(|it| it.trace.as_ref()).fold(0, |sum, it| sum.saturating_add(it.lost));
        if lost > 0 {
            report.notes.push(format!("{lost} batches are not in the traces: they came faster than they were read."));
        }
        Ok(report)
    }
}
