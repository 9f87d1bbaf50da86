//! Mechanisms on pages and caches: page pools, zones of a program's own, its callbacks, objects with state, and the profile.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::run::Run;
use weir_core::base::time::Time;
use weir_core::base::units::{BlockNo, Order, PAGE, PAGEBLOCK, Pages};
use weir_core::caches::geometry::{BUCKETED, FIRST_USER};
use weir_core::caches::user_cache::{CacheId, Spec};
use weir_core::evict::callback::{Callback, CallbackSpec, Class, Entry, Panicked, Queue, ScanReason};
use weir_core::evict::calling::Taken;
use weir_core::heap::Heap;
use weir_core::pages::pageblock::Pageblock;
use weir_core::pages::user_zone::{MemoryKind, UserZone};
use weir_core::platform::{Diagnostics, Memory};
use weir_core::pools::page_pool::{PagePool, PoolSpec};
use weir_core::profile::recorder::Origin;

use crate::platform::Plain;
use crate::{Held, with_heap};

#[test]
fn page_pools() {
    with_heap(|heap| {
        let spec = PoolSpec { name: b"pool", max_idle_pages: Some(20), squeeze_ms: None, is_tended: false };
        let pool = Box::new(PagePool::new(&spec));
        // SAFETY: it stays in its box until it is taken off the list.
        unsafe { heap.page_pools().add(NonNull::from(&*pool)) };
        for round in 0..2 {
            let mut runs: Vec<_> =
                [1, 1, 3, 8, 16].into_iter().map(|pages| heap.page_pools().get(&pool, pages)).collect();
            // SAFETY: just handed out, a page at least.
            runs.iter().for_each(|run| unsafe { run.write_bytes(round, PAGE) });
            assert!(heap.page_pools().remove(&pool).is_err(), "some are in flight");
            // SAFETY: they came from the pool, and are not used any more.
            unsafe { heap.page_pools().put(&pool, &runs.split_off(2)) };
            heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
            // SAFETY: as above.
            unsafe { heap.page_pools().put(&pool, &runs) };
            heap.platform().pass_ms(20);
            heap.page_pools().tend_due();
        }
        heap.page_pools().remove(&pool).unwrap();
    });
}

#[test]
fn zones_of_the_programs_own() {
    with_heap(|heap| {
        let plain: &Plain = heap.platform();
        let len = 2 * PAGEBLOCK;
        let base = plain.map(len, Order::BLOCK).unwrap();
        let described = plain.map(UserZone::descriptor_bytes(len).next_multiple_of(PAGE), Order::PAGE).unwrap();
        let memory = MemoryKind { zero: true, huge: false, reported: true, shared: false };
        let described = std::ptr::with_exposed_provenance_mut::<Pageblock>(described);
        // SAFETY: both were mapped for it and live as long as the heap, from whose list it is taken before it goes.
        let zone = Box::new(unsafe { UserZone::new(Run { addr: base, len }, described, NonNull::from(plain), memory) });
        // SAFETY: it stays in its box, used through shared references, until it is taken off the list.
        unsafe { heap.zones().add(NonNull::from(&*zone)) };
        let pages = heap.pages();
        let take = |count: usize, align: usize| {
            let addr = pages.zone_addr(&zone, pages.zone_take(&zone, Pages(count), Order::of_align(align)).unwrap());
            let run = std::ptr::with_exposed_provenance_mut::<u8>(addr);
            // SAFETY: just handed out, with so many pages.
            unsafe { run.write_bytes(9, count * PAGE) };
            (addr, count)
        };
        let runs = [take(1, PAGE), take(7, PAGE), take(16, 16 * PAGE), take(100, PAGE)];
        runs[1..].iter().for_each(|&(addr, count)| pages.zone_give(&zone, addr, Pages(count)).unwrap());
        assert!(pages.zone_give(&zone, runs[1].0, Pages(1)).is_err(), "given twice");
        heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
        assert!(pages.zone_offline(&zone, BlockNo(0).row(2)).is_err(), "a page is in use");
        pages.zone_give(&zone, runs[0].0, Pages(runs[0].1)).unwrap();
        pages.zone_offline(&zone, BlockNo(0).row(2)).unwrap();
        pages.zone_open(&zone, BlockNo(0).row(2));
        pages.zone_audit(&zone).unwrap();
        pages.remove_zone(&zone);
    });
}

/// Called by `init` and `fini`, which count with the word behind `data`.
unsafe extern "C-unwind" fn init(object: *mut u8, size: usize, data: *mut u8) -> bool {
    // SAFETY: `size` bytes of a new object, and the test's counter.
    unsafe {
        object.write_bytes(3, size);
        *data.cast::<usize>() += 1;
    }
    true
}

/// As above.
unsafe extern "C" fn fini(object: *mut u8, size: usize, data: *mut u8) {
    // SAFETY: as in `init`.
    unsafe {
        assert_eq!((*object, *object.add(size - 1)), (3, 3), "it keeps its contents while it is free");
        *data.cast::<usize>() -= 1;
    }
}

