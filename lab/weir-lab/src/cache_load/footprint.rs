//! A program that fills a cache with entries of an 8-byte key and a value of 100 bytes, and says what became resident for each.

use crate::caches::{self, Cache};
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use weir_lab::common::words::Words;

const VALUE: usize = 100;

/// `footprint cache=KIND entries=N value=in|behind`: the value lies in the entry, or behind an `Arc`.
pub fn main(words: &Words) -> Result<()> {
    let (kind, entries) = (words.text("cache")?, words.number("entries")?);
    match words.text("value")? {
        "in" => fill(kind, entries, |key| [key as u8; VALUE]),
        "behind" => fill(kind, entries, |key| Arc::<[u8]>::from([key as u8; VALUE])),
        other => bail!("value={other} is neither 'in' nor 'behind'"),
    }
}

fn fill<V: Clone + Send + Sync + 'static>(kind: &str, entries: u64, value: fn(u64) -> V) -> Result<()>
where
    caches::Weir<V>: Cache<V>,
{
    // Caches whose parts are not filled evenly are to hold all of them too.
    let cache = caches::make::<V>(kind, Some(entries + entries / 4), 1, |_| 1)?;
    let before = resident()?;
    (0..entries).for_each(|key| cache.insert(key, value(key)));
    let grown = resident()?.saturating_sub(before);
    println!("{{\"bytes\":{}}}", grown as f64 / cache.held().max(1) as f64);
    Ok(())
}

/// Bytes that are resident.
fn resident() -> Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = pages.split_whitespace().nth(1).context("/proc/self/statm has no second number")?.parse()?;
    // SAFETY: a plain call.
    Ok(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
}
