//! Typed caches: values are made, kept and dropped as often as they should be, whoever frees them.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::ThreadId;

use weir::{AllocError, CacheBox, CacheError, ObjectCache, Retained};
use weir_testing::{wait_for_used, wait_until};

mod common;

/// Counts itself.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[test]
fn a_moved_value_is_dropped_once() {
    let count = AtomicUsize::new(0);
    let cache = ObjectCache::new("moved").unwrap();
    let boxes: Vec<_> = (0..1000).map(|_| cache.alloc(Counted::new(&count)).unwrap()).collect();
    assert_eq!(count.load(Relaxed), 1000);
    wait_for_used(|| cache.stats().used, 1000);
    drop(boxes);
    assert_eq!(count.load(Relaxed), 0);
    wait_for_used(|| cache.stats().used, 0);
    let inner = cache.alloc(Counted::new(&count)).unwrap().into_inner();
    assert_eq!(count.load(Relaxed), 1);
    wait_for_used(|| cache.stats().used, 0);
    drop(inner);
    let raw = cache.alloc(Counted::new(&count)).unwrap().into_raw();
    // SAFETY: from `into_raw`, once.
    drop(unsafe { cache.from_raw(raw) });
    assert_eq!(count.load(Relaxed), 0);
}

#[test]
fn batches_fill_empty_places_and_free_all() {
    let count = AtomicUsize::new(0);
    let cache = ObjectCache::new("batches").unwrap();
    let mut places: Vec<Option<CacheBox<'_, Counted<'_>>>> = (0..500).map(|_| None).collect();
    places[7] = Some(cache.alloc(Counted::new(&count)).unwrap());
    assert_eq!(cache.alloc_batch(&mut places, || Counted::new(&count)), 499);
    assert_eq!(count.load(Relaxed), 500);
    wait_for_used(|| cache.stats().used, 500);
    assert_eq!(cache.alloc_batch(&mut places, || Counted::new(&count)), 0);
    cache.free_batch(places.into_iter().flatten());
    assert_eq!(count.load(Relaxed), 0);
    wait_for_used(|| cache.stats().used, 0);
}

#[test]
fn a_limit_gives_the_value_back() {
    let cache = ObjectCache::<String>::builder("limited").limit(2).build().unwrap();
    let one = cache.alloc("one".into()).unwrap();
    let _two = cache.alloc("two".into()).unwrap();
    let Err(AllocError(three)) = cache.alloc("three".into()) else { panic!("a third object of two") };
    assert_eq!(three, "three");
    drop(one);
    assert_eq!(*cache.alloc(three).unwrap(), "three");
    cache.set_limit(10).unwrap();
    let unlimited = ObjectCache::<String>::new("unlimited").unwrap();
    assert_eq!(unlimited.set_limit(10), Err(CacheError::NotLimited));
    assert_eq!((cache.stats().limit, unlimited.stats().limit), (Some(10), None));
    let later = ObjectCache::<String>::builder("limited later").limit(usize::MAX).build().unwrap();
    assert_eq!((later.stats().limit, later.set_limit(0), later.alloc("one".into()).is_ok()), (None, Ok(()), false));
}

