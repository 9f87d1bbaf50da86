//! Caches on the page of statistics, which other processes read.

use crate::eviction::reclaim::{forked::in_forked, in_child};
use weir::{ByteCache, EvictableCache};
use weir_core::base::cost::Cost;
use weir_core::telemetry::tables::EvictableRow;
use weir_linux::platform::statics::STATS;
use weir_testing::wait_until;

/// Has the background thread start, and a calm window end.
pub fn free_some() {
    let blocks: Vec<_> = (0..1000).map(|_| weir::heap::alloc_zeroed(16 << 10)).collect();
    for block in blocks {
        // SAFETY: allocated above, and freed once.
        unsafe { weir::heap::free(block) };
    }
}

fn row() -> Option<EvictableRow> {
    let (mut rows, _) = STATS.evictable_caches.read::<EvictableRow>()?;
    rows.find(|row| row.name() == "shown")
}

#[test]
fn a_cache_is_shown_with_what_it_holds_even_while_it_is_used() {
    in_child(|| {
        let cache = EvictableCache::<u64, u64>::builder().name("shown").max_bytes(8 << 20).build().unwrap();
        (0..100).for_each(|key| drop(cache.insert(key, key).unwrap()));
        wait_until("the cache is shown", || {
            free_some();
            // Its locks are held much of the time.
            (0..100_000).for_each(|key| drop(cache.get(&(key % 200))));
            row().is_some_and(|row| row.entries == 100 && row.hits > 0 && row.misses > 0)
        });
        let row = row().unwrap();
        assert_eq!((row.insertions, row.max_bytes), (100, 8 << 20), "{row:?}");
        assert!(row.bytes > 0 && row.bytes <= row.target_bytes, "{row:?}");
        drop(cache);
        wait_until("the cache is not shown any more", || {
            free_some();
            self::row().is_none()
        });
    });
}

#[test]
fn a_forked_child_shows_its_own_counts() {
    in_child(|| {
        let cache = EvictableCache::<u64, u64>::builder().name("shown").max_bytes(8 << 20).build().unwrap();
        (0..100).for_each(|key| drop(cache.insert(key, key).unwrap()));
        (0..150).for_each(|key| drop(cache.get(&key)));
        in_forked(|| {
            (0..110).for_each(|key| drop(cache.get(&key)));
            wait_until("the child shows its cache", || {
                free_some();
                row().is_some()
            });
            let row = row().unwrap();
            assert_eq!((row.entries, row.hits, row.misses, row.insertions), (100, 100, 10, 0), "{row:?}");
            assert_eq!(cache.stats().hits, 200, "the cache's own figures are of its whole life");
        });
    });
}

#[test]
fn a_cache_has_its_price_on_the_cost_curve() {
    in_child(|| {
        let cache = EvictableCache::<u64, u64>::builder().name("shown").max_bytes(8 << 20).build().unwrap();
        let compute = || {
            std::thread::sleep(std::time::Duration::from_millis(2));
            7
        };
        (0..20).for_each(|key| drop(cache.get_or_insert_with(key, compute)));
        wait_until("the cache has a price", || {
            free_some();
            (0..100_000).for_each(|key| drop(cache.get(&(key % 20))));
            row().is_some_and(|row| row.hit_rate > 0)
        });
        let row = row().unwrap();
        assert!(row.miss_ns >= 2_000_000 && row.spare_bytes > 0 && row.return_rate == 0, "{row:?}");
        wait_until("the cache is on the curve", || {
            free_some();
            let Some((points, _)) = STATS.costs.read::<Cost>() else { return false };
            points.last().is_some_and(|all| all.bytes >= row.spare_bytes && all.lost_ppm > 900_000)
        });
    });
}

#[test]
fn of_many_caches_all_are_on_the_curve_and_the_one_that_holds_most_has_a_row() {
    in_child(|| {
        let cache = ByteCache::builder().name("shown").build().unwrap();
        (0..64u8).for_each(|key| drop(cache.insert(&[key], &[key; 128 << 10]).unwrap()));
        let others = [(); 16].map(|()| ByteCache::builder().build().unwrap());
        let rows =
            || STATS.evictable_caches.read::<EvictableRow>().map(|(rows, more)| (rows.collect::<Vec<_>>(), more));
        wait_until("all are shown", || {
            free_some();
            rows().is_some_and(|(rows, _)| rows.iter().any(|row| row.name() == "others"))
        });
        let (rows, more) = rows().unwrap();
        assert_eq!((rows.len(), more, row().map(|row| row.entries)), (16, 0, Some(64)));
        let (points, _) = STATS.costs.read::<Cost>().unwrap();
        assert!(points.last().is_some_and(|all| all.bytes >= 8 << 20));
        drop(others);
    });
}

#[test]
fn a_miss_that_is_not_timed_takes_as_long_as_the_program_says() {
    in_child(|| {
        let time = std::time::Duration::from_millis(10);
        let cache = ByteCache::builder().name("shown").miss_time(time).build().unwrap();
        drop(cache.insert(b"key", b"value").unwrap());
        wait_until("the cache is shown", || {
            free_some();
            row().is_some()
        });
        assert_eq!(row().unwrap().miss_ns, 10_000_000);
        let compute = |value: &mut [u8]| {
            value.fill(1);
            Ok::<(), ()>(())
        };
        drop(cache.get_or_fill(b"other", 10, compute).unwrap());
        wait_until("a computation was timed", || {
            free_some();
            row().is_some_and(|row| row.miss_ns < 10_000_000)
        });
    });
}

#[test]
fn a_duel_of_settings_begins_with_an_eighth_of_the_cache() {
    // A duel that begins late compares caches with another history than the cache has. Its memory is the cache's own.
    let builder = EvictableCache::<u64, u64>::builder().min_bytes(1000).max_bytes(1000).weigher(|_, _| 1);
    let cache = builder.shards(1).build().unwrap();
    (0..124).for_each(|key| drop(cache.insert(key, key).unwrap()));
    let without = cache.stats().metadata_bytes;
    drop(cache.insert(124, 124).unwrap());
    let with = cache.stats().metadata_bytes;
    assert!(without < 32 << 10 && with > without + (30 << 10), "{without} bytes, then {with}");
}
