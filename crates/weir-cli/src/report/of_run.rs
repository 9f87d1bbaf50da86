//! The page of `weir run --report`: a run that has just ended, from what was sampled of it.

use super::column::Column;
use super::comparison::Comparison;
use super::html;
use super::reading::Stat;
use super::records::{Memory, Pressure, Run};
use super::timeline::{Point, Samples};
use crate::base::failure::Failure;
use serde::Serialize;

/// A sample of all processes of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampled {
    /// ns of the monotonic clock.
    pub at_ns: u64,
    pub resident_bytes: u64,
    /// What the heaps consist of, as they last said: live, idle, fragmented, metadata.
    pub heap: [u64; 4],
}

/// The samples of a run, in bounded memory.
#[derive(Default)]
pub struct Curve(Samples);

impl Curve {
    pub fn add(&mut self, it: Sampled) {
        let sum = it.heap.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        // What was said of another resident set is not shown: the curve alone is.
        let known = it.resident_bytes.checked_sub(sum).map(|rest| (rest, it.heap));
        let (not_weirs_bytes, [live_bytes, idle_bytes, fragmented_bytes, metadata_bytes]) = known.unwrap_or_default();
        let memory = Memory {
            resident_bytes: it.resident_bytes,
            live_bytes,
            idle_bytes,
            fragmented_bytes,
            metadata_bytes,
            not_weirs_bytes,
        };
        self.0.push(Point { at: it.at_ns, memory, pressure: Pressure::None });
    }
}

/// The page, of what the run says about itself as JSON.
pub fn page(summary: &impl Serialize, curve: Curve) -> Result<String, Failure> {
    let run = serde_json::to_value(summary).and_then(serde_json::from_value::<Run>);
    let run = run.map_err(|error| Failure::of_weir(format!("the page cannot be written: {error}")))?;
    let stat = Stat { samples: curve.0, is_timed: true, ..Stat::default() };
    let column =
        Column { files: vec![run.program.clone()], run: Some(Box::new(run)), stat: Some(Box::new(stat)), trace: None };
    Ok(html::page(&Comparison { columns: vec![column], notes: Vec::new() }))
}
