//! Shrinkers of a program's own, called when memory is short.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, Once};
use std::time::Duration;
use weir::pressure::{self, Level};
use weir::shrinker::RegisterError;
use weir::{CallbackQueue, CallbackThread, Shrinker, settings};
use weir_testing::{PATIENCE, wait_until};

mod common;
#[path = "common/forked.rs"]
mod forked;
use forked::in_forked;

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

/// A cache of blocks, oldest first.
#[derive(Clone, Default)]
struct Blocks(Arc<Mutex<VecDeque<Vec<u8>>>>);

impl Blocks {
    fn of(bytes: usize, block: usize) -> Self {
        Self(Arc::new(Mutex::new((0..bytes / block).map(|i| vec![i as u8; block]).collect())))
    }
    fn bytes(&self) -> usize {
        self.0.lock().unwrap().iter().map(Vec::len).sum()
    }
    fn free(&self, bytes: usize) -> usize {
        let mut blocks = self.0.lock().unwrap();
        let mut freed = 0;
        while freed < bytes {
            let Some(block) = blocks.pop_front() else { break };
            freed += block.len();
        }
        freed
    }
}

/// One test at a time: the limit is the whole process's. It is far below what is in use while this lives.
struct Pressure(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Pressure {
    fn alone() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
    fn begin() -> Self {
        Self::begin_alone(Self::alone())
    }
    fn begin_alone(guard: MutexGuard<'static, ()>) -> Self {
        settings::set("limit", "1M").unwrap();
        Self(guard)
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        settings::set("limit", "0").unwrap();
    }
}

#[test]
fn a_cache_shrinks_while_memory_is_short_whoever_calls_it() {
    let _pressure = Pressure::begin();
    for thread in [CallbackThread::Shared, CallbackThread::Own] {
        let blocks = Blocks::of(64 << 20, 4000);
        let (count, scan) = (blocks.clone(), blocks.clone());
        let shrinker = Shrinker::builder("blocks")
            .thread(thread)
            .register_fns(move || count.bytes(), move |bytes, _| scan.free(bytes))
            .unwrap();
        wait_until("the cache to shrink", || blocks.bytes() < 60 << 20);
        assert!(shrinker.stats().freed >= 3 << 20);
        drop(shrinker);
        let left = blocks.bytes();
        // Another one on the same thread is, again and again: as often would the first have been.
        let calls = Arc::new(AtomicUsize::new(0));
        let called = calls.clone();
        let scan = move |bytes, _| {
            called.fetch_add(1, SeqCst);
            bytes
        };
        let _other = Shrinker::builder("other").thread(thread).register_fns(|| 100 << 20, scan).unwrap();
        wait_until("another shrinker to be called", || calls.load(SeqCst) > 3);
        assert_eq!(blocks.bytes(), left, "a shrinker that was dropped is not called");
    }
}

#[test]
fn the_programs_thread_serves_its_queue() {
    let _pressure = Pressure::begin();
    let queue = CallbackQueue::new().unwrap();
    let me = std::thread::current().id();
    let blocks = Blocks::of(64 << 20, 4000);
    let (count, scan) = (blocks.clone(), blocks.clone());
    let _shrinker = Shrinker::builder("here")
        .thread(CallbackThread::Queue(&queue))
        .register_fns(
            move || count.bytes(),
            move |bytes, _| {
                assert_eq!(std::thread::current().id(), me);
                scan.free(bytes)
            },
        )
        .unwrap();
    while blocks.bytes() > 63 << 20 {
        assert!(queue.wait(Some(PATIENCE)) > 0, "no call comes");
    }
    // By its descriptor.
    let fd = queue.fd().expect("a descriptor");
    assert!(is_readable(fd.as_raw(), PATIENCE));
    assert!(queue.serve() > 0);
}

fn is_readable(fd: i32, within: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut poll, 1, within.as_millis() as i32) == 1 }
}

#[test]
fn one_that_panics_is_disabled_and_others_are_called() {
    let _pressure = Pressure::begin();
    for thread in [CallbackThread::Shared, CallbackThread::Own] {
        let ballast = Blocks::of(16 << 20, 4000);
        let (calls, others) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (called, other) = (calls.clone(), others.clone());
        let bad = Shrinker::builder("bad")
            .thread(thread)
            .register_fns(
                || 100 << 20,
                move |_, _| {
                    called.fetch_add(1, SeqCst);
                    panic!("a bad shrinker")
                },
            )
            .unwrap();
        let _good = Shrinker::builder("good")
            .thread(thread)
            .register_fns(
                || 100 << 20,
                move |bytes, _| {
                    assert!(!std::thread::panicking(), "on a thread that is as good as new");
                    other.fetch_add(1, SeqCst);
                    bytes
                },
            )
            .unwrap();
        wait_until("a panic", || bad.stats().is_disabled);
        let before = others.load(SeqCst);
        wait_until("the other one to be called after it", || others.load(SeqCst) > before + 3);
        assert_eq!(calls.load(SeqCst), 1);
        drop(ballast);
    }
}

