//! The cost of a call while much is live: `big-heap mib=N ms=N` fills the heap and replaces random blocks of
//! it.

use crate::base::prelude::*;

const STEPS: u64 = 1_024;

pub fn main(words: &Words) -> Result<()> {
    let (bytes, time) = (words.number("mib")? << 20, Duration::from_millis(words.number("ms")?));
    let mut random = Random::new(SEED, 0);
    let (mut blocks, mut live) = (Vec::new(), 0);
    while live < bytes {
        let size = random.doublings(4, 16);
        blocks.push(block(size));
        live += size as u64;
    }
    let (start, mut ops) = (Instant::now(), 0);
    while start.elapsed() < time {
        for _ in 0..STEPS {
            let place = random.below(blocks.len());
            blocks[place].free();
            blocks[place] = block(random.doublings(4, 16));
        }
        ops += STEPS;
    }
    say(format_args!("{{\"ops\":{ops},\"ns\":{}}}", start.elapsed().as_nanos()));
    end()
}

fn block(size: usize) -> Block {
    let block = Block::new(size);
    block.touch_pages(size);
    block
}
