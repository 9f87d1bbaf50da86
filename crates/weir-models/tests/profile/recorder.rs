//! The words of the heap profile that are read without its lock: `profile/recorder.rs` and its filter, samples and stacks, their
//! own source, over tables of a few entries.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

#[macro_use]
#[path = "../../../weir-core/src/macros.rs"]
mod macros;

#[allow(dead_code, reason = "a part of it is used here")]
#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/base"]
mod base {
    pub mod run {
        #[derive(Clone, Copy)]
        pub struct Run {
            pub addr: usize,
            pub len: usize,
        }
    }

    pub mod time;

    pub mod units {
        pub const PAGE: usize = 8;
        pub const PAGEBLOCK: usize = 64;

        pub struct Order;

        impl Order {
            pub const PAGE: Self = Self;
        }
    }
}

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/platform"]
mod platform {
    pub mod rank;
    pub use weir_models::lock;

    pub mod sync {
        use loom::sync::atomic::Ordering;
        use std::cell::Cell;
        pub use weir_models::sync::{AtomicU32, AtomicU64, AtomicUsize, constructor};

        thread_local! {
            static RELAXED: Cell<bool> = const { Cell::new(false) };
        }

        /// Whether pointers are stored without order, in the models that this thread runs next.
        pub fn store_relaxed(relaxed: bool) {
            RELAXED.set(relaxed);
        }

        pub struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

        impl<T> AtomicPtr<T> {
            pub fn new(pointer: *mut T) -> Self {
                Self(loom::sync::atomic::AtomicPtr::new(pointer))
            }

            pub fn load(&self, order: Ordering) -> *mut T {
                self.0.load(order)
            }

            pub fn store(&self, pointer: *mut T, order: Ordering) {
                self.0.store(pointer, if RELAXED.get() { Ordering::Relaxed } else { order });
            }
        }
    }

    #[derive(Debug)]
    pub struct Refused;

    pub trait Wait {}

    pub trait Platform: Wait {
        fn map_metadata(&self, len: usize, align: crate::base::units::Order) -> Result<usize, Refused>;
        fn unmap(&self, run: crate::base::run::Run);
        fn resident(&self, run: crate::base::run::Run) -> Option<usize>;
        fn stats(&self) -> &crate::telemetry::stats::Stats;
    }
}

mod telemetry {
    pub mod stats {
        use std::sync::atomic::AtomicU64;
        use std::sync::atomic::Ordering::Relaxed;

        #[derive(Default)]
        pub struct Stats {
            pub profile: AtomicU64,
        }

        pub fn add(counter: &crate::platform::sync::AtomicU64, n: u64) {
            counter.store(counter.load(Relaxed) + n, Relaxed);
        }
    }
}

#[allow(dead_code, missing_docs, clippy::missing_safety_doc, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/profile"]
mod profile {
    pub mod filter;
    pub mod recorder;
    pub mod samples;
    mod stacks;

    pub mod interval {
        pub struct Weight {
            pub objects: u64,
            pub bytes: u64,
        }

        impl Weight {
            pub fn of(size: usize, _mean: u64, _random: u64) -> Self {
                Self { objects: 1, bytes: size as u64 }
            }
        }
    }

    /// As the engine's, of fewer and shorter entries.
    pub mod layout {
        use crate::platform::sync::{AtomicU32, AtomicU64};

        pub const MAGIC: u64 = 7;
        pub const VERSION: u32 = 1;
        pub const FRAMES: usize = 1;
        pub const STACKS: usize = 1;
        pub const SLOTS: usize = 4;
        pub const COUNTS: usize = 2;

        #[repr(C, align(8))]
        pub struct Header {
            pub magic: AtomicU64,
            pub version: AtomicU32,
            pub stacks: AtomicU32,
            pub mean_bytes: AtomicU64,
            pub began_ns: AtomicU64,
            pub samples: AtomicU64,
            pub lost_stacks: AtomicU64,
            pub lost_blocks: AtomicU64,
        }