#[test]
fn a_panic_on_the_programs_own_thread_is_the_programs() {
    let _pressure = Pressure::begin();
    let ballast = Blocks::of(16 << 20, 4000);
    let queue = CallbackQueue::new().unwrap();
    let shrinker = Shrinker::builder("own panic")
        .thread(CallbackThread::Queue(&queue))
        .register_fns(|| 100 << 20, |_, _| panic!("for the caller"))
        .unwrap();
    let serve = || while queue.wait(Some(PATIENCE)) > 0 {};
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve)).is_err());
    assert!(shrinker.stats().is_disabled && !std::thread::panicking());
    drop(ballast);
}

#[test]
fn one_that_drops_itself_drops_what_it_holds_once_where_that_panics() {
    struct Bad(Arc<AtomicUsize>);
    impl Drop for Bad {
        fn drop(&mut self) {
            assert!(self.0.fetch_add(1, SeqCst) > 0, "a bad drop");
        }
    }
    let _pressure = Pressure::begin();
    let ballast = Blocks::of(16 << 20, 4000);
    let queue = CallbackQueue::new().unwrap();
    let (me, drops): (Arc<Mutex<Option<Shrinker>>>, Arc<AtomicUsize>) = Default::default();
    let (own, bad) = (me.clone(), Bad(drops.clone()));
    let scan = move |bytes, _| {
        let _held = &bad;
        drop(taken(&own));
        bytes
    };
    let thread = CallbackThread::Queue(&queue);
    let shrinker = Shrinker::builder("bad drop").thread(thread).register_fns(|| 100 << 20, scan).unwrap();
    *me.lock().unwrap() = Some(shrinker);
    let serve = || while queue.wait(Some(PATIENCE)) > 0 {};
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve)).is_err());
    assert_eq!(drops.load(SeqCst), 1);
    drop(ballast);
}

