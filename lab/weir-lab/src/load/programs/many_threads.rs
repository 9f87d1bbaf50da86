//! E10's program: threads that each use malloc for a moment and then sleep.

use crate::base::mem::{Block, Random};
use std::hint::black_box;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};

const BLOCKS: usize = 200;
const SMALLEST: usize = 16;
const LARGEST: usize = 8 << 10;
/// Enough for every allocator's own thread-local storage, which lies in the stack too.
const STACK: usize = 64 << 10;

static ASLEEP: AtomicUsize = AtomicUsize::new(0);

/// `many-threads N malloc|none`: starts N threads, says `asleep` when all of them are, and ends when told.
///
/// The threads are pthreads: Rust's own would allocate handles and signal stacks besides.
pub fn main(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let (count, how) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let count: usize = count.parse().map_err(|_| format!("'{count}' is not a number of threads"))?;
    let work = match how.as_str() {
        "malloc" => use_malloc,
        "none" => use_nothing,
        _ => return Err(format!("'{how}' is neither malloc nor none")),
    };
    for number in 0..count {
        start(work, number).map_err(|why| format!("thread {} of {count} does not start: {why}", number + 1))?;
    }
    while ASLEEP.load(Ordering::Acquire) < count {
        // SAFETY: sleeps a millisecond, touches nothing.
        unsafe { libc::usleep(1000) };
    }
    println!("asleep");
    let _ = std::io::stdin().read(&mut [0]);
    // SAFETY: ends the process at once, whatever its threads do.
    unsafe { libc::_exit(0) }
}

type Work = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;

fn start(work: Work, number: usize) -> Result<(), std::io::Error> {
    // SAFETY: the attributes are initialised before use; `work` takes the number as the pointer it is passed in.
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
    if failed == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(failed)) }
}

extern "C" fn use_malloc(number: *mut libc::c_void) -> *mut libc::c_void {
    let mut random = Random::new(0x5eed, number as usize);
    let mut blocks = [Block::NONE; BLOCKS];
    for block in &mut blocks {
        let size = random.between(SMALLEST, LARGEST);
        *block = Block::new(size);
        block.touch_pages(size);
    }
    blocks.iter().for_each(|block| block.free());
    sleep_for_ever()
}

/// The same stack, none of the blocks.
extern "C" fn use_nothing(_number: *mut libc::c_void) -> *mut libc::c_void {
    black_box([Block::NONE; BLOCKS]);
    sleep_for_ever()
}

fn sleep_for_ever() -> ! {
    ASLEEP.fetch_add(1, Ordering::Release);
    loop {
        // SAFETY: sleeps until a signal.
        unsafe { libc::pause() };
    }
}
