//! Shells: the memory that buckets are made of, and the stash of those that no depot has.
//!
//! Shells are of one size, so that those of one cache serve the others. They lie in *chunks* of four pages, and 64
//! chunks in a *group* of 1 MiB. In the place of its first shell a group says which of its shells are free. A depot
//! that shrinks gives its spare shells back here. Chunks none of whose shells is taken go back to the system, as far as
//! there are more than the last window's peak wanted. What stays is the page that a group's header is on: a 256th.
//!
//! A chunk on its way to the system is isolated as a pageblock is ([`crate::pages::report`]): its shells are not free
//! until the release is over. A batch lock of the balancer's is held meanwhile.

use core::ptr::null_mut;

use crate::base::run::Run;
use crate::base::units::PAGE;
use crate::caches::geometry::MAX_BATCH;
use crate::policy::working_set::Peak;

/// A bucket: `len` pointers.
#[repr(C)]
pub(crate) struct Bucket {
    pub(crate) next: *mut Bucket,
    pub(super) len: usize,
    pub(super) slots: [*mut u8; MAX_BATCH],
}

/// Bytes of a group, which is aligned to as many.
pub const GROUP: usize = 1 << 20;
/// Bytes of a chunk.
pub const CHUNK: usize = 4 * PAGE;
const CHUNKS: usize = GROUP / CHUNK;
/// Shells of a chunk.
const SHELLS: usize = CHUNK / size_of::<Bucket>();
/// A chunk all of whose shells are free.
const ALL: u32 = (1 << SHELLS) - 1;
/// [`ALL`] of a group's first chunk, whose first shell's place is the header's.
const ALL_BUT_HEADER: u32 = ALL & !1;

/// Header that a group begins with.
#[repr(C)]
struct Header {
    next: *mut Header,
    /// Bit i: chunk i has free shells.
    some: u64,
    /// Bit i: no memory is behind chunk i (but for the header's page).
    released: u64,
    /// Which shells of each chunk are free.
    free: [u32; CHUNKS],
}

const _: () = assert!(CHUNKS == 64 && SHELLS < 32 && size_of::<Header>() <= size_of::<Bucket>());

/// A list of shells.
pub struct Shells {
    head: *mut Bucket,
}

// SAFETY: shells are reached only through their list, which is always behind a lock, or one thread's.
unsafe impl Send for Shells {}

impl Shells {
    /// No shells.
    pub(crate) const fn new() -> Self {
        Self { head: null_mut() }
    }

    /// The first, from which the others follow.
    pub(crate) fn first(&self) -> *mut Bucket {
        self.head
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    pub(crate) fn pop(&mut self) -> Option<*mut Bucket> {
        let shell = self.head;
        if shell.is_null() {
            return None;
        }
        // SAFETY: the shell is on this list, so it is mapped for good and on no other list.
        self.head = unsafe { (*shell).next };
        Some(shell)
    }

    /// Puts a shell first.
    ///
    /// # Safety
    /// It is a shell of a group, which is never unmapped, and is on no list.
    pub(crate) unsafe fn push(&mut self, shell: *mut Bucket) {
        // SAFETY: the shell is mapped and on no list, says the caller, so nothing else reads or writes it now.
        unsafe { (*shell).next = self.head };
        self.head = shell;
    }

    /// Moves all shells of `other` here.
    pub(crate) fn append(&mut self, other: &mut Self) {
        while let Some(shell) = other.pop() {
            // SAFETY: it is a shell, as it came from a list of shells, and `pop` took it off that list.
            unsafe { self.push(shell) };
        }
    }
}

/// The shells that no depot has.
pub struct Stash {
    /// The first group; each points to the next, in the order in which they came.
    first: *mut Header,
    last: *mut Header,
    /// The group that shells are taken from.
    current: *mut Header,
    /// Free shells.
    free: usize,
    /// Shells that depots have.
    used: usize,
    peak: Peak<usize>,
}

// SAFETY: groups are reached only through the stash, which is always behind its lock.
unsafe impl Send for Stash {}

/// Chunks of a group, isolated.
#[derive(Clone, Copy)]
pub struct Chunks {
    group: *mut Header,
    /// Bit i: chunk i.
    set: u64,
}

impl Chunks {
    /// How many they are.
    pub(crate) fn count(self) -> usize {
        self.set.count_ones() as usize
    }

