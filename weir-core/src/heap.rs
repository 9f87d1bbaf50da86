//! The heap: malloc's size classes over object caches, large runs over zones, larger blocks mapped on their own.

use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::backoff::Backoff;
use crate::balancer::Balancer;
use crate::geometry::{CACHES, FIRST_MADE, Geometry, MALLOC};
use crate::grow::FIRST_MAPPED;
use crate::large::{give_run, mark_run};
use crate::lock::{FROZEN, Lock, SKIPPED, SKIPPED_COUNT};
use crate::made_cache;
use crate::mapped::{Blocks, Mapped};
use crate::object_cache::Cache;
use crate::page::{LARGE, MAX_ORDER, NOTHING, PAGE, PAGE_SHIFT, PAGEBLOCK_PAGES, Window};
use crate::percpu::{PerCpu, Pushed};
use crate::platform::{Misuse, Platform, Reach};
use crate::shells::Stash;
use crate::size_class::{COUNT, MAX_SIZE, MIN_ALIGN, SIZE, class_aligned, class_of};
use crate::trim::Idle;
use crate::user_zone::UserZones;
use crate::zone::{FreeAreas, Purpose, Zone};

/// NUMA nodes told apart; further ones share the last one's zone.
pub const MAX_NODES: usize = 8;
/// Largest run that comes from a zone, in pages; larger blocks are mapped on their own.
pub(crate) const MAX_RUN: usize = 1 << (MAX_ORDER - 1);

/// A window and its zones, one a node.
pub struct Space {
    /// The addresses.
    pub window: Window,
    /// The zones.
    pub zones: [Zone; MAX_NODES],
}

impl Space {
    const fn new(reach: Reach) -> Self {
        let mut zones = [const { Lock::new(FreeAreas::new(0)) }; MAX_NODES];
        let mut node = 1;
        while node < MAX_NODES {
            zones[node] = Lock::new(FreeAreas::new(node as u8));
            node += 1;
        }
        Self { window: Window::new(reach), zones }
    }
}

/// malloc's caches, and room for others.
const fn caches() -> [Cache; CACHES] {
    let mut out = [const { Cache::new(Geometry::NONE, made_cache::FREE) }; CACHES];
    let mut class = 1;
    while class <= COUNT {
        out[class] = Cache::new(MALLOC[class], made_cache::LIVE);
        class += 1;
    }
    out
}

/// A heap on a platform. All methods may be called from any thread at any time.
#[repr(C)]
pub struct Heap<P: Platform> {
    pub(crate) percpu: PerCpu,
    pub(crate) normal: Space,
    pub(crate) low: Space,
    /// By number: malloc's size classes, then those that the program made.
    pub(crate) caches: [Cache; CACHES],
    /// Numbers that ever had a cache, plus one.
    pub(crate) known: AtomicU32,
    /// Held while a number gets a cache, and a cache its nodes' domains.
    pub(crate) registry: Lock<(), 1>,
    /// Shells that no depot has.
    pub(crate) stash: Lock<Stash, 3>,
    pub(crate) idle: Lock<Idle, 1>,
    pub(crate) mapped: Mapped,
    /// Size, bytes, from which a run that has grown is mapped on its own.
    pub(crate) mapped_from: AtomicUsize,
    /// Memory for bucket shells is asked for.
    pub(crate) shells: Backoff,
    pub(crate) balancer: Balancer,
    pub(crate) user: UserZones,
    /// Something was freed since the balancer last looked.
    pub(crate) pending: AtomicBool,
    /// Bytes freed while it was not pending.
    pub(crate) freed: AtomicU64,
    /// Where the next search for collapsed pageblocks begins.
    pub(crate) collapsed_from: AtomicU32,
    /// Slow-path calls, for the mode without a background thread.
    pub(crate) slow_calls: AtomicU32,
    pub(crate) platform: P,
}

impl<P: Platform> Heap<P> {
    /// Where a hand-written fast path finds what it reads, in bytes from the heap's start: the
    /// [`Table`](crate::percpu::Table), then of the window its base, its pages and its class map.
    pub const FAST: [usize; 4] = {
        let window = core::mem::offset_of!(Self, normal) + core::mem::offset_of!(Space, window);
        let [base, top, map] = Window::FAST;
        [core::mem::offset_of!(Self, percpu), window + base, window + top, window + map]
    };

