//! Caches under reclaim itself, each test in a process of its own: pressure is the whole process's.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use weir::{ByteCache, EvictableCache, RemovalCause, settings};
use weir_core::base::cost::Cost;
use weir_core::telemetry::tables::EvictableRow;
use weir_linux::platform::statics::STATS;
use weir_testing::wait_until;

#[path = "../../common/mod.rs"]
mod common;
#[path = "../../common/forked.rs"]
pub mod forked;
use forked::{Forked, in_forked};

#[path = "../../common/in_child.rs"]
mod own_process;
pub use own_process::in_child;

#[test]
fn an_allocation_that_cannot_be_had_evicts_nothing() {
    in_child(|| {
        // Reclaim, which an allocation that fails begins, takes nothing of so small a cache.
        let cache = ByteCache::builder().min_bytes(1 << 20).build().unwrap();
        (0..100u8).for_each(|key| drop(cache.insert(&[key], &[key; 1000]).unwrap()));
        assert!(cache.fill(b"all of memory", 1 << 60).is_err());
        assert_eq!(cache.len(), 100);
    });
}

#[test]
fn the_last_handle_may_go_in_a_listener_under_reclaim() {
    in_child(|| {
        static CACHE: Mutex<Option<EvictableCache<u64, [u8; 4000]>>> = Mutex::new(None);
        static IS_DROPPED: AtomicBool = AtomicBool::new(false);
        let listener = |_: &u64, _: &[u8; 4000], cause| {
            if cause == RemovalCause::Pressure
                && let Some(cache) = { CACHE.lock().unwrap().take() }
            {
                drop(cache);
                // What was freed by that is overwritten, so that any use of it is noticed.
                for size in (4..17).map(|power| 1usize << power).flat_map(|size| [size, size / 4 * 5, size / 2 * 3]) {
                    for _ in 0..32 {
                        let block = weir::heap::alloc(size);
                        // SAFETY: a block of that size, or null, to which nothing is written then.
                        unsafe { block.write_bytes(0xee, if block.is_null() { 0 } else { size }) };
                    }
                }
                IS_DROPPED.store(true, SeqCst);
            }
        };
        let cache = EvictableCache::builder().name("short-lived").shards(4).on_evict(listener).build().unwrap();
        (0..4_000).for_each(|key| drop(cache.insert(key, [1; 4000]).unwrap()));
        *CACHE.lock().unwrap() = Some(cache);
        settings::set("limit", "1M").unwrap();
        wait_until("the cache to be dropped", || IS_DROPPED.load(SeqCst));
        // Another cache is called on the same thread: the scan of the first has ended, and the thread is alive.
        let next = EvictableCache::<u64, [u8; 4000]>::builder().min_bytes(4 << 20).build().unwrap();
        (0..500).for_each(|key| drop(next.insert(key, [1; 4000]).unwrap()));
        settings::set("limit", "0").unwrap();
        assert_eq!(next.len(), 500);
    });
}

/// Bytes of this process that are resident.
fn resident() -> usize {
    weir_linux::platform::other_malloc::resident().unwrap() as usize
}

#[test]
fn values_of_another_allocator_go_as_far_as_memory_is_missing_and_it_releases_them() {
    in_child(|| {
        // This program's allocator is glibc's, which keeps what is freed below its heap's top.
        let cache = EvictableCache::<u64, Vec<u8>>::builder().weigher(|_, value| value.capacity()).build().unwrap();
        (0..8_000).for_each(|key| drop(cache.insert(key, vec![1; 16 << 10]).unwrap()));
        let (held, limit) = (cache.bytes(), resident() - (32 << 20));
        assert!(held > 120 << 20, "{held}");
        settings::set("limit", &limit.to_string()).unwrap();
        wait_until("the process to be smaller than its limit", || resident() < limit);
        wait_until("relief", || weir::pressure::latest().level == weir::pressure::Level::None);
        settings::set("limit", "0").unwrap();
        assert!(cache.bytes() > held / 2, "{} of {held} bytes are left, and a quarter was to go", cache.bytes());
        assert!(weir_linux::platform::other_malloc::trims() > 0);
    });
}

