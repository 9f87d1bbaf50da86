//! Page pools of a program's own, on the real system.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir::{PagePool, PoolPages, settings};
use weir_testing::wait_until;

mod common;

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

/// Settings are the whole process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// This test alone, in calm: pressure of the one before it, or of the machine, is over.
fn alone() -> MutexGuard<'static, ()> {
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let probe = PagePool::new("calm").unwrap();
    wait_until("calm", || {
        fill(&probe, 4);
        probe.stats().idle_pages >= 4
    });
    guard
}

/// Takes `count` pages, writes to all, and puts them back.
fn fill(pool: &PagePool, count: usize) {
    let mut pages: Vec<PoolPages> = (0..count).map(|_| pool.get().expect("memory")).collect();
    pages.iter_mut().for_each(|page| page.fill(1));
}

/// Memory is short while this lives: the limit is far below what is in use.
struct Pressure(#[allow(dead_code, reason = "held")] Vec<u8>);

impl Pressure {
    fn begin() -> Self {
        let ballast = vec![1; 8 << 20];
        settings::set("limit", "1M").unwrap();
        Self(ballast)
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        settings::set("limit", "0").unwrap();
    }
}

#[test]
fn runs_are_aligned_whole_and_the_pools_own() {
    let _one = alone();
    let (pool, other) = (PagePool::new("one").unwrap(), PagePool::new("other").unwrap());
    assert_eq!((pool.name(), other.name()), ("one", "other"));
    assert!(pool.get_run(0).is_none() && pool.get_run(PagePool::MAX_PAGES + 1).is_none());
    for pages in [1, 3, 7, 100, PagePool::MAX_PAGES] {
        let mut run = pool.get_run(pages).expect("memory");
        assert!(run.as_mut_ptr().addr().is_multiple_of(4096) && run.capacity() >= pages * 4096);
        assert!(run.capacity() <= pages * 4096 * 5 / 4);
        run.fill(9);
        assert_eq!(pool.stats().in_flight_pages, run.capacity() / 4096);
    }
    // Batches; a run of another pool's goes back to that one.
    let mut batch: Vec<Option<PoolPages>> = (0..100).map(|_| None).collect();
    assert_eq!(pool.get_batch(2, &mut batch), 100);
    let stray = other.get_run(5).expect("memory");
    pool.put_batch(batch.into_iter().flatten().chain([stray]));
    assert_eq!((pool.stats().in_flight_pages, other.stats().in_flight_pages), (0, 0));
    wait_until("a put that no late pressure meets", || {
        pool.put_batch(other.get_run(5));
        other.stats().idle_pages == 5
    });
}

#[test]
fn a_pool_lives_as_long_as_its_runs_and_runs_move_between_threads() {
    let _one = alone();
    let pool = PagePool::new("short").unwrap();
    let mut run = pool.get_run(4).expect("memory");
    run.fill(3);
    drop(pool);
    std::thread::spawn(move || assert!(run.filled().iter().all(|&byte| byte == 3))).join().unwrap();
    // What C or a ring has by its address.
    let pool = PagePool::new("raw").unwrap();
    let raw = pool.get().expect("memory").into_raw();
    assert_eq!(pool.stats().in_flight_pages, 1);
    // SAFETY: from `into_raw`, turned back once.
    drop(unsafe { pool.pages_from_raw(raw) });
    assert_eq!(pool.stats().in_flight_pages, 0);
}

#[test]
fn settings_count_while_the_program_runs() {
    let _one = alone();
    // Pressure of the test before may come late: it takes what is idle, and shows nothing.
    wait_until("pools that no late pressure meets", || {
        let pool = PagePool::new("set").unwrap();
        fill(&pool, 3000);
        let most = pool.stats().idle_pages;
        settings::set("max_idle_pages", "50").unwrap();
        fill(&pool, 1);
        let fewer = pool.stats().idle_pages;
        settings::set("max_idle_pages", "1024").unwrap();
        let own = PagePool::builder("own").max_idle_pages(8).squeeze(Duration::from_micros(1)).build().unwrap();
        fill(&own, 100);
        let own_most = own.stats().idle_pages;
        own.set_max_idle_pages(None);
        fill(&own, 100);
        (most, fewer, own_most, own.stats().idle_pages) == (1024, 50, 8, 100)
    });
}

/// The engine has a number that stands for the setting of all pools. It is no number that a program can give.
#[test]
fn a_pool_that_keeps_all_keeps_all() {
    let _one = alone();
    let (made, set) =
        (PagePool::builder("made").max_idle_pages(usize::MAX).build().unwrap(), PagePool::new("set").unwrap());
    set.set_max_idle_pages(Some(usize::MAX));
    settings::set("max_idle_pages", "1").unwrap();
    for pool in [made, set] {
        wait_until("puts that no late pressure meets", || {
            fill(&pool, 40);
            pool.tend();
            pool.stats().idle_pages >= 40
        });
    }
    settings::set("max_idle_pages", "1024").unwrap();
}

#[test]
fn a_name_that_is_cut_inside_a_character_keeps_those_before_it() {
    let name = format!("{}\u{e9}t\u{e9}", "a".repeat(31));
    assert_eq!(PagePool::new(&name).unwrap().name(), "a".repeat(31));
}

#[test]
fn too_many_idle_pages_go_soon_although_a_run_stays_in_flight() {
    let _one = alone();
    // The machine may be short of memory itself: then a squeeze takes the pages, and shows nothing.
    wait_until("a burst that no pressure met", || {
        let pool = PagePool::new("burst").unwrap();
        let long = pool.get().expect("memory");
        fill(&pool, 3000);
        wait_until("Weir's thread", || pool.stats().idle_pages <= 1024);
        let is_met = pool.stats().squeezes > 0;
        drop(long);
        !is_met
    });
}

#[test]
fn pressure_takes_what_is_idle_and_leaves_what_is_in_flight() {
    let _one = alone();
    let (pool, kept) =
        (PagePool::new("disk").unwrap(), PagePool::builder("kept").squeeze(Duration::ZERO).build().unwrap());
    let mut run = pool.get_run(64).expect("memory");
    run.fill(7);
    fill(&pool, 1000);
    fill(&kept, 1000);
    let pressure = Pressure::begin();
    wait_until("the squeeze", || pool.stats().squeezes > 0 && pool.stats().idle_pages == 0);
    assert_eq!((pool.stats().squeezed_pages, pool.stats().in_flight_pages), (1000, 64));
    assert_eq!((kept.stats().idle_pages, kept.stats().squeezes), (1000, 0));
    assert!(run.filled().iter().all(|&byte| byte == 7));
    // A busy pool: what is put in a window goes, and comes back afterwards.
    wait_until("misses after a squeeze", || {
        fill(&pool, 100);
        pool.stats().misses_after_squeeze > 0
    });
    drop(pressure);
    wait_until("the end of the window", || {
        fill(&pool, 100);
        pool.stats().idle_pages >= 100
    });
}

#[test]
fn an_owner_that_sleeps_is_woken() {
    let _one = alone();
    let pool = PagePool::builder("ring").tended().build().unwrap();
    fill(&pool, 1000);
    pool.wait(Some(Duration::from_millis(1)));
    assert_eq!((pool.tend(), pool.stats().idle_pages), (0, 1000));
    let owner = std::thread::spawn({
        let pool = pool.clone();
        move || {
            while pool.tend() == 0 {
                pool.wait(None);
            }
        }
    });
    let pressure = Pressure::begin();
    owner.join().unwrap();
    assert_eq!((pool.stats().idle_pages, pool.stats().squeezed_pages), (0, 1000));
    drop(pressure);
}

#[test]
fn idle_pages_count_as_idle_and_trim_releases_them() {
    let _one = alone();
    let pool = PagePool::builder("trim").max_idle_pages(4096).build().unwrap();
    // Pressure of the machine's, in between, takes them: then they are there again after it.
    wait_until("idle pages that count as idle", || {
        fill(&pool, 4096);
        weir::heap::usage().idle_bytes >= 16 << 20
    });
    weir::heap::trim();
    assert_eq!(pool.stats().idle_pages, 0);
    assert!(weir::heap::usage().idle_bytes < 4 << 20);
}

#[test]
fn many_threads_use_one_pool() {
    let _one = alone();
    let pool = PagePool::new("shared").unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=8u8 {
            let pool = &pool;
            scope.spawn(move || {
                for pages in 1..200 {
                    let mut run = pool.get_run(pages % 40 + 1).expect("memory");
                    run.fill(thread);
                    assert!(run.filled().iter().step_by(64).all(|&byte| byte == thread));
                }
            });
        }
    });
    assert_eq!((pool.stats().in_flight_pages, pool.stats().gets), (0, 8 * 199));
    assert!(pool.stats().idle_pages <= 1024);
}

