//! The cliffs that Weir has, as they were when they were last looked at. One that is new, has grown, or is no more, fails the
//! sweep: then its row is changed here, or the allocator.

use super::cliffs::Known;
use std::ops::RangeInclusive;

const MAPPED: &str = "above 4 MiB a word of the CPU's, and now and then the table of blocks; below, a bucket";
const STAYS: &str = "16 B hold 8 B and their double: such a block stays as it is";
const REMAPPED: &str = "both lengths above 4 MiB: mapped on its own, grows without a copy";
const SPARSE: &str = "from here on a run that was hardly touched is released, and not written to";
const LOOKED_AT: &str = "from here on a grown block is looked at when it is freed: system calls";

/// The rows, by pattern and size.
pub const KNOWN: &[Known] = &[
    Known { pattern: "malloc", size: 4_987_896, factor: 2.8, why: MAPPED },
    Known { pattern: "calloc", size: 524_288, factor: 0.29, why: SPARSE },
    Known { pattern: "aligned", size: 4_987_896, factor: 2.8, why: MAPPED },
    Known { pattern: "doubled", size: 24, factor: 3.3, why: STAYS },
    Known { pattern: "doubled", size: 9_975_792, factor: 0.0098, why: REMAPPED },
    Known { pattern: "doubled", size: 16_777_216, factor: 6.8, why: LOOKED_AT },
];

/// Sizes that are counted and not judged, by pattern. Whether a run of these grows where it lies, or is copied, is for its
/// place in its pageblocks to say. That differs from run to run.
pub const BY_CHANCE: &[(&str, RangeInclusive<u64>)] = &[("doubled", 1_048_577..=4_194_304)];
