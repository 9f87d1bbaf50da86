//! The area of restartable sequences: what the kernel and a thread have in common.

use weir_core::platform::cpu_table::NO_CPU;

use crate::arch::words::AREA_MM_CID;

// Offsets in the area (Linux, `include/uapi/linux/rseq.h`); `rseq_cs` is at 8.
/// Offset of `cpu_id_start`.
pub(super) const AREA_CPU_ID_START: usize = 0;
/// Offset of `cpu_id`: negative while the thread is not registered.
pub(super) const AREA_CPU_ID: usize = 4;
/// Offset of `node_id`.
pub(super) const AREA_NODE_ID: usize = 20;
/// Bytes of an area that every kernel takes, and its alignment.
pub(super) const AREA_BYTES: usize = 32;

/// The restartable sequences that this thread's libc and kernel offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Distance of the area from the thread pointer.
    pub offset: isize,
    /// Bytes of it that are filled.
    pub features: usize,
    /// `mm_cid` is among them.
    pub mm_cid: bool,
    /// `node_id` is among them.
    pub node_id: bool,
}

impl Area {
    /// An area of which the kernel fills that many bytes.
    pub(super) fn new(offset: isize, features: usize) -> Self {
        let has = |field: usize| features >= field + 4;
        Self { offset, features, mm_cid: has(AREA_MM_CID), node_id: has(AREA_NODE_ID) }
    }
}

/// Makes the area at this address one of a thread that is not registered.
///
/// # Safety
/// The bytes of an area there are the caller's, aligned as one, and the kernel does not keep them.
pub(super) unsafe fn write_no_cpu(area: usize) {
    // SAFETY: the caller's bytes.
    unsafe {
        ((area + AREA_CPU_ID_START) as *mut u32).write(NO_CPU as u32);
        ((area + AREA_CPU_ID) as *mut i32).write(-1);
        ((area + AREA_MM_CID) as *mut u32).write(NO_CPU as u32);
    }
}
