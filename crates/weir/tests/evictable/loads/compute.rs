//! `get_or_insert_with`: once for all who want a key, again after a failure, never twice at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, LazyLock, OnceLock};
use std::task::{Context, Waker};
use std::thread;
use weir::EvictableCache;
use weir_testing::wait_until;

fn cache() -> EvictableCache<u64, u64> {
    EvictableCache::builder().build().unwrap()
}

#[test]
fn a_value_is_computed_once_for_all_who_want_it() {
    let cache = cache();
    for key in 0..200 {
        let (computed, start) = (AtomicUsize::new(0), Barrier::new(4));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let value = cache.get_or_insert_with(key, || {
                        computed.fetch_add(1, SeqCst);
                        thread::yield_now();
                        key * 3
                    });
                    assert_eq!(*value, key * 3);
                });
            }
        });
        assert_eq!(computed.load(SeqCst), 1, "key {key}");
    }
}

#[test]
fn each_call_counts_one_hit_or_one_miss() {
    let (cache, start) = (cache(), Barrier::new(8));
    let count = |cache: &EvictableCache<u64, u64>| (cache.stats().hits, cache.stats().misses);
    (0..100).for_each(|key| drop(cache.upsert_with(key, |former| former.map_or(1, |_| 2))));
    assert_eq!(count(&cache), (0, 100));
    (0..100).for_each(|key| drop(cache.upsert_with(key, |former| former.map_or(1, |_| 2))));
    assert_eq!(count(&cache), (100, 100));
    let all = || {
        start.wait();
        (0..20).for_each(|_| drop(cache.upsert_with(1, |_| (0..50).map(|_| thread::yield_now()).count() as u64)));
    };
    thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(all))));
    assert_eq!(count(&cache), (260, 100), "also of those that wait for their turn");
    // Those that wait for the load, and the one that loads.
    let (cache, inside) = (self::cache(), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            cache.get_or_insert_with(1, || {
                inside.wait();
                wait_until("all to miss it", || cache.stats().misses == 8);
                1
            });
        });
        inside.wait();
        (0..7).for_each(|_| drop(scope.spawn(|| drop(cache.get_or_insert_with(1, || unreachable!("one loads"))))));
    });
    assert_eq!(count(&cache), (0, 8));
    assert!(*cache.get_or_insert_with(1, || 2) == 1 && count(&cache) == (1, 8));
}

#[test]
fn after_a_failure_or_a_panic_the_next_who_waits_computes() {
    let cache = cache();
    for key in 0..60 {
        let (computed, inside, start) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(4));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let compute = || {
                        assert_eq!(inside.fetch_add(1, SeqCst), 0, "two compute at once");
                        thread::yield_now();
                        let turn = computed.fetch_add(1, SeqCst);
                        inside.fetch_sub(1, SeqCst);
                        match turn {
                            0 => Err("failed"),
                            1 => panic!("on purpose"),
                            _ => Ok(key),
                        }
                    };
                    // The failure and the panic are the computing thread's alone.
                    match catch_unwind(AssertUnwindSafe(|| cache.try_get_or_insert_with(key, compute).map(|e| *e))) {
                        Ok(Ok(value)) => assert_eq!(value, key),
                        Ok(Err(why)) => assert_eq!(why, "failed"),
                        Err(said) => assert_eq!(said.downcast_ref::<&str>(), Some(&"on purpose")),
                    }
                });
            }
        });
        assert_eq!(computed.load(SeqCst), 3, "key {key}");
        assert_eq!(cache.get(&key).map(|value| *value), Some(key));
    }
}

#[test]
fn a_closure_that_wants_its_own_key_panics_and_others_go_on() {
    let cache = cache();
    let said = catch_unwind(AssertUnwindSafe(|| {
        let _ = cache.get_or_insert_with(1, || *cache.get_or_insert_with(1, || 2));
    }));
    let said = said.unwrap_err();
    let said = said.downcast_ref::<&str>().unwrap();
    assert!(said.contains("asks for the key whose value it computes"), "{said}");
    assert!(cache.get(&1).is_none());
    assert_eq!(*cache.get_or_insert_with(1, || 5), 5);
    // Another key is no matter.
    assert_eq!(*cache.get_or_insert_with(2, || *cache.get_or_insert_with(3, || 7)), 7);
}

