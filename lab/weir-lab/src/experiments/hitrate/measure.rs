//! Hit rates: each trace through each cache at three sizes.

use super::cache::Cache;
use super::caches::{MOKA, SUBJECTS};
use super::traces::Trace;
use serde_json::{Value, json};
use std::collections::HashSet;

/// Sizes as shares of a trace's different keys.
const SHARES: [f64; 3] = [0.01, 0.05, 0.2];
/// The smallest cache.
const FEWEST: usize = 64;
/// How often the number of entries is read during a trace.
const LOOKS: usize = 16;

/// One trace at one size.
pub struct Row {
    /// The trace.
    pub trace: String,
    /// The cache's size.
    pub entries: usize,
    /// Hit rates in %, in the order of [`SUBJECTS`].
    pub rates: Vec<f64>,
    /// The most entries that moka held as it comes, in % of its size.
    pub moka_held: f64,
}

impl Row {
    /// Weir's rate less the best of `peers` (places in [`SUBJECTS`]), and which that is.
    pub fn against(&self, peers: impl Iterator<Item = usize>) -> (f64, usize) {
        let best = peers.max_by(|&a, &b| self.rates[a].total_cmp(&self.rates[b])).unwrap_or(0);
        (self.rates[0] - self.rates[best], best)
    }
}

pub(super) fn measure(trace: &Trace, is_quick: bool) -> Vec<Row> {
    let different = trace.keys.iter().collect::<HashSet<_>>().len();
    let mut sizes: Vec<usize> = SHARES.iter().map(|share| ((different as f64 * share) as usize).max(FEWEST)).collect();
    sizes.dedup();
    sizes.into_iter().map(|entries| row(trace, entries, is_quick)).collect()
}

fn row(trace: &Trace, entries: usize, is_quick: bool) -> Row {
    let mut row = Row { trace: trace.name.clone(), entries, rates: Vec::new(), moka_held: 0.0 };
    let looks = if is_quick { 2 } else { LOOKS };
    for subject in &SUBJECTS {
        (subject.with)(entries, &mut |cache| {
            let (mut hits, mut most) = (0, 0);
            for part in trace.keys.chunks(trace.keys.len().div_ceil(looks)) {
                hits += part.iter().filter(|&&key| is_hit(cache, key)).count();
                most = most.max(if subject.name == MOKA { cache.held() } else { 0 });
            }
            row.rates.push(100.0 * hits as f64 / trace.keys.len() as f64);
            if subject.name == MOKA {
                row.moka_held = 100.0 * most as f64 / entries as f64;
            }
        });
    }
    row
}

fn is_hit(cache: &dyn Cache, key: u64) -> bool {
    let is_hit = cache.get(key).is_some();
    if !is_hit {
        cache.insert(key, key);
    }
    is_hit
}

pub(super) fn as_json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let rates: serde_json::Map<_, _> =
            SUBJECTS.iter().zip(&row.rates).map(|(subject, rate)| (subject.name.into(), json!(rate))).collect();
        json!({ "trace": row.trace, "entries": row.entries, "hit_rates": rates, "moka_held_percent": row.moka_held })
    };
    rows.iter().map(row).collect()
}
