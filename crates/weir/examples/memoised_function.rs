//! A function that remembers its results in an evictable cache. Each result can be computed again, so that the cache may forget any
//! of them at any time: it has no size of its own, and shrinks when memory is short anywhere on the machine.
//!
//! ```text
//! cargo run --release -p weir-memory --example memoised_function -- 300000
//! ```
//!
//! An even number is halved, and an odd one becomes three times itself and one, until it is 1. The program looks for the number, up
//! to the argument, that takes the most steps. Four threads do so, and again after half of the cache was taken away as by pressure.
//! Both results are compared with that of the bare function.

use std::error::Error;
use std::{env, thread};

use weir::EvictableCache;

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

const THREADS: u64 = 4;

/// The next number on the way to 1.
fn next(number: u64) -> u64 {
    if number.is_multiple_of(2) { number / 2 } else { 3 * number + 1 }
}

/// Steps to 1, counted one by one.
fn count(mut number: u64) -> u32 {
    let mut steps = 0;
    while number != 1 {
        number = next(number);
        steps += 1;
    }
    steps
}

/// The memoised function: a miss asks for the result of the next number, which is another entry of the same cache.
struct Steps(EvictableCache<u64, u32>);

impl Steps {
    fn of(&self, number: u64) -> u32 {
        if number == 1 { 0 } else { *self.0.get_or_insert_with(number, || self.of(next(number)) + 1) }
    }

    /// The number from 1 to `end` with the most steps, the smallest of several, and its steps.
    fn longest(&self, end: u64) -> (u64, u32) {
        let of_part = |part| (1 + part..=end).step_by(THREADS as usize).map(|number| (number, self.of(number)));
        let later_first = |(number, steps): &(u64, u32)| (*steps, std::cmp::Reverse(*number));
        thread::scope(|scope| {
            let parts: Vec<_> =
                (0..THREADS).map(|part| scope.spawn(move || of_part(part).max_by_key(later_first))).collect();
            parts.into_iter().filter_map(|part| part.join().expect("a part ends")).max_by_key(later_first)
        })
        .expect("there is a number")
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // From a number of 32 bits none on the way has more than 64.
    let end: u32 =
        env::args().nth(1).map_or(Ok(100_000), |text| text.parse().map_err(|why| format!("{text}: {why}")))?;
    let end = u64::from(end);
    if end == 0 {
        return Err("the largest number is at least 1".into());
    }
    let steps = Steps(EvictableCache::builder().name("steps").build()?);
    let first = steps.longest(end);
    let held = steps.0.bytes();
    println!("{held} bytes held, {} evicted", steps.0.evict(held / 2));
    let second = steps.longest(end);
    let bare = (1..=end)
        .map(|number| (number, count(number)))
        .max_by_key(|&(number, steps)| (steps, std::cmp::Reverse(number)));
    if first != second || Some(first) != bare {
        return Err(format!("the memoised function says {first:?}, then {second:?}; the bare one {bare:?}").into());
    }
    let stats = steps.0.stats();
    println!("{} takes {} steps; {} hits, {} misses", first.0, first.1, stats.hits, stats.misses);
    Ok(())
}
