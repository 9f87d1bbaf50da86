//! A program's callbacks: posting, calling, unregistering while one runs, two that unregister each other, and a queue
//! that goes on past one that is late. All of it is its own source (`evict/shrinkers` and what it stands on) on a model
//! checker's atomics, lock and futex. A callback's memory is a cell that the checker watches, which calling reads and
//! disposing writes.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

#[macro_use]
#[path = "../../../weir-core/src/macros.rs"]
mod macros;

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/base"]
mod base {
    pub mod cause;
    pub mod cost;
    pub mod level;
    pub mod time;
    pub mod units;
    pub mod zone_class;
}

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/platform"]
mod platform {
    pub mod rank;
    pub use weir_models::lock;

    pub mod sync {
        use loom::sync::atomic::Ordering;
        use std::cell::Cell;
        pub use weir_models::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, array, constructor};

        thread_local! {
            static FORGETS: Cell<bool> = const { Cell::new(false) };
        }

        /// Whether pointers that are stored from now on are forgotten, in the model that this thread runs.
        pub fn forget_pointers(forgets: bool) {
            FORGETS.set(forgets);
        }

        pub struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

        impl<T> std::fmt::Debug for AtomicPtr<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("AtomicPtr")
            }
        }

        impl<T> Default for AtomicPtr<T> {
            fn default() -> Self {
                Self::new(std::ptr::null_mut())
            }
        }

        impl<T> AtomicPtr<T> {
            pub fn new(pointer: *mut T) -> Self {
                Self(loom::sync::atomic::AtomicPtr::new(pointer))
            }

            pub fn load(&self, order: Ordering) -> *mut T {
                self.0.load(order)
            }

            pub fn store(&self, pointer: *mut T, order: Ordering) {
                self.0.store(if FORGETS.get() { std::ptr::null_mut() } else { pointer }, order);
            }
        }
    }

    pub trait Wait {
        fn wait_for(&self, word: &sync::AtomicU32, expected: u32, ns: Option<u64>);
        fn wake_all(&self, word: &sync::AtomicU32);
        fn held_ranks(&self) -> Option<&u32>;
    }

    pub trait Clock {
        fn now(&self) -> crate::base::time::Time;
    }

    pub struct Setting(pub u64);

    impl Setting {
        pub fn ns(&self) -> crate::base::time::Nanos {
            crate::base::time::Nanos::of_ms(self.0)
        }
    }

    pub struct Tunables {
        pub callback_ms: Setting,
    }

    pub trait Diagnostics {
        fn callback_is_slow(&self, name: &[u8], ns: u64, has_thread: bool);
        fn callback_panicked(&self, name: &[u8], is_disabled: bool);
        fn tunables(&self) -> &Tunables;
    }
}

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/telemetry"]
mod telemetry {
    pub mod name;
}

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/policy"]
mod policy {
    pub mod deferred;
    pub mod prices;
    pub mod scan_priority;
}

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/reclaim"]
mod reclaim {
    mod pressure_event;
    pub use pressure_event::{Event, PressureEvents};
}

#[allow(dead_code, missing_docs, unused_imports, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/evict"]
mod evict {
    pub mod shrinkers;
}

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64};

use base::cause::Cause;
use base::level::Level;
use base::time::Time;
use evict::shrinkers::Callbacks;
use evict::shrinkers::callback::{Callback, CallbackSpec, Class, Entry, Panicked, Queue, SLOW_NS};
use evict::shrinkers::calling::{Ran, Taken};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::thread;
use platform::{Clock, Diagnostics, Setting, Tunables, Wait, lock, rank};
use reclaim::Event;
use weir_models::futex::Futex;

/// Flaw that a model is run with.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The list's lock excludes nobody.
    OpenLock,
    /// A thread that sleeps does not compare the word.
    BlindFutex,
    /// Threads are not told apart, so that no circle is seen.
    NoThreads,
    /// A queue does not know which entry it is at.
    NoCurrent,
    /// A thread looks whether its queue is over before it reads the word that it sleeps on.
    EarlyLook,
}

/// Threads of a model.
const THREADS: usize = 3;

