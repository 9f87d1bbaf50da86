//! `weir report`: one page about one run or several, from what the other commands wrote.

mod chart;
mod column;
mod html;
mod markdown;
mod pictures;
mod reading;
mod records;
pub mod timeline;

use crate::base::failure::Failure;
use crate::base::output;
use crate::base::sink::{self, ResultFile};
use crate::command_line::{ReportFormat, ReportOptions};
use crate::figures::run::Summary;
use column::{Column, Comparison};
use reading::Stat;
use timeline::Samples;

/// Reads the files, and writes the page.
pub fn report(options: &ReportOptions) -> Result<i32, Failure> {
    sink::is_no_input("--output", options.output.as_deref(), &options.files)?;
    let runs = Comparison::read(&options.files)?;
    let page = match options.format {
        ReportFormat::Html => html::page(&runs),
        ReportFormat::Markdown => markdown::page(&runs),
    };
    match &options.output {
        Some(path) => ResultFile::open("--output", path)?.write(&page)?,
        None => output::print(&page)?,
    }
    Ok(0)
}

/// The page of `weir run --report`: a run that has just ended, with what was sampled of it.
pub fn of_run(run: Summary, samples: Samples) -> String {
    let (files, stat) = (vec![run.program.clone()], Stat::of(samples));
    let column = Column { files, run: Some(Box::new(run)), stat: Some(Box::new(stat)), trace: None };
    html::page(&Comparison { columns: vec![column], notes: Vec::new() })
}
