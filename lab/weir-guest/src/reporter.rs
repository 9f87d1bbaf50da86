//! Free blocks to the hypervisor: filled with zero, reported, acknowledged; and what that took.
//!
//! Under virtio released memory reads as zero only if page poison was negotiated *and* the guest filled the pages before
//! it reported them. The host may as well leave them alone. So there they are filled (those that are not zero anyway).
//! Where the balloon has no page poison, nothing is filled, and the engine is told that the contents are undefined.

use crate::balloon::{Balloon, MAX_ENTRY, ReportError};
use crate::virtio::Device;
use crate::virtqueue::SIZE;
use crate::zero::make_zero;
use weir_core::base::run::Run;
use weir_core::base::units::PAGEBLOCK;
use weir_core::platform::Contents;

/// How long the device may take for one request, ns. Ten seconds is far beyond a host under load, and short enough
/// for somebody to see what is wrong.
const PATIENCE: u64 = 10_000_000_000;

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that were acknowledged.
    pub requests: u64,
    /// Blocks in them.
    pub entries: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Time spent making blocks zero, ns.
    pub fill_ns: u64,
    /// Time between requests and their acknowledgements, ns.
    pub wait_ns: u64,
    /// When the last one was acknowledged, ns.
    pub last: u64,
    /// Runs that are no whole blocks of report order, and were not taken for that.
    pub refused: u64,
}

/// The layer below [`weir_core::pages::report`] in a guest.
pub struct Reporter<D: Device> {
    balloon: Balloon<D>,
    clock: fn() -> u64,
    counters: Counters,
    failure: Option<ReportError>,
}

impl<D: Device> Reporter<D> {
    /// A reporter on `balloon`; `clock` gives nanoseconds.
    pub fn new(balloon: Balloon<D>, clock: fn() -> u64) -> Self {
        Self { balloon, clock, counters: Counters::default(), failure: None }
    }

    /// The contents that blocks read as after a report.
    pub fn contents(&self) -> Contents {
        if self.balloon.keeps_zero() { Contents::Zero } else { Contents::Undefined }
    }

    /// The totals.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Why it gave up, if it did.
    pub fn failure(&self) -> Option<ReportError> {
        self.failure
    }

    /// The balloon.
    pub fn balloon(&self) -> &Balloon<D> {
        &self.balloon
    }

    /// Reports `runs`, from the first on, up to one that is not made of whole blocks of report order. Smaller ones would
    /// split the host's huge pages. Returns how many were acknowledged.
    ///
    /// # Safety
    /// The runs are mapped memory that is not used.
    pub unsafe fn report(&mut self, runs: &[Run]) -> usize {
        let whole = |run: &&Run| run.addr.is_multiple_of(PAGEBLOCK) && run.len.is_multiple_of(PAGEBLOCK);
        let fit = runs.iter().take_while(whole).count();
        self.counters.refused += (runs.len() - fit) as u64;
        let room = self.balloon.capacity().min(SIZE);
        let mut entries = [Run::default(); SIZE];
        let (mut filled, mut done) = (0, 0);
        for (i, run) in runs[..fit].iter().enumerate() {
            for at in (0..run.len).step_by(MAX_ENTRY) {
                if filled == room {
                    // SAFETY: as the caller promises.
                    if !unsafe { self.request(&entries[..filled]) } {
                        return done;
                    }
                    (filled, done) = (0, i);
                }
                entries[filled] = Run { addr: run.addr + at, len: (run.len - at).min(MAX_ENTRY) };
                filled += 1;
            }
        }
        // SAFETY: as the caller promises.
        if unsafe { self.request(&entries[..filled]) } { fit } else { done }
    }

