//! The metrics: what each is called, and where its samples come from.

use super::histogram::{Distribution, seconds};
use super::snapshot::{Figures, Snapshot};
use crate::base::units::monotonic_ns;
use crate::figures::less;
use crate::figures::released::CAUSES;
use crate::figures::times::Times;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::base::units::PAGE;
use weir_core::telemetry::tables::{CacheRow, EvictableRow, ZoneRow};

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
    /// Writes the samples of one `T`.
    pub samples: fn(&T, Write<'_>) -> fmt::Result,
}

const BYTES: Option<Unit> = Some(Unit::Bytes);
const SECONDS: Option<Unit> = Some(Unit::Seconds);
const NONE: Option<Unit> = None;

/// As [`Side`](weir_core::reclaim::Side) numbers them.
const SIDES: [&str; 2] = ["balancer", "direct"];

/// A counter of the page; one of nanoseconds; one of pages.
fn count(counter: &AtomicU64) -> Value {
    Value::Whole(counter.load(Relaxed))
}

fn time(counter: &AtomicU64) -> Value {
    Value::Real(seconds(counter.load(Relaxed)))
}

fn pages(counter: &AtomicU64) -> Value {
    Value::Whole(counter.load(Relaxed).saturating_mul(PAGE as u64))
}

/// The most that there may be; none where that is any number.
fn most(most: u64) -> Option<Value> {
    (most != u64::MAX).then_some(Value::Whole(most))
}

/// A sample for each of some values, with a label that says which it is.
fn each(write: Write<'_>, label: &'static str, names: &[&str], value: impl Fn(usize) -> Value) -> fmt::Result {
    names.iter().enumerate().try_for_each(|(i, name)| write(&[(label, name)], value(i)))
}

/// A sample for each row of a table, with its name.
fn of_rows<R>(
    table: &[(String, R)],
    label: &'static str,
    write: Write<'_>,
    value: fn(&R) -> Option<Value>,
) -> fmt::Result {
    table.iter().try_for_each(|(name, row)| value(row).map_or(Ok(()), |value| write(&[(label, name)], value)))
}