/// Parts of the platform that all threads share.
struct Kernel {
    futex: Futex,
    /// Told to models alone: no thread waits for it.
    now: AtomicU64,
    tunables: Tunables,
    flaw: Flaw,
}

/// A thread, as the registry sees the platform from it.
struct Thread {
    kernel: Arc<Kernel>,
    /// One for each time that it is asked for: the first, unless threads are not told apart.
    words: [u32; 64],
    asked: std::sync::atomic::AtomicUsize,
}

impl Wait for Thread {
    fn wait_for(&self, word: &platform::sync::AtomicU32, expected: u32, _ns: Option<u64>) {
        self.kernel.futex.wait(word, expected);
    }

    fn wake_all(&self, _word: &platform::sync::AtomicU32) {
        self.kernel.futex.wake_all();
    }

    fn held_ranks(&self) -> Option<&u32> {
        let nth = self.asked.fetch_add(1, Relaxed);
        Some(&self.words[if self.kernel.flaw == Flaw::NoThreads { nth } else { 0 }])
    }
}

impl Clock for Thread {
    fn now(&self) -> Time {
        Time(self.kernel.now.load(Relaxed))
    }
}

impl Diagnostics for Thread {
    fn callback_is_slow(&self, _name: &[u8], _ns: u64, _has_thread: bool) {}

    fn callback_panicked(&self, _name: &[u8], _is_disabled: bool) {}

    fn tunables(&self) -> &Tunables {
        &self.kernel.tunables
    }
}

loom::thread_local! {
    /// The calling thread's number.
    static ME: Cell<usize> = Cell::new(0);
}

/// Work of a callback beside reading its memory.
type Act = fn(&World, &Called);

/// A callback of the program's.
struct Called {
    /// 1; 0 after it was disposed of.
    memory: UnsafeCell<u32>,
    /// Which entry unregisters, if it does.
    number: usize,
    act: Act,
    world: Cell<*const World>,
}

// SAFETY: the checker watches the memory; the pointer is set before threads are there.
unsafe impl Sync for Called {}

impl Callback for Called {
    fn event(&self, _event: Event) -> Result<(), Panicked> {
        self.read();
        // SAFETY: set before the callback was registered, and the world is there as long as its threads.
        (self.act)(unsafe { &*self.world.get() }, self);
        self.read();
        Ok(())
    }
}

impl Called {
    fn read(&self) {
        // SAFETY: what the protocol is to guarantee, and the checker to check.
        self.memory.with(|memory| assert_eq!(unsafe { *memory }, 1, "it was disposed of"));
    }
}

/// An entry, and behind it what it calls.
#[repr(C)]
struct Registered {
    entry: Entry,
    called: Box<Called>,
}

/// Disposes of a [`Registered`].
unsafe fn dispose(entry: NonNull<Entry>) {
    // SAFETY: each entry of the models is the first field of one.
    let registered = unsafe { entry.cast::<Registered>().as_ref() };
    // SAFETY: as in `Called::read`.
    registered.called.memory.with_mut(|memory| unsafe {
        assert_eq!(std::mem::replace(&mut *memory, 0), 1, "it was disposed of twice");
    });
}

struct World {
    callbacks: Callbacks,
    threads: [Thread; THREADS],
    entries: Vec<Registered>,
    queues: Vec<Box<Queue>>,
    /// Callbacks that run now and are not late.
    inside: AtomicUsize,
    is_late: AtomicBool,
    kernel: Arc<Kernel>,
}

