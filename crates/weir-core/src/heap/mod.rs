//! The heap: malloc's size classes over object caches, large runs over zones, larger blocks mapped on their own.
//!
//! What others stand on is owned by them: the caches own the pages, these the platform. All other parts lie beside them, and are
//! worked on by *views*. A view is a reference to the heap, and has the methods of its concern ([`Heap::reclaim`],
//! [`Heap::user_caches`] and so on). Where an allocation finds no pages, its part says so, and the heap reclaims and tries again:
//! no part calls another one upwards.

mod blocks;
pub mod figures;
pub(crate) mod fork;
mod large;
pub(crate) mod lookup;
mod moving;
pub mod page_pools;
pub(crate) mod realloc;
pub mod reclaim;
mod runs;
pub(crate) mod samples;
mod state;
pub(crate) mod user_caches;
mod view;
pub(crate) mod zones;

use core::alloc::Layout;
use core::mem::offset_of;
use core::ptr::{self, null_mut};
use core::sync::atomic::AtomicU64;

use crate::base::fault::Fault;
use crate::base::invalid_free::InvalidFree;
use crate::base::run_class;
use crate::base::size_class::{MAX_SIZE, MIN_ALIGN, class_aligned, class_of, layout_of, size_of};
use crate::base::units::Class;
use crate::blocks::{Mapped, MappedBlocks};
use crate::caches::Caches;
use crate::evict::shrinkers::Callbacks;
use crate::huge_pages::{HugePages, Watch};
use crate::merge::{MergeState, Merger};
use crate::pages::window::{LARGE, NOTHING, Window};
use crate::pages::{HeapPages, Short};
use crate::platform::cpu_table::Pushed;
use crate::platform::lock::RankTurn;
use crate::platform::{Platform, rank};
use crate::pools::page_pools::PagePools;
use crate::profile::recorder::Recorder;
use crate::reclaim::{Audit, Freeze};
use figures::measure_pause::MeasurePause;
use state::State;

/// A heap on a platform. All methods may be called from any thread at any time.
#[repr(C)]
pub struct Heap<P: Platform> {
    /// Caches stand on the pages, and these on the platform: each owns the one below.
    caches: Caches<P>,
    blocks: MappedBlocks,
    huge_pages: HugePages,
    merge: MergeState,
    page_pools: PagePools,
    callbacks: Callbacks,
    profile: Recorder,
    reclaim: State,
    measure_pause: MeasurePause,
    /// Frees that the fast path served before the last fork, in the process that this one is a child of.
    parents_frees: AtomicU64,
}

impl<P: Platform> Heap<P> {
    /// Places where a hand-written fast path finds what it reads, in bytes from the heap's start. The first is the
    /// [`Table`](crate::platform::cpu_table::Table). Base, pages and class map of the window follow.
    pub const FAST: [usize; 4] = {
        let window = offset_of!(Self, caches.pages.normal);
        let [base, top, map] = Window::FAST;
        [offset_of!(Self, caches.cpu), window + base, window + top, window + map]
    };

    /// An empty heap; nothing is mapped before the first allocation.
    pub const fn new(platform: P) -> Self {
        Self {
            caches: Caches::new(platform),
            blocks: MappedBlocks::new(),
            huge_pages: HugePages::new(),
            merge: MergeState::new(),
            page_pools: PagePools::new(),
            callbacks: Callbacks::new(),
            profile: Recorder::new(),
            reclaim: State::new(),
            measure_pause: MeasurePause::new(),
            parents_frees: AtomicU64::new(0),
        }
    }

    /// The platform below.
    #[inline(always)]
    pub fn platform(&self) -> &P {
        &self.caches.pages.platform
    }

    /// The pages: zones, and those of a program's own.
    pub fn pages(&self) -> &HeapPages<P> {
        &self.caches.pages
    }

    /// The registry of a program's callbacks.
    pub fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// The heap profile.
    pub fn profile(&self) -> &Recorder {
        &self.profile
    }

