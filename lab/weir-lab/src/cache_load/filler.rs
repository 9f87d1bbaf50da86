//! A program whose cache takes all that it can get as fast as it can, and that then takes memory for itself at once. It says
//! a line of JSON after each, and goes on at a byte on standard input.

use crate::caches::Cache;
use anyhow::Result;
use std::io::{Read, Write};
use std::sync::Arc;
use weir_lab::common::words::Words;

/// Bytes of a block that the program takes for itself.
const OWN: usize = 24 << 10;

/// `filler cache=KIND bytes=N block=N total=N own=N`
pub fn main(cache: &'static dyn Cache<Arc<[u8]>>, words: &Words) -> Result<()> {
    let (block, own) = (words.number("block")?, words.number("own")? as usize);
    for key in 0..words.number("total")? / block {
        cache.insert(key, vec![key as u8; block as usize].into());
    }
    phase(cache)?;
    let held: Vec<Vec<u8>> = (0..own / OWN).map(|at| vec![at as u8; OWN]).collect();
    phase(cache)?;
    drop(held);
    Ok(())
}

fn phase(cache: &dyn Cache<Arc<[u8]>>) -> Result<()> {
    println!("{{\"held\":{}}}", cache.held());
    std::io::stdout().flush()?;
    let _ = std::io::stdin().read(&mut [0])?;
    Ok(())
}
