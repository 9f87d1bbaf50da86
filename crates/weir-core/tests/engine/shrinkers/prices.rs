//! The caches of one process: what costs least goes first.

use super::*;
use std::sync::OnceLock;
use weir_core::base::units::Pages;
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::Usage;
use weir_core::reclaim::balancer_turn::{Next, Turn};
use weir_core::reclaim::budget::Room;
use weir_core::telemetry::tables::EvictableRow;

const MIB: usize = 1 << 20;
/// Bytes below the limit.
const CAPACITY: usize = 1 << 30;

/// Two caches of one process: one that is hit seldom, and one that is dear.
struct Two {
    heap: TheHeap,
    caches: [(Registered, Arc<Told>); 2],
}

impl Two {
    /// With so many bytes each.
    fn new(bytes: [usize; 2]) -> Self {
        let (heap, queue) = (heap(), queue());
        heap.platform().tunables().background.set(1);
        heap.platform().elsewhere.1.store(1 << 30, SeqCst);
        serve_always(heap, queue);
        let cache = |bytes: usize| {
            let slot: Arc<OnceLock<Arc<Told>>> = Arc::default();
            let own = slot.clone();
            let evict: OnScan = Box::new(move |wanted| {
                let held = &own.get().unwrap().bytes;
                let evicted = wanted.next_multiple_of(4096).min(held.load(SeqCst));
                held.fetch_sub(evicted, SeqCst);
                heap.platform().elsewhere.0.fetch_add(evicted as u64, SeqCst);
                heap.platform().elsewhere.1.fetch_sub(evicted as u64, SeqCst);
                Ok(if evicted == 0 { STOP } else { evicted })
            });
            let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), bytes, Some(evict));
            assert!(slot.set(told.clone()).is_ok());
            (cache, told)
        };
        let two = Self { heap, caches: bytes.map(cache) };
        two.publish();
        two
    }

    /// Writes the curve by what they have now: with 1,000 hits a second each, of 1 us and of 1 ms.
    fn publish(&self) {
        self.heap.figures().publish_costs(&Usage::default(), |add| {
            for ((_, told), miss_ns) in self.caches.iter().zip([1_000, 1_000_000]) {
                let bytes = told.bytes.load(SeqCst) as u64;
                let row =
                    EvictableRow { bytes, spare_bytes: bytes, hit_rate: 1_000_000, miss_ns, ..Default::default() };
                add(&row, &told.prices);
            }
            true
        });
    }

    fn bytes(&self) -> [usize; 2] {
        [0, 1].map(|at: usize| self.caches[at].1.bytes.load(SeqCst))
    }

    /// Bytes that each gives in what `work` does.
    fn given(&self, work: impl FnOnce()) -> [usize; 2] {
        let before = self.bytes();
        work();
        let after = self.bytes();
        [before[0] - after[0], before[1] - after[1]]
    }

    /// The process has no more room than the low mark, until the balancer has done its work; how much it lacked.
    fn is_short(&self) -> usize {
        let (marks, mut turn) = (Marks::of(Pages::in_bytes(CAPACITY), 250), Turn::default());
        let rest = CAPACITY - marks.low.bytes().0 - self.bytes().iter().sum::<usize>();
        loop {
            let used = rest + self.bytes().iter().sum::<usize>();
            self.heap.reclaim().read_room(Room::own(CAPACITY as u64, used as u64));
            if self.heap.reclaim().balance_zones(&mut turn) != Next::Again {
                return (marks.high - marks.low).bytes().0;
            }
        }
    }

    fn end(self) {
        self.caches.into_iter().for_each(|(cache, _)| cache.unregister(self.heap));
    }
}

#[test]
fn what_a_limit_lacks_is_given_by_the_cheap_one() {
    let two = Two::new([64 * MIB; 2]);
    for _ in 0..2 {
        let mut lacks = 0;
        let [cheap, dear] = two.given(|| lacks = two.is_short());
        assert!(cheap >= lacks && cheap <= lacks + MIB && dear == 0, "{cheap} and {dear} of {lacks}");
        two.heap.platform().pass_ms(600);
    }
    two.end();
}

#[test]
fn an_event_takes_no_whole_batch_of_small_caches() {
    let two = Two::new([60 << 10; 2]);
    let given = two.given(|| {
        pressure(two.heap, Level::Some);
        let mut turn = Turn::default();
        while two.heap.reclaim().balance_zones(&mut turn) == Next::Again {}
    });
    assert_eq!(given, [0; 2], "a few hundred bytes are deferred");
    two.end();
}

#[test]
fn an_event_takes_nothing_of_the_dear_one_however_large_it_is() {
    let two = Two::new([8 * MIB, 1 << 30]);
    let [cheap, dear] = two.given(|| {
        pressure(two.heap, Level::Some);
        let mut turn = Turn::default();
        while two.heap.reclaim().balance_zones(&mut turn) == Next::Again {}
    });
    assert!(cheap >= MIB && dear == 0, "{cheap} and {dear}");
    two.end();
}

#[test]
fn what_the_cheap_one_does_not_give_the_dear_one_does() {
    for is_pinned in [false, true] {
        let two = Two::new([MIB, 64 * MIB]);
        if is_pinned {
            // It says that it has bytes, and gives none.
            two.caches[0].1.bytes.store(0, SeqCst);
            let row = EvictableRow { bytes: 1, spare_bytes: 1, ..Default::default() };
            two.heap.figures().publish_costs(&Usage::default(), |add| {
                add(&row, &two.caches[0].1.prices);
                true
            });
        }
        let mut lacks = 0;
        let [cheap, dear] = two.given(|| lacks = two.is_short());
        assert!(cheap + dear >= lacks && (is_pinned || cheap == MIB), "{cheap} and {dear} of {lacks}");
        two.end();
    }
}

#[test]
fn an_allocation_that_would_fail_takes_all_of_both() {
    let two = Two::new([4 * MIB; 2]);
    assert!(!two.heap.alloc(1 << 20).is_null());
    two.heap.platform().tunables().hard_limit.set(4096);
    assert!(two.heap.alloc_low32(4096).is_null(), "what these give is another allocator's");
    assert_eq!(two.bytes(), [0, 0]);
    two.end();
}