// SAFETY: entries and callbacks may be used by any thread; the pointers of either lead into the world.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    /// `count` callbacks that do `act`, each of queue `queue_of(number)`, and all to be called.
    fn new(flaw: Flaw, count: usize, queue_of: fn(usize) -> usize, act: Act) -> Arc<Self> {
        platform::sync::forget_pointers(false);
        lock::leave_open((flaw == Flaw::OpenLock).then_some(rank::CALLBACKS));
        let futex = if flaw == Flaw::BlindFutex { Futex::blind() } else { Futex::new() };
        let tunables = Tunables { callback_ms: Setting(1000) };
        let kernel = Arc::new(Kernel { futex, now: AtomicU64::new(1), tunables, flaw });
        let queues: Vec<_> = (0..=queue_of(count - 1)).map(|_| Box::new(Queue::new())).collect();
        let entry = |number: usize| {
            let called = Called { memory: UnsafeCell::new(1), number, act, world: Cell::new(std::ptr::null()) };
            let called = Box::new(called);
            let spec = CallbackSpec { class: Class::Subscriber, ..CallbackSpec::default() };
            let (callback, queue) = (NonNull::from(&*called), NonNull::from(&*queues[queue_of(number)]));
            // SAFETY: both live in boxes until the world's end.
            Registered { entry: unsafe { Entry::new(&spec, callback, queue, dispose) }, called }
        };
        let entries = (0..count).map(entry).collect();
        let thread = |_| Thread { kernel: kernel.clone(), words: [0; 64], asked: Default::default() };
        let threads = std::array::from_fn(thread);
        let (callbacks, inside, is_late) = (Callbacks::new(), AtomicUsize::new(0), AtomicBool::new(false));
        let world = Arc::new(Self { callbacks, threads, entries, queues, inside, is_late, kernel: kernel.clone() });
        for number in 0..count {
            world.entries[number].called.world.set(&*world);
            // SAFETY: in its place for good.
            unsafe { world.callbacks.register(world.me(), world.entry(number)) };
        }
        world.callbacks.raise(world.me(), Level::Severe, Cause::Pressure);
        platform::sync::forget_pointers(flaw == Flaw::NoCurrent);
        world
    }

    fn me(&self) -> &Thread {
        &self.threads[ME.with(Cell::get)]
    }

    fn entry(&self, number: usize) -> NonNull<Entry> {
        NonNull::from(&self.entries[number]).cast()
    }

    fn unregister(&self, number: usize) {
        // SAFETY: each model does so once for each entry.
        unsafe { self.callbacks.unregister(self.me(), self.entry(number)) };
    }

    /// Calls what the queue has now; `None`: nothing.
    fn serve(&self, queue: usize) -> Option<Ran> {
        loop {
            match self.callbacks.take(self.me(), &self.queues[queue]) {
                Taken::Job(job) => return Some(self.callbacks.run(self.me(), job)),
                Taken::Again => {}
                Taken::Sleep(_) => return None,
            }
        }
    }

    /// Serves the queue until it is over.
    fn serve_to_the_end(&self, queue: usize) {
        while let Some(seen) = self.seen(queue) {
            if self.serve(queue).is_none() {
                self.me().wait_for(self.queues[queue].posted(), seen, None);
            }
        }
    }

    fn seen(&self, queue: usize) -> Option<u32> {
        let queue = &self.queues[queue];
        match self.kernel.flaw {
            Flaw::EarlyLook => (!queue.is_over()).then(|| queue.posted().load(SeqCst)),
            _ => queue.seen(),
        }
    }

    /// Ends the queue, as the platform does.
    fn end(&self, queue: usize) {
        self.queues[queue].end();
        self.me().wake_all(self.queues[queue].posted());
    }

    /// Runs `work` on a thread of that number.
    fn spawn<R: 'static>(world: &Arc<Self>, number: usize, work: fn(&Self) -> R) -> thread::JoinHandle<R> {
        let world = world.clone();
        thread::spawn(move || {
            ME.with(|me| me.set(number));
            work(&world)
        })
    }
}

fn run_against_unregister(flaw: Flaw) {
    weir_models::check(3, move || {
        let world = World::new(flaw, 1, |_| 0, |_, _| {});
        let server = World::spawn(&world, 1, |world| world.serve(0));
        world.unregister(0);
        server.join().unwrap();
    });
}

#[test]
fn none_is_called_after_it_was_unregistered() {
    run_against_unregister(Flaw::None);
}

#[test]
fn without_the_lists_lock_one_is() {
    weir_models::must_fail("panicked", || run_against_unregister(Flaw::OpenLock));
}

#[test]
fn without_the_comparison_the_end_of_the_run_is_slept_through() {
    weir_models::must_fail("deadlock", || run_against_unregister(Flaw::BlindFutex));
}

