//! Whole free pageblocks that are unmapped, as the system refuses a mapping: `RLIMIT_AS`, `RLIMIT_DATA` and a strict
//! overcommit count what is mapped, used or not. Until the heap grows again they are holes of its window, and those it grows
//! into first. What was released in a quiet window, or at rest, is unmapped there at once ([`HeapPages::unmap_bare`]). Weir does not
//! hear who is refused memory: that may be another process, or a thread's stack or a mapping of the program's own.
//!
//! A pageblock leaves its zone before it is unmapped, and is in it again after it was mapped. Both happen under the window's turn
//! to grow, so that no two threads have to do with one. Its node never changes, nor does what describes it lose its place.

use core::ops::Range;

use crate::base::run::Run;
use crate::base::units::{BlockNo, Bytes, PAGEBLOCK};
use crate::pages::heap_pages::HeapPages;
use crate::pages::node::ZoneKind;
use crate::pages::pageblock::{Advice, Pageblock};
use crate::pages::report::slices;
use crate::pages::window::Growing;
use crate::pages::zone::FreeAreas;
use crate::pages::zone::out_of_use::Out;
use crate::platform::{Placed, Platform};

/// Pageblocks that leave a zone at a time, under its lock.
const BATCH: usize = 32;
/// Holes that quiet windows make at most, of the 65,530 mappings that a process may have.
const HOLES: usize = 4096;

impl<P: Platform> HeapPages<P> {
    /// What is free of the heap's window, in whole pageblocks or not: what [`HeapPages::unmap_free`] may give, at most.
    pub(crate) fn free_bytes(&self) -> Bytes {
        let free = |zone: &FreeAreas| (zone.pages - zone.used).bytes();
        self.nodes.iter().map(|node| free(&node.zone(ZoneKind::Normal).lock(&self.platform))).sum()
    }

    /// Unmaps whole free pageblocks of at least `bytes`, if there is so much; returns how much. Threads that grow the
    /// heap have their turn between batches.
    pub(crate) fn unmap_free(&self, bytes: Bytes) -> Bytes {
        let (mut unmapped, mut batch) = (Bytes::ZERO, [Out::default(); BATCH]);
        for (number, node) in self.nodes.iter().enumerate() {
            while unmapped < bytes {
                let most = (bytes - unmapped).pages_up().blocks().min(BATCH);
                let mut growing = self.normal.growing(&self.platform);
                let n = node.zone(ZoneKind::Normal).lock(&self.platform).take_out(&self.normal, &mut batch[..most]);
                let gone = self.unmap(&mut growing, number, &mut batch[..n]);
                unmapped += Bytes(PAGEBLOCK) * gone;
                if n == 0 || gone < n {
                    break;
                }
            }
        }
        unmapped
    }

    /// Unmaps whole free pageblocks of which neither memory nor a description is left, where the system counts what is
    /// mapped. Threads that grow the heap have their turn between rows.
    pub(crate) fn unmap_bare(&self) {
        if !self.platform.are_mappings_counted() {
            return;
        }
        // The larger the heap, the longer the rows that are worth a hole.
        let least = self.normal.pages().blocks().div_ceil(HOLES).min(BATCH);
        let (mut from, mut batch) = (BlockNo(0), [Out::default(); BATCH]);
        for slice in slices(&self.normal) {
            from = from.max(slice.start);
            while let Some((number, blocks)) = self.normal.rows(from..slice.end).next() {
                let mut growing = self.normal.growing(&self.platform);
                let mut zone = self.nodes.get(number).zone(ZoneKind::Normal).lock(&self.platform);
                let (n, next) = zone.take_bare_row(&self.normal, blocks, least, &mut batch);
                drop(zone);
                from = next;
                if self.unmap(&mut growing, number, &mut batch[..n]) < n {
                    return;
                }
            }
        }
    }

    /// Unmaps pageblocks that were taken out of the zone of node `node`, up to the first row that the system refuses to. That and
    /// all after it come back. Returns how many went.
    fn unmap(&self, growing: &mut Growing<'_, P>, node: usize, blocks: &mut [Out]) -> usize {
        if blocks.is_empty() {
            return 0;
        }
        let gone = growing.unmap(blocks);
        let kept = blocks[gone..].iter().copied();
        self.nodes.get(node).zone(ZoneKind::Normal).lock(&self.platform).put_in(&self.normal, kept);
        self.gauges.address_bytes.sub((gone * PAGEBLOCK) as u64, &self.platform.stats().address_bytes);
        gone
    }

