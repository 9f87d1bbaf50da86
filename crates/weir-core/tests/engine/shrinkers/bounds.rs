//! How long a run of a callback goes on: no longer than there is memory to free, nor than anybody waits for its end.

use super::*;
use std::sync::mpsc::{Receiver, Sender};
use weir_core::reclaim::budget::Room;

/// Calls after which a run that knows no bound is ended, so that the test fails and does not go on for ever.
const TOO_MANY: usize = 100_000;

fn endless(calls: Arc<AtomicUsize>) -> OnScan {
    Box::new(move |bytes| if calls.fetch_add(1, SeqCst) < TOO_MANY { Ok(bytes) } else { Ok(STOP) })
}

#[test]
fn a_scan_takes_no_more_than_can_be_resident() {
    let (heap, queue) = served();
    let calls: Arc<AtomicUsize> = Arc::default();
    let (liar, told) =
        register(heap, queue, shrinker("liar", Class::Program), usize::MAX, Some(endless(calls.clone())));
    heap.reclaim().read_room(Room::shared(16 << 20, 4 << 20));
    pressure(heap, Level::Severe);
    // Priorities 12 to 1, twice 16 MiB each.
    assert!((1..=12 * (32 << 20)).contains(&sum(&told)), "{} bytes", sum(&told));
    assert!(calls.load(SeqCst) < TOO_MANY);
    liar.unregister(heap);
}

#[test]
fn a_batch_of_a_byte_does_not_make_a_call_of_each_byte() {
    const CALLS: usize = 1 << 16;
    let (heap, queue) = served();
    let calls: Arc<AtomicUsize> = Arc::default();
    let called = calls.clone();
    let on_scan: OnScan =
        Box::new(move |bytes| if called.fetch_add(1, SeqCst) < 2 * 12 * CALLS { Ok(bytes) } else { Ok(STOP) });
    let spec = CallbackSpec { batch: 1, ..shrinker("a byte", Class::Program) };
    let (bytewise, told) = register(heap, queue, spec, usize::MAX, Some(on_scan));
    heap.reclaim().read_room(Room::shared(16 << 20, 4 << 20));
    pressure(heap, Level::Severe);
    assert!(calls.load(SeqCst) <= 12 * CALLS, "{} calls", calls.load(SeqCst));
    assert!(sum(&told) > 16 << 20, "as much as with batches of any length");
    bytewise.unregister(heap);
}

#[test]
fn what_a_callback_says_that_it_freed_is_bounded_too() {
    let (heap, queue) = served();
    let liars: Vec<_> = (0..3)
        .map(|_| {
            let on_scan: OnScan = Box::new(|_| Ok(usize::MAX - 1));
            register(heap, queue, shrinker("liar", Class::Program), SIZE, Some(on_scan)).0
        })
        .collect();
    heap.reclaim().read_room(Room::shared(16 << 20, 4 << 20));
    pressure(heap, Level::Severe);
    for liar in liars {
        let freed = liar.entry().stats().freed;
        assert!((1..=12 * (32 << 20)).contains(&freed), "{freed} bytes");
        liar.unregister(heap);
    }
}

/// A scan of which the first call says that it has begun, and does not return before it is let.
fn held_once() -> (OnScan, Receiver<()>, Sender<()>) {
    let ((enter, entered), (release, released)) = (channel(), channel::<()>());
    let released = Mutex::new(released);
    let is_first = AtomicBool::new(true);
    let on_scan: OnScan = Box::new(move |bytes| {
        if is_first.swap(false, SeqCst) {
            enter.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        }
        Ok(bytes)
    });
    (on_scan, entered, release)
}

/// Its values may be another allocator's, which has not released them yet: then as much is missing as before.
#[test]
fn a_cache_that_is_at_it_is_not_asked_for_more() {
    let (heap, slow, quick) = (heap(), queue(), queue());
    let (on_scan, entered, release) = held_once();
    let (cache, told) = register(heap, slow, shrinker("slow", Class::Cache), SIZE, Some(on_scan));
    let (other, _) = register(heap, quick, shrinker("quick", Class::Cache), SIZE, None);
    // Its thread gets the CPU late, so that it is not late yet when the balancer has waited for long enough.
    let (runs, entered): (Arc<Mutex<Option<thread::JoinHandle<usize>>>>, _) = (Arc::default(), Mutex::new(entered));
    let run = runs.clone();
    heap.platform().while_callbacks_are_waited_for(move || {
        run.lock().unwrap().get_or_insert_with(|| {
            heap.platform().pass_ms(40);
            let run = thread::spawn(move || serve(heap, slow));
            entered.lock().unwrap().recv().unwrap();
            run
        });
        serve(heap, quick);
    });
    pressure(heap, Level::Some);
    release.send(()).unwrap();
    runs.lock().unwrap().take().unwrap().join().unwrap();
    assert_eq!(*told.scans.lock().unwrap(), [4096], "what priority 12 takes of it");
    cache.unregister(heap);
    other.unregister(heap);
}