#[test]
fn alignments_and_sizes_are_kept() {
    #[repr(align(512))]
    struct Aligned(#[allow(dead_code, reason = "only its place counts")] u8);
    let cache = ObjectCache::new("aligned").unwrap();
    let boxes: Vec<_> = (0..100).map(|i| cache.alloc(Aligned(i)).unwrap()).collect();
    assert!(boxes.iter().all(|object| (&raw const **object).addr().is_multiple_of(512)));
    let nothing = ObjectCache::new("nothing").unwrap();
    let _unit = nothing.alloc(()).unwrap();
    let pages = ObjectCache::<u8>::builder("pages").align(4096).build().unwrap();
    assert!((&raw const *pages.alloc(1).unwrap()).addr().is_multiple_of(4096));
    // Whatever the type needs by itself.
    for align in [0, 3, 6, 48, 8192] {
        let made = ObjectCache::<u64>::builder("odd").align(align).build();
        assert_eq!(made.err(), Some(CacheError::Alignment { align, max: 4096 }));
    }
    assert_eq!(
        ObjectCache::<[u8; 200_000]>::new("large").err(),
        Some(CacheError::ObjectSize { size: 200_000, max: 131_072 })
    );
}

/// The value that is kept: a buffer that is dear to make, and how often it was used.
struct Buffer {
    bytes: Vec<u8>,
    uses: usize,
    _counted: Counted<'static>,
}

#[test]
fn kept_values_are_made_once_and_dropped_when_their_slab_goes() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    let new = || {
        MADE.fetch_add(1, Relaxed);
        Some(Buffer { bytes: vec![0; 100], uses: 0, _counted: Counted::new(&ALIVE) })
    };
    let cache: ObjectCache<Buffer, Retained> =
        ObjectCache::builder("kept").retained(new, |buffer| buffer.uses += 1, |buffer| buffer.bytes[0] = 0).unwrap();
    for _ in 0..10 {
        let mut boxes: Vec<_> = (0..200).map(|_| cache.alloc().unwrap()).collect();
        assert!(boxes.iter_mut().all(|buffer| std::mem::replace(&mut buffer.bytes[0], 1) == 0));
    }
    let made = MADE.load(Relaxed);
    assert!((200..1000).contains(&made), "{made} made for 200 in use at a time");
    let mut places: Vec<_> = (0..100).map(|_| None).collect();
    assert_eq!(cache.alloc_batch(&mut places), 100);
    let uses: usize = places.iter().flatten().map(|buffer| buffer.uses).sum();
    assert!(uses > 100, "{uses} uses");
    cache.free_batch(places.into_iter().flatten());
    // What is not in use is taken down, by this thread or the library's.
    weir::heap::trim();
    wait_until("the last value to be dropped", || ALIVE.load(Relaxed) == 0);
    drop(cache.alloc().unwrap());
    drop(cache);
    assert_eq!(ALIVE.load(Relaxed), 0);
}

/// So that thread must not hold what their drop waits for.
#[test]
fn kept_values_are_dropped_by_a_thread_that_trims_too() {
    struct Value(mpsc::Sender<ThreadId>);
    impl Drop for Value {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().id());
        }
    }
    let (send, dropped) = mpsc::channel();
    let send = Mutex::new(send);
    let new = move || Some(Value(send.lock().unwrap().clone()));
    let cache: ObjectCache<Value, Retained> = ObjectCache::builder("trimmed").retained(new, |_| (), |_| ()).unwrap();
    let me = std::thread::current().id();
    wait_until("this thread to drop a value", || {
        drop(cache.alloc().unwrap());
        weir::heap::trim();
        dropped.try_iter().any(|thread| thread == me)
    });
}

/// Otherwise the thread that drops the value would wait for itself.
#[test]
fn a_cache_that_its_own_value_has_the_last_handle_of_stays() {
    static IS_DROPPED: AtomicBool = AtomicBool::new(false);
    struct Owner(Option<Arc<ObjectCache<Owner, Retained>>>);
    impl Drop for Owner {
        fn drop(&mut self) {
            if self.0.take().is_some() {
                IS_DROPPED.store(true, SeqCst);
            }
        }
    }
    let cache = ObjectCache::builder("owned").retained(|| Some(Owner(None)), |_| (), |_| ()).unwrap();
    let cache = Arc::new(cache);
    let mut owner = cache.alloc().unwrap();
    owner.0 = Some(cache.clone());
    drop(owner);
    drop(cache);
    wait_until("the value to be dropped", || {
        weir::heap::trim();
        IS_DROPPED.load(SeqCst)
    });
}

