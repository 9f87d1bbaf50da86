//! Which program runs, and what its cache is.

use crate::caches::Cache;
use crate::{caches, filler, footprint, psi, server, tenant, worker};
use anyhow::{Result, bail};
use std::sync::Arc;
use weir_lab::common::words::Words;

/// Bytes that an entry takes besides its value, as every cache is told.
const ENTRY: usize = 64;
/// A value, for caches that are told how many entries to expect.
const TYPICAL: u64 = 4096;

pub fn main() {
    // SAFETY: changes what signal comes at the parent's end, nothing else.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if let Err(why) = run(std::env::args().skip(1)) {
        eprintln!("weir-lab-cache: {why:#}");
        std::process::exit(2);
    }
}

fn run(mut args: impl Iterator<Item = String>) -> Result<()> {
    let name = args.next().unwrap_or_default();
    let words = Words::read(args)?;
    if name == "footprint" {
        return footprint::main(&words);
    }
    let (kind, bytes) = (words.text("cache")?, words.number("bytes")?);
    let (kind, follows) = kind.strip_suffix("-psi").map_or((kind, false), |kind| (kind, true));
    let weigh: caches::Weigh<Arc<[u8]>> = |value| value.len() + ENTRY;
    let cache: &'static dyn Cache<_> =
        Box::leak(caches::make(kind, (kind != "weir").then_some(bytes), TYPICAL, weigh)?);
    if follows {
        psi::follow(cache, bytes)?;
    }
    match name.as_str() {
        "server" => server::main(cache, &words),
        "worker" => worker::main(cache, &words),
        "tenant" => tenant::main(cache, &words),
        "filler" => filler::main(cache, &words),
        _ => bail!("no program is called '{name}': server, worker, tenant, filler, footprint"),
    }
}
