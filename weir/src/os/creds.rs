//! The background thread's credentials.
//!
//! `setuid` and its kin are promises about a whole process that libc keeps by telling each of its threads. It does
//! not know of Weir's background thread, which would stay as privileged as the program was at its start. So that
//! thread compares itself with the main thread now and then, and follows; so it does with capabilities that the main thread
//! gave up. What a thread cannot do to itself afterwards (seccomp filters, Landlock's rules) it does not follow.

use super::syscall::{Errno, Result, check, syscall2, syscall3};
use super::text::{number, words};
use super::{fd, process};
use linux_raw_sys::general as sys;

/// Most supplementary groups that can be followed.
const MAX_GROUPS: usize = 256;

/// User and group ids of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Credentials {
    /// Real, effective, saved.
    uid: [u32; 3],
    gid: [u32; 3],
    groups: [u32; MAX_GROUPS],
    group_count: usize,
    capabilities: Capabilities,
}

/// Effective, permitted, inheritable, as bit sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Capabilities([u64; 3]);

/// Version 3 of `capget`: each set in two words.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

impl Capabilities {
    /// The calling thread's.
    fn own() -> Result<Self> {
        let (mut header, mut words) = ([CAPABILITY_VERSION, 0], [0u32; 6]);
        // SAFETY: the kernel reads two words and fills six.
        check(unsafe { syscall2(sys::__NR_capget, header.as_mut_ptr() as usize, words.as_mut_ptr() as usize) })?;
        Ok(Self([0, 1, 2].map(|set| u64::from(words[set]) | u64::from(words[set + 3]) << 32)))
    }

    /// What both have.
    fn and(self, other: Self) -> Self {
        Self([0, 1, 2].map(|set| self.0[set] & other.0[set]))
    }

    /// Makes the calling thread's capabilities these.
    fn assume(self) -> Result<()> {
        let header = [CAPABILITY_VERSION, 0];
        let words: [u32; 6] = core::array::from_fn(|i| (self.0[i % 3] >> (32 * (i / 3))) as u32);
        // SAFETY: the kernel reads both, and changes the calling thread's sets only.
        check(unsafe { syscall2(sys::__NR_capset, header.as_ptr() as usize, words.as_ptr() as usize) }).map(drop)
    }
}

impl Credentials {
    /// Reads the text of a `status` file.
    fn parse(text: &[u8]) -> Option<Self> {
        let line = |key: &[u8]| super::text::after(text, key);
        let three = |key: &[u8]| {
            let mut ids = words(line(key)?).map(id);
            Some([ids.next()??, ids.next()??, ids.next()??])
        };
        let (mut groups, mut group_count) = ([0; MAX_GROUPS], 0);
        for word in words(line(b"Groups:")?) {
            *groups.get_mut(group_count)? = id(word)?;
            group_count += 1;
        }
        // The kernel keeps them sorted, but says so nowhere.
        groups[..group_count].sort_unstable();
        let set = |key: &[u8]| hexadecimal(words(line(key)?).next()?);
        let capabilities = Capabilities([set(b"CapEff:")?, set(b"CapPrm:")?, set(b"CapInh:")?]);
        Some(Self { uid: three(b"Uid:")?, gid: three(b"Gid:")?, groups, group_count, capabilities })
    }

    /// The calling thread's.
    fn own() -> Result<Self> {
        let capabilities = Capabilities::own()?;
        let mut own = Self { uid: [0; 3], gid: [0; 3], groups: [0; MAX_GROUPS], group_count: 0, capabilities };
        let [a, b, c] = own.uid.each_mut().map(|id| core::ptr::from_mut(id) as usize);
        // SAFETY: the kernel fills three ids.
        check(unsafe { syscall3(sys::__NR_getresuid, a, b, c) })?;
        let [a, b, c] = own.gid.each_mut().map(|id| core::ptr::from_mut(id) as usize);
        // SAFETY: the kernel fills three ids.
        check(unsafe { syscall3(sys::__NR_getresgid, a, b, c) })?;
        // SAFETY: the kernel fills at most MAX_GROUPS ids.
        own.group_count =
            check(unsafe { syscall2(sys::__NR_getgroups, MAX_GROUPS, own.groups.as_mut_ptr() as usize) })?;
        own.groups[..own.group_count].sort_unstable();
        Ok(own)
    }

    /// Makes the calling thread's credentials these. Groups go first: without its user ids the thread may not
    /// change them any more.
    fn assume(&self, own: &Self) -> Result<()> {
        if self.groups() != own.groups() {
            let groups = self.groups();
            // SAFETY: the kernel reads the ids of the slice.
            check(unsafe { syscall2(sys::__NR_setgroups, groups.len(), groups.as_ptr() as usize) })?;
        }
        if self.gid != own.gid {
            let [real, effective, saved] = self.gid.map(|id| id as usize);
            // SAFETY: changes the calling thread's ids only.
            check(unsafe { syscall3(sys::__NR_setresgid, real, effective, saved) })?;
        }
        if self.uid != own.uid {
            let [real, effective, saved] = self.uid.map(|id| id as usize);
            // SAFETY: changes the calling thread's ids only.
            check(unsafe { syscall3(sys::__NR_setresuid, real, effective, saved) })?;
        }
        // After the ids, whose change takes some away. None is taken that the thread has not.
        let (now, wanted) = (Capabilities::own()?, self.capabilities);
        if now.and(wanted) != now { now.and(wanted).assume() } else { Ok(()) }
    }

