//! `get_or_insert_async`: one loads for all tasks and threads that want a key, and whoever is dropped, others go on. Futures
//! are polled by hand, so that each order of events is meant; `tokio` runs them in any order.

use crate::counted::{Count, Counted};
#[cfg(not(plain))]
use crate::eviction::reclaim::{forked::in_forked, in_child};
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use weir::EvictableCache;
use weir_testing::wait_until;

fn cache() -> EvictableCache<u64, u64> {
    EvictableCache::builder().shards(1).build().unwrap()
}

/// A waker that notes that it was called.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

impl Woken {
    fn is_set(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// A future that is polled by hand.
struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    woken: Arc<Woken>,
}

impl<'a, T> Task<'a, T> {
    fn new(future: impl Future<Output = T> + 'a) -> Self {
        Self { future: Box::pin(future), woken: Arc::default() }
    }

    fn poll(&mut self) -> Poll<T> {
        self.woken.0.store(false, SeqCst);
        let waker = Waker::from(self.woken.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls it with another waker from now on.
    fn poll_anew(&mut self) -> Poll<T> {
        self.woken = Arc::default();
        self.poll()
    }
}

/// A value, as soon as the gate is open. Wakes nobody.
async fn behind<T>(gate: &Cell<bool>, value: T) -> T {
    poll_fn(|_| if gate.get() { Poll::Ready(()) } else { Poll::Pending }).await;
    value
}

/// Waits so many times, and wakes itself each time.
async fn steps(count: usize) {
    let mut left = count;
    poll_fn(|context| {
        left = left.saturating_sub(1);
        context.waker().wake_by_ref();
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[test]
fn who_waits_is_woken_by_its_last_waker_and_finds_the_value() {
    let (cache, gate) = (cache(), Cell::new(false));
    let mut first = Task::new(async { *cache.get_or_insert_async(1, behind(&gate, 10)).await });
    assert!(first.poll().is_pending());
    let never = || async { panic!("another loads") };
    let mut second = Task::new(async { *cache.get_or_insert_async(1, never()).await });
    let mut other_key = Task::new(async { *cache.get_or_insert_async(2, behind(&gate, 20)).await });
    let mut waits_for_other = Task::new(async { *cache.get_or_insert_async(2, never()).await });
    assert!(second.poll().is_pending() && other_key.poll().is_pending() && waits_for_other.poll().is_pending());
    let before = second.woken.clone();
    assert!(second.poll_anew().is_pending());
    gate.set(true);
    assert_eq!(first.poll(), Poll::Ready(10));
    // The waker of the poll before is forgotten, and who waits for another key sleeps on.
    assert!(second.woken.is_set() && !before.is_set() && !waits_for_other.woken.is_set());
    assert_eq!(second.poll(), Poll::Ready(10));
    assert_eq!(other_key.poll(), Poll::Ready(20));
    assert!(waits_for_other.woken.is_set());
    assert_eq!(waits_for_other.poll(), Poll::Ready(20));
    assert_eq!(cache.stats().insertions, 2);
}

#[test]
fn thousands_load_at_once_and_what_the_cache_had_for_them_goes_back() {
    const KEYS: u64 = 3000;
    let (cache, gate) = (&cache(), &Cell::new(false));
    let before = cache.stats().metadata_bytes;
    let load = |key| Task::new(async move { *cache.get_or_insert_async(key, behind(gate, key)).await });
    let mut tasks: Vec<_> = (0..KEYS).chain(0..KEYS).map(load).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    assert!(cache.stats().metadata_bytes > before, "flights and waiting tasks are in more buckets");
    gate.set(true);
    // In no order; one of five is dropped, and the other of its key loads.
    for at in 0..KEYS {
        let at = at * 7 % KEYS;
        match at % 5 {
            0 => tasks[at as usize] = Task::new(async { 0 }),
            _ => assert_eq!(tasks[at as usize].poll(), Poll::Ready(at)),
        }
        assert!(tasks[(at + KEYS) as usize].woken.is_set());
        assert_eq!(tasks[(at + KEYS) as usize].poll(), Poll::Ready(at));
    }
    assert_eq!(cache.stats().insertions, KEYS);
    cache.clear();
    assert_eq!(cache.stats().metadata_bytes, before);
}

#[test]
fn where_the_one_that_loads_is_dropped_fails_or_panics_the_next_loads() {
    for end in ["dropped", "fails", "panics"] {
        let (cache, gate) = (cache(), Cell::new(false));
        let load = async {
            behind(&gate, ()).await;
            assert!(end != "panics", "on purpose");
            Err("failed")
        };
        let mut first = Task::new(async { cache.try_get_or_insert_async(1, load).await.map(|entry| *entry) });
        assert!(first.poll().is_pending());
        let next = || Task::new(async { *cache.get_or_insert_async(1, async { 7 }).await });
        // The last of them is woken too, and dropped before it is polled: the other loads all the same.
        let (mut second, mut third) = (next(), next());
        assert!(second.poll().is_pending() && third.poll().is_pending(), "{end}");
        gate.set(true);
        match end {
            "dropped" => drop(first),
            "fails" => assert_eq!(first.poll(), Poll::Ready(Err("failed"))),
            _ => assert!(catch_unwind(AssertUnwindSafe(|| first.poll())).is_err()),
        }
        assert!(second.woken.is_set() && third.woken.is_set(), "{end}");
        drop(third);
        assert_eq!(second.poll(), Poll::Ready(7), "{end}");
    }
}

#[test]
fn who_stops_waiting_is_not_woken_and_a_future_that_was_never_polled_does_nothing() {
    let (cache, gate, live) = (cache(), Cell::new(false), Count::default());
    let mut first = Task::new(async { *cache.get_or_insert_async(1, behind(&gate, 1)).await });
    assert!(first.poll().is_pending());
    // In the middle, at the front and at the end of the list.
    let mut tasks: Vec<_> = (0..5).map(|_| Task::new(cache.get_or_insert_async(1, async { 2 }))).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    for at in [2, 3, 0] {
        let gone = tasks.remove(at).woken;
        assert_eq!(Arc::strong_count(&gone), 1, "its waker is dropped with it");
    }
    let counted = live.make(1);
    drop(cache.get_or_insert_async(3, async move { counted.check() }));
    assert_eq!((live.get(), cache.len()), (0, 0));
    gate.set(true);
    assert_eq!(first.poll(), Poll::Ready(1));
    assert!(tasks.iter().all(|task| task.woken.is_set()));
    assert!(tasks.iter_mut().all(|task| matches!(task.poll(), Poll::Ready(entry) if *entry == 1)));
}

#[test]
fn threads_and_tasks_wait_for_each_other() {
    let (cache, gate) = (cache(), Cell::new(false));
    let mut first = Task::new(async { *cache.get_or_insert_async(1, behind(&gate, 10)).await });
    assert!(first.poll().is_pending());
    thread::scope(|scope| {
        // A thread waits for a task, and finds its value whether it slept by then or not.
        let waits = scope.spawn(|| *cache.get_or_insert_with(1, || panic!("another loads")));
        thread::yield_now();
        gate.set(true);
        assert_eq!(first.poll(), Poll::Ready(10));
        assert_eq!(waits.join().unwrap(), 10);
    });
    for is_panic in [false, true] {
        let (key, inside, go_on) = (2 + u64::from(is_panic), Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            // A task waits for a thread.
            let computes = || {
                let compute = || {
                    inside.wait();
                    go_on.wait();
                    assert!(!is_panic, "on purpose");
                    20
                };
                catch_unwind(AssertUnwindSafe(|| *cache.get_or_insert_with(key, compute)))
            };
            let computes = scope.spawn(computes);
            inside.wait();
            let mut task = Task::new(async { *cache.get_or_insert_async(key, async { 30 }).await });
            assert!(task.poll().is_pending());
            go_on.wait();
            assert_eq!(computes.join().unwrap().is_err(), is_panic);
            wait_until("the task is woken", || task.woken.is_set());
            assert_eq!(task.poll(), Poll::Ready(if is_panic { 30 } else { 20 }));
        });
    }
}

#[test]
fn a_load_that_blocks_for_its_own_key_panics() {
    let cache = cache();
    let mut task = Task::new(cache.get_or_insert_async(1, async {
        steps(2).await;
        *cache.get_or_insert_with(1, || 2)
    }));
    assert!(task.poll().is_pending());
    let said = catch_unwind(AssertUnwindSafe(|| task.poll().is_ready())).unwrap_err();
    assert!(said.downcast_ref::<&str>().unwrap().contains("asks for the key whose value it computes"));
    assert_eq!(*cache.get_or_insert_with(1, || 5), 5);
}

#[test]
fn a_load_that_asks_for_its_own_key_as_it_is_cancelled_panics() {
    struct Asks<'a>(&'a EvictableCache<u64, u64>);
    impl Drop for Asks<'_> {
        fn drop(&mut self) {
            let _ = self.0.get_or_insert_with(1, || 50);
        }
    }
    let cache = cache();
    let mut cancelled = Task::new(cache.get_or_insert_async(1, async {
        let _asks = Asks(&cache);
        std::future::pending::<u64>().await
    }));
    let mut second = Task::new(cache.get_or_insert_async(1, async { 2 }));
    assert!(cancelled.poll().is_pending() && second.poll().is_pending());
    let said = catch_unwind(AssertUnwindSafe(|| drop(cancelled))).unwrap_err();
    assert!(said.downcast_ref::<&str>().unwrap().contains("asks for the key whose value it computes"));
    assert!(second.woken.is_set());
    assert_eq!(second.poll().map(|entry| *entry), Poll::Ready(2));
}

#[test]
fn wakers_may_use_the_cache_and_may_panic() {
    static USES: AtomicUsize = AtomicUsize::new(0);
    /// Uses the shard as it is woken and as it is dropped.
    struct Uses(Arc<EvictableCache<u64, u64>>, bool);
    impl Wake for Uses {
        fn wake(self: Arc<Self>) {
            USES.fetch_add(usize::from(self.0.contains(&1)), SeqCst);
            assert!(!self.1, "on purpose");
        }
    }
    impl Drop for Uses {
        fn drop(&mut self) {
            self.0.contains(&1);
        }
    }
    let (cache, gate) = (Arc::new(cache()), Cell::new(false));
    let mut first = Task::new(async { *cache.get_or_insert_async(1, behind(&gate, 10)).await });
    assert!(first.poll().is_pending());
    // More than are woken at a time; one in the midst of the first of them panics.
    let mut others: Vec<_> = (0..50).map(|_| Box::pin(cache.get_or_insert_async(1, async { 0 }))).collect();
    for (at, other) in others.iter_mut().enumerate() {
        // The second waker takes the first one's place, which is dropped.
        for _ in 0..2 {
            let waker = Waker::from(Arc::new(Uses(cache.clone(), at == 45)));
            assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    gate.set(true);
    assert!(catch_unwind(AssertUnwindSafe(|| first.poll())).is_err());
    assert_eq!((USES.load(SeqCst), cache.get_copied(&1)), (50, Some(10)));
}

#[test]
fn who_waits_again_is_not_woken_again() {
    /// A task that is polled by its own waker.
    struct Eager {
        future: Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>,
        polls: AtomicUsize,
    }
    impl Wake for Eager {
        fn wake(self: Arc<Self>) {
            assert!(self.polls.fetch_add(1, SeqCst) < 4, "woken without end");
            let waker = Waker::from(self.clone());
            _ = self.future.lock().unwrap().as_mut().poll(&mut Context::from_waker(&waker));
        }
    }
    let cache = Arc::new(cache());
    let mut first = Task::new(cache.get_or_insert_async(1, std::future::pending()));
    assert!(first.poll().is_pending());
    let eager = || {
        let cache = cache.clone();
        let future =
            Mutex::new(Box::pin(async move { drop(cache.get_or_insert_async(1, std::future::pending()).await) })
                as Pin<Box<dyn Future<Output = ()> + Send>>);
        let task = Arc::new(Eager { future, polls: AtomicUsize::new(0) });
        task.clone().wake();
        task
    };
    let tasks = [(); 3].map(|()| eager());
    // One of them loads, and the others wait for it while all are still being woken.
    drop(first);
    assert_eq!(tasks.each_ref().map(|task| task.polls.load(SeqCst)), [2; 3]);
    // Tasks have their own wakers, and the cache: the circle is broken by hand.
    tasks.iter().for_each(|task| *task.future.lock().unwrap() = Box::pin(async {}));
}

/// A waker of a task that waits, beside others. Its drop panics unless it was woken.
struct Picky {
    at: usize,
    all: Arc<Row>,
    is_woken: AtomicBool,
}

/// A future that threads may poll.
type Sent = Pin<Box<dyn Future<Output = u64> + Send>>;

/// Tasks that wait for one key, and their wakers.
#[derive(Default)]
struct Row {
    futures: Mutex<Vec<Option<Sent>>>,
    wakers: Mutex<Vec<Weak<Picky>>>,
    woken: AtomicUsize,
    panics: AtomicUsize,
}

impl Wake for Picky {
    /// The last that is taken at a time polls the one that is left: that has its waker still.
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, SeqCst);
        let wakers = self.all.wakers.lock().unwrap().clone();
        if self.all.woken.fetch_add(1, SeqCst) + 2 < wakers.len() {
            return;
        }
        let is_left = |&at: &usize| at != self.at && wakers[at].strong_count() > 0;
        let Some(left) = (0..wakers.len()).find(is_left) else { return };
        let mut future = self.all.futures.lock().unwrap()[left].take().unwrap();
        let poll = || future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.all.panics.fetch_add(usize::from(catch_unwind(AssertUnwindSafe(poll)).is_err()), SeqCst);
    }
}

impl Drop for Picky {
    fn drop(&mut self) {
        assert!(self.is_woken.load(SeqCst), "on purpose");
    }
}

/// What a block gives is not dropped where a variable of it panics at its end. A load would stay known that is gone.
#[test]
fn a_waker_whose_drop_panics_as_its_task_begins_to_load_leaves_no_load_behind() {
    // One more than are woken at a time.
    const TASKS: usize = 17;
    let cache: &'static EvictableCache<u64, u64> = Box::leak(Box::new(cache()));
    let mut first = Task::new(cache.get_or_insert_async(1, std::future::pending()));
    assert!(first.poll().is_pending());
    let all = Arc::new(Row::default());
    for at in 0..TASKS {
        let mut future = Box::pin(async { *cache.get_or_insert_async(1, async { 2 }).await });
        let waker = Arc::new(Picky { at, all: all.clone(), is_woken: AtomicBool::new(false) });
        all.wakers.lock().unwrap().push(Arc::downgrade(&waker));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker.into())).is_pending());
        all.futures.lock().unwrap().push(Some(future));
    }
    drop(first);
    assert_eq!((all.woken.load(SeqCst), all.panics.load(SeqCst)), (TASKS - 1, 1));
    assert_eq!(Task::new(cache.get_or_insert_async(1, async { 5 })).poll().map(|entry| *entry), Poll::Ready(5));
}

