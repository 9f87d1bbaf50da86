//! `weir trace`: the batches that a running process releases, as lines of JSON.

use crate::base::failure::Failure;
use crate::base::output;
use crate::figures::events::news;
use crate::inspect::page::{Inspected, Missing, Page};
use std::time::Duration;

/// Time between two looks. If a process releases more than 64 batches in this time, events are lost, and counted.
const INTERVAL: Duration = Duration::from_millis(10);

/// Prints the batches that are known still, and then each new one, until the process ends.
pub fn trace(pid: i32) -> Result<i32, Failure> {
    let failed = |why: Missing| why.of(pid);
    let (mut inspected, mut last) = Inspected::with_page(pid).map_err(failed)?;
    let mut next = last.trace.recorded().saturating_sub(weir_core::telemetry::trace::EVENTS as u64);
    loop {
        // Its page may have been moved: to a file of its background thread, which has started meanwhile.
        let page = inspected.page().or_else(|_| {
            inspected.look_again()?;
            inspected.page()
        });
        let page = match page {
            Ok(page) => page,
            // What it released last, of which no second copy can be made.
            Err(Missing::NoProcess | Missing::NotLoaded) => {
                return output::print(&lines(pid, &last, &last, &mut next)).map(|()| 0);
            }
            Err(why) => return Err(failed(why)),
        };
        output::print(&lines(pid, &last, &page, &mut next))?;
        last = page;
        std::thread::sleep(INTERVAL);
    }
}

/// The events of the first copy that the second has unchanged: one of the others was being written as it was copied.
/// The number is the one that was asked for: the page has that of its own PID namespace.
pub fn lines(pid: i32, first: &Page, second: &Page, next: &mut u64) -> String {
    let read = |number| first.trace.read(number).filter(|event| second.trace.read(number) == Some(*event));
    let news = news(pid as u32, first.trace.recorded(), read, next);
    news.iter().map(|line| format!("{line}\n")).collect()
}