#[test]
fn closures_that_wait_for_each_other_are_told() {
    // In one cache or in two, and in circles of two and three.
    for threads in [2, 3] {
        let caches = [cache(), cache()];
        let (start, told) = (Barrier::new(threads), AtomicUsize::new(0));
        thread::scope(|scope| {
            for me in 0..threads as u64 {
                let (caches, start, told) = (&caches, &start, &told);
                scope.spawn(move || {
                    let next = (me + 1) % threads as u64;
                    let value = catch_unwind(AssertUnwindSafe(|| {
                        let own = || {
                            start.wait();
                            *caches[next as usize % 2].get_or_insert_with(next, || next)
                        };
                        *caches[me as usize % 2].get_or_insert_with(me, own)
                    }));
                    if let Err(said) = value {
                        let said = said.downcast_ref::<&str>().unwrap();
                        assert!(said.contains("whose values each other's threads compute"), "{said}");
                        told.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        // The others went on: what they waited for is computed by whoever wants it next.
        assert_eq!(told.load(SeqCst), 1, "of {threads}");
    }
}

#[test]
fn a_closure_may_use_the_cache_in_every_other_way() {
    let cache = cache();
    let value = cache.get_or_insert_with(1, || {
        assert!(cache.get(&1).is_none() && !cache.contains(&1) && !cache.remove(&1));
        // Put in by the closure itself: then the computed value replaces it.
        cache.insert(1, 10).unwrap();
        cache.clear();
        cache.insert(1, 11).unwrap();
        cache.evict(1 << 20);
        cache.relieved();
        12
    });
    assert_eq!(*value, 12);
    assert_eq!(cache.get(&1).map(|value| *value), Some(12));
}

#[test]
fn a_key_is_not_compared_after_a_panic_dropped_it() {
    /// The first key; as it is dropped another thread wants the same.
    struct Key {
        is_first: bool,
        is_dead: bool,
    }
    static CACHE: OnceLock<EvictableCache<Key, u64>> = OnceLock::new();
    static DEAD_COMPARED: AtomicUsize = AtomicUsize::new(0);
    impl Drop for Key {
        fn drop(&mut self) {
            self.is_dead = true;
            if self.is_first {
                let other = Key { is_first: false, is_dead: false };
                let want = || assert_eq!(*CACHE.get().unwrap().get_or_insert_with(other, || 2), 2);
                thread::spawn(want).join().unwrap();
            }
        }
    }
    impl std::hash::Hash for Key {
        fn hash<H: std::hash::Hasher>(&self, to: &mut H) {
            1.hash(to);
        }
    }
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            let is_dead = self.is_dead || other.is_dead;
            DEAD_COMPARED.fetch_add(usize::from(is_dead), SeqCst);
            !is_dead
        }
    }
    impl Eq for Key {}
    let weigher = |_: &Key, value: &u64| if *value == 1 { panic!("on purpose") } else { 1 };
    let cache = CACHE.get_or_init(|| EvictableCache::builder().weigher(weigher).build().unwrap());
    let first = Key { is_first: true, is_dead: false };
    assert!(catch_unwind(AssertUnwindSafe(|| drop(cache.get_or_insert_with(first, || 1)))).is_err());
    assert_eq!(DEAD_COMPARED.load(SeqCst), 0);
    assert_eq!(cache.len(), 1);
}

/// The child that a signal handler forked; 0 in the child itself.
#[cfg(not(plain))]
static CHILD: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);

#[cfg(not(plain))]
extern "C" fn fork_here(_: i32) {
    // SAFETY: the heap is consistent in the child, whatever this interrupted. An alarm ends a child that hangs.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(10);
        }
        CHILD.store(child, SeqCst);
    }
}

#[cfg(not(plain))]
#[test]
fn a_thread_that_waits_for_a_value_computes_it_itself_in_a_child_that_its_handler_forked() {
    crate::eviction::reclaim::in_child(|| {
        // SAFETY: the handler stays as long as the process. What it interrupts the kernel takes up again.
        unsafe { libc::signal(libc::SIGURG, fork_here as *const () as libc::sighandler_t) };
        let (cache, inside, waiter, gate) = (cache(), Barrier::new(2), OnceLock::new(), OnceLock::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                cache.get_or_insert_with(1, || {
                    inside.wait();
                    *gate.wait()
                });
            });
            inside.wait();
            scope.spawn(|| {
                // SAFETY: a call without conditions.
                waiter.set(unsafe { libc::pthread_self() }).unwrap();
                let value = *cache.get_or_insert_with(1, || 5);
                if CHILD.load(SeqCst) == 0 {
                    // SAFETY: the child ends without its parent's threads.
                    unsafe { libc::_exit((value != 5).into()) };
                }
                assert_eq!(value, 7);
            });
            let waiter = *waiter.wait();
            wait_until("the second to miss it", || cache.stats().misses == 2);
            thread::sleep(std::time::Duration::from_millis(20));
            // SAFETY: the thread waits until the gate is open.
            assert_eq!(unsafe { libc::pthread_kill(waiter, libc::SIGURG) }, 0);
            wait_until("the fork", || CHILD.load(SeqCst) != -1);
            let (mut status, child) = (-1, CHILD.load(SeqCst));
            // SAFETY: a child of this process, which nothing else waits for.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            gate.set(7).unwrap();
            assert_eq!(status, 0, "signal {}", status & 127);
        });
    });
}

#[test]
fn code_that_ends_a_task_s_load_and_blocks_for_its_key_panics() {
    static CACHE: LazyLock<EvictableCache<u64, u64>> = LazyLock::new(|| {
        let asks = |_: &u64, &value: &u64| {
            if value == 1 {
                CACHE.get_or_insert_with(1, || 2);
            }
            1
        };
        EvictableCache::builder().shards(1).weigher(asks).build().unwrap()
    });
    let mut task = Box::pin(CACHE.get_or_insert_async(1, async { 1 }));
    let poll = || task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    let said = catch_unwind(AssertUnwindSafe(poll)).unwrap_err();
    assert!(said.downcast_ref::<&str>().unwrap().contains("asks for the key whose value it computes"));
    assert_eq!(*CACHE.get_or_insert_with(1, || 5), 5);
}
