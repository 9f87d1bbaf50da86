//! Tail latency: how long the slowest of many calls of malloc and free take, while memory comes free in bursts and is given back.
//! There are as many threads as CPUs and four times as many, without pressure and with an event every 100 ms.
//!
//! Reading the clock (`clock, ns`) is in every figure. Where threads are more than CPUs, the longest calls are those in which the
//! kernel ran another thread: under every allocator alike.

use crate::harness::prelude::*;

pub fn run(lab: &mut Lab) -> Result<()> {
    let (ms, allocators) = (lab.pick(2_000, 250), lab.allocators.clone());
    let cpus = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
    let loads = [cpus, 4 * cpus].into_iter().flat_map(|threads| [false, true].map(|pressed| (threads, pressed)));
    let name =
        |(threads, pressed)| format!("{threads} threads{}", if pressed { ", an event every 100 ms" } else { "" });
    let cases: Vec<String> = loads.clone().map(name).collect();
    let calls = ["malloc", "free"].into_iter();
    let names =
        calls.flat_map(|call| ["p50", "p99", "p99.9", "p99.99", "max"].map(|of| less(format!("{call}, ns: {of}"))));
    let measures = names.chain([told("clock, ns"), told("events heard")]).collect();
    lab.by_case(measures, &cases, &allocators, |case, allocator| {
        let (threads, pressed) = loads.clone().find(|load| name(*load) == *case).unwrap_or((cpus, false));
        let mut command = load(allocator, &format!("latency threads={threads} ms={ms}"))?;
        let mut fifo = PressureFifo::make()?;
        let (said, events) = if pressed {
            fifo.name_to(&mut command);
            fifo.send_during(Duration::from_millis(100), || told_by(command, 120, "latency"))
        } else {
            (told_by(command, 120, "latency"), 0)
        };
        let said = said?;
        let calls = [numbers(&said["malloc"]), numbers(&said["free"])].concat();
        Ok([&calls[..], &[number(&said, "clock_ns")?, events as f64]].concat())
    });
    Ok(())
}
