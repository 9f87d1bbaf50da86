//! A library that a host loads and unloads. It uses Weir in one way or another.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use std::sync::atomic::Ordering::Relaxed;

/// Works in the way of this number; the host ends with what is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn work(way: u32) -> i32 {
    let done = match way {
        0 => blocks(),
        1 => cached(),
        _ => (0..1000).map(|i| vec![1u8; i]).map(|bytes| bytes.len()).sum::<usize>() == 499_500,
    };
    if done { 0 } else { 1 }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn blocks() -> bool {
    let block = weir::heap::alloc(100);
    // SAFETY: allocated here, and not used any more.
    unsafe { weir::heap::free(block) };
    // With the figures begins all else that is done once, as handlers for `fork`.
    !block.is_null() && weir_linux::platform::statics::STATS.magic.load(Relaxed) != 0
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn blocks() -> bool {
    true
}

/// With it threads of Weir's begin, which outlive the cache.
fn cached() -> bool {
    let cache = weir::EvictableCache::<u32, Vec<u8>>::builder().name("plugin").build().expect("a cache");
    (0..1000).for_each(|i| drop(cache.insert(i, vec![1; 1000])));
    cache.get(&999).is_some()
}
