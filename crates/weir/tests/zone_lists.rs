//! Caches along a zone list: a small zone of locked memory first, and the heap behind it; and caches below 4 GiB.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use weir::EvictableCache;
use weir::pressure;
use weir::zone::{BLOCK, Pages, Zone};
use weir_testing::wait_until;

mod common;

const ZONE: usize = 4 << 20;
const PAGE: usize = 4096;
/// An entry with its key and header fills three pages of four times a KiB.
type Value = [u8; 3 * PAGE - 64];

/// A short zone is pressure for all caches of a process, and the balancer that it woke looks at all zones: each test has a process
/// of its own.
#[path = "common/in_child.rs"]
mod own_process;
use own_process::in_child;

/// A zone that lives for good; `None` where so much cannot be locked.
fn locked() -> Option<&'static Zone> {
    Zone::locked(ZONE).ok().map(|zone| &*Box::leak(Box::new(zone)))
}

fn is_in(zone: &Zone, addr: usize) -> bool {
    (zone.as_ptr().addr().get()..zone.as_ptr().addr().get() + zone.size()).contains(&addr)
}

/// Takes the rest of the zone, and more than is free of it: entries there have to go. An eviction is waited for only for so long,
/// so that an allocation may come too early.
fn take_more(zone: &Zone, bytes: usize) -> Vec<Pages<'_>> {
    let mut runs = Vec::new();
    wait_until("what a cache has there is evicted for it", || {
        runs.extend(std::iter::from_fn(|| zone.alloc(64 << 10)).take(bytes / (64 << 10) - runs.len()));
        runs.len() == bytes / (64 << 10)
    });
    runs
}

#[test]
fn entries_lie_in_locked_memory_then_on_the_heap_and_what_is_short_is_what_goes() {
    in_child(|| match locked() {
        Some(zone) => lies_in_the_zone_first(zone),
        None => weir_testing::skip!("4 MiB cannot be locked"),
    });
}

#[test]
fn entries_lie_in_huge_pages_then_on_the_heap_and_what_is_short_is_what_goes() {
    in_child(|| {
        let zone = Zone::hugetlb(ZONE).ok().map(|zone| &*Box::leak(Box::new(zone)));
        // The pool may have fewer pages than the zone.
        match zone.filter(|zone| zone.alloc(ZONE).is_some()) {
            Some(zone) => lies_in_the_zone_first(zone),
            None => weir_testing::skip!("the system's pool has no 4 MiB in huge pages"),
        }
    });
}

fn lies_in_the_zone_first(zone: &'static Zone) {
    let cache = EvictableCache::<u32, Value>::builder().zone_first(zone).build().unwrap();
    for key in 0..1000 {
        drop(cache.insert(key, [7; 3 * PAGE - 64]).unwrap());
    }
    let place = |key: &u32| cache.get(key).map(|entry| is_in(zone, std::ptr::from_ref(&*entry).addr()));
    let count = |is_there| (0..1000).filter(|key| place(key) == Some(is_there)).count();
    let (in_zone, on_heap) = (count(true), count(false));
    assert_eq!(in_zone + on_heap, 1000, "whatever lies where, there is room");
    assert_eq!(in_zone * 3 * PAGE, zone.usage().used_bytes);
    assert!(
        (ZONE * 3 / 4..ZONE * 19 / 20).contains(&zone.usage().used_bytes),
        "down to its low mark: {:?}",
        zone.usage()
    );
    let runs = take_more(zone, ZONE / 2);
    assert_eq!(count(false), on_heap, "entries elsewhere would not help");
    // The balancer may go on until its high mark, after the allocation was served.
    weir_testing::wait_until("entries in the zone to have gone for pressure", || {
        let left = count(true);
        left * 3 * PAGE <= ZONE / 2 && cache.stats().evicted_for_pressure as usize == in_zone - left
    });
    drop(runs);
}

#[test]
fn a_cache_that_has_a_zone_alone_grows_while_that_has_room_and_no_further() {
    in_child(|| {
        let Some(zone) = locked() else { return weir_testing::skip!("4 MiB cannot be locked") };
        let cache = EvictableCache::<u32, Value>::builder().zone(zone).build().unwrap();
        let before = pressure::latest().generation;
        (0..1000).for_each(|key| drop(cache.insert(key, [7; 3 * PAGE - 64]).unwrap()));
        let used = zone.usage().used_bytes;
        assert!((ZONE * 3 / 4..ZONE * 19 / 20).contains(&used), "down to its low mark: {used}");
        assert_eq!(pressure::latest().generation, before, "a cache that is full is no pressure");
    });
}

#[test]
fn a_zone_that_is_used_up_takes_nothing_from_a_cache_in_another_one() {
    in_child(|| {
        let (Some(zone), Ok(full)) = (locked(), Zone::locked(BLOCK)) else {
            return weir_testing::skip!("6 MiB cannot be locked");
        };
        let cache = EvictableCache::<u32, Value>::builder().zone_first(zone).build().unwrap();
        (0..1000).for_each(|key| drop(cache.insert(key, [7; 3 * PAGE - 64]).unwrap()));
        let used = zone.usage().used_bytes;
        assert!(used >= ZONE * 3 / 4);
        let runs: Vec<_> = std::iter::from_fn(|| full.alloc(64 << 10)).collect();
        assert_eq!(runs.len(), BLOCK / (64 << 10));
        (0..10).for_each(|_| assert!(full.alloc(64 << 10).is_none()));
        assert_eq!(zone.usage().used_bytes, used, "what lies there makes no room elsewhere");
    });
}

