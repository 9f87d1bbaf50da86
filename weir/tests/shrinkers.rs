//! Shrinkers of a program's own, called when memory is short.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir::{Shrinker, settings};

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

/// How long anything here may take; only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(50);

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A cache of blocks, oldest first.
#[derive(Clone, Default)]
struct Blocks(Arc<Mutex<VecDeque<Vec<u8>>>>);

impl Blocks {
    fn of(bytes: usize, block: usize) -> Self {
        Self(Arc::new(Mutex::new((0..bytes / block).map(|i| vec![i as u8; block]).collect())))
    }
    fn bytes(&self) -> usize {
        self.0.lock().unwrap().iter().map(Vec::len).sum()
    }
    fn free(&self, bytes: usize) -> usize {
        let mut blocks = self.0.lock().unwrap();
        let mut freed = 0;
        while freed < bytes {
            let Some(block) = blocks.pop_front() else { break };
            freed += block.len();
        }
        freed
    }
}

#[test]
fn a_cache_shrinks_while_memory_is_short() {
    let blocks = Blocks::of(64 << 20, 4000);
    let (count, scan) = (blocks.clone(), blocks.clone());
    let shrinker =
        Shrinker::builder("blocks").register_fns(move || count.bytes(), move |bytes, _| scan.free(bytes)).unwrap();
    settings::set("limit", "32M").unwrap();
    wait_until("the cache to shrink", || blocks.bytes() < 60 << 20);
    settings::set("limit", "0").unwrap();
    assert!(shrinker.stats().freed >= 4 << 20);
}
