//! Fences on all threads of the process.

use super::syscall::{Result, check, syscall3};
use linux_raw_sys::general as sys;

/// Commands of [`membarrier`].
pub mod command {
    /// Asks which commands there are; the answer is a bit mask of the others.
    pub const QUERY: u32 = 0;
    /// A fence on all running threads of the process.
    pub const PRIVATE_EXPEDITED: u32 = 1 << 3;
    /// Registers the process for [`PRIVATE_EXPEDITED`].
    pub const REGISTER_PRIVATE_EXPEDITED: u32 = 1 << 4;
    /// The same, and restarts the restartable sequences they are in.
    pub const PRIVATE_EXPEDITED_RSEQ: u32 = 1 << 7;
    /// Registers the process for [`PRIVATE_EXPEDITED_RSEQ`].
    pub const REGISTER_PRIVATE_EXPEDITED_RSEQ: u32 = 1 << 8;
    /// Flag: fence only the CPU named.
    pub const FLAG_CPU: u32 = 1;
}

/// `membarrier(2)`; `cpu` counts only with [`command::FLAG_CPU`].
pub fn membarrier(cmd: u32, flags: u32, cpu: u32) -> Result<u32> {
    // SAFETY: a fence touches no memory.
    check(unsafe { syscall3(sys::__NR_membarrier, cmd as usize, flags as usize, cpu as usize) }).map(|mask| mask as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_can_be_asked_for() {
        assert!(membarrier(command::QUERY, 0, 0).is_ok());
    }
}
