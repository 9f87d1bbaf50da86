//! The figures of the process and of its caches.

use weir::{ObjectCache, settings};
use weir_testing::wait_for_used;

mod common;

#[test]
fn a_trim_is_counted_as_one() {
    // Nothing else releases anything then: no window ends, and the machine's stalls are not heard.
    settings::set("idle_ms", "3600000").unwrap();
    // But for the window that is under way: it ends once more, where no thread of the background's does that on a slow path.
    let trimmed = trims().or_else(|_| trims());
    assert_eq!(trimmed, Ok(()));
}

/// Frees 15 MiB and trims; an error with the figures if anything of it counts as released by something else.
fn trims() -> Result<(), String> {
    let before = weir::stats::process();
    let usage = weir::heap::usage();
    let blocks: Vec<_> = (0..1000).map(|_| weir::heap::alloc_zeroed(16 << 10)).collect();
    assert!(weir::heap::usage().live_bytes >= usage.live_bytes + (16 << 20) - (1 << 20));
    for block in blocks {
        // SAFETY: allocated above, and freed once.
        unsafe { weir::heap::free(block) };
    }
    while weir::heap::trim() {}
    let after = weir::stats::process();
    let others = |stats: &weir::stats::ProcessStats| {
        [stats.released_idle_bytes, stats.released_pressure_bytes, stats.released_limit_bytes]
    };
    let is_all = after.released_trim_bytes >= before.released_trim_bytes + (15 << 20);
    if is_all && others(&after) == others(&before) { Ok(()) } else { Err(format!("{before:?} {after:?}")) }
}

#[test]
fn caches_are_listed_by_number_with_what_they_hold() {
    let cache = ObjectCache::<[u64; 10]>::new("listed").unwrap();
    let held: Vec<_> = (0..100).map(|i| cache.alloc([i; 10]).unwrap()).collect();
    wait_for_used(|| cache.stats().used, 100);
    let numbers: Vec<_> = weir::stats::caches().map(|cache| cache.number).collect();
    assert!(numbers.len() >= 78 && numbers.is_sorted());
    let found = weir::stats::caches().find(|cache| cache.name() == "listed").unwrap();
    assert_eq!((found.object_bytes, found.limit), (80, None));
    assert_eq!(found.slab_bytes / 80 / (found.used + found.free()), 1, "{found:?}");
    assert!(weir::stats::caches().any(|cache| cache.name() == "malloc 64" && cache.object_bytes == 64));
    drop(held);
    // A free that was interrupted between its count and its commit is counted twice: not all are.
    wait_for_used(|| cache.stats().used, 0);
    assert!((100..200).contains(&cache.stats().allocations));
    assert!(cache.stats().to_string().starts_with("listed"));
    let said = format!("{:?}", cache.stats());
    assert!(said.starts_with("CacheStats { name: \"listed\", number: ") && said.matches("slab").count() == 2, "{said}");
}
