//! The virtio-balloon's free page reporting: a request lists free blocks; once acknowledged, they are the guest's
//! again, with nothing behind them.
//!
//! The protocol is virtio 1.2's, 5.5.6.8, as Linux speaks it: the guest must not touch a block between request and
//! acknowledgement. What a block reads as afterwards is only known where page poison was negotiated. Then it still reads as what
//! the guest filled it with, whether or not the host took the memory.

use core::fmt;

use crate::virtio::{Device, VERSION_1, status};
use crate::virtqueue::{Queue, Ring};
use weir_core::base::run::Run;

/// Feature bits of the balloon.
pub mod feature {
    /// There is a queue for statistics.
    pub const STATS_QUEUE: u64 = 1 << 1;
    /// There is a queue for free page hints (which are for migration, and something else).
    pub const FREE_PAGE_HINT: u64 = 1 << 3;
    /// The device is told what free pages are filled with, and keeps to it.
    pub const PAGE_POISON: u64 = 1 << 4;
    /// There is a queue for reports of free pages.
    pub const PAGE_REPORTING: u64 = 1 << 5;
}

/// Offset of `poison_val` in the balloon's configuration.
const POISON_VALUE: usize = 12;
/// Longest entry: a descriptor's length has 32 bits, and stays a multiple of any block's size.
pub const MAX_ENTRY: usize = 1 << 30;

/// Why reporting could not be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The device did not reset.
    NoReset,
    /// The device is older than virtio 1.0.
    Legacy,
    /// The device does not offer reporting.
    NotOffered,
    /// The device does not go along with a subset of what it offered.
    Refused,
    /// The reporting queue, whose index this is, is not there.
    NoQueue(u16),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReset => f.write_str("the balloon does not reset"),
            Self::Legacy => f.write_str("the balloon is no virtio 1.0 device: start QEMU with disable-modern=off"),
            Self::NotOffered => {
                f.write_str("the balloon offers no free page reporting: start QEMU with free-page-reporting=on")
            }
            Self::Refused => f.write_str("the balloon refuses the features that are needed"),
            Self::NoQueue(index) => write!(f, "the balloon offers reporting but has no queue {index}"),
        }
    }
}

/// Why a report was not acknowledged. The device was reset and has let go of all memory; it is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// The device did not answer in time.
    Timeout,
    /// The device answered what it was not asked.
    Confused,
    /// The device failed before, and was given up.
    GivenUp,
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "the balloon did not acknowledge a report in time",
            Self::Confused => "the balloon acknowledged what it was not given",
            Self::GivenUp => "the balloon was given up after a failure",
        })
    }
}

/// A balloon that takes reports.
pub struct Balloon<D: Device> {
    device: D,
    queue: Queue,
    index: u16,
    keeps_fill: bool,
    given_up: bool,
}

impl<D: Device> Balloon<D> {
    /// Negotiates reporting with `device`; where page poison is offered, free pages are said to be filled with zero.
    ///
    /// # Safety
    /// Nobody else uses `device` or `ring`.
    pub unsafe fn start(mut device: D, ring: &'static Ring) -> Result<Self, StartError> {
        device.set_status(0);
        if !(0..1 << 20).any(|_| device.status() == 0) {
            return Err(StartError::NoReset);
        }
        device.set_status(status::ACKNOWLEDGE | status::DRIVER);
        let (queue, index, keeps_fill) =
            Self::negotiate(&mut device, ring).inspect_err(|_| device.set_status(device.status() | status::FAILED))?;
        device.set_status(device.status() | status::DRIVER_OK);
        Ok(Self { device, queue, index, keeps_fill, given_up: false })
    }

    fn negotiate(device: &mut D, ring: &'static Ring) -> Result<(Queue, u16, bool), StartError> {
        let offered = device.offered();
        if offered & VERSION_1 == 0 {
            return Err(StartError::Legacy);
        }
        if offered & feature::PAGE_REPORTING == 0 {
            return Err(StartError::NotOffered);
        }
        // Some devices number their queues by what they offer, some by what was accepted. The features that have a
        // queue before the reporting one are therefore accepted wherever offered, and those queues left unused.
        let numbering = feature::STATS_QUEUE | feature::FREE_PAGE_HINT;
        let accepted = offered & (VERSION_1 | feature::PAGE_REPORTING | feature::PAGE_POISON | numbering);
        device.accept(accepted);
        device.set_status(device.status() | status::FEATURES_OK);
        if device.status() & status::FEATURES_OK == 0 {
            return Err(StartError::Refused);
        }
        let keeps_fill = accepted & feature::PAGE_POISON != 0 && device.write_config(POISON_VALUE, 0);
        let index = 2 + (accepted & numbering).count_ones() as u16;
        let queue = Queue::new(ring, device.queue_max(index)).ok_or(StartError::NoQueue(index))?;
        let at = queue.addresses(device);
        device.enable_queue(index, queue.size(), at);
        Ok((queue, index, keeps_fill))
    }

    /// Whether blocks that were zero when they were reported read as zero afterwards. If not, they read as anything.
    pub fn keeps_zero(&self) -> bool {
        self.keeps_fill
    }

    /// Entries that one report can have.
    pub fn capacity(&self) -> usize {
        usize::from(self.queue.size())
    }

    /// Index of the reporting queue.
    pub fn queue_index(&self) -> u16 {
        self.index
    }

