//! A thread's credentials and surroundings: its user, groups and capabilities, its root directory, its namespaces.
//!
//! `setuid` and its kin are promises about a whole process that libc keeps by telling each of its threads. A jail
//! (`chroot`, `pivot_root`, a new namespace) counts on there being no thread outside. libc has no record of Weir's
//! background thread. So that thread gives up at its start what it does not need. It compares what the main thread is
//! with what it was when the background thread started, and ends where they differ. Another one, started by a thread of
//! the program, is what the program is by then. Rights that a running thread cannot take on later (seccomp filters,
//! Landlock's rules) are not compared.

use crate::os::file::descriptor_table::has_room_for_pin;
use crate::os::file::text::{number, words};
use crate::os::syscall::{Errno, Result, check, syscall2, syscall4, syscall5};
use crate::os::{fd, tasks};
use core::ffi::CStr;
use linux_raw_sys::general as sys;

/// The main thread's links, or the calling thread's, one for each kind of namespace.
macro_rules! namespaces {
    ($of:literal) => {
        [
            concat!($of, "mnt\0"),
            concat!($of, "net\0"),
            concat!($of, "user\0"),
            concat!($of, "pid\0"),
            concat!($of, "cgroup\0"),
            concat!($of, "ipc\0"),
            concat!($of, "uts\0"),
            concat!($of, "time\0"),
        ]
    };
}
const MAIN_NAMESPACES: [&str; 8] = namespaces!("/proc/self/ns/");
const OWN_NAMESPACES: [&str; 8] = namespaces!("/proc/thread-self/ns/");
const MAIN_ROOT: &str = "/proc/self/root\0";
const OWN_ROOT: &str = "/\0";

/// Device and number of a file; zeros where the kernel does not say.
type FileId = (u64, u64);

/// All that is compared. A part that cannot be read (a sandbox, no `/proc` in a jail, a main thread that has ended) is 0,
/// and says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Identity {
    /// A digest of the ids, groups and capability sets.
    rights: u64,
    namespaces: [FileId; 8],
    root: FileId,
}

impl Identity {
    /// The main thread's.
    fn main(status: i32) -> Self {
        let rights =
            if status >= 0 { rights(|to, at| fd::pread(status, to, at)) } else { rights_of(c"/proc/self/status") };
        Self { rights: rights.unwrap_or(0), namespaces: MAIN_NAMESPACES.map(file_id), root: file_id(MAIN_ROOT) }
    }

    /// The calling thread's.
    fn own() -> Self {
        let rights = rights_of(c"/proc/thread-self/status").unwrap_or(0);
        Self { rights, namespaces: OWN_NAMESPACES.map(file_id), ..Self::own_root() }
    }

    /// The calling thread's, as far as others can change it: the root directory that threads may share.
    fn own_root() -> Self {
        Self { root: file_id(OWN_ROOT), ..Self::default() }
    }

    /// Whether both are known in a part in which they are not the same.
    fn differs(&self, other: &Self) -> bool {
        let places = self.namespaces.iter().zip(&other.namespaces).chain([(&self.root, &other.root)]);
        (self.rights != other.rights && self.rights != 0 && other.rights != 0)
            || places.into_iter().any(|(a, b)| a != b && a.1 != 0 && b.1 != 0)
    }
}

/// Which file a path leads to.
fn file_id(path: &'static str) -> FileId {
    let Ok(path) = CStr::from_bytes_with_nul(path.as_bytes()) else { return (0, 0) };
    fd::stat(path).map_or((0, 0), |found| found.id)
}

/// Keeps a file open as long as the thread's table of files is there.
fn pin(path: &'static str, flags: u32) {
    let path = CStr::from_bytes_with_nul(path.as_bytes());
    if let Some(file) = path.ok().and_then(|path| fd::open(path, flags).ok()).filter(|&file| !has_room_for_pin(file)) {
        let _ = fd::close(file);
    }
}