#[test]
fn of_two_caches_the_one_that_costs_less_gives_what_a_limit_lacks() {
    in_child(|| {
        let made = |us| ByteCache::builder().shards(4).miss_time(Duration::from_micros(us)).build().unwrap();
        let caches = [10, 100_000].map(made);
        let keys = || (0..4_000u32).map(u32::to_le_bytes);
        caches.iter().for_each(|cache| keys().for_each(|key| drop(cache.insert(&key, &[1; 16 << 10]).unwrap())));
        let held = caches.each_ref().map(ByteCache::bytes);
        wait_until("both have prices", || {
            crate::statistics::free_some();
            caches.iter().for_each(|cache| keys().for_each(|key| drop(cache.get(&key))));
            let Some((points, _)) = STATS.costs.read::<Cost>() else { return false };
            // A first window may end between the look-ups of the one and those of the other.
            let Some((mut rows, _)) = STATS.evictable_caches.read::<EvictableRow>() else { return false };
            rows.all(|row| row.bytes < 1 << 20 || row.hit_rate > 0)
                && points.last().is_some_and(|all| all.bytes >= (held[0] + held[1]) as u64 && all.lost_ppm > 0)
        });
        let limit = resident() - (32 << 20);
        settings::set("limit", &limit.to_string()).unwrap();
        wait_until("the process to be smaller than its limit", || resident() < limit);
        settings::set("limit", "0").unwrap();
        let [cheap, dear] = [0, 1].map(|at: usize| held[at] - caches[at].bytes());
        assert!(cheap > 16 << 20 && dear < cheap / 10, "{cheap} and {dear} bytes");
    });
}

/// Nothing weighs what they own, so the cache has a bound.
#[test]
fn values_of_another_allocator_that_nothing_weighs_are_released_by_it_too() {
    in_child(|| {
        struct Page(Vec<u8>);
        let cache = EvictableCache::<u64, Page>::builder().max_bytes(1 << 30).build().unwrap();
        (0..8_000).for_each(|key| drop(cache.insert(key, Page(vec![1; 16 << 10])).unwrap()));
        assert!(cache.iter().all(|page| page.0[0] == 1));
        let limit = resident() - (32 << 20);
        settings::set("limit", &limit.to_string()).unwrap();
        wait_until("the process to be smaller than its limit", || resident() < limit);
        settings::set("limit", "0").unwrap();
        assert!(weir_linux::platform::other_malloc::trims() > 0);
    });
}

/// Threads of this process that call its callbacks.
fn callback_threads() -> usize {
    let is_one = |task: &std::fs::DirEntry| {
        std::fs::read(task.path().join("comm")).is_ok_and(|name| name.starts_with(b"weir-callbacks"))
    };
    std::fs::read_dir("/proc/self/task").unwrap().flatten().filter(is_one).count()
}

/// From now on no thread of this process makes another one.
fn refuse_threads() {
    use linux_raw_sys::general::{__NR_clone, __NR_clone3};
    let line = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let is = |call: u32| line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call, 1);
    let refuses = line(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32, 0);
    let load = line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let allows = line(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0);
    let mut lines = [load, is(__NR_clone), refuses, is(__NR_clone3), refuses, allows];
    let program = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_mut_ptr() };
    let (set, all_threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the kernel copies the program.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::syscall(libc::SYS_seccomp, set, all_threads, &raw const program), 0);
    }
}

#[test]
fn where_no_thread_can_be_made_a_listener_that_panics_does_not_end_the_last_one() {
    const PANICS: usize = 4;
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    in_child(|| {
        let listener = |_: &u64, _: &[u8; 4000], cause| {
            assert!(cause != RemovalCause::Pressure || CALLS.fetch_add(1, SeqCst) >= PANICS, "a listener's panic");
        };
        let cache = EvictableCache::builder().on_evict(listener).build().unwrap();
        (0..4_000).for_each(|key| drop(cache.insert(key, [1; 4000]).unwrap()));
        refuse_threads();
        settings::set("limit", "1M").unwrap();
        wait_until("a call after the panics", || CALLS.load(SeqCst) > PANICS);
    });
}

/// In a group near its limit the kernel would kill for what it kept.
#[test]
fn a_cache_shrinks_although_its_listener_panics_each_time() {
    in_child(|| {
        static THREADS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let listener = |_: &u64, _: &[u8; 4000], cause| {
            if cause == RemovalCause::Pressure {
                THREADS.lock().unwrap().insert(format!("{:?}", std::thread::current().id()));
                panic!("a listener's panic");
            }
        };
        let cache = EvictableCache::builder().on_evict(listener).build().unwrap();
        (0..4_000).for_each(|key| drop(cache.insert(key, [1; 4000]).unwrap()));
        settings::set("limit", "1M").unwrap();
        wait_until("nearly all of it to go", || cache.bytes() < 1 << 20);
        // A thread ends after each run in which something panicked.
        let runs = THREADS.lock().unwrap().len();
        assert!(runs < 300, "{runs} runs");
    });
}

