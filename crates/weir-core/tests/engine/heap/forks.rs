//! Forks: every lock is taken once before and given back once after, in both processes, whatever goes on meanwhile.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::sync::mpsc;
use std::time::Duration;

use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::run::Run;
use weir_core::base::units::{Order, Pages};
use weir_core::caches::user_cache::{CacheId, Spec};
use weir_core::heap::Heap;
use weir_core::platform::{Contents, Diagnostics, Host, Released, Wait, rank};
use weir_core::pools::page_pool::{PagePool, PoolSpec};

use crate::fake::{Fake, run_on_node};
use crate::pages::zones::{PRIVATE, zone_of};

/// Only a wait without an end takes so long, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(300);

/// The locks that this thread is noted to hold.
fn held(heap: &Heap<Fake>) -> u32 {
    heap.platform().held_ranks().unwrap().load(Relaxed)
}

#[test]
fn locks_of_every_rank_are_held_across_a_fork_and_none_after_it() {
    for in_child in [false, true] {
        let heap = Box::new(Heap::new(Fake::new()));
        heap.platform().node_count.store(3, Relaxed);
        let (zone, _) = zone_of(&heap, 2, PRIVATE, NonNull::from(heap.platform()));
        let pool = Box::new(PagePool::new(&PoolSpec::default()));
        // SAFETY: it stays in its box until it is off the list.
        unsafe { heap.page_pools().add(NonNull::from(&*pool)) };
        for node in 0..3 {
            run_on_node(node);
            assert!(!heap.alloc(100).is_null() && !heap.alloc(1 << 20).is_null() && !heap.alloc(8 << 20).is_null());
        }
        heap.fork().freeze();
        let all = (1 << rank::COUNT) - 1;
        assert_eq!(held(&heap) >> 8, all, "a rank of which no lock was taken");
        assert!(!heap.fork().is_nested());
        // A lock that was not taken, or was given back already, is named by the assertion in `Lock::release`.
        if in_child {
            // SAFETY: frozen just now on this thread, which plays the child's only one.
            unsafe { heap.fork().thaw_child() };
        } else {
            // SAFETY: frozen just now on this thread.
            assert!(unsafe { heap.fork().thaw() });
        }
        assert_eq!(held(&heap), 0);
        // Each can be taken again.
        heap.audit().unwrap();
        assert!(!heap.alloc(1 << 20).is_null() && !heap.alloc(8 << 20).is_null());
        heap.pages().zone_audit(&zone).unwrap();
        heap.pages().remove_zone(&zone);
        heap.page_pools().remove(&pool).unwrap();
        run_on_node(0);
    }
}

/// What the page of counters says of frees and of misses: the fast path's frees, the misses of both kinds.
fn frees_and_misses(heap: &Heap<Fake>) -> [u64; 3] {
    heap.figures().publish();
    let stats = heap.platform().stats();
    [&stats.fast_frees, &stats.alloc_misses, &stats.free_misses].map(|counter| counter.load(Relaxed))
}

#[test]
fn a_child_counts_its_own_frees_and_misses() {
    let heap = Box::new(Heap::new(Fake::new()));
    let allocate_and_free = |count: usize| {
        let blocks: Vec<_> = (0..count).map(|_| heap.alloc(100)).collect();
        // SAFETY: each was allocated just now.
        blocks.into_iter().for_each(|block| unsafe { heap.free(block) });
    };
    allocate_and_free(10_000);
    let [frees, alloc_misses, free_misses] = frees_and_misses(&heap);
    assert!(frees > 1000 && alloc_misses > 0 && free_misses > 0, "{frees}, {alloc_misses}, {free_misses}");
    heap.fork().freeze();
    heap.platform().stats().reset_totals();
    // SAFETY: frozen just now on this thread, which plays the child's only one.
    unsafe { heap.fork().thaw_child() };
    assert_eq!(frees_and_misses(&heap), [0; 3]);
    allocate_and_free(1);
    assert_eq!(frees_and_misses(&heap)[0], 1);
}

#[test]
fn a_child_shows_no_pressure_of_its_parents() {
    for (in_child, level) in [(false, Level::Severe), (true, Level::None)] {
        let heap = Box::new(Heap::new(Fake::new()));
        heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
        heap.fork().freeze();
        if in_child {
            // SAFETY: frozen just now on this thread, which plays the child's only one.
            unsafe { heap.fork().thaw_child() };
        } else {
            // SAFETY: frozen just now on this thread.
            assert!(unsafe { heap.fork().thaw() });
        }
        assert_eq!(heap.platform().stats().pressure_level.load(Relaxed), level as u64);
        assert_eq!(heap.reclaim().relief_due().is_none(), in_child);
    }
}

