//! The heap by plain functions. The engine is compiled for Linux here, once: a sister crate that called its generic methods
//! would carry a copy of its own. Only the fast paths are compiled where they are called.

use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::size_class::MAX_SIZE;
use weir_core::base::units::Order;
use weir_core::base::zone_class::ZoneClass;
use weir_core::heap::FreeLeft;
pub use weir_core::heap::reclaim::pressure::BudgetFigures as Budget;
use weir_core::pages::user_zone::{InUse, UserZone, ZoneUsage};
use weir_core::pages::{Hold, Short};
use weir_core::platform::{Memory, Refused};

use super::heap::HEAP;
use crate::platform::statics::STATS;
use crate::profile::guard::{self, blocks, slots};
use crate::profile::switch;
use core::ops::Range;
use core::ptr::{NonNull, null_mut};
use weir_core::telemetry::gauges::Gauges;

/// [`weir_core::heap::Heap::alloc`].
#[inline(always)]
pub fn alloc(size: usize) -> *mut u8 {
    let block = HEAP.alloc_fast(size);
    if block.is_null() { alloc_slow(size) } else { block }
}

/// [`weir_core::heap::Heap::alloc_slow`].
#[cold]
pub fn alloc_slow(size: usize) -> *mut u8 {
    HEAP.alloc_slow(size)
}

/// [`weir_core::heap::Heap::alloc_zeroed`].
pub fn alloc_zeroed(size: usize) -> *mut u8 {
    HEAP.alloc_zeroed(size)
}

/// [`weir_core::heap::Heap::alloc_aligned`].
pub fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
    HEAP.alloc_aligned(align, size)
}

/// [`weir_core::heap::Heap::alloc_low32`].
pub fn alloc_low32(size: usize) -> *mut u8 {
    HEAP.alloc_low32(size)
}

/// [`weir_core::heap::Heap::free`].
///
/// # Safety
/// The block is not used any more.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    // SAFETY: the caller gives the block up.
    if let Err(left) = unsafe { HEAP.free_fast(block) } {
        free_slow(block, left);
    }
}

/// [`weir_core::heap::Heap::free_sized`].
///
/// # Safety
/// The block is not used any more, and was allocated with this size or one of the same class.
#[inline(always)]
pub unsafe fn free_sized(block: *mut u8, size: usize) {
    if size > MAX_SIZE || block.is_null() {
        // SAFETY: the caller gives the block up.
        return unsafe { free(block) };
    }
    // SAFETY: the size was checked; that it is the block's the caller promises.
    if let Err(left) = unsafe { HEAP.free_sized_fast(block, size) } {
        free_slow(block, left);
    }
}

#[cold]
fn free_slow(block: *mut u8, left: FreeLeft) {
    if slots::owns(block.addr()) {
        return blocks::free(block.addr());
    }
    HEAP.free_slow(block, left);
}

/// [`weir_core::heap::Heap::realloc`].
///
/// # Safety
/// The block was allocated here and not freed; `size` is not 0.
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    if slots::owns(block.addr()) {
        // SAFETY: the caller owns the block.
        return unsafe { realloc_guarded(block, size, || HEAP.alloc(size)) };
    }
    // SAFETY: the caller owns the block.
    unsafe { HEAP.realloc(block, size) }
}

/// Puts a block of `size` bytes that `alloc` gives in the place of a guarded one; null if it gives none, or the pointer was wrong.
///
/// # Safety
/// The caller owns the block.
#[cold]
pub(super) unsafe fn realloc_guarded(block: *mut u8, size: usize, alloc: impl FnOnce() -> *mut u8) -> *mut u8 {
    let Some(old) = blocks::size_of(block.addr()) else { return null_mut() };
    let new = alloc();
    if !new.is_null() {
        // SAFETY: the old block holds `old` bytes, and the new one `size`; they are distinct, as both are allocated.
        unsafe { core::ptr::copy_nonoverlapping(block, new, old.min(size)) };
        blocks::free(block.addr());
    }
    new
}

/// [`weir_core::heap::Heap::usable_size`].
///
/// # Safety
/// The block is null, or was allocated here and not freed.
pub unsafe fn usable_size(block: *mut u8) -> usize {
    if slots::owns(block.addr()) {
        return blocks::size_of(block.addr()).unwrap_or(0);
    }
    // SAFETY: the caller owns the block.
    unsafe { HEAP.usable_size(block) }
}

/// Whether a block of this heap begins at `addr`.
pub fn is_block(addr: usize) -> bool {
    slots::owns(addr) || HEAP.is_block(addr)
}