        #[repr(C)]
        pub struct Stack {
            pub hash: AtomicU64,
            pub depth: AtomicU64,
            pub allocated_objects: AtomicU64,
            pub allocated_bytes: AtomicU64,
            pub live_objects: AtomicU64,
            pub live_bytes: AtomicU64,
            pub frames: [AtomicU64; FRAMES],
        }

        #[repr(C)]
        pub struct Profile {
            pub header: Header,
            pub stacks: [Stack; STACKS],
        }

        pub const PROFILE_BYTES: usize = size_of::<Profile>();

        impl Profile {
            pub fn new() -> Self {
                let zero = || AtomicU64::new(0);
                let header = Header {
                    magic: zero(),
                    version: AtomicU32::new(0),
                    stacks: AtomicU32::new(0),
                    mean_bytes: zero(),
                    began_ns: zero(),
                    samples: zero(),
                    lost_stacks: zero(),
                    lost_blocks: zero(),
                };
                let stack = |_| Stack {
                    hash: zero(),
                    depth: zero(),
                    allocated_objects: zero(),
                    allocated_bytes: zero(),
                    live_objects: zero(),
                    live_bytes: zero(),
                    frames: std::array::from_fn(|_| zero()),
                };
                Self { header, stacks: std::array::from_fn(stack) }
            }
        }
    }
}

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;
use platform::sync::AtomicU32;
use platform::{lock, rank};
use profile::layout::{COUNTS, MAGIC, PROFILE_BYTES, Profile, SLOTS};
use profile::recorder::{Origin, Recorder};
use profile::samples::Sample;

/// Flaw that a model is run with.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// A block is handed out before it is remembered.
    HandedOutFirst,
    /// The lock excludes nobody.
    OpenLock,
    /// The table is shown without release order.
    ShownRelaxed,
}

/// Mapping of a recorder: the table, the slots of samples, and the filter.
#[repr(C)]
struct Mapping {
    profile: Profile,
    slots: [[usize; 5]; SLOTS],
    filter: [AtomicU32; COUNTS],
}

const _: () = assert!(size_of::<[usize; 5]>() == size_of::<Sample>());
const _: () = assert!(core::mem::offset_of!(Mapping, filter) == PROFILE_BYTES + SLOTS * size_of::<Sample>());

#[derive(Default)]
struct Memory {
    stats: telemetry::stats::Stats,
    mapped: std::sync::Mutex<Vec<usize>>,
    given_back: std::sync::atomic::AtomicUsize,
}

impl platform::Wait for Memory {}

impl platform::Platform for Memory {
    fn map_metadata(&self, len: usize, _align: base::units::Order) -> Result<usize, platform::Refused> {
        assert_eq!(len, size_of::<Mapping>());
        let filter = std::array::from_fn(|_| AtomicU32::new(0));
        let at = Box::into_raw(Box::new(Mapping { profile: Profile::new(), slots: [[0; 5]; SLOTS], filter })) as usize;
        self.mapped.lock().unwrap().push(at);
        Ok(at)
    }

    // At the end of the model, with the other.
    fn unmap(&self, _run: base::run::Run) {
        self.given_back.fetch_add(1, Relaxed);
    }

    fn resident(&self, _run: base::run::Run) -> Option<usize> {
        None
    }

    fn stats(&self) -> &telemetry::stats::Stats {
        &self.stats
    }
}

struct World {
    recorder: Recorder,
    memory: Memory,
}

impl Drop for World {
    fn drop(&mut self) {
        for at in self.memory.mapped.get_mut().unwrap().drain(..) {
            // SAFETY: made by `map_metadata`, and used by nobody any more.
            drop(unsafe { Box::from_raw(at as *mut Mapping) });
        }
    }
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { recorder: Recorder::new(), memory: Memory::default() })
    }

    fn switch(&self, mean: u64) {
        self.recorder.switch(&self.memory, mean, base::time::Time(0)).unwrap();
    }

    fn record(&self, block: usize) -> bool {
        let origin = Origin { frames: &[5], mean: 1, random: 0 };
        self.recorder.record(&self.memory, block as *mut u8, 100, origin).is_some()
    }

    fn forget(&self, block: usize) -> bool {
        self.recorder.forget(&self.memory, block as *mut u8).is_some()
    }
}

