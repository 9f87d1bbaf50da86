//! Memory that describes free memory goes back as that memory does: the descriptors and the class map of pageblocks that are
//! wholly free and reported. Without that a heap keeps 0.9 % of its peak for good.
//!
//! Nothing of a free page's description is needed. Its class is [`NOTHING`](crate::pages::window::NOTHING), which is 0, as a page
//! reads whose memory went back. Its descriptor is written before it is read when the page is handed out again. Eight pageblocks,
//! a *group*, fill whole pages of both arrays. Of a group that is free in part go the whole pages of each stretch of free
//! pageblocks in it.
//!
//! # The protocol
//!
//! The protocol is a report's. Under the zone's lock the free reported pageblocks of one group are *isolated*, so that none of
//! their pages can be handed out. The lock is dropped and the memory goes back. Under the lock they are free again, and *bare*
//! until a page of them is handed out. A batch lock of the balancer's is held all the while, so no fork falls in between.
//!
//! The interleaving that this excludes: the balancer finds a pageblock free. A thread takes a page of it, marks it as a slab's
//! and writes the slab's header and bitmap. Then the release makes all of it zero, and the slab's objects belong to no one. The
//! pages cannot be taken while they are isolated. So the thread that writes a description does so before the zone got its pages
//! back (and has finished, under the zone's lock) or after the release.
//!
//! Threads may read without a lock meanwhile: the class of a page by a wrong pointer, or the header of a slab that is gone. They
//! read what was there or zeros: no class, as before. A second free of a run finds its mark cleared, and stores nothing.

use crate::base::run::Run;
use crate::base::units::{BlockNo, Bytes, PAGEBLOCK};
use crate::pages::report::ReportSite;
use crate::pages::window::DESCRIBED_TOGETHER;
use crate::platform::{Host, Platform};

impl<P: Platform, B: Host + ?Sized> ReportSite<'_, P, B> {
    /// Releases what describes pageblocks that are wholly free and reported; returns bytes.
    pub(super) fn release_descriptions(&self) -> Bytes {
        let mut bytes = Bytes::ZERO;
        while let Some(batch) = self.release_group() {
            bytes += batch;
        }
        bytes
    }

    /// One batch; `None`: there was nothing to release.
    fn release_group(&self) -> Option<Bytes> {
        let _in_flight = self.in_flight.lock(self.platform);
        if self.platform.tunables().report.get() == 0 || self.below.release_unit() == PAGEBLOCK {
            return None;
        }
        let mut areas = self.zone.lock(self.platform);
        let block = areas.described()?;
        let (first, members) = areas.isolate_bare(self.window, block);
        drop(areas);
        let mut runs = [Run::default(); DESCRIBED_TOGETHER as usize];
        let mut n = 0;
        for (from, count) in stretches(members) {
            for run in self.window.description(BlockNo(first.0 + from).row(count)).into_iter().filter(|run| run.len > 0)
            {
                runs[n] = run;
                n += 1;
            }
        }
        let released = n > 0 && self.platform.release_metadata(&runs[..n]);
        self.zone.lock(self.platform).put_back_bare(self.window, first, members);
        Some(if released { runs[..n].iter().map(|run| Bytes(run.len)).sum() } else { Bytes::ZERO })
    }
}

/// The stretches of ones in `bits`: first bit and length.
fn stretches(mut bits: u32) -> impl Iterator<Item = (u32, usize)> {
    core::iter::from_fn(move || {
        (bits != 0).then(|| {
            let first = bits.trailing_zeros();
            let count = (bits >> first).trailing_ones();
            bits &= !((1 << (first + count)) - 1);
            (first, count as usize)
        })
    })
}