/// [`ObjectCacheBuilder::retained`](weir::ObjectCacheBuilder::retained) says how many.
#[test]
fn the_first_allocation_makes_the_values_of_one_slab() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    fn made<T: Default + Send + 'static>() -> usize {
        MADE.store(0, Relaxed);
        let new = || {
            MADE.fetch_add(1, Relaxed);
            Some(T::default())
        };
        let cache: ObjectCache<T, Retained> =
            ObjectCache::builder("one").limit(1).retained(new, |_| (), |_| ()).unwrap();
        assert!(cache.alloc().is_some());
        MADE.load(Relaxed)
    }
    let small = [made::<u64>(), made::<[u64; 3]>(), made::<[u64; 4]>(), made::<[u64; 16]>()];
    assert_eq!(small, [1024, 341, 128, 32]);
    assert_eq!([made::<[u64; 32]>(), made::<[[u64; 32]; 2]>(), made::<[[u64; 32]; 8]>()], [16, 8, 8]);
}

/// The dropped ones are those of the slab that could not be had as a whole.
#[test]
fn values_of_a_slab_that_cannot_be_made_are_dropped_in_the_allocation() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static DROPPERS: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
    struct Noted([u64; 3]);
    impl Drop for Noted {
        fn drop(&mut self) {
            DROPPERS.lock().unwrap().push(std::thread::current().id());
        }
    }
    let new = || (MADE.fetch_add(1, Relaxed) < 9).then(|| Noted([0; 3]));
    let cache: ObjectCache<Noted, Retained> =
        ObjectCache::builder("tenth").retained(new, |_| (), |value| value.0[0] += 1).unwrap();
    assert!(cache.alloc().is_none());
    assert_eq!(*DROPPERS.lock().unwrap(), [std::thread::current().id(); 9]);
}

#[test]
fn a_value_that_cannot_be_made_fails_the_allocation() {
    let cache: ObjectCache<u64, Retained> = ObjectCache::builder("none").retained(|| None, |_| (), |_| ()).unwrap();
    assert!(cache.alloc().is_none());
    assert_eq!(cache.stats().failures, 1);
}

#[test]
fn objects_go_from_thread_to_thread() {
    let cache: &'static ObjectCache<[usize; 32]> = Box::leak(Box::new(ObjectCache::new("passed").unwrap()));
    let (send, receive) = mpsc::sync_channel::<CacheBox<'static, [usize; 32]>>(256);
    let consumer = std::thread::spawn(move || receive.iter().enumerate().all(|(i, object)| object[31] == i));
    (0..100_000).for_each(|i| send.send(cache.alloc([i; 32]).unwrap()).unwrap());
    drop(send);
    assert!(consumer.join().unwrap());
    let stats = cache.stats();
    // A free that was interrupted between its count and its commit is counted twice: some are, however busy the machine
    // is, and not all.
    assert!(stats.used == 0 && (100_000..200_000).contains(&stats.allocations), "{stats}");
}

#[test]
fn a_reserve_that_the_machine_does_not_have_is_refused_at_once() {
    const TIB: usize = 1 << 40;
    let built = ObjectCache::<[u8; 1024]>::builder("all of memory").reserve(64 * TIB / 1024).build();
    assert!(matches!(built, Err(weir::CacheError::OutOfMemory)));
    let cache = ObjectCache::<[u8; 1024]>::builder("reserve").reserve(10).build().unwrap();
    assert!(matches!(cache.set_reserve(64 * TIB / 1024), Err(weir::CacheError::OutOfMemory)));
    assert_eq!(cache.stats().reserve, 10);
}

#[test]
fn a_reserve_is_there_from_the_start() {
    let cache = ObjectCache::<[u8; 300]>::builder("reserve").reserve(100).no_reclaim().build().unwrap();
    assert!(cache.stats().free_slab >= 100);
    assert_eq!(cache.stats().reserve, 100);
}

/// Values by address. Who takes one out of it has the value.
type Table = Arc<Mutex<BTreeMap<usize, u64>>>;

fn movable(table: &Table, says: fn(u64) -> bool) -> ObjectCache<[u64; 32]> {
    let table = Arc::clone(table);
    let relocate = move |from: NonNull<[u64; 32]>, to: NonNull<[u64; 32]>| {
        let mut table = table.lock().unwrap();
        let found = table.get(&from.addr().get()).copied();
        let Some(number) = found.filter(|&number| says(number)) else { return false };
        // SAFETY: an object that the table has, whose lock excludes other uses; and a free place.
        unsafe { from.copy_to_nonoverlapping(to, 1) };
        table.remove(&from.addr().get());
        table.insert(to.as_ptr().expose_provenance(), number);
        true
    };
    // SAFETY: it moves what the table has, which is what `into_raw` gave. The table's lock excludes all other uses.
    unsafe { ObjectCache::builder("movable").movable(relocate) }.unwrap()
}

