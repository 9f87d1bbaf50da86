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
/// Bytes of an entry and its common part for which a rule is kept: to hash more would take longer than 0.1 us. Most have 40 to 100.
const MOST_TAGGED: usize = 512;

/// A function's entry, with the common part it refers to.
pub(super) struct Entry {
    /// The bytes from the common part to the end of the entry.
    pub bytes: &'static [u8],
    /// Where the entry begins in them.
    pub offset: usize,
}

impl Entry {
    /// A hash of all that a rule of this entry at `pc` follows from; `None`: it is too long to be worth that.
    pub fn tag(&self, pc: usize) -> Option<u64> {
        let common = self.bytes.get(..4)?.first_chunk().map(|length| 4 + u32::from_le_bytes(*length) as usize)?;
        let (common, own) = (self.bytes.get(..common.min(self.offset))?, self.bytes.get(self.offset..)?);
        if common.len() + own.len() > MOST_TAGGED {
            return None;
        }
        // An entry says where its function is by the distance from itself.
        let seed = mix(mix(0, pc as u64), own.as_ptr() as u64);
        Some(hash(hash(seed, common), own))
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    // The factor is 2^64 over the golden ratio; the rotation brings what it spreads upwards back down.
    ((hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(29)
}

fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(mix(seed, bytes.len() as u64), |hash, word| mix(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
}

/// The lines of an object's table.
pub(super) struct Lines<'a> {
    object: &'a Object,
    count: usize,
}

impl<'a> Lines<'a> {
    /// `None`: the table is of another form.
    pub fn of(object: &'a Object) -> Option<Self> {
        let [version, frame, count, table] = u32_at(object, object.header)?.to_le_bytes();
        let is_known = [version, frame, count, table] == [1, FROM_HERE_I32, U32, FROM_HEADER_I32];
        let count = u32_at(object, object.header + 8)? as usize;
        is_known.then_some(Self { object, count })
    }

    fn at(&self, line: usize) -> usize {
        self.object.header + HEADER_BYTES + line * LINE_BYTES
    }

    /// Where the function of a line begins.
    fn start_of(&self, line: usize) -> Option<usize> {
        offset_at(self.object, self.object.header, self.at(line))
    }

    /// The line of the last function that begins at or below `pc`. Whether it reaches `pc`, its entry says.
    pub fn find(&self, pc: usize) -> Option<usize> {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = from + (to - from) / 2;
            if self.start_of(middle)? <= pc {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from.checked_sub(1)
    }

    /// Whether [`Lines::find`] would give this line of a table that is sorted, as linkers write it. In a table that is
    /// not, this may accept another line of a function that begins below `pc`. The entry's own range decides in both
    /// cases: the tag of a kept rule is of an entry that was found to reach `pc`.
    pub fn is_of(&self, line: usize, pc: usize) -> bool {
        let begins = |line| self.start_of(line).is_some_and(|start| start <= pc);
        line < self.count && begins(line) && (line + 1 == self.count || !begins(line + 1))
    }

    /// The entry of a line.
    pub fn entry(&self, line: usize) -> Option<Entry> {
        bytes_of(self.object, offset_at(self.object, self.object.header, self.at(line) + 4)?)
    }
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
    // SAFETY: inside the object, at a place that its header or its table leads to. That is read-only memory of an
    // object that stays loaded while this thread is in its code.
    is_inside.then(|| unsafe { (at as *const u32).read_unaligned() })
}
