//! Operations on files: by the worker itself where they do not wait, else by its ring, or by a thread.

use super::operation::{Operation, What};
use super::ring;
use super::worker::{MOST_OF_FILE, blocking};
use crate::buffers::Buffer;
use rustix::fs::{FallocateFlags, FileType, fstat, fstatfs};
use rustix::io::retry_on_intr;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Error, Result};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use tokio::sync::Semaphore;

/// Most bytes of one operation: the kernel takes no more than 2 GiB less a page.
const MOST: usize = 1 << 30;
/// Result of an operation that the ring has not begun.
const GIVEN_UP: i32 = -libc::ECANCELED;

/// Whether an operation on a file is tried at once, by the worker itself, before the ring or a thread gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    /// An operation may wait for a disk, and who begins it waits too: the file system cannot tell which one does. io_uring begins
    /// operations on the worker. On FUSE, that asks the file system's server first, and waits for its answer.
    ByThread,
    /// An operation may wait for a disk.
    Never,
    /// A read that does not wait: where it would, it is left to others.
    IfCached,
    /// The file is in memory.
    Always,
}

impl Inline {
    /// Finds the way that suits `file`.
    pub fn probe(file: &OwnedFd) -> Self {
        // What `fstatfs` calls the file systems whose files are in memory: tmpfs, and ramfs.
        const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
        // Of a block device it calls that of the device's node, which is in memory as a rule. Its bytes are not.
        let is_regular = fstat(file).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile);
        if is_regular && fstatfs(file).is_ok_and(|found| IN_MEMORY.contains(&found.f_type)) {
            return Self::Always;
        }
        let read = Buffer::take(1).and_then(|mut byte| read_cached(file, &mut byte, 1, 0));
        if read.is_err_and(|why| why.raw_os_error() == Some(libc::EOPNOTSUPP)) {
            Self::ByThread
        } else {
            Self::IfCached
        }
    }

    /// The way of operations past the kernel's page cache on the same file.
    pub fn direct(self) -> Self {
        if self == Self::ByThread { self } else { Self::Never }
    }
}

/// Reads if all of it is in the kernel's page cache, else fails: with `EOPNOTSUPP` where the file system cannot tell.
fn read_cached(file: &OwnedFd, buffer: &mut Buffer, length: usize, offset: u64) -> Result<usize> {
    let room = &mut buffer.spare()[..length];
    let part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: the kernel writes to the buffer's own room alone; it, the vector and the file outlive the call.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, offset as i64, libc::RWF_NOWAIT) };
    let read = usize::try_from(read).map_err(|_| Error::last_os_error())?;
    // SAFETY: the kernel has written so much to the room.
    unsafe { buffer.advance(read) };
    Ok(read)
}

/// Has an operation performed by this worker's ring, or by a thread.
async fn perform(operation: Operation, inline: Inline) -> (Result<usize>, Buffer) {
    match ring::current().filter(|_| inline != Inline::ByThread) {
        Some(ring) => {
            let (result, operation) = ring.perform(operation).await;
            settle(result, operation).await
        }
        None => by_thread(operation).await,
    }
}

async fn by_thread(mut operation: Operation) -> (Result<usize>, Buffer) {
    let file = operation.file.clone();
    on_thread(&file, move || (operation.perform(), operation.buffer)).await
}

thread_local! {
    /// Turns of this worker's files at its threads.
    static TURNS: RefCell<HashMap<RawFd, Weak<Semaphore>>> = RefCell::default();
}

/// The file's turns. As long as there are any, who has one keeps the file open, and its number is no other's.
fn turns(file: RawFd) -> Arc<Semaphore> {
    TURNS.with_borrow_mut(|all| {
        all.get(&file).and_then(Weak::upgrade).unwrap_or_else(|| {
            all.retain(|_, turns| turns.strong_count() > 0);
            let turns = Arc::new(Semaphore::new(MOST_OF_FILE));
            all.insert(file, Arc::downgrade(&turns));
            turns
        })
    })
}

/// Has a thread do `work` on a file, which may block. A file that hangs does not get all threads of a worker: others go on.
pub async fn on_thread<T: Send + 'static>(file: &Arc<OwnedFd>, work: impl FnOnce() -> T + Send + 'static) -> T {
    let held = file.clone();
    let turn = turns(file.as_raw_fd()).acquire_owned().await.expect("turns have no end");
    blocking(move || {
        let done = work();
        // Here, as the task that waits may be gone.
        drop((turn, held));
        done
    })
    .await
}

/// What the ring's result says. Where the kernel has no thread for an operation and may start none (a limit of processes, no
/// memory), it gives it up before it has begun. Nobody else cancels operations. The worker has a thread in any case.
async fn settle(result: i32, mut operation: Operation) -> (Result<usize>, Buffer) {
    match result {
        GIVEN_UP => by_thread(operation).await,
        _ => (operation.performed(result), operation.buffer),
    }
}