#[test]
fn nodes_are_not_found_while_a_fork_takes_the_locks() {
    let heap: &'static Heap<Fake> = Box::leak(Box::new(Heap::new(Fake::new())));
    heap.platform().node_count.store(2, Relaxed);
    let (counts, counted) = mpsc::channel();
    let counts = std::sync::Mutex::new(counts);
    heap.platform().while_nodes_are_counted(move || {
        counts.lock().unwrap().send(()).unwrap();
        // The other thread begins to fork meanwhile, as far as it can. If it has no CPU in this time, it begins later, and
        // nothing fails.
        std::thread::sleep(Duration::from_millis(50));
    });
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(!heap.alloc(100).is_null()));
        counted.recv().unwrap();
        heap.fork().freeze();
        // SAFETY: frozen just now. A second node's lock that was not taken is named by the assertion in `Lock::release`.
        assert!(unsafe { heap.fork().thaw() });
    });
    heap.audit().unwrap();
}

/// A host in whose calls a signal handler of the calling thread forks; this is the child from then on.
struct Forks(AtomicPtr<Heap<Fake>>);

impl Host for Forks {
    fn release(&self, runs: &[Run], _calm: bool) -> Released {
        // SAFETY: the test keeps the heap as long as this host.
        if let Some(heap) = unsafe { self.0.load(Relaxed).as_ref() } {
            heap.fork().freeze();
            assert!(heap.fork().is_nested());
            // SAFETY: it follows the freeze on the same thread, and no other thread uses the heap.
            unsafe { heap.fork().thaw_child() };
        }
        Released { runs: runs.len(), contents: Contents::Undefined, error: 0 }
    }
}

#[test]
fn a_zone_can_be_removed_in_a_child_that_a_handler_forked_within_a_batch() {
    let heap: &'static Heap<Fake> = Box::leak(Box::new(Heap::new(Fake::new())));
    let forks: &'static Forks = Box::leak(Box::new(Forks(AtomicPtr::default())));
    let (zone, _) = zone_of(heap, 2, PRIVATE, NonNull::from(forks));
    let run = heap.pages().zone_take(&zone, Pages(600), Order::PAGE).unwrap();
    heap.pages().zone_give(&zone, heap.pages().zone_addr(&zone, run), Pages(600)).unwrap();
    forks.0.store(std::ptr::from_ref(heap).cast_mut(), Relaxed);
    assert!(heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure) > 0);
    forks.0.store(std::ptr::null_mut(), Relaxed);
    let (say, said) = mpsc::channel();
    let zone: &'static _ = Box::leak(zone);
    std::thread::spawn(move || {
        heap.pages().remove_zone(zone);
        let _ = say.send(());
    });
    said.recv_timeout(PATIENCE).expect("the zone counts as pinned for good");
}

/// Forks; this is the child from then on.
unsafe extern "C" fn fork_at_the_first_object(_: *mut u8, _: usize, heap: *mut u8) {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.swap(true, Relaxed) {
        // SAFETY: the test's heap, which is never freed.
        let heap = unsafe { &*heap.cast::<Heap<Fake>>() };
        heap.fork().freeze();
        // SAFETY: frozen just now on this thread, which plays the child's only one.
        unsafe { heap.fork().thaw_child() };
    }
}

#[test]
fn a_cache_can_be_destroyed_in_a_child_that_one_of_its_finalizers_forked() {
    let heap: &'static Heap<Fake> = Box::leak(Box::new(Heap::new(Fake::new())));
    let data = std::ptr::from_ref(heap).cast_mut().cast();
    let spec = Spec { name: b"forks", size: 1000, fini: Some(fork_at_the_first_object), data, ..Spec::default() };
    let id: CacheId = heap.user_caches().make(&spec).unwrap();
    let object = heap.user_caches().alloc(id);
    // SAFETY: allocated just now, and not used.
    unsafe { heap.user_caches().free(id, object) };
    assert!(heap.purge() > 0);
    let (say, said) = mpsc::channel();
    std::thread::spawn(move || {
        // SAFETY: the cache is not used any more.
        let _ = say.send(unsafe { heap.user_caches().destroy(id) });
    });
    assert_eq!(said.recv_timeout(PATIENCE).expect("finalizers count as running for good"), Ok(()));
}
