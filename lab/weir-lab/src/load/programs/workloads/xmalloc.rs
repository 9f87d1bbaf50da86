//! Lever and Boreham's xmalloc-test: some threads only allocate, others only free. What the allocating side lacks is
//! always at the freeing side.

use crate::base::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex};

const BATCH: usize = 4_096;
/// Batches under way at most, for each producer.
const QUEUE: usize = 10;

#[derive(Default)]
struct Channel {
    batches: Mutex<(VecDeque<Block>, bool)>,
    changed: Condvar,
}

/// Half of the threads produce, half consume, over one channel a pair. Counts blocks freed.
pub fn work(run: &Run) -> u64 {
    let pairs = (run.threads / 2).max(1);
    let channels: Vec<Channel> = (0..pairs).map(|_| Channel::default()).collect();
    let two_a_pair = Run { threads: pairs * 2, ..run.clone() };
    two_a_pair.until_time_is_over(|index, over| {
        let channel = &channels[index / 2];
        if index % 2 == 1 {
            return consume(channel);
        }
        let mut random = Random::new(run.seed, index);
        while !over.load(Ordering::Relaxed) {
            channel.put(produce(&mut random));
        }
        channel.close();
        0
    })
}

/// A batch is itself a block: an array of pointers.
fn produce(random: &mut Random) -> Block {
    let batch = Block::new(BATCH * size_of::<usize>());
    for index in 0..BATCH {
        let block = Block::new(random.doublings(3, 9));
        batch.set_word(index, block.address() as u64);
    }
    batch
}

fn consume(channel: &Channel) -> u64 {
    let mut freed = 0;
    while let Some(batch) = channel.take() {
        for index in 0..BATCH {
            Block::from_address(batch.word(index) as *mut u8).free();
        }
        batch.free();
        freed += BATCH as u64;
    }
    freed
}

impl Channel {
    fn put(&self, batch: Block) {
        let mut state = self.batches.lock().unwrap();
        while state.0.len() >= QUEUE {
            state = self.changed.wait(state).unwrap();
        }
        state.0.push_back(batch);
        self.changed.notify_all();
    }

    fn close(&self) {
        self.batches.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    fn take(&self) -> Option<Block> {
        let mut state = self.batches.lock().unwrap();
        loop {
            if let Some(batch) = state.0.pop_front() {
                self.changed.notify_all();
                return Some(batch);
            }
            if state.1 {
                return None;
            }
            state = self.changed.wait(state).unwrap();
        }
    }
}
