//! `weir why`: in plain words what holds a process's resident set, and what would release it.
//!
//! | part | what it does |
//! |---|---|
//! | [`look`] | gathers all that is known of the process at a moment |
//! | [`mappings`] | sorts the resident pages by kind |
//! | [`parts`] | divides the resident set into parts that add up to it |
//! | [`holders`] | names the caches and sizes that hold most |
//! | [`empty_pages`] | estimates what huge pages hold for nothing |
//! | [`growth`] | compares two looks |
//! | [`causes`] | the rules for causes and their cures, by where the memory is |

mod causes;
mod empty_pages;
pub mod growth;
mod holders;
pub mod look;
pub mod mappings;
mod parts;
mod program_end;
pub mod report;

use crate::base::failure::Failure;
use crate::base::{json, output};
use crate::command_line::WhyOptions;
use growth::Growth;
use look::Look;
use report::Report;

/// Looks at the process, with `--growth` twice, and prints what it found.
pub fn why(options: &WhyOptions) -> Result<i32, Failure> {
    let mut look = Look::at(options.pid)?;
    let mut growth = None;
    if let Some(interval) = options.growth {
        std::thread::sleep(interval);
        let later = Look::at(options.pid)?;
        if look.identity != later.identity {
            let pid = options.pid;
            return Err(Failure::of_weir(format!(
                "process {pid} is another program than at the first look: look again"
            )));
        }
        growth = Some(Growth::between(&look, &later));
        look = later;
    }
    let report = Report::of(&look, growth);
    if options.json {
        return output::print(&json::pretty(&report)?).map(|()| 0);
    }
    output::print(&report.to_string()).map(|()| 0)
}
