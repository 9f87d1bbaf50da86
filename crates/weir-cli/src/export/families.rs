//! The metrics: name, unit, type, help, and where the samples come from.

use super::histogram::{Distribution, seconds};
use super::snapshot::{Figures, Snapshot};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::base::units::PAGE;

/// A sample's value.
pub enum Value {
    Whole(u64),
    Real(f64),
    Histogram(Distribution),
}

/// Writes a sample with labels of its own.
pub type Write<'a> = &'a mut dyn FnMut(&[(&'static str, &str)], Value) -> fmt::Result;

/// A metric with samples of each `T`.
pub struct Family<T> {
    /// Without `weir_`, the unit, and the endings of its type.
    pub name: &'static str,
    pub unit: Option<Unit>,
    pub kind: MetricType,
    pub help: &'static str,
    pub samples: Samples<T>,
}

/// Writes the samples of one `T`.
pub type Samples<T> = fn(&T, Write<'_>) -> fmt::Result;

pub const fn gauge<T>(name: &'static str, unit: Option<Unit>, help: &'static str, samples: Samples<T>) -> Family<T> {
    Family { name, unit, kind: MetricType::Gauge, help, samples }
}

pub const fn counter<T>(name: &'static str, unit: Option<Unit>, help: &'static str, samples: Samples<T>) -> Family<T> {
    Family { name, unit, kind: MetricType::Counter, help, samples }
}

const fn histogram<T>(name: &'static str, help: &'static str, samples: Samples<T>) -> Family<T> {
    Family { name, unit: SECONDS, kind: MetricType::Histogram, help, samples }
}

pub const BYTES: Option<Unit> = Some(Unit::Bytes);
pub const SECONDS: Option<Unit> = Some(Unit::Seconds);

/// A counter of the page.
fn count(counter: &AtomicU64) -> Value {
    Value::Whole(counter.load(Relaxed))
}

/// A counter of nanoseconds.
fn time(counter: &AtomicU64) -> Value {
    Value::Real(seconds(counter.load(Relaxed)))
}

/// A sample for each of an array's counters, with a label that says which it is.
fn each(write: Write<'_>, label: &'static str, names: &[&str], value: impl Fn(usize) -> Value) -> fmt::Result {
    names.iter().enumerate().try_for_each(|(i, name)| write(&[(label, name)], value(i)))
}

/// As [`Side`](weir_core::reclaim::Side) numbers them.
const SIDES: [&str; 2] = ["balancer", "direct"];
/// As [`Cause`](weir_core::base::cause::Cause) numbers them.
const CAUSES: [&str; 4] = ["idle", "pressure", "limit", "asked"];

/// Metrics of processes.
pub static OF_PROCESSES: &[Family<Figures>] = &[
    gauge("start_time", SECONDS, "When the process was started, since 1970.", |it, write| {
        it.started.map_or(Ok(()), |at| write(&[], Value::Real(at)))
    }),
    gauge("resident", BYTES, "Resident set of the process.", |it, write| {
        write(&[], Value::Whole(it.memory.resident_bytes))
    }),
    gauge(
        "memory",
        BYTES,
        "What the resident set consists of; the states add up to it; no samples while that is unknown. live: in use by the program; idle: free, and can \
         be released; fragmented: free, beside objects in use on the same pages; metadata: of Weir's own; not_weirs: \
         code, data, stacks, mappings of the program's own.",
        |it, write| {
            let it = &it.memory;
            if it.is_stale {
                return Ok(());
            }
            let parts = [it.live_bytes, it.idle_bytes, it.fragmented_bytes, it.metadata_bytes, it.not_weirs_bytes];
            each(write, "state", &["live", "idle", "fragmented", "metadata", "not_weirs"], |i| Value::Whole(parts[i]))
        },
    ),
    gauge("untouched", BYTES, "In use by the program and not resident: never touched, or swapped out.", |it, write| {
        it.memory.known(it.memory.untouched_bytes).map_or(Ok(()), |bytes| write(&[], Value::Whole(bytes)))
    }),
    gauge(
        "measured_age",
        SECONDS,
        "Time since Weir measured its part of the resident set; no sample while its heap is too small for that.",
        |it, write| it.memory.measured_ns_ago.map_or(Ok(()), |ago| write(&[], Value::Real(seconds(ago)))),
    ),
    gauge("pressure_level", None, "Memory pressure as the process sees it: 0 none, 1 some, 2 severe.", |it, write| {
        write(&[], count(&it.page.pressure_level))
    }),
    counter("pressure_events", None, "Times that memory pressure was heard of.", |it, write| {
        write(&[], count(&it.page.pressure_events))
    }),
    counter("reliefs", None, "Times that memory pressure was over.", |it, write| write(&[], count(&it.page.reliefs))),
    counter("released", BYTES, "Memory released to the kernel, by cause.", |it, write| {
        each(write, "cause", &CAUSES, |i| count(&it.page.given_back[i]))
    }),
    counter("touched_again", BYTES, "Memory that was touched again soon after it was released.", |it, write| {
        write(&[], count(&it.page.refault_bytes))
    }),
    counter(
        "touched_again_after_calm",
        BYTES,
        "Memory that was released for being idle, and touched again so soon that it might have been kept.",
        |it, write| write(&[], count(&it.page.calm_refault_bytes)),
    ),
    gauge(
        "calm_window_doublings",
        None,
        "How often the time after which idle memory is released is doubled now, as too much of it was touched again.",
        |it, write| write(&[], count(&it.page.patience)),
    ),
    counter("release_failures", None, "Batches of memory that the kernel refused to take.", |it, write| {
        write(&[], count(&it.page.report_failures))
    }),
    histogram("release", "Time that the release of a batch took.", |it, write| {
        let sum = it.page.report_ns.load(Relaxed);
        write(&[], Value::Histogram(Distribution::of(&it.page.release_times.counts, Some(sum))))
    }),
    histogram(
        "pressure_response",
        "Time from a pressure event to the last idle byte released. The sum is estimated from the buckets.",
        |it, write| write(&[], Value::Histogram(Distribution::of(&it.page.pressure_latency, None))),
    ),
    gauge("pressure_response_max", SECONDS, "The longest such time since the start.", |it, write| {
        write(&[], time(&it.page.pressure_latency_max))
    }),
    histogram("direct_stall", "Time of allocations that reclaimed by themselves, or waited for it.", |it, write| {
        let sum = it.page.direct_stall_ns.load(Relaxed);
        write(&[], Value::Histogram(Distribution::of(&it.page.direct_stalls.counts, Some(sum))))
    }),
    counter("direct_reclaims", None, "Times that an allocation reclaimed by itself.", |it, write| {
        write(&[], count(&it.page.direct_reclaims))
    }),
    counter("hard_limit_failures", None, "Allocations that failed because of `hard_limit`.", |it, write| {
        write(&[], count(&it.page.hard_limit_failures))
    }),
    counter("balancer_wake_requests", None, "Times that there was work for the balancer.", |it, write| {
        write(&[], count(&it.page.wake_requests))
    }),
    counter("balancer_wakeups", None, "Times that the balancer woke for work.", |it, write| {
        write(&[], count(&it.page.wakeups))
    }),
    counter("balancer_active", SECONDS, "Time from the balancer's wake-ups to its sleeps.", |it, write| {
        write(&[], time(&it.page.balancer_active_ns))
    }),
    counter("balancer_cpu", SECONDS, "Time of that on a CPU.", |it, write| write(&[], time(&it.page.balancer_cpu_ns))),
    counter("scanned", BYTES, "Memory that reclaim looked at, by who reclaimed.", |it, write| {
        each(write, "by", &SIDES, |i| pages(&it.page.scanned_pages[i]))
    }),
    counter("reclaimed", BYTES, "Memory that reclaim got, by who reclaimed.", |it, write| {
        each(write, "by", &SIDES, |i| pages(&it.page.reclaimed_pages[i]))
    }),
    counter(
        "cache_writes",
        None,
        "Dirty entries of evictable caches written back, by who reclaimed, and by whether the callback waited.",
        |it, write| {
            for (i, by) in SIDES.iter().enumerate() {
                write(&[("by", by), ("mode", "async")], count(&it.page.async_writes[i]))?;
                write(&[("by", by), ("mode", "sync")], count(&it.page.sync_writes[i]))?;
            }
            Ok(())
        },
    ),
    counter("trims", None, "Trims of object caches that took something.", |it, write| {
        write(&[], count(&it.page.trims))
    }),
    counter("drains", None, "Drains of all CPUs' buckets.", |it, write| write(&[], count(&it.page.drains))),
    counter(
        "huge_pageblocks",
        None,
        "Pageblocks backed by huge pages that were released, by what became of the huge page: kept (the whole block \
         was released at once), split; and pageblocks that were split and filled by the kernel with a huge page: \
         collapsed.",
        |it, write| {
            let page = &it.page;
            let counts = [&page.huge_kept, &page.huge_split, &page.huge_collapsed];
            each(write, "outcome", &["kept", "split", "collapsed"], |i| count(counts[i]))
        },
    ),
    counter("fast_frees", None, "Frees of small objects that the fast path served.", |it, write| {
        write(&[], count(&it.page.fast_frees))
    }),
    counter("free_misses", None, "Frees that found the CPU's bucket full.", |it, write| {
        write(&[], count(&it.page.free_misses))
    }),
    counter("allocation_misses", None, "Allocations that found the CPU's bucket empty.", |it, write| {
        write(&[], count(&it.page.alloc_misses))
    }),
    counter(
        "large_allocations",
        None,
        "Allocations larger than the largest size class that no bucket served.",
        |it, write| write(&[], count(&it.page.large_allocs)),
    ),
    gauge("objects", None, "Small objects in use or waiting in a bucket.", |it, write| {
        write(&[], count(&it.page.objects_out))
    }),
    gauge("heap_pages", BYTES, "Pages handed out by the zones, to slabs and large allocations.", |it, write| {
        write(&[], count(&it.page.page_bytes))
    }),
    gauge("mapped_blocks", BYTES, "Blocks that are mapped on their own.", |it, write| {
        write(&[], count(&it.page.mapped_bytes))
    }),
    gauge("address_space", BYTES, "Address space of the heap, resident or not.", |it, write| {
        write(&[], count(&it.page.address_bytes))
    }),
    gauge("program_zones", BYTES, "Zones that the program made.", |it, write| write(&[], count(&it.page.zone_bytes))),
    gauge("buckets", BYTES, "Memory of the depots' buckets, a part of the metadata.", |it, write| {
        write(&[], count(&it.page.shell_bytes))
    }),
    gauge(
        "background_thread",
        None,
        "1 while the background thread runs, without which little is released.",
        |it, write| write(&[], Value::Whole(u64::from(it.page.background.load(Relaxed)))),
    ),
    gauge("restartable_sequences", None, "1 where the fast path runs on them, 0 where it takes locks.", |it, write| {
        write(&[], Value::Whole(u64::from(it.page.rseq.load(Relaxed))))
    }),
    gauge("rows_left_out", None, "Caches and zones for which the page of statistics has no room.", |it, write| {
        write(&[], Value::Whole(it.rows_left_out))
    }),
];

fn pages(counter: &AtomicU64) -> Value {
    Value::Whole(counter.load(Relaxed).saturating_mul(PAGE as u64))
}

/// Metrics of the exporter.
pub static OF_THE_EXPORTER: &[Family<Snapshot>] = &[
    gauge("exporter_build", None, "1; the label is the version of the exporter.", |_, write| {
        write(&[("version", env!("CARGO_PKG_VERSION"))], Value::Whole(1))
    }),
    gauge("exporter_processes", None, "Processes with Weir whose figures are here.", |it, write| {
        write(&[], Value::Whole(it.processes.len() as u64))
    }),
    gauge(
        "exporter_processes_left_out",
        None,
        "Processes with Weir beyond `--max-processes`, those with the smallest resident sets: raise it, if this is \
         not 0.",
        |it, write| write(&[], Value::Whole(it.left_out as u64)),
    ),
    gauge(
        "exporter_processes_unreadable",
        None,
        "Processes without figures, by reason. not_allowed: another user's, with Weir or without; not_answering: a page of its \
         memory was not to be had in time; not_shared: their \
         page of statistics is private; other_version: their Weir is of another release.",
        |it, write| {
            let mut each = it.unreadable.iter();
            each.try_for_each(|(reason, &number)| write(&[("reason", reason)], Value::Whole(number as u64)))
        },
    ),
    gauge("exporter_max_processes", None, "Processes that are exported at most.", |it, write| {
        write(&[], Value::Whole(it.extent.processes as u64))
    }),
    gauge("exporter_duration", SECONDS, "Time that it took to read the figures of all processes.", |it, write| {
        write(&[], Value::Real(it.took.as_secs_f64()))
    }),
];
