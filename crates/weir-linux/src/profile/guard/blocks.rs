//! Allocation and free of guarded blocks.
//!
//! A block lies at the end of its page or, as often, at its beginning. So both a write behind it and one before it meet a page
//! that cannot be touched. The rest of its page is 0, and is looked at when the block is freed. So a few bytes too many are found
//! as well where the block's alignment leaves a gap, or the other end was at the edge.

use core::alloc::Layout;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::size_class::MIN_ALIGN;

use super::choice::random;
use super::report;
use super::slots::{self, Slot};
use crate::os::page::bytes as page_bytes;

/// A block for `layout`, all 0, whose size and alignment are at most a page. `None`: no slot is free, or the
/// kernel refuses.
#[cold]
pub fn alloc(layout: Layout) -> Option<*mut u8> {
    let (number, slot) = slots::take_oldest()?;
    // SAFETY: the slot was taken just now.
    let Ok(page) = (unsafe { slots::show_page(number) }) else {
        slot.give();
        return None;
    };
    let is_at_end = random() & 1 != 0;
    let at = if is_at_end {
        (page + page_bytes() - layout.size().max(1)) & !(layout.align().max(MIN_ALIGN) - 1)
    } else {
        page
    };
    slot.make_live(at, layout.size());
    Some(at as *mut u8)
}

/// Frees a block of the pool; a wrong pointer, and what was written beside the block, are reported.
#[cold]
pub fn free(at: usize) {
    let Some(slot) = slots::nearest(at) else { return report::wrong_free(InvalidFree::ForeignPointer, at, None) };
    if slot.block() != at {
        return report::wrong_free(InvalidFree::InteriorPointer, at, Some(slot));
    }
    if !slot.take_live() {
        return report::wrong_free(InvalidFree::DoubleFree, at, Some(slot));
    }
    let page = at & !(page_bytes() - 1);
    if let Some(wrong) = written_beside(slot, page) {
        report::written_beside(slot, wrong);
    }
    // SAFETY: this thread took the slot, whose block the program gave up.
    if unsafe { slots::hide_page(page) } {
        slot.give();
    }
}

/// Bytes that the block at `at` holds; a pointer that is none is reported, and `None`.
#[cold]
pub fn size_of(at: usize) -> Option<usize> {
    match slots::nearest(at) {
        Some(slot) if slot.block() == at && slot.is_live() => return Some(slot.size()),
        Some(slot) if slot.block() == at => report::wrong_free(InvalidFree::DoubleFree, at, Some(slot)),
        slot => report::wrong_free(InvalidFree::InteriorPointer, at, slot),
    }
    None
}

/// The byte of the page that is nearest to the block, of those outside it that are not 0.
fn written_beside(slot: &Slot, page: usize) -> Option<usize> {
    let (from, to) = (slot.block(), slot.block() + slot.size());
    // SAFETY: the page is accessible, as this thread took the slot while the block was live. The program gave the block up; a
    // thread of it that writes on all the same is what is looked for, and any value does.
    let byte = |at: usize| unsafe { (at as *const u8).read_volatile() };
    (to..page + page_bytes()).find(|&at| byte(at) != 0).or_else(|| (page..from).rev().find(|&at| byte(at) != 0))
}
