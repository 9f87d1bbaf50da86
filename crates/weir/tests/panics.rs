//! Panics in a program's own code cost no object, and no other value than the one that they are about.

use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use weir::{CacheBox, ObjectCache, Retained};
use weir_testing::wait_for_used;

/// Counts itself; its drop panics if it is the `bad` one.
struct Counted<'a> {
    alive: &'a AtomicUsize,
    bad: bool,
}

impl<'a> Counted<'a> {
    fn new(alive: &'a AtomicUsize, bad: bool) -> Self {
        alive.fetch_add(1, Relaxed);
        Self { alive, bad }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
        assert!(!self.bad, "a bad value");
    }
}

fn panics<T>(f: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

#[test]
fn a_value_whose_drop_panics_gives_its_object_back() {
    let alive = AtomicUsize::new(0);
    let cache = ObjectCache::builder("bad drops").limit(100).build().unwrap();
    for _ in 0..1000 {
        let object = cache.alloc(Counted::new(&alive, true)).unwrap();
        assert!(panics(|| drop(object)));
    }
    assert_eq!(alive.load(Relaxed), 0);
    wait_for_used(|| cache.stats().used, 0);
}

#[test]
fn a_drop_that_panics_in_a_batch_frees_the_rest() {
    let alive = AtomicUsize::new(0);
    let cache = ObjectCache::builder("bad batches").limit(500).build().unwrap();
    for bad in [0, 1, 63, 64, 65, 200, 299] {
        let boxes: Vec<_> = (0..300).map(|i| cache.alloc(Counted::new(&alive, i == bad)).unwrap()).collect();
        assert!(panics(|| cache.free_batch(boxes)));
        assert_eq!(alive.load(Relaxed), 0, "with the one at {bad}");
        wait_for_used(|| cache.stats().used, 0);
    }
}

#[test]
fn boxes_that_fail_to_come_leave_no_object_behind() {
    let cache = ObjectCache::<u64>::builder("bad iterators").limit(100).build().unwrap();
    let boxes = (0..90).map(|i| {
        assert!(i < 70, "no more");
        cache.alloc(i).unwrap()
    });
    assert!(panics(|| cache.free_batch(boxes)));
    wait_for_used(|| cache.stats().used, 0);
}

#[test]
fn a_batch_whose_values_cannot_be_made_keeps_what_was_and_frees_the_rest() {
    let alive = AtomicUsize::new(0);
    let cache = ObjectCache::builder("bad values").limit(1000).build().unwrap();
    for good in [0, 1, 63, 64, 100, 199] {
        let mut places: Vec<Option<CacheBox<'_, Counted<'_>>>> = (0..200).map(|_| None).collect();
        let mut made = 0;
        let value = || {
            assert!(made < good, "no more");
            made += 1;
            Counted::new(&alive, false)
        };
        assert!(panics(|| cache.alloc_batch(&mut places, value)));
        assert!(places.iter().map(Option::is_some).eq((0..200).map(|i| i < good)));
        assert_eq!(alive.load(Relaxed), good);
        wait_for_used(|| cache.stats().used, good);
        drop(places);
        assert_eq!(alive.load(Relaxed), 0);
        wait_for_used(|| cache.stats().used, 0);
    }
}

#[test]
fn hooks_of_kept_values_may_panic() {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let every_third = || assert!(!COUNT.fetch_add(1, Relaxed).is_multiple_of(3), "a third");
    let cache: ObjectCache<u64, Retained> = ObjectCache::builder("bad hooks")
        .limit(100)
        .retained(|| Some(7), move |_| every_third(), move |_| every_third())
        .unwrap();
    let mut failed = 0;
    for _ in 0..1000 {
        failed += usize::from(panics(|| drop(cache.alloc().unwrap())));
        let mut places: Vec<_> = (0..5).map(|_| None).collect();
        failed += usize::from(panics(|| cache.alloc_batch(&mut places)));
        for place in places {
            failed += usize::from(panics(|| drop(place)));
        }
        wait_for_used(|| cache.stats().used, 0);
    }
    assert!(failed > 1000, "{failed} panics");
}

#[test]
fn a_kept_value_is_handed_out_again_as_a_panic_of_its_closure_left_it() {
    let on_free = |value: &mut [u64; 2]| {
        value[0] += 1;
        assert!(value[1] != 7, "before the rest");
        value[1] = 0;
    };
    let cache: ObjectCache<[u64; 2], Retained> =
        ObjectCache::builder("half").limit(1).retained(|| Some([0; 2]), |_| (), on_free).unwrap();
    let mut value = cache.alloc().unwrap();
    value[1] = 7;
    let at = (&raw const *value).addr();
    assert!(panics(|| drop(value)));
    let mut again = cache.alloc().unwrap();
    assert_eq!(((&raw const *again).addr(), *again), (at, [1, 7]));
    again[1] = 0;
}

/// No panic leaves one of them half-way, so a program may use them in `catch_unwind`.
#[test]
fn handles_may_cross_catch_unwind() {
    fn crosses<T: UnwindSafe + RefUnwindSafe>() {}
    crosses::<weir::zone::Zone>();
    crosses::<weir::zone::Pages<'_>>();
    crosses::<weir::PagePool>();
    crosses::<weir::ObjectCache<u64>>();
    crosses::<weir::EvictableCache<u64, u64>>();
    crosses::<weir::shrinker::Shrinker>();
    crosses::<weir::shrinker::CallbackQueue>();
    crosses::<weir::pressure::Subscription>();
    crosses::<weir::pressure::PressureEvents>();
}

#[test]
fn a_kept_value_that_cannot_be_made_leaves_nothing_behind() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let new = || {
        // The objects of a slab are made together: the tenth of the first slabs fails.
        assert!(MADE.fetch_add(1, Relaxed) % 10 != 9 || MADE.load(Relaxed) > 100, "the tenth");
        Some(Counted::new(&ALIVE, false))
    };
    let cache: ObjectCache<Counted<'static>, Retained> =
        ObjectCache::builder("bad slabs").limit(1000).retained(new, |_| (), |_| ()).unwrap();
    let used = weir::heap::usage().live_bytes;
    let mut failed = 0;
    while failed < 5 {
        assert!(panics(|| cache.alloc()));
        failed += 1;
        let mut places: Vec<_> = (0..100).map(|_| None).collect();
        assert!(panics(|| cache.alloc_batch(&mut places)));
        failed += 1;
    }
    assert_eq!(ALIVE.load(Relaxed), 0);
    wait_for_used(|| cache.stats().used, 0);
    assert!(weir::heap::usage().live_bytes <= used + (64 << 10), "slabs stayed");
    // It goes on once values can be made.
    MADE.store(1000, Relaxed);
    let held: Vec<_> = (0..500).map(|_| cache.alloc().unwrap()).collect();
    wait_for_used(|| cache.stats().used, 500);
    drop(held);
    drop(cache);
    assert_eq!(ALIVE.load(Relaxed), 0);
}

#[test]
fn runs_that_fail_to_come_go_back_into_their_pool() {
    let pool = weir::PagePool::new("bad iterator").unwrap();
    let runs = (0..40).map(|i| {
        assert!(i < 21, "no more");
        pool.get().unwrap()
    });
    assert!(panics(|| pool.put_batch(runs)));
    assert_eq!(pool.stats().in_flight_pages, 0);
}