    /// One request; `false` if it failed, now or an earlier one.
    unsafe fn request(&mut self, blocks: &[Run]) -> bool {
        if blocks.is_empty() || self.failure.is_some() {
            return self.failure.is_none();
        }
        let begin = (self.clock)();
        if self.contents() == Contents::Zero {
            // SAFETY: as the caller of `report` promises.
            blocks.iter().for_each(|&run| unsafe { make_zero(run) });
        }
        let filled = (self.clock)();
        let clock = self.clock;
        // SAFETY: as above, and the blocks are zero where that was promised.
        let answer = unsafe { self.balloon.report(blocks, || clock() - filled < PATIENCE) };
        let end = clock();
        self.failure = answer.err();
        if self.failure.is_none() {
            self.counters.requests += 1;
            self.counters.entries += blocks.len() as u64;
            self.counters.bytes += blocks.iter().map(|run| run.len as u64).sum::<u64>();
            self.counters.fill_ns += filled - begin;
            self.counters.wait_ns += end - filled;
            self.counters.last = end;
        }
        self.failure.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balloon::feature;
    use crate::tests::fake_balloon::{Fake, Fault, clock, fresh_ring, memory};
    use crate::virtio::VERSION_1;

    const ALL: u64 = VERSION_1 | feature::PAGE_REPORTING | feature::PAGE_POISON;

    fn reporter(fake: &Fake) -> Reporter<Fake> {
        // SAFETY: the ring is fresh, the device this test's.
        Reporter::new(unsafe { Balloon::start(fake.clone(), fresh_ring()) }.unwrap(), clock)
    }

    #[test]
    fn blocks_are_zero_when_the_device_sees_them() {
        let (at, len) = memory(8 * PAGEBLOCK);
        // SAFETY: this test's memory.
        unsafe { core::ptr::write_bytes(at as *mut u8, 7, len) };
        let fake = Fake::new(ALL).leaves_contents();
        let run = Run { addr: at, len };
        // SAFETY: as above; nobody uses it.
        unsafe {
            assert_eq!(reporter(&fake).report(&[run]), 1);
            assert!(crate::zero::is_zero(run));
        }
    }

    #[test]
    fn only_whole_blocks_go_and_many_go_in_several_requests() {
        let (at, _) = memory(80 * PAGEBLOCK);
        let block = |i: usize| Run { addr: at + 2 * i * PAGEBLOCK, len: PAGEBLOCK };
        let fake = Fake::new(ALL);
        let mut reporter = reporter(&fake);
        let mut runs: Vec<_> = (0..40).map(block).collect();
        // SAFETY: this test's memory, which nobody uses.
        assert_eq!(unsafe { reporter.report(&runs) }, 40);
        assert_eq!(fake.take_reports().iter().map(Vec::len).collect::<Vec<_>>(), [32, 8]);
        runs[2].len -= 4096;
        // SAFETY: as above.
        assert_eq!(unsafe { reporter.report(&runs[..5]) }, 2);
        assert_eq!(fake.take_reports(), [runs[..2].to_vec()]);
        let counters = reporter.counters();
        assert_eq!((counters.requests, counters.entries, counters.refused), (3, 42, 3));
        assert_eq!(counters.bytes, 42 * PAGEBLOCK as u64);
    }

    #[test]
    fn without_page_poison_blocks_are_reported_as_they_are() {
        let (at, len) = memory(PAGEBLOCK);
        // SAFETY: this test's memory.
        unsafe { core::ptr::write_bytes(at as *mut u8, 7, len) };
        let mut reporter = reporter(&Fake::new(ALL & !feature::PAGE_POISON).leaves_contents());
        assert_eq!(reporter.contents(), Contents::Undefined);
        // SAFETY: as above; nobody uses it.
        assert_eq!(unsafe { reporter.report(&[Run { addr: at, len }]) }, 1);
        // SAFETY: as above.
        assert_eq!(unsafe { *(at as *const u8) }, 7);
    }

    #[test]
    fn nothing_is_reported_after_a_failure() {
        let (at, len) = memory(PAGEBLOCK);
        let mut silent = reporter(&Fake::new(ALL).with(Fault::Silent));
        for _ in 0..2 {
            // SAFETY: this test's memory, which nobody uses.
            assert_eq!(unsafe { silent.report(&[Run { addr: at, len }]) }, 0);
            assert_eq!(silent.failure(), Some(ReportError::Timeout));
        }
    }
}
