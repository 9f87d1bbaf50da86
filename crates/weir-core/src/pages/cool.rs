//! Split huge pages are cooled: what is left of each is split for good, and the kernel does not fill it up while it is not
//! used.

use super::node::BATCH;
use super::report::ReportSite;
use super::window::Window;
use crate::base::run::Run;
use crate::base::units::{PAGEBLOCK, PAGEBLOCK_PAGES};
use crate::platform::{Host, Platform};

/// Pageblocks gone over under one hold of a zone's lock.
const SLICE: u32 = 256;

impl<P: Platform, B: Host + ?Sized> ReportSite<'_, P, B> {
    /// Cools what was split of this zone since the last call.
    pub(crate) fn cool_split(&self) {
        if !self.zone.lock(self.platform).has_torn() {
            return;
        }
        for blocks in slices(self.window) {
            loop {
                let (mut torn, mut runs) = ([0u32; BATCH], [Run::default(); BATCH]);
                let n = self.zone.lock(self.platform).take_torn(self.window, blocks.clone(), &mut torn);
                for (run, block) in runs.iter_mut().zip(&torn[..n]) {
                    let addr = self.window.addr_of(block * PAGEBLOCK_PAGES as u32);
                    *run = Run { addr, len: PAGEBLOCK };
                }
                if n > 0 {
                    self.platform.cool(&runs[..n]);
                }
                if n < BATCH {
                    break;
                }
            }
        }
    }
}

/// All pageblocks of a window, a hold of a zone's lock at a time.
pub(crate) fn slices(window: &Window) -> impl Iterator<Item = core::ops::Range<u32>> + use<> {
    let end = window.top() / PAGEBLOCK_PAGES as u32;
    (0..end).step_by(SLICE as usize).map(move |from| from..end.min(from + SLICE))
}
