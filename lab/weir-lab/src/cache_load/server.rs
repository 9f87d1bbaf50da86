//! E12's cache server: requests by key, answered from the cache or by computing the value. Told what to do by lines on
//! standard input ("load", "peak", "work"), each of which it answers by "ok".

use crate::caches::Cache;
use anyhow::{Result, bail, ensure};
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::sync::Arc;
use weir_lab::common::random::Random;
use weir_lab::common::words::Words;

/// Requests of a piece of work.
const REQUESTS: u32 = 2_000;
/// A peak asks for keys that none asks for again, for so many times the bytes of those that stay.
const PEAK: u64 = 3;
/// One request in so many of a peak is for a key that stays.
const STAYS_IN: usize = 10;
/// How often a value's bytes are mixed until it is computed.
const ROUNDS: u64 = 8;

struct Server {
    cache: &'static dyn Cache<Arc<[u8]>>,
    random: Random,
    /// Bytes of the values that stay, and how many those are.
    data: u64,
    keys: u64,
    /// The first key that no peak has asked for.
    fresh: u64,
}

/// `server cache=KIND bytes=N data=N`
pub fn main(cache: &'static dyn Cache<Arc<[u8]>>, words: &Words) -> Result<()> {
    let mut server = Server { cache, random: Random::new(1, 0), data: words.number("data")?, keys: 0, fresh: 1 << 32 };
    for line in std::io::stdin().lock().lines() {
        match line?.trim() {
            "load" => server.load(),
            "peak" => server.peak(),
            "work" => (0..REQUESTS).try_for_each(|_| server.one_that_stays()),
            other => bail!("'{other}' is nothing to do"),
        }?;
        println!("ok");
        std::io::stdout().flush()?;
    }
    Ok(())
}

impl Server {
    fn load(&mut self) -> Result<()> {
        let mut held = 0;
        while held < self.data {
            held += self.request(self.keys)?;
            self.keys += 1;
        }
        Ok(())
    }

    fn peak(&mut self) -> Result<()> {
        let mut needed = 0;
        while needed < PEAK * self.data {
            needed += self.request(self.fresh)?;
            self.fresh += 1;
            if self.random.below(STAYS_IN) == 0 {
                self.one_that_stays()?;
            }
        }
        Ok(())
    }

    fn one_that_stays(&mut self) -> Result<()> {
        let key = self.random.below(self.keys as usize) as u64;
        self.request(key).map(drop)
    }

    /// The length of a key's value, from the cache or computed.
    fn request(&mut self, key: u64) -> Result<u64> {
        let Some(value) = self.cache.get(key) else {
            let value = compute(key);
            let length = value.len() as u64;
            self.cache.insert(key, value);
            return Ok(length);
        };
        let is_right = value.first() == Some(&first_byte(key)) && value.len() == size_of(key);
        ensure!(is_right, "the value of key {key} is damaged");
        black_box(value.iter().map(|&byte| u64::from(byte)).sum::<u64>());
        Ok(value.len() as u64)
    }
}

fn first_byte(key: u64) -> u8 {
    (key % 251) as u8 + 1
}

/// 16 B to 16 KiB, each doubling as likely as every other.
fn size_of(key: u64) -> usize {
    Random::new(key + 1, 0).doublings(4, 14)
}

fn compute(key: u64) -> Arc<[u8]> {
    let mut value = vec![first_byte(key); size_of(key)];
    for round in 0..ROUNDS {
        let mut state = key.wrapping_add(round);
        for byte in value[1..].iter_mut() {
            state = (state ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            *byte = (state >> 32) as u8;
        }
    }
    value.into()
}
