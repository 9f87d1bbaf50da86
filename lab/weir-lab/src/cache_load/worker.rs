//! E13's program with a cache: requests by Zipf's law over the blocks of a file. A hit reads the value, a miss reads the
//! block from the disk first, past the kernel's page cache. A line of JSON each half second, so that a kill loses none of
//! the work before it.

use crate::caches::Cache;
use anyhow::{Context, Result, ensure};
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_lab::common::random::{Random, Zipf};
use weir_lab::common::words::Words;

const SKEW: f64 = 0.9;
const REPORT: Duration = Duration::from_millis(500);
/// Alignment of places and lengths of direct reads.
const ALIGNMENT: usize = 4096;

/// `worker cache=KIND bytes=N file=PATH block=N blocks=N ms=N`
pub fn main(cache: &'static dyn Cache<Arc<[u8]>>, words: &Words) -> Result<()> {
    let block = words.number("block")? as usize;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(words.text("file")?);
    let file = file.context("cannot open the file for direct reads")?;
    let mut buffer = vec![0; block + ALIGNMENT];
    let from = buffer.as_ptr().align_offset(ALIGNMENT);
    let place = &mut buffer[from..from + block];
    let zipf = Zipf::new(SKEW, words.number("blocks")? as usize);
    let end = Instant::now() + Duration::from_millis(words.number("ms")?);
    let (mut random, mut requests, mut hits) = (Random::new(7, 0), 0u64, 0u64);
    let mut next_report = Instant::now() + REPORT;
    loop {
        let now = Instant::now();
        if now >= next_report || now >= end {
            println!("{{\"requests\":{requests},\"hits\":{hits},\"cached\":{}}}", cache.held());
            std::io::stdout().flush()?;
            next_report = now + REPORT;
        }
        if now >= end {
            return Ok(());
        }
        hits += u64::from(request(cache, &file, zipf.rank(&mut random), place)?);
        requests += 1;
    }
}

/// Whether the cache has the block.
fn request(cache: &dyn Cache<Arc<[u8]>>, file: &File, key: u64, place: &mut [u8]) -> Result<bool> {
    if let Some(value) = cache.get(key) {
        ensure!(block_number(&value) == key, "block {key} is damaged");
        black_box(value.iter().map(|&byte| u64::from(byte)).sum::<u64>());
        return Ok(true);
    }
    file.read_exact_at(place, key * place.len() as u64)?;
    ensure!(block_number(place) == key, "the file has another block at {key}");
    cache.insert(key, (&*place).into());
    Ok(false)
}

fn block_number(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