/// A generator of numbers (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Counts who loads a key: never two at once.
struct Inside<'a>(&'a AtomicUsize);

impl<'a> Inside<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        assert_eq!(count.fetch_add(1, SeqCst), 0, "two load at once");
        Self(count)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Wants a key by a load of several steps, which may fail or panic.
async fn want(
    cache: &EvictableCache<u64, Counted>,
    inside: &[AtomicUsize],
    live: Count,
    key: u64,
    (count, end): (usize, usize),
) -> u64 {
    let load = async {
        let _inside = Inside::new(&inside[key as usize]);
        steps(count).await;
        assert!(end != 0, "on purpose");
        if end == 1 { Err(()) } else { Ok(live.make(key)) }
    };
    cache.try_get_or_insert_async(key, load).await.map_or(key, |entry| entry.check())
}

#[test]
fn in_any_order_of_polls_and_drops_all_that_are_left_end() {
    let (mut ended, mut dropped) = (0, 0);
    for seed in 0..400 {
        let (mut random, live) = (Random(seed), Count::default());
        let inside = [const { AtomicUsize::new(0) }; 3];
        // In every other case nothing is kept: each loads for itself.
        let most = if seed % 2 == 0 { usize::MAX } else { 1 };
        let cache =
            EvictableCache::<u64, Counted>::builder().shards(1).max_bytes(most).weigher(|_, _| 2).build().unwrap();
        let mut tasks = Vec::new();
        for _ in 0..2 + random.below(14) {
            let (key, load) = (random.below(3) as u64, (random.below(4), random.below(10)));
            let task = Task::new(want(&cache, &inside, live.clone(), key, load));
            task.woken.0.store(true, SeqCst);
            tasks.push((key, task));
        }
        while !tasks.is_empty() {
            match random.below(20) {
                0 => dropped += usize::from(tasks.swap_remove(random.below(tasks.len())).0 < 3),
                1 => _ = cache.remove(&(random.below(3) as u64)),
                2 => {
                    // A task may be polled for no reason, and by another waker.
                    let at = random.below(tasks.len());
                    let is_done = catch_unwind(AssertUnwindSafe(|| tasks[at].1.poll_anew().is_ready()));
                    if is_done.unwrap_or(true) {
                        drop(tasks.swap_remove(at));
                    }
                }
                _ => {
                    let woken: Vec<_> = (0..tasks.len()).filter(|&at| tasks[at].1.woken.is_set()).collect();
                    assert!(!woken.is_empty(), "seed {seed}: {} tasks sleep for good", tasks.len());
                    let at = woken[random.below(woken.len())];
                    let (key, task) = &mut tasks[at];
                    match catch_unwind(AssertUnwindSafe(|| task.poll())) {
                        Ok(Poll::Pending) => continue,
                        Ok(Poll::Ready(value)) => assert_eq!(value, *key, "seed {seed}"),
                        Err(said) => assert_eq!(said.downcast_ref::<&str>(), Some(&"on purpose"), "seed {seed}"),
                    }
                    drop(tasks.swap_remove(at));
                    ended += 1;
                }
            }
        }
        // No flight is left: nothing waits.
        (0..3).for_each(|key| assert_eq!(cache.get_or_insert_with(key, || live.make(key)).check(), key));
        assert_eq!(live.get(), cache.len() as isize, "seed {seed}");
    }
    assert!(ended > 1_000 && dropped > 100, "{ended} {dropped}");
}

