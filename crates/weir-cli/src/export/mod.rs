//! `weir export`: the figures of all processes with Weir as metrics, for Prometheus and whatever reads OpenMetrics.

mod container;
mod families;
mod histogram;
mod listen;
mod server;
mod snapshot;
mod text;

use crate::base::failure::Failure;
use crate::base::output;
use crate::command_line::ExportOptions;
use snapshot::{Extent, Snapshot};
use std::io::IsTerminal;

/// Prints the metrics once, or serves them until a signal ends it.
pub fn export(options: &ExportOptions) -> Result<i32, Failure> {
    let extent = Extent { processes: options.max_processes, caches: options.caches };
    if options.once {
        // Names are the processes' to choose. A reader of the format gets them as they are.
        let text = text::of(Snapshot::take(extent))?;
        let is_seen = std::io::stdout().is_terminal();
        return output::print(&if is_seen { output::printable(&text) } else { text }).map(|()| 0);
    }
    server::serve(&options.listen, extent).map(|()| 0)
}