    /// An empty heap; nothing is mapped before the first allocation.
    pub const fn new(platform: P) -> Self {
        Self {
            percpu: PerCpu::new(),
            normal: Space::new(Reach::Any),
            low: Space::new(Reach::Low32),
            caches: caches(),
            known: AtomicU32::new(FIRST_MADE as u32),
            registry: Lock::new(()),
            stash: Lock::new(Stash::new()),
            idle: Lock::new(Idle::new()),
            mapped: Lock::new(Blocks::new()),
            mapped_from: AtomicUsize::new(FIRST_MAPPED),
            shells: Backoff::new(),
            balancer: Balancer::new(),
            user: UserZones::new(),
            pending: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            collapsed_from: AtomicU32::new(0),
            slow_calls: AtomicU32::new(0),
            platform,
        }
    }

    /// The platform below.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// Sets the fast path up; to be called while there is one thread.
    pub fn prepare(&self) {
        self.platform.lockless();
    }

    /// Blocks mapped on their own, now.
    pub fn mapped_count(&self) -> usize {
        self.mapped.lock(&self.platform).count
    }

    /// Allocates `size` bytes, aligned to 16; null when memory is refused. O(1) but for system calls.
    #[inline(always)]
    pub fn alloc(&self, size: usize) -> *mut u8 {
        let block = self.alloc_fast(size);
        if block.is_null() { self.alloc_slow(size) } else { block }
    }

    /// The fast path alone: null when there is more to do, which [`Heap::alloc_slow`] then does.
    #[inline(always)]
    pub fn alloc_fast(&self, size: usize) -> *mut u8 {
        if size > MAX_SIZE {
            return null_mut();
        }
        // SAFETY: the table's slabs live as long as the heap.
        unsafe { self.platform.pop(&self.percpu.table, self.percpu.table.class_of(size)) }
    }

    /// What [`Heap::alloc_fast`] left to do.
    #[cold]
    #[inline(never)]
    pub fn alloc_slow(&self, size: usize) -> *mut u8 {
        if size > MAX_SIZE { self.alloc_large(size, MIN_ALIGN).0 } else { self.refill(class_of(size)) }
    }

    /// Allocates an object of a size class.
    #[inline(always)]
    pub fn alloc_class(&self, class: usize) -> *mut u8 {
        // SAFETY: the table's slabs live as long as the heap.
        let object = unsafe { self.platform.pop(&self.percpu.table, class) };
        if !object.is_null() {
            return object;
        }
        self.refill(class)
    }

    /// Allocates `size` zero bytes.
    #[inline]
    pub fn alloc_zeroed(&self, size: usize) -> *mut u8 {
        if size > MAX_SIZE {
            let (block, zero) = self.alloc_large(size, MIN_ALIGN);
            if !block.is_null() && !zero {
                // All of it, as below: a block that was kept may be longer than its last page.
                self.wipe(block);
            }
            return block;
        }
        let class = class_of(size);
        let object = self.alloc_class(class);
        if !object.is_null() {
            // All of it: programs that ask for the usable size expect zeros there too.
            // SAFETY: the object is fresh and that long.
            unsafe { ptr::write_bytes(object, 0, SIZE[class] as usize) };
        }
        object
    }

    /// Allocates `size` bytes aligned to `align`, a power of two.
    pub fn alloc_aligned(&self, align: usize, size: usize) -> *mut u8 {
        if align <= MIN_ALIGN {
            return self.alloc(size);
        }
        match class_aligned(size.max(1), align) {
            Some(class) => self.alloc_class(class),
            None => self.alloc_large(size.max(1), align).0,
        }
    }

    /// Frees what this heap allocated; null is allowed.
    ///
    /// # Safety
    /// Nobody uses the block any more.
    #[inline(always)]
    pub unsafe fn free(&self, block: *mut u8) {
        if let Some(page) = self.normal.window.page_of(block as usize) {
            let class = self.normal.window.class_of(page) as usize;
            // SAFETY: the table's slabs live on; the caller gives the block up.
            return match unsafe { self.platform.push(&self.percpu.table, class, block) } {
                Pushed::Done => (),
                pushed => self.overflow(block, class, pushed),
            };
        }
        self.free_elsewhere(block);
    }

    /// Frees a block whose size the caller knows to be that which it asked for, aligned to 16.
    ///
    /// # Safety
    /// Nobody uses the block any more; it was allocated with this size, or one of the same size class, and has not
    /// been through [`Heap::realloc`] since, which leaves a block where it is although a smaller class would do.
    #[inline(always)]
    pub unsafe fn free_sized(&self, block: *mut u8, size: usize) {
        if size > MAX_SIZE || block.is_null() {
            // SAFETY: as the caller promises.
            return unsafe { self.free(block) };
        }
        let class = class_of(size);
        debug_assert!(
            self.normal
                .window
                .page_of(block as usize)
                .is_some_and(|p| usize::from(self.normal.window.class_of(p)) == class),
            "freed with a size that is not its own"
        );
        // SAFETY: the table's slabs live on; the caller gives the block up.
        match unsafe { self.platform.push(&self.percpu.table, class, block) } {
            Pushed::Done => (),
            pushed => self.overflow(block, class, pushed),
        }
    }

