//! Callbacks that never return, that panic, and that go while they run.

use super::*;

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
    assert_eq!(waited, heap.platform().tunables().callback_ms.ns(), "once, not at each priority");
    assert!(stuck.entry().stats().is_late);
    // Another one, on the same queue, is served by another thread.
    let (other, other_told) = register(heap, queue, shrinker("other", Class::Program), SIZE, None);
    serve_always(heap, queue);
    pressure(heap, Level::Some);
    assert_eq!(other_told.scans.lock().unwrap().len(), 7);
    assert_eq!(stuck_told.scans.lock().unwrap().len(), 1, "it is left alone until it returns");
    assert!(heap.platform().slow.lock().unwrap().is_empty());
    heap.platform().pass_ms(SLOW_NS.0 / 1_000_000);
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

/// A scan that says when it has begun, and ends when it is let go.
fn held() -> (OnScan, Receiver<()>, Sender<()>) {
    let (enters, is_in) = channel();
    let (let_go, waits) = channel();
    let waits = Mutex::new((enters, waits));
    let on_scan: OnScan = Box::new(move |_| {
        let waits = waits.lock().unwrap();
        waits.0.send(()).unwrap();
        waits.1.recv().unwrap();
        Ok(STOP)
    });
    (on_scan, is_in, let_go)
}

/// The process is stopped while a callback runs, and continued.
#[test]
fn a_callback_that_stood_still_with_the_process_is_not_named() {
    let (heap, queue) = (heap(), queue());
    let (on_scan, is_in, let_go) = held();
    let (stopped, _) = register(heap, queue, shrinker("stopped", Class::Program), SIZE, Some(on_scan));
    pressure(heap, Level::Some);
    let thread = thread::spawn(move || serve(heap, queue));
    is_in.recv().unwrap();
    let (callbacks, platform) = (heap.callbacks(), heap.platform());
    let sleeps = || match callbacks.take(platform, queue) {
        Taken::Sleep(until) => until,
        other => panic!("{other:?}"),
    };
    let until = sleeps();
    platform.pass_ms(86_400_000);
    callbacks.woke(platform, until);
    sleeps();
    assert!(platform.slow.lock().unwrap().is_empty() && !stopped.entry().stats().is_late);
    platform.pass_ms(SLOW_NS.0 / 1_000_000);
    serve(heap, queue);
    assert_eq!(*platform.slow.lock().unwrap(), ["stopped"]);
    (0..2).for_each(|_| let_go.send(()).unwrap());
    thread.join().unwrap();
    stopped.unregister(heap);
}

#[test]
fn one_whose_queue_has_no_other_thread_is_named_by_the_balancer() {
    let (heap, queue) = (heap(), queue());
    let (on_scan, is_in, let_go) = held();
    let (stuck, _) = register(heap, queue, shrinker("alone", Class::Program), SIZE, Some(on_scan));
    pressure(heap, Level::Some);
    let thread = thread::spawn(move || serve(heap, queue));
    is_in.recv().unwrap();
    pressure(heap, Level::Some);
    assert!(heap.platform().slow.lock().unwrap().is_empty());
    heap.platform().pass_ms(SLOW_NS.0 / 1_000_000);
    pressure(heap, Level::Some);
    pressure(heap, Level::Some);
    assert_eq!(*heap.platform().slow.lock().unwrap(), ["alone"]);
    (0..2).for_each(|_| let_go.send(()).unwrap());
    thread.join().unwrap();
    stuck.unregister(heap);
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
    let (heap, queue) = served();
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
fn one_that_unregistered_itself_is_disposed_of_once_where_that_panics() {
    static DISPOSED: AtomicUsize = AtomicUsize::new(0);
    /// Frees nothing, and panics the first time.
    unsafe fn dispose(_: NonNull<Entry>) {
        assert!(DISPOSED.fetch_add(1, SeqCst) > 0, "a bad drop");
    }
    let (heap, queue) = (heap(), queue());
    let me: Arc<Mutex<Option<Registered>>> = Arc::default();
    let own = me.clone();
    let on_scan: OnScan = Box::new(move |bytes| {
        own.lock().unwrap().take().expect("called once").unregister(heap);
        Ok(bytes)
    });
    let told = Arc::new(Told { bytes: AtomicUsize::new(SIZE), ..Told::default() });
    let cache: &'static mut dyn Callback = Box::leak(Box::new(Cache { heap, told, on_scan: Some(on_scan) }));
    let spec = shrinker("bad drop", Class::Program);
    // SAFETY: the callback, the queue and the entry are leaked, and stay.
    let entry = unsafe {
        let entry = Entry::new(&spec, NonNull::from(cache), NonNull::from(queue), dispose);
        let entry = NonNull::from(Box::leak(Box::new(entry)));
        heap.callbacks().register(heap.platform(), entry);
        entry
    };
    *me.lock().unwrap() = Some(Registered(entry));
    pressure(heap, Level::Some);
    assert!(thread::spawn(move || serve(heap, queue)).join().is_err(), "the panic is who serves' own");
    assert_eq!(DISPOSED.load(SeqCst), 1);
    assert!(heap.platform().panicked.lock().unwrap().is_empty(), "the callback itself did not");
}

#[test]
fn one_that_panics_is_named_and_disabled() {
    let (heap, queue) = served();
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
fn one_that_panicked_is_no_shrinker_any_more() {
    let (heap, queue) = served();
    let (bad, _) = register(heap, queue, shrinker("bad", Class::Program), SIZE, Some(Box::new(|_| Err(Panicked))));
    assert_eq!(heap.callbacks().shrinkers(ZoneClass::Normal), 1);
    pressure(heap, Level::Some);
    assert_eq!(heap.callbacks().shrinkers(ZoneClass::Normal), 0);
    bad.unregister(heap);
    assert_eq!(heap.callbacks().shrinkers(ZoneClass::Normal), 0);
}
