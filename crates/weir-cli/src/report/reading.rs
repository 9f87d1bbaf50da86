//! Reading a file: record after record, in bounded memory.

use super::records::{Batch, Process, RUN, Record, STAT, TRACE};
use super::timeline::{Bins, Point, Samples};
use crate::base::failure::{Failure, WEIR_FAILED};
use crate::figures::memory::Memory;
use crate::figures::processes::Table;
use crate::figures::released::Released;
use crate::figures::run::Summary;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;
use std::rc::Rc;
use weir_core::telemetry::histogram::{BUCKETS, bucket_of};

/// Bytes of a record at most. The largest is of `weir stat`, with 141 rows: 60 KiB, or 1 MiB of the table of all
/// processes where there are thousands.
const LONGEST_RECORD: u64 = 16 << 20;
/// Bytes that are read at a time.
const BUFFER: usize = 64 << 10;
/// Kinds of what was released that are told apart; there are four.
const MOST_KINDS: usize = 16;

/// A file's contents.
pub enum Contents {
    Run(Box<Summary>),
    Trace(Box<Trace>),
    Stat(Box<Stat>),
}

/// All batches of a file.
#[derive(Default)]
pub struct Trace {
    pub bins: Bins,
    pub batches: u64,
    /// By cause, as [`Bins`] has them.
    pub bytes: [u64; 5],
    /// By what was released: batches and bytes.
    pub kinds: BTreeMap<String, (u64, u64)>,
    /// Counts of the times that batches took, in `[2^i, 2^(i+1))` ns.
    pub times: Vec<u64>,
    pub refused: u64,
    pub lost: u64,
}

/// All samples of a file.
#[derive(Default)]
pub struct Stat {
    pub samples: Samples,
    /// Whether the samples have times.
    pub is_timed: bool,
    count: u64,
    /// The last of one process, or of a table.
    pub process: Option<Box<Process>>,
    pub table: Option<Table>,
}

/// Reads a file; what is wrong with it that does not keep it from being read. One that is empty is a trace of a program that
/// released nothing, unless it `is_alone`: then there is nothing to tell.
pub fn read(path: &Path, is_alone: bool) -> Result<(Contents, Option<String>), Failure> {
    let name = path.display();
    let failed = |why: String| Failure::of_weir(format!("{name}: {why}"));
    let file = std::fs::File::open(path).map_err(|error| {
        let say = format!("{name}: cannot be read: {error}: give a file that `weir run`, `trace` or `stat` wrote");
        Failure::of_file(&error, WEIR_FAILED, say)
    })?;
    let left = Rc::new(Cell::new(LONGEST_RECORD));
    let reader = BufReader::with_capacity(BUFFER, Rationed { inner: file, left: left.clone() });
    let mut records = serde_json::Deserializer::from_reader(reader).into_iter::<Record>();
    let mut contents = match records.next() {
        Some(Ok(record)) => Contents::of(record),
        Some(Err(error)) => return Err(failed(damage(&error, 1))),
        None if is_alone => return Err(failed("is empty: the command that writes it has written nothing yet".into())),
        None => {
            return Ok((
                Contents::Trace(Box::default()),
                Some(format!("{name} is empty, as a trace is of what released nothing.")),
            ));
        }
    };
    let mut number = 1u64;
    loop {
        number += 1;
        left.set(LONGEST_RECORD);
        match records.next() {
            Some(Ok(record)) => contents.add(record).map_err(failed)?,
            // Its writer was ended, or writes still: what is whole is right.
            Some(Err(error)) if error.is_eof() => {
                return Ok((contents, Some(format!("The last record of {name} is cut short, and left out."))));
            }
            Some(Err(error)) => return Err(failed(damage(&error, number))),
            None => return Ok((contents, None)),
        }
    }
}