    /// Whether it is another user's, or has what `self` has not.
    fn is_beyond(&self, main: &Self) -> bool {
        let ids = |c: &Self| (c.uid, c.gid);
        ids(self) != ids(main)
            || self.groups() != main.groups()
            || self.capabilities.and(main.capabilities) != self.capabilities
    }

    fn groups(&self) -> &[u32] {
        &self.groups[..self.group_count]
    }
}

fn id(word: &[u8]) -> Option<u32> {
    u32::try_from(number(word)?).ok()
}

/// A number as the kernel writes bit sets.
fn hexadecimal(word: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(word).ok()?, 16).ok()
}

/// Whether the calling thread has rights that its program might give up: it is root or somebody else in part, or has
/// capabilities. Yes where that cannot be told.
pub fn has_rights() -> bool {
    let one = |ids: [u32; 3]| ids == [ids[0]; 3];
    let plain = |own: Credentials| own.uid[0] != 0 && one(own.uid) && one(own.gid) && own.capabilities.0[1] == 0;
    !Credentials::own().is_ok_and(plain)
}

/// The main thread's credentials, seen through a descriptor that a `chroot` does not hide.
#[derive(Debug)]
pub struct MainThread {
    /// Negative: it is opened for each look.
    status: i32,
}

impl MainThread {
    /// Opens the main thread's status, to be kept by a thread with a descriptor table of its own; in the program's table
    /// nothing may stay open.
    pub fn open(keep: bool) -> Self {
        let status = if keep { fd::open(c"/proc/self/status", fd::O_RDONLY) } else { Ok(-1) };
        Self { status: status.unwrap_or(-1) }
    }

    fn read(&self, text: &mut [u8]) -> Result<usize> {
        if self.status >= 0 {
            return fd::pread(self.status, text, 0);
        }
        let status = fd::open(c"/proc/self/status", fd::O_RDONLY)?;
        let read = fd::pread(status, text, 0);
        let _ = fd::close(status);
        read
    }

    /// Takes the main thread's user and group ids where they differ from the calling thread's, and gives up capabilities
    /// that it has not. True if there was something to do.
    ///
    /// After an error the thread has, or may have, rights that the program gave up (or the other way round): it
    /// should end.
    pub fn match_main_thread(&self) -> Result<bool> {
        let mut text = [0u8; 8192];
        let len = self.read(&mut text)?;
        let main = Credentials::parse(&text[..len]).ok_or(Errno::EOVERFLOW)?;
        let own = Credentials::own()?;
        if !own.is_beyond(&main) {
            return Ok(false);
        }
        let dumpable = process::dumpable();
        main.assume(&own)?;
        // The kernel takes a change of ids for a new danger, and forbids core dumps and debuggers; a program that had
        // allowed them again after its own change means that to hold.
        if dumpable {
            process::set_dumpable()?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const STATUS: &[u8] = b"Name:\tx\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\nFDSize:\t256\nGroups:\t30 4 \n\
        CapInh:\t0000000000000001\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000400\n";

    #[test]
    fn status_is_read() {
        let read = Credentials::parse(STATUS).unwrap();
        assert_eq!((read.uid, read.gid, read.groups()), ([1000, 1001, 1002], [5, 6, 7], &[4, 30][..]));
        assert_eq!(read.capabilities, Capabilities([0x400, 0x1ff_ffff_ffff, 1]));
        assert_eq!(Credentials::parse(b"Uid:\t1\t2\t3\t4\n"), None);
    }

    #[test]
    fn a_thread_that_differs_follows_the_main_thread() {
        let main = MainThread::open(true);
        assert_eq!(main.match_main_thread(), Ok(false));
        assert_eq!(MainThread::open(false).match_main_thread(), Ok(false));
        let own = Credentials::own().unwrap();
        if own.uid != [0; 3] {
            std::eprintln!("skipped: only root may have a thread that differs");
            return;
        }
        std::thread::spawn(move || {
            // The other way round from use, so that the test process keeps its rights: this thread leaves its
            // saved id at root, and the main thread is what it returns to.
            let other = Credentials { uid: [0, 12_345, 0], gid: [77, 77, 77], ..own.clone() };
            other.assume(&own).unwrap();
            let differs = Credentials::own().unwrap();
            assert_eq!((differs.uid, differs.gid), (other.uid, other.gid));
            // SAFETY: changes the calling thread's ids only; back to root so that the groups may be set.
            check(unsafe { syscall3(sys::__NR_setresuid, 0, 0, 0) }).unwrap();
            process::set_dumpable().unwrap();
            assert_eq!(main.match_main_thread(), Ok(true));
            assert_eq!(Credentials::own().unwrap(), own);
            assert!(process::dumpable(), "a process that may be debugged still may");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn capabilities_that_the_main_thread_gave_up_are_given_up() {
        let own = Credentials::own().unwrap();
        if own.capabilities.0[1] == 0 {
            std::eprintln!("skipped: there are no capabilities to give up");
            return;
        }
        assert!(has_rights());
        std::thread::spawn(move || {
            let one = own.capabilities.0[1].trailing_zeros();
            let less = Capabilities(own.capabilities.0.map(|set| set & !(1 << one)));
            let main = Credentials { capabilities: less, ..own.clone() };
            assert!(own.is_beyond(&main) && !main.is_beyond(&own));
            main.assume(&own).unwrap();
            assert_eq!(Capabilities::own(), Ok(less));
            // It takes none that it has not.
            own.assume(&main).unwrap();
            assert_eq!(Capabilities::own(), Ok(less));
        })
        .join()
        .unwrap();
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>) {
            let _ = Credentials::parse(&text);
        }
    }
}