/// Appends at most `length` bytes of a file from `offset` to the buffer. 0 is the file's end.
pub async fn read_at(
    file: &Arc<OwnedFd>,
    mut buffer: Buffer,
    length: usize,
    offset: u64,
    inline: Inline,
) -> (Result<usize>, Buffer) {
    let length = length.min(buffer.spare().len()).min(MOST);
    // Linux 5.9 and 5.10 may say 0 of what is not cached: the end is for others to find.
    if inline == Inline::IfCached
        && let Ok(read) = read_cached(file, &mut buffer, length, offset)
        && read > 0
    {
        return (Ok(read), buffer);
    }
    let mut operation = Operation { file: file.clone(), buffer, what: What::Read { length, offset } };
    if inline == Inline::Always { (operation.perform(), operation.buffer) } else { perform(operation, inline).await }
}

/// Writes a part of `buffer`, at least a byte of it, at `offset` in the file.
pub async fn write_at(
    file: &Arc<OwnedFd>,
    buffer: Buffer,
    part: Range<usize>,
    offset: u64,
    inline: Inline,
) -> (Result<usize>, Buffer) {
    let part = part.start..part.end.min(part.start + MOST);
    let mut operation = Operation { file: file.clone(), buffer, what: What::Write { part, offset } };
    if inline == Inline::Always { (operation.perform(), operation.buffer) } else { perform(operation, inline).await }
}

/// Makes what was written to the file durable.
pub async fn sync(file: &Arc<OwnedFd>, inline: Inline) -> Result<()> {
    let operation = Operation { file: file.clone(), buffer: Buffer::keep(0)?, what: What::Sync };
    perform(operation, inline).await.0.map(drop)
}

/// `fallocate`.
pub async fn allocate(file: &Arc<OwnedFd>, mode: FallocateFlags, range: Range<u64>, inline: Inline) -> Result<()> {
    let operation = Operation { file: file.clone(), buffer: Buffer::keep(0)?, what: What::Allocate { mode, range } };
    perform(operation, inline).await.0.map(drop)
}

/// Discards whole sectors of a block device, by a thread.
pub async fn discard(file: &Arc<OwnedFd>, range: Range<u64>) -> Result<()> {
    // `BLKDISCARD`.
    const DISCARD: Opcode = opcode::none(0x12, 119);
    let device = file.clone();
    let discard = move || {
        retry_on_intr(|| {
            // SAFETY: the call is passed the address of a start and a length, of 8 bytes each, and writes to no memory.
            unsafe { ioctl(&device, Setter::<DISCARD, _>::new([range.start, range.end - range.start])) }
        })
    };
    Ok(on_thread(file, discard).await?)
}

#[cfg(test)]
mod tests {
    use super::super::worker::{Engine, Worker, spawn, stop};
    use super::*;
    use crate::backend::testing::run;

    #[test]
    fn a_file_that_hangs_leaves_threads_to_others() {
        let open = || Arc::<OwnedFd>::new(tempfile::tempfile().expect("a file").into());
        let (hung, other) = (open(), open());
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = Arc::new(std::sync::Mutex::new(ended));
        let thread = std::thread::spawn(move || {
            let worker = Worker::new(Engine::Threads).expect("a worker");
            worker.remote().run(move || {
                for _ in 0..500 {
                    let (hung, ended) = (hung.clone(), ended.clone());
                    // Until the sender has gone.
                    let wait = move || drop(ended.lock().map(|ended| ended.recv()));
                    spawn(async move { on_thread(&hung, wait).await });
                }
                spawn(async move {
                    sync(&other, Inline::ByThread).await.expect("the file can be flushed");
                    drop(end);
                    stop();
                });
            });
            worker.run().expect("it ends");
        });
        weir_testing::wait_until("the other file is flushed", || thread.is_finished());
        thread.join().expect("no panic");
    }

    #[test]
    fn what_the_ring_has_given_up_is_done_by_a_thread() {
        run(async {
            let file: Arc<OwnedFd> = Arc::new(tempfile::tempfile().expect("a file").into());
            let operation = |buffer, what| Operation { file: file.clone(), buffer, what };
            let data = Buffer::copy_of(b"data").expect("memory");
            let write = operation(data, What::Write { part: 0..4, offset: 2 });
            assert_eq!(settle(GIVEN_UP, write).await.0.expect("the file can be written"), 4);
            let sync = operation(Buffer::keep(0).expect("nothing"), What::Sync);
            settle(GIVEN_UP, sync).await.0.expect("the file can be flushed");
            let read = operation(Buffer::take(9).expect("memory"), What::Read { length: 9, offset: 0 });
            let (read, found) = settle(GIVEN_UP, read).await;
            assert_eq!((read.expect("the file can be read"), found.filled()), (6, &b"\0\0data"[..]));
        });
    }
}