/// The error of a file that serde_json cannot read from this record on.
fn damage(error: &serde_json::Error, number: u64) -> String {
    match error.classify() {
        serde_json::error::Category::Io => format!("cannot be read: {error}"),
        serde_json::error::Category::Eof => "is cut short: there is no whole record in it".into(),
        serde_json::error::Category::Syntax => format!("is damaged, or no JSON: {error}"),
        serde_json::error::Category::Data => format!(
            "record {number} is none of `weir run --json`, `weir run --trace`, `weir trace` or `weir stat --json`"
        ),
    }
}

/// A file, of which a record may take so many bytes.
struct Rationed<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Rationed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(bytes)?;
        match self.left.get().checked_sub(read as u64) {
            Some(left) => self.left.set(left),
            None => {
                let say = format!("a record of more than {} MiB is none of Weir's", LONGEST_RECORD >> 20);
                return Err(std::io::Error::other(say));
            }
        }
        Ok(read)
    }
}

impl Contents {
    fn of(first: Record) -> Self {
        let is_timed = |at_ns: Option<u64>| Box::new(Stat { is_timed: at_ns.is_some(), ..Stat::default() });
        let mut contents = match &first {
            Record::Batch(_) | Record::Lost { .. } => Self::Trace(Box::default()),
            Record::Process(process) => Self::Stat(is_timed(process.at_ns)),
            Record::Table(table) => Self::Stat(is_timed(table.at_ns)),
            Record::Run(run) => return Self::Run(run.clone()),
        };
        // A record of its own kind is never refused.
        let _ = contents.add(first);
        contents
    }

    /// As [`Record::kind`].
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Run(_) => RUN,
            Self::Trace(_) => TRACE,
            Self::Stat(_) => STAT,
        }
    }

    fn add(&mut self, record: Record) -> Result<(), String> {
        let kind = record.kind();
        match (&mut *self, record) {
            (Self::Trace(trace), Record::Batch(batch)) => trace.add(&batch),
            (Self::Trace(trace), Record::Lost { lost, .. }) => trace.lost = trace.lost.saturating_add(lost),
            (Self::Stat(stat), Record::Process(process)) if stat.table.is_none() => stat.add_process(process),
            (Self::Stat(stat), Record::Table(table)) if stat.process.is_none() => stat.add_table(table),
            (Self::Run(_), Record::Run(_)) => return Err("has several runs: give each a file of its own".into()),
            _ => return Err(format!("mixes records of `{}` and `{kind}`: give each a file of its own", self.kind())),
        }
        Ok(())
    }
}

impl Trace {
    fn add(&mut self, batch: &Batch) {
        self.batches += 1;
        self.bins.add(batch.at_ns, batch.cause, batch.bytes);
        let bytes = &mut self.bytes[batch.cause as usize];
        *bytes = bytes.saturating_add(batch.bytes);
        self.times.resize(BUCKETS, 0);
        self.times[bucket_of(batch.ns)] += 1;
        self.refused += u64::from(batch.result != "ok");
        if self.kinds.len() < MOST_KINDS || self.kinds.contains_key(&batch.kind) {
            let (batches, bytes) = self.kinds.entry(batch.kind.clone()).or_default();
            (*batches, *bytes) = (*batches + 1, bytes.saturating_add(batch.bytes));
        }
    }

    /// Bytes by the causes that have a name.
    pub fn of_causes(&self) -> Released {
        Released::from(std::array::from_fn(|cause| self.bytes[cause]))
    }
}

impl Stat {
    /// A file of samples with times.
    pub fn of(samples: Samples) -> Self {
        Self { samples, is_timed: true, ..Self::default() }
    }

    fn add_process(&mut self, process: Box<Process>) {
        let at = self.time(process.at_ns);
        self.samples.push(Point { at, memory: process.memory, pressure: process.pressure });
        self.process = Some(process);
    }

    /// All processes of a table are one point.
    fn add_table(&mut self, table: Table) {
        let at = self.time(table.at_ns);
        let memory = Memory::sum(table.processes.iter().map(|line| &line.memory));
        self.samples.add(at, memory);
        self.table = Some(table);
    }

    fn time(&mut self, at_ns: Option<u64>) -> u64 {
        let number = self.count;
        self.count += 1;
        if self.is_timed { at_ns.unwrap_or_default() } else { number }
    }
}
