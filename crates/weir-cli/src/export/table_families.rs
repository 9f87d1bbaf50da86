//! The metrics of zones, evictable caches and object caches.

use super::families::{BYTES, Family, SECONDS, Value, Write, counter, gauge};
use super::histogram::seconds;
use super::snapshot::Figures;
use std::fmt;
use weir_core::telemetry::tables::{CacheRow, EvictableRow, ZoneRow};

fn zones(it: &Figures, write: Write<'_>, figure: fn(&ZoneRow) -> u64) -> fmt::Result {
    it.zones.iter().try_for_each(|(name, row)| write(&[("zone", name)], Value::Whole(figure(row))))
}

/// Of zones that something limits.
fn limited_zones(it: &Figures, write: Write<'_>, figure: fn(&ZoneRow) -> u64) -> fmt::Result {
    let mut limited = it.zones.iter().filter(|(_, row)| row.capacity > 0);
    limited.try_for_each(|(name, row)| write(&[("zone", name)], Value::Whole(figure(row))))
}

fn evictable(it: &Figures, write: Write<'_>, figure: fn(&EvictableRow) -> u64) -> fmt::Result {
    it.evictable_caches.iter().try_for_each(|(name, row)| write(&[("cache", name)], Value::Whole(figure(row))))
}

fn caches(it: &Figures, write: Write<'_>, figure: fn(&CacheRow) -> u64) -> fmt::Result {
    it.caches.iter().try_for_each(|(name, row)| write(&[("cache", name)], Value::Whole(figure(row))))
}

/// Metrics of a process's zones and evictable caches.
pub static OF_ZONES_AND_EVICTABLE_CACHES: &[Family<Figures>] = &[
    gauge("zone_space", BYTES, "Address space of the zone, resident or not.", |it, write| {
        zones(it, write, |z| z.bytes)
    }),
    gauge("zone_used", BYTES, "Memory that the zone has handed out.", |it, write| zones(it, write, |z| z.used)),
    gauge("zone_idle", BYTES, "Memory of the zone that is free and resident.", |it, write| {
        zones(it, write, |z| z.idle)
    }),
    gauge("zone_capacity", BYTES, "What the zone may hold: the tightest limit; no sample without one.", |it, write| {
        limited_zones(it, write, |z| z.capacity)
    }),
    gauge("zone_free", BYTES, "What may still become resident below that limit.", |it, write| {
        limited_zones(it, write, |z| z.free)
    }),
    gauge(
        "zone_watermark",
        BYTES,
        "Marks of what may still become resident. Below min an allocation reclaims by itself, below low the balancer \
         wakes, above high it sleeps.",
        |it, write| {
            it.zones.iter().filter(|(_, row)| row.capacity > 0).try_for_each(|(name, row)| {
                let mut marks = [("min", row.min), ("low", row.low), ("high", row.high)].into_iter();
                marks.try_for_each(|(mark, bytes)| write(&[("zone", name), ("mark", mark)], Value::Whole(bytes)))
            })
        },
    ),
    gauge("evictable_cache", BYTES, "What the entries of the evictable cache weigh.", |it, write| {
        evictable(it, write, |c| c.bytes)
    }),
    gauge("evictable_cache_target", BYTES, "What it may hold now.", |it, write| {
        evictable(it, write, |c| c.target_bytes)
    }),
    gauge("evictable_cache_max", BYTES, "What it may hold at most.", |it, write| evictable(it, write, |c| c.max_bytes)),
    gauge("evictable_cache_dirty", BYTES, "What is dirty and not being written back.", |it, write| {
        evictable(it, write, |c| c.dirty_bytes)
    }),
    gauge("evictable_cache_entries", None, "Entries.", |it, write| evictable(it, write, |c| c.entries)),
    counter("evictable_cache_hits", None, "Look-ups that found their key.", |it, write| {
        evictable(it, write, |c| c.hits)
    }),
    counter("evictable_cache_misses", None, "Look-ups that did not.", |it, write| evictable(it, write, |c| c.misses)),
    counter("evictable_cache_insertions", None, "Values put in.", |it, write| evictable(it, write, |c| c.insertions)),
    counter(
        "evictable_cache_evictions",
        None,
        "Entries evicted, by cause: another entry needed the room, or memory was short.",
        |it, write| {
            it.evictable_caches.iter().try_for_each(|(name, row)| {
                let mut causes = [("room", row.evicted_for_room), ("pressure", row.evicted_for_pressure)].into_iter();
                causes.try_for_each(|(cause, n)| write(&[("cache", name), ("cause", cause)], Value::Whole(n)))
            })
        },
    ),
];

/// Metrics of a process's object caches, malloc's size classes among them.
pub static OF_CACHES: &[Family<Figures>] = &[
    gauge("cache_object", BYTES, "Size of an object.", |it, write| caches(it, write, |c| c.size)),
    gauge("cache_limit_objects", None, "Objects that may be in use at a time; no sample: any number.", |it, write| {
        let mut limited = it.caches.iter().filter(|(_, row)| row.limit != u64::MAX);
        limited.try_for_each(|(name, row)| write(&[("cache", name)], Value::Whole(row.limit)))
    }),
    gauge(
        "cache_objects",
        None,
        "Objects by state. used: in use; cpu: free in CPUs' buckets; depot: free in the depot; slab: free in slabs.",
        |it, write| {
            it.caches.iter().try_for_each(|(name, row)| {
                let states =
                    [("used", row.used), ("cpu", row.free_cpu), ("depot", row.free_depot), ("slab", row.free_slab)];
                let mut states = states.into_iter();
                states.try_for_each(|(state, n)| write(&[("cache", name), ("state", state)], Value::Whole(n)))
            })
        },
    ),
    gauge("cache_slabs", BYTES, "Memory of the slabs.", |it, write| caches(it, write, |c| c.slab_bytes)),
    gauge("cache_bucket_objects", None, "Objects that a CPU's bucket may hold now; 0: it has none.", |it, write| {
        caches(it, write, |c| c.bucket)
    }),
    gauge("cache_working_set_objects", None, "Objects of the depot that will be wanted again.", |it, write| {
        caches(it, write, |c| c.working_set)
    }),
    gauge("cache_stale", SECONDS, "Time since an allocation last found the depot empty.", |it, write| {
        it.caches.iter().try_for_each(|(name, row)| write(&[("cache", name)], Value::Real(seconds(row.stale_ns))))
    }),
    counter("cache_requests", None, "Allocations that succeeded.", |it, write| caches(it, write, |c| c.requests)),
    counter("cache_failures", None, "Allocations that failed.", |it, write| caches(it, write, |c| c.failures)),
    counter("cache_depot_visits", None, "Visits to the depot.", |it, write| caches(it, write, |c| c.visits)),
    counter("cache_misses", None, "Allocations that found bucket and depot empty.", |it, write| {
        caches(it, write, |c| c.misses)
    }),
    counter(
        "cache_crossed",
        None,
        "Objects freed on another CPU than they were allocated on, at least.",
        |it, write| caches(it, write, |c| c.crossed),
    ),
    counter("cache_trims", None, "Trims that took something.", |it, write| caches(it, write, |c| c.trims)),
    counter("cache_trimmed", BYTES, "What trims took from the depot.", |it, write| {
        caches(it, write, |c| c.trimmed_bytes)
    }),
    counter("cache_drains", None, "Drains that took something.", |it, write| caches(it, write, |c| c.drains)),
    counter("cache_drained", BYTES, "What drains took from CPUs' buckets.", |it, write| {
        caches(it, write, |c| c.drained_bytes)
    }),
];
