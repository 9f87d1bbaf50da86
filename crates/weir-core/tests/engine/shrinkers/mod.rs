//! A program's shrinkers and subscribers: when they are called, and how much they are told to free. Also what is done about those
//! that are slow, that panic or that go while they run.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::units::PAGEBLOCK;
use weir_core::base::zone_class::ZoneClass;
use weir_core::evict::callback::{Callback, CallbackSpec, Class, Entry, Panicked, Queue, STOP, ScanReason};
use weir_core::evict::calling::{SLOW_NS, Taken};
use weir_core::heap::Heap;
use weir_core::platform::{Clock, Diagnostics, Wait};
use weir_core::policy::deferred::DEFAULT_SEEKS;
use weir_core::policy::prices::Prices;
use weir_core::reclaim::Event;

use crate::fake::{CALLBACKS_RANK, Call, Fake};

mod bounds;
mod costs;
mod forks;
mod lists;
mod prices;
mod shortage;
mod throttled;
mod unregister;
mod victims;

type TheHeap = &'static Heap<Fake>;

/// Without a balancer's thread: pressure has caches shrink at once.
fn heap() -> TheHeap {
    let heap: TheHeap = Box::leak(Box::new(Heap::new(Fake::new())));
    heap.platform().tunables().background.set(0);
    heap
}

fn queue() -> &'static Queue {
    Box::leak(Box::default())
}

/// The behaviour of a test's callback, and what it was told.
#[derive(Default)]
struct Told {
    /// Bytes that it says it has.
    bytes: AtomicUsize,
    prices: Prices,
    /// Bytes of each scan.
    scans: Mutex<Vec<usize>>,
    reasons: Mutex<Vec<ScanReason>>,
    events: Mutex<Vec<Event>>,
    relieved: AtomicU32,
    disposed: AtomicBool,
}

type OnScan = Box<dyn Fn(usize) -> Result<usize, Panicked> + Send + Sync>;

/// A callback that writes down what it is told, and does what the test wants.
struct Cache {
    heap: TheHeap,
    told: Arc<Told>,
    on_scan: Option<OnScan>,
}

impl Cache {
    fn check(&self) {
        let held = self.heap.platform().held_ranks().unwrap().load(Relaxed);
        assert_eq!(held & !1, 0, "called under a lock (the list's is {CALLBACKS_RANK:#x})");
    }
}

impl Callback for Cache {
    fn count(&self) -> Result<usize, Panicked> {
        self.check();
        Ok(self.told.bytes.load(SeqCst))
    }
    fn prices(&self) -> Option<(&Prices, usize)> {
        Some((&self.told.prices, self.told.bytes.load(SeqCst)))
    }
    fn scan(&self, bytes: usize, reason: ScanReason) -> Result<usize, Panicked> {
        self.check();
        self.told.scans.lock().unwrap().push(bytes);
        self.told.reasons.lock().unwrap().push(reason);
        match &self.on_scan {
            Some(on_scan) => on_scan(bytes),
            None => Ok(bytes),
        }
    }
    fn relieved(&self) -> Result<(), Panicked> {
        self.check();
        self.told.relieved.fetch_add(1, SeqCst);
        Ok(())
    }
    fn event(&self, event: Event) -> Result<(), Panicked> {
        self.check();
        self.told.events.lock().unwrap().push(event);
        Ok(())
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        assert!(!self.told.disposed.swap(true, SeqCst), "disposed of twice");
    }
}

#[repr(C)]
struct Block {
    entry: Entry,
    cache: Cache,
}

/// # Safety
/// A block of `register`'s that nobody uses.
unsafe fn dispose(entry: NonNull<Entry>) {
    // SAFETY: the caller gives the block up, and `register` made it by `Box`.
    drop(unsafe { Box::from_raw(entry.cast::<Block>().as_ptr()) });
}