#[test]
fn a_run_shows_what_was_filled_and_nothing_else() {
    let _one = alone();
    let pool = PagePool::builder("filled").build().unwrap();
    let mut run = pool.get_run(2).expect("memory");
    let at = run.as_ptr();
    run.fill(b'K');
    drop(run);
    // The same pages again, with a key in them that nobody sees.
    let mut run = pool.get_run(2).expect("memory");
    assert_eq!((run.as_ptr(), run.filled().len(), run.capacity()), (at, 0, 8192));
    assert_eq!((run.append(b"short "), run.append(b"read")), (6, 4));
    run.spare()[0].write(b'!');
    // SAFETY: one byte was written.
    unsafe { run.advance(1) };
    run.filled_mut()[0] = b'S';
    assert_eq!(run.filled(), b"Short read!");
    assert_eq!((run.append(&[7; 9000]), run.spare().len()), (8192 - 11, 0));
    run.clear();
    assert!(run.filled().is_empty() && run.zeroed() == [0; 8192]);
    let (raw, length) = (run.into_raw(), 8192);
    // SAFETY: from `into_raw`, turned back once; all of it was written.
    let mut run = unsafe { pool.pages_from_raw(raw) };
    assert!(run.filled().is_empty() && raw.len() == length);
    // SAFETY: all of it was written.
    unsafe { run.advance(length) };
    assert_eq!(run.filled(), [0; 8192]);
}

#[test]
#[should_panic(expected = "than the run has room for")]
fn no_more_counts_as_filled_than_there_is() {
    // SAFETY: the call refuses before it counts.
    unsafe { PagePool::new("long").unwrap().get().expect("memory").advance(4097) }
}