/// Waits for the shrinker in a slot: a callback may be called before its registration is put there.
fn taken(slot: &Mutex<Option<Shrinker>>) -> Shrinker {
    loop {
        match slot.lock().unwrap().take() {
            Some(shrinker) => return shrinker,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_callback_may_allocate_register_and_drop_its_own_shrinker() {
    let _pressure = Pressure::begin();
    let ballast = Blocks::of(16 << 20, 4000);
    for thread in [CallbackThread::Shared, CallbackThread::Own] {
        let me: Arc<Mutex<Option<Shrinker>>> = Arc::default();
        let (own, calls) = (me.clone(), Arc::new(AtomicUsize::new(0)));
        let called = calls.clone();
        let shrinker = Shrinker::builder("self")
            .thread(thread)
            .register_fns(
                || 100 << 20,
                move |bytes, _| {
                    called.fetch_add(1, SeqCst);
                    drop(Blocks::of(1 << 20, 100));
                    drop(Shrinker::builder("inner").register_fns(|| 0, |_, _| 0).unwrap());
                    drop(taken(&own));
                    bytes
                },
            )
            .unwrap();
        *me.lock().unwrap() = Some(shrinker);
        // What the closures hold goes with them, once they have returned.
        wait_until("the closures to be dropped", || Arc::strong_count(&calls) == 1);
        assert_eq!(calls.load(SeqCst), 1);
    }
    drop(ballast);
}

#[test]
fn two_callbacks_may_unregister_each_other() {
    let _pressure = Pressure::begin();
    let ballast = Blocks::of(16 << 20, 4000);
    let slots: [Arc<Mutex<Option<Shrinker>>>; 2] = Default::default();
    let (both, alive) = (Arc::new(Barrier::new(2)), Arc::new(()));
    for mine in 0..2 {
        let (other, both, alive, first) = (slots[1 - mine].clone(), both.clone(), alive.clone(), Once::new());
        let scan = move |bytes, _| {
            let _alive = &alive;
            first.call_once(|| {
                both.wait();
                drop(taken(&other));
            });
            bytes
        };
        let shrinker = Shrinker::builder("pair").thread(CallbackThread::Own).register_fns(|| 100 << 20, scan).unwrap();
        *slots[mine].lock().unwrap() = Some(shrinker);
    }
    wait_until("both to be unregistered", || Arc::strong_count(&alive) == 1);
    drop(ballast);
}

#[test]
fn a_subscription_hears_of_pressure_and_of_one_relief() {
    let guard = Pressure::alone();
    settings::set("relief_ms", "200").unwrap();
    let ballast = Blocks::of(16 << 20, 4000);
    wait_until("the relief of another test", || pressure::latest().level == Level::None);
    let heard: Arc<Mutex<Vec<pressure::Event>>> = Arc::default();
    let hears = heard.clone();
    let subscription = pressure::subscribe(Level::Some, move |event| hears.lock().unwrap().push(event)).unwrap();
    let mut events = pressure::events();
    assert!(events.try_next().is_none() && events.next_timeout(Duration::from_millis(1)).is_none());
    let fd = events.raw_fd().unwrap();
    let mut others = pressure::events();
    let waits = std::thread::spawn(move || others.next().unwrap());
    let pressed = Pressure::begin_alone(guard);
    assert!(is_readable(fd, PATIENCE));
    let event = events.try_next().unwrap();
    assert!(event.level >= Level::Some && event.cause == pressure::Cause::Limit);
    assert!(waits.join().unwrap().level >= Level::Some);
    settings::set("limit", "0").unwrap();
    let relief = events.find(|event| event.level == Level::None).unwrap();
    wait_until("the relief", || heard.lock().unwrap().last().is_some_and(|last| last.level == Level::None));
    assert_eq!(heard.lock().unwrap().last().unwrap().generation, relief.generation);
    // What comes next is pressure: relief comes once.
    settings::set("limit", "1M").unwrap();
    assert!(is_readable(fd, PATIENCE));
    wait_until("pressure again", || heard.lock().unwrap().last().is_some_and(|last| last.level >= Level::Some));
    let heard = heard.lock().unwrap().clone();
    assert_eq!(heard.iter().filter(|event| event.level == Level::None).count(), 1);
    assert!(heard.windows(2).all(|two| two[0].generation < two[1].generation));
    drop((subscription, ballast, pressed));
}

#[test]
fn a_descriptor_tells_of_what_came_before_it_and_of_the_relief() {
    let guard = Pressure::alone();
    settings::set("relief_ms", "200").unwrap();
    let ballast = Blocks::of(16 << 20, 4000);
    wait_until("the relief of another test", || pressure::latest().level == Level::None);
    let mut before = pressure::events();
    let pressed = Pressure::begin_alone(guard);
    wait_until("pressure", || pressure::latest().level >= Level::Some);
    let fd = before.raw_fd().unwrap();
    assert!(is_readable(fd, PATIENCE));
    assert!(before.try_next().is_some_and(|event| event.level >= Level::Some));
    // These begin while memory is short, and have seen that.
    let mut during = pressure::events();
    let fd = during.raw_fd().unwrap();
    settings::set("limit", "0").unwrap();
    wait_until("the relief", || {
        is_readable(fd, PATIENCE) && during.try_next().is_some_and(|it| it.level == Level::None)
    });
    drop((ballast, pressed));
}

/// The child does nothing but wait.
#[test]
fn a_forked_child_hears_of_pressure_by_the_events_of_its_parent() {
    let guard = Pressure::alone();
    let ballast = Blocks::of(16 << 20, 4000);
    let pressed = Pressure::begin_alone(guard);
    wait_until("pressure", || pressure::latest().level >= Level::Some);
    let mut events = pressure::events();
    in_forked(|| {
        // What it hears first is that its parent's pressure is not its own.
        while events.next_timeout(PATIENCE / 4).unwrap().level == Level::None {}
    });
    drop((ballast, pressed));
}

#[test]
fn a_descriptor_that_the_system_refuses_is_no_lack_of_memory() {
    let mut events = pressure::events();
    in_forked(|| {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a limit of this process, which ends here.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) }, 0);
        let refused = events.raw_fd().unwrap_err();
        assert_eq!(refused, RegisterError::NoDescriptor);
        assert!(refused.to_string().contains("descriptor"));
    });
    assert!(events.raw_fd().is_ok());
}

#[test]
fn the_callback_for_a_limit_is_set_called_and_taken_back() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    fn free(bytes: usize) -> bool {
        FREED.fetch_add(bytes, SeqCst);
        true
    }
    assert!(pressure::on_limit(Some(free)).is_none());
    assert!(weir_linux::process::limit::limit_reached(7));
    assert!(pressure::on_limit(None).is_some_and(|before| before(3)));
    assert!(!weir_linux::process::limit::limit_reached(7));
    assert_eq!(FREED.load(SeqCst), 10);
    // One thread sets it as another takes it back. Whoever comes last, one that is set is called.
    for _ in 0..2_000 {
        let turn = AtomicUsize::new(0);
        let meet = || {
            turn.fetch_add(1, SeqCst);
            while turn.load(SeqCst) < 2 {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                meet();
                pressure::on_limit(None);
            });
            meet();
            pressure::on_limit(Some(free));
        });
        let is_called = weir_linux::process::limit::limit_reached(1);
        assert_eq!(is_called, pressure::on_limit(None).is_some());
    }
}
