//! E10's program: `many-threads count=N [blocks=0]`, threads that each use malloc for a moment and then sleep; without blocks
//! they use it not at all.

use crate::base::prelude::*;
use std::io::Error;
use std::sync::atomic::{AtomicUsize, Ordering};

const MOST: usize = 200;
const SMALLEST: usize = 16;
const LARGEST: usize = 8 << 10;
const STACK: usize = 64 << 10;
static ASLEEP: AtomicUsize = AtomicUsize::new(0);
static BLOCKS: AtomicUsize = AtomicUsize::new(MOST);

pub fn main(words: &Words) -> Result<()> {
    let count = words.number("count")? as usize;
    let blocks = words.number_or("blocks", MOST as u64)? as usize;
    ensure!(blocks <= MOST, "at most {MOST} blocks");
    BLOCKS.store(blocks, Ordering::Relaxed);
    for number in 0..count {
        start(number).with_context(|| format!("thread {} of {count} does not start", number + 1))?;
    }
    while ASLEEP.load(Ordering::Acquire) < count {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    phase(format_args!("{{\"phase\":\"asleep\"}}"));
    Ok(())
}

/// Starts a thread as C does: the standard library would allocate for each.
fn start(number: usize) -> Result<(), Error> {
    // SAFETY: the attributes are made before they are used; the thread gets a number.
    let failed = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread: libc::pthread_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, STACK);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let failed = libc::pthread_create(&mut thread, &attributes, work, number as *mut libc::c_void);
        libc::pthread_attr_destroy(&mut attributes);
        failed
    };
    if failed == 0 { Ok(()) } else { Err(Error::from_raw_os_error(failed)) }
}

extern "C" fn work(number: *mut libc::c_void) -> *mut libc::c_void {
    let mut random = Random::new(SEED, number as usize);
    let mut blocks = [Block::NONE; MOST];
    for block in &mut blocks[..BLOCKS.load(Ordering::Relaxed)] {
        let size = random.between(SMALLEST, LARGEST);
        *block = Block::new(size);
        block.touch_pages(size);
    }
    blocks.iter().for_each(|block| block.free());
    ASLEEP.fetch_add(1, Ordering::Release);
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}