/// A value of which the memory lies in a zone or on the heap.
enum Block {
    Locked(Pages<'static>),
    Heap(Box<[u8]>),
}

/// Dropped so far: those in a zone, and those on the heap.
static DROPPED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

impl Drop for Block {
    fn drop(&mut self) {
        let is_on_heap = matches!(self, Self::Heap(block) if block.len() == PAGE);
        DROPPED[usize::from(is_on_heap)].fetch_add(1, Relaxed);
    }
}

#[test]
fn of_values_that_own_memory_in_a_zone_those_go_that_do() {
    in_child(|| {
        let Some(zone) = locked() else { return weir_testing::skip!("4 MiB cannot be locked") };
        let is_locked = |_: &u32, block: &Block| matches!(block, Block::Locked(run) if run.capacity() == PAGE);
        let builder = EvictableCache::<u32, Block>::builder().weigher(|_, _| PAGE).values_in(zone, is_locked);
        let cache = builder.build().unwrap();
        for key in 0..2000 {
            let block = zone.alloc_first(PAGE).map_or_else(|| Block::Heap(vec![0; PAGE].into()), Block::Locked);
            drop(cache.insert(key, block).map_err(|_| "refused").unwrap());
        }
        let in_zone = zone.usage().used_bytes / PAGE;
        assert!((100..2000).contains(&in_zone) && cache.len() == 2000, "{in_zone} of {}", cache.len());
        let runs = take_more(zone, ZONE / 2);
        let dropped = DROPPED.each_ref().map(|count| count.load(Relaxed));
        assert!(dropped[0] >= in_zone - ZONE / 2 / PAGE && dropped[1] == 0, "{dropped:?}");
        drop(runs);
    });
}

/// The closure is the program's code: called once for an entry, before that is in the cache, and under no lock.
#[test]
fn what_says_where_values_lie_may_panic_and_may_use_the_cache() {
    in_child(|| {
        let Some(zone) = locked() else { return weir_testing::skip!("4 MiB cannot be locked") };
        static CACHE: OnceLock<EvictableCache<u32, String>> = OnceLock::new();
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let is_there = |key: &u32, _: &String| {
            ASKED.fetch_add(1, Relaxed);
            assert!(!(10..20).contains(key) || CACHE.get().unwrap().get(&0).is_none(), "on purpose");
            CACHE.get().unwrap().get(&1).is_some_and(|one| one.is_empty())
        };
        let cache = EvictableCache::builder().weighed().max_bytes(1 << 20).values_in(zone, is_there).build().unwrap();
        let cache = CACHE.get_or_init(|| cache);
        let put = |key: u32, value: &str| catch_unwind(|| drop(cache.insert(key, value.to_string()).unwrap()));
        put(10, "the former").unwrap();
        put(0, "from here on it panics").unwrap();
        for key in 10..20 {
            let said = put(key, "a value that is dropped").unwrap_err();
            assert_eq!(said.downcast_ref::<&str>(), Some(&"on purpose"));
        }
        assert_eq!(cache.iter().map(|entry| *entry.key()).collect::<BTreeSet<_>>(), [0, 10].into());
        assert_eq!(&cache.get(&10).unwrap()[..], "the former");
        // What it says later is no matter.
        put(1, "").unwrap();
        let asked = ASKED.load(Relaxed);
        cache.evict(usize::MAX);
        assert_eq!((ASKED.load(Relaxed), cache.len(), cache.bytes()), (asked, 0, 0));
    });
}

#[test]
fn a_cache_below_4_gib_holds_what_32_bits_can_address() {
    in_child(|| {
        let cache = EvictableCache::<u32, [u8; 100]>::builder().below_4_gib().build().unwrap();
        (0..100).for_each(|key| drop(cache.insert(key, [1; 100]).unwrap()));
        assert!(cache.iter().all(|entry| std::ptr::from_ref(&*entry).addr() < 1 << 32));
        assert_eq!((cache.len(), cache.bytes()), (100, 100 * PAGE));
        assert_eq!(cache.evict(PAGE), PAGE);
    });
}

#[test]
fn a_cache_whose_write_back_lags_does_not_grow() {
    in_child(|| {
        let cache = EvictableCache::<u32, Value>::builder().build().unwrap();
        drop(cache.insert(0, [0; 3 * PAGE - 64]).unwrap());
        cache.set_congested(true);
        (1..1000).for_each(|key| drop(cache.insert(key, [0; 3 * PAGE - 64])));
        let held = cache.len();
        cache.set_congested(false);
        (1..1000).for_each(|key| drop(cache.insert(key, [0; 3 * PAGE - 64])));
        assert!(held < 100 && cache.len() >= 999, "{held} and {} entries", cache.len());
    });
}
