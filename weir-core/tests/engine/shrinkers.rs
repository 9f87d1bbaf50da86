//! A program's shrinkers and subscribers: when they are called, how much they are told to free, and what is done about
//! those that are slow, that panic or that go while they run.

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
use weir_core::reclaim::Event;

use crate::fake::{CALLBACKS_RANK, Call, Fake};

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

/// What a test's callback does, and what it was told.
#[derive(Default)]
struct Told {
    /// Bytes that it says it has.
    bytes: AtomicUsize,
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
        unsafe { heap.unregister_callback(self.0) }
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
        heap.register_callback(entry);
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
        match heap.take_callback(queue) {
            Taken::Again => {}
            Taken::Sleep(_) => return calls,
            Taken::Job(job) => {
                heap.run_callback(job);
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

fn pressure(heap: TheHeap, level: Level) -> usize {
    heap.note_pressure(level, Cause::Pressure);
    heap.balance_pressure(level, Cause::Pressure)
}

/// 2^24 bytes: a scan at priority p, at a cost of 4 seeks, takes 2^(24 - p) of them.
const SIZE: usize = 1 << 24;

fn sum(told: &Told) -> usize {
    told.scans.lock().unwrap().iter().sum()
}

#[test]
fn pressure_scans_at_priorities_12_to_10_and_severe_pressure_down_to_1() {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Program), SIZE, None);
    pressure(heap, Level::Some);
    assert_eq!(*told.scans.lock().unwrap(), [4096; 1 + 2 + 4]);
    assert!(told.reasons.lock().unwrap().iter().all(|&reason| reason == ScanReason::Mild));
    told.scans.lock().unwrap().clear();
    told.reasons.lock().unwrap().clear();
    pressure(heap, Level::Severe);
    assert_eq!(sum(&told), SIZE - 4096, "the sum over all priorities from 12 to 1");
    assert!(told.reasons.lock().unwrap().iter().all(|&reason| reason == ScanReason::Severe));
    let stats = cache.entry().stats();
    assert_eq!((stats.freed, stats.deferred, stats.is_late), ((SIZE - 4096 + 7 * 4096) as u64, 0, false));
    cache.unregister(heap);
    assert!(told.disposed.load(SeqCst));
}

#[test]
fn of_an_evictable_cache_no_scan_takes_more_than_is_wanted() {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), 4 * SIZE, None);
    pressure(heap, Level::Severe);
    // A severe event wants 2^23 bytes: as many as priority 3 scans of 2^26, and half of what 2 does. The last one is not bounded.
    assert_eq!(sum(&told), (1 << 24) - (1 << 14) + (1 << 23) + (1 << 25));
    assert_eq!(cache.entry().stats().deferred, 0, "what is not wanted is not put off");
    cache.unregister(heap);
}

#[test]
fn evictable_caches_go_before_a_programs_own_and_free_memory_before_both() {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
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
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
    heap.trim();
    heap.balance_rest();
    for _ in 0..5 {
        heap.platform().pass_ms(heap.platform().tunables().idle_ms.get());
        heap.balance_calm();
    }
    heap.balance_node(0, Cause::Pressure, true);
    assert_eq!(cache.entry().stats().calls + told.scans.lock().unwrap().len() as u64, 0);
    cache.unregister(heap);
}

