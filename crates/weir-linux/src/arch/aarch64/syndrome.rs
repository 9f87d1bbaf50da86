//! What the processor said of a wrong access (`ESR_EL1`), among the records that the kernel puts behind a signal frame's registers.
//!
//! Nothing here needs the processor: the tests run on each.

/// A record with the register. One begins with a word, of which the lower half says what it is, and the upper half its bytes.
const SYNDROME: u32 = 0x4553_5201;
/// In the register: the kind of exception, and its two kinds that are accesses to data.
const KIND_AT: u32 = 26;
const DATA: core::ops::RangeInclusive<u64> = 0x24..=0x25;
/// In the register of such a one: the access was a write.
const WRITE: u64 = 1 << 6;

/// Whether the access was a write; `None`: the records do not say.
pub fn is_write(mut records: &[u64]) -> Option<bool> {
    const WORD: usize = size_of::<u64>();
    loop {
        let (&head, body) = records.split_first()?;
        let (kind, bytes) = (head as u32, (head >> 32) as usize);
        if kind == SYNDROME {
            let syndrome = *body.first()?;
            return DATA.contains(&(syndrome >> KIND_AT)).then_some(syndrome & WRITE != 0);
        }
        // The last one has neither.
        records = records.get(bytes / WORD..).filter(|_| kind != 0 && bytes >= WORD)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of floating-point registers, as each frame has one, then these.
    fn records(more: &[u64]) -> [u64; 128] {
        let mut all = [0; 128];
        all[0] = 528 << 32 | 0x4650_8001;
        all[66..66 + more.len()].copy_from_slice(more);
        all
    }

    #[test]
    fn the_syndrome_is_found_behind_other_records() {
        let head = 16 << 32 | u64::from(SYNDROME);
        assert_eq!(is_write(&records(&[head, 0x9200_0047])), Some(true));
        assert_eq!(is_write(&records(&[head, 0x9200_0007])), Some(false));
        assert_eq!(is_write(&records(&[head, 0x8200_0047])), None, "an instruction was fetched");
    }

    #[test]
    fn a_frame_without_it_says_nothing() {
        assert_eq!(is_write(&records(&[])), None);
        assert_eq!(is_write(&[]), None);
        assert_eq!(is_write(&[7]), None, "a record of no length");
        assert_eq!(is_write(&[u64::MAX, 0, 0]), None, "one that is longer than the frame");
        assert_eq!(is_write(&[16 << 32 | u64::from(SYNDROME)]), None);
    }
}
