//! Blocks that a test holds: each is filled, and checked before it is given up or moved.

use std::alloc::Layout;
use std::collections::BTreeMap;

use weir_core::base::size_class::{MAX_SIZE, class_aligned};
use weir_core::heap::Heap;
use weir_core::reclaim::Audit;

use crate::fake::{Fake, run_on, run_on_none};

/// Largest run that comes from a zone, bytes.
pub const MAX_RUN: usize = 4 << 20;

/// The kind of block that the engine makes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Object,
    Run,
    Low,
    Mapped,
}

/// What is asked for by an alignment and a size.
pub fn layout(align: usize, size: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

impl Kind {
    pub fn of(size: usize, align: usize) -> Self {
        if size <= MAX_SIZE && (align <= 16 || class_aligned(layout(align, size)).is_some()) {
            Self::Object
        } else if size <= MAX_RUN && align <= MAX_RUN {
            Self::Run
        } else {
            Self::Mapped
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub addr: usize,
    pub len: usize,
    pub kind: Kind,
    /// Every byte of it. Never zero, so that a wiped page shows.
    byte: u8,
    /// Whether it may be freed by size: it was asked for with this size and never resized.
    pub sized: bool,
}

impl Held {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the block is the test's, and that long.
        unsafe { std::slice::from_raw_parts(self.addr as *const u8, self.len) }
    }

    fn fill(&self) {
        // SAFETY: as in `bytes`.
        unsafe { std::ptr::write_bytes(self.addr as *mut u8, self.byte, self.len) };
    }

    /// Asserts that all bytes are `byte`.
    fn assert_filled(&self, len: usize, byte: u8) {
        let bytes = &self.bytes()[..len];
        if let Some(&first) = bytes.first() {
            assert!(first == byte && bytes[1..] == bytes[..len - 1], "{self:x?} lost its contents");
        }
    }
}

/// A heap with what is held of it.
pub struct World {
    pub heap: Box<Heap<Fake>>,
    pub held: Vec<Held>,
    by_addr: BTreeMap<usize, usize>,
    next_byte: u8,
    /// Whether an allocation may fail.
    pub may_fail: bool,
}

impl World {
    pub fn new(fake: Fake) -> Self {
        let heap = Box::new(Heap::new(fake));
        heap.prepare();
        Self { heap, held: Vec::new(), by_addr: BTreeMap::new(), next_byte: 0, may_fail: false }
    }

    pub fn fake(&self) -> &Fake {
        self.heap.platform()
    }

    /// Stays for good: the heap has what is not noted here, or is used by what outlives the test.
    pub fn leak(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// Takes a fresh block in: checks that it is nobody's and as asked for, and fills it. `None`: it is null.
    pub fn take(&mut self, addr: *mut u8, len: usize, align: usize, kind: Kind) -> Option<usize> {
        if addr.is_null() {
            assert!(self.may_fail, "no memory for {len} bytes");
            return None;
        }
        let addr = addr as usize;
        assert!(addr.is_multiple_of(align), "{addr:#x} is not aligned to {align:#x}");
        assert!(kind != Kind::Low || addr + len <= 4 << 30, "{addr:#x} is not low");
        // SAFETY: the block is fresh.
        let usable = unsafe { self.heap.usable_size(addr as *mut u8) };
        assert!(usable >= len && usable > 0, "{usable} bytes for {len}");
        let below = self.by_addr.range(..addr + usable).next_back();
        assert!(below.is_none_or(|(at, len)| at + len <= addr), "{addr:#x} overlaps {below:x?}");
        self.by_addr.insert(addr, usable);
        self.fake().hold(addr, usable);
        self.next_byte = self.next_byte % 255 + 1;
        let block = Held { addr, len, kind, byte: self.next_byte, sized: align <= 16 && kind != Kind::Low };
        block.fill();
        self.held.push(block);
        Some(self.held.len() - 1)
    }

    pub fn alloc(&mut self, size: usize) -> Option<usize> {
        let block = self.heap.alloc(size);
        self.take(block, size, 16, Kind::of(size, 16))
    }

    pub fn alloc_aligned(&mut self, align: usize, size: usize) -> Option<usize> {
        let block = self.heap.alloc_aligned(layout(align, size));
        self.take(block, size, align, Kind::of(size, align))
    }

    pub fn alloc_low(&mut self, size: usize) -> Option<usize> {
        let block = self.heap.alloc_low32(size);
        self.take(block, size, 4096, Kind::Low)
    }

    pub fn alloc_zeroed(&mut self, size: usize) -> Option<usize> {
        let block = self.heap.alloc_zeroed(size);
        if !block.is_null() {
            // Programs that ask for the usable size expect zeros there too.
            // SAFETY: the block is fresh.
            let len = unsafe { self.heap.usable_size(block) };
            let zero = Held { addr: block as usize, len, kind: Kind::Run, byte: 0, sized: false };
            zero.assert_filled(len, 0);
        }
        self.take(block, size, 16, Kind::of(size, 16))
    }

    /// Checks block `i`, and forgets it.
    pub fn give_up(&mut self, i: usize) -> Held {
        let block = self.held.swap_remove(i);
        block.assert_filled(block.len, block.byte);
        self.by_addr.remove(&block.addr);
        self.fake().let_go(block.addr);
        block
    }

    pub fn free(&mut self, i: usize, by_size: bool) {
        let block = self.give_up(i);
        // SAFETY: the test held the block and has forgotten it.
        unsafe {
            if by_size && block.sized {
                self.heap.free_sized(block.addr as *mut u8, block.len);
            } else {
                self.heap.free(block.addr as *mut u8);
            }
        }
    }

    pub fn realloc(&mut self, i: usize, size: usize) {
        let old = self.give_up(i);
        // SAFETY: the test holds the block.
        let new = unsafe { self.heap.realloc(old.addr as *mut u8, size) };
        if new.is_null() {
            // Below 4 GiB there is no block that is mapped on its own.
            let is_beyond = old.kind == Kind::Low && size > MAX_RUN;
            assert!(self.may_fail || is_beyond, "no memory to resize {old:x?} to {size}");
            old.assert_filled(old.len, old.byte);
            let back = self.take(old.addr as *mut u8, old.len, 1, old.kind).unwrap();
            self.held[back].sized = old.sized;
            return;
        }
        let moved = Held { addr: new as usize, ..old };
        moved.assert_filled(old.len.min(size), old.byte);
        let resized = self.resized(new as usize, size);
        // Without memory for a smaller block it stays where it is, and what it is.
        let is_kept = new as usize == old.addr && resized == Kind::Object;
        let kind = if old.kind == Kind::Low || is_kept { old.kind } else { resized };
        let back = self.take(new, size, 16, kind).unwrap();
        self.held[back].sized = false;
    }

    /// Moves block `i` to another place, if it should be moved.
    pub fn move_block(&mut self, i: usize) {
        let old = self.held[i];
        let addr = old.addr as *mut u8;
        let new = if self.heap.should_move(addr) { self.heap.alloc_to_move(addr) } else { std::ptr::null_mut() };
        if new.is_null() {
            return;
        }
        // SAFETY: both are blocks of the test's of one size class, and the old one is forgotten.
        unsafe {
            assert_eq!(self.heap.usable_size(new), self.heap.usable_size(addr));
            new.copy_from_nonoverlapping(addr, old.len);
            self.give_up(i);
            assert!(self.heap.free_moved(addr));
        }
        Held { addr: new as usize, ..old }.assert_filled(old.len, old.byte);
        let back = self.take(new, old.len, 16, old.kind).unwrap();
        self.held[back].sized = old.sized;
    }

    /// The kind that a block of `size` bytes at `addr` is of after `realloc`: a run that has grown may be mapped
    /// on its own.
    fn resized(&self, addr: usize, size: usize) -> Kind {
        let kind = Kind::of(size, 16);
        if kind == Kind::Run && self.fake().is_block(addr) { Kind::Mapped } else { kind }
    }

    /// Does `work` on no CPU: what is freed goes past buckets, to the zones.
    pub fn past_buckets(&mut self, work: impl FnOnce(&mut Self)) {
        run_on_none();
        work(self);
        run_on(0);
        assert_eq!(self.audit().cpu_runs, 0);
    }

    pub fn free_all(&mut self) {
        while !self.held.is_empty() {
            self.free(self.held.len() / 2, false);
        }
    }

    /// The blocks that are held: addresses and usable sizes.
    pub fn usable(&self) -> impl Iterator<Item = (usize, usize)> {
        self.by_addr.iter().map(|(&addr, &len)| (addr, len))
    }

    /// Writes something else to a held block.
    pub fn rewrite(&mut self, i: usize) {
        self.next_byte = self.next_byte % 255 + 1;
        self.held[i].byte = self.next_byte;
        self.held[i].fill();
    }

    /// Checks every held block's contents.
    pub fn check_contents(&self) {
        self.held.iter().for_each(|block| block.assert_filled(block.len, block.byte));
    }

    /// Audits the heap, and compares it with what is held.
    pub fn audit(&self) -> Audit {
        let audit = self.heap.audit().unwrap_or_else(|fault| panic!("{fault:?}"));
        let count = |kinds: &[Kind]| self.held.iter().filter(|block| kinds.contains(&block.kind)).count();
        assert_eq!(audit.live_objects, count(&[Kind::Object]));
        assert_eq!(audit.runs, count(&[Kind::Run, Kind::Low]));
        assert_eq!(audit.mapped, count(&[Kind::Mapped]));
        assert_eq!(self.fake().take_misuses(), []);
        audit
    }
}

/// Checks all that is held, and frees it: the heap must hold nothing then.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.audit();
        self.fake().fail_nothing();
        self.heap.reclaim().set_reporting(true);
        self.free_all();
        self.heap.purge();
        let audit = self.audit();
        let hollow = Audit { reported_pages: audit.reported_pages, hole_pages: audit.hole_pages, ..Audit::default() };
        assert_eq!(audit, hollow);
    }
}
