//! `get_or_fill_async`: blocks that futures fill in place, once for all who want them.

#[cfg(not(plain))]
use crate::sleeping::Sleeper;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
#[cfg(not(plain))]
use std::{cell::Cell, future::poll_fn, thread};
#[cfg(not(plain))]
use weir::zone::Zone;
use weir::{ByteCache, Refusal};

fn cache() -> ByteCache {
    ByteCache::builder().shards(1).max_bytes(1 << 20).build().unwrap()
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits once.
async fn turn() {
    tokio::task::yield_now().await;
}

#[test]
fn a_block_is_filled_once_for_all_tasks_on_all_threads() {
    let (cache, filled) = (Arc::new(cache()), Arc::new(AtomicUsize::new(0)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    for key in 0..100u64 {
        let tasks = (0..8).map(|_| {
            let (cache, filled) = (cache.clone(), filled.clone());
            runtime.spawn(async move {
                let fill = async |block: &mut [u8]| {
                    filled.fetch_add(1, SeqCst);
                    let (low, high) = block.split_at_mut(8);
                    low.copy_from_slice(&key.to_le_bytes());
                    turn().await;
                    high.fill(key as u8);
                    Ok::<(), ()>(())
                };
                let found = cache.get_or_fill_async(&key.to_le_bytes(), 100, fill).await.unwrap().unwrap();
                found.into_owned(&cache)
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            let found = runtime.block_on(task).unwrap();
            assert_eq!((&found[..8], &found[8..]), (&key.to_le_bytes()[..], &[key as u8; 92][..]));
        }
    }
    assert_eq!((filled.load(SeqCst), cache.len()), (100, 100));
}

#[test]
fn a_future_that_is_dropped_or_fails_leaves_the_block_to_the_next() {
    let cache = cache();
    let fill = async |block: &mut [u8]| {
        block.fill(1);
        std::future::pending::<Result<(), ()>>().await
    };
    let next = async |block: &mut [u8]| {
        // Zeros, whatever the former one wrote: it is another block.
        assert!(block.iter().all(|byte| *byte == 0));
        block.fill(2);
        Ok::<(), ()>(())
    };
    let mut second = pin!(cache.get_or_fill_async(b"key", 100, next));
    {
        let mut first = pin!(cache.get_or_fill_async(b"key", 100, fill));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        assert!(cache.get(b"key").is_none());
    }
    let Poll::Ready(Ok(Ok(found))) = poll(second) else { panic!("the first is gone, so the second fills") };
    assert_eq!(found[..], [2; 100]);
    let mut failing = pin!(cache.get_or_fill_async(b"other", 1, async |_: &mut [u8]| Err("failed")));
    assert_eq!(poll(failing.as_mut()).map(|found| found.map(drop)), Poll::Ready(Err("failed")));
    assert!(!cache.contains(b"other"));
}

/// Has the block until it is dropped, and then writes once more.
struct Late<'b>(&'b mut [u8]);

impl Future for Late<'_> {
    type Output = Result<(), ()>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        self.0.fill(9);
    }
}

#[test]
fn the_block_is_read_by_others_only_when_the_future_is_gone() {
    fn fill(block: &mut [u8]) -> Late<'_> {
        Late(block)
    }
    // The listener sees the value as it is refused, before the guard is there.
    let seen = Arc::new(AtomicUsize::new(0));
    let note = seen.clone();
    let cache = ByteCache::builder().max_bytes(100).on_evict(move |_, value, _| {
        note.store(value[0].into(), SeqCst);
    });
    let cache = cache.build().unwrap();
    let Poll::Ready(Ok(Ok(found))) = poll(pin!(cache.get_or_fill_async(b"key", 1000, fill))) else { panic!("refused") };
    assert_eq!((found[999], seen.load(SeqCst)), (9, 9));
}

#[test]
fn lengths_beyond_memory_are_refused_and_nothing_is_called() {
    let cache = cache();
    let fill = async |_: &mut [u8]| -> Result<(), ()> { unreachable!("there is nothing to fill") };
    let mut huge = pin!(cache.get_or_fill_async(b"key", usize::MAX, fill));
    assert!(matches!(poll(huge.as_mut()), Poll::Ready(Ok(Err(Refusal::OutOfMemory)))));
}

/// A cache in a zone that has room for a few blocks of [`LARGE`] bytes, and three entries in it that together are larger than one.
#[cfg(not(plain))]
fn in_a_zone() -> ByteCache {
    let zone: &'static Zone = Box::leak(Box::new(Zone::anonymous(4 << 20).unwrap()));
    let cache = ByteCache::builder().shards(1).zone(zone).build().unwrap();
    (0..3u8).for_each(|key| drop(cache.insert(&[key], &[key; LARGE / 2]).unwrap()));
    cache
}

#[cfg(not(plain))]
const LARGE: usize = 512 << 10;

/// Four were put in, and nothing went for those that waited.
#[cfg(not(plain))]
fn assert_that_nothing_went(cache: &ByteCache) {
    assert!((0..3u8).all(|key| cache.contains(&[key])));
    assert_eq!((cache.stats().insertions, cache.stats().evicted_for_room), (4, 0));
}

#[cfg(not(plain))]
#[test]
fn tasks_that_wait_for_a_block_take_no_memory_for_it() {
    let (cache, gate) = (in_a_zone(), Cell::new(false));
    let fill = || async {
        let fill = async |block: &mut [u8]| {
            poll_fn(|_| if gate.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            block.fill(1);
            Ok::<(), ()>(())
        };
        cache.get_or_fill_async(b"key", LARGE, fill).await.unwrap().map(|found| found[LARGE - 1])
    };
    let mut tasks: Vec<_> = (0..16).map(|_| Box::pin(fill())).collect();
    assert!(tasks.iter_mut().all(|task| poll(task.as_mut()).is_pending()));
    gate.set(true);
    tasks.iter_mut().for_each(|task| assert_eq!(poll(task.as_mut()), Poll::Ready(Ok(1))));
    assert_that_nothing_went(&cache);
    assert_eq!((cache.stats().hits, cache.stats().misses), (0, 16));
}

#[cfg(not(plain))]
#[test]
fn threads_that_wait_for_a_block_take_no_memory_for_it() {
    let cache = &in_a_zone();
    thread::scope(|scope| {
        let fill = |block: &mut [u8]| {
            for _ in 0..16 {
                Sleeper::spawn(scope, || {
                    let never = |_: &mut [u8]| -> Result<(), ()> { panic!("another fills it") };
                    assert_eq!(cache.get_or_fill(b"key", LARGE, never).unwrap().unwrap()[0], 1);
                })
                .wait();
            }
            block.fill(1);
            Ok::<(), ()>(())
        };
        assert_eq!(cache.get_or_fill(b"key", LARGE, fill).unwrap().unwrap()[0], 1);
    });
    assert_that_nothing_went(cache);
}

/// The key of a load that fills it is found in the block, and who waits for it has none: it has the next turn all the same.
#[test]
fn who_waited_for_a_block_that_failed_fills_it_from_zeros() {
    let cache = cache();
    let mut failing = pin!(cache.get_or_fill_async(b"key", 300, async |block: &mut [u8]| {
        block.fill(9);
        turn().await;
        Err("failed")
    }));
    let next = async |block: &mut [u8]| {
        assert!(block.iter().all(|byte| *byte == 0));
        turn().await;
        block.fill(2);
        Ok::<(), ()>(())
    };
    let mut others: Vec<_> = (0..3).map(|_| Box::pin(cache.get_or_fill_async(b"key", 300, next))).collect();
    assert!(poll(failing.as_mut()).is_pending());
    assert!(others.iter_mut().all(|other| poll(other.as_mut()).is_pending()));
    assert!(matches!(poll(failing.as_mut()), Poll::Ready(Err("failed"))));
    assert!(others.iter_mut().all(|other| poll(other.as_mut()).is_pending()));
    for other in &mut others {
        let Poll::Ready(Ok(Ok(found))) = poll(other.as_mut()) else { panic!("it is filled") };
        assert_eq!(found[..], [2; 300]);
    }
    assert_eq!(cache.stats().insertions, 1);
}