    /// Maps unmapped pageblocks of node `node` again, at least `blocks` in a row; whether there were such.
    pub(crate) fn map_again(&self, growing: &mut Growing<'_, P>, kind: ZoneKind, blocks: usize, node: usize) -> bool {
        let Some(row) = growing.map_again(blocks, node) else { return false };
        let bytes = (BlockNo::each(row.clone()).len() * PAGEBLOCK) as u64;
        self.gauges.address_bytes.add(bytes, &self.platform.stats().address_bytes);
        let all = BlockNo::each(row).map(|block| Out::new(block, growing.advice_of(block)));
        self.nodes.get(node).zone(kind).lock(&self.platform).put_in(self.window(kind), all);
        true
    }
}

impl<P: Platform> Growing<'_, P> {
    /// Unmaps pageblocks that are in no zone, up to the first row of them that the system refuses to. Returns how many went, which
    /// are the first of `blocks` then.
    fn unmap(&mut self, blocks: &mut [Out]) -> usize {
        blocks.sort_unstable_by_key(|out| out.block);
        let mut gone = 0;
        for row in blocks.chunk_by(|before, out| before.block.next() == out.block) {
            let (first, len) = (row[0].block, row.len());
            let run = Run { addr: self.window.addr_of(first.first()), len: len * PAGEBLOCK };
            if !self.platform.unmap_at(run) {
                break;
            }
            BlockNo::each(first.row(len)).for_each(|block| self.mark(block, true));
            gone += len;
        }
        gone
    }

    /// See [`HeapPages::map_again`].
    fn map_again(&mut self, blocks: usize, node: usize) -> Option<Range<BlockNo>> {
        let mut from = self.growth.first_unmapped;
        while self.growth.unmapped >= blocks {
            let most = self.wanted().max(blocks);
            let (first, count) = self.unmapped_row(from, blocks, most, node)?;
            let run = |count| Run { addr: self.window.addr_of(first.first()), len: count * PAGEBLOCK };
            let mapped = [count, blocks].into_iter().find_map(|count| match self.platform.map_at(run(count), node) {
                Placed::Refused if count > blocks => None,
                placed => Some((placed, count)),
            });
            let (placed, count) = mapped?;
            if placed == Placed::Refused {
                return None;
            }
            // Whatever lies there now: if it is another's mapping, this is a hole for good.
            BlockNo::each(first.row(count)).for_each(|block| self.mark(block, false));
            if placed == Placed::Done {
                if self.advice != Advice::None || self.asks_for_huge() {
                    self.advise(first.row(count));
                }
                return Some(first.row(count));
            }
            self.growth.blocks -= count;
            from = first.row(count).end;
        }
        None
    }

    /// A row of at least `least` and at most `most` unmapped pageblocks of node `node`, from `from` on.
    fn unmapped_row(&self, from: BlockNo, least: usize, most: usize, node: usize) -> Option<(BlockNo, usize)> {
        let end = self.window.top().block();
        let (mut first, mut count) = (from, 0);
        for block in BlockNo::each(from..end) {
            if self.window.is_unmapped(block) && self.window.node_of_block(block) as usize == node {
                count += 1;
                if count == most {
                    break;
                }
                continue;
            }
            if count >= least {
                break;
            }
            (first, count) = (block.next(), 0);
        }
        (count >= least).then_some((first, count))
    }

    /// Notes that a pageblock is unmapped, or is so no more.
    fn mark(&mut self, block: BlockNo, is_unmapped: bool) {
        // SAFETY: a pageblock below the top.
        unsafe { Pageblock::set_unmapped(self.window.block(block), is_unmapped) };
        let growth = &mut *self.growth;
        if is_unmapped {
            growth.first_unmapped = if growth.unmapped == 0 { block } else { growth.first_unmapped.min(block) };
            (growth.unmapped, growth.blocks) = (growth.unmapped + 1, growth.blocks - 1);
        } else {
            if growth.first_unmapped == block {
                growth.first_unmapped = block.next();
            }
            (growth.unmapped, growth.blocks) = (growth.unmapped - 1, growth.blocks + 1);
        }
    }
}