#[test]
fn under_tokio_tasks_that_are_aborted_and_threads_leave_nobody_waiting() {
    let live = Count::default();
    let inside = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let cache = EvictableCache::<u64, Counted>::builder().shards(1).max_bytes(1_000).weigher(|_, _| 500).build();
    let cache = Arc::new(cache.unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Threads outside the runtime want the same keys.
        let threads = (0..2).map(|key| {
            let (cache, live, inside, is_over) = (&cache, &live, &inside, &is_over);
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    let compute = || {
                        let _inside = Inside::new(&inside[key as usize]);
                        live.make(key)
                    };
                    assert_eq!(cache.get_or_insert_with(key, compute).check(), key);
                    cache.remove(&key);
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        runtime.block_on(async {
            let mut random = Random(1);
            for _ in 0..300 {
                let tasks = (0..12).map(|_| {
                    let (key, load) = (random.below(3) as u64, (random.below(4), 1 + random.below(9)));
                    let (cache, inside, live) = (cache.clone(), inside.clone(), live.clone());
                    let task = tokio::spawn(async move { want(&cache, &*inside, live, key, load).await });
                    (key, task, random.below(3) == 0)
                });
                for (key, task, is_aborted) in tasks.collect::<Vec<_>>() {
                    if is_aborted {
                        task.abort();
                    }
                    match task.await {
                        Ok(value) => assert_eq!(value, key),
                        Err(why) => assert!(is_aborted && why.is_cancelled(), "{why}"),
                    }
                }
            }
        });
        is_over.store(true, SeqCst);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(live.get(), cache.len() as isize);
    cache.clear();
    assert_eq!(live.get(), 0);
}

#[cfg(not(plain))]
#[test]
fn a_forked_child_waits_for_no_task_of_its_parent() {
    in_child(|| {
        let (cache, gate) = (cache(), Cell::new(false));
        let mut first = Task::new(async { *cache.get_or_insert_async(1, behind(&gate, 10)).await });
        let mut second = Task::new(async { *cache.get_or_insert_async(1, async { 11 }).await });
        assert!(first.poll().is_pending() && second.poll().is_pending());
        in_forked(|| {
            // SAFETY: the child has its own copies, and ends without dropping them again.
            let tasks = unsafe { (std::ptr::read(&raw const first), std::ptr::read(&raw const second)) };
            assert_eq!(*cache.get_or_insert_with(1, || 5), 5);
            drop(tasks);
        });
        gate.set(true);
        assert_eq!(first.poll(), Poll::Ready(10));
        assert!(second.woken.is_set());
        assert_eq!(second.poll(), Poll::Ready(10));
    });
}

/// Otherwise the next could load while the first future is still there.
#[test]
fn a_load_is_dropped_before_its_value_is_there_for_others() {
    /// Is ready at once, and tells of its drop.
    struct Ready(Arc<AtomicBool>);
    impl Future for Ready {
        type Output = Result<u64, ()>;
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            Poll::Ready(Ok(200))
        }
    }
    impl Drop for Ready {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let is_dropped: Arc<AtomicBool> = Arc::default();
    let seen = is_dropped.clone();
    let cache = EvictableCache::<u64, u64>::builder().max_bytes(100).weigher(|_, &value| value as usize);
    let cache = cache.on_evict(move |_, _, _| assert!(seen.load(SeqCst), "the load is there still")).build().unwrap();
    let Poll::Ready(Ok(value)) = Task::new(cache.try_get_or_insert_async(1, Ready(is_dropped.clone()))).poll() else {
        panic!("it is ready")
    };
    assert_eq!((*value, is_dropped.load(SeqCst)), (200, true));
}

/// A listener may wait for what a task does that waits for the value.
#[test]
fn who_waits_is_woken_before_the_listener_is_told_of_what_left_for_the_value() {
    let (woken, seen) = (Arc::<Woken>::default(), Arc::new(Mutex::new(Vec::new())));
    let (is_woken, told) = (woken.clone(), seen.clone());
    let cache = EvictableCache::<u64, u64>::builder().shards(1).max_bytes(100).weigher(|_, &value| value as usize);
    let cache = cache.on_evict(move |key, _, _| told.lock().unwrap().push((*key, is_woken.is_set()))).build().unwrap();
    drop(cache.insert(1, 60).unwrap());
    let mut waits = Task { future: Box::pin(async { *cache.get_or_insert_async(2, async { 0 }).await }), woken };
    let compute = || {
        assert!(waits.poll().is_pending());
        61
    };
    assert_eq!(*cache.get_or_insert_with(2, compute), 61);
    assert_eq!(*seen.lock().unwrap(), [(1, true)]);
    assert_eq!(waits.poll(), Poll::Ready(61));
}