    /// Bytes that the block at `block` can hold; 0 for null.
    ///
    /// # Safety
    /// `block` is null or was allocated here and not freed.
    pub unsafe fn usable_size(&self, block: *mut u8) -> usize {
        if block.is_null() {
            return 0;
        }
        match self.lookup(block as usize) {
            Some(Found::Object(class)) => self.size_of(class),
            Some(Found::Run { pages, .. }) => pages * PAGE,
            Some(Found::Mapped(len)) => len,
            None => {
                self.platform.misuse(Misuse::ForeignPointer, block as usize, 0);
                0
            }
        }
    }

    /// Resizes a block, in place where it can; null when memory is refused (the block is then unchanged).
    ///
    /// # Safety
    /// `block` was allocated here and not freed; `size` is not 0.
    pub unsafe fn realloc(&self, block: *mut u8, size: usize) -> *mut u8 {
        let Some(found) = self.lookup(block as usize) else {
            self.platform.misuse(Misuse::ForeignPointer, block as usize, 0);
            return null_mut();
        };
        let old = match found {
            Found::Object(class) => {
                let now = self.size_of(class);
                if size <= now && size > now / 2 || size <= MAX_SIZE && class_of(size) == class {
                    return block;
                }
                now
            }
            Found::Run { page, pages, low } => {
                if (low || !self.outgrows(pages, size)) && self.resize_run(low, page, pages, size) {
                    return block;
                }
                pages * PAGE
            }
            Found::Mapped(len) => {
                if size >= FIRST_MAPPED {
                    return self.resize_mapped(block, len, size);
                }
                len
            }
        };
        let new = match found {
            // What had to lie below 4 GiB still has to.
            Found::Run { low: true, .. } => self.alloc_low32(size),
            Found::Run { .. } if size > old => match self.map_grown(size) {
                new if new.is_null() => self.alloc(size),
                new => new,
            },
            _ => self.alloc(size),
        };
        if !new.is_null() {
            // SAFETY: both blocks are valid for the shorter length and distinct.
            unsafe {
                ptr::copy_nonoverlapping(block, new, old.min(size));
                self.free(block);
            }
        }
        new
    }

    /// Allocates whole pages below 4 GiB, for compressed pointers and generated code; null when there are none.
    pub fn alloc_low32(&self, size: usize) -> *mut u8 {
        let pages = size.div_ceil(PAGE).max(1);
        if pages > MAX_RUN {
            return null_mut();
        }
        self.take_pages_in(&self.low, pages, 0, Purpose::Run).map_or(null_mut(), |r| mark_run(&self.low, r, pages))
    }

    // ---- frees off the fast path -------------------------------------------------------------------------------

    /// A free of a block on a page that is no slab's, or outside the window.
    pub(crate) fn free_run(&self, block: *mut u8) {
        match self.lookup(block as usize) {
            Some(Found::Run { page, pages, low }) => {
                let space = if low { &self.low } else { &self.normal };
                // Of two threads that free it at once, one clears the mark.
                if space.window.clear_class(page) != LARGE {
                    return self.platform.misuse(Misuse::DoubleFree, block as usize, 0);
                }
                let outgrown = give_run(self, space, page, pages);
                if outgrown {
                    self.release_run(low, page, pages);
                }
                self.housekeeping();
            }
            Some(Found::Mapped(len)) => {
                self.note_mapped_free(len);
                self.free_mapped(block as usize);
            }
            _ => self.platform.misuse(self.name_misuse(block as usize), block as usize, 0),
        }
    }

    /// Why no block begins at `addr`, which is on no slab's page.
    fn name_misuse(&self, addr: usize) -> Misuse {
        let spaces = [&self.normal, &self.low];
        let at = spaces.into_iter().find_map(|space| space.window.page_of(addr).map(|page| (space, page)));
        let Some((space, page)) = at else { return Misuse::ForeignPointer };
        let window = &space.window;
        let pageblock = window.block(page / PAGEBLOCK_PAGES as u32);
        // SAFETY: a pageblock below the top; its node never changes.
        let node = unsafe { (*pageblock).node } as usize;
        let _zone = space.zones[node].lock(&self.platform);
        let head = (page.saturating_sub(MAX_RUN as u32 - 1)..=page).rev().find(|&p| window.class_of(p) != NOTHING);
        if let Some(head) = head
            && window.class_of(head) == LARGE
            // SAFETY: the page heads a run, whose length its descriptor holds.
            && page - head < unsafe { *window.desc(head) }
        {
            return Misuse::InteriorPointer;
        }
        // SAFETY: as above, and the zone's lock is held.
        let hole = unsafe { (*pageblock).free.is_empty() && (*pageblock).backed.is_empty() };
        if hole { Misuse::ForeignPointer } else { Misuse::DoubleFree }
    }