    /// The memory of each, but for the header's page.
    pub(crate) fn runs(self) -> impl Iterator<Item = Run> {
        let (addr, set) = (self.group as usize, self.set);
        (0..CHUNKS).filter(move |i| set >> i & 1 == 1).map(move |i| {
            let kept = if i == 0 { PAGE } else { 0 };
            Run { addr: addr + i * CHUNK + kept, len: CHUNK - kept }
        })
    }
}

/// All the shells that chunk `i` has.
fn all(i: usize) -> u32 {
    if i == 0 { ALL_BUT_HEADER } else { ALL }
}

impl Stash {
    /// No shells.
    pub(crate) const fn new() -> Self {
        Self { first: null_mut(), last: null_mut(), current: null_mut(), free: 0, used: 0, peak: Peak::new(0) }
    }

    /// The groups, in order.
    fn groups(&self) -> impl Iterator<Item = *mut Header> + use<> {
        // SAFETY: groups are never unmapped. Their headers are read and written under the stash's lock alone, which
        // whoever has a reference to the stash holds.
        core::iter::successors((!self.first.is_null()).then_some(self.first), |&group| unsafe {
            let next = (*group).next;
            (!next.is_null()).then_some(next)
        })
    }

    /// The address of the group that came after the one at `group`, or of the first.
    pub(crate) fn group_after(&self, group: Option<usize>) -> Option<usize> {
        let next = match group {
            // SAFETY: the address of a group, which this returned before. Groups are never unmapped. Their links are
            // read and written under the stash's lock, which the caller holds.
            Some(group) => unsafe { (*(group as *const Header)).next },
            None => self.first,
        };
        (!next.is_null()).then_some(next as usize)
    }

    /// Adds the group at `group`.
    ///
    /// # Safety
    /// It is [`GROUP`] zero bytes, aligned to as many, that nothing else uses and that are never unmapped.
    pub(crate) unsafe fn add(&mut self, group: usize) {
        let group = group as *mut Header;
        // SAFETY: the caller gives a whole group that nothing else uses. Its first bytes are room for a header, for
        // which zeros are a value. `last`, if there is one, is a group's header too.
        unsafe {
            ((*group).some, (*group).released) = (u64::MAX, u64::MAX);
            (0..CHUNKS).for_each(|i| (*group).free[i] = all(i));
            if self.last.is_null() { self.first = group } else { (*self.last).next = group }
        }
        (self.last, self.current) = (group, group);
        self.free += CHUNKS * SHELLS - 1;
    }

    /// Moves a free shell to `list`; one with memory behind it unless it `may_grow`. `None`: there is none. Else
    /// whether it is the first of its chunk, behind which there was no memory.
    pub(crate) fn take(&mut self, list: &mut Shells, may_grow: bool) -> Option<bool> {
        let (group, chunk) = self.find(may_grow)?;
        // SAFETY: `find` returns a group of this stash, which is mapped for good. Its header is used under the stash's
        // lock alone, of which `&mut self` is the proof; no other reference to it is alive.
        let header = unsafe { &mut *group };
        let shell = header.free[chunk].trailing_zeros() as usize;
        header.free[chunk] &= !(1 << shell);
        if header.free[chunk] == 0 {
            header.some &= !(1 << chunk);
        }
        let fresh = header.released >> chunk & 1 == 1;
        header.released &= !(1 << chunk);
        // SAFETY: the place is inside the group, has room for a shell, and its bit said that it is free: on no list.
        unsafe { list.push((group as usize + chunk * CHUNK + shell * size_of::<Bucket>()) as *mut Bucket) };
        (self.free, self.used) = (self.free - 1, self.used + 1);
        self.peak.note(self.used);
        Some(fresh)
    }

    /// The first group with a chunk to take a shell from, searched from the current one on; it is the current one then.
    /// If that group has a chunk with memory behind it, the result is one of those.
    fn find(&mut self, may_grow: bool) -> Option<(*mut Header, usize)> {
        if self.free == 0 {
            return None;
        }
        let begin = self.current;
        loop {
            // SAFETY: a shell is free, so there is a group and `current` is one, mapped for good. Its header is used
            // under the stash's lock alone, of which `&mut self` is the proof.
            let header = unsafe { &*self.current };
            let backed = header.some & !header.released;
            let chunks = if backed == 0 && may_grow { header.some } else { backed };
            if chunks != 0 {
                return Some((self.current, chunks.trailing_zeros() as usize));
            }
            self.current = if header.next.is_null() { self.first } else { header.next };
            if self.current == begin {
                return None;
            }
        }
    }