#[test]
fn what_the_program_evicts_is_released_by_another_allocator_too() {
    in_child(|| {
        struct Page(Vec<u8>);
        let weighed = EvictableCache::<u64, Vec<u8>>::builder().build().unwrap();
        let unweighed = EvictableCache::<u64, Page>::builder().max_bytes(1 << 30).build().unwrap();
        for key in 0..2_000 {
            drop(weighed.insert(key, vec![1; 16 << 10]).unwrap());
            drop(unweighed.insert(key, Page(vec![1; 16 << 10])).unwrap());
        }
        assert!(unweighed.iter().all(|page| page.0[0] == 1));
        // Where this lies glibc's heap ends, which it would give back by itself.
        let _top = vec![1u8; 64 << 10];
        for evict in [&(|| weighed.evict(usize::MAX)) as &dyn Fn() -> usize, &|| unweighed.evict(usize::MAX)] {
            let before = resident();
            assert!(evict() > 0);
            // Values of both caches share pages.
            assert!(resident() + (16 << 20) < before, "{} of {before}", resident());
        }
    });
}

#[test]
fn a_forked_child_has_its_caches_give_way_once_it_inserts() {
    in_child(|| {
        let cache = EvictableCache::<u64, [u8; 4000]>::builder().build().unwrap();
        (0..4_000).for_each(|key| drop(cache.insert(key, [1; 4000]).unwrap()));
        let gives_way = |key| {
            drop(cache.insert(key, [1; 4000]).unwrap());
            settings::set("limit", "1M").unwrap();
            wait_until("an eviction for pressure", || cache.stats().evicted_for_pressure > 0);
            settings::set("limit", "0").unwrap();
        };
        in_forked(|| assert!(cache.get(&1).is_some() && callback_threads() == 0));
        in_forked(|| {
            // A child of the child begins anew.
            in_forked(|| {
                assert_eq!(callback_threads(), 0);
                gives_way(4_000);
            });
            gives_way(4_000);
        });
        assert_eq!(cache.stats().evicted_for_pressure, 0);
        gives_way(4_000);
    });
}

/// Each has locks of two ranks. A fork takes those of one rank of all caches before any of the next.
#[test]
fn a_fork_takes_the_locks_of_several_caches() {
    in_child(|| {
        let caches = [(); 2].map(|()| EvictableCache::<u64, u64>::builder().build().unwrap());
        caches.iter().for_each(|cache| drop(cache.insert(1, 1).unwrap()));
        in_forked(|| assert!(caches.iter().all(|cache| cache.get(&1).is_some())));
        assert!(caches.iter().all(|cache| cache.remove(&1)));
    });
}

/// The child has no thread that would end them: its cache would be there for ever.
#[test]
fn a_forked_child_does_not_wait_for_the_evictions_of_its_parent_s_threads() {
    in_child(|| {
        let (held, inside, go_on) = (Arc::new(()), Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (holds, barriers) = (held.clone(), (inside.clone(), go_on.clone()));
        let waits = move |_: &u64, _: &u64, _| {
            assert_eq!(Arc::strong_count(&holds), 2);
            barriers.0.wait();
            barriers.1.wait();
        };
        let cache = EvictableCache::builder().weigher(|_, _| 100).on_evict(waits).build().unwrap();
        drop(cache.insert(1, 1).unwrap());
        let cache = ManuallyDrop::new(cache);
        std::thread::scope(|scope| {
            let evicts = scope.spawn(|| cache.evict(1));
            inside.wait();
            let child = Forked::runs(|| {
                // SAFETY: the child ends its copy of the cache, which no other thread of it uses, and then itself.
                drop(unsafe { std::ptr::read(&*cache) });
                assert_eq!(Arc::strong_count(&held), 1, "the cache ends with its last handle");
            });
            let ended = catch_unwind(|| child.ends_well());
            go_on.wait();
            assert_eq!(evicts.join().unwrap(), 100);
            ended.unwrap();
        });
        drop(ManuallyDrop::into_inner(cache));
    });
}