    /// A free of a block outside the window.
    #[cold]
    #[inline(never)]
    fn free_elsewhere(&self, block: *mut u8) {
        if !block.is_null() {
            self.free_run(block);
        }
    }

    fn lookup(&self, addr: usize) -> Option<Found> {
        for (space, low) in [(&self.normal, false), (&self.low, true)] {
            let Some(page) = space.window.page_of(addr) else { continue };
            return match space.window.class_of(page) {
                // Perhaps the heap grew past a block that is mapped on its own.
                NOTHING => break,
                LARGE if addr.is_multiple_of(PAGE) => {
                    // SAFETY: the page heads a run, whose length its descriptor holds.
                    let pages = unsafe { *space.window.desc(page) } as usize;
                    Some(Found::Run { page, pages, low })
                }
                LARGE => None,
                class => Some(Found::Object(class as usize)),
            };
        }
        self.mapped.lock(&self.platform).get(addr).map(|block| Found::Mapped(block.run.len))
    }

    // ---- fork --------------------------------------------------------------------------------------------------

    /// Takes every lock in rank order, so that a fork's child finds the heap whole.
    ///
    /// Not if the caller holds one already: then it is a signal handler that interrupted the heap at work, and would wait
    /// for itself. What it interrupted goes on in the child as in the parent, and lets its lock go there too; what other
    /// threads hold stays held in such a child.
    pub fn freeze(&self) {
        let p = &self.platform;
        if let Some(held) = p.held_ranks() {
            let before = held.load(Relaxed);
            if before != 0 {
                // Perhaps it interrupted a fork: that one's thaw and this one's are told apart by the count.
                return held.store(before + SKIPPED, Relaxed);
            }
            held.store(FROZEN, Relaxed);
        }
        self.balancer.freeze(p);
        [&self.normal, &self.low].iter().for_each(|s| s.window.freeze(p));
        self.percpu.freeze(p);
        self.registry.acquire(p);
        self.idle.acquire(p);
        self.freeze_caches();
        self.mapped.acquire(p);
        self.balancer.freeze_estimates(p);
        [&self.normal, &self.low].iter().for_each(|s| s.zones.iter().for_each(|z| z.acquire(p)));
        self.freeze_zones();
    }

    /// Whether the caller's last [`Heap::freeze`] took nothing, as it found the thread holding something.
    pub fn is_nested_fork(&self) -> bool {
        self.platform.held_ranks().is_some_and(|held| held.load(Relaxed) & SKIPPED_COUNT != 0)
    }

    /// Undoes [`Heap::freeze`], in the parent or in the child; whether there was something to undo.
    ///
    /// # Safety
    /// Follows [`Heap::freeze`] on the same thread (or its copy in the child).
    pub unsafe fn thaw(&self) -> bool {
        let p = &self.platform;
        if let Some(held) = p.held_ranks() {
            let before = held.load(Relaxed);
            if before & SKIPPED_COUNT != 0 {
                held.store(before - SKIPPED, Relaxed);
                return false;
            }
        }
        // SAFETY: as the caller promises.
        unsafe {
            self.thaw_zones();
            [&self.normal, &self.low].iter().for_each(|s| s.zones.iter().for_each(|z| z.release(p)));
            self.balancer.thaw_estimates(p);
            self.mapped.release(p);
            self.thaw_caches();
            self.idle.release(p);
            self.registry.release(p);
            self.percpu.thaw(p);
            [&self.normal, &self.low].iter().for_each(|s| s.window.thaw(p));
            self.balancer.thaw(p);
        }
        if let Some(held) = p.held_ranks() {
            held.store(0, Relaxed);
        }
        true
    }
}

impl<P: Platform> Heap<P> {
    /// [`Heap::thaw`] in a forked child, and the end of what the parent's other threads had begun.
    ///
    /// # Safety
    /// As [`Heap::thaw`]; the caller is the child's only thread.
    pub unsafe fn thaw_child(&self) {
        self.inherit_zones();
        // SAFETY: as the caller promises.
        if unsafe { self.thaw() } {
            self.percpu.finish_installs(&self.platform);
            // Slabs that a thread was taking down are lost to the child; nobody waits for it here.
            self.known().for_each(|cache| cache.made.taking.store(0, Relaxed));
        }
    }
}

/// What an address is.
enum Found {
    Object(usize),
    Run { page: u32, pages: usize, low: bool },
    Mapped(usize),
}

const _: () = assert!(PAGE == 1 << PAGE_SHIFT);