/// It is late each time before it has freed anything. If it began with the least each time, it would never free what is wanted.
#[test]
fn what_was_wanted_while_a_callback_was_late_is_what_it_begins_with() {
    let (heap, queue) = (heap(), queue());
    let (on_scan, entered, release) = held_once();
    let (slow, told) = register(heap, queue, shrinker("slow", Class::Program), SIZE, Some(on_scan));
    let (runs, entered): (Arc<Mutex<Option<thread::JoinHandle<usize>>>>, _) = (Arc::default(), Mutex::new(entered));
    let run = runs.clone();
    heap.platform().while_callbacks_are_waited_for(move || {
        run.lock().unwrap().get_or_insert_with(|| {
            let run = thread::spawn(move || serve(heap, queue));
            entered.lock().unwrap().recv().unwrap();
            run
        });
        heap.platform().pass_ms(60);
    });
    pressure(heap, Level::Severe);
    assert_eq!(sum(&told), 4096, "the least, and it is at it");
    release.send(()).unwrap();
    runs.lock().unwrap().take().unwrap().join().unwrap();
    serve_always(heap, queue);
    pressure(heap, Level::Some);
    // What priority 2 takes, for one of the scans, and 2 and 4 times the least for the others.
    assert_eq!(sum(&told), 4096 + (SIZE >> 2) + 2 * 4096 + 4 * 4096);
    slow.unregister(heap);
}

#[test]
fn a_run_ends_after_the_batch_in_which_somebody_unregisters_it() {
    let (heap, queue) = (heap(), queue());
    let (entered, is_in) = channel();
    let calls: Arc<AtomicUsize> = Arc::default();
    let called = calls.clone();
    let on_scan: OnScan = Box::new(move |bytes| {
        if called.fetch_add(1, SeqCst) == 0 {
            entered.send(()).unwrap();
            while heap.callbacks().count(Class::Program) > 0 {
                thread::yield_now();
            }
            // Whoever unregisters has given the lock back, and waits.
            heap.callbacks().each(heap.platform(), |_| ());
        }
        if called.load(SeqCst) < TOO_MANY { Ok(bytes) } else { Ok(STOP) }
    });
    let (long, _) = register(heap, queue, shrinker("long", Class::Program), 1 << 40, Some(on_scan));
    pressure(heap, Level::Some);
    let runs = thread::spawn(move || serve(heap, queue));
    is_in.recv().unwrap();
    long.unregister(heap);
    runs.join().unwrap();
    assert_eq!(calls.load(SeqCst), 1);
}

#[test]
fn many_short_calls_are_not_a_long_one() {
    let (heap, queue) = (heap(), queue());
    let on_scan: OnScan = Box::new(move |bytes| {
        heap.platform().pass_ms(SLOW_NS.0 / 1_000_000 / 4);
        // Another thread of the queue's looks.
        thread::spawn(move || serve(heap, queue)).join().unwrap();
        Ok(bytes)
    });
    let (short, told) = register(heap, queue, shrinker("short", Class::Program), SIZE, Some(on_scan));
    pressure(heap, Level::Severe);
    serve(heap, queue);
    assert!(told.scans.lock().unwrap().len() > 8);
    assert!(heap.platform().slow.lock().unwrap().is_empty(), "no call took more than a quarter of the time");
    short.unregister(heap);
}

#[test]
fn an_evictable_cache_of_which_a_listener_panicked_is_scanned_again() {
    let (heap, queue) = served();
    let is_first = AtomicBool::new(true);
    let on_scan: OnScan = Box::new(move |bytes| if is_first.swap(false, SeqCst) { Err(Panicked) } else { Ok(bytes) });
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, Some(on_scan));
    pressure(heap, Level::Severe);
    assert_eq!(*heap.platform().panicked.lock().unwrap(), ["cache"]);
    assert!(told.scans.lock().unwrap().len() > 1 && !cache.entry().stats().is_disabled);
    assert_eq!(heap.callbacks().shrinkers(ZoneClass::Normal), 1);
    heap.reclaim().note_pressure(Level::None, Cause::Pressure);
    cache.unregister(heap);
    assert_eq!(heap.callbacks().shrinkers(ZoneClass::Normal), 0);
}

#[test]
fn an_evictable_cache_of_which_a_listener_panicked_hears_of_the_relief_that_came_meanwhile() {
    for class in [Class::Cache, Class::Program] {
        let (heap, queue) = (heap(), queue());
        let (cache, told) = register(heap, queue, shrinker("cache", class), SIZE, Some(Box::new(|_| Err(Panicked))));
        pressure(heap, Level::Some);
        heap.platform().pass_ms(heap.platform().tunables().relief_ms.get());
        heap.reclaim().relieve_if_due();
        assert_eq!((serve(heap, queue), told.scans.lock().unwrap().len()), (1, 1), "both in one run");
        // A program's own is never called again.
        assert_eq!(told.relieved.load(SeqCst), u32::from(class == Class::Cache));
        cache.unregister(heap);
    }
}
