//! What reading debug information may take: memory, time and stack.
//!
//! A unit of 12 bytes becomes a kilobyte of tables, a file name of two bytes is joined to a directory of a megabyte, a byte
//! may open another level of inlined functions, and parts that all units share are read anew for each. What comes of a byte
//! cannot be known before. So whoever reads debug information reads through a meter, which looks at each step at what was
//! taken so far. Beyond a bound the next byte is an error, as at the end of a section.

use super::budget::Budget;
use crate::base::counted::held;
use gimli::{EndianArcSlice, Error, LittleEndian, Reader, ReaderOffsetId, Result};
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how long a file is read and looked up in. The largest programs take some seconds.
const MOST_TIME: Duration = Duration::from_secs(60);
/// Bytes of stack: a thread has 2 MiB at least, and functions are inlined some tens deep, a KiB or less for each.
const MOST_STACK: usize = 512 << 10;
/// Steps between two looks at the clock.
const STEPS: u32 = 256;
/// A vector that grows takes three times what it held: 1 / SHARE of what is left of the budget may be held at that time.
const SHARE: u64 = 3;

/// See the module.
#[derive(Debug)]
pub struct Meter {
    /// Bytes that this thread may hold.
    most_held: Cell<isize>,
    /// What it held when the last reading ended.
    held_between: Cell<isize>,
    until: Cell<Instant>,
    stack: Cell<usize>,
    steps: Cell<u32>,
    is_over: Cell<bool>,
}

impl Meter {
    /// Nothing is bounded yet but the time.
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            most_held: Cell::new(isize::MAX),
            held_between: Cell::new(held()),
            until: Cell::new(Instant::now() + MOST_TIME),
            stack: Cell::new(stack()),
            steps: Cell::new(STEPS),
            is_over: Cell::new(false),
        })
    }

    /// The sections are there: what is made of them has what they left of the budget.
    pub fn bound_by(&self, budget: &Budget) {
        let more = isize::try_from(budget.left() / SHARE).unwrap_or(isize::MAX);
        self.most_held.set(held().saturating_add(more));
        self.held_between.set(held());
    }

    /// A reading begins. What else this thread has taken or freed since the last one does not count.
    pub fn begin(&self) {
        let (before, now) = (self.held_between.get(), held());
        self.most_held.set(self.most_held.get().saturating_add(now).saturating_sub(before));
        self.stack.set(stack());
        self.look_at_clock();
    }

    /// It ends.
    pub fn end(&self) {
        self.held_between.set(held());
    }

    /// Whether more was wanted than may be taken.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Whether a step may be done.
    fn step(&self) -> bool {
        let left = self.steps.get();
        self.steps.set(left.saturating_sub(1));
        if left == 0 {
            self.look_at_clock();
        }
        let is_too_much = held() > self.most_held.get() || stack().abs_diff(self.stack.get()) > MOST_STACK;
        self.is_over.set(self.is_over.get() || is_too_much);
        !self.is_over.get()
    }

    fn look_at_clock(&self) {
        self.steps.set(STEPS);
        self.is_over.set(self.is_over.get() || Instant::now() > self.until.get());
    }
}

/// Where the stack is now. The address of a variable may be elsewhere: the address sanitizer has them outside of it.
fn stack() -> usize {
    let now;
    // SAFETY: copies a register.
    unsafe { std::arch::asm!("mov {}, rsp", out(reg) now, options(nomem, nostack, preserves_flags)) };
    now
}

/// The bytes of a section, read through a meter.
#[derive(Clone, Debug)]
pub struct Metered {
    bytes: EndianArcSlice<LittleEndian>,
    meter: Rc<Meter>,
}

impl Metered {
    pub fn new(bytes: Arc<[u8]>, meter: &Rc<Meter>) -> Self {
        Self { bytes: EndianArcSlice::new(bytes, LittleEndian), meter: meter.clone() }
    }

    fn step(&self) -> Result<()> {
        if self.meter.step() { Ok(()) } else { Err(Error::UnexpectedEof(self.offset_id())) }
    }
}

impl Reader for Metered {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        self.bytes.endian()
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn empty(&mut self) {
        self.bytes.empty();
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.bytes.truncate(len)
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.bytes.offset_from(&base.bytes)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        self.bytes.offset_id()
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        self.bytes.lookup_offset_id(id)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        self.step()?;
        self.bytes.find(byte)
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        self.step()?;
        self.bytes.skip(len)
    }

    fn split(&mut self, len: usize) -> Result<Self> {
        self.step()?;
        Ok(Self { bytes: self.bytes.split(len)?, meter: self.meter.clone() })
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        self.step()?;
        self.bytes.to_slice()
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        self.step()?;
        self.bytes.to_string()
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        self.step()?;
        self.bytes.to_string_lossy()
    }

    fn read_slice(&mut self, to: &mut [u8]) -> Result<()> {
        self.step()?;
        self.bytes.read_slice(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_count_once_and_what_is_made_of_them_is_bounded() {
        let (budget, meter) = (Budget::for_length(0), Meter::new());
        let section: Arc<[u8]> = vec![1; 8 << 20].into();
        budget.take(section.len() as u64).unwrap();
        let mut bytes = Metered::new(section, &meter);
        meter.bound_by(&budget);
        meter.begin();
        assert_eq!(bytes.read_u8(), Ok(1));
        let third = vec![0u8; 3 << 20];
        assert!(bytes.read_u8().is_err() && meter.is_over());
        drop(third);
        assert!(bytes.read_u8().is_err(), "it stays over");
    }

    #[test]
    fn a_file_is_read_for_so_long_and_no_longer() {
        let meter = Meter::new();
        let mut bytes = Metered::new([1; 8].into(), &meter);
        meter.begin();
        assert_eq!(bytes.read_u8(), Ok(1));
        meter.until.set(Instant::now().checked_sub(Duration::from_millis(1)).unwrap());
        let is_over = (0..=STEPS).any(|_| bytes.find(1).is_err());
        assert!(is_over && meter.is_over(), "it looks at the clock every now and then");
    }

    #[test]
    fn what_is_taken_between_two_readings_does_not_count() {
        let (budget, meter) = (Budget::for_length(0), Meter::new());
        let mut bytes = Metered::new([1; 8].into(), &meter);
        meter.bound_by(&budget);
        meter.begin();
        meter.end();
        let _frames = vec![0u8; 8 << 20];
        meter.begin();
        assert_eq!(bytes.read_u8(), Ok(1));
        let _lines = vec![0u8; 6 << 20];
        assert!(bytes.read_u8().is_err());
    }
}