    fn mapped(&self) -> Mapped<'_, P> {
        self.blocks.on(&self.caches.pages)
    }

    fn watch(&self) -> Watch<'_, P> {
        self.huge_pages.on(&self.caches)
    }

    fn merger(&self) -> Merger<'_, P> {
        self.merge.on(&self.caches)
    }

    /// Sets the fast path up; to be called while there is one thread.
    pub fn prepare(&self) {
        self.platform().lockless();
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
        // SAFETY: each entry of the table points to the static dummy or to a CPU's slab, which is never unmapped.
        unsafe { self.platform().pop(&self.caches.cpu.table, self.caches.cpu.table.class_of(size)) }
    }

    /// Allocates where [`Heap::alloc_fast`] found more to do.
    #[cold]
    #[inline(never)]
    pub fn alloc_slow(&self, size: usize) -> *mut u8 {
        match layout_of(size) {
            _ if size <= MAX_SIZE => self.refill(class_of(size).index()),
            Some(layout) => self.large().alloc_run(layout).0,
            None => null_mut(),
        }
    }

    /// An object of cache `number`, whose bucket is empty; null when memory is refused.
    #[cold]
    #[inline(never)]
    fn refill(&self, number: usize) -> *mut u8 {
        if let Some(object) = self.caches.pop_locked(number) {
            return object;
        }
        let object = self.caches.refill(number).or_else(|Short| self.refill_short(number));
        self.direct().slow_path_ends();
        object.unwrap_or(null_mut())
    }

    #[cold]
    fn refill_short(&self, number: usize) -> Result<*mut u8, Short> {
        let object = self.direct().reclaim_for(self.caches.slab_bytes(number), || self.caches.refill(number));
        if object.is_err() {
            self.caches.note_failures(number, 1);
        }
        object
    }

    /// Allocates an object of a size class.
    #[inline(always)]
    pub(crate) fn alloc_class(&self, class: Class) -> *mut u8 {
        // SAFETY: what the table's entries point to, CPUs' slabs and the dummy, is there for good.
        let object = unsafe { self.platform().pop(&self.caches.cpu.table, class) };
        if !object.is_null() {
            return object;
        }
        self.refill(class.index())
    }

    /// Allocates `size` zero bytes.
    #[inline]
    pub fn alloc_zeroed(&self, size: usize) -> *mut u8 {
        if size > MAX_SIZE {
            let run = layout_of(size).map_or((null_mut(), false), |layout| self.large().alloc_run(layout));
            // SAFETY: null, or allocated just now.
            return unsafe { self.large().zeroed(run) };
        }
        self.alloc_zeroed_class(class_of(size))
    }

    #[inline]
    fn alloc_zeroed_class(&self, class: Class) -> *mut u8 {
        let object = self.alloc_class(class);
        if !object.is_null() {
            // All of it: programs that ask for the usable size expect zeros there too.
            // SAFETY: an object of the class has that many bytes, and no one else has this one's address.
            unsafe { ptr::write_bytes(object, 0, size_of(class)) };
        }
        object
    }

    /// Allocates what `layout` asks for, zero.
    pub fn alloc_zeroed_aligned(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGN {
            return self.alloc_zeroed(layout.size());
        }
        match class_aligned(layout) {
            Some(class) => self.alloc_zeroed_class(class),
            // SAFETY: allocated just now.
            None => unsafe { self.large().zeroed(self.large().alloc_run(layout)) },
        }
    }

    /// Allocates what `layout` asks for; null when memory is refused.
    pub fn alloc_aligned(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGN {
            return self.alloc(layout.size());
        }
        match class_aligned(layout) {
            Some(class) => self.alloc_class(class),
            None => self.large().alloc_run(layout).0,
        }
    }

    /// Frees what this heap allocated; null is allowed.
    ///
    /// # Safety
    /// The block is not used any more.
    #[inline(always)]
    pub unsafe fn free(&self, block: *mut u8) {
        // SAFETY: the caller gives the block up.
        if let Err(left) = unsafe { self.free_fast(block) } {
            self.free_slow(block, left);
        }
    }

    /// The fast path of [`Heap::free`] alone: what there is more to do, [`Heap::free_slow`] does.
    ///
    /// # Safety
    /// As for [`Heap::free`].
    #[inline(always)]
    pub unsafe fn free_fast(&self, block: *mut u8) -> Result<(), FreeLeft> {
        let window = &self.caches.pages.normal;
        let Some(page) = window.page_of(block as usize) else {
            return Err(FreeLeft { class: NOTHING, pushed: Pushed::Full });
        };
        // SAFETY: the caller gives the block up.
        unsafe { self.push(window.class_of(page), block) }
    }

    /// [`Heap::free_sized`] in the same way.
    ///
    /// # Safety
    /// As for [`Heap::free_sized`]; `size` is at most [`MAX_SIZE`], and the block is not null.
    #[inline(always)]
    pub unsafe fn free_sized_fast(&self, block: *mut u8, size: usize) -> Result<(), FreeLeft> {
        let class = class_of(size);
        debug_assert!(
            self.caches
                .pages
                .normal
                .page_of(block as usize)
                .is_some_and(|p| self.caches.pages.normal.class_of(p) == class),
            "freed with a size that is not its own"
        );
        // SAFETY: the caller gives the block up.
        unsafe { self.push(class, block) }
    }

    /// # Safety
    /// The block is not used any more.
    #[inline(always)]
    unsafe fn push(&self, class: Class, block: *mut u8) -> Result<(), FreeLeft> {
        // SAFETY: the table's entries point to slabs that are there for good. The block is not null (it lies in the window, or
        // the caller says so), and the caller gives it up. Where its class is none, its bucket is empty and full at once.
        match unsafe { self.platform().push(&self.caches.cpu.table, class, block) } {
            Pushed::Done => Ok(()),
            pushed => Err(FreeLeft { class, pushed }),
        }
    }

    /// A free that its CPU's bucket did not take, of a block whose page is no slab's, or outside the window.
    #[cold]
    #[inline(never)]
    pub fn free_slow(&self, block: *mut u8, left: FreeLeft) {
        if left.class == NOTHING || left.class == LARGE {
            if !block.is_null() {
                self.large().free_run(block);
            }
            return;
        }
        if run_class::contains(left.class) {
            return self.large().free_class_run(block, left.class, left.pushed);
        }
        let Some(number) = self.caches.number_of_block(left.class, block) else {
            return self.platform().invalid_free(InvalidFree::DoubleFree, block as usize, 0);
        };
        self.free_object(block, number, left.pushed);
    }

    /// A free of an object of cache `number` that its CPU's bucket did not take.
    #[inline(always)]
    fn free_object(&self, object: *mut u8, number: usize, pushed: Pushed) {
        if self.caches.free_slow(object, number, pushed) {
            self.direct().slow_path_ends();
        }
    }

    /// Frees a block whose size the caller knows to be that which it asked for, aligned to 16.
    ///
    /// # Safety
    /// The block is not used any more. It was allocated with this size, or one of the same size class. It has not been through
    /// [`Heap::realloc`] since, which leaves a block where it is although a smaller class would do. It is not from
    /// [`Heap::samples`], whose blocks are of no class.
    #[inline(always)]
    pub unsafe fn free_sized(&self, block: *mut u8, size: usize) {
        if size > MAX_SIZE || block.is_null() {
            // SAFETY: the caller gives the block up.
            return unsafe { self.free(block) };
        }
        // SAFETY: the size was checked; the rest is the caller's promise, the same as here.
        if let Err(left) = unsafe { self.free_sized_fast(block, size) } {
            self.free_slow(block, left);
        }
    }

    /// Everything idle is released now, whatever it costs to get it again. Finalizers of user caches are called; the view's
    /// `purge` ([`Heap::reclaim`]) calls none. Returns bytes.
    pub fn purge(&self) -> usize {
        if !self.pages().is_reporting() {
            return 0;
        }
        self.user_caches().run_finalizers();
        let mut bytes = self.reclaim().purge();
        // Slabs of objects with finalizers may have become empty by that.
        if self.user_caches().run_finalizers() > 0 {
            bytes += self.reclaim().purge();
        }
        bytes
    }

    /// Checks the whole heap. To be called while no other thread uses it. Objects that a thread works on would count as held by
    /// the program, or be found missing.
    pub fn audit(&self) -> Result<Audit, Fault> {
        let mut audit = Audit::default();
        self.pages().freeze(&RankTurn::takes(self.platform(), rank::BATCH));
        let right = self.parts().audited().iter().try_for_each(|part| part.audit(&mut audit));
        // SAFETY: this thread took the locks of this rank above, and no others of it since.
        self.pages().freeze(&unsafe { RankTurn::gives_back(self.platform(), rank::BATCH) });
        right.map(|()| audit)
    }
}

/// Rest of a free that the fast path did not do.
#[derive(Clone, Copy, Debug)]
pub struct FreeLeft {
    /// Class of the block's page; [`NOTHING`] outside the window.
    class: Class,
    pushed: Pushed,
}