fn check(flaw: Flaw, model: impl Fn() + Sync + Send + 'static) {
    platform::sync::store_relaxed(flaw == Flaw::ShownRelaxed);
    lock::leave_open((flaw == Flaw::OpenLock).then_some(rank::PROFILE));
    weir_models::check(3, model);
}

/// A block goes from the thread that was given it to another, which frees it; a third frees one that was there before.
fn handed_on(flaw: Flaw) {
    const HANDED_ON: usize = 0x1000;
    const EARLIER: usize = 0x2000;
    check(flaw, move || {
        let world = World::new();
        world.switch(1);
        assert!(world.record(EARLIER));
        let handed = Arc::new(AtomicUsize::new(0));
        let (giver, to) = (world.clone(), handed.clone());
        let giver = thread::spawn(move || {
            let hand_out = || to.store(HANDED_ON, Release);
            if flaw == Flaw::HandedOutFirst {
                hand_out();
            }
            assert!(giver.record(HANDED_ON), "it is not recorded");
            if flaw != Flaw::HandedOutFirst {
                hand_out();
            }
        });
        let other = world.clone();
        let other = thread::spawn(move || assert!(other.forget(EARLIER), "a free misses its sample"));
        let was_handed = handed.load(Acquire) == HANDED_ON;
        if was_handed {
            assert!(world.forget(HANDED_ON), "a free misses its sample");
        }
        giver.join().unwrap();
        other.join().unwrap();
        let left = u64::from(!was_handed);
        let entry = &world.recorder.table().unwrap().stacks[0];
        let counts = (entry.live_objects.load(Relaxed), entry.live_bytes.load(Relaxed), world.recorder.live() as u64);
        assert_eq!(counts, (left, left * 100, left), "the count is wrong");
        assert!(was_handed || world.forget(HANDED_ON), "a free misses its sample");
    });
}

/// Two threads switch sampling on at once, and a third looks for the table.
fn switched_on_twice(flaw: Flaw) {
    check(flaw, || {
        let world = World::new();
        let other = world.clone();
        let other = thread::spawn(move || other.switch(7));
        let reader = world.clone();
        let reader = thread::spawn(move || {
            if let Some(table) = reader.recorder.table() {
                assert_eq!(table.header.magic.load(Relaxed), MAGIC, "a table is shown before its header");
            }
            reader.record(0x1000);
        });
        world.switch(5);
        other.join().unwrap();
        reader.join().unwrap();
        let mapped = world.memory.mapped.lock().unwrap().len();
        assert_eq!(mapped, world.memory.given_back.load(Relaxed) + 1, "one table is made, and others given back");
        let means = (world.recorder.mean(), world.recorder.table().unwrap().header.mean_bytes.load(Relaxed));
        assert!(means == (5, 5) || means == (7, 7), "the two words are of two calls: {means:?}");
    });
}

#[test]
fn a_free_finds_its_sample_without_the_lock() {
    handed_on(Flaw::None);
}

#[test]
fn one_table_is_shown_whole_and_the_means_are_of_one_call() {
    switched_on_twice(Flaw::None);
}

#[test]
fn a_block_that_is_handed_out_too_early_is_noticed() {
    weir_models::must_fail("a free misses its sample", || handed_on(Flaw::HandedOutFirst));
}

#[test]
fn a_count_outside_of_the_lock_is_noticed() {
    // Which of its assertions fails first is the checker's choice: each says what is wrong with the count.
    weir_models::must_fail("panicked", || handed_on(Flaw::OpenLock));
}

#[test]
fn a_table_that_is_shown_too_early_is_noticed() {
    weir_models::must_fail("Causality violation", || switched_on_twice(Flaw::ShownRelaxed));
}

#[test]
fn means_of_two_calls_are_noticed() {
    weir_models::must_fail("panicked", || switched_on_twice(Flaw::OpenLock));
}