#[derive(Clone, Copy)]
struct Registered(NonNull<Entry>);
// SAFETY: an entry is `Send` and `Sync`.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    fn unregister(self, heap: TheHeap) {
        // SAFETY: a test unregisters each once.
        unsafe { heap.callbacks().unregister(heap.platform(), self.0) }
    }
    fn entry(&self) -> &Entry {
        // SAFETY: tests look at entries while they are registered.
        unsafe { self.0.as_ref() }
    }
}

fn register(
    heap: TheHeap,
    queue: &'static Queue,
    spec: CallbackSpec<'_>,
    bytes: usize,
    on_scan: Option<OnScan>,
) -> (Registered, Arc<Told>) {
    let told = Arc::new(Told { bytes: AtomicUsize::new(bytes), ..Told::default() });
    let block = Box::leak(Box::new(std::mem::MaybeUninit::<Block>::uninit())).as_mut_ptr();
    // SAFETY: the block's fields are written before they are read; it lives until `dispose`.
    let entry = unsafe {
        (&raw mut (*block).cache).write(Cache { heap, told: told.clone(), on_scan });
        let callback: NonNull<dyn Callback> = NonNull::new_unchecked(&raw mut (*block).cache as *mut dyn Callback);
        (&raw mut (*block).entry).write(Entry::new(&spec, callback, NonNull::from(queue), dispose));
        let entry = NonNull::new_unchecked(&raw mut (*block).entry);
        heap.callbacks().register(heap.platform(), entry);
        entry
    };
    (Registered(entry), told)
}

fn shrinker(name: &str, class: Class) -> CallbackSpec<'_> {
    CallbackSpec { name: name.as_bytes(), class, batch: 4096, seeks: 4, ..CallbackSpec::default() }
}

/// Calls what waits in the queue, on the calling thread; how many.
fn serve(heap: TheHeap, queue: &Queue) -> usize {
    let mut calls = 0;
    loop {
        match heap.callbacks().take(heap.platform(), queue) {
            Taken::Again => {}
            Taken::Sleep(_) => return calls,
            Taken::Job(job) => {
                heap.callbacks().run(heap.platform(), job);
                calls += 1;
            }
        }
    }
}

/// Has the queue served whenever reclaim waits.
fn serve_always(heap: TheHeap, queue: &'static Queue) {
    heap.platform().while_callbacks_are_waited_for(move || {
        serve(heap, queue);
    });
}

/// A heap with such a queue.
fn served() -> (TheHeap, &'static Queue) {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
    (heap, queue)
}

fn pressure(heap: TheHeap, level: Level) -> usize {
    heap.reclaim().note_pressure(level, Cause::Pressure);
    heap.reclaim().balance_pressure(level, Cause::Pressure)
}

/// 2^24 bytes: a scan at priority p, at a cost of 4 seeks, takes 2^(24 - p) of them.
const SIZE: usize = 1 << 24;

fn sum(told: &Told) -> usize {
    told.scans.lock().unwrap().iter().sum()
}

#[test]
fn pressure_scans_at_priorities_12_to_10_and_severe_pressure_down_to_1() {
    let (heap, queue) = served();
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Program), SIZE, None);
    pressure(heap, Level::Some);
    assert_eq!(*told.scans.lock().unwrap(), [4096; 1 + 2 + 4]);
    assert!(told.reasons.lock().unwrap().iter().all(|&reason| reason == ScanReason::Mild));
    told.scans.lock().unwrap().clear();
    told.reasons.lock().unwrap().clear();
    pressure(heap, Level::Severe);
    // The last one scans as priority 2 does.
    let severe = SIZE - 4096 - SIZE / 4;
    assert_eq!(sum(&told), severe, "the sum over all priorities from 12 to 1");
    assert!(told.reasons.lock().unwrap().iter().all(|&reason| reason == ScanReason::Severe));
    let stats = cache.entry().stats();
    assert_eq!((stats.freed, stats.deferred, stats.is_late), ((severe + 7 * 4096) as u64, 0, false));
    cache.unregister(heap);
    assert!(told.disposed.load(SeqCst));
}

