//! `weir run --trace`: every batch that the program's processes release, as a line of JSON each.

use crate::base::failure::Failure;
use crate::base::sink;
use crate::figures::events::news;
use crate::processes::stats_file::StatsFile;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Time between two reads of the rings. If a process releases more than 64 batches in this time, events are lost.
pub const READ_INTERVAL: Duration = Duration::from_millis(2);

/// The file of events, and how far the events of each process were read.
pub struct Trace {
    path: PathBuf,
    file: BufWriter<File>,
    next: HashMap<usize, u64>,
    error: Option<std::io::Error>,
}

impl Trace {
    /// Opens the file, or makes it; what is in it stays until the program runs.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = sink::open_beside_program("--trace", path)?;
        Ok(Self { path: path.into(), file: BufWriter::new(file), next: HashMap::new(), error: None })
    }

    /// The program runs: what an earlier one left in the file goes.
    pub fn begin(&mut self) {
        self.error = sink::empty(self.file.get_ref()).err();
    }

    /// Writes the events since the last call.
    pub fn follow(&mut self, stats: &StatsFile) {
        for page in stats.pages() {
            let next = self.next.entry(std::ptr::from_ref(page) as usize).or_default();
            let lines = news(page.pid.load(Relaxed), page.trace.recorded(), |number| page.trace.read(number), next);
            for line in lines {
                if let Err(e) = writeln!(self.file, "{line}") {
                    self.error.get_or_insert(e);
                }
            }
        }
    }

    /// The last of it; what could not be written.
    pub fn finish(mut self) -> Result<(), Failure> {
        let flushed = self.file.flush();
        self.error.map_or(flushed, Err).map_err(|error| sink::unwritten(&self.path.display().to_string(), &error))
    }
}