#[test]
fn one_that_unregisters_itself_is_disposed_of_once_after_its_return() {
    weir_models::check(3, || {
        let world = World::new(Flaw::None, 1, |_| 0, |world, called| world.unregister(called.number));
        let servers = [1, 2].map(|number| World::spawn(&world, number, |world| world.serve(0)));
        let ran = servers.map(|server| server.join().unwrap());
        assert_eq!(ran.iter().flatten().filter(|ran| ran.gone).count(), 1);
        assert_eq!(ran.iter().flatten().count(), 1);
    });
}

fn a_queue_ends(flaw: Flaw) {
    weir_models::check(3, move || {
        let world = World::new(flaw, 1, |_| 0, |_, _| {});
        let server = World::spawn(&world, 1, |world| world.serve_to_the_end(0));
        world.end(0);
        server.join().unwrap();
    });
}

#[test]
fn a_thread_of_a_queue_does_not_sleep_through_its_end() {
    a_queue_ends(Flaw::None);
}

#[test]
fn one_that_looks_before_it_reads_the_word_does() {
    weir_models::must_fail("deadlock", || a_queue_ends(Flaw::EarlyLook));
}

fn each_unregisters_the_other(flaw: Flaw) {
    weir_models::check(3, move || {
        let world = World::new(flaw, 2, |number| number, |world, called| world.unregister(1 - called.number));
        let other = World::spawn(&world, 1, |world| world.serve(1));
        let ran = world.serve(0);
        let other = other.join().unwrap();
        // One may have unregistered the other before that was called.
        assert!(ran.is_some() || other.is_some());
        let left = world.entries.iter().filter(|entry| {
            // SAFETY: the thread has ended.
            entry.called.memory.with(|memory| unsafe { *memory } == 1)
        });
        let called = usize::from(ran.is_some()) + usize::from(other.is_some());
        assert_eq!(left.count(), 2 - called, "what was unregistered is disposed of");
    });
}

#[test]
fn two_that_unregister_each_other_both_end() {
    each_unregisters_the_other(Flaw::None);
}

#[test]
fn without_the_look_for_a_circle_they_wait_for_each_other() {
    weir_models::must_fail("deadlock", || each_unregisters_the_other(Flaw::NoThreads));
}

/// Whether another one was called while the late one ran.
static WENT_ON: AtomicBool = AtomicBool::new(false);

/// The first callback is late as soon as it runs.
fn be_late(world: &World, called: &Called) {
    if called.number == 0 {
        assert!(!world.is_late.swap(true, Relaxed), "it is called while it runs");
        if world.kernel.now.fetch_add(2 * SLOW_NS.0, Relaxed) == 1 {
            // All are to be called once more, this one too.
            world.callbacks.raise(world.me(), Level::Severe, Cause::Pressure);
        }
        thread::yield_now();
        world.is_late.store(false, Relaxed);
        return;
    }
    WENT_ON.fetch_or(world.is_late.load(Relaxed), Relaxed);
    // The late one aside, one is called at a time.
    assert_eq!(world.inside.fetch_add(1, SeqCst), 0, "two at once");
    thread::yield_now();
    world.inside.fetch_sub(1, SeqCst);
}

/// Beside `count - 1` others.
fn a_late_one_returns(flaw: Flaw, count: usize) {
    weir_models::check(3, move || {
        let world = World::new(flaw, count, |_| 0, be_late);
        let standby = World::spawn(&world, 1, |world| _ = world.serve(0));
        // The second time the queue may be at what the other thread calls.
        let _ = (world.serve(0), world.serve(0));
        standby.join().unwrap();
        while world.serve(0).is_some() {}
        let calls: Vec<u64> = world.entries.iter().map(|registered| registered.entry.stats().calls).collect();
        assert!(calls[0] == 2 && calls[1..].iter().all(|calls| (1..=2).contains(calls)), "{calls:?}");
    });
}

#[test]
fn a_late_one_that_returns_leaves_the_queue_to_the_next() {
    a_late_one_returns(Flaw::None, 1);
    a_late_one_returns(Flaw::None, 3);
    assert!(WENT_ON.load(Relaxed), "the queue goes on past a late one");
}

#[test]
fn a_queue_that_forgets_where_it_is_calls_two() {
    weir_models::must_fail("two at once", || a_late_one_returns(Flaw::NoCurrent, 3));
}