#[test]
fn objects_with_state_of_caches_with_buckets_and_without() {
    with_heap(|heap| {
        let mut initialised = 0usize;
        let data = (&raw mut initialised).cast::<u8>();
        let plain = Spec { name: b"one of many", size: 64, ..Spec::default() };
        let stateful = Spec { name: b"stateful", size: 500, init: Some(init), fini: Some(fini), data, ..plain };
        let with_buckets = heap.user_caches().make(&stateful).unwrap();
        // The last of these leaves no number with buckets.
        let many: Vec<CacheId> = (FIRST_USER + 1..BUCKETED).map(|_| heap.user_caches().make(&plain).unwrap()).collect();
        let without = heap.user_caches().make(&Spec { size: 700, ..stateful }).unwrap();
        for cache in [with_buckets, without] {
            let objects: Vec<_> = (0..30).map(|_| heap.user_caches().alloc(cache)).collect();
            assert!(
                objects.iter().all(|object| !object.is_null() && heap.user_caches().at(object.addr()) == Some(cache))
            );
            // SAFETY: allocated above, and not used any more.
            objects.into_iter().for_each(|object| unsafe { heap.user_caches().free(cache, object) });
            heap.user_caches().set_reserve(cache, 10).unwrap();
            heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
            heap.user_caches().run_finalizers();
        }
        for cache in many.into_iter().chain([with_buckets, without]) {
            // SAFETY: the cache is not used any more.
            unsafe { heap.user_caches().destroy(cache) }.unwrap();
        }
        assert_eq!(initialised, 0);
    });
}

/// A cache of the program's that frees what it is asked for.
struct Shrinks {
    bytes: Cell<usize>,
    events: Cell<u32>,
}

// SAFETY: the test has one thread.
unsafe impl Sync for Shrinks {}

impl Callback for Shrinks {
    fn count(&self) -> Result<usize, Panicked> {
        Ok(self.bytes.get())
    }
    fn scan(&self, bytes: usize, _reason: ScanReason) -> Result<usize, Panicked> {
        let freed = bytes.min(self.bytes.get());
        self.bytes.set(self.bytes.get() - freed);
        Ok(freed)
    }
    fn event(&self, _event: weir_core::reclaim::Event) -> Result<(), Panicked> {
        self.events.set(self.events.get() + 1);
        Ok(())
    }
}

/// An entry and what it calls, as the code that registers keeps them. It is a pointer, because a box that is moved would be the
/// only way to what is in it.
#[repr(C)]
struct Registered {
    entry: Entry,
    shrinks: NonNull<Shrinks>,
}

/// # Safety
/// A [`Registered`] in a box, which nobody uses any more.
unsafe fn dispose(entry: NonNull<Entry>) {
    // SAFETY: as the caller says; what it calls came out of a box too.
    unsafe {
        let registered = Box::from_raw(entry.cast::<Registered>().as_ptr());
        drop(Box::from_raw(registered.shrinks.as_ptr()));
    }
}

#[test]
fn callbacks() {
    with_heap(|heap: &Heap<Plain>| {
        heap.platform().tunables().background.set(0);
        let queue = Box::new(Queue::new());
        let register = |class: Class| {
            let shrinks = Box::into_raw(Box::new(Shrinks { bytes: Cell::new(16 << 10), events: Cell::new(0) }));
            let shrinks = NonNull::new(shrinks).unwrap();
            let spec = CallbackSpec { name: b"test", class, batch: 4096, ..CallbackSpec::default() };
            let callback: NonNull<dyn Callback> = shrinks;
            // SAFETY: the queue outlives the entries, and each callback is disposed of with its entry.
            let entry = unsafe { Entry::new(&spec, callback, NonNull::from(&*queue), dispose) };
            let entry = NonNull::new(Box::into_raw(Box::new(Registered { entry, shrinks }))).unwrap();
            // SAFETY: it stays in its box until it is disposed of.
            unsafe { heap.callbacks().register(heap.platform(), entry.cast()) };
            entry
        };
        let entries = [register(Class::Program), register(Class::Subscriber), register(Class::Cache)];
        heap.reclaim().note_pressure(Level::Severe, Cause::Pressure);
        heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
        let mut calls = 0;
        loop {
            match heap.callbacks().take(heap.platform(), &queue) {
                Taken::Job(job) => calls += u32::from(!heap.callbacks().run(heap.platform(), job).gone),
                Taken::Again => {}
                Taken::Sleep(_) => break,
            }
        }
        assert_eq!(calls, 3);
        for entry in entries {
            // SAFETY: registered above, and given up.
            unsafe { heap.callbacks().unregister(heap.platform(), entry.cast()) };
        }
    });
}

#[test]
fn sampled_blocks() {
    with_heap(|heap| {
        heap.profile().switch(heap.platform(), 1, Time(0)).unwrap();
        let mut held = Held { heap, blocks: Vec::new() };
        let sampled = |size: usize, align: usize| {
            let frames = [size, align];
            heap.samples().alloc(
                Layout::from_size_align(size, align).unwrap(),
                true,
                Origin { frames: &frames, mean: 1, random: u64::MAX },
            )
        };
        for size in [1, 100, 10_000, 5 << 20] {
            held.take(sampled(size, 16), size);
        }
        held.take(sampled(100, 4096), 100);
        assert_eq!(heap.profile().live(), 5);
        held.realloc(1, 300);
        held.free_all();
        assert_eq!(heap.profile().live(), 0);
        heap.profile().switch(heap.platform(), 0, Time(0)).unwrap();
    });
}
