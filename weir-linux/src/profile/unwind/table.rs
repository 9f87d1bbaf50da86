//! An object's entry for a code address: `.eh_frame_hdr` is searched by halves, as linkers sort it (the LSB's core
//! specification, "Exception Frames").
//!
//! The object's code is on the stack of this thread, so the object stays loaded, and its table is read-only.

use super::objects::Object;

/// How a linker writes a sorted table: 32-bit offsets from the header (`DW_EH_PE_datarel | DW_EH_PE_sdata4`).
const FROM_HEADER_I32: u8 = 0x3b;
/// A number of 32 bits (`DW_EH_PE_udata4`).
const U32: u8 = 0x03;
/// A 32-bit offset from where it is written (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`).
const FROM_HERE_I32: u8 = 0x1b;
/// The header's four bytes, where `.eh_frame` is, and the count of the table.
const HEADER_BYTES: usize = 12;
/// One line of the table: where a function begins, where its entry is.
const LINE_BYTES: usize = 8;

/// A function's entry, with the common part it refers to.
pub(super) struct Entry {
    /// The bytes from the common part to the end of the entry.
    pub bytes: &'static [u8],
    /// Where the entry begins in them.
    pub offset: usize,
}

/// The entry of the last function that begins at or below `pc`. Whether it reaches `pc`, the entry says.
pub(super) fn entry(object: &Object, pc: usize) -> Option<Entry> {
    let header = object.header;
    let [version, frame, count, table] = u32_at(object, header)?.to_le_bytes();
    if [version, frame, count, table] != [1, FROM_HERE_I32, U32, FROM_HEADER_I32] {
        return None;
    }
    let lines = header + HEADER_BYTES;
    let start_of = |line: usize| offset_at(object, header, lines + line * LINE_BYTES);
    let (mut from, mut to) = (0, u32_at(object, header + 8)? as usize);
    while from < to {
        let middle = from + (to - from) / 2;
        if start_of(middle)? <= pc {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    let line = from.checked_sub(1)?;
    bytes_of(object, offset_at(object, header, lines + line * LINE_BYTES + 4)?)
}

fn bytes_of(object: &Object, entry: usize) -> Option<Entry> {
    // Lengths of 64 bits (0xffff_ffff) reach beyond the object, so they are refused.
    let end = entry.checked_add(4)?.checked_add(u32_at(object, entry)? as usize)?;
    let common = (entry + 4).checked_sub(u32_at(object, entry + 4)? as usize)?;
    if common < object.start || common >= entry || end > object.end {
        return None;
    }
    // SAFETY: both lie in the object's `.eh_frame`, the common part first, as the format demands; what lies between are
    // other entries. It is read-only memory of an object that stays loaded while this thread is in its code.
    let bytes = unsafe { core::slice::from_raw_parts(common as *const u8, end - common) };
    Some(Entry { bytes, offset: entry - common })
}

/// The address that a 32-bit offset from `base` leads to.
fn offset_at(object: &Object, base: usize, at: usize) -> Option<usize> {
    Some(base.wrapping_add_signed(u32_at(object, at)?.cast_signed() as isize))
}

fn u32_at(object: &Object, at: usize) -> Option<u32> {
    let is_inside = at >= object.start && at < object.end && object.end - at >= 4;
    // SAFETY: inside the object, at a place that its header or its table leads to: read-only memory of an object that
    // stays loaded while this thread is in its code.
    is_inside.then(|| unsafe { (at as *const u32).read_unaligned() })
}
