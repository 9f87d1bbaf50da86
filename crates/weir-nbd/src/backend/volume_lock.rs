//! Locks on volumes, so that two programs do not write one without knowing of each other.
//!
//! They are QEMU's, which locks single bytes of an image: who writes holds one, and who cannot bear that others write holds
//! another. A server with a block cache cannot, also where it only reads: it would not see what others change. A lock is advice,
//! to programs that ask; a file system that has no locks does without. The kernel drops them when the process ends, however it
//! does.

use crate::base::Failure;
use crate::cache::FileId;
use std::collections::HashMap;
use std::fmt::Display;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The byte of those who write (`RAW_LOCK_PERM_BASE` and `BLK_PERM_WRITE` of QEMU).
const WRITES: i64 = 101;
/// The byte of those who do not let others write (`RAW_LOCK_SHARED_BASE`).
const ALONE: i64 = 201;

/// The locks that this process holds: exports of the same file share one.
static HELD: Mutex<Option<HashMap<FileId, Weak<VolumeLock>>>> = Mutex::new(None);

/// A volume that this process writes, or has a block cache of, locked until this is dropped.
pub struct VolumeLock {
    /// It is locked for writing. Set under the lock of [`HELD`].
    writes: AtomicBool,
    /// The lock belongs to what was opened, and not to the process.
    file: Arc<OwnedFd>,
}

impl VolumeLock {
    /// Locks an open file, `source` and known as `id`. `writes`: it will be written. `is_alone`: no other may write it.
    pub fn take(
        file: &Arc<OwnedFd>,
        id: FileId,
        source: &dyn Display,
        writes: bool,
        is_alone: bool,
    ) -> std::result::Result<Option<Arc<Self>>, Failure> {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        let held = held.get_or_insert_default();
        let there = held.get(&id).and_then(Weak::upgrade);
        let lock = match there {
            Some(lock) if !writes || lock.writes.load(Relaxed) => return Ok(Some(lock)),
            Some(lock) => lock,
            None => Arc::new(Self { writes: AtomicBool::new(false), file: file.clone() }),
        };
        held.retain(|_, lock| lock.strong_count() > 0);
        match lock.try_take(writes, is_alone) {
            Ok(true) => {
                lock.writes.store(writes, Relaxed);
                held.insert(id, Arc::downgrade(&lock));
                Ok(Some(lock))
            }
            Ok(false) => Err(Failure::new(
                "another program has locked it: a second server, or QEMU; a server without --cache can share it with \
                 another without",
            )),
            Err(why) if is_alone => {
                tracing::warn!("{source}: no lock keeps others from writing it, which the cache does not see: {why}");
                Ok(None)
            }
            Err(why) => {
                tracing::debug!("{source}: no lock: {why}");
                Ok(None)
            }
        }
    }

    /// Locks the file; `false` if another's locks are in the way.
    fn try_take(&self, writes: bool, is_alone: bool) -> Result<bool> {
        // First it takes its own, then it looks at others'. If two do so at the same time, at least one sees the other.
        for byte in [writes.then_some(WRITES), is_alone.then_some(ALONE)].into_iter().flatten() {
            match control(&self.file, libc::F_OFD_SETLK, libc::F_RDLCK, byte) {
                // Another has the byte, or all of the file, for itself: whichever program that is.
                Err(why) if matches!(why.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => return Ok(false),
                locked => drop(locked?),
            }
        }
        let is_in_the_way = writes && is_others(&self.file, ALONE)? || is_alone && is_others(&self.file, WRITES)?;
        if is_in_the_way && writes {
            // Another export of this process may keep its lock, of one that reads.
            control(&self.file, libc::F_OFD_SETLK, libc::F_UNLCK, WRITES)?;
        }
        Ok(!is_in_the_way)
    }
}

impl Drop for VolumeLock {
    /// What hangs below may have the file open for longer.
    fn drop(&mut self) {
        for byte in [WRITES, ALONE] {
            // It may have no locks.
            let _ = control(&self.file, libc::F_OFD_SETLK, libc::F_UNLCK, byte);
        }
    }
}

/// Does another hold the byte?
fn is_others(file: &OwnedFd, byte: i64) -> Result<bool> {
    Ok(control(file, libc::F_OFD_GETLK, libc::F_WRLCK, byte)? != libc::F_UNLCK)
}

/// A call for a lock of one byte; the kind of lock that it returns.
fn control(file: &OwnedFd, command: i32, kind: i32, byte: i64) -> Result<i32> {
    // SAFETY: the structure is numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    (lock.l_start, lock.l_len) = (byte, 1);
    // SAFETY: the descriptor is open, and the call reads and writes the structure alone.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) } {
        0 => Ok(lock.l_type.into()),
        _ => Err(Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::open::Source;
    use super::super::testing::run;
    use super::*;
    use crate::base::size::Size;
    use crate::buffers::Buffer;
    use crate::cache::{BLOCK, BlockCache};
    use rustix::fs::{self, Mode, OFlags};

    #[test]
    fn a_volume_that_another_locks_for_itself_is_not_served() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![0; 1 << 20]).expect("a file");
        let other = fs::open(&path, OFlags::RDWR, Mode::empty()).expect("the file");
        control(&other, libc::F_OFD_SETLK, libc::F_WRLCK, WRITES).expect("a lock");
        let source = Source::Path { path, create: None };
        let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
        for cache in [None, Some(&cache)] {
            let refused = source.open(false, cache).err().expect("it is locked").to_string();
            assert!(refused.contains("another program has locked it"), "{refused}");
        }
    }

    #[test]
    fn a_volume_stays_locked_until_the_file_has_all_that_was_written() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("disk");
            let source = Source::Path { path: path.clone(), create: Some(Size(1 << 20)) };
            let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
            let volume = source.open(false, Some(&cache)).expect("a volume");
            let other = fs::open(&path, OFlags::RDWR, Mode::empty()).expect("the file");
            let is_locked = || is_others(&other, ALONE).expect("locks");
            volume.write(0, Buffer::copy_of(&[1; BLOCK]).expect("memory")).await.expect("it is in the cache");
            assert!(is_locked() && volume.is_dirty(&(0..1)));
            // Its export was removed, and its last client has gone.
            drop(volume);
            let is_written = || std::fs::read(&path).expect("the file")[..BLOCK] == [1; BLOCK];
            assert!(is_locked() || is_written());
            while is_locked() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            assert!(is_written());
        });
    }
}
