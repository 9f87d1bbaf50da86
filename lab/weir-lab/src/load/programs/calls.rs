//! The calls of malloc and free that the harness steps through to count their instructions.

use crate::base::counted::{between_stops, stay_on_this_cpu};
use crate::base::mem::Block;
use std::hint::black_box;

/// Of a size, so many calls are made before counting begins.
const WARM_UP: usize = 20_000;
/// So few blocks are live at once that every allocator's cache of the nearest rank has them.
const FEW: usize = 4;
/// Repeated so often.
const TIMES: usize = 10;
/// So many are live at once that every cache has to go down a rank.
const MANY: usize = 400;

/// `calls SIZE few|many`: warms up, says where malloc and free begin, stops, makes its calls, and stops again.
///
/// The harness traces it: it does not run on between the two stops but goes instruction by instruction.
pub fn main(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let (size, how) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let size: usize = size.parse().map_err(|_| format!("'{size}' is not a size"))?;
    let (live, times) = match how.as_str() {
        "few" => (FEW, TIMES),
        "many" => (MANY, 1),
        _ => return Err(format!("'{how}' is neither few nor many")),
    };
    let mut blocks = vec![Block::NONE; live];
    let cpu = stay_on_this_cpu();
    for _ in 0..WARM_UP / live {
        once(&mut blocks, size);
    }
    between_stops(&[c"malloc", c"free"], cpu, || (0..times).for_each(|_| once(&mut blocks, size)))
}

#[inline(never)]
fn once(blocks: &mut [Block], size: usize) {
    for block in blocks.iter_mut() {
        *block = Block::new(black_box(size));
    }
    blocks.iter().for_each(|block| block.free());
}