fn fill(cache: &ObjectCache<[u64; 32]>, table: &Table, count: u64) {
    for number in 0..count {
        let raw = cache.alloc([number; 32]).unwrap().into_raw();
        assert_eq!(table.lock().unwrap().insert(raw.as_ptr().expose_provenance(), number), None);
    }
}

/// Drops all values but those of which `keeps` says so.
fn thin(cache: &ObjectCache<[u64; 32]>, table: &Table, keeps: impl Fn(u64) -> bool) {
    let (kept, gone) = std::mem::take(&mut *table.lock().unwrap()).into_iter().partition(|(_, number)| keeps(*number));
    *table.lock().unwrap() = kept;
    for (at, number) in gone {
        let raw = NonNull::new(std::ptr::with_exposed_provenance_mut(at)).unwrap();
        // SAFETY: it came from `into_raw`, or was moved there; the table has it no more.
        assert_eq!(*unsafe { cache.from_raw(raw) }, [number; 32]);
    }
}

#[test]
fn values_that_are_left_at_random_move_together_and_stay_what_they_are() {
    let table = Table::default();
    let cache = movable(&table, |number| !number.is_multiple_of(1000));
    fill(&cache, &table, 50_000);
    let full = cache.stats().slab_bytes;
    thin(&cache, &table, |number| number.is_multiple_of(20));
    weir::heap::trim();
    wait_until("its slabs are few", || cache.stats().slab_bytes < full / 5);
    // A place that a value may move to counts as used, too.
    wait_for_used(|| cache.stats().used, 2500);
    assert_eq!(table.lock().unwrap().len(), 2500);
    thin(&cache, &table, |_| false);
    wait_for_used(|| cache.stats().used, 0);
}

/// Otherwise the thread that moves objects would wait for itself.
#[test]
fn a_cache_that_ends_inside_a_move_of_its_own_stays() {
    static CACHE: Mutex<Option<ObjectCache<[u64; 32]>>> = Mutex::new(None);
    static HAS_ENDED: AtomicBool = AtomicBool::new(false);
    let relocate = |_: NonNull<[u64; 32]>, _: NonNull<[u64; 32]>| {
        let last = CACHE.lock().unwrap().take();
        if last.is_some() {
            drop(last);
            HAS_ENDED.store(true, SeqCst);
        }
        false
    };
    let mut handle = CACHE.lock().unwrap();
    // SAFETY: it moves nothing.
    let cache = handle.insert(unsafe { ObjectCache::builder("ends in a move").movable(relocate) }.unwrap());
    let objects: Vec<_> = (0..5000).map(|number| cache.alloc([number; 32]).unwrap()).collect();
    for (at, object) in objects.into_iter().enumerate() {
        if at % 16 == 0 {
            object.into_raw();
        }
    }
    drop(handle);
    wait_until("the cache to end inside a move", || {
        weir::heap::trim();
        HAS_ENDED.load(SeqCst)
    });
}

#[test]
fn a_movable_cache_ends_with_its_closure_and_stays_where_objects_are_out() {
    let table = Table::default();
    let cache = movable(&table, |_| true);
    fill(&cache, &table, 5000);
    thin(&cache, &table, |number| number.is_multiple_of(16));
    weir::heap::trim();
    thin(&cache, &table, |_| false);
    assert_eq!(Arc::strong_count(&table), 2);
    drop(cache);
    assert_eq!(Arc::strong_count(&table), 1);
    let cache = movable(&table, |_| true);
    fill(&cache, &table, 5000);
    thin(&cache, &table, |number| number.is_multiple_of(16));
    drop(cache);
    weir::heap::trim();
    assert_eq!(Arc::strong_count(&table), 2, "objects are out, and may be moved still");
}
