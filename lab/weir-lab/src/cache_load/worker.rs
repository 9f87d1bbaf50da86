//! E13's program with a cache: requests by Zipf's law over the blocks of a file. A hit reads the value, a miss reads the
//! block from the disk first. A line of JSON each half second, so that a kill loses none of the work before it.

use crate::caches::Cache;
use crate::direct_file::DirectFile;
use crate::random::{Random, Zipf};
use crate::settings::Settings;
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

/// Zipf's exponent: the skew of a busy web cache.
const SKEW: f64 = 0.9;
/// Between two lines.
const REPORT: Duration = Duration::from_millis(500);

/// `worker cache=KIND bytes=N file=PATH block=N blocks=N ms=N`
pub fn main(settings: &Settings) -> Result<(), String> {
    let cache = settings.cache()?;
    let block = settings.number("block")? as usize;
    let mut file = DirectFile::open(settings.text("file")?, block)?;
    let zipf = Zipf::new(settings.number("blocks")?, SKEW);
    let end = Instant::now() + Duration::from_millis(settings.number("ms")?);
    let (mut random, mut requests, mut hits) = (Random::new(7), 0u64, 0u64);
    let mut next_report = Instant::now() + REPORT;
    loop {
        let now = Instant::now();
        if now >= next_report || now >= end {
            println!("{{\"requests\":{requests},\"hits\":{hits},\"cached\":{}}}", cache.bytes());
            std::io::stdout().flush().map_err(|why| why.to_string())?;
            next_report = now + REPORT;
        }
        if now >= end {
            return Ok(());
        }
        let key = zipf.key(&mut random);
        hits += u64::from(request(cache.as_ref(), &mut file, key)?);
        requests += 1;
    }
}

/// One request; whether it was a hit.
fn request(cache: &dyn Cache, file: &mut DirectFile, key: u64) -> Result<bool, String> {
    let mut is_right = true;
    let is_hit = cache.read(key, &mut |value| {
        is_right = block_number(value) == key;
        black_box(value.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    });
    if !is_right {
        return Err(format!("block {key} is damaged"));
    }
    if !is_hit {
        let value = file.read(key)?;
        if block_number(value) != key {
            return Err(format!("the file has another block at {key}"));
        }
        cache.insert(key, value.into());
    }
    Ok(is_hit)
}

/// Each block of the file begins with its number.
fn block_number(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
