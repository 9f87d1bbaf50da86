//! `weir report`: one page about one run or several, from what the other commands wrote.

mod chart;
mod column;
mod comparison;
mod html;
mod markdown;
pub mod of_run;
mod pictures;
mod reading;
mod records;
mod scale;
mod timeline;

use crate::base::failure::Failure;
use crate::base::output;
use crate::base::sink::ResultFile;
use crate::command_line::{ReportFormat, ReportOptions};
use comparison::Comparison;

/// Reads the files, and writes the page.
pub fn report(options: &ReportOptions) -> Result<i32, Failure> {
    let runs = Comparison::read(&options.files)?;
    let page = match options.format {
        ReportFormat::Html => html::page(&runs),
        ReportFormat::Markdown => markdown::page(&runs),
    };
    let Some(path) = &options.output else { return output::print(&page).map(|()| 0) };
    let written = ResultFile::open("--output", path)?.write(&page);
    written.map(|()| 0).map_err(|error| Failure::of_weir(format!("cannot write {}: {error}", path.display())))
}
