//! Pools while threads put, events come and pools go.

use super::*;

/// Threads put while events come and the balancer tends. Once all is quiet and the last event was tended for, nothing
/// that was put before it is idle.
#[test]
fn no_page_stays_idle_in_a_window() {
    let world = World::new(&[PoolSpec::default(), TENDED]);
    world.fake().tunables().set("squeeze_ms", "3600000").unwrap();
    let (heap, pools) = (&*world.heap, [&*world.pools[0].0, &*world.pools[1].0]);
    for round in 0..50 {
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                scope.spawn(move || {
                    let pool = pools[thread % 2];
                    for pages in 1..20 {
                        let run = heap.page_pools().get(pool, pages);
                        assert!(!run.is_null());
                        // SAFETY: taken just now.
                        unsafe { heap.page_pools().put(pool, &[run]) };
                    }
                });
            }
            if round > 0 {
                scope.spawn(move || {
                    heap.reclaim().note_pressure(Level::Some, Cause::Pressure);
                    heap.page_pools().tend_due();
                    heap.page_pools().tend(pools[1]);
                    heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
                });
            }
        });
        if round > 0 {
            assert_eq!((world.idle(0), world.idle(1)), (0, 0), "round {round}");
        }
        world.audit();
    }
}

/// Pools come and go while the balancer looks at them.
#[test]
fn pools_end_while_they_are_squeezed() {
    let world = World::new(&[PoolSpec::default()]);
    let heap = &*world.heap;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(move || {
                    for _ in 0..100 {
                        let pool = Box::new(PagePool::new(&PoolSpec::default()));
                        // SAFETY: it stays in its box until it is off the list.
                        unsafe { heap.page_pools().add(NonNull::from(&*pool)) };
                        let run = heap.page_pools().get(&pool, 5);
                        // SAFETY: taken just now.
                        unsafe { heap.page_pools().put(&pool, &[run]) };
                        heap.page_pools().remove(&pool).unwrap();
                    }
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            heap.reclaim().note_pressure(Level::Some, Cause::Pressure);
            heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
            heap.purge();
        }
    });
}
