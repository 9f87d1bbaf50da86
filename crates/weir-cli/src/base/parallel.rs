//! The same work on many things at a time.

use std::sync::{Mutex, mpsc};
use std::thread;

/// Does it with all, on `most` threads at most, as far as there are threads to be had. What came of it is in their order.
pub fn each<T: Send, R: Send>(all: impl IntoIterator<Item = T>, most: usize, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let all: Vec<T> = all.into_iter().collect();
    let others = all.len().min(most).saturating_sub(1);
    let waiting = Mutex::new(all.into_iter().enumerate());
    let (tell, told) = mpsc::channel();
    let next = || waiting.lock().ok()?.next();
    let work_off = || {
        while let Some((place, it)) = next() {
            // It is heard below, at the end of all.
            let _ = tell.send((place, work(it)));
        }
    };
    thread::scope(|scope| {
        for _ in 0..others {
            let _ = thread::Builder::new().spawn_scoped(scope, work_off);
        }
        work_off();
    });
    let mut done: Vec<(usize, R)> = told.try_iter().collect();
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}