/// Samples for each row of a table, with its name and a label that says which they are.
fn each_of_rows<R, const N: usize>(
    (table, label): (&[(String, R)], &'static str),
    (which, names): (&'static str, [&str; N]),
    write: Write<'_>,
    values: fn(&R) -> Option<[u64; N]>,
) -> fmt::Result {
    table.iter().try_for_each(|(row_name, row)| {
        let mut all = names.iter().zip(values(row).into_iter().flatten());
        all.try_for_each(|(name, value)| write(&[(label, row_name), (which, name)], Value::Whole(value)))
    })
}

/// Where samples come from: a counter of the page, a column of a table, or a function.
macro_rules! samples {
    (page $field:ident) => {
        |it, write| write(&[], count(&it.page.$field))
    };
    (page seconds $field:ident) => {
        |it, write| write(&[], time(&it.page.$field))
    };
    (page sides $field:ident) => {
        |it, write| each(write, "by", &SIDES, |i| pages(&it.page.$field[i]))
    };
    (zone $field:ident) => {
        |it, write| of_rows(&it.zones, "zone", write, |z| Some(Value::Whole(z.$field)))
    };
    (limited zone $field:ident) => {
        |it, write| of_rows(&it.zones, "zone", write, |z| (z.capacity > 0).then_some(Value::Whole(z.$field)))
    };
    (evictable $field:ident) => {
        |it, write| of_rows(&it.evictable_caches, "cache", write, |c| Some(Value::Whole(c.$field)))
    };
    (cache $field:ident) => {
        |it, write| of_rows(&it.caches, "cache", write, |c| Some(Value::Whole(c.$field)))
    };
    ($samples:expr) => {
        $samples
    };
}

macro_rules! families {
    ($($kind:ident $name:literal $unit:ident [$($source:tt)+] $help:literal)*) => {
        &[$(Family {
            name: $name,
            unit: $unit,
            kind: MetricType::$kind,
            help: $help,
            samples: samples!($($source)+),
        },)*]
    };
}

/// Metrics of processes.
pub static OF_PROCESSES: &[Family<Figures>] = families! {
    Gauge "start_time" SECONDS [|it, write| it.started.map_or(Ok(()), |at| write(&[], Value::Real(at)))]
        "When the process was started, since 1970."
    Gauge "resident" BYTES [|it, write| write(&[], Value::Whole(it.memory.resident_bytes))] "Resident set of the process."
    Gauge "memory" BYTES [|it, write| {
        let states = ["live", "idle", "fragmented", "merged", "metadata", "not_weirs"];
        it.memory.parts().map_or(Ok(()), |parts| each(write, "state", &states, |i| Value::Whole(parts[i])))
    }]
        "What the resident set consists of; the states add up to it; no samples while that is unknown. live: in use by the program; idle: free, and can \
         be released; fragmented: free, beside objects in use on the same pages; merged: as fragmented, and charged to nobody; metadata: of Weir's own; not_weirs: \
         code, data, stacks, mappings of the program's own."
    Gauge "untouched" BYTES [|it, write| it.memory.untouched_bytes.map_or(Ok(()), |size| write(&[], Value::Whole(size)))]
        "In use by the program and not resident: never touched, or swapped out."
    Gauge "measured_age" SECONDS
        [|it, write| it.memory.measured_ns_ago.map_or(Ok(()), |ago| write(&[], Value::Real(seconds(ago))))]
        "Time since Weir measured its part of the resident set; no sample while its heap is too small for that."
    Gauge "spare" BYTES [|it, write| less::points(&it.page).last().map_or(Ok(()), |all| write(&[], Value::Whole(all.bytes)))]
        "Memory that the process could do without, by its cost curve; no sample while it has none, or none was measured."
    Gauge "spare_cost" SECONDS [|it, write| {
        let points = less::points(&it.page);
        less::by_share(&points).try_for_each(|(share, cost)| write(&[("share", share)], Value::Real(seconds(cost.ns()))))
    }]
        "Time that the process would lose in ten seconds without its cheapest memory, by the share of what it could do without."
    Gauge "pressure_level" NONE [page pressure_level]
        "Memory pressure as the process sees it: 0 none, 1 some, 2 severe."
    Gauge "pressure_heard_age" SECONDS [|it, write| {
        let heard = Some(it.page.pressure_heard_at.load(Relaxed)).filter(|&at| at > 0);
        heard.map_or(Ok(()), |at| write(&[], Value::Real(seconds(monotonic_ns().saturating_sub(at)))))
    }]
        "Time since the process last heard of memory pressure; no sample if it never did. A process that runs looks for \
         relief by itself. One that is stopped does not: its level is as old as this."
    Counter "pressure_events" NONE [page pressure_events] "Times that memory pressure was heard of."
    Counter "reliefs" NONE [page reliefs] "Times that memory pressure was over."
    Counter "released" BYTES [|it, write| each(write, "cause", &CAUSES, |i| count(&it.page.given_back[i]))]
        "Memory released to the kernel, by cause."
    Counter "touched_again" BYTES [page refault_bytes] "Memory that was touched again soon after it was released."
    Counter "touched_again_after_calm" BYTES [page calm_refault_bytes]
        "Memory that was released for being idle, and touched again so soon that it might have been kept."
    Gauge "calm_window_doublings" NONE [page patience]
        "How often the time after which idle memory is released is doubled now, as too much of it was touched again."
    Counter "release_failures" NONE [page report_failures] "Batches of memory that the kernel refused to take."
    Histogram "release" SECONDS [|it, write| {
        let times = Times::from(&it.page.release_times);
        write(&[], Value::Histogram(Distribution::of(&times, Some(it.page.report_ns.load(Relaxed)))))
    }]
        "Time that the release of a batch took."
    Histogram "pressure_response" SECONDS
        [|it, write| write(&[], Value::Histogram(Distribution::of(&Times::from(&it.page.pressure_latency), None)))]
        "Time from a pressure event to the last idle byte released, with the time for which other processes went first. \
         What caches are told to evict below a limit of the process's own comes after that. The sum is estimated from \
         the buckets."
    Gauge "pressure_response_max" SECONDS [page seconds pressure_latency_max] "The longest such time since the start."
    Histogram "direct_stall" SECONDS [|it, write| {
        let times = Times::from(&it.page.direct_stalls);
        write(&[], Value::Histogram(Distribution::of(&times, Some(it.page.direct_stall_ns.load(Relaxed)))))
    }]
        "Time of allocations that reclaimed by themselves, or waited for it."
    Counter "direct_reclaims" NONE [page direct_reclaims] "Times that an allocation reclaimed by itself."
    Counter "hard_limit_failures" NONE [page hard_limit_failures] "Allocations that failed because of `hard_limit`."
    Counter "balancer_wake_requests" NONE [page wake_requests] "Times that there was work for the balancer."
    Counter "balancer_wakeups" NONE [page wakeups] "Times that the balancer woke for work."
    Counter "balancer_active" SECONDS [page seconds balancer_active_ns]
        "Time from the balancer's wake-ups to its sleeps."
    Counter "balancer_cpu" SECONDS [page seconds balancer_cpu_ns] "Time of that on a CPU."
    Counter "scanned" BYTES [page sides scanned_pages] "Memory that reclaim looked at, by who reclaimed."
    Counter "reclaimed" BYTES [page sides reclaimed_pages] "Memory that reclaim got, by who reclaimed."
    Counter "trims" NONE [page trims] "Trims of object caches that took something."
    Counter "drains" NONE [page drains] "Drains of all CPUs' buckets."
    Counter "huge_pageblocks" NONE [|it, write| {
        let counts = [&it.page.huge_kept, &it.page.huge_split, &it.page.huge_collapsed, &it.page.huge_made];
        each(write, "outcome", &["kept", "split", "collapsed", "made"], |i| count(counts[i]))
    }]
        "Pageblocks backed by huge pages that were released, by what became of the huge page: kept (the whole block \
         was released at once), split; and pageblocks that were split and filled by the kernel with a huge page: \
         collapsed; and pageblocks that were full and still, behind which Weir had a huge page put: made."
    Counter "fast_frees" NONE [page fast_frees] "Frees that the fast path served."
    Counter "free_misses" NONE [page free_misses] "Frees that no CPU's bucket took."
    Counter "allocation_misses" NONE [page alloc_misses] "Allocations that found the CPU's bucket empty."
    Counter "large_allocations" NONE [page large_allocs]
        "Allocations larger than the largest size class that no bucket served."
    Gauge "objects" NONE [page objects_out] "Small objects in use or waiting in a bucket."
    Gauge "heap_pages" BYTES [page page_bytes] "Pages handed out by the zones, to slabs and large allocations."
    Gauge "mapped_blocks" BYTES [page mapped_bytes] "Blocks that are mapped on their own."
    Gauge "address_space" BYTES [page address_bytes] "Address space of the heap, resident or not."
    Gauge "program_zones" BYTES [page zone_bytes] "Zones that the program made."
    Gauge "buckets" BYTES [page shell_bytes] "Memory of the depots' buckets, a part of the metadata."
    Gauge "background_thread" NONE [|it, write| write(&[], Value::Whole(it.page.background.load(Relaxed).into()))]
        "1 while the background thread runs, without which little is released."
    Gauge "restartable_sequences" NONE [|it, write| write(&[], Value::Whole(it.page.rseq.load(Relaxed).into()))]
        "1 where the fast path runs on them, 0 where it takes locks."
    Gauge "rows_left_out" NONE [|it, write| write(&[], Value::Whole(it.rows_left_out))]
        "Caches and zones for which the page of statistics has no room."

    Gauge "zone_space" BYTES [zone bytes] "Address space of the zone, resident or not."
    Gauge "zone_used" BYTES [zone used] "Memory that the zone has handed out."
    Gauge "zone_idle" BYTES [zone idle] "Memory of the zone that is free and resident."
    Gauge "zone_capacity" BYTES [limited zone capacity]
        "What the zone may hold: the tightest limit; no sample without one."
    Gauge "zone_free" BYTES [limited zone free] "What may still become resident below that limit."
    Gauge "zone_watermark" BYTES [|it, write| {
        let marks = ("mark", ["min", "low", "high"]);
        let limited = |z: &ZoneRow| (z.capacity > 0).then_some([z.min, z.low, z.high]);
        each_of_rows((&it.zones, "zone"), marks, write, limited)
    }]
        "Marks of what may still become resident. Below min an allocation reclaims by itself, below low the balancer \
         wakes, above high it sleeps."

    Gauge "evictable_cache" BYTES [evictable bytes] "What the entries of the evictable cache weigh."
    Gauge "evictable_cache_target" BYTES [evictable target_bytes] "What it may hold now."
    Gauge "evictable_cache_max" BYTES
        [|it, write| of_rows(&it.evictable_caches, "cache", write, |c| most(c.max_bytes))]
        "What it may hold at most; no sample: as much as memory leaves it."
    Gauge "evictable_cache_entries" NONE [evictable entries] "Entries."
    Counter "evictable_cache_hits" NONE [evictable hits] "Look-ups that found their key."
    Counter "evictable_cache_misses" NONE [evictable misses] "Look-ups that did not."
    Counter "evictable_cache_insertions" NONE [evictable insertions] "Values put in."
    Counter "evictable_cache_evictions" NONE [|it, write| {
        let evicted = ("cause", ["room", "pressure"]);
        let values = |c: &EvictableRow| Some([c.evicted_for_room, c.evicted_for_pressure]);
        each_of_rows((&it.evictable_caches, "cache"), evicted, write, values)
    }]
        "Entries evicted, by cause: another entry needed the room, or memory was short."
};

/// Metrics of a process's object caches, malloc's size classes among them.
pub static OF_CACHES: &[Family<Figures>] = families! {
    Gauge "cache_object" BYTES [cache size] "Size of an object."
    Gauge "cache_limit_objects" NONE [|it, write| of_rows(&it.caches, "cache", write, |c| most(c.limit))]
        "Objects that may be in use at a time; no sample: any number."
    Gauge "cache_objects" NONE [|it, write| {
        let states = ("state", ["used", "cpu", "depot", "slab"]);
        let values = |c: &CacheRow| Some([c.used, c.free_cpu, c.free_depot, c.free_slab]);
        each_of_rows((&it.caches, "cache"), states, write, values)
    }]
        "Objects by state. used: in use; cpu: free in CPUs' buckets; depot: free in the depot; slab: free in slabs."
    Gauge "cache_slabs" BYTES [cache slab_bytes] "Memory of the slabs."
    Gauge "cache_bucket_objects" NONE [cache bucket] "Objects that a CPU's bucket may hold now; 0: it has none."
    Gauge "cache_working_set_objects" NONE [cache working_set] "Objects of the depot that will be wanted again."
    Gauge "cache_stale" SECONDS
        [|it, write| of_rows(&it.caches, "cache", write, |c| (!c.is_of_runs()).then_some(Value::Real(seconds(c.stale_ns))))]
        "Time since an allocation last found the depot empty, but for time before the process's first window ended; no \
         sample of a cache without a depot."
    Counter "cache_requests" NONE [cache requests]
        "Allocations that succeeded. A forked child's totals of object caches, this and the following, go on from its parent's."
    Counter "cache_failures" NONE [cache failures] "Allocations that failed."
    Counter "cache_depot_visits" NONE [cache visits] "Visits to the depot."
    Counter "cache_misses" NONE [cache misses] "Allocations that found bucket and depot empty."
    Gauge "cache_crossed_objects" NONE [cache crossed]
        "Objects freed on another CPU than they were allocated on, at least: the net flow between CPUs, which falls where it \
         turns round."
    Counter "cache_trims" NONE [cache trims] "Trims that took something."
    Counter "cache_trimmed" BYTES [cache trimmed_bytes] "What trims took from the depot."
    Counter "cache_drains" NONE [cache drains] "Drains that took something."
    Counter "cache_drained" BYTES [cache drained_bytes] "What drains took from CPUs' buckets."
};

/// Metrics of the exporter.
pub static OF_THE_EXPORTER: &[Family<Snapshot>] = families! {
    Gauge "exporter_build" NONE [|_, write| write(&[("version", env!("CARGO_PKG_VERSION"))], Value::Whole(1))]
        "1; the label is the version of the exporter."
    Gauge "exporter_processes" NONE [|it, write| write(&[], Value::Whole(it.processes.len() as u64))]
        "Processes with Weir whose figures are here."
    Gauge "exporter_processes_left_out" NONE [|it, write| write(&[], Value::Whole(it.left_out as u64))]
        "Processes with Weir beyond `--max-processes`, those with the smallest resident sets: raise it, if this is \
         not 0."
    Gauge "exporter_processes_unreadable" NONE [|it, write| {
        let mut each = it.unreadable.iter();
        each.try_for_each(|(reason, &number)| write(&[("reason", reason)], Value::Whole(number as u64)))
    }]
        "Processes without figures, by reason. not_allowed: another user's, with Weir or without; not_answering: a page of its \
         memory was not to be had in time; not_shared: their \
         page of statistics is private; other_version: their Weir is of another release; too_many_files: the exporter may open \
         no further file, raise its `ulimit -n`."
    Gauge "exporter_max_processes" NONE [|it, write| write(&[], Value::Whole(it.extent.processes as u64))]
        "Processes that are exported at most."
    Gauge "exporter_duration" SECONDS [|it, write| write(&[], Value::Real(it.took.as_secs_f64()))]
        "Time that it took to read the figures of all processes."
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::snapshot::Labels;
    use crate::figures::memory::Memory;
    use crate::inspect::page::Page;
    use procfs::process::Process;
    use weir_core::telemetry::stats::PAGE_BYTES;

    #[test]
    fn what_has_no_bound_has_no_sample_of_one() {
        let evictable = |max_bytes| EvictableRow { max_bytes, ..EvictableRow::default() };
        let cache = |limit| CacheRow { limit, ..CacheRow::default() };
        let figures = Figures {
            labels: Labels::of(Process::myself().unwrap().stat().unwrap()),
            memory: Memory::default(),
            started: None,
            page: Page::of(&[0; PAGE_BYTES]).unwrap(),
            zones: Vec::new(),
            evictable_caches: vec![("bounded".into(), evictable(7)), ("unbounded".into(), evictable(u64::MAX))],
            caches: vec![("bounded".into(), cache(7)), ("unbounded".into(), cache(u64::MAX))],
            rows_left_out: 0,
        };
        for name in ["evictable_cache_max", "cache_limit_objects"] {
            let mut names = Vec::new();
            let family = OF_PROCESSES.iter().chain(OF_CACHES).find(|family| family.name == name).unwrap();
            let mut write = |labels: &[(&'static str, &str)], _: Value| {
                names.extend(labels.iter().map(|(_, name)| (*name).to_owned()));
                Ok(())
            };
            (family.samples)(&figures, &mut write).unwrap();
            assert_eq!(names, ["bounded"], "{name}");
        }
    }
}
