//! Allocator-heavy forwarding: buffers of 2 KiB are taken on one CPU in bursts of 32 and given back on another. They come from
//! malloc and the peers' mallocs, from no allocator, or from an object cache. The cache runs with no pressure, soft pressure,
//! drains, and a limit to account.
//!
//! A burst is 32 calls. The longest stall is that of a burst during which the thread kept its CPU, as far as the kernel knows. It
//! may include CPUs that the machine's host took away.

use crate::harness::prelude::*;

type Env = &'static [(&'static str, &'static str)];
const SOFT: Env = &[("WEIR_LIMIT", "12M"), ("WEIR_HEADROOM_PERCENT", "50")];
const DRAINS: Env = &[("WEIR_SEVERE_INTERVAL_MS", "50")];
const EVENT: Duration = Duration::from_millis(100);

/// A row: its label, the allocator, and where buffers come from.
struct Row(String, Allocator, &'static str);

impl Display for Row {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub fn run(lab: &mut Lab) -> Result<()> {
    let (ms, weir) = (lab.pick(1000, 300), lab.weir()?);
    let of_weir = |label: &str, from, env| Row(label.into(), weir.with(WEIR.into(), env), from);
    let mut rows = vec![
        of_weir("cache", "cache", &[]),
        of_weir("cache, soft pressure", "cache", SOFT),
        of_weir("cache, drains", "cache", DRAINS),
        of_weir("cache with a limit to account", "limited", &[]),
        of_weir("no allocator: places in turn", "none", &[]),
    ];
    rows.extend(
        lab.allocators.iter().map(|allocator| Row(format!("malloc of {allocator}"), allocator.clone(), "malloc")),
    );
    let mut measures = vec![more("packets/s")];
    measures.extend(["ns an allocation", "ns a free", "p99.99 of bursts, us", "longest stall, us"].map(less));
    measures.push(less("stalls over 1 ms a second"));
    measures.extend(["bucket, objects", "free in the cache, objects", "drains", "trims"].map(told));
    let grid = lab.by_case(measures, &["forwarding"], &rows, |_, row| {
        let (words, mut fifo) = (format!("forward from={} ms={ms}", row.2), PressureFifo::make()?);
        let mut command = load(&row.1, &words)?;
        let said = if row.1.env == DRAINS {
            fifo.name_to(&mut command);
            fifo.send_during(EVENT, || told_by(command, 60, "forward")).0?
        } else {
            told_by(command, 60, "forward")?
        };
        let rate = number(&said, "packets")? / number(&said, "seconds")?;
        let keys = ["alloc_ns", "free_ns", "rare_us", "stall_us", "stalls", "bucket", "held", "drains", "trims"];
        let rest = keys.map(|key| number(&said, key));
        [Ok(rate)].into_iter().chain(rest).collect()
    });
    for (subject, reference) in [
        ("cache, soft pressure", "cache"),
        ("cache, drains", "cache"),
        ("cache, drains", "no allocator: places in turn"),
        ("cache with a limit to account", "cache"),
        ("cache", "malloc of weir"),
    ] {
        println!("{}", grid.versus(0, subject, reference).unwrap_or_default());
    }
    Ok(())
}