fn rights_of(status: &CStr) -> Result<u64> {
    let file = fd::open(status, fd::O_RDONLY)?;
    let digest = rights(|to, at| fd::pread(file, to, at));
    let _ = fd::close(file);
    digest
}

/// A digest (FNV-1a) of the lines of a status file with the ids, groups and capabilities of the thread. However long
/// they are: a thread may be in 65,536 groups. Never 0.
fn rights(read: impl Fn(&mut [u8], u64) -> Result<usize>) -> Result<u64> {
    const KEYS: [&[u8]; 4] = [b"Uid:", b"Gid:", b"Grou", b"Cap"];
    let (mut buf, mut at, mut digest) = ([0u8; 1024], 0, 0xcbf2_9ce4_8422_2325u64);
    let (mut head, mut column) = ([0u8; 4], 0);
    loop {
        let len = match read(&mut buf, at)? {
            0 if at == 0 => return Err(Errno::ENODATA),
            0 => return Ok(digest | 1),
            len => len,
        };
        at += len as u64;
        for &byte in &buf[..len] {
            if column < head.len() {
                head[column] = byte;
            }
            column += 1;
            if column >= head.len() && KEYS.iter().any(|key| head.starts_with(key)) {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
            if byte == b'\n' {
                (head, column) = ([0; 4], 0);
            }
        }
    }
}

/// The main thread as it was.
#[derive(Debug)]
pub struct MainThread {
    /// The main thread's status file; negative: it is opened for each look.
    status: i32,
    /// The file that says how the main thread ended; negative: it is opened then.
    stat: i32,
    was: Identity,
}

impl MainThread {
    /// Notes what the main thread is now. With `keep` its status file is kept open, by a thread with a descriptor table
    /// of its own. In the program's table nothing may stay open. `None`: the calling thread is something else; it may
    /// have been started by a thread with other rights, which are not to outlive that one.
    ///
    /// So is the file that says how it ended: a program that ends in a sandbox has often forbidden to open any.
    ///
    /// So are the files of its namespaces, and the links to them and to its root, until that table ends. One that is not open may
    /// be made anew for a look, of memory that the group is charged for: above its limit the kernel drops those that are not
    /// in use. That puts the thread to sleep where it is most wanted ([`GroupDir`]).
    ///
    /// [`GroupDir`]: crate::pressure::group::cgroup::GroupDir
    pub fn note(keep: bool) -> Option<Self> {
        let status = if keep { fd::open(c"/proc/self/status", fd::O_RDONLY) } else { Ok(-1) };
        let status = status.unwrap_or(-1);
        let was = Identity::main(status);
        if was.differs(&Identity::own()) || is_apart() {
            let _ = fd::close(status);
            return None;
        }
        let stat = if keep { fd::open(tasks::MAIN_THREADS_STAT, fd::O_RDONLY).unwrap_or(-1) } else { -1 };
        if keep {
            let links =
                MAIN_NAMESPACES.into_iter().chain([MAIN_ROOT]).map(|path| (path, sys::O_PATH | sys::O_NOFOLLOW));
            let files = MAIN_NAMESPACES.into_iter().map(|path| (path, sys::O_PATH));
            links.chain(files).for_each(|(path, flags)| pin(path, flags));
        }
        Some(Self { status, stat, was })
    }

    /// [`tasks::main_threads_status`].
    pub fn status_at_end(&self) -> i32 {
        tasks::main_threads_status(self.stat)
    }

    /// Whether the main thread has become something else, or the calling thread was moved with it. A `chroot` moves all
    /// threads that share a root directory, but not the files that they have open.
    pub fn has_changed(&self) -> bool {
        let [main, own] = [Identity::main(self.status), Identity::own_root()];
        self.was.differs(&main) || self.was.differs(&own) || is_apart()
    }

    /// Whether what the main thread may can be compared.
    pub fn is_visible(&self) -> bool {
        self.was.rights != 0
    }
}

/// Whether the main thread, if there still is one, has another root directory than the calling thread, be it one of the
/// same number.
fn is_apart() -> bool {
    shares_root_with_main_thread() == Some(false) && !tasks::main_thread_has_ended()
}

/// Also where there is no `/proc` to read. `None`: the kernel does not say.
fn shares_root_with_main_thread() -> Option<bool> {
    const KCMP_FS: usize = 3;
    tasks::shares_with_main_thread(KCMP_FS)
}

/// Effective, permitted, inheritable, as bit sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Capabilities([u64; 3]);

/// Version 3 of `capget`: each set in two words.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// The capabilities that the background thread keeps. With `CAP_SYS_RESOURCE` pressure triggers have short windows, also those
/// armed anew later. After `mlockall(MCL_FUTURE)` each mapping counts as locked memory: without `CAP_IPC_LOCK` the thread of a
/// program that holds more than `RLIMIT_MEMLOCK` could map nothing.
const KEPT: u64 = 1 << 24 | 1 << 14;

impl Capabilities {
    /// The calling thread's.
    fn own() -> Result<Self> {
        let (mut header, mut words) = ([CAPABILITY_VERSION, 0], [0u32; 6]);
        // SAFETY: the kernel reads two words and fills six.
        check(unsafe { syscall2(sys::__NR_capget, header.as_mut_ptr() as usize, words.as_mut_ptr() as usize) })?;
        Ok(Self([0, 1, 2].map(|set| u64::from(words[set]) | u64::from(words[set + 3]) << 32)))
    }

    /// Makes the calling thread's capabilities these.
    fn assume(self) -> Result<()> {
        let header = [CAPABILITY_VERSION, 0];
        let words: [u32; 6] = core::array::from_fn(|i| (self.0[i % 3] >> (32 * (i / 3))) as u32);
        // SAFETY: the kernel reads both, and changes the calling thread's sets only.
        check(unsafe { syscall2(sys::__NR_capset, header.as_ptr() as usize, words.as_ptr() as usize) }).map(drop)
    }
}

/// Whether the calling thread has rights that its program might give up: it is root or has several user ids, or has
/// capabilities. Yes where the kernel does not say.
pub fn has_rights() -> bool {
    let (mut uid, mut gid) = ([0u32; 3], [0u32; 3]);
    let plain = |call: u32, ids: &mut [u32; 3]| {
        let [a, b, c] = ids.each_mut().map(|id| core::ptr::from_mut(id) as usize);
        // SAFETY: the kernel fills three ids.
        check(unsafe { syscall4(call, a, b, c, 0) }).is_ok() && *ids == [ids[0]; 3]
    };
    let same = plain(sys::__NR_getresuid, &mut uid) && plain(sys::__NR_getresgid, &mut gid);
    !(same && uid[0] != 0 && Capabilities::own().is_ok_and(|own| own.0[1] == 0))
}

/// Gives up, for the calling thread, what the background thread has no use for. That is all capabilities but `KEPT`, and
/// that executing a program could ever give it any. What is refused stays.
pub fn give_up_rights() {
    const PR_SET_NO_NEW_PRIVS: usize = 38;
    // SAFETY: touches no memory; holds for the calling thread and those it starts.
    let _ = check(unsafe { syscall5(sys::__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) });
    if let Ok(Capabilities([effective, permitted, _])) = Capabilities::own()
        && permitted != 0
    {
        let _ = Capabilities([effective & KEPT, permitted & KEPT, 0]).assume();
    }
}

/// The id that stands for every user who has none in the namespace, where the kernel does not say which that is.
const OVERFLOW: u64 = 65_534;

/// Whether a user id that the kernel reported may stand for any user. Users who have none in this thread's user
/// namespace are all shown as one id, which may have a user of its own as well.
pub fn may_be_anyone(user: u32) -> bool {
    let overflow = read_number(c"/proc/sys/kernel/overflowuid").unwrap_or(OVERFLOW);
    u64::from(user) == overflow && !is_every_user_shown()
}

/// Whether each user has an id: in the first namespace of a system, mostly.
fn is_every_user_shown() -> bool {
    let mut buf = [0; 128];
    fd::read_file(c"/proc/thread-self/uid_map", &mut buf).is_ok_and(|map| {
        let mut numbers = words(map).map(number);
        [0, 0, u64::from(u32::MAX)].into_iter().all(|expected| numbers.next() == Some(Some(expected)))
    })
}

fn read_number(path: &CStr) -> Option<u64> {
    let mut buf = [0; 32];
    number(fd::read_file(path, &mut buf).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::syscall::syscall3;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn digest(text: &[u8]) -> Result<u64> {
        rights(|to, at| {
            let rest = &text[(at as usize).min(text.len())..];
            let len = rest.len().min(to.len());
            to[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        })
    }

    #[test]
    fn what_a_thread_may_is_told_apart_however_many_groups_it_is_in() {
        let status = |name: &str, uid: u32, groups: &str, capabilities: u64| {
            std::format!(
                "Name:\t{name}\nUid:\t{uid}\t0\t0\t0\nGroups:\t{groups}\nSigCgt:\t9\nCapEff:\t{capabilities:x}\n"
            )
        };
        let many = (0..5000).map(|i| std::format!("{i} ")).collect::<std::string::String>();
        let base = digest(status("a", 1, &many, 7).as_bytes()).unwrap();
        assert_eq!(digest(status("another", 1, &many, 7).as_bytes()), Ok(base), "the name does not count");
        let more = std::format!("{many}77777");
        for other in [status("a", 2, &many, 7), status("a", 1, &more, 7), status("a", 1, &many, 5)] {
            assert_ne!(digest(other.as_bytes()), Ok(base));
        }
        assert_eq!(digest(b""), Err(Errno::ENODATA));
    }

    #[test]
    fn a_part_that_cannot_be_read_says_nothing() {
        let known = Identity { rights: 5, namespaces: [(1, 2); 8], root: (3, 4) };
        assert!(!known.differs(&Identity::default()) && !Identity::default().differs(&known) && !known.differs(&known));
        assert!(known.differs(&Identity { rights: 6, ..Identity::default() }));
        assert!(known.differs(&Identity { root: (3, 5), ..known }));
    }

    #[test]
    fn a_thread_that_is_something_else_is_told_and_may_give_up() {
        let main = MainThread::note(true).unwrap();
        assert!(main.is_visible() && !main.has_changed());
        assert!(MainThread::note(false).is_some_and(|main| !main.has_changed()));
        if !std::thread::spawn(has_rights).join().unwrap() {
            weir_testing::skip!("only root may have a thread that differs");
            return;
        }
        std::thread::spawn(|| {
            // SAFETY: changes the calling thread's groups only.
            check(unsafe { syscall3(sys::__NR_setresgid, 77, 77, 77) }).unwrap();
            assert!(MainThread::note(true).is_none());
        })
        .join()
        .unwrap();
        std::thread::spawn(|| {
            let main = MainThread::note(true).unwrap();
            give_up_rights();
            assert_eq!(Capabilities::own().unwrap().0[1] & !KEPT, 0);
            assert!(!main.has_changed(), "what the thread itself gave up is no change of the main thread's");
            // SAFETY: gives the calling thread a root of its own, the same one.
            if check(unsafe { syscall2(sys::__NR_unshare, sys::CLONE_FS as usize, 0) }).is_ok()
                && shares_root_with_main_thread().is_some()
            {
                assert!(main.has_changed());
            }
        })
        .join()
        .unwrap();
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>) {
            let _ = digest(&text);
        }
    }

    #[test]
    fn only_the_id_that_stands_for_others_may_be_anyone() {
        let overflow = read_number(c"/proc/sys/kernel/overflowuid").unwrap_or(OVERFLOW) as u32;
        assert!(!may_be_anyone(0) && !may_be_anyone(overflow - 1));
        assert_eq!(may_be_anyone(overflow), !is_every_user_shown());
    }
}
