//! Physical memory as the engine takes it and gives it back, at its own addresses.
//!
//! Memory is never unmapped here, only free or taken ([`crate::frames`]); what "gives it back" is a report. Where the
//! engine asks for zero memory it gets memory that was looked at, and zeroed where it was not zero ([`crate::zero`]). So
//! growing the heap makes nothing resident in the host.

use crate::frames::Frames;
use crate::reporter::Reporter;
use crate::virtio::Device;
use crate::zero::make_zero;
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK};
use weir_core::platform::Refused;

/// The engine's arrays take at most this part of the memory they describe (0.92 %, see [`weir_core::pages::window`]), ...
const ARRAYS_PART: usize = 64;
/// ... and the guards between them and around them: four pageblocks, and as much for rounding.
const ARRAYS_GUARDS: usize = 8 * PAGEBLOCK;

/// There are no frames left; this platform has no error numbers.
pub const NO_FRAMES: Refused = Refused { error: 0 };

/// The frames, and who tells the host of those that are free.
pub struct GuestMemory<D: Device> {
    frames: Frames,
    /// The window of the engine's arrays: taken as a whole, usable as far as it was mapped.
    arrays: Run,
    reporter: Option<Reporter<D>>,
}

impl<D: Device> GuestMemory<D> {
    /// Without frames.
    pub const fn none() -> Self {
        Self { frames: Frames::new(0, &[]), arrays: Run { addr: 0, len: 0 }, reporter: None }
    }

    /// With frames, and who reports them.
    ///
    /// # Safety
    /// The free pages of `frames` are mapped at their addresses, and nobody uses them.
    pub unsafe fn new(frames: Frames, reporter: Option<Reporter<D>>) -> Self {
        Self { frames, arrays: Run::default(), reporter }
    }

    /// Who tells the host, if anyone.
    pub fn reporter(&self) -> Option<&Reporter<D>> {
        self.reporter.as_ref()
    }

    /// The reporter, to report.
    pub fn reporter_mut(&mut self) -> Option<&mut Reporter<D>> {
        self.reporter.as_mut()
    }

    /// A window that is longer than memory is the heap's: the longest stretch there is, shared with all others, but for a
    /// part at its end. That is for the arrays, which are asked for next and get a window of their own. An address can be
    /// of one window only, as [`weir_core::platform::Memory::map_at`] does not say for which it is called.
    pub fn window(&mut self, len: usize, align: usize) -> Result<Run, Refused> {
        let longest = self.frames.longest(align);
        if len > longest.len {
            let kept_back = longest.len / ARRAYS_PART + ARRAYS_GUARDS;
            let len = longest.len.checked_sub(kept_back).ok_or(NO_FRAMES)? / align * align;
            return if len > 0 { Ok(Run { addr: longest.addr, len }) } else { Err(NO_FRAMES) };
        }
        let addr = self.frames.take(len.next_multiple_of(PAGE), align).ok_or(NO_FRAMES)?;
        self.arrays = Run { addr, len };
        Ok(self.arrays)
    }

    /// Takes these very addresses, zero; `false` if they are taken.
    pub fn map_at(&mut self, run: Run) -> bool {
        let ours = contains(self.arrays, run) || self.frames.take_at(run);
        if ours {
            // SAFETY: just taken, or of the arrays' window and not mapped before; so nobody uses it.
            unsafe { make_zero(run) };
        }
        ours
    }

    /// Takes memory from the high end, zero.
    pub fn map(&mut self, len: usize, align: usize) -> Result<usize, Refused> {
        let addr = self.frames.take(len, align).ok_or(NO_FRAMES)?;
        // SAFETY: just taken, so nobody uses it.
        unsafe { make_zero(Run { addr, len }) };
        Ok(addr)
    }

    /// Frees memory; its whole blocks of report order go to the host first, while nobody can take them.
    pub fn unmap(&mut self, run: Run) {
        let first = run.addr.next_multiple_of(PAGEBLOCK);
        let end = (run.addr + run.len) / PAGEBLOCK * PAGEBLOCK;
        if let Some(reporter) = &mut self.reporter
            && first < end
        {
            // SAFETY: the engine gave the memory up, and it is not free yet.
            unsafe { reporter.report(&[Run { addr: first, len: end - first }]) };
        }
        self.frames.give(run);
    }

    /// Makes a block `len` bytes long, in its place if what is behind it is free; where it is then.
    pub fn remap(&mut self, run: Run, len: usize) -> Result<usize, Refused> {
        if len <= run.len {
            self.unmap(Run { addr: run.addr + len, len: run.len - len });
            return Ok(run.addr);
        }
        let behind = Run { addr: run.addr + run.len, len: len - run.len };
        if self.frames.take_at(behind) {
            // SAFETY: just taken, so nobody uses it.
            unsafe { make_zero(behind) };
            return Ok(run.addr);
        }
        let addr = self.map(len, PAGE.max(1 << run.addr.trailing_zeros().min(PAGEBLOCK.ilog2())))?;
        // SAFETY: the old block is the engine's, the new one was just taken.
        unsafe { core::ptr::copy_nonoverlapping(run.addr as *const u8, addr as *mut u8, run.len) };
        self.unmap(run);
        Ok(addr)
    }
}

fn contains(outer: Run, inner: Run) -> bool {
    outer.addr <= inner.addr && inner.addr + inner.len <= outer.addr + outer.len
}