#[test]
fn work_that_is_refused_is_deferred_and_bounded() {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
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

#[test]
fn a_callback_that_never_returns_is_named_once_and_others_are_called_meanwhile() {
    let (heap, queue) = (heap(), queue());
    let (let_go, waits): (Sender<()>, Receiver<()>) = channel();
    let waits = Mutex::new(waits);
    let on_scan: OnScan = Box::new(move |_| {
        waits.lock().unwrap().recv().unwrap();
        Ok(STOP)
    });
    let (stuck, stuck_told) = register(heap, queue, shrinker("stuck", Class::Program), SIZE, Some(on_scan));
    // A thread of the queue, which does not come back.
    let threads: Arc<Mutex<Vec<thread::JoinHandle<usize>>>> = Arc::default();
    let (starts, told) = (threads.clone(), stuck_told.clone());
    heap.platform().while_callbacks_are_waited_for(move || {
        let mut threads = starts.lock().unwrap();
        if threads.is_empty() {
            threads.push(thread::spawn(move || serve(heap, queue)));
            while told.scans.lock().unwrap().is_empty() {
                thread::yield_now();
            }
        }
    });
    let before = heap.platform().now();
    pressure(heap, Level::Some);
    let waited = heap.platform().now() - before;
    assert_eq!(waited, heap.platform().tunables().callback_ms.get() * 1_000_000, "once, not at each priority");
    assert!(stuck.entry().stats().is_late);
    // Another one, on the same queue, is served by another thread.
    let (other, other_told) = register(heap, queue, shrinker("other", Class::Program), SIZE, None);
    serve_always(heap, queue);
    pressure(heap, Level::Some);
    assert_eq!(other_told.scans.lock().unwrap().len(), 7);
    assert_eq!(stuck_told.scans.lock().unwrap().len(), 1, "it is left alone until it returns");
    assert!(heap.platform().slow.lock().unwrap().is_empty());
    heap.platform().pass_ms(SLOW_NS / 1_000_000);
    serve(heap, queue);
    serve(heap, queue);
    assert_eq!(*heap.platform().slow.lock().unwrap(), ["stuck"]);
    // It returns, and is called again.
    let_go.send(()).unwrap();
    threads.lock().unwrap().drain(..).for_each(|thread| assert!(thread.join().unwrap() > 0));
    assert!(!stuck.entry().stats().is_late);
    (0..3).for_each(|_| let_go.send(()).unwrap());
    pressure(heap, Level::Some);
    assert!(stuck_told.scans.lock().unwrap().len() > 1);
    stuck.unregister(heap);
    other.unregister(heap);
}

#[test]
fn unregistering_waits_until_the_callback_has_returned() {
    for _ in 0..50 {
        let (heap, queue) = (heap(), queue());
        let (entered, is_in) = channel();
        let returned = Arc::new(AtomicBool::new(false));
        let returns = returned.clone();
        let on_scan: OnScan = Box::new(move |bytes| {
            entered.send(()).unwrap();
            (0..100).for_each(|_| thread::yield_now());
            returns.store(true, SeqCst);
            Ok(bytes)
        });
        let spec = CallbackSpec { seeks: 0, ..shrinker("cache", Class::Program) };
        let (cache, told) = register(heap, queue, spec, 8192, Some(on_scan));
        // Posts, and does not wait for long: nobody serves yet.
        pressure(heap, Level::Some);
        let server = thread::spawn(move || serve(heap, queue));
        is_in.recv().unwrap();
        cache.unregister(heap);
        assert!(returned.load(SeqCst) && told.disposed.load(SeqCst));
        server.join().unwrap();
        assert!(!heap.callbacks().are_there());
    }
}

#[test]
fn a_callback_unregisters_itself_and_is_disposed_of_after_its_return() {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
    type Own = Option<(Registered, Arc<Told>)>;
    let me: Arc<Mutex<Own>> = Arc::default();
    let own = me.clone();
    let on_scan: OnScan = Box::new(move |bytes| {
        let (registered, told) = own.lock().unwrap().take().expect("called once");
        registered.unregister(heap);
        assert!(!told.disposed.load(SeqCst), "while it runs");
        Ok(bytes)
    });
    let spec = CallbackSpec { batch: SIZE, seeks: 0, ..shrinker("cache", Class::Program) };
    let (registered, told) = register(heap, queue, spec, SIZE / 2, Some(on_scan));
    *me.lock().unwrap() = Some((registered, told.clone()));
    told.bytes.store(1, SeqCst);
    // Half of one byte is none: nothing is scanned yet.
    pressure(heap, Level::Some);
    assert!(!told.disposed.load(SeqCst));
    told.bytes.store(4 * SIZE, SeqCst);
    pressure(heap, Level::Some);
    assert!(told.disposed.load(SeqCst) && !heap.callbacks().are_there());
}

#[test]
fn one_that_panics_is_named_and_disabled() {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
    let (bad, bad_told) =
        register(heap, queue, shrinker("bad", Class::Program), SIZE, Some(Box::new(|_| Err(Panicked))));
    let (good, good_told) = register(heap, queue, shrinker("good", Class::Program), SIZE, None);
    pressure(heap, Level::Some);
    assert_eq!(*heap.platform().panicked.lock().unwrap(), ["bad"]);
    assert_eq!((bad_told.scans.lock().unwrap().len(), good_told.scans.lock().unwrap().len()), (1, 7));
    assert!(bad.entry().stats().is_disabled && !good.entry().stats().is_disabled);
    bad.unregister(heap);
    good.unregister(heap);
}

#[test]
fn a_panic_that_no_platform_catches_leaves_the_registry_whole() {
    let (heap, queue) = (heap(), queue());
    let (bad, _) = register(heap, queue, shrinker("bad", Class::Program), SIZE, Some(Box::new(|_| panic!("uncaught"))));
    pressure(heap, Level::Some);
    assert!(thread::spawn(move || serve(heap, queue)).join().is_err());
    assert_eq!(*heap.platform().panicked.lock().unwrap(), ["bad"]);
    bad.unregister(heap);
}

#[test]
fn relief_comes_once_after_the_last_event_and_only_to_those_who_heard_of_pressure() {
    let (heap, queue) = (heap(), queue());
    let subscriber = |level| CallbackSpec { class: Class::Subscriber, level, ..CallbackSpec::default() };
    let (some, some_told) = register(heap, queue, subscriber(Level::Some), 0, None);
    let (severe, severe_told) = register(heap, queue, subscriber(Level::Severe), 0, None);
    let (cache, cache_told) = register(heap, queue, shrinker("cache", Class::Program), SIZE, None);
    let relief = heap.platform().tunables().relief_ms.get();
    heap.relieve_if_due();
    assert_eq!((heap.relief_due(), heap.pressure_events().latest().generation), (None, 0), "there was no pressure");
    heap.note_pressure(Level::Some, Cause::Limit);
    serve(heap, queue);
    heap.platform().pass_ms(relief - 1);
    heap.relieve_if_due();
    assert!(heap.relief_due().is_some());
    heap.note_pressure(Level::Some, Cause::Limit);
    heap.platform().pass_ms(relief - 1);
    heap.relieve_if_due();
    assert!(heap.relief_due().is_some(), "counted from the last event");
    heap.platform().pass_ms(1);
    heap.relieve_if_due();
    assert_eq!(heap.relief_due(), None);
    heap.relieve_if_due();
    serve(heap, queue);
    serve(heap, queue);
    // The second event was overtaken by the relief: the latest is told.
    let levels: Vec<_> = some_told.events.lock().unwrap().iter().map(|e| (e.level, e.cause, e.generation)).collect();
    assert_eq!(levels, [(Level::Some, Cause::Limit, 1), (Level::None, Cause::Limit, 3)]);
    assert!(severe_told.events.lock().unwrap().is_empty());
    assert_eq!(cache_told.relieved.load(SeqCst), 1);
    assert_eq!(heap.pressure_events().latest().generation, 3);
    heap.note_pressure(Level::Severe, Cause::Pressure);
    serve(heap, queue);
    assert_eq!(severe_told.events.lock().unwrap().len(), 1);
    [some, severe, cache].into_iter().for_each(|registered| registered.unregister(heap));
}

#[test]
fn after_a_shortage_there_is_relief_and_an_absurd_request_takes_nothing() {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
    assert!(heap.alloc(1 << 50).is_null());
    assert_eq!(heap.relief_due(), None, "no cache can make up for that");
    assert!(sum(&told) <= 2 * 4096, "{}", sum(&told));
    assert!(!heap.alloc(4096).is_null());
    heap.platform().fail(Call::MapAt, u64::MAX);
    heap.platform().fail(Call::Map, u64::MAX);
    while !heap.alloc(4096).is_null() {}
    assert!(sum(&told) > 2 * 4096 && heap.relief_due().is_some(), "{} {:?}", sum(&told), heap.relief_due());
    serve(heap, queue);
    assert_eq!(told.relieved.load(SeqCst), 0);
    heap.platform().pass_ms(heap.platform().tunables().relief_ms.get());
    heap.relieve_if_due();
    serve(heap, queue);
    assert_eq!((told.relieved.load(SeqCst), heap.relief_due()), (1, None));
    cache.unregister(heap);
}

#[test]
fn one_that_panicked_is_no_shrinker_any_more() {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
    let (bad, _) = register(heap, queue, shrinker("bad", Class::Program), SIZE, Some(Box::new(|_| Err(Panicked))));
    assert_eq!(heap.callbacks().shrinkers(ZoneClass::Normal), 1);
    pressure(heap, Level::Some);
    assert_eq!(heap.callbacks().shrinkers(ZoneClass::Normal), 0);
    bad.unregister(heap);
    assert_eq!(heap.callbacks().shrinkers(ZoneClass::Normal), 0);
}

#[test]
fn an_allocation_that_is_short_is_served_by_what_a_shrinker_frees() {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
    const BLOCK: usize = 1 << 20;
    let blocks: Arc<Mutex<Vec<usize>>> = Arc::new(Mutex::new((0..64).map(|_| heap.alloc(BLOCK) as usize).collect()));
    let freed = blocks.clone();
    let calls = Arc::new(AtomicU32::new(0));
    let called = calls.clone();
    let on_scan: OnScan = Box::new(move |bytes| {
        called.fetch_add(1, SeqCst);
        // What the callback itself cannot have does not call it again.
        assert!(heap.alloc(2 * BLOCK).is_null());
        let mut blocks = freed.lock().unwrap();
        let count = bytes.div_ceil(BLOCK).min(blocks.len());
        for block in blocks.drain(..count) {
            // SAFETY: allocated above, and freed once.
            unsafe { heap.free(block as *mut u8) };
        }
        Ok(count * BLOCK)
    });
    let spec = CallbackSpec { seeks: DEFAULT_SEEKS, batch: BLOCK, ..shrinker("cache", Class::Cache) };
    let (cache, told) = register(heap, queue, spec, 64 * BLOCK, Some(on_scan));
    // Nothing more can be mapped: what is there is full.
    heap.platform().fail(Call::MapAt, u64::MAX);
    let mut more = Vec::new();
    while calls.load(SeqCst) == 0 {
        let block = heap.alloc(BLOCK);
        assert!(!block.is_null(), "a shrinker has some left");
        more.push(block);
    }
    assert!(!more.is_empty() && !blocks.lock().unwrap().is_empty(), "no more went than was needed");
    assert!(told.reasons.lock().unwrap().iter().all(|&reason| reason == ScanReason::Shortage));
    cache.unregister(heap);
}

#[test]
fn small_objects_that_a_shrinker_frees_are_released_in_the_same_turn() {
    let (heap, queue) = (heap(), queue());
    serve_always(heap, queue);
    let objects: Arc<Mutex<Vec<usize>>> =
        Arc::new(Mutex::new((0..200_000).map(|_| heap.alloc(100) as usize).collect()));
    let freed = objects.clone();
    let on_scan: OnScan = Box::new(move |_| {
        let objects = std::mem::take(&mut *freed.lock().unwrap());
        // SAFETY: allocated above, and freed once.
        objects.iter().for_each(|&object| unsafe { heap.free(object as *mut u8) });
        Ok(objects.len() * 100)
    });
    let spec = CallbackSpec { batch: 1, seeks: 0, ..shrinker("cache", Class::Program) };
    let (cache, told) = register(heap, queue, spec, 2, Some(on_scan));
    let released = pressure(heap, Level::Severe);
    assert!(!told.scans.lock().unwrap().is_empty());
    assert!(released >= 4 * PAGEBLOCK, "as much as the marks were raised by: {released}");
    cache.unregister(heap);
}

#[test]
fn in_a_forked_child_a_callback_that_ran_elsewhere_can_be_called_and_unregistered() {
    let (heap, queue) = (heap(), queue());
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Program), SIZE, None);
    let (late, late_told) = register(heap, queue, shrinker("late", Class::Program), SIZE, None);
    pressure(heap, Level::Some);
    // A thread that is in a callback as another one forks: in the child it does not go on.
    thread::spawn(move || {
        let Taken::Job(_never_run) = heap.take_callback(queue) else { panic!("posted above") };
    })
    .join()
    .unwrap();
    heap.freeze();
    // SAFETY: froze it above, on this thread.
    unsafe { heap.thaw_child() };
    // The queue goes on, and nothing is waited for. What the parent was to do is void; both hear of relief.
    assert_eq!(serve(heap, queue), 2);
    assert_eq!([&told, &late_told].map(|told| (told.relieved.load(SeqCst), sum(told))), [(1, 0); 2]);
    cache.unregister(heap);
    late.unregister(heap);
    assert!(told.disposed.load(SeqCst) && late_told.disposed.load(SeqCst));
}

#[test]
fn a_thread_that_forks_in_a_handler_while_it_unregisters_goes_on_in_the_child() {
    let (heap, queue) = (heap(), queue());
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Program), SIZE, None);
    pressure(heap, Level::Some);
    // A thread that is in the callback, and is not there in the child.
    thread::spawn(move || {
        let Taken::Job(_never_run) = heap.take_callback(queue) else { panic!("posted above") };
    })
    .join()
    .unwrap();
    heap.platform().interrupt_the_next_wait(move || {
        heap.freeze();
        // SAFETY: froze it above, on this thread.
        unsafe { heap.thaw_child() };
    });
    cache.unregister(heap);
    assert!(told.disposed.load(SeqCst));
}
