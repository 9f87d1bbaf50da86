//! How much a scan takes of each evictable cache; and one call of a shrinker: how much of its cache it is told to free, in batches,
//! and what is deferred.

use super::callback::{Callback, Entry, GONE, LEAVING, Panicked, STOP, Scan};
use crate::platform::Clock;
use crate::policy::deferred::Plan;
use crate::policy::prices::Bar;
use core::sync::atomic::Ordering::Relaxed;

/// Batches of a run at most: 4 GiB in those of 64 KiB. A shrinker that wants a byte at a time would else be called 10^10 times.
const MOST_BATCHES: usize = 1 << 16;

/// The bar of a scan that goes by price: together these caches give what each would give by itself, and no more than the scan
/// takes.
pub(super) fn bar<'a>(caches: impl Iterator<Item = &'a Entry> + Clone, scan: &Scan) -> Bar {
    let alone = |entry: &Entry| {
        let bytes = entry.priced()?.bytes();
        Some(Plan::new(bytes, 0, scan.priority, entry.seeks, scan.most)?.total.min(bytes))
    };
    let wanted = caches.clone().filter_map(alone).fold(0, usize::saturating_add).min(scan.most);
    Bar::new(caches.filter_map(Entry::priced), wanted as u64)
}

/// The part of one cache in a scan with this bar, as it is if its prices are not known; `None`: it keeps what it has. Less than a
/// batch, and less than all that it has, is deferred: many small caches would each lose a batch for it.
pub(super) fn part(entry: &Entry, scan: Scan, bar: &Bar) -> Option<Scan> {
    let Some(cache) = entry.priced() else { return Some(scan) };
    let (part, bytes) = (bar.part_of(&cache) as usize, cache.bytes());
    if part == 0 {
        return None;
    }
    let owed = entry.deferred.take().saturating_add(part).min(bytes);
    if owed < entry.batch && owed < bytes {
        entry.deferred.add(owed);
        return None;
    }
    Some(Scan { priority: 0, most: owed, ..scan })
}

/// Has a shrinker scan; returns the bytes freed, also where a panic ended it.
pub(super) fn shrink(
    clock: &impl Clock,
    entry: &Entry,
    callback: &dyn Callback,
    scan: Scan,
) -> (usize, Result<(), Panicked>) {
    let freeable = match entry.timed(clock, || callback.count()) {
        Ok(bytes) => bytes,
        Err(panicked) => return (0, Err(panicked)),
    };
    entry.counted.store(freeable, Relaxed);
    let deferred = entry.deferred.take();
    // Less than a batch is not scanned at all.
    let most = scan.most.max(entry.batch);
    let Some(plan) = Plan::new(freeable, deferred, scan.priority, entry.seeks, most) else {
        entry.deferred.add(deferred);
        return (0, Ok(()));
    };
    let batch = entry.batch.max(plan.total.div_ceil(MOST_BATCHES));
    let (mut scanned, mut freed, mut result) = (0, 0usize, Ok(()));
    while let Some(bytes) = plan.batch(scanned, batch) {
        // It unregistered itself in the batch before, or another thread waits to: it is not called again.
        if entry.is(GONE | LEAVING) {
            break;
        }
        match entry.timed(clock, || callback.scan(bytes, scan.reason)) {
            Ok(STOP) => {
                callback.prices().inspect(|(prices, _)| prices.forget());
                break;
            }
            // No more than there can be, whatever it says: others add to it.
            Ok(bytes_freed) => freed = freed.saturating_add(bytes_freed).min(most),
            Err(panicked) => {
                result = Err(panicked);
                break;
            }
        }
        scanned += bytes;
        if freed >= scan.enough {
            break;
        }
    }
    entry.counted.store(freeable.saturating_sub(freed), Relaxed);
    callback.prices().inspect(|(prices, _)| prices.take(freed as u64));
    let result = result.and(callback.scanned());
    // As much as was missing is free: of the rest nothing is owed.
    entry.deferred.add(if freed >= scan.enough { 0 } else { plan.left(scanned) });
    (freed, result)
}