#[test]
fn no_scan_takes_more_than_is_wanted() {
    for class in [Class::Cache, Class::Program] {
        takes_no_more_than_is_wanted(class);
    }
}

fn takes_no_more_than_is_wanted(class: Class) {
    let (heap, queue) = served();
    let (cache, told) = register(heap, queue, shrinker("cache", class), 4 * SIZE, None);
    pressure(heap, Level::Severe);
    // A severe event wants 2^23 bytes: as many as priority 3 scans of 2^26, and half of what 2 does. The last one is not bounded,
    // and scans as priority 2 does.
    assert_eq!(sum(&told), (1 << 24) - (1 << 14) + (1 << 23) + (1 << 24));
    assert_eq!(cache.entry().stats().deferred, 0, "what is not wanted is not put off");
    cache.unregister(heap);
}

#[test]
fn evictable_caches_go_before_a_programs_own_and_free_memory_before_both() {
    let (heap, queue) = served();
    let order: Arc<Mutex<Vec<&str>>> = Arc::default();
    let note = |name: &'static str| -> Option<OnScan> {
        let order = order.clone();
        Some(Box::new(move |bytes| {
            order.lock().unwrap().push(name);
            assert!(
                !heap.platform().take_released().is_empty() || order.lock().unwrap().len() > 1,
                "free memory first"
            );
            Ok(bytes)
        }))
    };
    let (own, _) = register(heap, queue, shrinker("own", Class::Program), SIZE, note("own"));
    let (evictable, _) = register(heap, queue, shrinker("evictable", Class::Cache), SIZE, note("evictable"));
    let blocks: Vec<_> = (0..100).map(|_| heap.alloc(100_000)).collect();
    // SAFETY: allocated just now.
    blocks.into_iter().for_each(|block| unsafe { heap.free(block) });
    pressure(heap, Level::Some);
    let scans = |priority: u32| 1usize << (12 - priority);
    let of_priority = |p| [vec!["evictable"; scans(p)], vec!["own"; scans(p)]].concat();
    assert_eq!(*order.lock().unwrap(), [of_priority(12), of_priority(11), of_priority(10)].concat());
    own.unregister(heap);
    evictable.unregister(heap);
}

#[test]
fn trims_rest_and_calm_windows_leave_what_a_program_caches() {
    let (heap, queue) = served();
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
    heap.purge();
    heap.reclaim().balance_rest();
    for _ in 0..5 {
        heap.platform().pass_ms(heap.platform().tunables().idle_ms.get());
        heap.reclaim().balance_calm();
    }
    heap.reclaim().balance_node(0, Cause::Pressure, true);
    assert_eq!(cache.entry().stats().calls + told.scans.lock().unwrap().len() as u64, 0);
    cache.unregister(heap);
}

#[test]
fn work_that_is_refused_is_deferred_and_bounded() {
    let (heap, queue) = served();
    let refuses = Arc::new(AtomicBool::new(true));
    let refusing = refuses.clone();
    let on_scan: OnScan = Box::new(move |bytes| Ok(if refusing.load(SeqCst) { STOP } else { bytes }));
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Program), SIZE, Some(on_scan));
    pressure(heap, Level::Some);
    assert_eq!(told.scans.lock().unwrap().len(), 3, "STOP ends a scan at each priority");
    assert_eq!(cache.entry().stats().deferred, 7 * 4096);
    for _ in 0..20 {
        heap.platform().pass_ms(2000);
        pressure(heap, Level::Severe);
    }
    assert_eq!(cache.entry().stats().deferred, 2 * SIZE);
    // What it refused for long comes a part at a time.
    refuses.store(false, SeqCst);
    told.scans.lock().unwrap().clear();
    pressure(heap, Level::Some);
    assert!(sum(&told) <= 7 * 4096 * 3, "{}", sum(&told));
    cache.unregister(heap);
}
