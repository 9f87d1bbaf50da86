//! Every setting can be read and set while the program runs, by name; what follows from a value has happened when the
//! call returns.

use std::sync::{Mutex, MutexGuard};
use weir::settings::{self, SettingErrorKind, Unit};
use weir_testing::wait_until;

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

/// One test at a time: settings are the whole process's.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The ids of all threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.map(|task| task.file_name().to_string_lossy().into_owned()).collect()
}

/// The ids of Weir's background thread.
fn background_threads() -> Vec<String> {
    let is_ours =
        |thread: &String| std::fs::read(format!("/proc/self/task/{thread}/comm")).is_ok_and(|name| name == b"weir\n");
    threads().into_iter().filter(is_ours).collect()
}

/// A thread that is about to start has no name yet, and one that is about to end has it still: this one runs.
fn wait_for_background_thread() {
    wait_until("a background thread", || {
        burst();
        weir::stats::process().background_thread
    });
}

/// Enough memory for the background thread to be worth it.
fn burst() {
    drop(std::hint::black_box((0..64_000).map(|i| vec![i as u8; 1000]).collect::<Vec<_>>()));
}

#[test]
fn every_setting_is_set_and_read_by_its_name() {
    let _alone = alone();
    for setting in settings::all() {
        let before = settings::get(setting.name).unwrap();
        for value in [setting.max, setting.min, setting.default] {
            settings::set(setting.name, &value.to_string()).unwrap();
            assert_eq!(settings::get(setting.name), Ok(value));
        }
        let text = settings::set(setting.name, "-1").unwrap_err().to_string();
        assert!(text.starts_with(&format!("{}=-1: not a ", setting.name)), "{text}");
        settings::set_number(setting.name, before).unwrap();
    }
    assert!(settings::all().any(|setting| setting.unit == Unit::Bytes));
    assert_eq!(settings::get("limti").unwrap_err().kind(), SettingErrorKind::Unknown);
    assert_eq!(settings::set("limti", "1").unwrap_err().kind(), SettingErrorKind::Unknown);
}

#[test]
fn nothing_is_released_once_reports_are_switched_off() {
    let _alone = alone();
    settings::set("report", "0").unwrap();
    burst();
    let idle = weir::heap::usage().idle_bytes;
    assert!(idle > 32 << 20 && !weir::heap::trim(), "{idle}");
    assert!(weir::heap::usage().idle_bytes >= idle);
    settings::set("report", "1").unwrap();
    wait_until("idle memory to be released", || {
        weir::heap::trim();
        weir::heap::usage().idle_bytes < idle / 2
    });
}

#[test]
fn a_change_of_what_is_armed_replaces_the_thread_that_armed_it() {
    let _alone = alone();
    wait_for_background_thread();
    let before = background_threads();
    assert_eq!(before.len(), 1);
    settings::set("headroom_percent", "10").unwrap();
    assert!(background_threads() != before, "the thread that armed the former value is still there");
    wait_until("another thread", || {
        burst();
        background_threads().len() == 1 && weir::stats::process().background_thread
    });
    settings::set("headroom_percent", "5").unwrap();
}

#[test]
fn a_cache_has_a_bound_where_pressure_is_not_heard() {
    let _alone = alone();
    let made = || weir::EvictableCache::<u64, u64>::builder().weigher(|_, _| 1 << 20).build().unwrap();
    let mut keys = 0..;
    let mut fill = |cache: &weir::EvictableCache<u64, u64>, count| {
        keys.by_ref().take(count).for_each(|key| drop(cache.insert(key, key).unwrap()));
    };
    let heard = made();
    wait_until("a cache to grow", || {
        fill(&heard, 100);
        heard.len() >= 500
    });
    assert_eq!(heard.stats().max_bytes, usize::MAX);
    settings::set("background", "0").unwrap();
    // One that is there already has it too: each insertion evicts a part of what is too much.
    for cache in [&heard, &made()] {
        let has_bound = |mib: usize| {
            let stats = cache.stats();
            assert_eq!(stats.max_bytes, mib << 20);
            assert!(cache.len() <= mib && stats.target_bytes <= mib << 20, "{} MiB, {stats:?}", cache.len());
        };
        fill(cache, 20_000);
        has_bound(256);
        // A bound of the program's counts as it is, and to lift it is to have none.
        cache.set_max_bytes(300 << 20);
        fill(cache, 1000);
        has_bound(300);
        cache.set_max_bytes(usize::MAX);
        has_bound(256);
    }
    settings::set("background", "1").unwrap();
    assert_eq!(heard.stats().max_bytes, usize::MAX);
}

#[test]
fn a_thread_that_is_wanted_again_comes_to_a_program_at_rest() {
    let _alone = alone();
    wait_for_background_thread();
    settings::set("background", "0").unwrap();
    wait_until("no background thread", || background_threads().is_empty());
    burst();
    let before = threads();
    settings::set("background", "1").unwrap();
    let after = threads();
    assert!(after.iter().any(|thread| !before.contains(thread)), "{after:?}");
}