    /// Reports 1 to [`Balloon::capacity`] free blocks, none longer than [`MAX_ENTRY`], and waits for the
    /// acknowledgement as long as `patient` says so. Allocates nothing.
    ///
    /// # Safety
    /// The blocks are memory that is not used before this returns. Where [`Balloon::keeps_zero`], they are zero.
    pub unsafe fn report(&mut self, blocks: &[Run], mut patient: impl FnMut() -> bool) -> Result<(), ReportError> {
        if self.given_up {
            return Err(ReportError::GivenUp);
        }
        let device = &self.device;
        self.queue.submit(blocks.iter().map(|run| (device.bus_address(run.addr), run.len as u32)));
        self.device.notify(self.index);
        loop {
            match self.queue.is_done() {
                Ok(true) => return Ok(()),
                Ok(false) if patient() => core::hint::spin_loop(),
                Ok(false) => return Err(self.give_up(ReportError::Timeout)),
                Err(_) => return Err(self.give_up(ReportError::Confused)),
            }
        }
    }

    /// Takes the blocks in flight back from a device that does not answer: after a reset it may not touch them.
    fn give_up(&mut self, why: ReportError) -> ReportError {
        self.given_up = true;
        self.device.set_status(0);
        // Until then the blocks are not the guest's; there is nothing sound to do but to wait.
        while self.device.status() != 0 {
            core::hint::spin_loop();
        }
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_balloon::{Fake, Fault, fresh_ring, memory};

    const BLOCK: usize = 1 << 21;

    fn start(fake: Fake) -> Result<Balloon<Fake>, StartError> {
        // SAFETY: the ring is fresh, the device this test's.
        unsafe { Balloon::start(fake, fresh_ring()) }
    }

    fn runs(at: usize, n: usize) -> Vec<Run> {
        (0..n).map(|i| Run { addr: at + 2 * i * BLOCK, len: BLOCK }).collect()
    }

    #[test]
    fn the_queue_index_counts_the_queues_that_are_there() {
        use feature::*;
        for (extra, index) in [(0, 2), (STATS_QUEUE, 3), (FREE_PAGE_HINT, 3), (STATS_QUEUE | FREE_PAGE_HINT, 4)] {
            let balloon = start(Fake::new(VERSION_1 | PAGE_REPORTING | extra)).unwrap();
            assert_eq!(balloon.queue_index(), index);
            assert!(!balloon.keeps_zero());
        }
    }

    #[test]
    fn what_is_not_offered_is_not_used() {
        assert_eq!(start(Fake::new(feature::PAGE_REPORTING)).err(), Some(StartError::Legacy));
        assert_eq!(start(Fake::new(VERSION_1)).err(), Some(StartError::NotOffered));
        let unknown = 1 << 33 | 1 << 28;
        let balloon = start(Fake::new(VERSION_1 | feature::PAGE_REPORTING | unknown)).unwrap();
        assert_eq!(balloon.device.accepted() & unknown, 0);
        let refusing = Fake::new(VERSION_1 | feature::PAGE_REPORTING).with(Fault::RefusesFeatures);
        assert_eq!(start(refusing).err(), Some(StartError::Refused));
        let no_queue = Fake::new(VERSION_1 | feature::PAGE_REPORTING).with(Fault::NoQueue);
        assert_eq!(start(no_queue).err(), Some(StartError::NoQueue(2)));
    }

    #[test]
    fn poison_value_zero_is_written_where_offered() {
        let fake = Fake::new(VERSION_1 | feature::PAGE_REPORTING | feature::PAGE_POISON);
        assert_eq!(fake.poison(), Some(0xaaaa_aaaa));
        let balloon = start(fake).unwrap();
        assert!(balloon.keeps_zero());
        assert_eq!(balloon.device.poison(), Some(0));
    }

    #[test]
    fn a_report_reaches_the_device_whole_and_returns_after_its_answer() {
        let (at, _) = memory(64 * BLOCK);
        let mut balloon = start(Fake::new(VERSION_1 | feature::PAGE_REPORTING).slow(50)).unwrap();
        let mut polls = 0;
        // More requests than the ring has entries, so that its indices wrap.
        for n in (1..=32).chain([32, 1, 7]) {
            let blocks = runs(at, n);
            // SAFETY: memory of this test that nobody uses.
            let done = unsafe {
                balloon.report(&blocks, || {
                    polls += 1;
                    true
                })
            };
            assert_eq!(done, Ok(()));
            assert_eq!(balloon.device.take_reports(), vec![blocks]);
        }
        assert!(polls > 0, "a slow device is waited for");
    }

    #[test]
    fn a_smaller_ring_takes_smaller_requests() {
        let (at, _) = memory(16 * BLOCK);
        let mut balloon = start(Fake::new(VERSION_1 | feature::PAGE_REPORTING).ring(12)).unwrap();
        assert_eq!(balloon.capacity(), 8);
        for _ in 0..20 {
            // SAFETY: memory of this test that nobody uses.
            assert_eq!(unsafe { balloon.report(&runs(at, 8), || true) }, Ok(()));
        }
    }

    #[test]
    fn a_device_that_fails_is_reset_and_given_up() {
        for (fault, error) in [(Fault::Silent, ReportError::Timeout), (Fault::WrongAnswer, ReportError::Confused)] {
            let (at, _) = memory(2 * BLOCK);
            let mut balloon = start(Fake::new(VERSION_1 | feature::PAGE_REPORTING).with(fault)).unwrap();
            let mut left = 1000;
            let patient = || {
                left -= 1;
                left > 0
            };
            // SAFETY: memory of this test that nobody uses.
            assert_eq!(unsafe { balloon.report(&runs(at, 1), patient) }, Err(error));
            assert_eq!(balloon.device.status(), 0);
            // SAFETY: as above.
            assert_eq!(unsafe { balloon.report(&runs(at, 1), || true) }, Err(ReportError::GivenUp));
        }
    }
}
