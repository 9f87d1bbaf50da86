//! The cost curve: what is idle, evictable caches and shrinkers, cheapest first.

use super::*;
use weir_core::base::cost::Cost;
use weir_core::reclaim::Usage;
use weir_core::telemetry::tables::EvictableRow;

const MIB: u64 = 1 << 20;

fn points(heap: TheHeap, usage: &Usage, caches: &[EvictableRow]) -> Vec<Cost> {
    heap.figures().publish_costs(usage, |add| {
        caches.iter().for_each(|row| add(row, &Prices::new()));
        true
    });
    heap.platform().stats().costs.read().unwrap().0.collect()
}

#[test]
fn the_cheapest_bytes_come_first_and_what_shrinkers_have_is_known_from_their_last_scan() {
    let (heap, queue) = served();
    assert_eq!(points(heap, &Usage::default(), &[]), []);
    heap.platform().touch_ns.store(1_000_000, Relaxed);
    let mut usage = Usage::default();
    usage.idle = 10 << 20;
    let idle = Cost { bytes: 10 * MIB, once_ns: 10_000_000, ..Cost::default() };
    assert_eq!(points(heap, &usage, &[]), [idle]);

    // 100 hits a second, and 10 ms each.
    let bytes = 40 * MIB;
    let (hit_rate, miss_ns) = (100_000, 10_000_000);
    let cache = EvictableRow { bytes, spare_bytes: bytes, hit_rate, miss_ns, ..EvictableRow::default() };
    let with_cache = points(heap, &usage, &[cache]);
    assert_eq!((with_cache.len(), with_cache[0]), (5, idle), "the cache is told in four parts");
    let all = Cost { bytes: 50 * MIB, once_ns: 10_000_000, second_ns: 1_000_000_000, lost_ppm: 1_000_000 };
    assert_eq!(with_cache[4], all);
    // It gave more for pressure than for room: that one key came back tells nothing.
    let gave = EvictableRow { return_rate: 1, evicted_for_pressure: 2, evicted_for_room: 1, ..cache };
    assert_eq!(points(heap, &usage, &[gave]), with_cache);
    assert_ne!(points(heap, &usage, &[EvictableRow { evicted_for_pressure: 1, ..gave }]), with_cache);

    let (shrinker, told) = register(heap, queue, shrinker("shrinker", Class::Program), SIZE, None);
    assert_eq!(points(heap, &usage, &[cache]), with_cache, "it was never asked");
    pressure(heap, Level::Some);
    // The last priority, 10, scanned it four times.
    let left = (SIZE - told.scans.lock().unwrap().iter().rev().take(4).sum::<usize>()) as u64;
    let asked = points(heap, &usage, &[cache]);
    assert_eq!(asked[5].bytes, all.bytes + left);
    // Four accesses to storage of 100 us for each page.
    assert_eq!(asked[5].once_ns, all.once_ns + left / 4096 * 400_000);
    assert!(!heap.figures().publish_costs(&usage, |_| false), "a lock is held");
    assert_eq!(heap.platform().stats().costs.read::<Cost>().unwrap().0.collect::<Vec<_>>(), asked);
    shrinker.unregister(heap);
    assert_eq!(points(heap, &usage, &[cache]), with_cache);
}
