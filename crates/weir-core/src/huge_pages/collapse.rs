//! Huge pages behind what is full and still, put there by the background thread.
//!
//! A walk over a heap of small pages misses the processor's table of addresses at each step. A heap that grows dense gets huge
//! pages as it grows (`pages/window/huge_advice.rs`). What it held before it was dense, and what was split and filled again,
//! does not. A pageblock is *due* if none of its pages is free and none was given, handed out or released in three looks, one
//! a calm window. Then the system copies it to a huge page ([`crate::platform::Memory::collapse`]).
//!
//! No memory is added by it. The platform does so only where all pages of the pageblock have memory, and memory of their own: what
//! is swapped out stays so, and what a forked child shares is not copied. What is freed of it later goes back as ever. That
//! splits the huge page, and its rest is cooled.
//!
//! It costs a copy of 2 MiB, for which other calls on the address space wait. So it is paid for by pauses: at most 1 % of a CPU, 5 %
//! with `huge_heap`. A call that took long, or found no huge page, is followed by a long pause. It ends under pressure, with a
//! hard limit, with `huge_blocks` 0, and where pages are merged.

use core::sync::atomic::Ordering::Relaxed;

use super::sparse::LONGEST_PAUSE;
use super::watch::Watch;
use crate::base::run::Run;
use crate::base::time::{Nanos, Time};
use crate::base::units::{BlockNo, PAGEBLOCK};
use crate::pages::node::ZoneKind;
use crate::platform::{Collapse, Platform};
use crate::policy::huge_page_advice::LEARNS_FROM;
use crate::telemetry::stats;

/// Pageblocks looked at in a window: 8 GiB in 0.3 ms, at about 70 ns each where none is in a cache.
const LOOKS: u32 = 4096;
/// Those looked at under one hold of a zone's lock.
const SLICE: u32 = 256;
/// Time for collapses in one window, ns; then a pause follows. One takes about 650 us.
const AT_ONCE: Nanos = Nanos(2_500_000);
/// The pause is so many times as long as what was spent: 1 % of a CPU.
const PAUSE_USUAL: u64 = 99;
/// With `huge_heap`: 5 %.
const PAUSE_ASKED: u64 = 19;
/// A call that takes longer is slow, ns: the system has to look for a huge page. On a machine at rest one takes 0.7 ms, on
/// one whose processors are all busy up to 10.
const SLOW: Nanos = Nanos::of_ms(30);
/// The pause after a slow one: 0.1 % of a CPU, and [`LONGEST_PAUSE`] at most.
const PAUSE_SLOW: u64 = 999;
/// Pause after the system had no huge page, ns: khugepaged's (`alloc_sleep_millisecs`).
const PAUSE_SHORT: Nanos = Nanos::of_ms(60_000);
/// Pause where it cannot be done, ns.
const FOR_GOOD: Nanos = Nanos(u64::MAX);
/// Calm windows go on for the sake of pageblocks that are not due yet, unless the pause is longer, ns.
const WAITS: Nanos = Nanos::of_ms(5000);

impl<P: Platform> Watch<'_, P> {
    /// A window ends: looks at a part of the heap, and collapses what is due, as far as there is time for it.
    pub(crate) fn collapse_still(&self) {
        let (state, pages) = (&self.state.collapses, &self.caches.pages);
        let (p, end) = (&pages.platform, pages.normal.top().block().0);
        let may_ask = (p.huge_on_advice() || p.may_have_huge()) && pages.may_ask_for_huge();
        let merges = p.tunables().merge.get() != 0 && p.merges();
        if !may_ask || merges || end < LEARNS_FROM {
            return state.settled.store(u32::MAX, Relaxed);
        }
        if p.now() < Time(state.next.load(Relaxed)) {
            return;
        }
        // The first one may lack pages.
        let (mut from, mut left, mut spent) = (state.from.load(Relaxed), LOOKS.min(end - 1), Nanos::ZERO);
        let mut settled = state.settled.load(Relaxed);
        while left > 0 && spent < AT_ONCE {
            from = if from >= end { 1 } else { from.max(1) };
            let blocks = BlockNo(from)..BlockNo(end.min(from + left.min(SLICE)));
            let (due, more) = self.look_for_still(blocks.clone());
            let next = due.map_or(blocks.end, BlockNo::next).0;
            settled = if more { 0 } else { settled.saturating_add(next - from) };
            (left, from) = (left - (next - from), next);
            if let Some(block) = due {
                match self.collapse(block) {
                    Ok(took) => spent += took,
                    Err(pause) => {
                        spent = Nanos::ZERO;
                        state.next.store(p.now().saturating_add(pause).0, Relaxed);
                        break;
                    }
                }
            }
        }
        if spent > Nanos::ZERO {
            let pause = if p.tunables().huge_heap.get() != 0 { PAUSE_ASKED } else { PAUSE_USUAL };
            state.next.store((p.now() + spent * pause).0, Relaxed);
        }
        state.from.store(from, Relaxed);
        state.settled.store(settled, Relaxed);
    }

    /// Whether calm windows are to go on for what may be due soon.
    pub(crate) fn is_collapsing(&self) -> bool {
        let (state, pages) = (&self.state.collapses, &self.caches.pages);
        let is_settled = state.settled.load(Relaxed) >= pages.normal.top().block().0;
        !is_settled && Time(state.next.load(Relaxed)) <= pages.platform.now() + WAITS
    }

    /// The first of `blocks`, of any node, that is due; and whether some may be after further looks.
    fn look_for_still(&self, blocks: core::ops::Range<BlockNo>) -> (Option<BlockNo>, bool) {
        let pages = &self.caches.pages;
        let mut goes_on = false;
        for (node, row) in pages.normal.rows(blocks) {
            let zone = pages.nodes.get(node).zone(ZoneKind::Normal);
            let look = zone.lock(&pages.platform).look_for_still(&pages.normal, row);
            goes_on |= look.goes_on;
            if look.due.is_some() {
                return (look.due, goes_on);
            }
        }
        (None, goes_on)
    }

    /// Collapses `block`; returns how long that took, or how long none is to be collapsed.
    fn collapse(&self, block: BlockNo) -> Result<Nanos, Nanos> {
        let pages = &self.caches.pages;
        let (p, page) = (&pages.platform, block.first());
        let (begin, cpu_begin) = (p.now(), p.cpu_time());
        let outcome = p.collapse(Run { addr: pages.normal.addr_of(page), len: PAGEBLOCK });
        // The process may have been stopped meanwhile, or its thread had no CPU: that is not the call's.
        let (took, worked) = (p.now().since(begin), p.cpu_time().saturating_sub(cpu_begin));
        match outcome {
            Collapse::Unfit => {}
            Collapse::Short => {
                pages.zone_of(ZoneKind::Normal, page).lock(p).note_not_collapsed(&pages.normal, block);
                return Err(PAUSE_SHORT);
            }
            Collapse::Never => return Err(FOR_GOOD),
            Collapse::Done => {
                p.note_huge();
                pages.zone_of(ZoneKind::Normal, page).lock(p).note_collapsed(&pages.normal, block);
                stats::add(&p.stats().huge_made, 1);
            }
        }
        let is_slow = took.min(worked) > SLOW;
        if is_slow { Err((worked * PAUSE_SLOW).min(LONGEST_PAUSE)) } else { Ok(took.min(SLOW)) }
    }
}
