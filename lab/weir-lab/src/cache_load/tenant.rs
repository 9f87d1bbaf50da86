//! E15's tenants: requests by Zipf's law at a steady rate. A miss computes for a time that is the tenant's own, so a hit is worth as
//! much. Without keys it is a heap that peaks now and then, and is idle in between. A line of JSON each half second.

use crate::caches::Cache;
use anyhow::{Result, ensure};
use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_lab::common::random::{Random, Zipf};
use weir_lab::common::words::Words;

const REPORT: Duration = Duration::from_millis(500);
/// Between two bursts of requests.
const TICK: Duration = Duration::from_millis(5);

/// `tenant cache=KIND bytes=N keys=N block=N skew=PERCENT rate=N miss_us=N ms=N`, or `tenant idle=N period=N ms=N`
pub fn main(cache: &'static dyn Cache<Arc<[u8]>>, words: &Words) -> Result<()> {
    let start = Instant::now();
    let end = start + Duration::from_millis(words.number("ms")?);
    if let Ok(bytes) = words.number("idle") {
        return idle(bytes as usize, Duration::from_millis(words.number("period")?), end);
    }
    let (keys, block, rate) = (words.number("keys")?, words.number("block")? as usize, words.number("rate")?);
    let miss = Duration::from_micros(words.number("miss_us")?);
    let zipf = Zipf::new(words.number("skew")? as f64 / 100.0, keys as usize);
    let (mut random, mut requests, mut hits) = (Random::new(7, 0), 0u64, 0u64);
    (0..keys).rev().for_each(|key| cache.insert(key, value(key, block)));
    let (begun, mut next_report) = (Instant::now(), Instant::now());
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
        while requests < (begun.elapsed().as_secs_f64() * rate as f64) as u64 && Instant::now() < end {
            let (key, mut is_hit) = (zipf.rank(&mut random), true);
            let found = cache.get_or_load(key, &mut || {
                is_hit = false;
                let ready = Instant::now() + miss;
                while Instant::now() < ready {
                    std::hint::spin_loop();
                }
                value(key, block)
            });
            ensure!(found.first_chunk() == Some(&key.to_le_bytes()), "value {key} is damaged");
            black_box(found);
            (requests, hits) = (requests + 1, hits + u64::from(is_hit));
        }
        std::thread::sleep(TICK);
    }
}

fn value(key: u64, block: usize) -> Arc<[u8]> {
    let mut value = vec![0x5a; block.max(8)];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value.into()
}

/// Takes so many bytes and frees them, once a period.
fn idle(bytes: usize, period: Duration, end: Instant) -> Result<()> {
    const BLOCK: usize = 64 << 10;
    while Instant::now() < end {
        drop((0..bytes / BLOCK).map(|_| vec![1u8; BLOCK]).collect::<Vec<_>>());
        std::thread::sleep(period.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}
