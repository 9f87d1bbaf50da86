//! `weir export`: the figures of all processes with Weir as metrics, for Prometheus and whatever reads OpenMetrics.

mod container;
mod families;
mod histogram;
mod labels;
mod listen;
mod server;
mod snapshot;
mod table_families;
mod text;

use crate::base::failure::Failure;
use crate::base::output;
use crate::command_line::ExportOptions;
use snapshot::{Extent, Snapshot};

/// Prints the metrics once, or serves them until a signal ends it.
pub fn export(options: &ExportOptions) -> Result<i32, Failure> {
    let extent = Extent { processes: options.max_processes, caches: options.caches };
    if options.once {
        return output::print(&text::of(Snapshot::take(extent))?).map(|()| 0);
    }
    server::serve(&options.listen, extent).map(|()| 0)
}