/// [`weir_core::heap::Heap::purge`].
pub fn trim() -> usize {
    HEAP.purge()
}

/// [`weir_core::heap::figures::MemoryFigures::usage`].
pub fn usage() -> weir_core::reclaim::Usage {
    HEAP.figures().usage()
}

/// [`weir_core::heap::figures::MemoryFigures::mapped_count`].
pub fn mapped_count() -> usize {
    HEAP.figures().mapped_count()
}

/// [`weir_core::heap::reclaim::Reclaim::set_reporting`].
pub fn set_reporting(on: bool) {
    HEAP.reclaim().set_reporting(on);
}

/// [`weir_core::heap::reclaim::Reclaim::follow_huge_heap`].
pub fn follow_huge_heap() {
    HEAP.reclaim().follow_huge_heap();
}

/// Switches the heap profile as the setting `profile_bytes` says.
pub fn follow_profile_setting() {
    switch::follow_setting(&HEAP);
}

/// Switches guarding as the setting `guard_every` says.
pub fn follow_guard_setting() {
    guard::switch::follow_setting();
}

/// [`weir_core::heap::reclaim::Reclaim::may_grow`].
pub fn may_grow(bytes: usize) -> bool {
    HEAP.reclaim().may_grow(bytes)
}

/// [`weir_core::heap::reclaim::Reclaim::budget_figures`].
pub fn budget() -> Budget {
    HEAP.reclaim().budget_figures()
}

/// [`weir_core::heap::reclaim::Reclaim::set_congested`].
pub fn set_congested(zone: ZoneClass) {
    HEAP.reclaim().set_congested(zone);
}

/// Sets the fast path up and maps `len` bytes of metadata, aligned to a page.
pub fn map_metadata(len: usize) -> Result<usize, Refused> {
    HEAP.prepare();
    HEAP.platform().map_metadata(len, weir_core::base::units::PAGE)
}

/// [`weir_core::heap::zones::Zones::room`].
pub fn room_for_zone(bytes: usize) -> Result<Hold<'static>, Short> {
    HEAP.zones().room(bytes)
}

/// [`weir_core::heap::zones::Zones::add`], of `bytes` bytes.
///
/// # Safety
/// The zone lives, where it is, until [`remove_zone`].
pub unsafe fn add_zone(zone: NonNull<UserZone>, bytes: usize) {
    // SAFETY: the caller keeps the zone where it is.
    unsafe { HEAP.zones().add(zone) }
    HEAP.pages().gauges.zone_bytes.add(bytes as u64, &STATS.zone_bytes);
}

/// [`weir_core::pages::Pages::remove_zone`], of `bytes` bytes.
pub fn remove_zone(zone: &UserZone, bytes: usize) {
    HEAP.pages().remove_zone(zone);
    HEAP.pages().gauges.zone_bytes.sub(bytes as u64, &STATS.zone_bytes);
}

/// Amounts of the heap now.
pub fn gauges() -> &'static Gauges {
    &HEAP.pages().gauges
}

/// Takes `pages` pages in a row, aligned to `align`; returns the address of the first, and whether
/// all are known to be zero.
pub fn zone_take(zone: &UserZone, pages: usize, align: Order) -> Result<(usize, bool), Short> {
    let run = HEAP.zones().take(zone, pages, align)?;
    Ok((HEAP.pages().zone_addr(zone, run), run.zero))
}

/// [`weir_core::pages::Pages::zone_give`].
pub fn zone_give(zone: &UserZone, addr: usize, pages: usize) -> Result<(), InvalidFree> {
    HEAP.pages().zone_give(zone, addr, pages)
}

/// [`weir_core::pages::Pages::zone_usage`].
pub fn zone_usage(zone: &UserZone) -> ZoneUsage {
    HEAP.pages().zone_usage(zone)
}

/// [`weir_core::pages::Pages::zone_offline`].
pub fn zone_offline(zone: &UserZone, blocks: Range<u32>) -> Result<(), InUse> {
    HEAP.pages().zone_offline(zone, blocks)
}

/// [`weir_core::pages::Pages::zone_close`].
pub fn zone_close(zone: &UserZone, blocks: Range<u32>) -> usize {
    HEAP.pages().zone_close(zone, blocks)
}

/// [`weir_core::pages::Pages::zone_open`].
pub fn zone_open(zone: &UserZone, blocks: Range<u32>) {
    HEAP.pages().zone_open(zone, blocks);
}
