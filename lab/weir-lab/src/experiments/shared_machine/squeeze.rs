//! From a pressure event to the last idle page of page pools given back, of pools at rest and of busy ones.
//!
//! The time begins when an event is sent (by systemd's protocol, to a program that hears it itself). It ends when no pool has an
//! idle page (`empty`), and when what was idle is not resident any more (`returned`). Goal: p50 at most 1 ms, p99 at most 10 ms.

use crate::harness::prelude::*;

/// Pools, MiB of each, and threads that use them.
const CASES: [&str; 4] =
    ["pools=1 mib=4 threads=0", "pools=100 mib=4 threads=0", "pools=100 mib=4 threads=1", "pools=1000 mib=1 threads=1"];

pub fn run(lab: &mut Lab) -> Result<()> {
    let (events, weir) = (lab.pick(200, 5), lab.weir()?);
    let times = ["empty", "returned"]
        .into_iter()
        .flat_map(|what| ["p50", "p99", "max"].map(|of| less(format!("{what}: {of}, ms"))));
    lab.by_case(times.collect(), &CASES, &[weir], |case, weir| {
        let fifo = PressureFifo::make()?;
        let mut command = load(weir, &format!("page-pools {case} events={events}"))?;
        fifo.name_to(&mut command);
        command.env("WEIR_IDLE_MS", "3600000"); // No calm window.
        let said = told_by(command, 500, "page-pools")?;
        let of = |key: &str| numbers(&said[key]).into_iter().map(|ns| ns / 1e6).collect::<Sample>();
        let quantiles = ["empty_ns", "returned_ns"].map(|key| [0.5, 0.99, 1.0].map(|part| of(key).quantile(part)));
        Ok(quantiles.concat())
    });
    Ok(())
}
