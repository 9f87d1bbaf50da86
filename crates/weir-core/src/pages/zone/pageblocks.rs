//! How a zone reaches its pageblocks.
//!
//! The states of pageblocks lie in a window's array, outside the zone. A zone's lock guards those of its own node. So
//! [`Pageblocks`], of which each zone has one under its lock, makes references to them that borrow it. So the compiler refuses
//! code in which a thread that holds the lock has two references to one state, one of them exclusive.
//!
//! Neighbours in the array may be another node's, under a lock that this thread does not hold. [`Pageblocks::get`] reads the
//! node first, an atomic beside the state, and makes no reference to what is not the zone's.

use core::ops::Range;

use crate::base::units::BlockNo;
use crate::pages::pageblock::State;
use crate::pages::window::Window;

/// The right to the states of a zone's pageblocks.
pub(super) struct Pageblocks {
    node: u16,
}

impl Pageblocks {
    /// Pageblocks of node `node`.
    pub(super) const fn new(node: u16) -> Self {
        Self { node }
    }

    /// Whether `block`, below the top of `window`, is the zone's.
    #[inline]
    pub(super) fn is_own(&self, window: &Window, block: BlockNo) -> bool {
        window.node_of_block(block) == self.node
    }

    /// The state of `block`, which is the zone's.
    #[inline]
    pub(super) fn at<'a>(&'a self, window: &'a Window, block: BlockNo) -> &'a State {
        debug_assert!(self.is_own(window, block));
        // SAFETY: a pageblock of this node, below the top: its state is mapped for good. It is reached through this value alone,
        // which is under the zone's lock. The value is borrowed as long as the reference lives: no exclusive one exists.
        unsafe { &*window.state(block) }
    }

    /// The state of `block`, which is the zone's, to change it.
    #[inline]
    pub(super) fn at_mut<'a>(&'a mut self, window: &'a Window, block: BlockNo) -> &'a mut State {
        debug_assert!(self.is_own(window, block));
        // SAFETY: mapped for good, as a pageblock below the top. States of this node are reached through this value alone,
        // which is exclusively borrowed as long as the reference lives: no other one exists.
        unsafe { &mut *window.state(block) }
    }

    /// The state of `block`, below the top, if it is the zone's and in use.
    #[inline]
    pub(super) fn get<'a>(&'a self, window: &'a Window, block: BlockNo) -> Option<&'a State> {
        if !self.is_own(window, block) {
            return None;
        }
        Some(self.at(window, block)).filter(|pageblock| !pageblock.offline)
    }

    /// Pageblocks of `blocks` that are the zone's.
    pub(super) fn own<'a>(
        &self,
        window: &'a Window,
        blocks: Range<BlockNo>,
    ) -> impl Iterator<Item = BlockNo> + use<'a> {
        let (node, top) = (self.node, window.top().block());
        BlockNo::each(blocks.start..blocks.end.min(top)).filter(move |&block| window.node_of_block(block) == node)
    }
}