    /// Takes up to `count` shells of `list` back.
    pub(crate) fn give(&mut self, list: &mut Shells, count: usize) {
        for _ in 0..count {
            let Some(shell) = list.pop() else { return };
            let (group, offset) = ((shell as usize & !(GROUP - 1)) as *mut Header, shell as usize % GROUP);
            let (chunk, shell) = (offset / CHUNK, offset % CHUNK / size_of::<Bucket>());
            // SAFETY: shells come from groups, and a group begins at the multiple of its size below each of them. So
            // this is a group's header, mapped for good. It is used under the stash's lock alone, of which `&mut self`
            // is the proof.
            let group = unsafe { &mut *group };
            debug_assert!(group.free[chunk] >> shell & 1 == 0, "a shell given twice");
            group.free[chunk] |= 1 << shell;
            group.some |= 1 << chunk;
            (self.free, self.used) = (self.free + 1, self.used - 1);
        }
    }

    /// Ends a window: free shells that its peak says are soon wanted again.
    pub(crate) fn end_window(&mut self) -> usize {
        self.peak.roll(self.used, 1, false) - self.used
    }

    /// Isolates the free chunks of the next group after `after` that has some with memory behind them. Chunks that hold
    /// the first `keep` shells stay, and are counted down. Shells are taken from the first groups from now on.
    pub(crate) fn isolate(&mut self, after: Option<Chunks>, keep: &mut usize) -> Option<Chunks> {
        self.current = self.first;
        // SAFETY: isolated chunks are of a group of this stash, which is mapped for good. Its header is used under the
        // stash's lock alone, of which `&mut self` is the proof.
        let next = after.map(|chunks| unsafe { (*chunks.group).next });
        let from = next.unwrap_or(self.first);
        let mut groups = core::iter::successors((!from.is_null()).then_some(from), |&group| {
            // SAFETY: `group` was reached from a group of this stash, so it is one, mapped for good. Its header is used
            // under the stash's lock alone. No reference to it is alive while the walk reads the link.
            let next = unsafe { (*group).next };
            (!next.is_null()).then_some(next)
        });
        groups.find_map(|group| {
            // SAFETY: the walk yields groups of this stash, each once, which are mapped for good. Their headers are
            // used under the stash's lock alone. The reference ends before the walk goes on.
            let header = unsafe { &mut *group };
            let mut set = 0;
            for i in 0..CHUNKS {
                if header.released >> i & 1 == 1 || header.free[i] != all(i) {
                    continue;
                }
                if *keep > 0 {
                    *keep = keep.saturating_sub(SHELLS);
                    continue;
                }
                set |= 1 << i;
                self.free -= header.free[i].count_ones() as usize;
                header.free[i] = 0;
            }
            header.some &= !set;
            (set != 0).then_some(Chunks { group, set })
        })
    }

    /// Returns isolated chunks, with no memory behind them if they are `released`.
    pub(crate) fn put_back(&mut self, chunks: Chunks, released: bool) {
        // SAFETY: isolated chunks are of a group of this stash, which is mapped for good. Its header is used under the
        // stash's lock alone, of which `&mut self` is the proof. No other reference to it is alive.
        let header = unsafe { &mut *chunks.group };
        for i in (0..CHUNKS).filter(|i| chunks.set >> i & 1 == 1) {
            header.free[i] = all(i);
            self.free += all(i).count_ones() as usize;
        }
        header.some |= chunks.set;
        header.released |= if released { chunks.set } else { 0 };
    }

    /// Whether the counts and masks agree with what is free; and how many shells depots have.
    pub(crate) fn audit(&self) -> Option<usize> {
        let (mut free, mut shells) = (0, 0);
        for group in self.groups() {
            // SAFETY: the walk yields groups of this stash: mapped for good, and their headers written only through
            // `&mut` of the stash, which `&self` excludes.
            let header = unsafe { &*group };
            for i in 0..CHUNKS {
                let is_some = header.some >> i & 1 == 1;
                if is_some != (header.free[i] != 0) || header.free[i] & !all(i) != 0 {
                    return None;
                }
                free += header.free[i].count_ones() as usize;
            }
            shells += CHUNKS * SHELLS - 1;
        }
        (free == self.free && shells == self.free + self.used).then_some(self.used)
    }
}
