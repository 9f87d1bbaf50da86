//! E12's cache server: requests by key, answered from the cache or by computing the value. Told what to do by lines on
//! standard input ("load", "peak", "work"), each of which it answers by "ok".

use crate::caches::Cache;
use crate::random::Random;
use crate::settings::Settings;
use std::hint::black_box;
use std::io::{BufRead, Write};

/// Requests of a piece of work.
const REQUESTS: u32 = 2_000;
/// A peak asks for keys that none asks for again, for so many times the bytes of those that stay.
const PEAK: u64 = 3;
/// One request in so many of a peak is for a key that stays.
const STAYS_IN: u64 = 10;
/// How often a value's bytes are mixed until it is computed.
const ROUNDS: u32 = 8;

struct Server {
    cache: Box<dyn Cache>,
    random: Random,
    /// Bytes of the values that stay, and how many those are.
    data: u64,
    keys: u64,
    /// The first key that no peak has asked for.
    fresh: u64,
}

/// `server cache=KIND bytes=N data=N`
pub fn main(settings: &Settings) -> Result<(), String> {
    let (cache, data) = (settings.cache()?, settings.number("data")?);
    let mut server = Server { cache, random: Random::new(1), data, keys: 0, fresh: 1 << 32 };
    for line in std::io::stdin().lock().lines() {
        match line.map_err(|why| why.to_string())?.trim() {
            "load" => server.load(),
            "peak" => server.peak(),
            "work" => server.work(),
            other => return Err(format!("'{other}' is nothing to do")),
        }?;
        println!("ok");
        std::io::stdout().flush().map_err(|why| why.to_string())?;
    }
    Ok(())
}

impl Server {
    fn load(&mut self) -> Result<(), String> {
        let mut held = 0;
        while held < self.data {
            held += self.request(self.keys)?;
            self.keys += 1;
        }
        Ok(())
    }

    fn peak(&mut self) -> Result<(), String> {
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

    fn work(&mut self) -> Result<(), String> {
        (0..REQUESTS).try_for_each(|_| self.one_that_stays())
    }

    fn one_that_stays(&mut self) -> Result<(), String> {
        let key = self.random.below(self.keys);
        self.request(key).map(drop)
    }

    /// The value's bytes, after it was read.
    fn request(&mut self, key: u64) -> Result<u64, String> {
        let (mut length, mut is_right) = (0, true);
        let found = self.cache.read(key, &mut |value| {
            length = value.len();
            is_right = value.first() == Some(&first_byte(key));
            black_box(value.iter().map(|&byte| u64::from(byte)).sum::<u64>());
        });
        if !is_right || (found && length != size_of(key)) {
            return Err(format!("the value of key {key} is damaged"));
        }
        if !found {
            let value = compute(key);
            length = value.len();
            self.cache.insert(key, value);
        }
        Ok(length as u64)
    }
}

fn first_byte(key: u64) -> u8 {
    (key % 251) as u8 + 1
}

/// 16 B to 16 KiB, each doubling as likely as every other.
fn size_of(key: u64) -> usize {
    let mut random = Random::new(key + 1);
    let base = 16usize << random.below(10);
    base + random.below(base as u64) as usize
}

/// Real work: every byte depends on the key and on all bytes before it, several times over.
fn compute(key: u64) -> Box<[u8]> {
    let mut value = vec![first_byte(key); size_of(key)].into_boxed_slice();
    for round in 0..ROUNDS {
        let mut state = key.wrapping_add(u64::from(round));
        for byte in value[1..].iter_mut() {
            state = (state ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            *byte = (state >> 32) as u8;
        }
    }
    value
}
